//! Bytes that may be in memory at once.

use crate::env::{Clock, SystemClock};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// A number of bytes that threads share. Whoever comes first gets his bytes first: many small
/// requests do not keep a large one waiting for ever.
pub struct Budget {
    bytes_max: u64,
    line: Mutex<Line>,
    /// Threads wait by the time of the machine.
    clock: SystemClock,
}

#[derive(Default)]
struct Line {
    taken: u64,
    /// Each thread waits for its own turn, so that bytes that come back wake one.
    waiting: VecDeque<Arc<Condvar>>,
}

/// Gives its bytes back when it is dropped.
pub struct Taken<'a> {
    budget: &'a Budget,
    bytes: u64,
}

impl Budget {
    /// At most `bytes_max` at once.
    pub fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            line: Mutex::default(),
            clock: SystemClock::new(),
        }
    }

    /// Takes bytes, and waits for them until `patience` has passed. More than there are at all
    /// count as all. A thread that holds some must not ask for more.
    pub fn take(&self, bytes: u64, patience: Duration) -> Option<Taken<'_>> {
        let bytes = bytes.min(self.bytes_max);
        if let Some(taken) = self.try_take(bytes) {
            return Some(taken);
        }
        let until_us = self.clock.now_us() + patience.as_micros() as u64;
        let mut line = self.line.lock();
        let turn = Arc::new(Condvar::new());
        line.waiting.push_back(turn.clone());
        let fits = loop {
            let first = line.waiting.front();
            if first.is_some_and(|first| Arc::ptr_eq(first, &turn))
                && line.taken + bytes <= self.bytes_max
            {
                break true;
            }
            let left_us = until_us.saturating_sub(self.clock.now_us());
            if left_us == 0 {
                break false;
            }
            turn.wait_for(&mut line, Duration::from_micros(left_us));
        };
        line.waiting.retain(|other| !Arc::ptr_eq(other, &turn));
        if fits {
            line.taken += bytes;
        }
        // The next one may have room, too.
        line.wake_first();
        // Lazily: one that is dropped would give bytes back.
        fits.then(|| Taken {
            budget: self,
            bytes,
        })
    }

    /// Takes bytes if nobody waits for them, the caller included.
    pub fn try_take(&self, bytes: u64) -> Option<Taken<'_>> {
        let mut line = self.line.lock();
        if !line.waiting.is_empty() || line.taken + bytes > self.bytes_max {
            return None;
        }
        line.taken += bytes;
        Some(Taken {
            budget: self,
            bytes,
        })
    }

    /// Bytes that are taken now.
    #[cfg(test)]
    pub fn taken(&self) -> u64 {
        self.line.lock().taken
    }

    /// Threads that wait.
    #[cfg(test)]
    pub fn waiting(&self) -> usize {
        self.line.lock().waiting.len()
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        let mut line = self.budget.line.lock();
        line.taken -= self.bytes;
        line.wake_first();
    }
}

impl Line {
    fn wake_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.notify_one();
        }
    }
}

#[cfg(test)]
mod tests;
