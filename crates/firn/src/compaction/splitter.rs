//! Splits the output stream into files. Pure.

use crate::base::key::index_id_of;

/// Share of the target, in percent, from which a file ends at a boundary of the next level. The
/// share grows with each boundary that the file has passed. Files that end where the next level's
/// files end make later jobs read few extra bytes.
const BOUNDARY_SHARE_MIN: u64 = 50;
const BOUNDARY_SHARE_STEP: u64 = 5;
const BOUNDARY_SHARE_MAX: u64 = 90;

/// Share of the target, in percent, from which a change of index ends a file. Below it, small
/// tables share a file: a thousand of them make one file, not a thousand.
const INDEX_SHARE: u64 = 25;

/// Decides where to cut a sorted stream into files. A file ends
///
/// - at a boundary of the next level, once it has `BOUNDARY_SHARE_MIN` percent of the target, and
///   `BOUNDARY_SHARE_STEP` more for each boundary passed;
/// - at a change of index, once it has `INDEX_SHARE` percent of the target;
/// - at any key, once it has reached the target, or twice the target while boundaries are ahead.
///
/// Invariant: the caller asks only where the user key changes, so all versions of a user key are in
/// one file of the level.
pub struct Splitter {
    target: u64,
    /// From this size on, every boundary ends a file. Only flushes use it.
    piece_min: u64,
    /// Smallest user keys of the next level's files, ascending.
    boundaries: Vec<Vec<u8>>,
    at: usize,
    passed: u64,
}

impl Splitter {
    /// A splitter for files of about `target` stored bytes. `boundaries`: the smallest user keys of
    /// the files of the level below the output, ascending; empty for the last level.
    pub fn new(target: u64, boundaries: Vec<Vec<u8>>) -> Self {
        Self {
            target: target.max(1),
            piece_min: u64::MAX,
            boundaries,
            at: 0,
            passed: 0,
        }
    }

    /// A splitter for a flush: files end at every boundary once they hold an eighth of `target`.
    /// The pieces that several runs have over one range then share no key with other pieces, and
    /// sink on their own.
    pub fn for_flush(target: u64, boundaries: Vec<Vec<u8>>) -> Self {
        Self {
            piece_min: target / 8,
            ..Self::new(target, boundaries)
        }
    }

    /// Whether a boundary `b` with `first` < `b` ≤ `last` is ahead: a file might end between the
    /// two keys.
    pub fn parts(&self, first: &[u8], last: &[u8]) -> bool {
        let ahead = &self.boundaries[self.at..];
        let next = ahead.partition_point(|b| b.as_slice() <= first);
        ahead.get(next).is_some_and(|b| b.as_slice() <= last)
    }

    /// Whether a file of `size` bytes whose last user key is `last` ends before `next`.
    pub fn should_split(&mut self, last: &[u8], next: &[u8], size: u64) -> bool {
        debug_assert!(last < next);
        let ahead = &self.boundaries[self.at..];
        let crossed = ahead.partition_point(|b| b.as_slice() <= next);
        self.at += crossed;
        // The first file begins without a call, so a boundary at or before `last` may still be
        // ahead. It lies in front of that file's keys: no cut here.
        let here = crossed > 0 && self.boundaries[self.at - 1].as_slice() > last;
        let share = size.saturating_mul(100) / self.target;
        let limit = BOUNDARY_SHARE_MIN + BOUNDARY_SHARE_STEP * self.passed;
        let at_boundary =
            here && (share >= limit.min(BOUNDARY_SHARE_MAX) || size >= self.piece_min);
        let at_index = index_id_of(last) != index_id_of(next) && share >= INDEX_SHARE;
        // A file waits for a boundary ahead up to twice the target.
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
