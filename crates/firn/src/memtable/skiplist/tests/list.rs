use super::super::super::node::NodeRef;
use super::super::*;
use crate::base::checksum::xxh3;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

fn insert<'a>(list: &'a Skiplist, splice: &mut Splice<'a>, user_key: &[u8], seqno: Seqno) -> bool {
    let key = InternalKey::new(user_key, seqno, Kind::Put);
    let value = Value::whole(user_key);
    list.insert(splice, xxh3(user_key), key, value).is_some()
}

/// Checks that each level is sorted, and that each node is at all levels below its height.
fn check_levels(list: &Skiplist, seed: u64) {
    let nodes = |level: usize| {
        std::iter::successors(list.head.next(level), move |node: &NodeRef<'_>| {
            node.next(level)
        })
    };
    for level in 0..HEIGHT_MAX {
        let keys: Vec<_> = nodes(level).map(|node| node.key()).collect();
        assert!(keys.is_sorted(), "seed {seed}, level {level}");
        let tall = nodes(0).filter(|node| node.height() > level);
        assert!(
            tall.eq(nodes(level)),
            "seed {seed}: level {level} lacks nodes"
        );
    }
    let mut before = list.head;
    for node in nodes(0) {
        assert!(node.prev() == before, "seed {seed}");
        before = node;
    }
}

#[test]
fn a_repeated_entry_is_told() {
    let list = Skiplist::new();
    let key = InternalKey::new(b"k", 3, Kind::Put);
    let mut splice = list.splice();
    let mut insert = |value| list.insert(&mut splice, 7, key, Value::whole(value));
    assert!(insert(b"v").is_some());
    assert!(insert(b"w").is_none());
    assert_eq!(list.first().unwrap().value(), Value::whole(b"v"));
    assert!(
        list.insert(&mut list.splice(), 7, key, Value::EMPTY)
            .is_none()
    );
}

/// A splice finds the right position from any earlier one, even if another writer's entries came
/// between.
#[test]
fn splices_find_their_way_from_anywhere() {
    for seed in 0..if cfg!(miri) { 2 } else { 40 } {
        let mut rng = StdRng::seed_from_u64(seed);
        let list = Skiplist::new();
        let mut splices = [list.splice(), list.splice(), list.splice()];
        let mut model = BTreeSet::new();
        for _ in 0..if cfg!(miri) { 60 } else { 400 } {
            let start = rng.random_range(0..500u32);
            let run = rng.random_range(1..6);
            let down = rng.random_bool(0.3);
            let which = rng.random_range(0..splices.len());
            for i in 0..run {
                let number = if down { start + run - i } else { start + i };
                let key = [&[0, 0, 0, 1][..], &number.to_be_bytes()].concat();
                let seqno = rng.random_range(1..4);
                let fresh = model.insert((key.clone(), u64::MAX - seqno));
                assert_eq!(
                    insert(&list, &mut splices[which], &key, seqno),
                    fresh,
                    "seed {seed}"
                );
            }
        }
        let mut at = list.first();
        for (key, below) in &model {
            let cursor = at.expect("as many as the model");
            assert_eq!(cursor.key().user_key, key, "seed {seed}");
            assert_eq!(cursor.key().seqno, u64::MAX - below, "seed {seed}");
            assert_eq!(cursor.value().head, key, "seed {seed}");
            at = cursor.next();
        }
        assert!(at.is_none(), "seed {seed}");
        check_levels(&list, seed);
    }
}

/// Two writers insert the same dense range, each with its own splice. Many nodes are tall, so the
/// writers meet at all levels.
#[test]
fn writers_that_meet_leave_all_levels_in_order() {
    for seed in 0..if cfg!(miri) { 2 } else { 60 } {
        let list = Skiplist::new();
        let per_thread = if cfg!(miri) { 30 } else { 500 };
        std::thread::scope(|scope| {
            for thread in 0..3u64 {
                let list = &list;
                scope.spawn(move || {
                    let mut rng = StdRng::seed_from_u64(seed * 3 + thread);
                    let mut splice = list.splice();
                    for i in 0..per_thread {
                        let number = i * 3 + thread;
                        let key = number.to_be_bytes();
                        let height = rng.random_range(1..=4);
                        let key = InternalKey::new(&key, 1, Kind::Put);
                        list.insert_with_height(&mut splice, height, key, Value::EMPTY)
                            .expect("a key of its own");
                    }
                });
            }
        });
        let mut count = 0;
        let mut at = list.first();
        while let Some(cursor) = at {
            count += 1;
            at = cursor.next();
        }
        assert_eq!(count, 3 * per_thread, "seed {seed}");
        check_levels(&list, seed);
    }
}

