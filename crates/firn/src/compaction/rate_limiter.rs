//! One rate limit for all reads and writes of flushes and compactions.

use crate::base::options::MutableOptions;
use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Longest single sleep in microseconds, so that a waiting compaction notices soon when the rate
/// changes or the job is canceled.
const STEP_US: u64 = 10_000;

/// The time at which all charged bytes are paid for lies at most this many microseconds ahead, or
/// as far as a single charge takes if that is more. Because of this limit, charges made at a low
/// rate do not delay compactions for long after the rate is raised.
const AHEAD_US_MAX: u64 = 5_000_000;

/// Limits background I/O to a rate in bytes per second.
///
/// Flushes and compactions are both charged for the bytes they read and write. A compaction then
/// sleeps until the time at which all charged bytes are paid for at that rate. A flush never
/// sleeps, because writers may wait for it; instead compactions also wait for the bytes of flushes.
/// So flushes alone may exceed the rate.
///
/// Rejected: a token bucket. It fills while the device is idle, and its content would reach the
/// device in one burst. The limit exists to prevent such bursts.
pub struct RateLimiter {
    env: Arc<dyn Env>,
    mutable: Arc<MutableOptions>,
    /// Time at which all charged bytes are paid for, in microseconds of the monotonic clock.
    paid_at_us: Mutex<u64>,
    slept_us: AtomicU64,
}

impl RateLimiter {
    /// A limiter with the rate in `mutable`, which may change at any time, and the clock of `env`.
    pub fn new(env: Arc<dyn Env>, mutable: Arc<MutableOptions>) -> Self {
        Self {
            env,
            mutable,
            paid_at_us: Mutex::new(0),
            slept_us: AtomicU64::new(0),
        }
    }

    /// Total time in microseconds that compactions have slept in [`Self::take`].
    pub fn slept_us(&self) -> u64 {
        self.slept_us.load(Ordering::Relaxed)
    }

    /// Charges `bytes`. Returns how long it takes until all charged bytes are paid for, in
    /// microseconds; 0 if there is no limit.
    fn charge(&self, bytes: u64) -> u64 {
        let rate = self.mutable.background_io_rate.load(Ordering::Relaxed);
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

    /// Charges `bytes` without waiting. The next compaction that calls [`Self::take`] waits for
    /// them too.
    pub fn owe(&self, bytes: u64) {
        self.charge(bytes);
    }

    /// Charges `bytes` to a compaction and waits until all charged bytes are paid for.
    ///
    /// # Errors
    /// `Interrupted` once `cancel` is set.
    pub fn take(&self, bytes: u64, cancel: &AtomicBool) -> Result<()> {
        let mut left = self.charge(bytes);
        while left > 0 && self.mutable.background_io_rate.load(Ordering::Relaxed) > 0 {
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
