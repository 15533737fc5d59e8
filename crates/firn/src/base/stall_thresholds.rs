//! The thresholds of the write stall: from which backlog on writers are slowed down, and from which
//! on they stop.
//!
//! The pressure of each reason is a number. Below [`SLOWDOWN_PRESSURE`] writers are not slowed, at
//! 1 they get the rate at which background work drains, and at [`STOP_PRESSURE`] writers stop if
//! the reason is memtables or L0. Two thresholds are options of the database:
//! [`frozen_memtables_max`](super::options::Options::frozen_memtables_max) and
//! [`l0_stop_runs`](super::options::Options::l0_stop_runs) give the number of memtables and of L0
//! runs at which the pressure is 2.

/// The pressure from which on writers are slowed down.
pub const SLOWDOWN_PRESSURE: f64 = 0.5;

/// The pressure of memtables or L0 at which writers stop.
pub const STOP_PRESSURE: f64 = 2.0;

/// The lowest rate of slowed writers, bytes a second, however slow background work was measured.
pub const RATE_MIN: f64 = 256.0 * 1024.0;

/// Longest delay of one statement, unless writers are stopped, microseconds. The charge for a
/// commit is limited to this delay, too: one large transaction must not hold up all others for
/// seconds.
pub const DELAY_US_MAX: u64 = 20_000;

/// Allowed garbage: this share of the last level's bytes, plus the capacity of the memtables.
pub const SPACE_SHARE: f64 = 0.2;

/// The pressure is 1 at this share of the allowed garbage. So the space settles below the limit.
pub const SPACE_AIM: f64 = 0.7;

/// Up to a compaction debt of this many bytes, or of the size of the last level if that is larger,
/// there is no pressure. At [`DEBT_RANGE`] times that debt the pressure is 2.
pub const DEBT_MIN: f64 = (2u64 << 30) as f64;

/// See [`DEBT_MIN`].
pub const DEBT_RANGE: f64 = 16.0;
