//! Computes the rate of slowed writers: how many bytes a second pass the gate. Pure functions.
//!
//! The pressure *p* of a [`StallReason`] says how far its background work lags behind what is
//! allowed. Below one half, a reason does not slow writers. From there its rate is g(p) × C, where
//! C is the rate at which the work is drained, measured while it runs: g is 2 at one half, 1 at 1,
//! one half at 2, and linear in between. The gate takes the lowest rate of all reasons. So p
//! settles where g(p) × C is what the writers want or the work can do, and the rate moves with p,
//! never step by step from its own last value.
//!
//! Worked example: compactions take 20 MiB/s out of L0. With L0 a quarter of the way to the depth
//! at which writers stop (p = ½), writers may bring 40 MiB/s. They bring 30, so this is no limit
//! yet, and L0 grows; at p = ¾ they are held to 30, at p = 1 to 20, and p stays there.

use crate::base::stall_thresholds::{RATE_MIN, SLOWDOWN_PRESSURE, STOP_PRESSURE};

/// Why writers are slowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum StallReason {
    /// Memtables wait for their flush.
    Memtables = 0,
    /// L0 is deep.
    L0 = 1,
    /// Levels are over their targets.
    Debt = 2,
    /// Garbage takes too much space.
    Space = 3,
}

/// All reasons, with their names in reports.
pub const STALL_REASONS: [(StallReason, &str); 4] = [
    (StallReason::Memtables, "memtables"),
    (StallReason::L0, "l0"),
    (StallReason::Debt, "debt"),
    (StallReason::Space, "space"),
];

/// How far background work lags behind what is allowed, by reason: below ½ writers are not slowed,
/// at 1 they are slowed to the rate at which the work is drained.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// Pressure from the number of frozen memtables; at 2 writers stop.
    pub memtables: f64,
    /// Pressure from the depth of L0; at 2 writers stop.
    pub l0: f64,
    /// Pressure from the bytes by which levels exceed their targets.
    pub debt: f64,
    /// Pressure from the bytes that a full compaction would free.
    pub space: f64,
}

impl Pressure {
    fn shares(&self) -> [(f64, StallReason); 4] {
        [
            (self.memtables, StallReason::Memtables),
            (self.l0, StallReason::L0),
            (self.debt, StallReason::Debt),
            (self.space, StallReason::Space),
        ]
    }

    /// The largest pressure, and its reason.
    pub fn largest(&self) -> (f64, StallReason) {
        let shares = self.shares();
        let larger = |a: (f64, StallReason), b: (f64, StallReason)| if b.0 > a.0 { b } else { a };
        shares.into_iter().fold(shares[0], larger)
    }

    /// Whether writers must wait for room.
    pub fn stops(&self) -> bool {
        self.stops_for_memtables() || self.l0 >= STOP_PRESSURE
    }

    /// Whether writers must wait for a flush, because too many memtables are frozen.
    pub fn stops_for_memtables(&self) -> bool {
        self.memtables >= STOP_PRESSURE
    }
}

/// The measured rates of flushes and of compactions are averages over about this much time in which
/// that work ran, microseconds.
const WINDOW_US: f64 = 15_000_000.0;

/// A rate counts as measured once the work has run for this long, microseconds.
const SEEN_US_MIN: f64 = 200_000.0;

/// Bytes of background work and the time in which it ran, both as sums in which older work counts
/// less and less.
#[derive(Debug, Clone, Copy, Default)]
struct DecayingSum {
    amount: f64,
    us: f64,
}

impl DecayingSum {
    fn add(&mut self, amount: f64, us: f64) {
        let keep = (-us / WINDOW_US).exp();
        self.amount = self.amount * keep + amount;
        self.us = self.us * keep + us;
    }

    /// Bytes per second of the time in which the work ran; `None` if that time is too short.
    fn rate(&self) -> Option<f64> {
        (self.us >= SEEN_US_MIN).then(|| self.amount * 1e6 / self.us)
    }
}

