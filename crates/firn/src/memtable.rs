//! The memtable: a concurrent ordered map of the newest writes.

mod arena;
mod atomics;
mod filter;
mod index_counts;
mod inserter;
mod iter;
mod node;
mod skiplist;
mod writer_refs;

pub use index_counts::IndexCounts;
pub use inserter::Inserter;
pub use iter::MemtableIter;
pub use skiplist::RangeEntries;

use crate::base::blob_ref::BlobUses;
use crate::base::checksum::xxh3;
use crate::base::{IndexId, InternalKey, Seqno, Value};
use filter::Filter;
use index_counts::IndexCountTable;
use parking_lot::Mutex;
use skiplist::Skiplist;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use writer_refs::WriterRefs;

/// The newest writes, sorted, in memory.
///
/// Invariants:
///
/// - An entry is never changed, replaced or removed. A key that is written again gets another entry
///   with a larger seqno. So readers need neither locks nor reference counts.
/// - Only entries with committed seqnos enter. One with a seqno of a private write set would be
///   flushed to a file with it.
/// - All entries of one commit go into one memtable: a commit chooses it when it gets its seqno.
///
/// Life: active (commits insert in parallel) → frozen (no further commit chooses it; earlier ones
/// may still insert: [`Memtable::wait_quiescent`]) → flushed → dropped with its last reader.
///
/// A read uses a seqno that is *visible*. That seqno was published after the inserts of all commits
/// up to it, so these inserts happen before the read. The filter therefore needs no memory ordering
/// of its own. The list uses acquire and release only because a walk also meets entries that are
/// not visible yet.
///
/// Rejected: a map with one entry per user key and a chain of versions. Old parts of a chain would
/// have to be freed while readers walk it, and a skiplist that replaces entries may hide a key for
/// a moment.
pub struct Memtable {
    id: u64,
    list: Skiplist,
    filter: Filter,
    counters: IndexCountTable,
    blobs: Mutex<BlobUses>,
    /// Sum of the bytes in `blobs`, readable without the mutex.
    blob_bytes: AtomicU64,
    size: AtomicU64,
    entries: AtomicU64,
    seqno_min: AtomicU64,
    seqno_max: AtomicU64,
    min_segment: AtomicU64,
    last_lsn: AtomicU64,
    last_commit: AtomicU64,
    writers: WriterRefs,
}

impl Memtable {
    /// An empty memtable with the default capacity of 64 MiB. `id` is unique among the memtables of
    /// the database; `min_segment` is the oldest log segment that may hold its entries.
    pub fn new(id: u64, min_segment: u64) -> Self {
        Self::with_capacity(id, min_segment, 64 << 20)
    }

    /// An empty memtable for about `capacity` bytes of entries, which determines the size of the
    /// filter. It takes more entries than that, but then the filter gives more and more false
    /// positives.
    pub fn with_capacity(id: u64, min_segment: u64, capacity: u64) -> Self {
        let filter_bytes = (capacity / 64).clamp(16 << 10, 16 << 20) as usize;
        Self {
            id,
            list: Skiplist::new(),
            filter: Filter::new(filter_bytes),
            counters: IndexCountTable::new(),
            blobs: Mutex::default(),
            blob_bytes: AtomicU64::new(0),
            size: AtomicU64::new(0),
            entries: AtomicU64::new(0),
            seqno_min: AtomicU64::new(Seqno::MAX),
            seqno_max: AtomicU64::new(0),
            min_segment: AtomicU64::new(min_segment),
            last_lsn: AtomicU64::new(0),
            last_commit: AtomicU64::new(0),
            writers: WriterRefs::default(),
        }
    }

    /// The id given at creation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Adds a version; any number of threads may do so at the same time. If there is an entry with
    /// this user key, seqno and kind, it stays and nothing is added. For several entries,
    /// [`Memtable::inserter`] is faster.
    ///
    /// # Panics
    /// If the seqno is not a committed one.
    pub fn insert(&self, key: InternalKey<'_>, value: Value<'_>) {
        self.inserter().insert(key, value);
    }

