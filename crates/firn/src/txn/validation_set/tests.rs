use super::{Dependency, ValidationSet};

fn key(n: u64) -> Vec<u8> {
    [&[0, 0, 0, 9][..], &n.to_be_bytes()].concat()
}

fn all(set: &ValidationSet) -> Vec<(Vec<u8>, Dependency, u64)> {
    let mut found = Vec::new();
    set.for_each(|key, dependency, since| {
        found.push((key.to_vec(), dependency, since));
        Ok(())
    })
    .unwrap();
    found
}

#[test]
fn keys_of_all_points_come_in_one_order() {
    let mut set = ValidationSet::default();
    assert!(set.is_empty());
    for n in [5, 1, 3] {
        assert!(set.note(10, &key(n), Dependency::Written));
    }
    assert!(!set.note(10, &key(3), Dependency::Written));
    for n in [2, 3, 9] {
        assert!(set.note(15, &key(n), Dependency::Read));
    }
    assert!(set.note(15, &key(4), Dependency::Unique));
    assert_eq!(
        all(&set),
        [
            (key(1), Dependency::Written, 10),
            (key(2), Dependency::Read, 15),
            (key(3), Dependency::Written, 10),
            (key(3), Dependency::Read, 15),
            (key(4), Dependency::Unique, 15),
            (key(5), Dependency::Written, 10),
            (key(9), Dependency::Read, 15),
        ]
    );
    set.forget(&key(3), Dependency::Read);
    assert_eq!(all(&set).len(), 6);
    set.clear();
    assert!(set.is_empty());
}

#[test]
fn a_walk_visits_all_keys_of_all_blocks() {
    let mut set = ValidationSet::default();
    let mut keys: Vec<Vec<u8>> = Vec::new();
    for n in 0..3000_u64 {
        // Runs, single keys and keys of different lengths.
        keys.push(key(n / 3 * 7 + n % 3));
        if n % 5 == 0 {
            keys.push([key(n * 1000 + 100_000), vec![b'x'; (n % 11) as usize]].concat());
        }
    }
    for key in keys.iter().rev() {
        set.note(1, key, Dependency::Read);
    }
    keys.sort();
    keys.dedup();
    let found: Vec<_> = all(&set).into_iter().map(|(key, ..)| key).collect();
    assert_eq!(found, keys);
}

#[test]
fn an_index_with_many_new_keys_counts_once() {
    let mut set = ValidationSet::default();
    set.note(1, &key(1), Dependency::Written);
    for _ in 0..2 {
        [7, 3, 9, 3]
            .into_iter()
            .for_each(|index| set.note_insert(index));
    }
    assert_eq!(Vec::from_iter(set.inserted()), [3, 7, 9]);
    set.clear();
    assert_eq!(set.inserted().count(), 0);
}
