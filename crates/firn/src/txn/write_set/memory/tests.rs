use super::*;
use crate::base::key::UNCOMMITTED_BIT;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

type Model = BTreeMap<Vec<u8>, Vec<(u64, Vec<u8>)>>;

fn version(version: &OwnVersion<'_>) -> (u64, Vec<u8>) {
    let Value { head, tail } = version.value;
    (version.position, [head, tail].concat())
}

fn check(memory: &InMemoryWrites, model: &Model, context: &str) {
    let newest_first = |versions: OwnVersions<'_>| {
        let all: Vec<_> = versions.newest_first().map(|v| version(&v)).collect();
        (versions.key().to_vec(), all)
    };
    let expected = model.iter().map(|(key, versions)| {
        let newest_first = versions.iter().rev().cloned().collect::<Vec<_>>();
        (key.clone(), newest_first)
    });
    let expected: Vec<_> = expected.collect();
    assert_eq!(
        memory.iter().map(newest_first).collect::<Vec<_>>(),
        expected,
        "{context}"
    );
    let mut backward: Vec<_> = memory.until(None).map(newest_first).collect();
    backward.reverse();
    assert_eq!(backward, expected, "{context}");
    let each = model.iter().flat_map(|(key, versions)| {
        versions
            .iter()
            .map(|(_, value)| version_bytes(key.len(), value.len()))
    });
    assert_eq!(memory.bytes(), each.sum::<u64>(), "{context}");
}

/// Thousands of keys, so that the order has many blocks, and rollbacks of many writes.
#[test]
fn many_keys_and_their_rollback_against_a_map() {
    for seed in 0..12 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut memory = InMemoryWrites::default();
        let mut model = Model::new();
        let mut position = 0;
        let ascends = seed % 2 == 0;
        for round in 0..12 {
            for n in 0..rng.random_range(1..600_u64) {
                position += rng.random_range(1..3);
                let number = if ascends {
                    1000 * round + n
                } else {
                    rng.random_range(0..900)
                };
                let index = rng.random_range(0..3);
                let key = [&[0, 0, 0, index][..], &number.to_be_bytes()].concat();
                let value = vec![n as u8; rng.random_range(0..100)];
                let (head, tail) = value.split_at(rng.random_range(0..=value.len()));
                memory.write(position, &key, Kind::Put, Value::split(head, tail));
                model.entry(key).or_default().push((position, value));
            }
            let context = format!("seed {seed} round {round}");
            check(&memory, &model, &context);
            let bound = rng.random_range(0..=position);
            for (key, versions) in model.iter().step_by(7) {
                let found = memory
                    .get(key, UNCOMMITTED_BIT | bound)
                    .map(|v| version(&v));
                let mut older = versions.iter().rev();
                let expected = older.find(|(position, _)| *position <= bound);
                assert_eq!(found.as_ref(), expected, "{context}");
            }
            if round % 3 == 2 {
                let keep = if rng.random_bool(0.2) { 0 } else { bound };
                let forgets = model
                    .values()
                    .flatten()
                    .any(|(position, _)| *position > keep);
                assert_eq!(memory.rollback_to(keep), forgets, "{context}");
                for versions in model.values_mut() {
                    versions.retain(|(position, _)| *position <= keep);
                }
                model.retain(|_, versions| !versions.is_empty());
                check(
                    &memory,
                    &model,
                    &format!("{context}, rolled back to {keep}"),
                );
                let last = model
                    .values()
                    .flatten()
                    .map(|(position, _)| *position)
                    .max();
                assert_eq!(memory.last(), last.unwrap_or(0), "{context}");
            }
        }
    }
}

/// A statement that fails and is repeated again and again takes no further memory.
#[test]
fn a_rollback_gives_memory_back() {
    let mut memory = InMemoryWrites::default();
    memory.write(1, b"index 0", Kind::Put, Value::EMPTY);
    for position in 2..10_000 {
        memory.write(position, b"index 1", Kind::Put, Value::whole(&[5; 50]));
        memory.rollback_to(1);
    }
    assert!(memory.versions.capacity() + memory.order.capacity() < 4096);
}

/// A write counts at least the memory that it takes.
#[test]
fn memory_is_counted() {
    for ascends in [true, false] {
        let mut memory = InMemoryWrites::default();
        for n in 0..100_000_u64 {
            let number = if ascends {
                n
            } else {
                n.wrapping_mul(0x9e37_79b9_7f4a_7c15)
            };
            let key = [&[0, 0, 0, 7][..], &number.to_be_bytes()].concat();
            memory.write(n + 1, &key, Kind::Put, Value::whole(&[5; 50]));
        }
        let taken = memory.versions.capacity() + memory.order.capacity();
        let counted = memory.bytes() as usize;
        assert!(
            taken <= counted && 2 * taken > counted,
            "{taken} of {counted}"
        );
        memory.clear();
        assert!(memory.versions.capacity() + memory.order.capacity() < 4096);
    }
}
