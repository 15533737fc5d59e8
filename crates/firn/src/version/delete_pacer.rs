//! Paces the deletion of obsolete files. Pure.

use std::collections::VecDeque;

/// Bytes per second that may always be deleted: two files of the usual size.
const BASE_RATE: u64 = 64 << 20;

/// Time over which a backlog is spread, microseconds.
const HORIZON_US: u64 = 60_000_000;

/// Time over which the rate of new obsolete bytes is averaged, microseconds.
const MEMORY_US: u64 = 300_000_000;

/// Longest time since the last call that adds credit, microseconds.
const STEP_US_MAX: u64 = 1_000_000;

/// Limits the bytes of files deleted per second.
///
/// A file system frees the blocks of a large file under its own locks and passes the discard to the
/// device. A gigabyte at once delays log syncs by hundreds of milliseconds. So a dropped table is
/// deleted in steps. The rate has three terms: a constant one, the average rate of new obsolete
/// bytes (so that the disk does not fill), and one in proportion to the backlog (so that any
/// backlog is gone after minutes).
///
/// Invariant: in any period the deleted bytes exceed the rate by at most one second's credit and
/// one file. Files are deleted whole, so one may be deleted as soon as the credit is positive.
///
/// Files that a compaction has replaced bypass the pacer. They come from small jobs, and under
/// constant updates the pace would keep gigabytes of unused files.
///
/// Rejected: truncating a file in steps before it is removed. Each step is a journal commit, and a
/// crash leaves files of a wrong size.
#[derive(Debug, Default)]
pub(super) struct DeletePacer {
    /// Time of the last [`Self::earn`], microseconds; `None` before the first.
    last_us: Option<u64>,
    /// Credit in bytes; negative after a large file.
    credit: i64,
    /// Bytes that became obsolete, with the time in microseconds.
    recent: VecDeque<(u64, u64)>,
}

impl DeletePacer {
    /// Notes that `bytes` have become obsolete.
    pub(super) fn obsolete(&mut self, now_us: u64, bytes: u64) {
        self.recent.push_back((now_us, bytes));
    }

    /// The rate for a backlog of `backlog` bytes, bytes per second.
    fn rate(&mut self, now_us: u64, backlog: u64) -> u64 {
        while let Some((at, _)) = self.recent.front()
            && at + MEMORY_US < now_us
        {
            self.recent.pop_front();
        }
        let recent: u64 = self.recent.iter().map(|(_, bytes)| bytes).sum();
        BASE_RATE + recent / (MEMORY_US / 1_000_000) + backlog / (HORIZON_US / 1_000_000)
    }

    /// Adds the credit for the time since the last call, up to one second's worth in total.
    pub(super) fn earn(&mut self, now_us: u64, backlog: u64) {
        let rate = self.rate(now_us, backlog) as i64;
        let since = now_us.saturating_sub(self.last_us.unwrap_or(now_us));
        let earned = i128::from(rate) * i128::from(since.min(STEP_US_MAX)) / 1_000_000;
        self.credit = (self.credit + earned as i64).min(rate);
        self.last_us = Some(now_us);
    }

    /// Whether a file of `bytes` may be deleted now. If so, it is charged.
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
