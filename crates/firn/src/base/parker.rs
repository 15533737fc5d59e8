//! A thread's place to sleep, from which any other thread may wake it.

use parking_lot::{Condvar, Mutex};
use std::time::Duration;

/// Lets one thread sleep until another thread wakes it. A wakeup that comes before the sleep ends
/// the sleep at once, so no wakeup is lost. Each sleeping thread has a `Parker` of its own, so
/// waking one thread costs the others nothing.
///
/// Rejected: `std::thread::park`. Its wakeups belong to the thread and not to the cause of the
/// sleep, so a late wakeup would end a later sleep that has another cause.
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
