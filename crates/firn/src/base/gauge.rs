//! A sum of bytes that many hold parts of.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// Parts are counted in steps of this size, upwards.
const STEP: u64 = 4 << 10;

/// The sum, and who hears of it.
#[derive(Default)]
pub struct Gauge {
    sum: AtomicU64,
    /// Called when the sum has crossed a multiple of the number.
    observer: OnceLock<(u64, Observer)>,
}

type Observer = Box<dyn Fn() + Send + Sync>;

impl Gauge {
    /// The sum, bytes.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// `observer` is called whenever the sum has crossed a multiple of `every` bytes, by the thread
    /// that made it, which may hold locks of its own. The first observer stays.
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

/// One part of a [`Gauge`]'s sum; given back when dropped.
#[derive(Default)]
pub struct Charge {
    gauge: Arc<Gauge>,
    held: u64,
}

impl Charge {
    /// A part of nothing yet.
    pub fn new(gauge: Arc<Gauge>) -> Self {
        Self { gauge, held: 0 }
    }

    /// The part is `bytes` now. Costs nothing while it stays within its step.
    #[inline]
    pub fn set(&mut self, bytes: u64) {
        let bytes = bytes.next_multiple_of(STEP);
        if bytes != self.held {
            self.change(bytes);
        }
    }

    /// Takes `bytes` of it out as a part of its own, or all there is. The sum stays.
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

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests;
