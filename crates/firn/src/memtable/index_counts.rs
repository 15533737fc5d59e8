//! Counters per index, for statistics.

use crate::base::IndexId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

const SLOTS: usize = 128;
const PROBES: usize = 8;

/// Number and size of a memtable's entries of one index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexCounts {
    /// Entries of any kind.
    pub entries: u64,
    /// Entries that are deletes.
    pub deletes: u64,
    /// Bytes of keys and values.
    pub raw_bytes: u64,
    /// Bytes in blob files that the values refer to.
    pub blob_bytes: u64,
}

impl IndexCounts {
    pub(super) fn add(&mut self, other: IndexCounts) {
        self.entries += other.entries;
        self.deletes += other.deletes;
        self.raw_bytes += other.raw_bytes;
        self.blob_bytes += other.blob_bytes;
    }
}

/// The counters of one index. `owner` is 0 while the slot is free, then the index id + 1 for good.
struct Slot {
    owner: AtomicU64,
    entries: AtomicU64,
    deletes: AtomicU64,
    raw_bytes: AtomicU64,
    blob_bytes: AtomicU64,
}

/// The counters of all indexes: a small open-addressed hash table without locks. Indexes that find
/// no slot share a map under a mutex; a memtable with entries of more than a hundred indexes is
/// rare.
pub(super) struct IndexCountTable {
    slots: Box<[Slot]>,
    overflow: Mutex<HashMap<IndexId, IndexCounts>>,
}

impl IndexCountTable {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS)
                .map(|_| Slot {
                    owner: AtomicU64::new(0),
                    entries: AtomicU64::new(0),
                    deletes: AtomicU64::new(0),
                    raw_bytes: AtomicU64::new(0),
                    blob_bytes: AtomicU64::new(0),
                })
                .collect(),
            overflow: Mutex::new(HashMap::new()),
        }
    }

    pub(super) fn add(&self, index: IndexId, counts: IndexCounts) {
        let Some(slot) = self.slot(index) else {
            let mut overflow = self.overflow.lock();
            overflow.entry(index).or_default().add(counts);
            return;
        };
        slot.entries.fetch_add(counts.entries, Ordering::Relaxed);
        slot.raw_bytes
            .fetch_add(counts.raw_bytes, Ordering::Relaxed);
        if counts.deletes > 0 {
            slot.deletes.fetch_add(counts.deletes, Ordering::Relaxed);
        }
        if counts.blob_bytes > 0 {
            slot.blob_bytes
                .fetch_add(counts.blob_bytes, Ordering::Relaxed);
        }
    }

    /// The slot of an index, claimed if necessary; `None` if other indexes own all its candidates.
    fn slot(&self, index: IndexId) -> Option<&Slot> {
        let owner = u64::from(index) + 1;
        for slot in Self::places(index).map(|place| &self.slots[place]) {
            match slot.owner.load(Ordering::Relaxed) {
                found if found == owner => return Some(slot),
                0 => {
                    let claimed =
                        slot.owner
                            .compare_exchange(0, owner, Ordering::Relaxed, Ordering::Relaxed);
                    match claimed {
                        Ok(_) => return Some(slot),
                        Err(other) if other == owner => return Some(slot),
                        Err(_) => {}
                    }
                }
                _ => {}
            }
        }
        None
    }

    fn places(index: IndexId) -> impl Iterator<Item = usize> {
        let start = (index.wrapping_mul(0x9e37_79b1) >> 16) as usize;
        (0..PROBES).map(move |i| (start + i) % SLOTS)
    }

    /// The counts of an index. A free slot among its candidates proves that the index has no
    /// counts in the map, since it would have claimed that slot: slots are never given back.
    pub(super) fn of(&self, index: IndexId) -> IndexCounts {
        let owner = u64::from(index) + 1;
        for slot in Self::places(index).map(|place| &self.slots[place]) {
            match slot.owner.load(Ordering::Relaxed) {
                found if found == owner => return slot.counts(),
                0 => return IndexCounts::default(),
                _ => {}
            }
        }
        let overflow = self.overflow.lock();
        overflow.get(&index).copied().unwrap_or_default()
    }

    pub(super) fn all(&self) -> Vec<(IndexId, IndexCounts)> {
        let overflow = self.overflow.lock();
        let mut all: Vec<_> = overflow.iter().map(|(&id, &counts)| (id, counts)).collect();
        for slot in &self.slots {
            let owner = slot.owner.load(Ordering::Relaxed);
            if owner != 0 {
                all.push(((owner - 1) as IndexId, slot.counts()));
            }
        }
        all.sort_unstable_by_key(|&(id, _)| id);
        all
    }
}

impl Slot {
    fn counts(&self) -> IndexCounts {
        IndexCounts {
            entries: self.entries.load(Ordering::Relaxed),
            deletes: self.deletes.load(Ordering::Relaxed),
            raw_bytes: self.raw_bytes.load(Ordering::Relaxed),
            blob_bytes: self.blob_bytes.load(Ordering::Relaxed),
        }
    }
}
