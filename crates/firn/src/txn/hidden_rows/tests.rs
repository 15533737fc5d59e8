//! Hidden rows are found, and their memory is counted.

use super::*;

fn key(n: u64) -> Vec<u8> {
    [&[0, 0, 0, 7][..], &n.to_be_bytes()].concat()
}

#[test]
fn hidden_rows_are_found_among_few_and_many() {
    let tracker = Arc::new(MemoryTracker::default());
    let mut rows = HiddenRows::new(&tracker);
    assert!(rows.is_empty());
    for n in (0..20_000).rev() {
        rows.add(&key(n * 3));
        rows.add(&key(n * 3));
    }
    assert!(!rows.is_empty());
    for n in 0..60_000 {
        assert_eq!(rows.contains(&key(n)), n % 3 == 0, "{n}");
    }
    rows.clear();
    assert!(rows.is_empty() && !rows.contains(&key(0)));
    assert_eq!((rows.bytes(), tracker.sum()), (0, 0));
}

#[test]
fn many_hidden_rows_count_as_uncommitted_memory_and_are_small() {
    let tracker = Arc::new(MemoryTracker::default());
    let mut rows = HiddenRows::new(&tracker);
    let rows_hidden = 200_000_u64;
    for n in 0..rows_hidden {
        // The multiplication scatters the keys over the index, so that no keys have consecutive
        // numbers.
        rows.add(&key(n.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    }
    let bytes = rows.bytes();
    assert!(bytes < 20 * rows_hidden, "{bytes}");
    assert!(tracker.sum() >= bytes, "{} of {bytes}", tracker.sum());
    drop(rows);
    assert_eq!(tracker.sum(), 0);
}
