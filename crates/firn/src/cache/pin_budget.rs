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
/// *granted*, but only while the sum of all pins stays within the limit. Files of the last level
/// get grants only up to three quarters of the limit: the rest is for files of the levels above,
/// which are small and young, and which every read searches.
///
/// The block cache may have a capacity of its own, or pins and block cache may share a number of
/// bytes. If they share, [`Self::charge`] and [`Self::grant`] reduce the capacity of the block
/// cache before they return the pin. The capacity changes in steps, because each change resizes
/// every shard of the cache, which must not happen whenever a file is opened.
///
/// Lock: `room` is held while the block cache is resized, so that concurrent resizes take effect in
/// order.
pub struct PinBudget {
    limit: AtomicU64,
    used: AtomicU64,
    /// The bytes that pins and the block cache share; `None` while the block cache has a capacity
    /// of its own.
    room: Mutex<Option<SharedBudget>>,
    resize: Resize,
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

    /// Bytes by which all pins together exceed the limit; 0 if they do not. They exceed it if the
    /// limit was lowered below them, or if charges, which ignore the limit, were added to granted
    /// pins.
    pub fn excess(&self) -> u64 {
        self.used()
            .saturating_sub(self.limit.load(Ordering::Relaxed))
    }

    pub(super) fn set_limit(&self, bytes: u64) {
        self.limit.store(bytes, Ordering::Relaxed);
    }

    /// Makes pins and the block cache share `bytes`. With `None` they no longer share, and the
    /// block cache keeps its capacity.
    pub(super) fn set_room(&self, bytes: Option<u64>) {
        *self.room.lock() = bytes.map(|bytes| SharedBudget {
            bytes,
            capacity: u64::MAX,
        });
        self.resize_cache();
    }

    /// Whether [`Self::grant`] would grant `bytes` now.
    pub fn has_room(&self, bytes: u64, upper_level: bool) -> bool {
        let limit = self.limit.load(Ordering::Relaxed);
        let limit = if upper_level { limit } else { limit / 4 * 3 };
        self.used().saturating_add(bytes) <= limit
    }

    /// Takes `bytes` if the limit allows it. Two concurrent calls may together exceed the limit,
    /// because each checks it before either takes its bytes.
    pub fn grant(self: &Arc<Self>, bytes: u64, upper_level: bool) -> Option<Pin> {
        self.has_room(bytes, upper_level)
            .then(|| self.charge(bytes))
    }

    /// Takes `bytes`, even beyond the limit.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Pin {
        self.used.fetch_add(bytes, Ordering::Relaxed);
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
