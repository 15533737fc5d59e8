//! Chooses the keys at which a flush splits its run into files. This module does no I/O.

use super::splitter::Splitter;
use crate::version::{FileSpan, LAST_LEVEL, Run, Version};

/// Number of pieces (files) into which a flush aims to split its run. A job on the pieces of one
/// key range then reads about a sixteenth of L0 and of the level below.
const PIECES: u64 = 16;

/// Assumed ratio of the size of a memtable to that of the run written from it.
const MEMTABLE_TO_RUN: u64 = 3;

/// Smallest size of a piece in stored bytes. Smaller pieces would cost more than they save, because
/// each file has a fixed cost.
const PIECE_MIN: u64 = 64 << 10;

/// The keys at which a flush may end a file, and the size of the pieces it aims at.
///
/// The pieces of several L0 runs fall into groups that share no key with each other only if all
/// runs are split at the same keys. So a flush splits its run where the newest run is split, as
/// long as the pieces are neither too large nor too small. All splits are first keys of files of
/// the last level, because those files outlive most compactions.
///
/// Rejected: splits at the boundaries of the base level. Each job changes these boundaries, so the
/// files of L0 overlapped in chains, and a job on any part of L0 took most of L0.
///
/// Example: the files of the last level begin at 0, 10, 20, …; the newest run has files with the
/// keys 3–18 and 41–55. The next run may be split at 20 and 40, the two ends of the gap between
/// these files, and at 60.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushSplits {
    /// User keys at which a piece ends if it is large enough, ascending.
    pub keys: Vec<Vec<u8>>,
    /// A piece is the part of the flushed run between two splits. The flush aims at pieces of this
    /// size, in stored bytes.
    pub piece: u64,
}

impl FlushSplits {
    /// Chooses the splits for the flush of a memtable of `memtable` bytes. Files get at most
    /// `file_size` stored bytes.
    pub fn of(version: &Version, memtable: u64, file_size: u64) -> Self {
        let piece = memtable / (MEMTABLE_TO_RUN * PIECES);
        let piece = piece.max(PIECE_MIN).min(file_size / 2).max(1);
        let below = &version.levels[LAST_LEVEL - 1].files;
        // Leave out the first file of the last level: few keys lie below its first key, so a split
        // there would separate nothing.
        let below = below.range(below.len().min(1)..below.len());
        let Some(newest) = version.l0.first() else {
            let keys = spread(below, PIECES as usize - 1);
            return Self { keys, piece };
        };
        Self {
            keys: as_before(newest, below, piece),
            piece,
        }
    }

    /// A splitter for these splits, with files of at most `file_size` stored bytes.
    pub fn splitter(self, file_size: u64) -> Splitter {
        // A splitter for a flush ends a file at a split key once the file has an eighth of its
        // target size. The target is four times the aimed size of a piece, so a piece has at least
        // half of that size.
        Splitter::for_flush((4 * self.piece).min(file_size), self.keys)
    }
}

/// The first keys of `count` files of `files`, or of all if there are fewer. The chosen files are
/// evenly distributed.
fn spread(files: FileSpan<'_>, count: usize) -> Vec<Vec<u8>> {
    let count = count.min(files.len());
    let at = |i: usize| files.get((2 * i + 1) * files.len() / (2 * count));
    let keys = (0..count).filter_map(at).map(|file| file.smallest.clone());
    keys.collect()
}

/// The keys at which to split the next run, so that its files begin and end near the same keys as
/// those of `newest`. All keys are first keys of files in `below`. In the gap before each file of
/// `newest`, the first and the last file of `below` that begin there give a key each. Behind the
/// last file of `newest`, only the first file gives one. If a file of `newest` is larger than two
/// pieces, that is, than 2 · `piece` stored bytes, keys within its range are added, spread evenly.
fn as_before(newest: &Run, below: FileSpan<'_>, piece: u64) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut from = 0;
    let upto = |key: &[u8]| below.partition_point(|f| f.smallest.as_slice() <= key);
    for file in &newest.files {
        let (begin, end) = (upto(&file.smallest), upto(&file.largest));
        // Between two files of the newest run there may be a gap, because a compaction has taken
        // the file that was there. New data in the gap must not share a file with data of either
        // neighbour, so split at both ends of the gap.
        let gap = below.range(from..begin);
        let ends = gap.first().into_iter();
        let ends = ends.chain(gap.last().filter(|_| gap.len() > 1));
        keys.extend(ends.map(|file| file.smallest.clone()));
        if file.size > 2 * piece {
            let parts = (file.size / piece) as usize;
            keys.extend(spread(below.range(begin..end), parts - 1));
        }
        from = end;
    }
    keys.extend(below.get(from).map(|file| file.smallest.clone()));
    keys
}

#[cfg(test)]
mod tests;
