//! Paces the deletion of obsolete files. This module does no I/O and reads no clock.

use std::collections::VecDeque;

/// Bytes per second that may be deleted even without a backlog: two files of the usual 32 MiB.
const BASE_RATE: u64 = 64 << 20;

/// Time in microseconds over which the deletion of a backlog is spread.
const HORIZON_US: u64 = 60_000_000;

/// Time in microseconds over which the rate of new obsolete bytes is averaged.
const MEMORY_US: u64 = 300_000_000;

/// A call of [`DeletePacer::earn`] adds credit (bytes of files that may be deleted) for at most
/// this many microseconds, however long ago the previous call was.
const STEP_US_MAX: u64 = 1_000_000;

/// Limits the bytes of files deleted per second.
///
/// A file system frees the blocks of a large file under its own locks and passes the discard to the
/// device. Deleting a gigabyte at once delays log syncs by hundreds of milliseconds. So the files
/// of a dropped table are deleted in steps. The rate is the sum of three terms: a constant, the
/// average rate of new obsolete bytes (so that the disk does not fill), and a term in proportion to
/// the backlog (so that any backlog is gone after minutes).
///
/// Invariant: in any period the deleted bytes exceed what the rate allows by at most one second's
/// credit and one file. One file must be added because a file is deleted as a whole as soon as the
/// credit is positive, and may be larger than the credit.
///
/// Files that a compaction has replaced bypass the pacer. They come from small jobs; under constant
/// updates, pacing them would leave gigabytes of unused files on disk.
///
/// Rejected: truncating a file in steps before it is removed. Each step is a journal commit, and a
/// crash leaves files of a wrong size.
#[derive(Debug, Default)]
pub(super) struct DeletePacer {
    /// Time of the last [`Self::earn`], microseconds; `None` before the first.
    last_us: Option<u64>,
    /// Credit in bytes; negative after a large file.
    credit: i64,
    /// Recent increases of the obsolete bytes: time in microseconds, bytes.
    recent: VecDeque<(u64, u64)>,
}

impl DeletePacer {
    /// Notes that `bytes` have become obsolete.
    pub(super) fn obsolete(&mut self, now_us: u64, bytes: u64) {
        self.recent.push_back((now_us, bytes));
    }

    /// The rate in bytes per second when `backlog` bytes wait for deletion.
    fn rate(&mut self, now_us: u64, backlog: u64) -> u64 {
        while let Some((at, _)) = self.recent.front()
            && at + MEMORY_US < now_us
        {
            self.recent.pop_front();
        }
        let recent: u64 = self.recent.iter().map(|(_, bytes)| bytes).sum();
        BASE_RATE + recent / (MEMORY_US / 1_000_000) + backlog / (HORIZON_US / 1_000_000)
    }

    /// Adds credit for the time since the last call. Credit is the bytes of files that may be
    /// deleted now; it never exceeds what the rate allows in one second.
    pub(super) fn earn(&mut self, now_us: u64, backlog: u64) {
        let rate = self.rate(now_us, backlog) as i64;
        let since = now_us.saturating_sub(self.last_us.unwrap_or(now_us));
        let earned = i128::from(rate) * i128::from(since.min(STEP_US_MAX)) / 1_000_000;
        self.credit = (self.credit + earned as i64).min(rate);
        self.last_us = Some(now_us);
    }

    /// Whether a file of `bytes` may be deleted now. If so, its size is deducted from the credit.
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
