//! Backpressure: writers are slowed to what background work drains, long before they are stopped.
//!
//! The gate is a closed loop: each writer passes it before it joins a commit, never while it holds
//! a slot of the pipeline. [`policy`] computes from the state of background work how many bytes a
//! second pass, and [`pace`] spaces the writers accordingly. If all memtables are frozen, or L0 is
//! too deep to be read, nobody passes until background work has made room, the engine is poisoned
//! or it closes. If that background work fails, for instance on a full disk, writers fail with its
//! error until a job succeeds.
//!
//! Writers that have to wait stand in one line and pass in the order in which they came. Only the
//! first of the line has a timer. It wakes when its turn comes, lets all others pass whose turn has
//! come as well, and wakes the new first. So a pass wakes two threads at most, however many wait.
//!
//! Rejected: a delay that grows with the pressure alone (the rate it gives depends on the number of
//! writers, and swings between free and stopped); raising and lowering the rate step by step (it
//! sinks fast and rises slowly: users of RocksDB saw it take minutes); writers that each sleep
//! until they may try again (thousands of them wake for nothing, and with a bound on the sleep they
//! pass at any rate).

mod pace;
mod policy;
mod waiting_line;

pub use policy::{Pressure, STALL_REASONS};

use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use pace::Pace;
use parking_lot::Mutex;
use policy::{Drain, StallReason};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use waiting_line::WaitingLine;

/// How often a waiting writer looks whether its session was killed, microseconds, while at most
/// `POLLERS_MAX` writers wait. Beyond that number each looks less often, so that thousands of them
/// do not keep the processors busy.
const POLL_US: u64 = 100_000;
const POLLERS_MAX: usize = 64;

/// The time by which writers wait. The clock of a simulated [`Env`] stands still while they sleep.
#[expect(clippy::disallowed_methods, reason = "see above")]
fn now() -> Instant {
    Instant::now()
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
    pace: Pace,
    line: WaitingLine,
    /// Committed bytes that may pass in a second; 0 is no limit.
    rate: u64,
    /// Why writers wait, if they do.
    reason: StallReason,
    released: bool,
    /// The error that kept background work from making room.
    failure: Option<Error>,
    /// The damage of a file that compactions leave out.
    damage: Option<Error>,
}

impl StallState {
    /// Whether nobody passes.
    fn stops(&self) -> bool {
        !self.released && self.pressure.stops()
    }

    /// The error of background work, if it cannot make the room for which writers wait. Damage
    /// stops no flush, so it makes no wait for a flush hopeless.
    fn hopeless(&self) -> Option<&Error> {
        let damage = self.damage.as_ref();
        let damage = damage.filter(|_| !self.pressure.stops_for_memtables());
        self.failure.as_ref().or(damage)
    }
}

/// Whether a writer may pass.
enum Turn {
    Now,
    /// It has to wait for its time, or for room.
    Later,
    /// Background work, which should make room, has failed.
    Never(Error),
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
    /// When the gate was made; waiting writers count time from then on.
    start: Instant,
    /// A leaf: nothing is locked while it is held.
    state: Mutex<StallState>,
    /// Whether writers may have to wait. An open gate costs them this one load.
    limited: AtomicBool,
    /// Committed bytes that may pass in a second; 0 is no limit.
    rate: AtomicU64,
    committed_bytes: AtomicU64,
    counts: StallCounts,
}

impl StallGate {
    /// An open gate; `env` has the clock by which background work is measured.
    pub fn new(env: Arc<dyn Env>) -> Self {
        Self {
            env,
            start: now(),
            state: Mutex::default(),
            limited: AtomicBool::new(false),
            rate: AtomicU64::new(0),
            committed_bytes: AtomicU64::new(0),
            counts: StallCounts::default(),
        }
    }

    /// Sets the pressure. Background work calls this whenever the pressure changes.
    pub fn set_pressure(&self, pressure: Pressure) {
        let mut state = self.state.lock();
        state.pressure = pressure;
        self.adjust(&mut state);
    }

    /// Notes that a memtable was flushed into `stored` bytes, which took `took_us` microseconds.
    pub fn flushed(&self, stored: u64, took_us: u64) {
        let committed = self.committed_bytes.load(Ordering::Relaxed);
        let mut state = self.state.lock();
        state.drain.flushed(committed, stored, took_us);
        self.adjust(&mut state);
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
        self.adjust(&mut state);
    }

    /// Sets the error with which background work has failed and which it tries to overcome; `None`
    /// once it has succeeded.
    pub fn set_failure(&self, failure: Option<Error>) {
        let mut state = self.state.lock();
        state.failure = failure;
        self.serve(&mut state);
    }

    /// Notes that a damaged file is left out of compactions until the next open. Writers that a
    /// deep L0 stops then fail with `damage`, because compactions may never make room.
    pub fn set_damage(&self, damage: Error) {
        let mut state = self.state.lock();
        state.damage = Some(damage);
        self.serve(&mut state);
    }

