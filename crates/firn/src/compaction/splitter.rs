//! Decides where the output of a flush or a compaction is split into files. This module does no
//! I/O.

use crate::base::key::index_id_of;

/// A file ends at a boundary of the next level (the first key of a file there) only if it has
/// reached this share, in percent, of the target file size. The share starts at the minimum, grows
/// by a step with each boundary that the file passes, and is limited by the maximum. Files that end
/// where files of the next level end overlap fewer of these, so later jobs on them rewrite less.
const BOUNDARY_SHARE_MIN: u64 = 50;
const BOUNDARY_SHARE_STEP: u64 = 5;
const BOUNDARY_SHARE_MAX: u64 = 90;

/// A file ends where the index id changes only if it has reached this share, in percent, of the
/// target file size. A smaller file goes on, so small tables share a file, and a thousand of them
/// do not take a thousand files.
const INDEX_SHARE: u64 = 25;

/// Decides where to cut a sorted stream of entries into files. A file ends
///
/// - at a boundary of the next level, once it has `BOUNDARY_SHARE_MIN` percent of the target size,
///   and `BOUNDARY_SHARE_STEP` percent more for each boundary passed;
/// - at a change of the index id, once it has `INDEX_SHARE` percent of the target size;
/// - at any key, once it has reached the target size, or twice the target size while there are
///   boundaries ahead.
///
/// Invariant: the caller calls [`Self::should_split`] only where the user key changes. So all
/// versions of a user key are in one file of the run.
pub struct Splitter {
    target: u64,
    /// A file of at least this size ends at every boundary. Only flushes set it.
    piece_min: u64,
    /// Smallest user keys of the next level's files, ascending.
    boundaries: Vec<Vec<u8>>,
    at: usize,
    passed: u64,
}

impl Splitter {
    /// A splitter for files of about `target` bytes. `boundaries` are the smallest user keys of the
    /// files in the level below the output level, ascending; empty for the last level.
    pub fn new(target: u64, boundaries: Vec<Vec<u8>>) -> Self {
        Self {
            target: target.max(1),
            piece_min: u64::MAX,
            boundaries,
            at: 0,
            passed: 0,
        }
    }

    /// A splitter for a flush: a file ends at every boundary once it has an eighth of `target`. The
    /// pieces of several L0 runs between the same two boundaries then share no key with other
    /// pieces, so a compaction can take them alone.
    pub fn for_flush(target: u64, boundaries: Vec<Vec<u8>>) -> Self {
        Self {
            piece_min: target / 8,
            ..Self::new(target, boundaries)
        }
    }

    /// Whether some boundary `b` with `first` < `b` ≤ `last` is ahead, so that a file might end
    /// between the two keys.
    pub fn parts(&self, first: &[u8], last: &[u8]) -> bool {
        let ahead = &self.boundaries[self.at..];
        let next = ahead.partition_point(|b| b.as_slice() <= first);
        ahead.get(next).is_some_and(|b| b.as_slice() <= last)
    }

    /// Whether a file of `size` bytes, whose last user key is `last`, ends before the user key
    /// `next`.
    pub fn should_split(&mut self, last: &[u8], next: &[u8], size: u64) -> bool {
        debug_assert!(last < next);
        let ahead = &self.boundaries[self.at..];
        let crossed = ahead.partition_point(|b| b.as_slice() <= next);
        self.at += crossed;
        // Skip the boundaries at or before `last`. There may be some that no earlier call has
        // skipped, because the first file begins without a call. They do not lie between `last` and
        // `next`, so they must not end the file here.
        let here = crossed > 0 && self.boundaries[self.at - 1].as_slice() > last;
        let share = size.saturating_mul(100) / self.target;
        let limit = BOUNDARY_SHARE_MIN + BOUNDARY_SHARE_STEP * self.passed;
        let at_boundary =
            here && (share >= limit.min(BOUNDARY_SHARE_MAX) || size >= self.piece_min);
        let at_index = index_id_of(last) != index_id_of(next) && share >= INDEX_SHARE;
        // While there are boundaries ahead, a file may grow to twice the target, to end at one of
        // them.
        let full = share
            >= if self.at < self.boundaries.len() {
                200
            } else {
                100
            };
        let cut = at_boundary || at_index || full;
        self.passed = if cut { 0 } else { self.passed + crossed as u64 };
        cut
    }
}

#[cfg(test)]
mod tests;
