//! Accounts for the memory that open SSTs pin outside of the block cache.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A function that sets the capacity of the block cache in bytes.
type Resize = Box<dyn Fn(u64) + Send + Sync>;

/// A budget for the memory that SSTs pin while they are open.
///
/// There are two kinds of pins. Memory that a reader cannot do without is *charged*, whatever the
/// limit is. Memory with content that the reader could load on demand instead (index partitions) is
/// *granted*, but only within the limit. The last quarter of the limit is for files of the upper
/// levels, which are small and young, and which every read searches.
///
/// Pins are either counted apart from the capacity of the block cache, or share a number of bytes
/// with it. If they share, the capacity is reduced before a pin is returned. It changes in steps,
/// because each change resizes every shard of the cache and must not happen whenever a file is
/// opened.
///
/// Lock: `room` is held while the block cache is resized, so that concurrent resizes take effect in
/// order.
pub struct PinBudget {
    limit: AtomicU64,
    used: AtomicU64,
    /// The bytes that pins and the block cache share; `None` if they do not share.
    room: Mutex<Option<SharedBudget>>,
    resize: Resize,
}

struct SharedBudget {
    bytes: u64,
    /// The capacity in bytes that the block cache was given last.
    capacity: u64,
}

/// The capacity is reduced at once, but is raised only by at least 1/8 of its value.
const GROWTH_MIN: u64 = 8;
/// The capacity changes in steps of 1/128 of the shared bytes.
const STEPS: u64 = 128;
/// The block cache keeps at least 1/16 of the shared bytes.
const CACHE_SHARE_MIN: u64 = 16;

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
            room: Mutex::new(None),
            resize,
        })
    }

    /// Bytes charged and granted now.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes by which the pins exceed the limit. They do if the limit was lowered or charges have
    /// grown.
    pub fn excess(&self) -> u64 {
        self.used()
            .saturating_sub(self.limit.load(Ordering::Relaxed))
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Makes pins and the block cache share `bytes`; with `None` they no longer share.
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

    /// Takes `bytes` if the limit allows it. Two concurrent calls together may exceed the limit,
    /// because both may be granted.
    pub fn grant(self: &Arc<Self>, bytes: u64, upper_level: bool) -> Option<Pin> {
        self.has_room(bytes, upper_level)
            .then(|| self.charge(bytes))
    }

    /// Takes `bytes`, even beyond the limit.
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
            // Resizing makes the block cache forget some of its statistics of use, so raise its
            // capacity seldom.
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
        self.budget.settle();
    }
}
