use super::*;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

fn key(n: u32) -> [u8; 4] {
    n.to_be_bytes()
}

impl GapRanges {
    fn depth(&self, at: NodeId) -> usize {
        if at == NONE {
            return 0;
        }
        let node = self.node(at);
        1 + self.depth(node.left).max(self.depth(node.right))
    }
}

/// Random ranges of several owners are found as in a plain list.
#[test]
fn ranges_are_those_of_a_plain_list() {
    const KEYS: u32 = 50;
    for seed in 0..300 {
        let mut rng = SmallRng::seed_from_u64(seed);
        let owners: Vec<_> = (1..6).map(|id| LockOwner::new(id, 0)).collect();
        let mut ranges = GapRanges::default();
        let mut model: BTreeMap<(u32, u64), u32> = BTreeMap::new();
        for _ in 0..100 {
            let owner = &owners[rng.random_range(0..owners.len())];
            let lower = rng.random_range(0..KEYS);
            let upper = rng.random_range(lower..=KEYS);
            let own = (lower, owner.id());
            match model.contains_key(&own) {
                false => {
                    ranges.insert(owner, &key(lower), &key(upper));
                    model.insert(own, upper);
                }
                true if rng.random() => {
                    ranges.remove(owner, &key(lower));
                    model.remove(&own);
                }
                true => {
                    ranges.set_upper(owner, &key(lower), &key(upper));
                    model.insert(own, upper);
                }
            }
            for n in 0..KEYS {
                let mut found = Vec::new();
                let all = ranges.any_with(&key(n), |owner| {
                    found.push(owner.id());
                    false
                });
                assert!(!all);
                let with = model
                    .iter()
                    .filter(|((lower, _), upper)| *lower <= n && n < **upper);
                let with: Vec<u64> = with.map(|((_, id), _)| *id).collect();
                assert_eq!(found, with, "seed {seed}, key {n}");
            }
            let mut listed = Vec::new();
            ranges.for_each(|lower, upper, owner| {
                listed.push((lower.to_vec(), owner.id(), upper.to_vec()));
            });
            let all = model
                .iter()
                .map(|(&(lower, id), &upper)| (key(lower).to_vec(), id, key(upper).to_vec()));
            assert_eq!(listed, all.collect::<Vec<_>>(), "seed {seed}");
        }
        assert_eq!(ranges.is_empty(), model.is_empty());
    }
}

/// Ranges that come in ascending order, as those of a scan do, leave a flat tree. The removal of
/// nearly all gives the memory back, and the others are still found.
#[test]
fn ascending_ranges_leave_a_flat_tree() {
    const RANGES: u32 = 100_000;
    let owner = LockOwner::new(1, 0);
    let mut ranges = GapRanges::default();
    for n in 0..RANGES {
        ranges.insert(&owner, &key(2 * n), &key(2 * n + 1));
    }
    let depth = ranges.depth(ranges.root);
    assert!(depth < 60, "{depth}");
    for n in (0..RANGES).rev().filter(|n| n % 1000 != 7) {
        ranges.remove(&owner, &key(2 * n));
    }
    assert!(ranges.nodes.capacity() < 4 * UNUSED_MAX);
    for n in 0..RANGES {
        assert_eq!(ranges.any_with(&key(2 * n), |_| true), n % 1000 == 7);
    }
}
