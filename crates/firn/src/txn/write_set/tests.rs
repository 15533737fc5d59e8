use super::*;
use crate::base::InternalIterator;
use crate::base::key::{SEQNO_MAX, compare};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const UNLIMITED: u64 = u64::MAX;

/// All writes that are not forgotten, in the order written: position, key, kind, value.
#[derive(Default)]
struct Model {
    writes: Vec<(u64, Vec<u8>, Kind, Vec<u8>)>,
}

impl Model {
    fn newest(&self, key: &[u8], own_bound: Seqno) -> Option<(Seqno, Kind, Vec<u8>)> {
        let mut versions = self.writes.iter().rev();
        versions
            .find(|w| w.1 == key && UNCOMMITTED_BIT | w.0 <= own_bound)
            .map(|w| (UNCOMMITTED_BIT | w.0, w.2, w.3.clone()))
    }

    /// In internal order.
    fn entries(&self) -> Vec<(Vec<u8>, Seqno, Kind, Vec<u8>)> {
        let mut all: Vec<_> = self
            .writes
            .iter()
            .map(|w| (w.1.clone(), UNCOMMITTED_BIT | w.0, w.2, w.3.clone()))
            .collect();
        all.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
        all
    }
}

fn joined(value: Value<'_>) -> Vec<u8> {
    [value.head, value.tail].concat()
}

fn found(key: InternalKey<'_>, value: Value<'_>) -> (Seqno, Kind, Vec<u8>) {
    (key.seqno, key.kind, joined(value))
}

fn random_key(rng: &mut StdRng) -> Vec<u8> {
    format!("{:04}", rng.random_range(0..40)).into_bytes()
}

fn write_both(set: &mut WriteSet, model: &mut Model, rng: &mut StdRng) {
    let key = random_key(rng);
    let position = set.position + 1;
    if rng.random_bool(0.3) {
        set.delete(&key).unwrap();
        model.writes.push((position, key, Kind::Delete, Vec::new()));
    } else {
        let value: Vec<u8> = (0..rng.random_range(0..6)).collect();
        let (head, tail) = value.split_at(rng.random_range(0..=value.len()));
        set.put(&key, Value::split(head, tail)).unwrap();
        model.writes.push((position, key, Kind::Put, value));
    }
}

fn check(set: &WriteSet, model: &Model, rng: &mut StdRng, context: &str) {
    assert_eq!(set.writes(), model.writes.len(), "{context}");
    assert_eq!(set.is_empty(), model.writes.is_empty(), "{context}");
    let bytes: u64 = model
        .writes
        .iter()
        .map(|w| version_bytes(w.1.len(), w.3.len()))
        .sum();
    assert_eq!(set.bytes(), bytes, "{context}");
    let mut finals = Vec::new();
    set.for_each_final(|key, kind, value| finals.push((key.to_vec(), kind, joined(value))));
    assert_eq!(set.keys(), finals.len());
    let mut expected: Vec<_> = model.entries();
    expected.dedup_by(|a, b| a.0 == b.0);
    let expected: Vec<_> = expected.into_iter().map(|e| (e.0, e.2, e.3)).collect();
    assert_eq!(finals, expected, "{context}");
    let key = random_key(rng);
    assert_eq!(
        set.get(&key, found),
        model.newest(&key, SEQNO_MAX),
        "{context}"
    );
    let bound = UNCOMMITTED_BIT | rng.random_range(0..=set.position);
    assert_eq!(
        set.get_at(&key, bound, found),
        model.newest(&key, bound),
        "{context}"
    );
    let upper = random_key(rng);
    let touched = model.writes.iter().any(|w| w.1 >= key && w.1 < upper);
    assert_eq!(set.touches_range(&key, Some(&upper)), touched, "{context}");
}

#[test]
fn writes_marks_and_rollbacks_against_the_model() {
    for seed in 0..100u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut set = WriteSet::new(UNLIMITED);
        let mut model = Model::default();
        let mut marks = vec![(set.mark(), 0)];
        for step in 0..200 {
            match rng.random_range(0..20) {
                0..=1 => marks.push((set.mark(), model.writes.len())),
                2 => {
                    // Back to any mark; those after it are void.
                    let at = rng.random_range(0..marks.len());
                    marks.truncate(at + 1);
                    let (mark, writes) = marks[at];
                    set.rollback_to(mark);
                    model.writes.truncate(writes);
                }
                _ => write_both(&mut set, &mut model, &mut rng),
            }
            check(&set, &model, &mut rng, &format!("seed {seed} step {step}"));
        }
        set.rollback_to(marks[0].0);
        assert!(set.is_empty());
        assert_eq!(set.bytes(), 0);
    }
}

