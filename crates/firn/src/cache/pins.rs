//! What stays in memory beside the cached blocks, and how much of it may.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Sets the capacity of the cache beside the pins.
type Resize = Box<dyn Fn(u64) + Send + Sync>;

/// A budget for what open files keep in memory as long as they are open.
///
/// Two kinds draw on it. What a reader cannot do without is charged whatever the limit; what it
/// could as well load when it is asked for is granted while the limit allows, the last quarter of it
/// to files of the upper levels only: they are small, young, and asked by every read.
///
/// Pins stand beside the capacity of the cache, or inside a common room: then each pin makes the
/// cache smaller before it is handed out, in steps, so that a file opened does not shift every shard.
pub struct PinBudget {
    limit: AtomicU64,
    used: AtomicU64,
    /// What pins and cache share.
    room: Mutex<Option<Room>>,
    resize: Resize,
}

struct Room {
    bytes: u64,
    /// The capacity set last.
    capacity: u64,
}

/// Capacity is taken back at once, and given in pieces of at least this share of it.
const GROWTH_MIN: u64 = 8;
/// Steps of the capacity in a room.
const STEPS: u64 = 128;
/// The share of its room that a cache keeps in any case.
const CACHE_SHARE_MIN: u64 = 16;

/// Bytes taken from a budget, given back when dropped.
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

    /// Bytes over the limit: it has been lowered, or what must be charged has grown.
    pub fn excess(&self) -> u64 {
        self.used()
            .saturating_sub(self.limit.load(Ordering::Relaxed))
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Pins and cache share `bytes`; `None`: they do not.
    pub(super) fn set_room(&self, bytes: Option<u64>) {
        *self.room.lock() = bytes.map(|bytes| Room {
            bytes,
            capacity: u64::MAX,
        });
        self.settle();
    }

    /// Whether [`Self::grant`] would not refuse `bytes`, as things stand.
    pub fn has_room(&self, bytes: u64, upper_level: bool) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let limit = if upper_level { limit } else { limit / 4 * 3 };
        self.used().saturating_add(bytes) <= limit
    }

    /// Takes `bytes` if the limit allows. Two at once may exceed it by one of them.
    pub fn grant(self: &Arc<Self>, bytes: u64, upper_level: bool) -> Option<Pin> {
        self.has_room(bytes, upper_level)
            .then(|| self.charge(bytes))
    }

    /// Takes `bytes` in any case.
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
            // Each change makes the cache forget some of what it once had, so it grows seldom.
            let worth_it = room.capacity.saturating_add(room.capacity / GROWTH_MIN);
            if capacity < room.capacity || capacity > worth_it {
                room.capacity = capacity;
                (self.resize)(capacity);
            }
        }
    }
}

impl Pin {
    /// Bytes it stands for.
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
