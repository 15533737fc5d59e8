//! Accounts for memory that open files pin beside the block cache.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Changes the capacity of the block cache.
type Resize = Box<dyn Fn(u64) + Send + Sync>;

/// A budget for the memory that files pin while they are open.
///
/// Two kinds draw on it. Memory that a reader cannot do without is *charged*, whatever the limit.
/// Memory that a reader could as well load on demand is *granted* within the limit; the last
/// quarter of the limit is for files of the upper levels, which are small, young and consulted by
/// every read.
///
/// Pins stand beside the cache's capacity, or share a room with it. In a shared room, a pin shrinks
/// the cache before it is handed out, in steps, so that an opened file does not resize every shard.
///
/// Lock: `room` is held while the cache is resized, so that resizes happen in order.
pub struct PinBudget {
    limit: AtomicU64,
    used: AtomicU64,
    /// The room that pins and cache share; `None` without one.
    room: Mutex<Option<SharedBudget>>,
    resize: Resize,
}

struct SharedBudget {
    bytes: u64,
    /// The capacity that the cache was given last, bytes.
    capacity: u64,
}

/// The cache shrinks at once, but grows only by at least 1/8 of its capacity.
const GROWTH_MIN: u64 = 8;
/// The capacity in a shared room changes in steps of 1/128 of the room.
const STEPS: u64 = 128;
/// The cache keeps at least 1/16 of a shared room.
const CACHE_SHARE_MIN: u64 = 16;

/// Bytes taken from a budget; given back when dropped.
pub struct Pin {
    budget: Arc<PinBudget>,
    bytes: u64,
}

impl PinBudget {
    pub(super) fn unlimited(resize: Resize) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(u64::MAX),
            used: AtomicU64::new(0),
            room: Mutex::new(None),
            resize,
        })
    }

    /// Bytes charged and granted.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes over the limit, after the limit was lowered or charges have grown.
    pub fn excess(&self) -> u64 {
        self.used()
            .saturating_sub(self.limit.load(Ordering::Relaxed))
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Lets pins and cache share `bytes`; `None` ends that.
    pub(super) fn set_room(&self, bytes: Option<u64>) {
        *self.room.lock() = bytes.map(|bytes| SharedBudget {
            bytes,
            capacity: u64::MAX,
        });
        self.settle();
    }

    /// Whether [`Self::grant`] would grant `bytes` now.
    pub fn has_room(&self, bytes: u64, upper_level: bool) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let limit = if upper_level { limit } else { limit / 4 * 3 };
        self.used().saturating_add(bytes) <= limit
    }

    /// Takes `bytes` if the limit allows. Two concurrent calls may exceed the limit by one of them.
    pub fn grant(self: &Arc<Self>, bytes: u64, upper_level: bool) -> Option<Pin> {
        self.has_room(bytes, upper_level)
            .then(|| self.charge(bytes))
    }

    /// Takes `bytes` whatever the limit.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Pin {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.settle();
        Pin {
            budget: Arc::clone(self),
            bytes,
        }
    }

    fn settle(&self) {
        let mut room = self.room.lock();
        if let Some(room) = &mut *room {
            let step = (room.bytes / STEPS).max(1);
            let pinned = self.used().next_multiple_of(step);
            let least = room.bytes / CACHE_SHARE_MIN;
            let capacity = room.bytes.saturating_sub(pinned).max(least);
            // Each resize makes the cache forget some of its history, so let it grow seldom.
            let worth_it = room.capacity.saturating_add(room.capacity / GROWTH_MIN);
            if capacity < room.capacity || capacity > worth_it {
                room.capacity = capacity;
                (self.resize)(capacity);
            }
        }
    }
}

impl Pin {
    /// Bytes of the pin.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
        self.budget.settle();
    }
}
