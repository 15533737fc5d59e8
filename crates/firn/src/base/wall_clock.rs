//! The time of day, for reports.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since 1970, exact to a few milliseconds. Every transaction calls this function when
/// it begins, so the function reads the coarse clock, which takes only a few nanoseconds.
pub fn now_us() -> u64 {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    now.tv_sec.unsigned_abs() * 1_000_000 + now.tv_nsec.unsigned_abs() / 1_000
}
