//! Readings of the memory allocator's statistics, and the pages that it gives back.

use crate::base::allocator_stats::{AllocatorBytes, AllocatorStats};
use crate::env::Env;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// The allowance falls to the most uncounted memory of this time, microseconds, and of as much time
/// before. A job that ends would otherwise grow the caches, and the next job would shrink them
/// again; a cache that changes its size forgets which entries are in use.
const KEPT_US: u64 = 10_000_000;

/// Watches the allocator of a database; one that has none to watch reports zeros.
///
/// Reading takes as long as there are threads, and takes locks that they need. So one thread reads,
/// which pauses in [`Self::pause`], and all others use its last reading.
pub(super) struct AllocatorWatch {
    source: Option<Arc<dyn AllocatorStats>>,
    env: Arc<dyn Env>,
    last: Mutex<AllocatorReading>,
    /// Whether [`Self::stop`] was called.
    stopped: Mutex<bool>,
    /// Not the signal of the other threads, which each commit may notify.
    wakeup: Condvar,
}

/// A reading of the allocator's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct AllocatorReading {
    /// When it was taken, microseconds.
    pub(super) at_us: u64,
    pub(super) bytes: AllocatorBytes,
    /// Memory in use that the engine did not count at that time, bytes.
    pub(super) uncounted: u64,
}

impl AllocatorWatch {
    pub(super) fn new(source: Option<Arc<dyn AllocatorStats>>, env: Arc<dyn Env>) -> Self {
        Self {
            source,
            env,
            last: Mutex::default(),
            stopped: Mutex::new(false),
            wakeup: Condvar::new(),
        }
    }

    /// The allocator; `None` if there is none to watch.
    pub(super) fn source(&self) -> Option<&dyn AllocatorStats> {
        self.source.as_deref()
    }

    /// Reads the statistics; `None` if there is no allocator to watch. `counted` returns the bytes
    /// that the engine counts at the same moment. Compared with a later count, a memtable that was
    /// just flushed would look like uncounted memory.
    pub(super) fn read(&self, counted: impl FnOnce() -> u64) -> Option<AllocatorReading> {
        let bytes = self.source.as_ref()?.read();
        let reading = AllocatorReading {
            at_us: self.env.monotonic_micros(),
            bytes,
            uncounted: bytes.in_use().saturating_sub(counted()),
        };
        *self.last.lock() = reading;
        Some(reading)
    }

    /// The last reading; zeros before the first one.
    pub(super) fn last(&self) -> AllocatorReading {
        *self.last.lock()
    }

    /// Gives the pages back that have been unused for long, and all unused pages if more than
    /// `limit` was resident at the last reading; 0 for no limit. Below the limit, pages that may
    /// soon be used again stay, because the system zeroes each page that it gives.
    pub(super) fn give_back(&self, limit: u64) {
        let Some(source) = &self.source else { return };
        if limit > 0 && self.last().bytes.resident > limit {
            source.purge();
        } else {
            source.decay();
        }
    }

    /// Waits for `timeout`, or until [`Self::stop`] is called.
    pub(super) fn pause(&self, timeout: Duration) {
        let mut stopped = self.stopped.lock();
        if !*stopped {
            self.wakeup.wait_for(&mut stopped, timeout);
        }
    }

    /// Ends the pauses of the thread that reads.
    pub(super) fn stop(&self) {
        *self.stopped.lock() = true;
        self.wakeup.notify_all();
    }
}

/// The uncounted memory that the division of the limit allows for.
#[derive(Default)]
pub(super) struct UncountedAllowance {
    /// Bytes, a multiple of the step when they were set.
    bytes: u64,
    /// End of the present interval of `KEPT_US`.
    interval_ends_us: u64,
    /// The most uncounted memory of the present interval, and of the interval before, bytes.
    most: [u64; 2],
}

impl UncountedAllowance {
    /// The allowance, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Follows a reading; returns whether the allowance has changed. It rises at once. It falls at
    /// the end of an interval, if two steps or more have not been used in this interval and the one
    /// before.
    pub(super) fn heed(&mut self, reading: AllocatorReading, step: u64) -> bool {
        let before = self.bytes;
        if reading.at_us >= self.interval_ends_us {
            let used = self.most[0].max(self.most[1]).next_multiple_of(step);
            if self.interval_ends_us > 0 && used + 2 * step <= self.bytes {
                self.bytes = used;
            }
            self.most = [0, self.most[0]];
            self.interval_ends_us = reading.at_us + KEPT_US;
        }
        self.most[0] = self.most[0].max(reading.uncounted);
        if reading.uncounted > self.bytes {
            self.bytes = reading.uncounted.next_multiple_of(step);
        }
        self.bytes != before
    }
}

#[cfg(test)]
mod tests;
