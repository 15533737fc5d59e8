//! Where a flush cuts its run. Pure.

use super::splitter::Splitter;
use crate::version::{LAST_LEVEL, Run, Version};

/// A flush aims at so many pieces: a job on L0 then takes about as large a share of L0 and of the
/// level below.
const PIECES: u64 = 16;

/// A run has about this share of its memtable's bytes.
const PRESSED: u64 = 3;

/// They are no smaller than this, stored bytes: a file has its price.
const PIECE_MIN: u64 = 64 << 10;

/// Where a flush cuts, and the size of its pieces.
///
/// The pieces of several runs form groups that share no key with others only if all runs are cut at
/// the same keys. So a run is cut where the newest one was, as long as its pieces are neither too
/// large nor too small, and always at the first keys of files of the last level, which outlive most
/// rewrites. (Boundaries of the base come and go with each job: runs cut at them hang together, and
/// a job on any part of L0 took most of it.)
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cuts {
    /// User keys at which a piece ends if it is large enough, ascending.
    pub keys: Vec<Vec<u8>>,
    /// Size aimed at, stored bytes.
    pub piece: u64,
}

impl Cuts {
    /// The cuts of a flush of a memtable of `memtable` bytes. `file_size`: what a piece is to have at
    /// most.
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

    /// What cuts a flush so.
    pub fn splitter(self, file_size: u64) -> Splitter {
        // It cuts at each key once an eighth of the target is reached.
        Splitter::for_flush((4 * self.piece).min(file_size), self.keys)
    }
}

/// At most `count` of `keys`, as far apart as they go.
fn spread(keys: &[&[u8]], count: usize) -> Vec<Vec<u8>> {
    let count = count.min(keys.len());
    let at = |i: usize| keys[(2 * i + 1) * keys.len() / (2 * count)].to_vec();
    (0..count).map(at).collect()
}

/// The places between the files of `newest`, both ends of each gap; files of more than two pieces
/// are cut anew.
fn as_before(newest: &Run, below: &[&[u8]], piece: u64) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    let mut left = below;
    for file in &newest.files {
        let upto = |keys: &[&[u8]], key: &[u8]| keys.partition_point(|b| *b <= key);
        let (gap, rest) = left.split_at(upto(left, &file.smallest));
        let (inside, rest) = rest.split_at(upto(rest, &file.largest));
        // What lay in a gap may have gone down since; what comes there is not to hang on this file.
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
