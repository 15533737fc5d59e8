//! Backpressure: writers are slowed in proportion to the debt before they are stopped.
//!
//! The gate is a closed loop: each writer passes it before it joins a commit, never while it holds
//! a place in the pipeline. Pressure is the larger of two shares, frozen memtables and L0 runs over
//! their limits. Below one half writers pass freely; from there the delay grows linearly; at one
//! they wait until background work has made room, the engine is poisoned or it closes. When the work
//! they would wait for fails, on a full disk say, they fail with its error until some succeeds.

use crate::base::{Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Longest delay short of a stop, microseconds.
const DELAY_US_MAX: f64 = 1000.0;

/// What background work has still to do.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// Frozen memtables over their limit.
    pub frozen_share: f64,
    /// L0 runs that a read may have to ask, over their limit.
    pub l0_share: f64,
}

impl Pressure {
    fn share(self) -> f64 {
        self.frozen_share.max(self.l0_share)
    }
}

/// Delays and stops so far.
#[derive(Debug, Clone, Copy, Default)]
pub struct StallStats {
    /// Commits that were delayed.
    pub delays: u64,
    /// Time spent in delays, microseconds.
    pub delay_us: u64,
    /// Commits that had to wait for background work.
    pub stops: u64,
}

#[derive(Debug, Default)]
struct State {
    pressure: Pressure,
    released: bool,
    /// What kept background work from making room.
    failure: Option<Error>,
}

/// The gate before the commit pipeline.
#[derive(Debug, Default)]
pub struct Stall {
    state: Mutex<State>,
    eased: Condvar,
    /// The share in thousandths, so that an idle gate costs one load.
    share_permille: AtomicU64,
    delays: AtomicU64,
    delay_us: AtomicU64,
    stops: AtomicU64,
}

impl Stall {
    /// An open gate.
    pub fn new() -> Self {
        Self::default()
    }

    /// Background work reports the pressure whenever it changes.
    pub fn set_pressure(&self, pressure: Pressure) {
        let mut state = self.state.lock();
        state.pressure = pressure;
        self.share_permille
            .store((pressure.share() * 1000.0) as u64, Ordering::Relaxed);
        self.eased.notify_all();
    }

    /// Background work has failed and tries again later; `None` once it has succeeded.
    pub fn set_failure(&self, failure: Option<Error>) {
        self.state.lock().failure = failure;
        self.eased.notify_all();
    }

    /// Lets everybody pass for good: the engine closes or is poisoned, and commits fail by
    /// themselves.
    pub fn release(&self) {
        self.state.lock().released = true;
        self.share_permille.store(0, Ordering::Relaxed);
        self.eased.notify_all();
    }

    /// Passes the gate. `interrupted` is polled while stopped.
    ///
    /// # Errors
    /// `Interrupted`; the error of background work that does not get on.
    pub fn pass(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let permille = self.share_permille.load(Ordering::Relaxed);
        if permille < 500 {
            return Ok(());
        }
        if permille < 1000 {
            let delay_us = DELAY_US_MAX * (permille - 500) as f64 / 500.0;
            self.delays.fetch_add(1, Ordering::Relaxed);
            self.delay_us.fetch_add(delay_us as u64, Ordering::Relaxed);
            std::thread::sleep(Duration::from_micros(delay_us as u64));
            return Ok(());
        }
        self.stops.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.lock();
        while !state.released && state.pressure.share() >= 1.0 {
            if interrupted() {
                return Err(Error::new(
                    ErrorKind::Interrupted,
                    "killed while writes were stalled",
                ));
            }
            if let Some(failure) = &state.failure {
                return Err(failure.clone());
            }
            self.eased.wait_for(&mut state, Duration::from_millis(100));
        }
        Ok(())
    }

    /// Delays and stops so far.
    pub fn stats(&self) -> StallStats {
        StallStats {
            delays: self.delays.load(Ordering::Relaxed),
            delay_us: self.delay_us.load(Ordering::Relaxed),
            stops: self.stops.load(Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests;
