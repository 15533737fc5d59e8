use super::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// Key, length of its unique part, kind, head, tail.
type Packed = (Vec<u8>, usize, Kind, Vec<u8>, Vec<u8>);

/// Random entries: keys with common prefixes, some shorter than a slot's prefix, some with large
/// values.
fn random(rng: &mut StdRng) -> (Vec<u8>, Vec<u8>, Vec<u8>) {
    let mut key = vec![0, 0, 0, 7];
    let len = rng.random_range(0..14);
    key.extend((0..len).map(|_| rng.random_range(0..2u8) * 255));
    let most = if rng.random_ratio(1, 50) { 600_000 } else { 40 };
    let head = vec![1; rng.random_range(0..most)];
    let tail = vec![2; rng.random_range(0..20)];
    (key, head, tail)
}

#[test]
fn entries_come_back_sorted() {
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut entries = SortBuffer::default();
        let mut model: Vec<Packed> = Vec::new();
        let mut in_order = true;
        for i in 0..rng.random_range(0..300usize) {
            let (key, head, tail) = random(&mut rng);
            let unique = rng.random_range(0..=key.len());
            let kind = [Kind::Put, Kind::PutBlobs, Kind::Delete][i % 3];
            in_order &= model.last().is_none_or(|last| last.0 <= key);
            let value = Value::split(&head, &tail);
            let entry = LoadEntry {
                user_key: &key,
                unique_len: unique,
                kind,
                value,
            };
            assert_eq!(entries.push(entry), in_order, "seed {seed}");
            model.push((key.clone(), unique, kind, head, tail));
        }
        let packed: u64 = model
            .iter()
            .map(|m| (m.0.len() + m.3.len() + m.4.len()) as u64)
            .sum();
        assert!(entries.packed_bytes() >= packed && entries.memory() >= packed);
        entries.sort();
        assert!(entries.is_sorted());
        let sorted: Vec<_> = entries
            .iter()
            .map(|e| {
                (
                    e.user_key.to_vec(),
                    e.unique_len,
                    e.kind,
                    e.value.head.to_vec(),
                    e.value.tail.to_vec(),
                )
            })
            .collect();
        assert!(sorted.is_sorted_by(|a, b| a.0 <= b.0), "seed {seed}");
        let mut sorted = sorted;
        sorted.sort();
        model.sort();
        assert!(sorted == model, "seed {seed}");
    }
}

#[test]
fn cut_entries_are_no_entries() {
    let entry = LoadEntry {
        user_key: b"\0\0\0\x01key",
        unique_len: 7,
        kind: Kind::Put,
        value: Value::split(b"head", b"tail"),
    };
    let mut packed = Vec::new();
    entry.pack(&mut packed);
    assert_eq!(LoadEntry::take(&mut &packed[..]), Some(entry));
    for len in 0..packed.len() {
        assert_eq!(LoadEntry::take(&mut &packed[..len]), None);
    }
    packed[2] = 8;
    assert_eq!(
        LoadEntry::take(&mut &packed[..]),
        None,
        "a unique part longer than the key"
    );
}
