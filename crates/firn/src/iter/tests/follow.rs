//! A cursor that moves on at newer snapshots while one of its sources grows.

use super::support::{Entry, VecIter, random_key};
use crate::base::{InternalKey, Kind, Seqno, Value};
use crate::iter::{MergeIter, MvccIter, ReadAt, iterator_of_variants};
use crate::memtable::{Memtable, MemtableIter};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;

enum Source {
    Still(VecIter),
    Grows(MemtableIter),
}

iterator_of_variants!(Source: Still, Grows);

/// The first visible put after `from` in the direction.
fn expected(all: &[Entry], snapshot: Seqno, from: &[u8], backward: bool) -> Option<Vec<u8>> {
    let mut newest: BTreeMap<&[u8], (Seqno, Kind)> = BTreeMap::new();
    for (key, seqno, kind, _) in all.iter().filter(|entry| entry.1 <= snapshot) {
        let slot = newest.entry(key).or_insert((*seqno, *kind));
        *slot = (*slot).max((*seqno, *kind));
    }
    newest.retain(|_, (_, kind)| kind.is_put());
    let mut keys = newest.keys();
    let key = match backward {
        true => keys.rfind(|key| **key < from),
        false => keys.find(|key| **key > from),
    };
    key.map(|key| key.to_vec())
}

#[test]
fn moves_at_newer_snapshots_see_what_was_added_in_front() {
    for seed in 0..400u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let space = [4, 40][rng.random_range(0..2)];
        let mut seqno = 0;
        let mut random_entry = |rng: &mut StdRng| -> Entry {
            seqno += 1;
            let kind = [Kind::Put, Kind::Delete][usize::from(rng.random_bool(0.3))];
            (random_key(rng, space), seqno, kind, Vec::new())
        };
        let mut all: Vec<Entry> = (0..60).map(|_| random_entry(&mut rng)).collect();
        // Some entries of the fixed sources are not visible yet.
        let mut snapshot = rng.random_range(20..=60);
        let memtable = Arc::new(Memtable::new(1, 0));
        let halves: [Vec<Entry>; 2] = std::array::from_fn(|half| {
            let entries = all.iter().enumerate();
            let entries = entries.filter(|(i, _)| i % 2 == half);
            entries.map(|(_, entry)| entry.clone()).collect()
        });
        let still = halves.map(|half| Source::Still(VecIter::new(half)));
        let sources = [Source::Grows(memtable.iter())].into_iter().chain(still);
        let merged = MergeIter::new(sources.collect());
        let mut iter = MvccIter::new(merged, ReadAt::snapshot(snapshot));
        let mut on = iter.seek_ge(b"").unwrap();
        assert_eq!(on, expected(&all, snapshot, b"", false).is_some());
        for step in 0..80 {
            if !on {
                on = match rng.random_bool(0.5) {
                    true => iter.seek_ge(b"").unwrap(),
                    false => iter.seek_lt(b"l").unwrap(),
                };
                continue;
            }
            for _ in 0..rng.random_range(0..3) {
                let entry = random_entry(&mut rng);
                let key = InternalKey::new(&entry.0, entry.1, entry.2);
                memtable.insert(key, Value::EMPTY);
                all.push(entry);
            }
            let from = iter.user_key().to_vec();
            let backward = rng.random_bool(0.3);
            let newest = all.len() as Seqno;
            on = if rng.random_bool(0.6) {
                snapshot = rng.random_range(snapshot..=newest);
                let grown = |source: &Source| matches!(source, Source::Grows(_));
                iter.move_at(snapshot, backward, grown).unwrap()
            } else if backward {
                iter.prev().unwrap()
            } else {
                iter.next().unwrap()
            };
            let found = on.then(|| iter.user_key().to_vec());
            let expected = expected(&all, snapshot, &from, backward);
            assert_eq!(found, expected, "seed {seed}, step {step}");
        }
    }
}

/// The wrappers between a scan and a memtable hand the one step on. A hot row costs a scan no entry
/// more than a row with one version does.
#[test]
fn a_scan_passes_the_versions_of_a_memtable_in_one_step() {
    let memtable = Arc::new(Memtable::new(1, 0));
    let insert = |key: &[u8], seqno, kind| {
        memtable.insert(InternalKey::new(key, seqno, kind), Value::EMPTY);
    };
    for seqno in 1..=7 {
        insert(b"hot", seqno, Kind::Put);
        insert(
            b"gone",
            10 + seqno,
            [Kind::Put, Kind::Delete][usize::from(seqno == 7)],
        );
    }
    insert(b"last", 8, Kind::Put);
    let still = VecIter::new(vec![(b"next".to_vec(), 9, Kind::Put, Vec::new())]);
    let sources = vec![
        Box::new(Source::Grows(memtable.iter())),
        Box::new(Source::Still(still)),
    ];
    let mut iter = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(20));
    assert!(iter.seek_ge(b"").unwrap());
    assert_eq!(iter.user_key(), b"hot");
    assert_eq!(iter.skipped_entries(), 1, "the deletion");
    for key in [&b"last"[..], b"next"] {
        assert!(iter.next().unwrap());
        assert_eq!(iter.user_key(), key);
    }
    assert!(!iter.next().unwrap());
    assert_eq!(iter.skipped_entries(), 1);
}
