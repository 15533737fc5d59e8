//! A thread's place to sleep, from which any other thread may wake it.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// One thread sleeps, others wake it. A wakeup that comes before the sleep ends it at once, so none
/// is lost. Each sleeper has its own: waking one costs the others nothing.
///
/// `std::thread::park` would do, but its wakeups are the thread's: one that comes late would end a
/// later sleep for another cause.
#[derive(Debug, Default)]
pub struct Parker {
    woken: Mutex<bool>,
    wake: Condvar,
}

impl Parker {
    /// Sleeps until [`Self::unpark`], or for `timeout` at most. Returns whether the thread was
    /// woken.
    pub fn park(&self, timeout: Option<Duration>) -> bool {
        let mut woken = self.woken.lock();
        if !*woken {
            match timeout {
                Some(timeout) => _ = self.wake.wait_for(&mut woken, timeout),
                None => self.wake.wait(&mut woken),
            }
        }
        std::mem::take(&mut woken)
    }

    /// Wakes the sleeper, or keeps its next sleep from beginning.
    pub fn unpark(&self) {
        *self.woken.lock() = true;
        self.wake.notify_one();
    }
}

#[cfg(test)]
mod tests;
