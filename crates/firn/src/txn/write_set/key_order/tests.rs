use super::*;
use crate::base::{Kind, Value};
use crate::txn::write_set::stored_versions::OwnVersion;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Keys of which many begin with the same bytes, some of them shorter than an index id or than the
/// bytes that are compared in place.
fn random_key(rng: &mut StdRng, spread: u8) -> Vec<u8> {
    let len = rng.random_range(0..16);
    let mut key = vec![0; len];
    for byte in key.iter_mut().rev().take(4) {
        *byte = rng.random_range(0..spread);
    }
    key
}

fn push(versions: &mut StoredVersions, key: &[u8]) -> u32 {
    let version = OwnVersion {
        position: versions.len() as u64 + 1,
        kind: Kind::Put,
        key,
        value: Value::EMPTY,
    };
    versions.push(version, None)
}

impl KeyOrder {
    /// Bytes that the blocks take.
    pub(in crate::txn::write_set) fn capacity(&self) -> usize {
        let keys = self.blocks.iter().map(|block| block.keys.capacity());
        keys.sum::<usize>() * size_of::<OrderedKey>()
            + self.blocks.capacity() * size_of::<KeyBlock>()
    }

    fn check(&self) {
        assert!(self.blocks.len() < 2 || self.blocks.iter().all(|block| !block.keys.is_empty()));
        for block in self.blocks.iter().skip(1) {
            assert!(block.first == block.keys[0].start);
        }
        assert!(
            self.blocks
                .iter()
                .all(|block| block.keys.len() <= BLOCK_KEYS)
        );
    }
}

#[test]
fn random_inserts_and_removals_against_a_map() {
    let mut most_blocks = 0;
    for seed in 0..60 {
        let mut rng = StdRng::seed_from_u64(seed);
        let spread = [2, 4, 255][seed as usize % 3];
        let (mut order, mut versions) = (KeyOrder::default(), StoredVersions::default());
        let mut model: BTreeMap<Vec<u8>, u32> = BTreeMap::new();
        for step in 0..1500 {
            let key = random_key(&mut rng, spread);
            let removes = rng.random_bool(if step % 500 < 350 { 0.1 } else { 0.8 });
            match order.search(&key, &versions) {
                Ok(place) => {
                    assert_eq!(order.newest(place), model[&key]);
                    if removes {
                        order.remove(place);
                        model.remove(&key);
                    } else {
                        let newest = push(&mut versions, &key);
                        order.set_newest(place, newest);
                        model.insert(key.clone(), newest);
                    }
                }
                Err(place) => {
                    assert!(!model.contains_key(&key), "seed {seed} step {step}");
                    let newest = push(&mut versions, &key);
                    order.insert(place, &key, newest);
                    model.insert(key.clone(), newest);
                }
            }
            order.check();
            most_blocks = most_blocks.max(order.blocks.len());
            if step % 10 == 0 {
                let all: Vec<u32> = order.all().collect();
                assert_eq!(all, model.values().copied().collect::<Vec<_>>());
                let key = random_key(&mut rng, spread);
                let place = order.search(&key, &versions);
                let from: Vec<u32> = order.from(place.unwrap_or_else(|place| place)).collect();
                let expected = model.range(key.clone()..).map(|(_, newest)| *newest);
                assert_eq!(
                    from,
                    expected.collect::<Vec<_>>(),
                    "seed {seed} step {step}"
                );
                let after = place.map_or_else(|place| place, KeyPlace::after);
                let until: Vec<u32> = order.before(Some(after)).collect();
                let expected = model.range(..=key).rev().map(|(_, newest)| *newest);
                assert_eq!(
                    until,
                    expected.collect::<Vec<_>>(),
                    "seed {seed} step {step}"
                );
                let last = model.values().next_back().copied();
                assert_eq!(order.before(None).next(), last);
            }
        }
        order.clear();
        assert_eq!(order.all().count(), 0);
        assert!(order.blocks.len() == 1 && order.blocks[0].keys.capacity() <= KEPT_KEYS);
    }
    assert!(most_blocks > 4, "{most_blocks}");
}

/// A statement that inserts rows in the order of the primary key leaves full blocks, also if its
/// table has further indexes before and after.
#[test]
fn blocks_of_ascending_keys_are_full() {
    for indexes in [1, 3] {
        let (mut order, mut versions) = (KeyOrder::default(), StoredVersions::default());
        for n in 0..10_000_u64 {
            for index in 0..indexes {
                let key = [&[0, 0, 0, index][..], &n.to_be_bytes()].concat();
                let place = order.search(&key, &versions).unwrap_err();
                let newest = push(&mut versions, &key);
                order.insert(place, &key, newest);
            }
        }
        order.check();
        let keys = 10_000 * usize::from(indexes);
        let blocks = order.blocks.len();
        assert!(
            blocks <= keys / BLOCK_KEYS + 2 * usize::from(indexes),
            "{blocks} for {keys}"
        );
    }
}
