//! Where one output file ends and the next begins. Pure.

use crate::base::key::index_id_of;

/// Share of the target from which a boundary of the next level ends a file, in percent: it grows
/// with each boundary passed, so that files tend to end where the next level's files do, and a job
/// on them later reads few bytes in excess.
const BOUNDARY_SHARE_MIN: u64 = 50;
const BOUNDARY_SHARE_STEP: u64 = 5;
const BOUNDARY_SHARE_MAX: u64 = 90;

/// Share of the target from which a change of index ends a file, in percent. Below it, small tables
/// share a file: a thousand of them make one file, not a thousand.
const INDEX_SHARE: u64 = 25;

/// Decides where to cut a sorted stream into files.
///
/// Invariant: it is asked only where the user key changes, so the versions of one user key are
/// never in two files of a level.
pub struct Splitter {
    target: u64,
    /// From this size on every boundary ends a file; for flushes.
    piece_min: u64,
    /// Smallest user keys of the next level's files, ascending.
    boundaries: Vec<Vec<u8>>,
    at: usize,
    passed: u64,
}

impl Splitter {
    /// Files of about `target` stored bytes. `boundaries`: the smallest user keys of the files of
    /// the level below the output, ascending; empty for the last level.
    pub fn new(target: u64, boundaries: Vec<Vec<u8>>) -> Self {
        Self {
            target: target.max(1),
            piece_min: u64::MAX,
            boundaries,
            at: 0,
            passed: 0,
        }
    }

    /// For a flush: files end at every boundary once they hold an eighth of `target`, so that the
    /// pieces of several runs over one file of the next level share no key with others, and sink
    /// with that file alone.
    pub fn for_flush(target: u64, boundaries: Vec<Vec<u8>>) -> Self {
        Self {
            piece_min: target / 8,
            ..Self::new(target, boundaries)
        }
    }

    /// Whether a boundary lies above `first`, up to `last`: a file might end between them.
    pub fn parts(&self, first: &[u8], last: &[u8]) -> bool {
        let ahead = &self.boundaries[self.at..];
        let next = ahead.partition_point(|b| b.as_slice() <= first);
        ahead.get(next).is_some_and(|b| b.as_slice() <= last)
    }

    /// Whether the file of `size` bytes that ends with user key `last` ends before `next`.
    pub fn cut(&mut self, last: &[u8], next: &[u8], size: u64) -> bool {
        debug_assert!(last < next);
        let ahead = &self.boundaries[self.at..];
        let crossed = ahead.partition_point(|b| b.as_slice() <= next);
        self.at += crossed;
        // A boundary at or before `last` was passed while the file was begun: it is no place here.
        let here = crossed > 0 && self.boundaries[self.at - 1].as_slice() > last;
        let share = size.saturating_mul(100) / self.target;
        let limit = BOUNDARY_SHARE_MIN + BOUNDARY_SHARE_STEP * self.passed;
        let at_boundary =
            here && (share >= limit.min(BOUNDARY_SHARE_MAX) || size >= self.piece_min);
        let at_index = index_id_of(last) != index_id_of(next) && share >= INDEX_SHARE;
        // A boundary ahead is worth waiting for, but not for ever.
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
