//! Accounts for the memory that open SSTs pin outside of the block cache, and bounds it.

use super::pin_clock::{Evictable, PinClock, Search};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// A function that sets the capacity of the block cache in bytes.
type Resize = Box<dyn Fn(u64) + Send + Sync>;

/// A budget for the memory that SSTs pin while they are open.
///
/// There are two kinds of pins. Memory with content that the reader could load on demand instead
/// (index partitions) is *granted*, but only while the sum of all pins stays within the limit; the
/// reader then keeps its pin as long as its file is in the tree. Memory that a reader cannot do
/// without is *charged*. If it does not fit within the limit, other charges are given back first:
/// the clock algorithm chooses among the owners of charges, which [`Self::add_evictable`] has made
/// known, and evicts those that nobody uses. Only if it finds none within a few turns, the charge
/// exceeds the limit.
///
/// Grants leave an eighth of the limit to charges. Files of the last level get grants only up to
/// three quarters: the rest is for files of the levels above, which are small and young, and which
/// every read searches.
///
/// If pins exceed the limit by an eighth of it, the thread that waits in [`Self::wait_for_excess`]
/// is woken. It has more time to search, and can also close files with grants. It waits at a
/// condition variable of its own, because others are signalled for each commit.
///
/// The block cache may have a capacity of its own, or pins and block cache may share a number of
/// bytes. If they share, [`Self::charge`] and [`Self::grant`] reduce the capacity of the block
/// cache before they return the pin. The capacity changes in steps, because each change resizes
/// every shard of the cache, which must not happen whenever a file is opened.
///
/// Several databases may share a budget: each evicts the readers of all, and one of them sweeps.
///
/// Lock: `room` is held while the block cache is resized, so that concurrent resizes take effect in
/// order. No other lock is taken inside.
pub struct PinBudget {
    limit: AtomicU64,
    used: AtomicU64,
    clock: PinClock,
    counters: Counters,
    /// Whether a sweep was asked for since the last one began.
    asked: Mutex<bool>,
    wakeup: Condvar,
    /// The bytes that pins and the block cache share; `None` while the block cache has a capacity
    /// of its own.
    room: Mutex<Option<SharedBudget>>,
    resize: Resize,
}

#[derive(Default)]
struct Counters {
    charges: AtomicU64,
    grants: AtomicU64,
    evictions: AtomicU64,
    over_limit: AtomicU64,
}

/// Counters of a [`PinBudget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PinStats {
    /// Bytes charged and granted now.
    pub used: u64,
    /// The limit in bytes; `u64::MAX` for none.
    pub limit: u64,
    /// Number of charges so far: files opened without their index partitions.
    pub charges: u64,
    /// Number of grants so far: files opened with them.
    pub grants: u64,
    /// Number of charges that were given back to make room for others.
    pub evictions: u64,
    /// Number of charges that exceeded the limit, because the others were in use.
    pub over_limit: u64,
}

struct SharedBudget {
    bytes: u64,
    /// The capacity in bytes that the block cache was given last.
    capacity: u64,
}

/// When pins are returned, the capacity of the block cache is raised only if it grows by more than
/// 1/8. When pins are taken, it is reduced at once.
const GROWTH_MIN: u64 = 8;
/// For the capacity of the block cache, the pinned bytes are rounded up to a multiple of 1/128 of
/// the shared bytes.
const STEPS: u64 = 128;
/// The block cache keeps at least 1/16 of the shared bytes.
const CACHE_SHARE_MIN: u64 = 16;

/// Grants leave 1/8 of the limit to charges.
const CHARGES_SHARE: u64 = 8;
/// A sweep is worth its cost if pins exceed the limit by 1/8.
const SWEEP_SHARE: u64 = 8;
/// A charge that does not fit gives at most this many owners a turn, so that the time to open a
/// file does not depend on the number of open files.
const TURNS_PER_CHARGE: usize = 64;

/// Bytes taken from a budget. Dropping it returns them.
pub struct Pin {
    budget: Arc<PinBudget>,
    bytes: u64,
}

