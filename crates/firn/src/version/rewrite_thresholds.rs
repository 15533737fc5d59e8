//! Thresholds of garbage and tombstones (deletions) from which a compaction rewrites a file.
//!
//! The compaction picker decides by these thresholds. They stand in this layer because the sums
//! over the files of a run (`file_sums.rs`) count the files that exceed them.

use super::FileMeta;

/// A file has many deletions if more than this percentage of its entries are deletions. An update
/// of a secondary key is a deletion and a put, so a share of one half is ordinary.
pub const TOMBSTONE_SHARE: u64 = 50;

/// A file also has many deletions if its deletions in blocks that hold little else
/// ([`FileMeta::dense_deletes`]) are more than this percentage of its entries, and at least
/// [`DENSE_DELETES_MIN`].
const DENSE_SHARE: u64 = 10;

/// [`DENSE_SHARE`] applies only to files with at least this many deletions in blocks that hold
/// little else. A scan that skips as many deletions in one move reports the range to the picker; by
/// this rule the file is compacted even before a scan comes.
const DENSE_DELETES_MIN: u64 = 1000;

/// Shares of dead entries, in percent. For each of them, [`super::FileSums::dead`] tells whether a
/// file has a larger share.
pub const DEAD_SHARES: [u64; 3] = [0, 2, 10];

/// Whether `part` is more than `percent` of `whole`.
pub fn share_over(part: u64, whole: u64, percent: u64) -> bool {
    u128::from(part) * 100 > u128::from(whole) * u128::from(percent)
}

impl FileMeta {
    /// A number of entries that a rewrite of the file in the last level certainly drops, once every
    /// read is at seqno [`Self::max_seqno`] or later: the larger of the number of deletions and the
    /// number of entries with a newer version in the file. An entry may be both, so they are not
    /// added.
    pub fn droppable_entries_min(&self) -> u64 {
        self.deletes.max(self.superseded)
    }

    /// Whether deletions take so much of the file that the picker moves it down before its level is
    /// full.
    pub fn has_many_deletions(&self) -> bool {
        let cluster = self.dense_deletes >= DENSE_DELETES_MIN;
        share_over(self.deletes, self.entries, TOMBSTONE_SHARE)
            || (cluster && share_over(self.dense_deletes, self.entries, DENSE_SHARE))
    }
}
