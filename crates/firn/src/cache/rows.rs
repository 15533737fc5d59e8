//! Row cache: single rows that point reads ask for again and again.

mod admission;
mod row;
mod shard;

use super::stats::{CacheStats, Striped};
use crate::base::{InternalIterator, InternalKey, Result, Seqno, Value, checksum};
use admission::Admission;
use parking_lot::RwLock;
use row::{Readers, Row};
use shard::{AVERAGE_ENTRY, ENTRY_OVERHEAD, Guarded, Shard, retire, shard_of};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::thread::available_parallelism;

impl Guarded for RwLock<Shard> {
    #[inline]
    fn with<R>(&self, f: impl FnOnce(&Shard) -> R) -> R {
        f(&self.read())
    }
    fn with_mut<R>(&self, f: impl FnOnce(&mut Shard) -> R) -> R {
        f(&mut self.write())
    }
}

/// The hash of a user key, computed once for all that a point read asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyHash(pub u64);

impl KeyHash {
    /// Hashes a user key.
    #[inline]
    pub fn of(user_key: &[u8]) -> Self {
        Self(checksum::xxh3(user_key))
    }
}

/// What a reader knows about the view through which it reached the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed {
    /// Memtables up to this number were frozen and complete when the view was made.
    pub number: u64,
    /// No commit in them, or in the files under them, is newer.
    pub seqno: Seqno,
}

/// A cache of the newest *flushed* version of single user keys, between memtables and files.
///
/// Who reads has asked the memtables of its view before. Memtables are numbered in the order in
/// which they freeze, and a view carries the number up to which they were complete when it was
/// made ([`Sealed`]): a memtable that is frozen, and whose last writer has left, is published
/// with a new view.
///
/// The flush of memtable f:
/// 1. raises the floor of every shard to f, under the shard's lock;
/// 2. erases the keys of the memtable;
/// 3. and only then installs its files into the views.
///
/// A fill is refused, under the shard's lock, if the reader's view is sealed below the floor, and if
/// the reader may have passed over a version it could not see: its snapshot must reach the newest
/// commit of the sealed memtables.
///
/// Why that is enough. A view sealed at f or later holds that memtable complete, or its files: its
/// reader reached older files only because the key is not in it. One sealed before f may have looked
/// into the memtable before the write; coming after step 1 it is refused, coming before, step 2
/// erases its row. Views made after step 3 find nothing stale, and those made before look into the
/// memtable first.
///
/// A hit must also be visible to its reader, in three ways:
/// - A row is given to reads at its own seqno or later.
/// - The last level sets the seqno of versions that everybody sees to 0. A statement with an older
///   view and an older seqno, which no list of snapshots knows, must not take such a row for old:
///   it counts as being as new as the newest commit in the sealed memtables at its fill.
/// - A statement pins its view and then reads the visible seqno. When a memtable froze in between,
///   commits in the next one are visible by number and missing from the view; the statement sees
///   the state before them. It must not find one of them here, and so a row is given to views only
///   that know all memtables sealed at its fill.
///
/// Deletions and absence are not kept: filters answer both without a block. Dropped indexes need
/// nothing, since their ids never come back.
///
/// A row enters at once while there is room, and later when it is asked for a second time (see
/// [`Admission`]), for the price of one allocation. A hit is a hash, a shared lock, a reference count; the caller reads the row after
/// the lock is gone, so that it may come back from inside.
///
/// Rejected: rows keyed by file, as a compaction then empties the cache; comparing the snapshot's
/// seqno with the largest frozen one (snapshots are read after the view is pinned, so a freeze and
/// a flush in between let a stale row in); entering at the first touch in a full cache (uniform
/// reads over more than the cache then pay a copy and an eviction each, and gain nothing); entering
/// at the second in an empty one (it took a skewed load a million reads to fill it).
pub struct RowCache {
    shards: Box<[RwLock<Shard>]>,
    admission: Admission,
    capacity: AtomicU64,
    /// Bytes that enter at the first touch.
    spare: AtomicI64,
    stats: Striped,
}