#[test]
fn the_same_entry_enters_once_whoever_wins() {
    for _ in 0..if cfg!(miri) { 2 } else { 100 } {
        let list = Skiplist::new();
        let fresh: usize = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..3)
                .map(|_| {
                    scope.spawn(|| {
                        let mut splice = list.splice();
                        let insert = |n: u32| insert(&list, &mut splice, &n.to_be_bytes(), 1);
                        (0..50).map(insert).filter(|&fresh| fresh).count()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(fresh, 50);
        check_levels(&list, 0);
    }
}

/// From each version, one step passes all versions that were there when it was made, whatever the
/// heights of the towers and the sizes of the entries.
#[test]
fn one_step_passes_the_versions_of_a_key() {
    let list = Skiplist::new();
    let mut splice = list.splice();
    let large = vec![7; 20 << 10];
    let mut insert = |key: &[u8], seqno, height| {
        let key = InternalKey::new(key, seqno, Kind::Put);
        let value = if seqno == 5 { &large[..] } else { b"" };
        let size = list.insert_with_height(&mut splice, height, key, Value::whole(value));
        size.expect("a new entry")
    };
    insert(b"hos", 9, 1);
    insert(b"hot", 3, 1);
    for (seqno, height) in [(4, 2), (5, 1), (6, HEIGHT_MAX), (7, 3)] {
        insert(b"hot", seqno, height);
    }
    insert(b"hot0", 9, 2);
    let to = |seqno| {
        let from = list.at_or_after(b"hot", seqno).unwrap();
        assert_eq!(from.key().seqno, seqno);
        let key = from.next_past_versions().unwrap().key();
        (key.user_key, key.seqno)
    };
    for seqno in 3..=7 {
        assert_eq!(to(seqno), (&b"hot0"[..], 9));
    }
    // Versions that come late, within those that are known and behind the oldest one.
    let size = insert(b"hot", 2, 2);
    assert_eq!(
        size,
        (56 + 8 + 3usize).next_multiple_of(8),
        "it is the oldest"
    );
    for seqno in 3..=7 {
        assert_eq!(to(seqno), (&b"hot"[..], 2));
    }
    assert_eq!(to(2), (&b"hot0"[..], 9));
    let size = insert(b"hot", 8, 2);
    assert_eq!(size, (56 + 8 + 8 + 3usize).next_multiple_of(8));
    assert_eq!(to(8), (&b"hot"[..], 2), "version 7 names version 3");
    check_levels(&list, 0);
}

#[test]
fn a_quarter_of_the_nodes_reaches_each_next_level() {
    let mut counts = [0u64; HEIGHT_MAX];
    for n in 0..200_000u64 {
        // One half of the entries are versions of a single key, the other half are many keys of one
        // commit.
        let height = match n % 2 {
            0 => height_of(xxh3(b"the key"), n << 8 | 1),
            _ => height_of(xxh3(&n.to_be_bytes()), 77 << 8 | 1),
        };
        counts[height - 1] += 1;
    }
    let mut reach = 200_000f64;
    for count in &counts[..5] {
        let higher = reach - *count as f64;
        assert!(
            (0.2..0.3).contains(&(higher / reach)),
            "{counts:?}: {higher} of {reach}"
        );
        reach = higher;
    }
}

#[test]
fn memory_is_counted() {
    let list = Skiplist::new();
    let mut splice = list.splice();
    let mut sum = 0;
    for n in 0..5000u32 {
        let key = n.to_be_bytes();
        let value = vec![7; n as usize % 300];
        let key = InternalKey::new(&key, 1, Kind::Put);
        let size = list.insert_with_height(&mut splice, 2, key, Value::whole(&value));
        // 56 bytes of fields, a second link, key and value, rounded up to whole words.
        assert_eq!(size, Some((56 + 8 + 4 + value.len()).next_multiple_of(8)));
        sum += size.unwrap() as u64;
    }
    assert!(list.allocated() >= sum && list.allocated() < sum + (2 << 20));
}

#[test]
fn estimates_are_exact_below_a_few_dozen_and_near_above() {
    let seed = 4711;
    let mut rng = StdRng::seed_from_u64(seed);
    let list = Skiplist::new();
    let total: u64 = if cfg!(miri) { 300 } else { 50_000 };
    let mut splice = list.splice();
    for n in 0..total {
        assert!(insert(&list, &mut splice, &n.to_be_bytes(), 1));
    }
    for round in 0..if cfg!(miri) { 5 } else { 3000 } {
        let len = 1 << rng.random_range(0..16);
        let lo = rng.random_range(0..total);
        let hi = (lo + rng.random_range(0..len)).min(total);
        let exact = hi - lo;
        let (lo, hi) = (lo.to_be_bytes(), hi.to_be_bytes());
        let found = list.estimate(&lo, Some(&hi), 0);
        if found.is_exact() || exact < 60 {
            assert!(found.is_exact(), "seed {seed}, round {round}: {found:?}");
            assert_eq!(found.entries, exact, "seed {seed}, round {round}");
        }
        let ratio = (found.entries + 1) as f64 / (exact + 1) as f64;
        assert!(
            (0.6..1.6).contains(&ratio),
            "seed {seed}, round {round}: {found:?} for {exact}"
        );
        // An estimate that is added to a larger number needs less precision.
        let rough = list.estimate(&lo, Some(&hi), 1_000_000);
        assert!(
            rough.entries.abs_diff(exact) < 400_000,
            "seed {seed}, round {round}: {rough:?} for {exact}"
        );
    }
}
