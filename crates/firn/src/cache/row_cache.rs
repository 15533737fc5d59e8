//! The row cache: keeps single rows that point reads request repeatedly.

mod admission;
mod cached_row;
mod shard;

use super::stats::{CacheStats, Striped};
use crate::base::{InternalIterator, InternalKey, Result, Seqno, Value, checksum};
use admission::Admission;
use cached_row::{CachedRow, RowVisibility};
use parking_lot::RwLock;
use shard::{AVERAGE_ENTRY, ENTRY_OVERHEAD, Shard, ShardLock, retire, shard_of};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::available_parallelism;

impl ShardLock for RwLock<Shard> {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&Shard) -> R) -> R {
        f(&self.read())
    }
    fn with_mut<R>(&self, f: impl FnOnce(&mut Shard) -> R) -> R {
        f(&mut self.write())
    }
}

/// The hash of a user key. A point read computes it once, for its lookups in the row cache and all
/// files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Hashes a user key.
    #[inline]
    pub fn of(user_key: &[u8]) -> Self {
        Self(checksum::xxh3(user_key))
    }
}

/// Says which memtables were frozen, with no writer left in them, when a reader's super version was
/// made; see [`RowCache`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealPoint {
    /// All memtables up to this number were frozen, and no writer was left in them, when the super
    /// version was made.
    pub number: u64,
    /// Seqno of the newest commit in these memtables and in the files.
    pub seqno: Seqno,
}

/// A cache of the newest *flushed* version of single user keys. Reads look it up after the
/// memtables and before the files.
///
/// A reader searches the memtables of its super version before the row cache. Memtables are
/// numbered in the order in which they freeze. A super version has the number up to which all
/// memtables were frozen and complete when it was made ([`SealPoint`]); it is *sealed* up to that
/// number. When a memtable is frozen and the last writer has left it, a new super version with its
/// number is published.
///
/// The flush of memtable number f takes three steps, in this order:
/// 1. Raise the floor of every shard to f, under the shard's lock.
/// 2. Erase the rows of all keys in the memtable.
/// 3. Publish a super version with the flushed files.
///
/// A fill, which caches a row that a reader found in the files, is refused under the shard's lock
/// if the reader's super version is sealed below the floor. It is also refused if the reader may
/// have skipped a newer version that its snapshot does not see: the snapshot must reach the newest
/// commit of the sealed memtables.
///
/// Proof that no stale row remains. Let a reader want to cache a row while or after memtable f is
/// flushed.
/// - Its super version is sealed at f or later. Then it contains memtable f completely, or the
///   flushed files. The reader came to older files only because the key is not in memtable f, so
///   its row is not stale.
/// - Its super version is sealed below f. Then the reader may have searched memtable f before a
///   write to it. If it fills after step 1, the fill is refused. If it fills before step 1, step 2
///   erases the row.
///
/// Readers of super versions made after step 3 therefore find no stale row, and readers of older
/// ones search memtable f first.
///
/// A hit must also be visible to its reader. Three rules ensure that:
/// - A row is returned only to reads at the seqno of the row or a later one.
/// - In the last level, a compaction sets the seqno of versions that everybody sees to 0. But a
///   statement that still has an older super version reads at an older seqno, which is in no
///   snapshot list, and the row may be newer than that. So a row with seqno 0 counts as being as
///   new as the newest commit in the memtables that were sealed when it was cached.
/// - A statement pins its super version and reads the visible seqno after that. If a memtable
///   freezes in between, commits in the next memtable are visible by their seqno but missing in the
///   super version. The statement sees the state before them, so it must not find one of them in
///   the row cache either. So a row is returned only to super versions that have, frozen or active,
///   all memtables that were sealed when the row was cached.
///
/// Tombstones and missing keys are not cached, because filters answer for most missing keys without
/// reading a block. Dropping an index needs no erasure, because index ids are never reused.
///
/// While there is room, a row is cached at its first use. Once the cache is full, a row is cached
/// at its second use (see [`Admission`]). Caching a row costs one allocation. A hit costs a hash, a
/// shared lock and a reference count. The caller reads the row after the lock is released, so it
/// may use the cache again meanwhile.
///
/// Lock: each shard has its own; no thread holds two at once.
///
/// Rejected: rows keyed by file. Each compaction would empty the cache.
/// Rejected: comparing the seqno of the snapshot with the largest frozen seqno. A snapshot is taken
/// after the super version is pinned, so a freeze and a flush in between could let a stale row in.
/// Rejected: caching at the first use in a full cache. Uniform reads over more rows than fit would
/// pay a copy and an eviction each, and gain nothing.
/// Rejected: caching only at the second use in an empty cache. A skewed load took a million reads
/// to fill it.
pub struct RowCache {
    shards: Box<[RwLock<Shard>]>,
    admission: Admission,
    capacity: AtomicU64,
    /// Number of bytes of rows that may still be cached at their first use. At 0 or below the cache
    /// counts as full, and rows are cached at their second use.
    spare: AtomicI64,
    stats: Striped,
}

