use super::*;
use crate::compaction::testing::{user_key, version_of};

const MEMTABLE: u64 = 48 << 20;
const FILE: u64 = 32 << 20;

/// A version with a hundred files of ten keys each in the last level, and the given files of L0.
fn version(l0: &[(u8, u64, u64, u64, u64, u64)]) -> Version {
    let last = (0..100).map(|n| (6, 0, 1000 + n, n * 10, n * 10 + 9, 1 << 20));
    let files: Vec<_> = l0.iter().copied().chain(last).collect();
    version_of(&files)
}

fn cuts(l0: &[(u8, u64, u64, u64, u64, u64)]) -> FlushSplits {
    FlushSplits::of(&version(l0), MEMTABLE, FILE)
}

fn keys(numbers: &[u64]) -> Vec<Vec<u8>> {
    numbers.iter().map(|n| user_key(1, *n)).collect()
}

#[test]
fn the_first_run_is_cut_evenly() {
    let cuts = cuts(&[]);
    assert_eq!(cuts.piece, 1 << 20);
    assert_eq!(cuts.keys.len(), 15);
    assert!(cuts.keys.is_sorted());
    // All cuts are first keys of files of the last level.
    let begins: Vec<_> = (1..100).map(|n| user_key(1, n * 10)).collect();
    assert!(cuts.keys.iter().all(|key| begins.contains(key)));
}

#[test]
fn a_run_is_cut_where_the_newest_one_is() {
    let piece = 1 << 20;
    let newest = [
        (0, 7, 1, 3, 199, piece),
        (0, 7, 2, 204, 398, piece),
        (0, 7, 3, 403, 990, piece),
        (0, 6, 4, 0, 990, piece),
    ];
    // The cuts are first keys of files of the last level, not of the newest run's files.
    assert_eq!(cuts(&newest).keys, keys(&[200, 400]));
}

#[test]
fn large_pieces_are_cut_anew() {
    let piece = 1 << 20;
    let newest = [(0, 7, 1, 0, 399, 4 * piece), (0, 7, 2, 400, 990, piece)];
    assert_eq!(cuts(&newest).keys, keys(&[70, 200, 330, 400]));
}

#[test]
fn a_gap_is_cut_off_at_both_ends() {
    let piece = 1 << 20;
    let newest = [(0, 7, 1, 3, 99, piece), (0, 7, 2, 204, 398, piece)];
    assert_eq!(cuts(&newest).keys, keys(&[100, 200, 400]));
}

#[test]
fn nothing_below_gives_no_cuts() {
    let version = version_of(&[(0, 1, 1, 0, 9, 100)]);
    assert_eq!(FlushSplits::of(&version, MEMTABLE, FILE).keys, keys(&[]));
}
