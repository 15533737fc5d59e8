//! Backpressure: slows writers down to the rate at which background work drains, long before it
//! stops them.
//!
//! The gate is a closed loop: each writer passes it before it joins a commit, never while it holds
//! a slot of the pipeline. [`drain`] measures how fast background work drains, [`policy`] decides
//! how many bytes a second pass, [`pace`] computes when each writer may pass, and [`admission`]
//! keeps the waiting writers in their order. If all memtables are frozen, or L0 is too deep to be
//! read, nobody passes until background work has made room, the engine is poisoned or it closes. If
//! that background work fails, for instance on a full disk, writers fail with its error until a job
//! succeeds.
//!
//! While the gate is open, it costs a writer one relaxed load, and the writer's commit another one.
//!
//! Lock: the gate's mutex is a leaf. It is held for a short time by each pass and each commit while
//! writers are limited, and by background work when the pressure changes. No thread sleeps or calls
//! the host while it holds the mutex.
//!
//! Rejected: a delay that grows with the pressure alone (the resulting rate depends on the number
//! of writers and swings between no limit and a stop); raising and lowering the rate step by step
//! (the rate falls fast and rises slowly: users of RocksDB saw it take minutes); writers that each
//! sleep a little and try again (thousands of them wake for nothing, chance decides who is next,
//! and if a sleep has a bound, they pass without regard to the rate); one condition variable for
//! all writers (each change wakes thousands of them).

pub mod admission;
mod drain;
mod pace;
mod policy;
mod waiter;

pub use drain::CommitTotals;
pub use policy::{Pressure, STALL_REASONS, StallInput};
pub use waiter::{GateWaiter, STALL_ENDS, StallEnd};

use crate::base::parker::Parker;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use admission::{Admission, Arrival, GateCharge, Look, Mode, TicketNumber, Wake};
use drain::Drain;
use parking_lot::{Mutex, MutexGuard};
use policy::{Limit, StallReason, decide};
use std::cell::LazyCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// The host learns of a wait only if the wait is expected to take at least this many microseconds.
/// The report of a shorter wait would cost more than it gains.
const REPORTED_US_MIN: u64 = 500;

/// Data over damaged files does not count as pressure. If L0 stops writers for this time all the
/// same, no compaction succeeds or makes it shallower, and a file is damaged or a job was given up,
/// then writers fail with that error instead of waiting in silence, microseconds.
const STUCK_US: u64 = 30_000_000;

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
    /// For each reason, in the order of [`STALL_REASONS`]: the number of delays and stops, and the
    /// microseconds that they took.
    pub by_reason: [(u64, u64); STALL_REASONS.len()],
    /// Number of delays and stops by what ended them (such as a timer, a wakeup or a kill), in the
    /// order of [`STALL_ENDS`].
    pub by_end: [u64; STALL_ENDS.len()],
    /// Statements that wait now.
    pub waiting: u64,
    /// Bytes a second that the gate lets through; 0 while it is open or nobody passes.
    pub rate: u64,
    /// Whether nobody passes.
    pub stopped: bool,
}

#[derive(Default)]
struct GateState {
    pressure: Pressure,
    drain: Drain,
    admission: Admission<Arc<Parker>>,
    /// Why writers wait, if they do.
    reason: Option<StallReason>,
    released: bool,
    /// The error that kept background work from making room.
    failure: Option<Error>,
    /// The damage of a file that compactions leave out, or the error of a job that was given up, if
    /// there is one.
    damage: Option<Error>,
    /// Number of running compactions of which nothing tells that they will fail.
    hopeful_jobs: usize,
    /// Since when writers have waited for compactions while none has succeeded or made L0
    /// shallower, microseconds.
    stuck_since_us: Option<u64>,
    /// Whether writers fail because of the damage.
    stuck: bool,
    /// The latest time at which a timer has expired, microseconds. The present time is at least
    /// this time, even if the clock of a simulated environment stands still during a sleep.
    expired_us: u64,
    counts: StallStats,
}

impl GateState {
    fn adjust(&mut self, now_us: u64) {
        let limit = match self.released {
            true => Limit::Open,
            false => decide(&self.pressure, &self.drain.rates()),
        };
        let compactions = matches!(limit, Limit::Stop { reason } if !reason.waits_for_flushes());
        self.stuck_since_us = match compactions {
            true => self.stuck_since_us.or(Some(now_us)),
            false => None,
        };
        let stuck = |since: u64| now_us.saturating_sub(since) >= STUCK_US;
        self.stuck = self.damage.is_some()
            && self.hopeful_jobs == 0
            && self.stuck_since_us.is_some_and(stuck);
        let mode = match limit {
            Limit::Open => Mode::Open,
            Limit::Rate { rate, .. } => Mode::Limited(rate),
            Limit::Stop { .. } if self.failure.is_some() || self.stuck => Mode::Failing,
            Limit::Stop { .. } => Mode::Stopped,
        };
        self.reason = match limit {
            Limit::Open => None,
            Limit::Rate { reason, .. } | Limit::Stop { reason } => Some(reason),
        };
        let typical = self.drain.commit_bytes();
        self.admission.set_mode(now_us, mode, typical);
    }

