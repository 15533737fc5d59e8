//! Inserts several entries.

use super::skiplist::Splice;
use super::{IndexCounts, Memtable};
use crate::base::blob_ref::{self, BlobUses};
use crate::base::checksum::xxh3;
use crate::base::key::{SEQNO_COMMITTED_MAX, index_id_of};
use crate::base::{IndexId, InternalKey, Kind, Seqno, Value};
use std::sync::atomic::Ordering;

/// Number of hashes that an inserter collects for the filter.
const HASHES: usize = 16;

/// Inserts the entries of one batch into a memtable.
///
/// The inserter remembers its position in the list, so an entry that sorts right behind the
/// previous one costs a comparison or two. It also sums up its inserts: all writers share the
/// memtable's counters, so they change once per index of the batch instead of five times per entry.
/// Counters and filter are correct once the inserter is dropped, which must happen before the batch
/// becomes visible.
pub struct Inserter<'a> {
    memtable: &'a Memtable,
    splice: Splice<'a>,
    size: u64,
    entries: u64,
    /// Smallest and largest seqno of the inserted entries. Before the first entry, the smallest is
    /// larger than the largest.
    seqnos: (Seqno, Seqno),
    index: Option<IndexId>,
    counts: IndexCounts,
    blobs: BlobUses,
    /// The hashes of the newest keys, which are not in the filter yet.
    hashes: [u64; HASHES],
    hashes_len: usize,
}

impl<'a> Inserter<'a> {
    pub(super) fn new(memtable: &'a Memtable) -> Self {
        Self {
            memtable,
            splice: memtable.list.splice(),
            size: 0,
            entries: 0,
            seqnos: (Seqno::MAX, 0),
            index: None,
            counts: IndexCounts::default(),
            blobs: BlobUses::default(),
            hashes: [0; HASHES],
            hashes_len: 0,
        }
    }

    /// Adds a version. If there is an entry with this user key, seqno and kind, it stays and
    /// nothing is added.
    ///
    /// # Panics
    /// If the seqno is not a committed one.
    pub fn insert(&mut self, key: InternalKey<'_>, value: Value<'_>) {
        assert!(
            key.seqno <= SEQNO_COMMITTED_MAX,
            "uncommitted seqno {:#x} in a memtable",
            key.seqno
        );
        debug_assert!(!key.user_key.is_empty(), "a user key starts with its index");
        let hash = xxh3(key.user_key);
        if self.hashes_len == HASHES {
            self.flush_hashes();
        }
        self.hashes[self.hashes_len] = hash;
        self.hashes_len += 1;
        let list = &self.memtable.list;
        let Some(size) = list.insert(&mut self.splice, hash, key, value) else {
            return;
        };
        self.size += size as u64;
        self.entries += 1;
        self.seqnos.0 = self.seqnos.0.min(key.seqno);
        self.seqnos.1 = self.seqnos.1.max(key.seqno);
        let index = index_id_of(key.user_key);
        if index != self.index {
            self.flush_index();
            self.index = index;
        }
        let mut blob_bytes = 0;
        if key.kind == Kind::PutBlobs {
            // Ignore a malformed list of blob references here: reads and flushes of the entry
            // report it.
            let _ = self.blobs.add_tail(value.tail);
            let _ = blob_ref::for_each(value.tail, |blob| blob_bytes += blob.span());
        }
        self.counts.add(IndexCounts {
            entries: 1,
            deletes: u64::from(key.kind == Kind::Delete),
            raw_bytes: (key.user_key.len() + value.len()) as u64,
            blob_bytes,
        });
    }

    /// Adds the collected hashes to the filter.
    fn flush_hashes(&mut self) {
        let len = std::mem::take(&mut self.hashes_len);
        self.memtable.filter.insert_all(&self.hashes[..len]);
    }

    /// Adds the counts of the current index to the memtable's counters.
    fn flush_index(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        if let Some(index) = self.index {
            self.memtable.counters.add(index, counts);
        }
    }
}

impl Drop for Inserter<'_> {
    fn drop(&mut self) {
        self.flush_hashes();
        if self.entries == 0 {
            return;
        }
        self.flush_index();
        let memtable = self.memtable;
        if !self.blobs.is_empty() {
            let mut all = memtable.blobs.lock();
            self.blobs.iter().for_each(|blobs| all.add(blobs));
            memtable.blob_bytes.store(all.bytes(), Ordering::Relaxed);
        }
        memtable.size.fetch_add(self.size, Ordering::Relaxed);
        memtable.entries.fetch_add(self.entries, Ordering::Relaxed);
        let (min, max) = self.seqnos;
        if memtable.seqno_min.load(Ordering::Relaxed) > min {
            memtable.seqno_min.fetch_min(min, Ordering::Relaxed);
        }
        if memtable.seqno_max.load(Ordering::Relaxed) < max {
            memtable.seqno_max.fetch_max(max, Ordering::Relaxed);
        }
    }
}
