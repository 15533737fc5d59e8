use super::support::{Entry, VecIter, delete, entry, random_key, sort};
use crate::base::key::{SEQNO_MAX, UNCOMMITTED_BIT};
use crate::base::{ErrorKind, Kind};
use crate::iter::{MergeIter, MvccIter, ReadAt, TombstoneReports};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

type Rows = Vec<(Vec<u8>, u64, Vec<u8>)>;

fn visible_rows(all: &[Entry], read_at: ReadAt, lower: &[u8], upper: Option<&[u8]>) -> Rows {
    let mut newest: BTreeMap<&[u8], &Entry> = BTreeMap::new();
    for entry in all.iter().filter(|e| read_at.sees(e.1)) {
        let slot = newest.entry(&entry.0).or_insert(entry);
        if slot.1 < entry.1 {
            *slot = entry;
        }
    }
    newest
        .into_values()
        .filter(|e| e.2.is_put() && e.0.as_slice() >= lower)
        .filter(|e| upper.is_none_or(|upper| e.0.as_slice() < upper))
        .map(|e| (e.0.clone(), e.1, e.3.clone()))
        .collect()
}

fn random_entries(rng: &mut StdRng) -> (Vec<Entry>, u32) {
    let space = [3, 30, 999][rng.random_range(0..3)];
    let mut all: Vec<Entry> = (0..rng.random_range(0..150u32))
        .map(|i| {
            let deletes = if space == 999 { 0.02 } else { 0.3 };
            let kind = [Kind::Put, Kind::Delete][usize::from(rng.random_bool(deletes))];
            let own = rng.random_bool(if space == 999 { 0.02 } else { 0.2 });
            let seqno = rng.random_range(1..60) | if own { UNCOMMITTED_BIT } else { 0 };
            let value = i.to_be_bytes().to_vec();
            (random_key(rng, space), seqno, kind, value)
        })
        .collect();
    sort(&mut all);
    all.dedup_by(|a, b| (&a.0, a.1) == (&b.0, b.1));
    (all, space)
}

fn merged(rng: &mut StdRng, all: &[Entry]) -> MergeIter<VecIter> {
    let mut sources = vec![Vec::new(); 4];
    // If most entries are in one source, it has rows ahead.
    let in_one = rng.random_bool(0.5);
    for entry in all {
        let source = match entry.1 & UNCOMMITTED_BIT {
            0 if in_one && rng.random_bool(0.9) => 3,
            0 => rng.random_range(1..4),
            _ => 0,
        };
        sources[source].push(entry.clone());
    }
    MergeIter::new(sources.into_iter().map(VecIter::new).collect())
}

#[test]
fn random_moves_see_what_the_model_sees() {
    for seed in 0..300u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (all, space) = random_entries(&mut rng);
        let mut iter = MvccIter::new(merged(&mut rng, &all), ReadAt::snapshot(0));
        for _ in 0..4 {
            let read_at = ReadAt {
                snapshot: rng.random_range(0..62),
                own_bound: match rng.random_range(0..3) {
                    0 => 0,
                    1 => UNCOMMITTED_BIT | rng.random_range(0..62),
                    _ => SEQNO_MAX,
                },
            };
            let lower = rng.random_bool(0.5).then(|| random_key(&mut rng, space));
            let upper = rng.random_bool(0.5).then(|| random_key(&mut rng, space));
            iter.set_read_at(read_at);
            iter.set_bounds(lower.as_deref(), upper.as_deref());
            let rows = visible_rows(
                &all,
                read_at,
                lower.as_deref().unwrap_or_default(),
                upper.as_deref(),
            );
            check_moves(&mut iter, &rows, &mut rng, space, seed);
        }
    }
}

/// Passes some of the rows ahead of row `at`, one by one or several at once, and with or without
/// landing. Returns the row where the cursor is then.
fn next_without_key(
    iter: &mut MvccIter<MergeIter<VecIter>>,
    rows: &Rows,
    mut at: usize,
    rng: &mut StdRng,
    context: &str,
) -> usize {
    while rng.random_bool(0.6) && iter.rows_ahead() {
        let ahead = iter.known_ahead();
        if rng.random_bool(0.3) {
            let most = rng.random_range(0..6);
            let passed = iter.pass_rows(most);
            assert_eq!(u64::from(passed), most.min(u64::from(ahead)), "{context}");
            at += passed as usize;
        } else {
            at += 1;
            let (kind, value) = iter.next_without_key();
            let found = (kind, [value.head, value.tail].concat());
            assert_eq!(found, (Kind::Put, rows[at].2.clone()), "{context}");
            if rng.random_bool(0.5) {
                continue;
            }
        }
        iter.restore_key();
        let found = (iter.user_key().to_vec(), iter.seqno());
        assert_eq!(found, (rows[at].0.clone(), rows[at].1), "{context}");
    }
    at
}

