use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeSet;

/// Adds and cuts intervals as a write set does, and compares with a plain set of dead positions.
#[test]
fn intervals_against_a_set() {
    for seed in 0..300 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut dead = RolledBackPositions::default();
        let mut model = BTreeSet::new();
        let mut last = 0;
        for step in 0..60 {
            last += rng.random_range(0..6);
            let mark = rng.random_range(0..=last);
            if mark < last {
                dead.add(mark, last);
                model.extend(mark + 1..=last);
            }
            if rng.random_range(0..8) == 0 {
                last = rng.random_range(0..=last);
                dead.cut(last);
                model.retain(|p| *p <= last);
            }
            let context = format!("seed {seed} step {step}: {dead:?}");
            for p in 0..=last + 2 {
                assert_eq!(dead.contains(p), model.contains(&p), "{p}, {context}");
            }
            let first = rng.random_range(0..=last);
            let range = first..=rng.random_range(first..=last);
            let (first, end) = (*range.start(), *range.end());
            let (mut some, mut all) = (range.clone(), range);
            assert_eq!(
                dead.touches(first, end),
                some.any(|p| model.contains(&p)),
                "{context}"
            );
            assert_eq!(
                dead.covers(first, end),
                all.all(|p| model.contains(&p)),
                "{context}"
            );
            let apart = dead.intervals.windows(2).all(|w| w[0].1 < w[1].0);
            assert!(
                apart && dead.intervals.iter().all(|(a, b)| a < b),
                "{context}"
            );
        }
    }
}
