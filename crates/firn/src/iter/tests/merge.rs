use super::support::{Entry, VecIter, check_random_moves, entry, random_key, sort};
use crate::base::{InternalIterator, InternalKey, Kind, Value};
use crate::iter::MergeIter;
use crate::memtable::Memtable;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

fn random_sources(rng: &mut StdRng, max: usize) -> (Vec<Vec<Entry>>, Vec<Entry>) {
    let mut all: Vec<Entry> = (0..rng.random_range(0..80))
        .map(|i| {
            let kind = [Kind::Put, Kind::Delete][usize::from(rng.random_bool(0.3))];
            (random_key(rng, 30), rng.random_range(1..60), kind, vec![i])
        })
        .collect();
    sort(&mut all);
    all.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
    let mut sources = vec![Vec::new(); rng.random_range(1..=max)];
    // Long stretches come from one source, so that it stays in front for a while.
    let mut source = 0;
    for entry in &all {
        if rng.random_bool(0.4) {
            source = rng.random_range(0..sources.len());
        }
        sources[source].push(entry.clone());
    }
    (sources, all)
}

#[test]
fn moves_like_one_sorted_source() {
    for seed in 0..100u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (sources, all) = random_sources(&mut rng, 7);
        let mut iter = MergeIter::new(sources.into_iter().map(VecIter::new).collect());
        check_random_moves(&mut iter, all, &mut rng, 30, 400, &format!("seed {seed}"));
    }
}

#[test]
fn no_source_is_empty() {
    let mut iter = MergeIter::<VecIter>::new(Vec::new());
    assert!(!iter.seek_to_first().unwrap());
    assert!(!iter.seek_to_last().unwrap());
    assert!(!iter.seek(b"a", 1).unwrap());
    assert!(!iter.valid());
}

/// Replay may repeat an entry of a file: both copies appear, the newer source's first.
#[test]
fn a_repeated_entry_comes_from_the_newer_source_first() {
    let newer = VecIter::new(vec![entry("a", 1, "same"), entry("b", 2, "same")]);
    let older = VecIter::new(vec![entry("a", 1, "same"), entry("c", 3, "old")]);
    let mut iter = MergeIter::new(vec![newer, older]);
    let mut forward = Vec::new();
    let mut on = iter.seek_to_first().unwrap();
    while on {
        forward.push((iter.key().seqno, iter.current_child()));
        on = iter.next().unwrap();
    }
    assert_eq!(forward, [(1, 0), (1, 1), (2, 0), (3, 1)]);
    let mut backward = Vec::new();
    let mut on = iter.seek_to_last().unwrap();
    while on {
        backward.push((iter.key().seqno, iter.current_child()));
        on = iter.prev().unwrap();
    }
    forward.reverse();
    assert_eq!(backward, forward);
    assert!(iter.seek(b"a", 9).unwrap());
    assert!(iter.next().unwrap());
    assert_eq!(iter.current_child(), 1);
    assert!(iter.prev().unwrap());
    assert_eq!(iter.current_child(), 0);
    assert!(!iter.prev().unwrap());
}

#[test]
fn an_error_leaves_it_unpositioned_and_a_seek_mends_it() {
    for seed in 0..200u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (sources, all) = random_sources(&mut rng, 4);
        let fail_in = Rc::new(Cell::new(None));
        let mut iter = MergeIter::new(
            sources
                .into_iter()
                .map(|source| VecIter::failing(source, &fail_in))
                .collect(),
        );
        let mut on = iter.seek_to_first().unwrap();
        fail_in.set(Some(rng.random_range(0..20)));
        while on {
            let moved = if rng.random_bool(0.7) {
                iter.next()
            } else {
                iter.prev()
            };
            match moved {
                Ok(moved) => on = moved,
                Err(error) => {
                    assert!(error.is_corruption());
                    assert!(!iter.valid(), "seed {seed}");
                    break;
                }
            }
        }
        fail_in.set(None);
        check_random_moves(&mut iter, all, &mut rng, 30, 50, &format!("seed {seed}"));
    }
}

/// A memtable that grows while it is merged: the order holds, and no earlier entry is missed.
#[test]
fn a_growing_source_keeps_the_order() {
    for seed in 0..60u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let put = |memtable: &Memtable, key: &[u8], seqno| {
            memtable.insert(InternalKey::new(key, seqno, Kind::Put), Value::EMPTY);
        };
        let tables: Vec<_> = (0..3)
            .map(|id| Arc::new(Memtable::with_capacity(id, 0, 0)))
            .collect();
        let mut seqno = 1;
        for _ in 0..30 {
            put(
                &tables[rng.random_range(0..3)],
                &random_key(&mut rng, 30),
                seqno,
            );
            seqno += 1;
        }
        let mut iter = MergeIter::new(tables.iter().map(|table| table.iter()).collect());
        assert!(iter.seek(&random_key(&mut rng, 1), 1 << 40).unwrap());
        for step in 0..300 {
            put(
                &tables[rng.random_range(0..3)],
                &random_key(&mut rng, 30),
                seqno,
            );
            seqno += 1;
            let (key, at) = (iter.key().user_key.to_vec(), iter.key().seqno);
            let before = InternalKey::new(&key, at, Kind::Put);
            let forward = rng.random_bool(0.5);
            let on = if forward { iter.next() } else { iter.prev() }.unwrap();
            if !on {
                let on = if forward {
                    iter.seek_to_last()
                } else {
                    iter.seek_to_first()
                };
                assert!(on.unwrap());
                continue;
            }
            assert_eq!(iter.key() > before, forward, "seed {seed} step {step}");
            assert_ne!(iter.key(), before, "seed {seed} step {step}");
        }
    }
}