/// Each flush multiplies the weight of earlier flushes by this factor.
const FLUSH_FADES: f64 = 0.95;

/// Bytes that flushes store for each committed byte, averaged over about the last twenty flushes.
#[derive(Debug, Clone, Copy, Default)]
struct FlushRatio {
    stored: f64,
    committed: f64,
}

impl FlushRatio {
    fn add(&mut self, stored: f64, committed: f64) {
        // Leave out a flush of bytes that no writer has committed since the open: recovery filled
        // its memtable.
        if committed == 0.0 && self.committed == 0.0 {
            return;
        }
        self.stored = self.stored * FLUSH_FADES + stored;
        self.committed = self.committed * FLUSH_FADES + committed;
    }

    fn ratio(&self) -> Option<f64> {
        (self.stored > 0.0 && self.committed > 0.0).then(|| self.stored / self.committed)
    }
}

/// Rates at which flushes and compactions drain their work, measured over the time in which they
/// run, without idle times.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Bytes that flushes have stored, and the time that the flushes took.
    flushes: DecayingSum,
    /// Stored bytes that compactions take out of L0, and the time in which at least one compaction
    /// runs.
    compactions: DecayingSum,
    jobs: u32,
    /// Time up to which the running time of jobs is in `compactions`, microseconds.
    since_us: u64,
    /// Committed bytes when the last flush ended.
    committed: u64,
    /// Bytes that recent flushes stored, and bytes committed between the ends of these flushes. The
    /// ratio is that of the sums, because delayed flushes end together: the first seems to have
    /// stored few of many committed bytes, the next ones many of none.
    flush_ratio: FlushRatio,
}

impl Drain {
    pub(super) fn flushed(&mut self, committed: u64, stored: u64, took_us: u64) {
        self.flushes.add(stored as f64, took_us as f64);
        let new = committed.saturating_sub(self.committed);
        self.committed = committed;
        self.flush_ratio.add(stored as f64, new as f64);
    }

    pub(super) fn job_begins(&mut self, now_us: u64) {
        self.work_until(now_us, 0);
        self.jobs += 1;
    }

    pub(super) fn job_ends(&mut self, now_us: u64, l0_bytes: u64) {
        self.work_until(now_us, l0_bytes);
        self.jobs = self.jobs.saturating_sub(1);
    }

    fn work_until(&mut self, now_us: u64, l0_bytes: u64) {
        if self.jobs > 0 {
            let took = now_us.saturating_sub(self.since_us);
            self.compactions.add(l0_bytes as f64, took as f64);
        }
        self.since_us = now_us;
    }

    /// Committed bytes a second that the work behind `reason` can drain; `None` if it is not
    /// measured.
    fn rate(&self, reason: StallReason) -> Option<f64> {
        let stored = match reason {
            StallReason::Memtables => self.flushes.rate(),
            _ => self.compactions.rate(),
        };
        Some(stored? / self.flush_ratio.ratio()?)
    }
}

/// The factor by which the gate multiplies the drain at pressure `p`.
fn gain(p: f64) -> f64 {
    match p {
        p if p <= 1.0 => 2.0 - 2.0 * (p - 0.5),
        p if p <= 2.0 => 1.5 - 0.5 * p,
        p => 1.0 / p,
    }
}

/// Committed bytes that may pass in a second, and the reason that limits them most; `None` while
/// the gate is open.
pub(super) fn rate(pressure: &Pressure, drain: &Drain) -> Option<(u64, StallReason)> {
    let limit = |(p, reason): (f64, StallReason)| {
        let drained = drain.rate(reason).filter(|_| p >= SLOWDOWN_PRESSURE)?;
        Some(((gain(p) * drained).max(RATE_MIN) as u64, reason))
    };
    let limits = pressure.shares().into_iter().filter_map(limit);
    limits.min_by_key(|(rate, _)| *rate)
}

#[cfg(test)]
mod tests;
