//! Computes how many bytes a second pass the gate. Pure functions.
//!
//! The pressure *p* is the largest of several shares. Below one half the gate is open. From there
//! the rate is g(p) × C, where C is what background work drains, measured while it works: twice as
//! much at one half, as much at 1, half as much at 2, linear in between. So p settles where g(p) ×
//! C is what the writers want or the work can do, and the rate moves with p, never step by step
//! from its own last value.
//!
//! Worked example: compactions take 20 MiB/s out of L0. With L0 a quarter of the way to its stop (p
//! = ½) writers may bring 40 MiB/s, which is not yet a limit. They bring 30, so L0 grows; at p = ¾
//! they are held to 30, at p = 1 to 20, and p stays there.

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

/// The pressure of memtables or L0 at which writers stop.
const STOP: f64 = 2.0;

/// The lowest rate of the gate, bytes a second, however slow background work was measured.
const RATE_MIN: f64 = 256.0 * 1024.0;

/// Outstanding background work as shares of its limits: below ½ writers are not slowed, at 1 they
/// are slowed to the drain's rate.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// Frozen memtables; at 2 writers stop.
    pub memtables: f64,
    /// Depth of L0; at 2 writers stop.
    pub l0: f64,
    /// Bytes that levels are over their targets.
    pub debt: f64,
    /// Bytes above the last level.
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

    /// The largest share.
    pub fn largest(&self) -> (f64, StallReason) {
        let shares = self.shares();
        let larger = |a: (f64, StallReason), b: (f64, StallReason)| if b.0 > a.0 { b } else { a };
        shares.into_iter().fold(shares[0], larger)
    }

    /// Whether writers must wait for room.
    pub fn stops(&self) -> bool {
        self.stops_for_memtables() || self.l0 >= STOP
    }

    /// Whether they must wait for a flush.
    pub fn stops_for_memtables(&self) -> bool {
        self.memtables >= STOP
    }
}

/// Rates are averages over about this much working time, microseconds.
const WINDOW_US: f64 = 15_000_000.0;

/// Working time after which a rate counts as measured, microseconds.
const SEEN_US_MIN: f64 = 200_000.0;

/// A sum over time in which older amounts count less and less.
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

    /// The amount per second; `None` while too little working time was measured.
    fn rate(&self) -> Option<f64> {
        (self.us >= SEEN_US_MIN).then(|| self.amount * 1e6 / self.us)
    }
}

/// Each flush multiplies the weight of earlier flushes by this factor.
const FLUSH_FADES: f64 = 0.95;

/// Stored bytes for each committed byte, over some flushes.
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

/// Rate of background work, bytes a second: measured over the time it works, without idle times.
#[derive(Debug, Default)]
pub(super) struct Drain {
    /// Stored bytes of flushes.
    flushes: DecayingSum,
    /// Stored bytes taken out of L0, per time in which any compaction runs.
    compactions: DecayingSum,
    jobs: u32,
    /// The time up to which the time of running jobs was added.
    since_us: u64,
    /// Committed bytes when the last flush ended.
    committed: u64,
    /// Bytes that late flushes stored, and bytes committed between their ends. Both are sums,
    /// because delayed flushes end together: the first seems to have stored little of many
    /// committed bytes, the next one much of none.
    pressed: FlushRatio,
}

impl Drain {
    pub(super) fn flushed(&mut self, committed: u64, stored: u64, took_us: u64) {
        self.flushes.add(stored as f64, took_us as f64);
        let new = committed.saturating_sub(self.committed);
        self.committed = committed;
        self.pressed.add(stored as f64, new as f64);
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

    /// Committed bytes a second that the work behind `reason` can take.
    fn rate(&self, reason: StallReason) -> Option<f64> {
        let stored = match reason {
            StallReason::Memtables => self.flushes.rate(),
            _ => self.compactions.rate(),
        };
        Some(stored? / self.pressed.ratio()?)
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
        let drained = drain.rate(reason).filter(|_| p >= 0.5)?;
        Some(((gain(p) * drained).max(RATE_MIN) as u64, reason))
    };
    let limits = pressure.shares().into_iter().filter_map(limit);
    limits.min_by_key(|(rate, _)| *rate)
}

#[cfg(test)]
mod tests;
