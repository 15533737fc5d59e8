//! The write stall: writers are slowed to what background work drains, long before they stop.
//!
//! The gate is a closed loop: each writer passes it before it joins a commit, never while it holds
//! a slot of the pipeline. [`delayed_write_rate`] computes how many bytes a second pass; a writer
//! that arrives before its predecessors' bytes are paid for sleeps in small steps. A commit is
//! charged with its bytes when it commits, so the gate needs no estimate. If all memtables are
//! frozen, or L0 is too deep to be read, writers wait until background work has made room, the
//! engine is poisoned or it closes. If that background work fails, for instance on a full disk,
//! writers fail with its error until a job succeeds.
//!
//! Rejected: a delay that grows with the pressure alone (the rate it gives depends on the number of
//! writers, and swings between free and stopped); raising and lowering the rate step by step (it
//! sinks fast and rises slowly: users of RocksDB saw it take minutes).

mod delayed_write_rate;

pub use delayed_write_rate::{Pressure, STALL_REASONS};

use crate::base::stall_thresholds::DELAY_US_MAX;
use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use delayed_write_rate::Drain;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

/// How long a delayed writer sleeps before it checks the gate again, microseconds.
const STEP_US: u64 = 50;

/// Writers may use up a share of the rate that nobody used in the last so many microseconds. A
/// sleep lasts longer than requested: by the time of several commits, and on busy processors by
/// milliseconds. If the share of that time were lost while all writers sleep, the gate would pass
/// one commit of each writer per sleep, whatever the rate.
const CREDIT_US: u64 = DELAY_US_MAX;

/// The time until which the rate is used up, in nanoseconds, after one more commit whose bytes take
/// `cost` nanoseconds at that rate. `paid` is this time before the commit.
fn paid_at(paid: u64, now: u64, cost: u64) -> u64 {
    let begin = paid.max(now.saturating_sub(CREDIT_US * 1000));
    begin.saturating_add(cost).min(now + DELAY_US_MAX * 1000)
}

/// Delays and stops so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallStats {
    /// Statements that were delayed.
    pub delays: u64,
    /// Time spent in delays, microseconds.
    pub delay_us: u64,
    /// Statements that had to wait for background work.
    pub stops: u64,
    /// Time spent in stops, microseconds.
    pub stop_us: u64,
    /// Longest delay or stop, microseconds.
    pub longest_us: u64,
    /// Delays and stops by reason, in the order of [`STALL_REASONS`], and their microseconds.
    pub by_reason: [(u64, u64); STALL_REASONS.len()],
    /// Bytes a second that the gate lets through; 0 while it is open.
    pub rate: u64,
}

#[derive(Debug, Default)]
struct StallState {
    pressure: Pressure,
    drain: Drain,
    released: bool,
    /// The error that kept background work from making room.
    failure: Option<Error>,
    /// The damage of a file that compactions leave out.
    damage: Option<Error>,
}

#[derive(Debug, Default)]
struct StallCounts {
    delays: AtomicU64,
    delay_us: AtomicU64,
    stops: AtomicU64,
    stop_us: AtomicU64,
    longest_us: AtomicU64,
    by_reason: [(AtomicU64, AtomicU64); STALL_REASONS.len()],
}

/// The gate before the commit pipeline.
pub struct StallGate {
    env: Arc<dyn Env>,
    state: Mutex<StallState>,
    eased: Condvar,
    /// Committed bytes that may pass in a second; 0 lets all writers pass, so that an idle gate
    /// costs them one load.
    rate: AtomicU64,
    stopped: AtomicU8,
    reason: AtomicU8,
    /// The time until which the commits so far have used up the rate, in nanoseconds of the
    /// monotonic clock.
    paid_at_ns: AtomicU64,
    committed_bytes: AtomicU64,
    counts: StallCounts,
}

impl StallGate {
    /// An open gate; `env` has the clock.
    pub fn new(env: Arc<dyn Env>) -> Self {
        Self {
            env,
            state: Mutex::default(),
            eased: Condvar::new(),
            rate: AtomicU64::new(0),
            stopped: AtomicU8::new(0),
            reason: AtomicU8::new(0),
            paid_at_ns: AtomicU64::new(0),
            committed_bytes: AtomicU64::new(0),
            counts: StallCounts::default(),
        }
    }

    /// Sets the pressure. Background work calls this whenever the pressure changes.
    pub fn set_pressure(&self, pressure: Pressure) {
        let mut state = self.state.lock();
        state.pressure = pressure;
        self.adjust(&state);
    }

    /// Notes that a memtable was flushed into `stored` bytes, which took `took_us` microseconds.
    pub fn flushed(&self, stored: u64, took_us: u64) {
        let committed = self.committed_bytes.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        state.drain.flushed(committed, stored, took_us);
        self.adjust(&state);
    }

    /// Notes that a compaction begins.
    pub fn job_begins(&self) {
        let now = self.env.monotonic_micros();
        self.state.lock().drain.job_begins(now);
    }

    /// Notes that a compaction has ended that removed `l0_bytes` from L0.
    pub fn job_ends(&self, l0_bytes: u64) {
        let now = self.env.monotonic_micros();
        let mut state = self.state.lock();
        state.drain.job_ends(now, l0_bytes);
        self.adjust(&state);
    }

