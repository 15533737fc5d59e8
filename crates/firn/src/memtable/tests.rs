use super::filter::Filter;
use super::index_counts::IndexCountTable;
use super::*;
use crate::base::key::{SEQNO_MAX, UNCOMMITTED_BIT, compare};
use crate::base::{InternalIterator, Kind};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

fn put(memtable: &Memtable, key: &[u8], seqno: Seqno, value: &[u8]) {
    let (head, tail) = value.split_at(value.len() / 2);
    memtable.insert(
        InternalKey::new(key, seqno, Kind::Put),
        Value::split(head, tail),
    );
}

fn joined(value: Value<'_>) -> Vec<u8> {
    [value.head, value.tail].concat()
}

fn get(memtable: &Memtable, key: &[u8], seqno: Seqno) -> Option<(Seqno, Kind, Vec<u8>)> {
    memtable.get(key, seqno, |k, v| (k.seqno, k.kind, joined(v)))
}

/// Random keys around 16 bytes, the length of a node's prefix, with zeros that look like padding.
fn random_key(rng: &mut StdRng) -> Vec<u8> {
    let len = [1, 4, 8, 15, 16, 17, 20, 40][rng.random_range(0..8)];
    (0..len)
        .map(|i| if i < 12 { 0 } else { rng.random_range(0..2) })
        .collect()
}

#[test]
fn newest_version_at_or_below_the_seqno() {
    let memtable = Memtable::new(1, 7);
    put(&memtable, b"0001a", 5, b"five");
    put(&memtable, b"0001a", 9, b"nine");
    memtable.insert(InternalKey::new(b"0001a", 12, Kind::Delete), Value::EMPTY);
    assert_eq!(get(&memtable, b"0001a", 4), None);
    assert_eq!(
        get(&memtable, b"0001a", 8),
        Some((5, Kind::Put, b"five".to_vec()))
    );
    assert_eq!(
        get(&memtable, b"0001a", 9),
        Some((9, Kind::Put, b"nine".to_vec()))
    );
    assert_eq!(
        get(&memtable, b"0001a", SEQNO_MAX),
        Some((12, Kind::Delete, vec![]))
    );
    assert_eq!(get(&memtable, b"0001b", SEQNO_MAX), None);
    assert_eq!(memtable.seqno_range(), Some((5, 12)));
    assert_eq!(memtable.id(), 1);
}

/// As commits insert them: the newest last.
#[test]
fn one_step_passes_all_versions_of_a_key() {
    let memtable = Arc::new(Memtable::with_capacity(1, 7, 1 << 20));
    for seqno in 1..=300 {
        put(&memtable, b"hot", seqno, b"v");
    }
    put(&memtable, b"next", 301, b"v");
    let mut iter = memtable.iter();
    for seqno in [300, 299, 150, 2, 1] {
        assert!(iter.seek(b"hot", seqno).unwrap());
        assert!(iter.next_past_versions().unwrap());
        assert_eq!(iter.key().user_key, b"next", "from {seqno}");
    }
    assert!(!iter.next_past_versions().unwrap());
}

#[test]
fn a_repeated_version_changes_nothing() {
    let memtable = Memtable::new(1, 7);
    put(&memtable, b"0001a", 5, b"first");
    let size = memtable.size_bytes();
    put(&memtable, b"0001a", 5, b"again");
    assert_eq!(memtable.entries(), 1);
    assert_eq!(memtable.size_bytes(), size);
    assert_eq!(
        get(&memtable, b"0001a", 5),
        Some((5, Kind::Put, b"first".to_vec()))
    );
}

#[test]
#[should_panic(expected = "uncommitted seqno")]
fn an_uncommitted_seqno_is_refused() {
    put(&Memtable::new(1, 7), b"0001a", UNCOMMITTED_BIT | 1, b"x");
}

