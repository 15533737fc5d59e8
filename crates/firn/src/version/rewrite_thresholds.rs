//! Thresholds of garbage and tombstones (deletions) from which a compaction rewrites a file.
//!
//! The thresholds are the picker's. They stand in this layer because the sums over the files of a
//! run (`file_sums.rs`) count by them.

use super::FileMeta;

/// A file with more than this share of deletions among its entries (percent) is dense. An update of
/// a secondary key is a deletion and a put, so half is ordinary.
pub const TOMBSTONE_SHARE: u64 = 50;

/// A file is also dense if its deletions in blocks that hold little else are more than this share
/// of its entries, in percent, and at least [`DENSE_DELETES_MIN`].
const DENSE_SHARE: u64 = 10;

/// Number of deletions in such blocks from which on [`DENSE_SHARE`] applies. A scan that skips as
/// many in one move reports the range as well; this rule comes before the report.
const DENSE_DELETES_MIN: u64 = 1000;

/// Shares of dead entries, in percent, for which [`super::FileSums::dead`] answers.
pub const DEAD_SHARES: [u64; 3] = [0, 2, 10];

/// Whether `part` is more than `percent` of `whole`.
pub fn share_over(part: u64, whole: u64, percent: u64) -> bool {
    u128::from(part) * 100 > u128::from(whole) * u128::from(percent)
}

impl FileMeta {
    /// Entries that are certainly dropped by a rewrite in the last level, once every read stands
    /// at [`Self::max_seqno`] or later: deletions, or entries with a newer version in the file.
    pub fn dead_entries(&self) -> u64 {
        self.deletes.max(self.superseded)
    }

    /// Whether deletions take so much of the file that it sinks early.
    pub fn is_dense(&self) -> bool {
        let cluster = self.dense_deletes >= DENSE_DELETES_MIN;
        share_over(self.deletes, self.entries, TOMBSTONE_SHARE)
            || (cluster && share_over(self.dense_deletes, self.entries, DENSE_SHARE))
    }
}
