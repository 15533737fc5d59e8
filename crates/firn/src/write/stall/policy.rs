//! Decides from numbers whether writers pass the gate, how fast, and which reason slows them most.
//! All functions are pure. All thresholds, shares and limits of write stalls are here.
//!
//! The pressure *p* of a [`StallReason`] says how far the background work that would remove this
//! reason lags behind what is allowed. Below one half, the reason does not slow writers. From one
//! half on, it allows the rate g(p) × C, where C is the rate at which the work drains, measured
//! while it runs. g is 2 at one half, 1 at 1, one half at 2, and linear in between. The gate takes
//! the lowest rate that any reason allows. So p comes to rest where g(p) × C is the rate that the
//! writers want or that the work can keep up with. The rate follows from p alone: it never moves in
//! steps from its own last value. At 2, the reasons that would exhaust memory or make reads too
//! slow stop all writers.
//!
//! Worked example: compactions take 20 MiB/s out of L0. When L0 is a quarter of the way to the
//! depth at which writers stop (p = ½), writers may bring 40 MiB/s. They bring 30, so the gate does
//! not limit them yet, and L0 grows. At p = ¾ the gate limits them to 30 MiB/s, and at p = 1 to 20,
//! so p stays there.

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
    /// Frozen memtables leave the caches too little of the memory limit.
    Memory = 4,
}

/// All reasons, with their names in reports.
pub const STALL_REASONS: [(StallReason, &str); 5] = [
    (StallReason::Memtables, "memtables"),
    (StallReason::L0, "l0"),
    (StallReason::Debt, "debt"),
    (StallReason::Space, "space"),
    (StallReason::Memory, "memory"),
];

impl StallReason {
    /// Whether the reason stops writers at the pressure [`STOP`].
    fn stops(self) -> bool {
        matches!(self, Self::Memtables | Self::L0 | Self::Memory)
    }

    /// Whether writers that stop for this reason wait for flushes: frozen memtables are too many or
    /// too large. For all other reasons they wait for compactions.
    pub(super) fn waits_for_flushes(self) -> bool {
        matches!(self, Self::Memtables | Self::Memory)
    }
}

/// The pressure at which writers stop.
const STOP: f64 = 2.0;

/// The lowest rate of the gate in bytes per second, however slow the measured background work is.
const RATE_MIN: f64 = 256.0 * 1024.0;

/// Garbage is allowed up to this share of the last level's bytes, plus the capacity of the
/// memtables.
const SPACE_SHARE: f64 = 0.2;

/// The pressure of garbage is 1 at this share of the allowed garbage, so that the garbage settles
/// below what is allowed.
const SPACE_AIM: f64 = 0.7;

/// Debt makes no pressure up to this many bytes, or up to the size of the last level if that is
/// larger. At `DEBT_RANGE` times that debt the pressure is 2.
const DEBT_MIN: f64 = (2u64 << 30) as f64;
const DEBT_RANGE: f64 = 16.0;

/// The numbers that decide about write stalls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StallInput {
    /// Number of frozen memtables.
    pub frozen_memtables: usize,
    /// Number of frozen memtables at which writers stop.
    pub frozen_memtables_max: usize,
    /// Number of L0 runs that a read of one key must search at most, including ingested runs that
    /// wait for L0.
    pub l0_runs: usize,
    /// The value of `l0_runs` at which writers stop.
    pub l0_stop_runs: usize,
    /// Bytes that compactions must rewrite until all levels are within their targets.
    pub debt: u64,
    /// The bytes that a full compaction would free, plus the bytes that running jobs are expected
    /// to write.
    pub garbage: u64,
    /// Bytes of the last level.
    pub last_level: u64,
    /// Capacity of all memtables, bytes.
    pub memtables_capacity: u64,
    /// Memory of the frozen memtables, bytes.
    pub frozen_bytes: u64,
    /// The memory that frozen memtables may take at most, bytes; `None` without a memory limit.
    pub frozen_room: Option<u64>,
}

