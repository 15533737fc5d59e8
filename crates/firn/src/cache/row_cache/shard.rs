//! A shard of the row cache, and the steps by which a flush keeps stale rows out.
//!
//! The steps are generic over the lock, so that the tests can run this very code with the locks of
//! the model checker `loom`.

use super::cached_row::CachedRow;
use crate::base::Seqno;
use quick_cache::unsync::{Cache, DefaultLifecycle};
use quick_cache::{OptionsBuilder, Weighter};
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes of memory that a cached row takes beside its own bytes: its slot, hash table entry, share
/// of the ghost entries, reference counts, allocator header.
pub(super) const ENTRY_OVERHEAD: u64 = 128;

/// Assumed average number of bytes that a row takes in the cache. The hash tables are sized for the
/// capacity divided by this number.
pub(super) const AVERAGE_ENTRY: u64 = 256;

#[derive(Clone)]
pub(super) struct ByWeight;

impl Weighter<u64, CachedRow> for ByWeight {
    fn weight(&self, _hash: &u64, row: &CachedRow) -> u64 {
        row.len() as u64 + ENTRY_OVERHEAD
    }
}

/// A hasher that returns its input, because the keys of the table are hashes already.
#[derive(Default, Clone)]
pub(super) struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn write(&mut self, _: &[u8]) {
        unreachable!("only 64-bit hashes are hashed")
    }
    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

type RowMap = Cache<
    u64,
    CachedRow,
    ByWeight,
    BuildHasherDefault<IdentityHasher>,
    DefaultLifecycle<u64, CachedRow>,
>;

/// The rows of one shard, by the hash of their user key. Of two rows whose keys have the same hash,
/// only the one that was cached last is kept.
pub(super) struct Shard {
    /// The number of a memtable. A row may be cached only if all memtables up to this one were
    /// frozen and complete when the reader's super version was made.
    floor: u64,
    rows: RowMap,
}

impl Shard {
    pub(super) fn new(capacity: u64, expected_rows: u64) -> Self {
        let options = OptionsBuilder::new()
            .estimated_items_capacity(expected_rows.max(1) as usize)
            .weight_capacity(capacity)
            .build()
            .expect("all required options are set");
        Self {
            floor: 0,
            rows: Cache::with_options(
                options,
                ByWeight,
                BuildHasherDefault::default(),
                DefaultLifecycle::default(),
            ),
        }
    }

    /// Returns the cached row of `user_key`; `None` if none is cached, or if the right version for
    /// a read at `seqno` may be another one. `newest_memtable` is the number of the active memtable
    /// in the reader's super version.
    #[inline]
    pub(super) fn get(
        &self,
        hash: u64,
        user_key: &[u8],
        seqno: Seqno,
        newest_memtable: u64,
    ) -> Option<CachedRow> {
        let row = self.rows.get(&hash)?;
        let admitted = row.readers().admit(seqno, newest_memtable);
        (admitted && row.user_key() == user_key).then(|| row.clone())
    }

    /// Caches `row`, which a reader has found in the files. `sealed` is the number up to which all
    /// memtables were frozen and complete when the reader's super version was made. If it is below
    /// the shard's floor, the row is refused: a later memtable, which is being flushed or was
    /// flushed, may have a newer version. Returns whether the row was cached.
    pub(super) fn fill(&mut self, sealed: u64, hash: u64, row: CachedRow) -> bool {
        let fresh = sealed >= self.floor;
        if fresh {
            self.rows.insert(hash, row);
        }
        fresh
    }

    pub(super) fn raise(&mut self, number: u64) {
        self.floor = self.floor.max(number);
    }

    pub(super) fn erase(&mut self, hash: u64) {
        self.rows.remove(&hash);
    }

    /// Erases the rows for whose user keys `named` returns true.
    pub(super) fn erase_where(&mut self, named: impl Fn(&[u8]) -> bool) {
        self.rows.retain(|_, row| !named(row.user_key()));
    }

    pub(super) fn set_capacity(&mut self, capacity: u64) {
        self.rows.set_capacity(capacity);
    }

    pub(super) fn weight(&self) -> u64 {
        self.rows.weight()
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// Bytes of memory that the tables around the rows take, as `quick_cache` counts them.
    #[cfg(test)]
    pub(super) fn table_bytes(&self) -> usize {
        self.rows.memory_used().total()
    }
}

/// A lock around a shard.
pub(super) trait ShardLock {
    /// Runs `f` with shared access.
    fn with<R>(&self, f: impl FnOnce(&Shard) -> R) -> R;
    /// Runs `f` with exclusive access.
    fn with_mut<R>(&self, f: impl FnOnce(&mut Shard) -> R) -> R;
}

/// The shard for a hash. It is chosen by bits of the hash that the hash table inside the shard does
/// not use to choose a bucket or a tag: otherwise the rows of a shard would share these.
pub(super) fn shard_of<L>(shards: &[L], hash: u64) -> &L {
    &shards[(((hash >> 24) & 0xffff_ffff) % shards.len() as u64) as usize]
}

/// The first two steps with which a flush of memtable `number` keeps stale rows out of the row
/// cache: from now on, refuse rows from readers whose super version was made before that memtable
/// was complete; then erase the rows of the memtable's keys. The order matters. Between the two
/// steps a valid row may be refused, which is harmless. In the other order, a reader could cache a
/// stale row after the erasure, and the row would stay.
pub(super) fn retire<L: ShardLock>(shards: &[L], number: u64, hashes: impl Iterator<Item = u64>) {
    raise(shards, number);
    erase(shards, hashes);
}

pub(super) fn raise<L: ShardLock>(shards: &[L], number: u64) {
    for shard in shards {
        shard.with_mut(|shard| shard.raise(number));
    }
}

pub(super) fn erase<L: ShardLock>(shards: &[L], hashes: impl Iterator<Item = u64>) {
    let mut last = None;
    for hash in hashes {
        // Versions of one key are adjacent: erase it once.
        if last != Some(hash) {
            shard_of(shards, hash).with_mut(|shard| shard.erase(hash));
            last = Some(hash);
        }
    }
}