    /// Returns an inserter, which adds several versions. Adding one that sorts right behind the
    /// version added before costs little.
    pub fn inserter(&self) -> Inserter<'_> {
        Inserter::new(self)
    }

    /// Calls `f` with the newest version of `user_key` whose seqno is at most `seqno`; that version
    /// may be a tombstone. Returns `None` if there is no such version here.
    pub fn get<R>(
        &self,
        user_key: &[u8],
        seqno: Seqno,
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Option<R> {
        if !self.filter.may_contain(xxh3(user_key)) {
            return None;
        }
        let cursor = self.list.at_or_after(user_key, seqno)?;
        let key = cursor.key();
        (key.user_key == user_key).then(|| f(key, cursor.value()))
    }

    /// Whether the filter admits `user_key`; `false` means that no version of it is here.
    pub fn may_contain(&self, user_key: &[u8]) -> bool {
        self.filter.may_contain(xxh3(user_key))
    }

    /// An iterator that keeps the memtable alive; not positioned.
    pub fn iter(self: &Arc<Self>) -> MemtableIter {
        MemtableIter::new(Arc::clone(self))
    }

    /// The number of entries with `lo ≤ user key < hi` (no upper bound: `None`). A small number is
    /// counted, a larger one estimated. The caller will add the result to `others`, the number of
    /// entries in other sources: the standard error of an estimate is at most an eighth of that
    /// sum.
    pub fn estimate_range(&self, lo: &[u8], hi: Option<&[u8]>, others: u64) -> RangeEntries {
        self.list.estimate(lo, hi, others)
    }

    /// User keys with `lo ≤ key < hi`, ascending, with about equally many entries between
    /// neighbours. Returns at least `count` keys, but fewer if there are not so many or if keys
    /// have very many versions.
    pub fn split_keys(&self, lo: &[u8], hi: Option<&[u8]>, count: usize) -> Vec<Vec<u8>> {
        self.list.split_keys(lo, hi, count)
    }

    /// Memory of the entries, bytes: keys, values, links and padding. It only grows. The same
    /// entries take the same memory in any order of insertion that keeps the order of the versions
    /// of each key.
    pub fn size_bytes(&self) -> u64 {
        self.size.load(Ordering::Relaxed)
    }

    /// All memory taken from the allocator, bytes, unfilled chunks and the filter included.
    pub fn memory_bytes(&self) -> u64 {
        self.list.allocated() + (self.filter.size_bytes() + size_of::<Self>()) as u64
    }

    /// Number of entries.
    pub fn entries(&self) -> u64 {
        self.entries.load(Ordering::Relaxed)
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    /// Number and size of the entries of one index.
    pub fn index_counts(&self, index: IndexId) -> IndexCounts {
        self.counters.of(index)
    }

    /// Number and size of the entries of each index, ascending by index id.
    pub fn all_index_counts(&self) -> Vec<(IndexId, IndexCounts)> {
        self.counters.all()
    }

    /// The blobs that the entries refer to, by blob file.
    pub fn blob_uses(&self) -> BlobUses {
        self.blobs.lock().clone()
    }

    /// Bytes of blobs that entries here refer to.
    pub fn blob_bytes(&self) -> u64 {
        self.blob_bytes.load(Ordering::Relaxed)
    }

    /// Smallest and largest seqno; `None` while empty. Exact once no commit inserts any more.
    pub fn seqno_range(&self) -> Option<(Seqno, Seqno)> {
        let min = self.seqno_min.load(Ordering::Relaxed);
        let max = self.seqno_max.load(Ordering::Relaxed);
        (min <= max).then_some((min, max))
    }

    /// The oldest log segment that holds entries of this memtable.
    pub fn min_segment(&self) -> u64 {
        self.min_segment.load(Ordering::Acquire)
    }

    /// Lowers [`Memtable::min_segment`] to `segment`, because a transaction whose entries were
    /// logged there when it was prepared is committed into this memtable. Call it before the
    /// commit's [`Memtable::writers_end`].
    pub fn lower_min_segment(&self, segment: u64) {
        self.min_segment.fetch_min(segment, Ordering::AcqRel);
    }

    /// End of the last log record whose entries are here, as an LSN; 0 before the first.
    pub fn last_lsn(&self) -> u64 {
        self.last_lsn.load(Ordering::Acquire)
    }

    /// Moves [`Memtable::last_lsn`] forward to `lsn`; never back.
    pub fn set_last_lsn(&self, lsn: u64) {
        self.last_lsn.fetch_max(lsn, Ordering::AcqRel);
    }

    /// Seqno of the last commit that chose this memtable, even if it has no entries here (as a
    /// commit of counters); 0 before the first. The log may be released only after the manifest's
    /// last seqno has reached this one: otherwise recovery would assign the seqno again.
    pub fn last_commit(&self) -> Seqno {
        self.last_commit.load(Ordering::Acquire)
    }

    /// Moves [`Memtable::last_commit`] forward to `seqno`; never back.
    pub fn set_last_commit(&self, seqno: Seqno) {
        self.last_commit.fetch_max(seqno, Ordering::AcqRel);
    }

    /// Notes that a commit chose this memtable. Call it under the mutex that guards the choice, so
    /// that a freeze comes before or after.
    pub fn writers_begin(&self) {
        self.writers.begin();
    }

    /// Notes that the commit's inserts are done.
    ///
    /// # Panics
    /// Without a matching [`Memtable::writers_begin`].
    pub fn writers_end(&self) {
        self.writers.end();
    }

    /// Whether no commit is inserting.
    pub fn is_quiescent(&self) -> bool {
        self.writers.is_zero()
    }

    /// Waits until no commit is inserting. Call it after the freeze: no further commit begins then,
    /// so the wait ends. The inserts happen before the return.
    pub fn wait_quiescent(&self) {
        self.writers.wait_zero();
    }
}

impl std::fmt::Debug for Memtable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Memtable")
            .field("id", &self.id)
            .field("entries", &self.entries())
            .field("size_bytes", &self.size_bytes())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests;