/// The set changes between moves; each move goes on from the entry the cursor stood on.
#[test]
fn a_cursor_over_a_changing_set_against_the_model() {
    for seed in 0..200u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let set = SharedWriteSet::new(UNLIMITED);
        let mut model = Model::default();
        let mut iter = set.iter();
        let changes = [0.0, 0.05, 0.5][seed as usize % 3];
        for _ in 0..rng.random_range(0..100) {
            write_both(&mut set.lock(), &mut model, &mut rng);
        }
        let mut here: Option<(Vec<u8>, Seqno)> = None;
        for step in 0..300 {
            if rng.random_bool(changes) {
                write_both(&mut set.lock(), &mut model, &mut rng);
            }
            if rng.random_bool(changes / 10.0) {
                let keep = rng.random_range(0..=model.writes.len());
                model.writes.truncate(keep);
                let last = model.writes.last().map_or(0, |w| w.0);
                set.lock().rollback_to(Mark(last));
            }
            let entries = model.entries();
            let (key, seqno) = here.clone().unwrap_or_default();
            let place = |e: &(Vec<u8>, Seqno, Kind, Vec<u8>)| compare(&e.0, e.1, &key, seqno);
            let target = random_key(&mut rng);
            let bound = UNCOMMITTED_BIT | rng.random_range(0..200);
            let (expected, on) = match (rng.random_range(0..12), here.is_some()) {
                (0, _) => (entries.first(), iter.seek_to_first()),
                (1, _) => (entries.last(), iter.seek_to_last()),
                (2, _) | (3, false) => (
                    entries
                        .iter()
                        .find(|e| compare(&e.0, e.1, &target, bound).is_ge()),
                    iter.seek(&target, bound),
                ),
                (3, _) | (_, false) => (
                    entries.iter().rev().find(|e| e.0 < target),
                    iter.seek_before(&target),
                ),
                (4..=7, true) => (entries.iter().rev().find(|e| place(e).is_lt()), iter.prev()),
                (_, true) => (entries.iter().find(|e| place(e).is_gt()), iter.next()),
            };
            let context = format!("seed {seed} step {step}");
            assert_eq!(on.unwrap(), expected.is_some(), "{context}");
            assert_eq!(iter.valid(), expected.is_some(), "{context}");
            here = expected.map(|e| (e.0.clone(), e.1));
            if let Some(expected) = expected {
                assert_eq!(iter.key().user_key, expected.0, "{context}");
                assert_eq!(found(iter.key(), iter.value()).0, expected.1, "{context}");
                assert_eq!(found(iter.key(), iter.value()).2, expected.3, "{context}");
            }
        }
    }
}

#[test]
fn a_write_over_the_limit_leaves_no_trace() {
    let mut set = WriteSet::new(2 * version_bytes(4, 3));
    set.put(b"0001", Value::whole(b"abc")).unwrap();
    let before = (set.mark(), set.bytes(), set.generation);
    let error = set.put(b"0001", Value::split(b"ab", b"cd")).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::TxnTooLarge);
    assert_eq!((set.mark(), set.bytes(), set.generation), before);
    assert_eq!(set.get(b"0001", found).unwrap().2, b"abc");
    set.put(b"0002", Value::whole(b"abc")).unwrap();
    assert!(set.delete(b"0003").is_err());
    set.rollback_to(before.0);
    set.delete(b"0003").unwrap();
    set.set_limit(0);
    assert!(set.delete(b"0003").is_err());
}

#[test]
fn what_a_rolled_back_position_named_is_never_named_again() {
    let mut set = WriteSet::new(UNLIMITED);
    let start = set.mark();
    set.delete(b"0001").unwrap();
    let used = set.get(b"0001", |key, _| key.seqno).unwrap();
    set.rollback_to(start);
    set.delete(b"0001").unwrap();
    assert!(set.get(b"0001", |key, _| key.seqno).unwrap() > used);
    assert_eq!(start.own_bound(), UNCOMMITTED_BIT);
}

#[test]
fn touches_tells_indexes_apart() {
    let mut set = WriteSet::new(UNLIMITED);
    set.delete(&[0, 0, 0, 2, 9]).unwrap();
    set.delete(&[0, 0, 1, 0]).unwrap();
    let touched: Vec<_> = [1, 2, 3, 255, 256, 257]
        .into_iter()
        .filter(|&index| set.touches(index))
        .collect();
    assert_eq!(touched, [2, 256]);
    set.clear();
    assert!(!set.touches(2));
    assert_eq!(set.bytes(), 0);
}