    fn error(&self) -> Error {
        let gone = || Error::new(ErrorKind::ShutDown, "background work has failed");
        let damage = self.damage.as_ref().filter(|_| self.stuck);
        let error = self.failure.as_ref().or(damage);
        error.cloned().unwrap_or_else(gone)
    }
}

impl Wake for Arc<Parker> {
    fn wake(&self) {
        self.unpark();
    }
}

/// The gate before the commit pipeline.
pub struct StallGate {
    env: Arc<dyn Env>,
    /// Whether writers may have to wait, and commits are charged.
    limited: AtomicBool,
    state: Mutex<GateState>,
}

impl StallGate {
    /// An open gate; `env` has the clock.
    pub fn new(env: Arc<dyn Env>) -> Self {
        Self {
            env,
            limited: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    /// The time, not before the last timer that has expired.
    fn now_us(&self, state: &GateState) -> u64 {
        self.env.monotonic_micros().max(state.expired_us)
    }

    /// Derives the gate's mode from the state, and wakes the first writers of the line if their
    /// timers are too late now.
    fn adjust(&self, mut state: MutexGuard<'_, GateState>) {
        let now = self.now_us(&state);
        state.adjust(now);
        let limited = state.admission.mode() != Mode::Open;
        self.limited.store(limited, Ordering::Relaxed);
    }

    /// Tells the gate the pressure, which says how far flushes and compactions lag behind. The gate
    /// computes from it at what rate writers may pass. Background work calls this whenever the
    /// pressure changes.
    pub fn set_pressure(&self, pressure: Pressure) {
        let mut state = self.state.lock();
        if pressure.l0 < state.pressure.l0 {
            state.stuck_since_us = None;
        }
        state.pressure = pressure;
        self.adjust(state);
    }

    /// Notes that a flush has stored `stored` bytes and taken `took_us` microseconds. `committed`
    /// has the number and the bytes of all commits since the database was opened.
    pub fn flushed(&self, committed: CommitTotals, stored: u64, took_us: u64) {
        let mut state = self.state.lock();
        state.drain.flushed(committed, stored, took_us);
        self.adjust(state);
    }

    /// Notes that `stored` more bytes are in L0, which say nothing about how fast flushes are:
    /// those of an ingested run, or of a tiny memtable. `committed` is as for [`Self::flushed`].
    pub fn installed(&self, committed: CommitTotals, stored: u64) {
        let mut state = self.state.lock();
        state.drain.installed(committed, stored);
        self.adjust(state);
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
        self.adjust(state);
    }

    /// Notes that a compaction begins for which stopped writers may wait, and which has not failed
    /// before.
    pub fn hope_begins(&self) {
        self.state.lock().hopeful_jobs += 1;
    }

    /// Notes that a compaction has ended for which [`Self::hope_begins`] was called.
    pub fn hope_ends(&self) {
        self.state.lock().hopeful_jobs -= 1;
    }

    /// Notes that a compaction has succeeded for which stopped writers may wait.
    pub fn progressed(&self) {
        let mut state = self.state.lock();
        state.stuck_since_us = None;
        self.adjust(state);
    }

    /// Sets the error with which background work has failed, so that stopped writers fail with it,
    /// too. `None` once that work has succeeded.
    pub fn set_failure(&self, failure: Option<Error>) {
        let mut state = self.state.lock();
        state.failure = failure;
        self.adjust(state);
    }

    /// The error with which background work has failed.
    #[cfg(test)]
    pub fn failure(&self) -> Option<Error> {
        self.state.lock().failure.clone()
    }

    /// Sets the damage of a file that compactions leave out, or the error of a job that was given
    /// up; `None` if there is neither. Only a stop that lasts fails with it.
    pub fn set_damage(&self, damage: Option<Error>) {
        self.state.lock().damage = damage;
    }

    /// Opens the gate for good: the engine closes or is poisoned, and commits fail by themselves.
    pub fn release(&self) {
        let mut state = self.state.lock();
        state.released = true;
        self.adjust(state);
    }

    /// Notes the bytes of a commit.
    pub fn committed(&self, bytes: u64) {
        if self.limited.load(Ordering::Relaxed) {
            self.state.lock().admission.committed(bytes);
        }
    }

    /// Settles the `charge` of a transaction that has ended. The transaction has committed `bytes`,
    /// which [`Self::committed`] must have counted; 0 if it was rolled back.
    pub fn settle(&self, charge: GateCharge, bytes: u64) {
        if !charge.is_empty() {
            let mut state = self.state.lock();
            let now = self.now_us(&state);
            state.admission.settle(now, charge, bytes);
        }
    }

    /// Waits as long as the gate demands, and passes it. Returns the charge, which the caller
    /// [settles](Self::settle) when its transaction ends.
    ///
    /// # Errors
    /// `Interrupted`; `LockTimeout` after [`GateWaiter::timeout`]; if writers are stopped and the
    /// background work that should make room fails, the error of that work.
    pub fn pass(&self, waiter: &dyn GateWaiter) -> Result<GateCharge> {
        match self.limited.load(Ordering::Relaxed) {
            true => self.pass_limited(waiter),
            false => Ok(GateCharge::default()),
        }
    }

    #[cold]
    fn pass_limited(&self, waiter: &dyn GateWaiter) -> Result<GateCharge> {
        let mut state = self.state.lock();
        let begun_us = self.now_us(&state);
        let stopped = matches!(state.admission.mode(), Mode::Stopped | Mode::Failing);
        let reason = state.reason;
        let parker = LazyCell::new(|| Arc::new(Parker::default()));
        let number = match state.admission.arrive(begun_us, || Arc::clone(&parker)) {
            Arrival::Pass(charge) => return Ok(charge),
            Arrival::Fail => {
                state.counts.add(stopped, reason, StallEnd::Failure, 0);
                return Err(state.error());
            }
            Arrival::Wait(number) => number,
        };
        drop(state);
        pause_points::at(PausePoint::GateJoined);
        // Show the parker before asking for an interrupt: an interrupt that came before had no
        // parker to wake.
        waiter.parks(Some(Arc::clone(&parker)));
        let (end, result) = self.wait(waiter, &parker, number, begun_us);
        waiter.parks(None);
        let mut state = self.state.lock();
        let took_us = self.now_us(&state).saturating_sub(begun_us);
        state.counts.add(stopped, reason, end, took_us);
        result
    }

    /// Waits until the ticket's turn, or until the writer gives up.
    fn wait(
        &self,
        waiter: &dyn GateWaiter,
        parker: &Parker,
        number: TicketNumber,
        begun_us: u64,
    ) -> (StallEnd, Result<GateCharge>) {
        let patience_us = waiter.timeout().map_or(u64::MAX, |timeout| {
            u64::try_from(timeout.as_micros()).unwrap_or(u64::MAX)
        });
        let give_up_us = begun_us.saturating_add(patience_us);
        let mut report = Report::new(waiter);
        let mut expired_us = 0;
        loop {
            let killed = waiter.is_interrupted();
            let mut state = self.state.lock();
            state.expired_us = state.expired_us.max(expired_us);
            let now = self.now_us(&state);
            let turn_us = match state.admission.look(now, number) {
                Look::Pass(charge) if expired_us > 0 => return (StallEnd::Timer, Ok(charge)),
                Look::Pass(charge) => return (StallEnd::Woken, Ok(charge)),
                Look::Fail => return (StallEnd::Failure, Err(state.error())),
                Look::Sleep(turn_us) => turn_us.unwrap_or(u64::MAX),
            };
            if killed || now >= give_up_us {
                state.admission.give_up(now, number);
                return match killed {
                    true => (StallEnd::Kill, Err(killed_while_stalled())),
                    false => (StallEnd::Timeout, Err(stalled_for_too_long())),
                };
            }
            drop(state);
            let wakes_us = turn_us.min(give_up_us);
            if wakes_us - now >= REPORTED_US_MIN {
                report.begins();
            }
            let sleep = Duration::from_micros(wakes_us - now);
            let woken = parker.park((wakes_us != u64::MAX).then_some(sleep));
            expired_us = if woken { 0 } else { wakes_us };
        }
    }

    /// Delays and stops so far.
    pub fn stats(&self) -> StallStats {
        let state = self.state.lock();
        let mode = state.admission.mode();
        StallStats {
            waiting: state.admission.waiting() as u64,
            rate: match mode {
                Mode::Limited(rate) => rate,
                Mode::Open | Mode::Stopped | Mode::Failing => 0,
            },
            stopped: matches!(mode, Mode::Stopped | Mode::Failing),
            ..state.counts
        }
    }
}

impl StallStats {
    fn add(&mut self, stop: bool, reason: Option<StallReason>, end: StallEnd, took_us: u64) {
        let (times, us) = match stop {
            true => (&mut self.stops, &mut self.stop_us),
            false => (&mut self.delays, &mut self.delay_us),
        };
        *times += 1;
        *us += took_us;
        if let Some(reason) = reason {
            let (times, us) = &mut self.by_reason[reason as usize];
            *times += 1;
            *us += took_us;
        }
        self.by_end[end as usize] += 1;
        self.longest_us = self.longest_us.max(took_us);
    }
}

fn killed_while_stalled() -> Error {
    let message = "killed while writes were stalled";
    Error::new(ErrorKind::Interrupted, message)
}

fn stalled_for_too_long() -> Error {
    let message = "waiting until flushes and compactions catch up";
    Error::new(ErrorKind::LockTimeout, message)
}

/// Reports one wait at the stall gate to the host: its begin when [`Self::begins`] is called, its
/// end when this value is dropped.
struct Report<'a> {
    waiter: &'a dyn GateWaiter,
    begun: bool,
}

impl<'a> Report<'a> {
    fn new(waiter: &'a dyn GateWaiter) -> Self {
        Self {
            waiter,
            begun: false,
        }
    }

    fn begins(&mut self) {
        if !self.begun {
            self.begun = true;
            self.waiter.sleeps();
        }
    }
}

impl Drop for Report<'_> {
    fn drop(&mut self) {
        if self.begun {
            self.waiter.wakes();
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