    /// Computes from `state` the atomics that writers read, and lets stopped writers check the
    /// gate.
    fn adjust(&self, state: &StallState) {
        let open = state.released;
        let (rate, reason) = match delayed_write_rate::rate(&state.pressure, &state.drain) {
            Some((rate, reason)) if !open => (rate.max(1), reason),
            _ => (0, state.pressure.largest().1),
        };
        self.reason.store(reason as u8, Ordering::Relaxed);
        self.rate.store(rate, Ordering::Relaxed);
        let stops = !open && state.pressure.stops();
        self.stopped.store(u8::from(stops), Ordering::Relaxed);
        self.eased.notify_all();
    }

    /// Sets the error with which background work has failed and which it tries to overcome; `None`
    /// once it has succeeded.
    pub fn set_failure(&self, failure: Option<Error>) {
        self.state.lock().failure = failure;
        self.eased.notify_all();
    }

    /// Notes that a damaged file is left out of compactions until the next open. Writers that a
    /// deep L0 stops then fail with `damage`, because compactions may never make room.
    pub fn set_damage(&self, damage: Error) {
        self.state.lock().damage = Some(damage);
        self.eased.notify_all();
    }

    /// Opens the gate for good: the engine closes or is poisoned, and commits fail by themselves.
    pub fn release(&self) {
        let mut state = self.state.lock();
        state.released = true;
        self.adjust(&state);
    }

    /// Charges the bytes of a commit.
    pub fn committed(&self, bytes: u64) {
        self.committed_bytes.fetch_add(bytes, Ordering::Relaxed);
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return;
        }
        let cost = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let now = self.env.monotonic_micros() * 1000;
        let pay = |paid: u64| Some(paid_at(paid, now, cost as u64));
        let _ = self
            .paid_at_ns
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
    }

    /// Passes the gate, after the wait that it demands. A stopped writer polls `interrupted`.
    ///
    /// # Errors
    /// `Interrupted`; the error with which the background work fails that a stopped writer waits
    /// for.
    pub fn pass(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        if self.stopped.load(Ordering::Relaxed) != 0 {
            return self.stop(interrupted);
        }
        if self.rate.load(Ordering::Relaxed) != 0 {
            self.delay();
        }
        Ok(())
    }

    fn delay(&self) {
        let start = self.env.monotonic_micros();
        let reason = self.reason.load(Ordering::Relaxed);
        let mut steps = 0;
        while self.rate.load(Ordering::Relaxed) != 0 && steps < DELAY_US_MAX / STEP_US {
            let now = self.env.monotonic_micros();
            let paid = self.paid_at_ns.load(Ordering::Relaxed) <= now * 1000;
            // Measure the time: on busy processors a sleep may last much longer than it should.
            if paid || now.saturating_sub(start) >= DELAY_US_MAX {
                break;
            }
            steps += 1;
            std::thread::sleep(Duration::from_micros(STEP_US));
        }
        if steps > 0 {
            let took = self.env.monotonic_micros().saturating_sub(start);
            self.counts.delays.fetch_add(1, Ordering::Relaxed);
            self.counts.delay_us.fetch_add(took, Ordering::Relaxed);
            self.count(reason, took);
        }
    }

    fn stop(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let start = self.env.monotonic_micros();
        let reason = self.reason.load(Ordering::Relaxed);
        let result = self.wait(interrupted);
        let took = self.env.monotonic_micros().saturating_sub(start);
        self.counts.stops.fetch_add(1, Ordering::Relaxed);
        self.counts.stop_us.fetch_add(took, Ordering::Relaxed);
        self.count(reason, took);
        result
    }

    fn wait(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let mut state = self.state.lock();
        while !state.released && state.pressure.stops() {
            if interrupted() {
                return Err(Error::new(
                    ErrorKind::Interrupted,
                    "killed while writes were stalled",
                ));
            }
            // A damaged file can keep compactions from making room in L0, but not flushes. So it
            // fails only writers that L0 has stopped; writers that wait for a flush go on waiting.
            let damage = state.damage.as_ref();
            let damage = damage.filter(|_| !state.pressure.stops_for_memtables());
            if let Some(failure) = state.failure.as_ref().or(damage) {
                return Err(failure.clone());
            }
            self.eased.wait_for(&mut state, Duration::from_millis(100));
        }
        Ok(())
    }

    fn count(&self, reason: u8, took_us: u64) {
        let (times, us) = &self.counts.by_reason[usize::from(reason)];
        times.fetch_add(1, Ordering::Relaxed);
        us.fetch_add(took_us, Ordering::Relaxed);
        self.counts.longest_us.fetch_max(took_us, Ordering::Relaxed);
    }

    /// Delays and stops so far.
    pub fn stats(&self) -> StallStats {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        StallStats {
            delays: load(&counts.delays),
            delay_us: load(&counts.delay_us),
            stops: load(&counts.stops),
            stop_us: load(&counts.stop_us),
            longest_us: load(&counts.longest_us),
            by_reason: std::array::from_fn(|i| {
                let (times, us) = &counts.by_reason[i];
                (load(times), load(us))
            }),
            rate: load(&self.rate),
        }
    }
}

impl std::fmt::Debug for StallGate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.stats())
    }
}

#[cfg(test)]
mod tests;
