//! How fast obsolete files are deleted. Pure.

use std::collections::VecDeque;

/// Bytes a second that may always be deleted: two files of the usual size.
const BASE_RATE: u64 = 64 << 20;

/// A backlog is spread over this long, microseconds.
const HORIZON_US: u64 = 60_000_000;

/// How long is remembered what became obsolete, microseconds.
const MEMORY_US: u64 = 300_000_000;

/// Longest time since the last look that earns anything, microseconds.
const STEP_US_MAX: u64 = 1_000_000;

/// Deals out bytes that may be deleted.
///
/// A file system frees the blocks of a large file under its own locks, and tells the device, which
/// has to work them off: a gigabyte at once delays the syncs of the log by hundreds of milliseconds.
/// So a dropped table is deleted bit by bit: at a rate that is never small,
/// follows what became obsolete in the last minutes, so that the disk does not fill, and grows with
/// the backlog, so that it is gone after minutes in any case.
///
/// Invariant: over any time no more is dealt out than the rate allows, but for one file, since files
/// are deleted whole: a file may be deleted as long as nothing is owed.
///
/// What a compaction replaces is not dealt out, it goes at once: in small jobs anyway, and whoever
/// updates all the time would pay for the pace with gigabytes of files that nobody needs.
///
/// Rejected: truncating a file in steps before it is removed (each step is a journal commit, and a
/// crash leaves files of a wrong size).
#[derive(Debug, Default)]
pub(super) struct DeletePacer {
    /// When bytes were dealt out last, microseconds; `None` before.
    last_us: Option<u64>,
    /// Bytes that may be deleted; negative if they are owed.
    credit: i64,
    /// What became obsolete: when, bytes.
    recent: VecDeque<(u64, u64)>,
}

impl DeletePacer {
    /// Notes that `bytes` have become obsolete.
    pub(super) fn obsolete(&mut self, now_us: u64, bytes: u64) {
        self.recent.push_back((now_us, bytes));
    }

    /// Bytes a second at which `backlog` bytes are deleted.
    fn rate(&mut self, now_us: u64, backlog: u64) -> u64 {
        while let Some((at, _)) = self.recent.front()
            && at + MEMORY_US < now_us
        {
            self.recent.pop_front();
        }
        let recent: u64 = self.recent.iter().map(|(_, bytes)| bytes).sum();
        BASE_RATE + recent / (MEMORY_US / 1_000_000) + backlog / (HORIZON_US / 1_000_000)
    }

    /// Earns what the time since the last call allows. What is not used up within a second is lost.
    pub(super) fn look(&mut self, now_us: u64, backlog: u64) {
        let rate = self.rate(now_us, backlog) as i64;
        let since = now_us.saturating_sub(self.last_us.unwrap_or(now_us));
        let earned = i128::from(rate) * i128::from(since.min(STEP_US_MAX)) / 1_000_000;
        self.credit = (self.credit + earned as i64).min(rate);
        self.last_us = Some(now_us);
    }

    /// Whether a file of `bytes` may be deleted now; then it is paid for.
    pub(super) fn take(&mut self, bytes: u64) -> bool {
        let may = self.credit > 0 || bytes == 0;
        if may {
            self.credit -= i64::try_from(bytes).unwrap_or(i64::MAX / 2);
        }
        may
    }
}

#[cfg(test)]
mod tests;
