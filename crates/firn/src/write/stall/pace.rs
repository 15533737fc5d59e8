//! When the next writer passes at a limited rate. Pure functions of a clock.

/// Age up to which an unused share of the rate may still be used, nanoseconds. A writer wakes later
/// than it should, by the time of several commits, and on busy processors by milliseconds. If the
/// share of that time were lost, late wakeups would bound the rate.
pub(super) const CREDIT_NS: u64 = 20_000_000;

/// Passes over which the mean of committed bytes is taken.
const MEAN_PASSES: f64 = 256.0;

/// Spaces writers so that what they commit adds up to a rate.
///
/// A writer passes before its statement, so its bytes are not known yet. It is charged the mean of
/// what recent passes have committed, and the mean follows what is committed. Over time both sums
/// are equal: a transaction of 64 MiB raises the mean for the passes after it, until they have paid
/// for it together. So it holds up all writers a little, and none for seconds.
///
/// Rejected: charging a commit its bytes when they are known. Until then nothing spaces the
/// writers, so all that wait for the same moment pass at once, thousands of them.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the last writer passed, less its credit: its charge counts from then on.
    last_ns: u64,
    /// Committed bytes and passes, each fading by one part in `MEAN_PASSES` a pass.
    bytes: f64,
    passes: f64,
    /// All committed bytes when they were last added to `bytes`.
    seen: u64,
}

impl Pace {
    /// The rate becomes limited after `committed` bytes in all. What was committed without a limit
    /// belongs to no pass.
    pub(super) fn begin(&mut self, now_ns: u64, committed: u64) {
        self.last_ns = self.last_ns.max(now_ns);
        self.seen = committed;
    }

    /// The time from which the next writer may pass at `rate` bytes a second.
    pub(super) fn next_ns(&self, rate: u64) -> u64 {
        let mean = self.bytes / self.passes.max(1.0);
        let cost = mean * 1e9 / rate as f64;
        self.last_ns.saturating_add(cost as u64)
    }

    /// A writer passes, after `committed` bytes in all.
    pub(super) fn pass(&mut self, now_ns: u64, rate: u64, committed: u64) {
        self.last_ns = self.next_ns(rate).max(now_ns.saturating_sub(CREDIT_NS));
        let new = committed.saturating_sub(self.seen);
        self.seen = committed;
        let keep = 1.0 - 1.0 / MEAN_PASSES;
        self.bytes = self.bytes * keep + new as f64;
        self.passes = self.passes * keep + 1.0;
    }
}

#[cfg(test)]
mod tests;
