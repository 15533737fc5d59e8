use super::*;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

fn row(index: u32, number: u64) -> Vec<u8> {
    let mut key = index.to_be_bytes().to_vec();
    key.extend_from_slice(&number.to_be_bytes());
    key
}

/// A key of one of many shapes: numbers of several widths, dense and sparse; prefixes of other
/// keys; long keys. Most are in one index; some are shorter than an index id.
fn random_key(rng: &mut StdRng) -> Vec<u8> {
    let number: u32 = rng.random_range(0..400);
    let mut key = match rng.random_range(0..20) {
        0 => Vec::new(),
        1..4 => vec![0, 0, 0, 8],
        _ => vec![0, 0, 0, 7],
    };
    match rng.random_range(0..8) {
        0..3 => key.extend_from_slice(&u64::from(number).to_be_bytes()),
        3 => key.extend_from_slice(&number.to_be_bytes()),
        4 => key.extend_from_slice(&(number as u16).to_be_bytes()),
        5 => {
            let any = rng.random::<u64>() >> rng.random_range(0..64);
            key.extend_from_slice(&any.to_be_bytes());
        }
        6 => {
            key.extend_from_slice(&u64::from(number / 8).to_be_bytes());
            key.extend((0..number % 8).map(|i| i as u8 * (number % 3) as u8));
        }
        _ => key.extend((0..rng.random_range(0..40)).map(|_| rng.random_range(0..3u8))),
    }
    key
}

#[test]
fn it_is_a_set_of_keys() {
    for seed in 0..60u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut set = KeySet::default();
        let mut model = BTreeSet::new();
        let removals = rng.random_range(5..60);
        for step in 0..1500 {
            let mut key = random_key(&mut rng);
            let any: Vec<_> = model.range(key.clone()..).take(1).cloned().collect();
            if let (Some(next), true) = (any.first(), rng.random_bool(0.3)) {
                key.clone_from(next);
            }
            assert_eq!(
                set.contains(&key),
                model.contains(&key),
                "seed {seed}, step {step}: {key:?}"
            );
            if rng.random_range(0..100) < removals {
                let removed = set.remove(&key);
                assert_eq!(
                    removed,
                    model.remove(&key),
                    "seed {seed}, step {step}: {key:?}"
                );
            } else if !model.contains(&key) {
                match rng.random_bool(0.5) && set.append(&key) {
                    true => {}
                    false => set.insert(&key),
                }
                model.insert(key);
            }
            assert_eq!(set.len(), model.len() as u64, "seed {seed}, step {step}");
            if step % 50 == 0 {
                let expected: Vec<_> = model.iter().cloned().collect();
                assert_eq!(set.keys(), expected, "seed {seed}, step {step}");
            }
        }
        let expected: Vec<_> = model.iter().cloned().collect();
        assert_eq!(set.keys(), expected, "seed {seed}");
        let spans: u64 = set.spans().map(|(_, _, len)| len).sum();
        assert_eq!(spans, set.len(), "seed {seed}");
        for key in expected {
            assert!(set.remove(&key), "seed {seed}: {key:?}");
        }
        assert_eq!((set.len(), set.blocks()), (0, 0), "seed {seed}");
    }
}

#[test]
fn a_run_of_any_length_takes_one_block() {
    let mut set = KeySet::default();
    for number in 0..1_000_000 {
        set.insert(&row(7, number * 3));
    }
    assert_eq!((set.blocks(), set.len()), (1, 1_000_000));
    assert!(set.bytes() < 300, "{} bytes", set.bytes());
    assert!(set.contains(&row(7, 1500)) && !set.contains(&row(7, 1501)));
    assert!(!set.contains(&row(8, 1500)) && !set.contains(&row(6, 1500)));
}

/// Fills the set in random order, in descending order, and with every second key removed at once.
#[test]
fn a_range_ends_as_a_run_in_whatever_order_it_was_filled() {
    let mut numbers: Vec<u64> = (0..20_000).collect();
    let mut rng = StdRng::seed_from_u64(1);
    numbers.shuffle(&mut rng);
    let mut shuffled = KeySet::default();
    numbers.iter().for_each(|n| shuffled.insert(&row(7, *n)));
    assert_eq!(shuffled.len(), 20_000);
    // Split blocks are not joined again, but each has only consecutive numbers.
    assert!(shuffled.bytes() < 40_000, "{} bytes", shuffled.bytes());
    let mut descending = KeySet::default();
    (0..20_000)
        .rev()
        .for_each(|n| descending.insert(&row(7, n)));
    assert_eq!((descending.blocks(), descending.len()), (1, 20_000));
    let mut every_second = KeySet::default();
    for n in 0..20_000 {
        every_second.insert(&row(7, n));
        if n % 2 == 1 {
            assert!(every_second.remove(&row(7, n)));
        }
    }
    assert_eq!((every_second.blocks(), every_second.len()), (1, 10_000));
}

#[test]
fn keys_in_no_order_take_little_more_than_what_they_do_not_share() {
    let mut rng = StdRng::seed_from_u64(2);
    let mut numbers = KeySet::default();
    let mut uuids = KeySet::default();
    for _ in 0..50_000 {
        numbers.insert(&row(7, rng.random()));
        let mut key = 7u32.to_be_bytes().to_vec();
        key.extend_from_slice(&rng.random::<u128>().to_be_bytes());
        uuids.insert(&key);
    }
    let per_key = |set: &KeySet| set.bytes() / set.len();
    assert!(per_key(&numbers) <= 18, "{}", per_key(&numbers));
    assert!(per_key(&uuids) <= 32, "{}", per_key(&uuids));
}
