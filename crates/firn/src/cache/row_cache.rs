//! Row cache: single rows that point reads request again and again.

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

/// The hash of a user key, computed once for all lookups of a point read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Hashes a user key.
    #[inline]
    pub fn of(user_key: &[u8]) -> Self {
        Self(checksum::xxh3(user_key))
    }
}

/// The state of the memtables as a reader's view knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealPoint {
    /// Memtables up to this number were frozen and complete when the view was made.
    pub number: u64,
    /// The newest commit in them and in the files below them.
    pub seqno: Seqno,
}

/// A cache of the newest *flushed* version of single user keys, between memtables and files.
///
/// A reader looks into the memtables of its view before it comes here. Memtables are numbered in
/// the order in which they freeze. A view carries the number up to which all were complete when it
/// was made ([`SealPoint`]): when a memtable is frozen and its last writer has left, a new view
/// publishes that.
///
/// The flush of memtable f does three steps, in this order:
/// 1. Raise the floor of every shard to f, under the shard's lock.
/// 2. Erase the keys of the memtable.
/// 3. Install its files into the views.
///
/// A fill is refused, under the shard's lock, if the reader's view is sealed below the floor. It is
/// also refused if the reader may have passed over a version that it could not see: its snapshot
/// must reach the newest commit of the sealed memtables.
///
/// Proof that no stale row stays. A view sealed at f or later contains that memtable complete, or
/// its files: its reader reached older files only because the key is not in the memtable. The
/// reader of a view sealed before f may have looked into the memtable before the write. If it fills
/// after step 1, the fill is refused; if before, step 2 erases the row. Views made after step 3
/// find nothing stale, and views made before look into the memtable first.
///
/// A hit must also be visible to its reader, in three ways:
/// - A row is returned to reads at its own seqno or later.
/// - The last level sets the seqno of versions that everybody sees to 0. A statement with an older
///   view and an older seqno, which no list of snapshots knows, must not take such a row for old.
///   So the row counts as being as new as the newest commit in the memtables sealed at its fill.
/// - A statement pins its view and then reads the visible seqno. If a memtable freezes in between,
///   commits in the next one are visible by their seqno but missing from the view; the statement
///   sees the state before them. It must not find one of them here. So a row is returned only to
///   views that know all memtables sealed at its fill.
///
/// Deletions and missing keys are not cached: filters answer both without a block. Dropped indexes
/// need no step, since their ids never come back.
///
/// A row enters at its first use while there is room, and at its second use afterwards (see
/// [`Admission`]), for one allocation. A hit costs a hash, a shared lock and a reference count. The
/// caller reads the row after the lock is released, so it may call the cache again from there.
///
/// Lock: each shard's own; no two are held at once.
///
/// Rejected: rows keyed by file (a compaction would empty the cache); comparing the snapshot's
/// seqno with the largest frozen one (snapshots are read after the view is pinned, so a freeze and
/// a flush in between let a stale row in); admission at the first use in a full cache (uniform
/// reads over more than the cache would pay a copy and an eviction each, and gain nothing);
/// admission at the second use in an empty one (it took a skewed load a million reads to fill it).
pub struct RowCache {
    shards: Box<[RwLock<Shard>]>,
    admission: Admission,
    capacity: AtomicU64,
    /// Bytes that may still enter at their first use.
    spare: AtomicI64,
    stats: Striped,
}

const SHARDS_PER_CORE: u64 = 16;
/// The capacity shrinks at once, but grows only by at least 1/8; see [`RowCache::set_room`].
const GROWTH_MIN: u64 = 8;
/// Size for which a cache with capacity 0 is laid out, bytes, since it may be given room later.
const LATER_CAPACITY: u64 = 64 << 20;
/// A shard smaller than this would refuse ordinary rows.
const SHARD_MIN: u64 = 64 << 10;
/// A row may take at most 1/16 of its shard.
const HEAVIEST_SHARE: u64 = 16;
/// The cache counts as full when 1/16 of it is left.
const FULL_SHARE: u64 = 16;

impl RowCache {
    /// A cache with a capacity of `capacity` bytes; 0 for none.
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

    /// Whether the cache may hold anything.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.capacity.load(Ordering::Relaxed) > 0
    }

    /// Calls `f` with the newest flushed version of `user_key`, if it is cached and visible to a
    /// read at `seqno` in a view whose active memtable has number `active`. The caller has not
    /// found the key in the view's memtables.
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

    /// Offers a version that a reader found in the files: the newest one at or below `seqno`, in a
    /// view with `sealed`. The cache keeps it if it is certainly the newest flushed version, and if
    /// there is room or the row was used before.
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
                // If this drops far below zero, it stays below until the next count.
                self.spare.fetch_sub(weight as i64, Ordering::Relaxed);
            }
        }
    }

    /// Recomputes the room for rows at their first use.
    fn count_spare(&self) {
        let held = self.shards.iter().map(|shard| shard.with(Shard::weight));
        let capacity = self.capacity.load(Ordering::Relaxed);
        self.spare
            .store(spare(capacity, held.sum()), Ordering::Relaxed);
    }

    /// Steps 1 and 2 of the flush of memtable `number` with these entries. Call it before the files
    /// are installed, and after views that contain the complete memtable were published.
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

    /// As [`Self::retire`], for a run of files that was written beforehand and has too many keys to
    /// visit one by one: erases the rows of all keys for which `named` returns true.
    pub fn retire_where(&self, number: u64, named: impl Fn(&[u8]) -> bool) {
        shard::raise(&self.shards, number);
        for shard in &self.shards {
            shard.with_mut(|shard| shard.erase_where(&named));
        }
        self.count_spare();
    }

    /// Changes the capacity, bytes; a smaller one evicts.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        let each = capacity / self.shards.len() as u64;
        for shard in &self.shards {
            shard.with_mut(|shard| shard.set_capacity(each));
        }
        self.count_spare();
    }

    /// Changes the capacity such that the whole cache, admission table included, stays within
    /// `room` bytes.
    pub fn set_room(&self, room: u64) {
        let capacity = room.saturating_sub(self.admission.bytes());
        let held = self.capacity.load(Ordering::Relaxed);
        // As in the block cache: shrink at once, grow seldom.
        if capacity < held || capacity > held.saturating_add(held / GROWTH_MIN) {
            self.set_capacity(capacity);
        }
    }

    /// Counters and sizes. Readers do not ask a disabled cache, so it counts no lookups.
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

/// Bytes that may still enter at their first use. Shards fill at different times, so the last part
/// of the room is for rows used twice.
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
