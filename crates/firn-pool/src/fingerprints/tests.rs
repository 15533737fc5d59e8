use super::*;
use crate::random::SplitMix64;
use std::collections::BTreeSet;

const BLOCKS: u64 = 50_000;

fn table(blocks: u64) -> Fingerprints {
    Fingerprints::new(blocks).unwrap()
}

fn shorts(seed: u64, count: u64) -> BTreeSet<u64> {
    let mut random = SplitMix64::new(seed);
    (0..count).map(|_| random.draw()).collect()
}

/// A fingerprint that has the buckets of another is shared, so `len` may be slightly lower.
#[test]
fn it_knows_what_it_was_told_in_two_bytes_a_block() {
    let table = table(BLOCKS);
    let known = shorts(1, BLOCKS);
    for short in &known {
        table.insert(*short);
    }
    assert!(known.iter().all(|short| table.contains(*short)));
    assert!(table.len() <= BLOCKS && table.len() > BLOCKS * 999 / 1000);
    assert!(table.bytes() as f64 / (BLOCKS as f64) < 2.11);
    let seems_known = shorts(2, 400_000)
        .iter()
        .filter(|short| table.contains(**short))
        .count();
    // 8 places of 65,536 fingerprints: one in 8,192.
    assert!(seems_known < 80, "{seems_known} of 400,000");
}

#[test]
fn it_forgets_what_is_removed_and_keeps_the_rest() {
    let table = table(BLOCKS);
    let (keep, go) = (shorts(1, BLOCKS / 2), shorts(2, BLOCKS / 2));
    for short in keep.iter().chain(&go) {
        table.insert(*short);
    }
    for short in &go {
        table.remove(*short);
    }
    let kept = keep.iter().filter(|short| table.contains(**short)).count();
    let left = go.iter().filter(|short| table.contains(**short)).count();
    // Blocks of one fingerprint and bucket are one to the table.
    assert!(
        kept > keep.len() * 999 / 1000 && left < go.len() / 1000,
        "{kept} {left}"
    );
    for short in keep {
        table.remove(short);
    }
    assert_eq!(table.len(), 0);
    assert!(!table.remove(7));
}

#[test]
fn the_other_bucket_of_the_other_bucket_is_the_first() {
    for blocks in [0, 1000, 1001, 4999] {
        let table = table(blocks);
        for short in shorts(blocks, 2000) {
            let (fingerprint, bucket) = table.home(short);
            let other = table.other(bucket, fingerprint);
            assert_eq!(table.other(other, fingerprint), bucket);
        }
    }
}

#[test]
fn a_full_table_refuses_and_changes_nothing() {
    let table = table(1000);
    let all = shorts(3, 20_000);
    let taken: Vec<u64> = all
        .into_iter()
        .filter(|short| table.insert(*short))
        .collect();
    assert!(table.len() * 100 < table.buckets() * 4 * 96 && table.len() > 1000);
    assert!(taken.iter().all(|short| table.contains(*short)));
    assert!(table.insert(taken[0]));
    shorts(4, 20_000)
        .into_iter()
        .for_each(|short| table.insert_if_room(short));
    assert!(taken.iter().all(|short| table.contains(*short)));
    assert!(Fingerprints::new(u64::MAX).is_none());
}

#[test]
fn an_image_has_everything_that_the_table_has() {
    let (table, copy) = (table(BLOCKS), table(BLOCKS));
    let known = shorts(1, BLOCKS * 9 / 10);
    for short in &known {
        table.insert(*short);
    }
    for first in (0..table.buckets()).step_by(1000) {
        let mut image = Vec::new();
        table.write_image(first, 1000, &mut image);
        copy.add_image(first, &image);
        copy.add_image(first, &image);
    }
    assert!(known.iter().all(|short| copy.contains(*short)));
    assert_eq!(copy.len(), table.len());
    copy.add_image(copy.buckets() + 5, &[1; 16]);
}

#[test]
fn threads_may_insert_and_remove_at_once() {
    let table = table(BLOCKS);
    std::thread::scope(|scope| {
        for seed in 1..=4 {
            let table = &table;
            scope.spawn(move || {
                for short in shorts(seed, 5000) {
                    table.insert(short);
                    table.contains(short);
                    table.remove(short);
                }
            });
        }
    });
    assert!(table.len() < 100, "{}", table.len());
}