fn check_moves(
    iter: &mut MvccIter<MergeIter<VecIter>>,
    rows: &Rows,
    rng: &mut StdRng,
    space: u32,
    seed: u64,
) {
    let mut at: Option<usize> = None;
    // Many moves forwards, or many backwards.
    let moves = [12, 60][rng.random_range(0..2)];
    for step in 0..150 {
        let key = random_key(rng, space + 2);
        let (what, expected, on) = match (rng.random_range(0..moves), at) {
            (0, _) => ("first", Some(0), iter.first()),
            (1, _) => ("last", rows.len().checked_sub(1), iter.last()),
            (2, _) | (3, None) => {
                let to = rows.partition_point(|row| row.0 < key);
                ("seek_ge", Some(to), iter.seek_ge(&key))
            }
            (3, _) | (_, None) => {
                let to = rows.partition_point(|row| row.0 < key).checked_sub(1);
                ("seek_lt", to, iter.seek_lt(&key))
            }
            (4..=7, Some(at)) => ("prev", at.checked_sub(1), iter.prev()),
            (_, Some(at)) => ("next", Some(at + 1), iter.next()),
        };
        at = expected.filter(|&at| at < rows.len());
        let context = format!("seed {seed} step {step} {what} {:?}", iter.read_at());
        assert_eq!(on.unwrap(), at.is_some(), "{context}");
        assert_eq!(iter.valid(), at.is_some(), "{context}");
        if let Some(at) = at {
            let value = iter.value();
            let found = (
                iter.user_key().to_vec(),
                iter.seqno(),
                [value.head, value.tail].concat(),
            );
            assert_eq!(found, rows[at], "{context}");
            assert_eq!(value.head.len(), 2);
            assert_eq!(iter.kind(), Kind::Put);
        }
        at = at.map(|at| next_without_key(iter, rows, at, rng, &context));
    }
}

#[test]
fn own_delete_hides_a_committed_row() {
    let own = |n| UNCOMMITTED_BIT | n;
    let source = VecIter::new(vec![
        entry("a", 3, "committed"),
        delete("a", own(1)),
        entry("b", 9, "too new"),
        entry("b", own(2), "own"),
        entry("c", 9, "too new"),
        entry("c", 4, "old"),
    ]);
    let mut iter = MvccIter::new(source, ReadAt::snapshot(5));
    assert!(iter.first().unwrap());
    assert_eq!((iter.user_key(), iter.seqno()), (&b"b"[..], own(2)));
    assert!(iter.next().unwrap());
    assert_eq!((iter.user_key(), iter.seqno()), (&b"c"[..], 4));
    assert!(!iter.next().unwrap());
    assert_eq!(iter.skipped_tombstones(), 1);
    assert!(iter.last().unwrap());
    assert!(iter.prev().unwrap());
    assert_eq!((iter.user_key(), iter.seqno()), (&b"b"[..], own(2)));
    assert!(iter.next().unwrap());
    assert_eq!(iter.user_key(), b"c");
    assert!(iter.prev().unwrap());
    assert!(!iter.prev().unwrap());
}

#[test]
fn a_range_delete_is_refused_both_ways() {
    let source = || VecIter::new(vec![(b"a".into(), 3, Kind::RangeDelete, b"b".into())]);
    let mut iter = MvccIter::new(source(), ReadAt::snapshot(5));
    assert_eq!(iter.first().unwrap_err().kind(), &ErrorKind::Unsupported);
    assert!(!iter.valid());
    assert_eq!(iter.last().unwrap_err().kind(), &ErrorKind::Unsupported);
}