impl PinBudget {
    pub(super) fn unlimited(resize: Resize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(u64::MAX),
            used: AtomicU64::new(0),
            clock: PinClock::default(),
            counters: Counters::default(),
            asked: Mutex::new(false),
            wakeup: Condvar::new(),
            room: Mutex::new(None),
            resize,
        })
    }

    /// Bytes charged and granted now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The counters.
    pub fn stats(&self) -> PinStats {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        PinStats {
            used: self.used(),
            limit: self.limit(),
            charges: count(&self.counters.charges),
            grants: count(&self.counters.grants),
            evictions: count(&self.counters.evictions),
            over_limit: count(&self.counters.over_limit),
        }
    }

    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    /// Bytes by which all pins together exceed the limit; 0 if they do not. They exceed it if the
    /// limit was lowered below them, or if charges were added while all others were in use.
    pub fn excess(&self) -> u64 {
        self.used().saturating_sub(self.limit())
    }

    /// Whether the pins exceed the limit by so much that a sweep is worth its cost.
    pub fn is_over(&self) -> bool {
        self.excess() > self.limit() / SWEEP_SHARE
    }

    /// Waits until a sweep is asked for, at most for `timeout`.
    pub fn wait_for_excess(&self, timeout: Duration) {
        let mut asked = self.asked.lock();
        if !*asked {
            self.wakeup.wait_for(&mut asked, timeout);
        }
        *asked = false;
    }

    /// Wakes the thread in [`Self::wait_for_excess`], or the next one that comes.
    pub fn ask_for_sweep(&self) {
        *self.asked.lock() = true;
        self.wakeup.notify_all();
    }

    /// Evicts charges until the pins are within the limit, or until each owner was asked twice.
    pub fn evict_excess(&self) {
        let mut search = self.clock.two_rounds();
        while self.excess() > 0 && self.evict_one(&mut search) {}
    }

    /// Makes known an owner of a charge that can be evicted. It must be made known once for each
    /// charge.
    pub fn add_evictable(&self, owner: Weak<dyn Evictable>) {
        self.clock.add(owner);
    }

    fn evict_one(&self, search: &mut Search) -> bool {
        let evicted = self.clock.evict_one(search);
        if evicted {
            self.counters.evictions.fetch_add(1, Ordering::Relaxed);
        }
        evicted
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
        if self.is_over() {
            self.ask_for_sweep();
        }
    }

    /// Makes pins and the block cache share `bytes`. With `None` they no longer share, and the
    /// block cache keeps its capacity.
    pub(super) fn set_room(&self, bytes: Option<u64>) {
        let mut room = self.room.lock();
        // Keep the capacity, so that the block cache is resized only if that is worth it.
        let capacity = room.as_ref().map_or(u64::MAX, |room| room.capacity);
        *room = bytes.map(|bytes| SharedBudget { bytes, capacity });
        drop(room);
        self.resize_cache();
    }

    /// Whether [`Self::grant`] would grant `bytes` now.
    pub fn has_room(&self, bytes: u64, upper_level: bool) -> bool {
        self.used().saturating_add(bytes) <= self.grant_limit(upper_level)
    }

    fn grant_limit(&self, upper_level: bool) -> u64 {
        let limit = self.limit();
        if upper_level {
            limit - limit / CHARGES_SHARE
        } else {
            limit / 4 * 3
        }
    }

    /// Takes `bytes` if the limit allows it.
    pub fn grant(self: &Arc<Self>, bytes: u64, upper_level: bool) -> Option<Pin> {
        self.take(bytes, self.grant_limit(upper_level)).then(|| {
            self.counters.grants.fetch_add(1, Ordering::Relaxed);
            self.pin(bytes)
        })
    }

    /// Takes `bytes`. Evicts other charges before, as far as the limit demands it.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Pin {
        self.counters.charges.fetch_add(1, Ordering::Relaxed);
        let mut search = Search::of(TURNS_PER_CHARGE);
        while !self.take(bytes, self.limit()) {
            if !self.evict_one(&mut search) {
                self.used.fetch_add(bytes, Ordering::Relaxed);
                self.counters.over_limit.fetch_add(1, Ordering::Relaxed);
                if self.is_over() {
                    self.ask_for_sweep();
                }
                break;
            }
        }
        self.pin(bytes)
    }

    /// Adds `bytes` to the used ones, unless there would be more than `limit`.
    fn take(&self, bytes: u64, limit: u64) -> bool {
        let add = |used: u64| used.checked_add(bytes).filter(|&sum| sum <= limit);
        let (set, get) = (Ordering::Relaxed, Ordering::Relaxed);
        self.used.fetch_update(set, get, add).is_ok()
    }

    /// The pin of `bytes` that were added to the used ones.
    fn pin(self: &Arc<Self>, bytes: u64) -> Pin {
        self.resize_cache();
        Pin {
            budget: Arc::clone(self),
            bytes,
        }
    }

    fn resize_cache(&self) {
        let mut room = self.room.lock();
        if let Some(room) = &mut *room {
            let step = (room.bytes / STEPS).max(1);
            let pinned = self.used().next_multiple_of(step);
            let least = room.bytes / CACHE_SHARE_MIN;
            let capacity = room.bytes.saturating_sub(pinned).max(least);
            // On a resize the block cache forgets a part of what it knows about the use of blocks,
            // by which it chooses the blocks to evict. So raise the capacity seldom.
            let worth_it = room.capacity.saturating_add(room.capacity / GROWTH_MIN);
            if capacity < room.capacity || capacity > worth_it {
                room.capacity = capacity;
                (self.resize)(capacity);
            }
        }
    }
}

impl Pin {
    /// Number of bytes that the pin has taken.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.resize_cache();
    }
}

#[cfg(test)]
mod tests;