const SHARDS_PER_CORE: u64 = 16;
/// [`RowCache::set_room`] raises the capacity only if it grows by more than 1/8, but reduces it at
/// once.
const GROWTH_MIN: u64 = 8;
/// A cache that is created with capacity 0 sizes its shards and its admission table for this
/// capacity in bytes, because it may be given capacity later.
const LATER_CAPACITY: u64 = 64 << 20;
/// Smallest capacity of a shard in bytes; a smaller one would refuse ordinary rows.
const SHARD_MIN: u64 = 64 << 10;
/// A row may take at most 1/16 of the capacity of its shard.
const HEAVIEST_SHARE: u64 = 16;
/// The cache counts as full when less than 1/16 of its capacity is free.
const FULL_SHARE: u64 = 16;

impl RowCache {
    /// Creates a cache with a capacity of `capacity` bytes; with 0 it caches nothing.
    pub fn new(capacity: u64) -> Self {
        let cores = available_parallelism().map_or(1, |n| n.get() as u64);
        let made_for = match capacity {
            0 => LATER_CAPACITY,
            capacity => capacity,
        };
        let shards = (cores * SHARDS_PER_CORE)
            .min(made_for / SHARD_MIN)
            .max(1)
            .next_power_of_two();
        let each = capacity / shards;
        let shard = || RwLock::new(Shard::new(each, each / AVERAGE_ENTRY));
        Self {
            shards: (0..shards).map(|_| shard()).collect(),
            admission: Admission::new(made_for),
            capacity: AtomicU64::new(capacity),
            spare: AtomicI64::new(spare(capacity, 0)),
            stats: Striped::new(),
        }
    }