#[test]
fn an_interrupt_ends_a_long_skip() {
    let tombstones = || VecIter::new((0..5000).map(|i| delete(&format!("{i:05}"), 1)).collect());
    let mut iter = MvccIter::new(tombstones(), ReadAt::snapshot(5));
    assert!(!iter.first().unwrap());
    assert_eq!(iter.skipped_tombstones(), 5000);
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    iter.set_interrupt(Some(Arc::new(move || {
        count.fetch_add(1, Ordering::Relaxed) == 2
    })));
    for moved in [iter.first(), iter.last()] {
        match moved {
            Err(error) => assert_eq!(error.kind(), &ErrorKind::Interrupted),
            Ok(on) => assert!(!on),
        }
    }
    // The third call of the interrupt function ends the forward scan with an error. The backward
    // scan calls it again, for the entries on its way.
    assert!((4..=8).contains(&asked.load(Ordering::Relaxed)));
    assert!(!iter.valid());
}

#[test]
fn many_versions_of_one_key_are_left_by_a_seek() {
    let mut entries: Vec<Entry> = (1..=1000).map(|n| entry("a", n, "a")).collect();
    entries.push(entry("b", 1, "b"));
    let mut iter = MvccIter::new(VecIter::new(entries), ReadAt::snapshot(500));
    assert!(iter.first().unwrap());
    assert_eq!(iter.seqno(), 500);
    assert!(iter.next().unwrap());
    assert_eq!(iter.user_key(), b"b");
    assert!(iter.prev().unwrap());
    assert_eq!(iter.seqno(), 500);
    assert!(iter.skipped_entries() < 60);
}

#[test]
fn bounds_are_not_read_past() {
    let source = VecIter::new(vec![
        entry("a", 1, ""),
        entry("c", 1, ""),
        delete("d", 1),
        delete("e", 1),
    ]);
    let mut iter = MvccIter::new(source, ReadAt::latest());
    iter.set_bounds(Some(b"b"), Some(b"d"));
    assert!(iter.first().unwrap());
    assert_eq!(iter.user_key(), b"c");
    assert!(!iter.next().unwrap());
    assert!(iter.last().unwrap());
    assert!(!iter.prev().unwrap());
    assert!(!iter.seek_ge(b"d").unwrap());
    assert!(!iter.seek_lt(b"b").unwrap());
    assert!(iter.seek_ge(b"a").unwrap());
    assert!(iter.seek_lt(b"z").unwrap());
    assert_eq!(iter.skipped_tombstones(), 0);
}

#[test]
fn a_long_stretch_of_deletions_is_reported() {
    let deleted = |n: u32| format!("d{n:05}");
    let mut all: Vec<Entry> = (0..5000).map(|n| delete(&deleted(n), 5)).collect();
    all.push(entry("a", 1, ""));
    all.push(entry("e", 1, ""));
    sort(&mut all);
    for forward in [true, false] {
        let tombstone_reports = Arc::new(TombstoneReports::default());
        let mut cursor = MvccIter::new(VecIter::new(all.clone()), ReadAt::snapshot(10));
        cursor.set_tombstone_reports(Some(tombstone_reports.clone()));
        if forward {
            assert!(cursor.first().unwrap() && cursor.next().unwrap());
            assert_eq!(cursor.user_key(), b"e");
        } else {
            assert!(cursor.last().unwrap() && cursor.prev().unwrap());
            assert_eq!(cursor.user_key(), b"a");
        }
        // The move has made one report after the other, all of one stretch.
        let open = tombstone_reports.open(10);
        let [range] = &open[..] else {
            panic!("{open:?}");
        };
        assert!(range.smallest.starts_with(b"d") && range.largest.starts_with(b"d"));
        let number =
            |key: &[u8]| -> u32 { std::str::from_utf8(&key[1..]).unwrap().parse().unwrap() };
        assert!(
            number(&range.largest) - number(&range.smallest) > 2500,
            "{range:?}"
        );
    }
    // The cursor reports no range if it skips as many old versions in all, but each of them behind
    // a row, so that no single move skips many.
    let row = |n: u32| [entry(&deleted(n), 5, "new"), entry(&deleted(n), 4, "old")];
    let mut all: Vec<Entry> = (0..5000).flat_map(row).collect();
    sort(&mut all);
    let tombstone_reports = Arc::new(TombstoneReports::default());
    let mut cursor = MvccIter::new(VecIter::new(all), ReadAt::snapshot(10));
    cursor.set_tombstone_reports(Some(tombstone_reports.clone()));
    let mut on = cursor.first().unwrap();
    while on {
        on = cursor.next().unwrap();
    }
    // The source passes half of them together with their rows.
    assert!(cursor.skipped_entries() >= 2499);
    assert!(tombstone_reports.open(10).is_empty());
}