#[test]
fn list_orders_like_the_model() {
    for seed in 0..20u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let memtable = Arc::new(Memtable::with_capacity(1, 7, 1 << 20));
        let mut model: Vec<(Vec<u8>, Seqno)> = Vec::new();
        for _ in 0..300 {
            let key = random_key(&mut rng);
            let seqno = rng.random_range(1..50);
            put(&memtable, &key, seqno, &key);
            model.push((key, seqno));
        }
        model.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
        model.dedup();
        assert_eq!(memtable.entries(), model.len() as u64, "seed {seed}");

        let mut iter = memtable.iter();
        let mut on = iter.seek_to_first().unwrap();
        for (key, seqno) in &model {
            assert!(on && iter.valid(), "seed {seed}");
            assert_eq!((iter.key().user_key, iter.key().seqno), (&key[..], *seqno));
            assert_eq!(&joined(iter.value()), key);
            on = iter.next().unwrap();
        }
        assert!(!on && !iter.valid(), "seed {seed}");
        let mut on = iter.seek_to_last().unwrap();
        for (key, seqno) in model.iter().rev() {
            assert!(on, "seed {seed}");
            assert_eq!((iter.key().user_key, iter.key().seqno), (&key[..], *seqno));
            on = iter.prev().unwrap();
        }
        assert!(!on, "seed {seed}");

        for _ in 0..300 {
            let key = random_key(&mut rng);
            let seqno = rng.random_range(0..51);
            let expected = model
                .iter()
                .find(|m| compare(&m.0, m.1, &key, seqno).is_ge());
            assert_eq!(iter.seek(&key, seqno).unwrap(), expected.is_some());
            if let Some(expected) = expected {
                assert_eq!(
                    (iter.key().user_key, iter.key().seqno),
                    (&expected.0[..], expected.1),
                    "seed {seed}"
                );
                // It passes at least one entry, and versions of one key only.
                let at = model.iter().position(|m| m == expected).unwrap();
                let on = iter.next_past_versions().unwrap();
                let found = on.then(|| (iter.key().user_key.to_vec(), iter.key().seqno));
                let to = found.map_or(model.len(), |found| {
                    model.iter().position(|m| *m == found).unwrap()
                });
                let passed = &model[at..to.max(at)];
                assert!(!passed.is_empty() && passed.iter().all(|m| m.0 == expected.0));
            }
            assert_eq!(
                get(&memtable, &key, seqno).map(|found| found.0),
                expected.filter(|e| e.0 == key).map(|e| e.1),
                "seed {seed}"
            );
            let below = model.iter().rev().find(|m| m.0 < key);
            assert_eq!(iter.seek_before(&key).unwrap(), below.is_some());
            if let Some(below) = below {
                assert_eq!(
                    (iter.key().user_key, iter.key().seqno),
                    (&below.0[..], below.1),
                    "seed {seed}"
                );
            }
            let other = random_key(&mut rng);
            let exact = model.iter().filter(|m| m.0 >= key && m.0 < other).count() as u64;
            let found = memtable.estimate_range(&key, Some(&other), 0);
            assert!(
                if found.is_exact() {
                    found.entries == exact
                } else {
                    exact > 60
                },
                "seed {seed}: {found:?} for {exact}"
            );
            let keys = memtable.split_keys(&key, Some(&other), 10);
            let within = |k: &Vec<u8>| *k >= key && *k < other;
            assert!(keys.iter().all(within), "seed {seed}");
            assert!(keys.is_sorted_by(|a, b| a < b), "seed {seed}");
            let distinct: std::collections::BTreeSet<_> =
                model.iter().map(|m| &m.0).filter(|k| within(k)).collect();
            assert!(keys.len() >= distinct.len().min(10), "seed {seed}");
        }
    }
}

/// Few entries, so that the test also runs under an interpreter that checks the unsafe code.
#[test]
fn an_iterator_outlives_the_last_handle() {
    let memtable = Arc::new(Memtable::with_capacity(1, 7, 0));
    put(&memtable, b"0001a", 5, b"one");
    put(&memtable, b"0001b", 6, b"two");
    let mut iter = memtable.iter();
    assert!(iter.seek_to_first().unwrap());
    put(&memtable, b"0001aa", 7, b"between");
    drop(memtable);
    assert_eq!(iter.key().user_key, b"0001a");
    assert!(iter.next().unwrap());
    assert_eq!(iter.key().user_key, b"0001aa");
    assert!(iter.next().unwrap());
    assert_eq!(joined(iter.value()), b"two");
    assert!(!iter.next().unwrap());
    assert!(iter.seek_before(b"0001b").unwrap());
    assert_eq!(joined(iter.value()), b"between");
}