const SHARDS_PER_CORE: u64 = 16;
/// See [`RowCache::set_room`].
const GROWTH_MIN: u64 = 8;
/// What a cache that begins with nothing is made for: it may be given room later.
const LATER_CAPACITY: u64 = 64 << 20;
/// A shard smaller than this would refuse ordinary rows.
const SHARD_MIN: u64 = 64 << 10;
/// The share of its shard that a row may take.
const HEAVIEST_SHARE: u64 = 16;
/// A cache counts as full when this share of it is left.
const FULL_SHARE: u64 = 16;

impl RowCache {
    /// A cache that holds up to `capacity` bytes; 0 for none.
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

    /// Whether it may hold anything.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.capacity.load(Ordering::Relaxed) > 0
    }

    /// Calls `f` with the newest flushed version of `user_key` if that is here and may be seen by a
    /// read at `seqno` with a view whose active memtable is number `active`. The memtables of the
    /// view must not have the key.
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

    /// Offers what a reader found in the files: the newest version at or below `seqno`, where its
    /// view was `sealed`. Kept if there is room or it is asked for often enough, and if it is surely
    /// the newest flushed one.
    #[inline]
    pub fn offer(
        &self,
        hash: KeyHash,
        sealed: Sealed,
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
    fn fill(&self, hash: KeyHash, sealed: Sealed, key: InternalKey<'_>, value: Value<'_>) {
        let weight = Row::len_of(key.user_key, value) as u64 + ENTRY_OVERHEAD;
        let shard_capacity = self.capacity.load(Ordering::Relaxed) / self.shards.len() as u64;
        if weight <= shard_capacity / HEAVIEST_SHARE {
            let row = Row::new(key, value, readers(key, sealed));
            let shard = shard_of(&self.shards, hash.0);
            if shard.with_mut(|shard| shard.fill(sealed.number, hash.0, row)) {
                // Far below zero it stays below, until the next count.
                self.spare.fetch_sub(weight as i64, Ordering::Relaxed);
            }
        }
    }

    /// Counts anew what may enter at the first touch.
    fn count_spare(&self) {
        let held = self.shards.iter().map(|shard| shard.with(Shard::weight));
        let capacity = self.capacity.load(Ordering::Relaxed);
        self.spare
            .store(spare(capacity, held.sum()), Ordering::Relaxed);
    }

    /// Memtable `number` with these entries is about to be installed as files. Views that hold it
    /// complete must have been published before.
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

    /// As [`Self::retire`], for files that were written beforehand, whose keys are too many to be named
    /// one by one: the rows of all keys that `named` says yes to go.
    pub fn retire_where(&self, number: u64, named: impl Fn(&[u8]) -> bool) {
        shard::raise(&self.shards, number);
        for shard in &self.shards {
            shard.with_mut(|shard| shard.erase_where(&named));
        }
        self.count_spare();
    }

    /// Changes the capacity, in bytes; a smaller one evicts.
    pub fn set_capacity(&self, capacity: u64) {
        self.capacity.store(capacity, Ordering::Relaxed);
        let each = capacity / self.shards.len() as u64;
        for shard in &self.shards {
            shard.with_mut(|shard| shard.set_capacity(each));
        }
        self.count_spare();
    }

    /// Changes the capacity such that all the cache takes stays within `room`.
    pub fn set_room(&self, room: u64) {
        let capacity = room.saturating_sub(self.admission.bytes());
        let held = self.capacity.load(Ordering::Relaxed);
        // As the block cache: shrink at once, grow seldom.
        if capacity < held || capacity > held.saturating_add(held / GROWTH_MIN) {
            self.set_capacity(capacity);
        }
    }

    /// Counters and sizes. Nobody asks a cache that is not enabled, so it counts nothing then.
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

/// Shards fill at different times: the last of the room is for rows that were asked for twice.
fn spare(capacity: u64, held: u64) -> i64 {
    (capacity - capacity / FULL_SHARE) as i64 - held as i64
}

fn readers(key: InternalKey<'_>, sealed: Sealed) -> Readers {
    let seqno = match key.seqno {
        0 => sealed.seqno,
        seqno => seqno,
    };
    Readers {
        seqno,
        memtable: sealed.number,
    }
}

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
