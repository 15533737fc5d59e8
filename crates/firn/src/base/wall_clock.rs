//! The time of day, for reports.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since 1970, exact to a few milliseconds: the coarse clock costs a few nanoseconds,
/// so that every transaction can note when it began.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}
