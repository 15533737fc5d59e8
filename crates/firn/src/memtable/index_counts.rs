//! Counters per index, for statistics.

use crate::base::IndexId;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of slots of the first hash table of counters. Each further hash table has [`GROWTH`]
/// times as many slots as the one before.
const SLOTS: usize = 128;
const GROWTH: usize = 8;
/// Number of tables: the last one has 65,536 slots.
const TABLES: usize = 4;
/// Number of candidate slots that an index has in each table.
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

/// The counters of one index; zero at first. `owner` is 0 while the slot is free. An index claims
/// the slot for good by storing its id + 1 there.
#[derive(Default)]
struct Slot {
    owner: AtomicU64,
    entries: AtomicU64,
    deletes: AtomicU64,
    raw_bytes: AtomicU64,
    blob_bytes: AtomicU64,
}

/// The counters of all indexes: open-addressed hash tables without locks.
///
/// An index that finds no slot in a table takes one of the next, larger table, which is allocated
/// then. So the memory follows the number of indexes, and commits to ten thousand tables share no
/// lock. The few indexes that find no slot in the last table share a map under a mutex.
pub(super) struct IndexCountTable {
    tables: [OnceLock<Box<[Slot]>>; TABLES],
    overflow: Mutex<HashMap<IndexId, IndexCounts>>,
}

fn slots(table: usize) -> Box<[Slot]> {
    let slots = SLOTS * GROWTH.pow(table as u32);
    (0..slots).map(|_| Slot::default()).collect()
}

/// Where an index finds its counters.
enum Found<'a> {
    Slot(&'a Slot),
    /// The index has no counters yet: one of its candidate slots is free, so nothing was counted
    /// for it.
    Free,
    /// Other indexes own all candidate slots of the index, so its counters are in the map
    /// `overflow`, if it has any.
    Overflow,
}

impl IndexCountTable {
    pub(super) fn new() -> Self {
        Self {
            tables: [const { OnceLock::new() }; TABLES],
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

    /// The slot of an index; claims one if it has none. `None` if other indexes own all its
    /// candidate slots.
    fn slot(&self, index: IndexId) -> Option<&Slot> {
        let tables = self.tables.iter().enumerate();
        let mut tables = tables.map(|(number, table)| table.get_or_init(|| slots(number)));
        tables.find_map(|table| Self::claim(table, index))
    }

    fn claim(table: &[Slot], index: IndexId) -> Option<&Slot> {
        let owner = u64::from(index) + 1;
        for slot in candidates(table, index) {
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

    /// Finds the counters of an index. The search visits the tables in their order, and in each
    /// table the slots that the index may claim. It ends at the first free slot: the index would
    /// have claimed that slot before one of a later table or an entry of the map `overflow`, and
    /// slots are never freed.
    fn find(&self, index: IndexId) -> Found<'_> {
        let owner = u64::from(index) + 1;
        for table in &self.tables {
            let Some(table) = table.get() else {
                return Found::Free;
            };
            for slot in candidates(table, index) {
                match slot.owner.load(Ordering::Relaxed) {
                    found if found == owner => return Found::Slot(slot),
                    0 => return Found::Free,
                    _ => {}
                }
            }
        }
        Found::Overflow
    }

    /// The counts of an index.
    pub(super) fn of(&self, index: IndexId) -> IndexCounts {
        match self.find(index) {
            Found::Slot(slot) => slot.counts(),
            Found::Free => IndexCounts::default(),
            Found::Overflow => {
                let overflow = self.overflow.lock();
                overflow.get(&index).copied().unwrap_or_default()
            }
        }
    }

    pub(super) fn all(&self) -> Vec<(IndexId, IndexCounts)> {
        let overflow = self.overflow.lock();
        let mut all: Vec<_> = overflow.iter().map(|(&id, &counts)| (id, counts)).collect();
        for slot in self.tables.iter().filter_map(OnceLock::get).flatten() {
            let owner = slot.owner.load(Ordering::Relaxed);
            if owner != 0 {
                all.push(((owner - 1) as IndexId, slot.counts()));
            }
        }
        all.sort_unstable_by_key(|&(id, _)| id);
        all
    }
}

/// The slots of `table` in which `index` may be.
fn candidates(table: &[Slot], index: IndexId) -> impl Iterator<Item = &Slot> {
    let start = (index.wrapping_mul(0x9e37_79b1) >> 16) as usize;
    (0..PROBES).map(move |i| &table[(start + i) % table.len()])
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

#[cfg(test)]
mod tests;
