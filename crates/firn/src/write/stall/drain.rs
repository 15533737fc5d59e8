//! Measures how fast flushes and compactions drain what writers commit.

use super::policy::{Drained, STALL_REASONS};

/// Commits since the database was opened, and their bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CommitTotals {
    /// Number of commits.
    pub commits: u64,
    /// Sum of the bytes for which they were charged
    /// ([`Changes::charged_bytes`](crate::write::Changes::charged_bytes)).
    pub bytes: u64,
}

/// The measured rates of flushes and of compactions are averages over about this many microseconds
/// in which such work ran.
const WINDOW_US: f64 = 15_000_000.0;

/// A rate counts as measured once the work has run for this many microseconds.
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

    /// Bytes per second, averaged over the time in which the work ran; `None` if that time is too
    /// short.
    fn rate(&self) -> Option<f64> {
        (self.us >= SEEN_US_MIN).then(|| self.amount * 1e6 / self.us)
    }
}

/// Each flush multiplies the weight of earlier flushes by this factor.
const FLUSH_FADES: f64 = 0.95;

/// Bytes that flushes and ingested runs store in L0 for each committed byte, averaged over about
/// the last twenty of them.
#[derive(Debug, Clone, Copy, Default)]
struct StoredRatio {
    /// Total of committed bytes when it was last measured.
    until: u64,
    stored: f64,
    committed: f64,
}

impl StoredRatio {
    /// Notes that `stored` more bytes are in L0, with a total of `until` committed bytes.
    fn add(&mut self, stored: f64, until: u64) {
        let committed = until.saturating_sub(self.until) as f64;
        self.until = until;
        // Leave out a flush before the first commit since the open: recovery has filled its
        // memtable, and no writer waits for it.
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
    /// `compactions` includes the running time of jobs up to this time, microseconds.
    since_us: u64,
    /// Commits and their bytes when the last flush ended.
    committed: CommitTotals,
    /// Mean size in bytes of the commits between the ends of the last two flushes; `None` before
    /// there were any.
    commit_bytes: Option<f64>,
    /// Bytes that recent flushes and ingested runs stored, for each byte committed between their
    /// ends. It is a ratio of sums, because delayed flushes end together: measured one by one, the
    /// first of them would have stored few bytes of many commits, and the next ones many bytes of
    /// none.
    pressed: StoredRatio,
}

impl Drain {
    /// Notes that a flush has stored `stored` bytes in `took_us` microseconds. `committed` is the
    /// total when it ended.
    pub(super) fn flushed(&mut self, committed: CommitTotals, stored: u64, took_us: u64) {
        self.flushes.add(stored as f64, took_us as f64);
        let bytes = committed.bytes.saturating_sub(self.committed.bytes) as f64;
        let commits = committed.commits.saturating_sub(self.committed.commits) as f64;
        self.committed = committed;
        self.installed(committed, stored);
        if commits > 0.0 {
            self.commit_bytes = Some(bytes / commits);
        }
    }

    /// Notes that `stored` more bytes are in L0, which took no flush, or one that is too short to
    /// tell how fast flushes are.
    pub(super) fn installed(&mut self, committed: CommitTotals, stored: u64) {
        self.pressed.add(stored as f64, committed.bytes);
    }

    /// Mean bytes of a recent commit.
    pub(super) fn commit_bytes(&self) -> Option<f64> {
        self.commit_bytes
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

    /// For each reason for a write stall, the committed bytes a second with which the background
    /// work that writers then wait for can keep up: flushes or compactions. `None` as long as it
    /// was not measured.
    pub(super) fn rates(&self) -> Drained {
        let ratio = self.pressed.ratio();
        STALL_REASONS.map(|(reason, _)| {
            let stored = match reason.waits_for_flushes() {
                true => self.flushes.rate(),
                false => self.compactions.rate(),
            };
            Some(stored? / ratio?)
        })
    }
}

#[cfg(test)]
mod tests;