    /// Whether the capacity is above 0.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.capacity.load(Ordering::Relaxed) > 0
    }

    /// Calls `f` with the newest flushed version of `user_key`, if that is cached and the reader
    /// may see it. The reader reads at `seqno`, and `active` is the number of the active memtable
    /// in its super version. The caller has searched the memtables of that super version without
    /// finding the key.
    #[inline]
    pub fn get<R>(
        &self,
        hash: KeyHash,
        user_key: &[u8],
        seqno: Seqno,
        active: u64,
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Option<R> {
        let shard = shard_of(&self.shards, hash.0);
        match shard.with(|shard| shard.get(hash.0, user_key, seqno, active)) {
            Some(row) => {
                self.stats.hit(hash.0 as usize);
                Some(f(row.key(), row.value()))
            }
            None => {
                self.stats.miss(hash.0 as usize);
                None
            }
        }
    }

    /// Offers the row that a reader found in the files. The reader reads at `seqno`, the row is the
    /// newest version in the files that it sees, and its super version has the seal point `sealed`.
    /// The cache keeps the row if it is certainly the newest flushed version, and if there is room
    /// or the row was used before.
    #[inline]
    pub fn offer(
        &self,
        hash: KeyHash,
        sealed: SealPoint,
        seqno: Seqno,
        key: InternalKey<'_>,
        value: Value<'_>,
    ) {
        let admitted = || self.spare.load(Ordering::Relaxed) > 0 || self.admission.admits(hash.0);
        if key.kind.is_put() && seqno >= sealed.seqno && admitted() {
            self.fill(hash, sealed, key, value);
        }
    }

    #[cold]
    fn fill(&self, hash: KeyHash, sealed: SealPoint, key: InternalKey<'_>, value: Value<'_>) {
        let weight = CachedRow::len_of(key.user_key, value) as u64 + ENTRY_OVERHEAD;
        let shard_capacity = self.capacity.load(Ordering::Relaxed) / self.shards.len() as u64;
        if weight <= shard_capacity / HEAVIEST_SHARE {
            let row = CachedRow::new(key, value, readers(key, sealed));
            let shard = shard_of(&self.shards, hash.0);
            if shard.with_mut(|shard| shard.fill(sealed.number, hash.0, row)) {
                // `spare` is how many bytes of rows may still be cached at their first use.
                // Concurrent fills may make it negative. It stays so until `count_spare` computes
                // it again.
                self.spare.fetch_sub(weight as i64, Ordering::Relaxed);
            }
        }
    }

    /// Computes `spare` again: how many bytes of rows may be cached at their first use before the
    /// cache counts as full, so that rows are cached only at their second use.
    fn count_spare(&self) {
        let held = self.shards.iter().map(|shard| shard.with(Shard::weight));
        let capacity = self.capacity.load(Ordering::Relaxed);
        self.spare
            .store(spare(capacity, held.sum()), Ordering::Relaxed);
    }

    /// Prepares the row cache for the flush of memtable `number`, whose entries are `entries`. From
    /// now on the cache refuses rows from readers whose super versions may lack writes of this
    /// memtable. Then it erases the rows of all keys in `entries`. These are steps 1 and 2 in
    /// [`RowCache`]. Call this function after super versions that contain the complete memtable are
    /// published, and before a super version with the flushed files is published.
    ///
    /// # Errors
    /// Those of the iterator.
    pub fn retire(&self, number: u64, entries: &mut impl InternalIterator) -> Result<()> {
        let mut on = entries.seek_to_first();
        let hashes = std::iter::from_fn(|| match on {
            Ok(true) => {
                let hash = KeyHash::of(entries.key().user_key).0;
                on = entries.next();
                Some(hash)
            }
            Ok(false) | Err(_) => None,
        });
        retire(&self.shards, number, hashes);
        self.count_spare();
        on.map(drop)
    }

    /// As [`Self::retire`], for the commit of an ingested run whose files have too many keys to
    /// erase one by one: erases the rows of all cached keys for which `named` returns true.
    pub fn retire_where(&self, number: u64, named: impl Fn(&[u8]) -> bool) {
        shard::raise(&self.shards, number);
        for shard in &self.shards {
            shard.with_mut(|shard| shard.erase_where(&named));
        }
        self.count_spare();
    }

    /// Sets the capacity in bytes; a smaller one evicts rows.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        let each = capacity / self.shards.len() as u64;
        for shard in &self.shards {
            shard.with_mut(|shard| shard.set_capacity(each));
        }
        self.count_spare();
    }

    /// Sets the capacity so that the whole cache, with its admission table, stays within `room`
    /// bytes.
    pub fn set_room(&self, room: u64) {
        let capacity = room.saturating_sub(self.admission.bytes());
        let held = self.capacity.load(Ordering::Relaxed);
        // Reduce the capacity at once, but raise it seldom, because on a resize the cache forgets a
        // part of what it knows about the use of rows, by which it chooses the rows to evict.
        if capacity < held || capacity > held.saturating_add(held / GROWTH_MIN) {
            self.set_capacity(capacity);
        }
    }

    /// Counters and sizes. Readers do not ask a cache of capacity 0, so it counts no lookups.
    pub fn stats(&self) -> CacheStats {
        let (hits, misses) = self.stats.sums();
        let mut stats = CacheStats {
            hits,
            misses,
            capacity: self.capacity.load(Ordering::Relaxed),
            bytes: self.admission.bytes(),
            entries: 0,
        };
        for shard in &self.shards {
            let (bytes, rows) = shard.with(|shard| (shard.weight(), shard.len()));
            stats.bytes += bytes;
            stats.entries += rows as u64;
        }
        stats
    }
}

/// How many bytes of rows a cache that holds `held` bytes may still cache at their first use. It
/// stops when all but one sixteenth of the capacity is used: keys do not spread evenly over the
/// shards, so by then some shards are full and evict a row for each one that they cache.
fn spare(capacity: u64, held: u64) -> i64 {
    (capacity - capacity / FULL_SHARE) as i64 - held as i64
}

fn readers(key: InternalKey<'_>, sealed: SealPoint) -> RowVisibility {
    let seqno = match key.seqno {
        0 => sealed.seqno,
        seqno => seqno,
    };
    RowVisibility {
        seqno,
        memtable: sealed.number,
    }
}

#[cfg(test)]
mod tests;
