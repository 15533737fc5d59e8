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
/// - at any key, once it has reached the target size (see also [`Self::begin_file`]), or twice the
///   target size while there are boundaries ahead.
///
/// Invariant: the caller calls [`Self::should_split`] only where the user key changes. So all
/// versions of a user key are in one file of the run.
pub struct Splitter {
    target: u64,
    /// The size at which the current file ends at any key, if no boundary lies ahead.
    full: u64,
    /// A file of at least this size ends at every boundary. Only flushes set it.
    piece_min: u64,
    boundaries: Boundaries,
    passed: u64,
    /// Files end before each of these user keys.
    cuts: Boundaries,
}

/// The boundaries that lie in a range of keys.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CrossedBoundaries {
    /// Number of boundaries in the range.
    pub count: u64,
    /// The last of them.
    pub last: Option<Vec<u8>>,
    /// The first boundary behind the range.
    pub next: Option<Vec<u8>>,
}

/// Finds the boundaries above the first key, up to and with the second one.
pub type BoundarySearch = Box<dyn Fn(&[u8], &[u8]) -> CrossedBoundaries + Send>;

/// Where files may end: smallest user keys of another level's files.
enum Boundaries {
    /// The list of all boundaries, ascending. `at` is the position in `keys` of the first boundary
    /// that the entries written so far have not passed.
    Listed { keys: Vec<Vec<u8>>, at: usize },
    /// They are looked for one after the other.
    Searched {
        search: BoundarySearch,
        /// The first one ahead. `None` before the first search.
        next: Option<Option<Vec<u8>>>,
    },
}

impl Boundaries {
    fn listed(keys: Vec<Vec<u8>>) -> Self {
        Self::Listed { keys, at: 0 }
    }

    /// Moves behind the boundaries at or below `key`, the user key that follows `last` in the
    /// output. Returns the number of boundaries that were passed, and whether one of them is above
    /// `last`.
    fn pass(&mut self, last: &[u8], key: &[u8]) -> (u64, bool) {
        match self {
            Self::Listed { keys, at } => {
                let crossed = keys[*at..].partition_point(|b| b.as_slice() <= key);
                *at += crossed;
                // This function is not called for the first key of all. So boundaries at or before
                // `last`, the previous user key, may still count as ahead. The open file begins at
                // or behind them, so they must not end it here.
                let here = crossed > 0 && keys[*at - 1].as_slice() > last;
                (crossed as u64, here)
            }
            Self::Searched { search, next } => {
                let ahead = |next: &Option<Vec<u8>>| next.as_ref().is_none_or(|b| &b[..] > key);
                if next.as_ref().is_some_and(ahead) {
                    return (0, false);
                }
                let crossed = search(last, key);
                *next = Some(crossed.next);
                (crossed.count, crossed.last.is_some())
            }
        }
    }

    /// Whether a boundary that the output has not passed lies above `first` and at or below `last`.
    fn any_between(&self, first: &[u8], last: &[u8]) -> bool {
        match self {
            Self::Listed { keys, at } => {
                let ahead = &keys[*at..];
                let next = ahead.partition_point(|b| b.as_slice() <= first);
                ahead.get(next).is_some_and(|b| b.as_slice() <= last)
            }
            Self::Searched { search, .. } => search(first, last).count > 0,
        }
    }

    /// Whether there is a boundary ahead.
    fn any_ahead(&self) -> bool {
        match self {
            Self::Listed { keys, at } => *at < keys.len(),
            Self::Searched { next, .. } => next.as_ref().is_some_and(Option::is_some),
        }
    }
}

impl Splitter {
    /// A splitter for files of about `target` bytes. `boundaries` are the smallest user keys of the
    /// files in the level below the output level, ascending; empty for the last level.
    pub fn new(target: u64, boundaries: Vec<Vec<u8>>) -> Self {
        Self::with_boundaries(target, Boundaries::listed(boundaries))
    }

    /// As [`Self::new`], but `search` finds the boundaries (the smallest user keys of another
    /// level's files) one after the other. This is for writers whose keys pass only few of very
    /// many boundaries, so that a list of all would cost more.
    pub fn with_search(target: u64, search: BoundarySearch) -> Self {
        let boundaries = Boundaries::Searched { search, next: None };
        Self::with_boundaries(target, boundaries)
    }

    fn with_boundaries(target: u64, boundaries: Boundaries) -> Self {
        Self {
            target: target.max(1),
            full: target.max(1),
            piece_min: u64::MAX,
            boundaries,
            passed: 0,
            cuts: Boundaries::listed(Vec::new()),
        }
    }

    /// This splitter, which also ends files before each of the user keys `cuts`, ascending, however
    /// small the files are.
    pub fn with_cuts(self, cuts: Vec<Vec<u8>>) -> Self {
        let cuts = Boundaries::listed(cuts);
        Self { cuts, ..self }
    }

    /// A splitter for a flush: a file ends at every boundary once it has an eighth of `target`.
    /// Then the files of several L0 runs that lie between the same two boundaries share no key with
    /// other files of L0, so a compaction can take them alone.
    pub fn for_flush(target: u64, boundaries: Vec<Vec<u8>>) -> Self {
        Self {
            piece_min: target / 8,
            ..Self::new(target, boundaries)
        }
    }

    /// Begins a file, when about `remaining` bytes are still to be written. Without boundaries
    /// ahead, files then end at equal shares of these bytes instead of the target size, so that the
    /// last file is about as large as the others. The share is two thirds of the target to one and
    /// a half of it.
    ///
    /// `remaining` is an estimate. So a file that should take all of it may grow to twice the
    /// target, and does not leave a few bytes to another file.
    pub fn begin_file(&mut self, remaining: u64) {
        let files = (remaining + self.target / 2) / self.target;
        self.full = match files {
            0 | 1 => self.target.saturating_mul(2),
            _ => remaining / files,
        };
    }

    /// Whether a boundary (the smallest user key of a file of the next level) lies above `first`
    /// and at or below `last`, and the output has not passed it yet, or whether a file must end
    /// there. If so, an output file might end between the two keys.
    pub fn parts(&self, first: &[u8], last: &[u8]) -> bool {
        self.boundaries.any_between(first, last) || self.cuts.any_between(first, last)
    }

    /// Whether a file of `size` bytes, whose last user key is `last`, ends before the user key
    /// `next`.
    pub fn should_split(&mut self, last: &[u8], next: &[u8], size: u64) -> bool {
        debug_assert!(last < next);
        let (crossed, here) = self.boundaries.pass(last, next);
        let (_, must) = self.cuts.pass(last, next);
        let share = size.saturating_mul(100) / self.target;
        let limit = BOUNDARY_SHARE_MIN + BOUNDARY_SHARE_STEP * self.passed;
        let at_boundary =
            here && (share >= limit.min(BOUNDARY_SHARE_MAX) || size >= self.piece_min);
        let at_index = index_id_of(last) != index_id_of(next) && share >= INDEX_SHARE;
        // As long as the next level has a boundary above `last`, a file may grow to twice the
        // target size, so that it can end at a boundary.
        let most = match self.boundaries.any_ahead() {
            true => self.target.saturating_mul(2),
            false => self.full,
        };
        let full = size.saturating_mul(100) / most >= 100;
        let cut = at_boundary || at_index || full || must;
        self.passed = if cut { 0 } else { self.passed + crossed };
        cut
    }
}

#[cfg(test)]
mod tests;
