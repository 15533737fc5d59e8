//! One limit for all that flushes and compactions read and write.

use crate::base::options::LiveOptions;
use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Longest sleep between two looks, microseconds: a changed rate and a stop take effect soon.
const STEP_US: u64 = 10_000;

/// Never further ahead than this, microseconds: what was owed at a low rate is forgotten soon after
/// the rate is raised.
const AHEAD_US_MAX: u64 = 5_000_000;

/// Deals out bytes of background I/O at a rate.
///
/// Who takes bytes is charged; a compaction then sleeps until all that was taken is paid for. A
/// flush is charged but never sleeps: it makes room for writers, and compactions give way to it. So
/// flushes alone may exceed the rate.
///
/// Rejected: a bucket that fills while nothing is done. The device would see it emptied at once,
/// which is what a limit is there to prevent.
pub struct IoLimiter {
    env: Arc<dyn Env>,
    live: Arc<LiveOptions>,
    /// When all that was taken is paid for, microseconds of the monotonic clock.
    paid_at_us: Mutex<u64>,
    slept_us: AtomicU64,
}

impl IoLimiter {
    /// A limiter at the rate of `live`; `env` has the clock.
    pub fn new(env: Arc<dyn Env>, live: Arc<LiveOptions>) -> Self {
        Self {
            env,
            live,
            paid_at_us: Mutex::new(0),
            slept_us: AtomicU64::new(0),
        }
    }

    /// Time that compactions were held up, microseconds.
    pub fn slept_us(&self) -> u64 {
        self.slept_us.load(Ordering::Relaxed)
    }

    /// Charges `bytes`. Returns how long it takes until they are paid for, microseconds.
    fn charge(&self, bytes: u64) -> u64 {
        let rate = self.live.background_io_rate.load(Ordering::Relaxed);
        if rate == 0 {
            return 0;
        }
        let cost = u128::from(bytes) * 1_000_000 / u128::from(rate);
        let now = self.env.monotonic_micros();
        let mut paid_at = self.paid_at_us.lock();
        let latest = now + AHEAD_US_MAX.max(cost as u64);
        *paid_at = (*paid_at).max(now).saturating_add(cost as u64).min(latest);
        *paid_at - now
    }

    /// Takes bytes without waiting: whoever waits next pays for them.
    pub fn owe(&self, bytes: u64) {
        self.charge(bytes);
    }

    /// Takes bytes for a compaction, and waits until they are paid for.
    ///
    /// # Errors
    /// `Interrupted` once `cancel` is set.
    pub fn take(&self, bytes: u64, cancel: &AtomicBool) -> Result<()> {
        let mut left = self.charge(bytes);
        while left > 0 && self.live.background_io_rate.load(Ordering::Relaxed) > 0 {
            if cancel.load(Ordering::Relaxed) {
                return Err(Error::new(ErrorKind::Interrupted, "compaction canceled"));
            }
            let step = left.min(STEP_US);
            std::thread::sleep(Duration::from_micros(step));
            self.slept_us.fetch_add(step, Ordering::Relaxed);
            left -= step;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