#[test]
fn concurrent_writers_and_readers() {
    const THREADS: u64 = 4;
    const PER_THREAD: u64 = if cfg!(miri) { 20 } else { 3000 };
    let memtable = Arc::new(Memtable::new(1, 7));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (memtable, stop) = (&memtable, &stop);
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(move || {
                    let mut rounds = 0;
                    while rounds == 0 || !stop.load(Ordering::Acquire) {
                        rounds += 1;
                        let mut iter = memtable.iter();
                        let mut on = iter.seek_to_first().unwrap();
                        let mut last: Option<Vec<u8>> = None;
                        while on {
                            let key = iter.key();
                            assert_eq!(joined(iter.value()), key.seqno.to_be_bytes());
                            assert!(last.is_none_or(|last| last.as_slice() < key.user_key));
                            last = Some(key.user_key.to_vec());
                            on = iter.next().unwrap();
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..THREADS)
            .map(|thread| {
                memtable.writers_begin();
                scope.spawn(move || {
                    for i in 0..PER_THREAD {
                        let seqno = i * THREADS + thread + 1;
                        // Keys are scattered over the key space; each occurs once.
                        let key = (seqno.wrapping_mul(0x9e37_79b9_7f4a_7c15)).to_be_bytes();
                        put(memtable, &key, seqno, &seqno.to_be_bytes());
                        assert_eq!(get(memtable, &key, SEQNO_MAX).unwrap().0, seqno);
                    }
                    memtable.writers_end();
                })
            })
            .collect();
        memtable.wait_quiescent();
        assert!(memtable.is_quiescent());
        assert_eq!(memtable.entries(), THREADS * PER_THREAD);
        stop.store(true, Ordering::Release);
        writers.into_iter().for_each(|w| w.join().unwrap());
        readers.into_iter().for_each(|r| r.join().unwrap());
    });
    assert_eq!(memtable.seqno_range(), Some((1, THREADS * PER_THREAD)));
}

#[test]
fn log_positions_move_one_way() {
    let memtable = Memtable::new(1, 7);
    memtable.lower_min_segment(9);
    assert_eq!(memtable.min_segment(), 7);
    memtable.lower_min_segment(3);
    assert_eq!(memtable.min_segment(), 3);
    memtable.set_last_lsn(100);
    memtable.set_last_lsn(50);
    assert_eq!(memtable.last_lsn(), 100);
}

#[test]
fn counts_per_index() {
    let memtable = Memtable::new(1, 7);
    put(&memtable, &[0, 0, 0, 1, b'a'], 1, b"1234");
    put(&memtable, &[0, 0, 0, 1, b'b'], 2, b"12");
    memtable.insert(
        InternalKey::new(&[0, 0, 0, 2, b'b'], 2, Kind::Delete),
        Value::EMPTY,
    );
    let one = IndexCounts {
        entries: 2,
        deletes: 0,
        raw_bytes: 16,
        blob_bytes: 0,
    };
    let two = IndexCounts {
        entries: 1,
        deletes: 1,
        raw_bytes: 5,
        blob_bytes: 0,
    };
    assert_eq!(memtable.index_counts(1), one);
    assert_eq!(memtable.index_counts(3), IndexCounts::default());
    assert_eq!(memtable.all_index_counts(), vec![(1, one), (2, two)]);
    assert!(memtable.size_bytes() > 21);
}

#[test]
fn more_indexes_than_slots() {
    let counters = IndexCountTable::new();
    let mut model = BTreeMap::<IndexId, IndexCounts>::new();
    for i in 0..2000u32 {
        let index = i * 7 % 500;
        let counts = IndexCounts {
            entries: 1,
            deletes: u64::from(i % 3 == 0),
            raw_bytes: u64::from(i),
            blob_bytes: 0,
        };
        counters.add(index, counts);
        model.entry(index).or_default().add(counts);
    }
    assert_eq!(
        counters.all(),
        model.clone().into_iter().collect::<Vec<_>>()
    );
    for (index, counts) in model {
        assert_eq!(counters.of(index), counts);
    }
}

#[test]
fn filter_has_no_false_negative_and_few_false_positives() {
    let filter = Filter::new(16 << 10);
    let key = |i: u64| [&[0, 0, 0, 1][..], &i.to_be_bytes()].concat();
    // Fills 16 KiB of filter with ten bits per key.
    let inserted = 13_000;
    for i in 0..inserted {
        filter.insert(xxh3(&key(i)));
    }
    assert!((0..inserted).all(|i| filter.may_contain(xxh3(&key(i)))));
    let wrong = (inserted..2 * inserted)
        .filter(|&i| filter.may_contain(xxh3(&key(i))))
        .count();
    assert!(wrong < 13_000 * 3 / 100, "{wrong} false positives");
    assert_eq!(filter.size_bytes(), 16 << 10);
}