    /// Opens the gate for good: the engine closes or is poisoned, and commits fail by themselves.
    pub fn release(&self) {
        let mut state = self.state.lock();
        state.released = true;
        self.adjust(&mut state);
    }

    /// Counts the bytes of a commit.
    pub fn committed(&self, bytes: u64) {
        self.committed_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Derives what writers read from the state, and lets those pass who may.
    fn adjust(&self, state: &mut StallState) {
        let (rate, reason) = match policy::rate(&state.pressure, &state.drain) {
            Some((rate, reason)) if !state.released => (rate.max(1), reason),
            _ => (0, state.pressure.largest().1),
        };
        if state.rate == 0 && rate != 0 {
            let committed = self.committed_bytes.load(Ordering::Relaxed);
            state.pace.begin(self.now_ns(), committed);
        }
        state.rate = rate;
        state.reason = reason;
        self.rate.store(rate, Ordering::Relaxed);
        self.limited
            .store(rate != 0 || state.stops(), Ordering::Relaxed);
        self.serve(state);
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Passes the gate. `interrupted` is polled while the writer waits.
    ///
    /// # Errors
    /// `Interrupted`; the error with which the background work fails that a stopped writer waits
    /// for.
    pub fn pass(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        match self.limited.load(Ordering::Relaxed) {
            true => self.pass_limited(interrupted),
            false => Ok(()),
        }
    }

    #[cold]
    fn pass_limited(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        let begin = now();
        let mut state = self.state.lock();
        if state.line.is_empty() {
            match self.turn(&mut state) {
                Turn::Now => return Ok(()),
                Turn::Never(error) => {
                    let reason = state.reason;
                    drop(state);
                    self.count_wait(true, reason, 0);
                    return Err(error);
                }
                Turn::Later => {}
            }
        }
        let (stops, reason) = (state.stops(), state.reason);
        let ticket = state.line.join();
        let result = loop {
            let poll = POLL_US * state.line.len().div_ceil(POLLERS_MAX) as u64;
            let poll = Duration::from_micros(poll);
            let timeout = match state.line.is_first(&ticket) {
                true => self
                    .until_turn(&state)
                    .map_or(poll, |until| until.min(poll)),
                false => poll,
            };
            drop(state);
            ticket.wait(timeout);
            if let Some(result) = ticket.result() {
                break result;
            }
            state = self.state.lock();
            if state.line.is_first(&ticket) {
                self.admit_due(&mut state);
                // If this writer stays the first, it goes on with a timer of its own.
                if !state.line.is_first(&ticket) {
                    state.line.wake_first();
                }
            }
            if let Some(result) = ticket.result() {
                break result;
            }
            if interrupted() {
                state.line.leave(&ticket);
                break Err(Error::new(
                    ErrorKind::Interrupted,
                    "killed while writes were stalled",
                ));
            }
        };
        self.count_wait(stops, reason, begin.elapsed().as_micros() as u64);
        result
    }

    /// Whether the first writer of the line may pass now. If so, its pass is charged.
    fn turn(&self, state: &mut StallState) -> Turn {
        if state.stops() {
            return match state.hopeless() {
                Some(error) => Turn::Never(error.clone()),
                None => Turn::Later,
            };
        }
        let now = self.now_ns();
        if state.rate == 0 {
            return Turn::Now;
        }
        if state.pace.next_ns(state.rate) > now {
            return Turn::Later;
        }
        let committed = self.committed_bytes.load(Ordering::Relaxed);
        state.pace.pass(now, state.rate, committed);
        Turn::Now
    }

    /// How long the first writer of the line has to wait; `None` if that is not known.
    fn until_turn(&self, state: &StallState) -> Option<Duration> {
        let next = match (state.stops(), state.rate) {
            (true, _) => return None,
            (false, 0) => 0,
            (false, rate) => state.pace.next_ns(rate),
        };
        Some(Duration::from_nanos(next.saturating_sub(self.now_ns())))
    }

    /// [`Self::admit_due`] after a change of the state. Then wakes the first of those that remain,
    /// whose timer depends on the state.
    fn serve(&self, state: &mut StallState) {
        self.admit_due(state);
        state.line.wake_first();
    }

    /// Lets all writers pass whose turn has come, and fails those whose turn cannot come.
    fn admit_due(&self, state: &mut StallState) {
        while !state.line.is_empty() {
            match self.turn(state) {
                Turn::Now => state.line.admit_first(Ok(())),
                Turn::Never(error) => state.line.admit_first(Err(error)),
                Turn::Later => break,
            }
        }
    }

    /// Counts a wait: a stop, or a delay.
    fn count_wait(&self, stop: bool, reason: StallReason, took_us: u64) {
        let (times, us) = match stop {
            true => (&self.counts.stops, &self.counts.stop_us),
            false => (&self.counts.delays, &self.counts.delay_us),
        };
        times.fetch_add(1, Ordering::Relaxed);
        us.fetch_add(took_us, Ordering::Relaxed);
        let (times, us) = &self.counts.by_reason[reason as usize];
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
