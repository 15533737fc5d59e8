//! Counts the bytes of memory that many holders use together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Charges are rounded up to a multiple of this number of bytes.
const STEP: u64 = 4 << 10;

/// The sum of all [charges](MemoryCharge), and an observer of its changes.
#[derive(Default)]
pub struct MemoryTracker {
    sum: AtomicU64,
    /// A number of bytes, and the observer to call when the sum crosses a multiple of it.
    observer: OnceLock<(u64, Observer)>,
}

type Observer = Box<dyn Fn() + Send + Sync>;

impl MemoryTracker {
    /// The sum, bytes.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// Sets the observer, unless one is set already. It is called whenever the sum crosses a
    /// multiple of `every` bytes, by the thread that changes the sum, which may hold locks.
    pub fn observe(&self, every: u64, observer: impl Fn() + Send + Sync + 'static) {
        let _ = self.observer.set((every.max(1), Box::new(observer)));
    }

    fn moved(&self, before: u64, after: u64) {
        if let Some((every, observer)) = self.observer.get()
            && before / every != after / every
        {
            observer();
        }
    }
}

/// A number of bytes that one holder adds to the sum of a [`MemoryTracker`]. Dropping it subtracts
/// them.
#[derive(Default)]
pub struct MemoryCharge {
    gauge: Arc<MemoryTracker>,
    held: u64,
}

impl MemoryCharge {
    /// A charge of zero bytes.
    pub fn new(gauge: Arc<MemoryTracker>) -> Self {
        Self { gauge, held: 0 }
    }

    /// A charge of exactly `bytes`, for a holder whose memory does not change.
    pub fn exact(gauge: Arc<MemoryTracker>, bytes: u64) -> Self {
        let mut charge = Self::new(gauge);
        charge.change(bytes);
        charge
    }

    /// Sets the charge to `bytes`, rounded up to a multiple of `STEP`. If the charge has that size
    /// already, the call writes to no memory that threads share.
    #[inline]
    pub fn set(&mut self, bytes: u64) {
        let bytes = bytes.next_multiple_of(STEP);
        if bytes != self.held {
            self.change(bytes);
        }
    }

    /// Moves `bytes` of the charge, or all of it if it is smaller, into a new charge. The sum stays
    /// the same.
    pub fn split_off(&mut self, bytes: u64) -> Self {
        let held = bytes.next_multiple_of(STEP).min(self.held);
        self.held -= held;
        Self {
            gauge: Arc::clone(&self.gauge),
            held,
        }
    }

    fn change(&mut self, bytes: u64) {
        let held = std::mem::replace(&mut self.held, bytes);
        let (before, after) = if bytes > held {
            let more = bytes - held;
            let before = self.gauge.sum.fetch_add(more, Ordering::Relaxed);
            (before, before + more)
        } else {
            let less = held - bytes;
            let before = self.gauge.sum.fetch_sub(less, Ordering::Relaxed);
            (before, before - less)
        };
        self.gauge.moved(before, after);
    }
}

impl Drop for MemoryCharge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests;
