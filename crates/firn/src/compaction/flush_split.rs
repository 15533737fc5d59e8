//! Chooses the keys at which a flush cuts its run. Pure.

use super::splitter::Splitter;
use crate::version::{LAST_LEVEL, Run, Version};

/// Number of pieces that a flush aims at. A job on the pieces of one range then reads about a
/// sixteenth of L0 and of the level below.
const PIECES: u64 = 16;

/// A run is about this many times smaller than its memtable.
const PRESSED: u64 = 3;

/// Smallest piece, stored bytes: each file has a fixed cost.
const PIECE_MIN: u64 = 64 << 10;

/// The keys at which a flush may cut, and the size of its pieces.
///
/// The pieces of several runs form groups that share no key with other groups only if all runs are
/// cut at the same keys. So a flush cuts where the newest run is cut, as long as the pieces are
/// neither too large nor too small. All cuts are first keys of files of the last level, which
/// outlive most rewrites.
///
/// Rejected: cuts at the boundaries of the base level. Each job changes them, so the runs
/// overlapped in chains, and a job on any part of L0 took most of it.
///
/// Example: files of the last level begin at 0, 10, 20, …; the newest run has files 3–18 and 41–55.
/// The next run may be cut at 20 and 40, the ends of the gap, and at 60.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FlushSplits {
    /// User keys at which a piece ends if it is large enough, ascending.
    pub keys: Vec<Vec<u8>>,
    /// Size aimed at, stored bytes.
    pub piece: u64,
}

impl FlushSplits {
    /// The cuts for a memtable of `memtable` bytes. `file_size`: largest size of a file, stored
    /// bytes.
    pub fn of(version: &Version, memtable: u64, file_size: u64) -> Self {
        let piece = memtable / (PRESSED * PIECES);
        let piece = piece.max(PIECE_MIN).min(file_size / 2).max(1);
        let below = &version.levels[LAST_LEVEL - 1].files;
        let below: Vec<&[u8]> = below
            .iter()
            .map(|f| f.smallest.as_slice())
            .skip(1)
            .collect();
        let Some(newest) = version.l0.first() else {
            let keys = spread(&below, PIECES as usize - 1);
            return Self { keys, piece };
        };
        Self {
            keys: as_before(newest, &below, piece),
            piece,
        }
    }

    /// A splitter that cuts at these keys.
    pub fn splitter(self, file_size: u64) -> Splitter {
        // The splitter cuts at a key once the piece has an eighth of its target, so half of
        // `piece`.
        Splitter::for_flush((4 * self.piece).min(file_size), self.keys)
    }
}

/// At most `count` of `keys`, evenly spread.
fn spread(keys: &[&[u8]], count: usize) -> Vec<Vec<u8>> {
    let count = count.min(keys.len());
    let at = |i: usize| keys[(2 * i + 1) * keys.len() / (2 * count)].to_vec();
    (0..count).map(at).collect()
}

/// Keys of `below` that lie between the files of `newest`, at both ends of each gap. A file larger
/// than two pieces is cut inside as well.
fn as_before(newest: &Run, below: &[&[u8]], piece: u64) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut left = below;
    for file in &newest.files {
        let upto = |keys: &[&[u8]], key: &[u8]| keys.partition_point(|b| *b <= key);
        let (gap, rest) = left.split_at(upto(left, &file.smallest));
        let (inside, rest) = rest.split_at(upto(rest, &file.largest));
        // A gap between two files of the newest run: a compaction may have taken the file there
        // since the flush. New data in the gap must not share a file with data of either neighbour,
        // so cut at both ends.
        match gap {
            [] => {}
            [only] => keys.push(only.to_vec()),
            [first, .., last] => keys.extend([first.to_vec(), last.to_vec()]),
        }
        if file.size > 2 * piece {
            let parts = (file.size / piece) as usize;
            keys.extend(spread(inside, parts - 1));
        }
        left = rest;
    }
    keys.extend(left.first().map(|key| key.to_vec()));
    keys
}

#[cfg(test)]
mod tests;