/// How far background work lags behind what is allowed, by reason: below ½ it does not slow
/// writers, at 1 it slows them to the rate at which the work drains.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Pressure {
    /// Pressure from the number of frozen memtables. At a pressure of 2 writers stop.
    pub memtables: f64,
    /// Pressure from the depth of L0; at 2 writers stop.
    pub l0: f64,
    /// Pressure from the bytes by which levels exceed their targets.
    pub debt: f64,
    /// Pressure from the bytes that a full compaction would free.
    pub space: f64,
    /// Pressure from the memory of frozen memtables; at 2, when they fill their room, writers stop.
    pub memory: f64,
}

impl Pressure {
    /// The pressure of `input`.
    pub fn of(input: &StallInput) -> Self {
        let share = |amount: f64, most: f64| STOP * amount / most.max(1.0);
        let last_level = input.last_level as f64;
        let debt_free = DEBT_MIN.max(last_level);
        let debt = (input.debt.max(1) as f64 / debt_free).ln().max(0.0);
        let allowed = SPACE_SHARE * last_level + input.memtables_capacity as f64;
        Self {
            memtables: share(
                input.frozen_memtables as f64,
                input.frozen_memtables_max as f64,
            ),
            l0: share(input.l0_runs as f64, input.l0_stop_runs as f64),
            debt: STOP * debt / DEBT_RANGE.ln(),
            space: input.garbage as f64 / (SPACE_AIM * allowed).max(1.0),
            memory: input
                .frozen_room
                .map_or(0.0, |room| share(input.frozen_bytes as f64, room as f64)),
        }
    }

    fn shares(&self) -> [(f64, StallReason); STALL_REASONS.len()] {
        [
            (self.memtables, StallReason::Memtables),
            (self.l0, StallReason::L0),
            (self.debt, StallReason::Debt),
            (self.space, StallReason::Space),
            (self.memory, StallReason::Memory),
        ]
    }

    /// The first reason that stops writers, if there is one.
    pub fn stop(&self) -> Option<StallReason> {
        let stops = |(p, reason): &(f64, StallReason)| *p >= STOP && reason.stops();
        let mut stopping = self.shares().into_iter().filter(stops);
        stopping.next().map(|(_, reason)| reason)
    }
}

/// For each reason to delay writers, in the order of [`STALL_REASONS`]: how fast flushes or
/// compactions work off what causes the delay, in bytes of commits per second. `None` if that was
/// not measured yet.
pub type Drained = [Option<f64>; STALL_REASONS.len()];

/// The decision of the policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// Writers pass.
    Open,
    /// Writers pass at `rate` bytes a second.
    Rate {
        /// Bytes a second, at least 1.
        rate: u64,
        /// The reason that limits the rate most.
        reason: StallReason,
    },
    /// Nobody passes.
    Stop {
        /// The reason.
        reason: StallReason,
    },
}

/// The gate lets writers pass at a multiple of the rate at which background work removes what slows
/// them, such as runs of L0. This is that multiple at pressure `p`.
fn gain(p: f64) -> f64 {
    match p {
        p if p <= 1.0 => 2.0 - 2.0 * (p - 0.5),
        p if p <= 2.0 => 1.5 - 0.5 * p,
        p => 1.0 / p,
    }
}

/// Decides whether writers pass, and how fast.
pub fn decide(pressure: &Pressure, drained: &Drained) -> Limit {
    if let Some(reason) = pressure.stop() {
        return Limit::Stop { reason };
    }
    let rate = |(p, reason): (f64, StallReason)| {
        let drained = drained[reason as usize].filter(|_| p >= 0.5)?;
        Some(((gain(p) * drained).max(RATE_MIN) as u64, reason))
    };
    let rates = pressure.shares().into_iter().filter_map(rate);
    match rates.min_by_key(|(rate, _)| *rate) {
        Some((rate, reason)) => Limit::Rate { rate, reason },
        None => Limit::Open,
    }
}

#[cfg(test)]
mod tests;
