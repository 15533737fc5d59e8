//! Conditions on the entries of an index, which a scan asks before it reads rows.

use super::*;
use firn::base::ErrorKind;
use firn::table::{Condition, Verdict};
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes that no row has in its last column.
const UNREAD: [u8; 4] = [0xEE; 4];

fn matches((id, (k, _)): (i32, (i32, i32)), rest: i32) -> bool {
    (id + k).rem_euclid(3) == rest
}

/// The condition that [`matches`], and the number of entries that it was asked about.
fn condition(rest: i32) -> (Condition, Arc<AtomicU32>) {
    let asked = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&asked);
    let verdict = move |record: &mut [u8]| {
        count.fetch_add(1, Ordering::Relaxed);
        match matches(row(record), rest) {
            true => Verdict::Match,
            false => Verdict::Pass,
        }
    };
    (Box::new(verdict), asked)
}

/// Points the cursor at the index of `k`, with a condition.
fn aim(cursor: &mut Cursor, rest: i32) -> Arc<AtomicU32> {
    cursor
        .reset(Some(1), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    let (condition, asked) = condition(rest);
    cursor.set_condition(condition).unwrap();
    asked
}

fn by_k(rows: &Rows) -> Vec<(i32, (i32, i32))> {
    let mut sorted: Vec<_> = rows.iter().map(|(&id, &rest)| (id, rest)).collect();
    sorted.sort_by_key(|&(id, (k, _))| (k, id));
    sorted
}

#[test]
fn scans_with_a_condition_agree_with_a_model() {
    for seed in 0..4 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        for round in 0..6 {
            let mut txn = world.session();
            world.write(&mut txn, &mut rows, [1200, 200, 20][round % 3]);
            txn.commit().unwrap();
            match round % 3 {
                0 => world.db.compact_all().unwrap(),
                1 => world.db.flush().unwrap(),
                _ => {}
            }
            let committed = rows.clone();
            let mut txn = world.session();
            for scan in 0..8 {
                // The second half of the scans sees own writes.
                if scan == 4 {
                    world.write(&mut txn, &mut rows, 40);
                    world.begin(&mut txn);
                }
                let rest = world.rng.random_range(0..3);
                let from = world.rng.random_range(-60..50);
                let _ = aim(&mut cursor, rest);
                let covered = world.rng.random_bool(0.3);
                cursor.set_columns(None, covered, &[]).unwrap();
                let expected: Vec<_> = by_k(&rows)
                    .into_iter()
                    .filter(|&row| row.1.0 >= from && matches(row, rest))
                    .collect();
                let image = from.to_le_bytes();
                let mut buffer = [0; RECORD];
                let mode = SeekMode::AtOrAfter;
                let mut on = cursor
                    .seek(&mut txn, KeyImage::image(&image), mode, &mut buffer)
                    .unwrap();
                let mut at = 0;
                loop {
                    let found = on.then(|| row(&buffer));
                    let context = format!("seed {seed}, round {round}, scan {scan}, row {at}");
                    match (covered, found, expected.get(at)) {
                        // The entry does not have the last column.
                        (true, Some((id, (k, _))), Some(&(wanted, (wanted_k, _)))) => {
                            assert_eq!((id, k), (wanted, wanted_k), "{context}");
                        }
                        (_, found, wanted) => assert_eq!(found, wanted.copied(), "{context}"),
                    }
                    if !on {
                        break;
                    }
                    if at > 0 && world.rng.random_range(0..15) == 0 {
                        assert!(cursor.prev(&mut txn, &mut buffer).unwrap(), "{context}");
                        assert_eq!(row(&buffer).0, expected[at - 1].0, "{context}, back");
                        at -= 1;
                    }
                    on = cursor.next(&mut txn, &mut buffer).unwrap();
                    at += 1;
                }
                cursor.set_columns(None, false, &[]).unwrap();
                cursor.park();
            }
            txn.rollback().unwrap();
            rows = committed;
        }
    }
}

/// The statement itself changes rows in front of its scan, as a function or a cascade does.
#[test]
fn a_condition_heeds_what_the_statement_has_written_meanwhile() {
    let mut world = World::new(7);
    let mut rows = Rows::new();
    let mut txn = world.session();
    world.write(&mut txn, &mut rows, 1500);
    txn.commit().unwrap();
    world.db.compact_all().unwrap();
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    let _ = aim(&mut cursor, 1);
    let mut buffer = [0; RECORD];
    let mut on = cursor.first(&mut txn, &mut buffer).unwrap();
    let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
    let ahead: Vec<_> = by_k(&rows).into_iter().skip(50).collect();
    let (mut deleted, mut changed) = (0, 0);
    for old in ahead {
        // SAFETY: blob columns must point to their bytes; this table has none.
        match old.0 % 5 {
            0 => {
                let gone = record(old);
                unsafe {
                    world
                        .table
                        .delete(&mut txn, &gone, None, flags, &mut scratch)
                }
                .unwrap();
                rows.remove(&old.0);
                deleted += 1;
            }
            1 => {
                let fresh = (old.0, (old.1.0, old.1.1 ^ 1));
                let (before, after) = (record(old), record(fresh));
                unsafe {
                    let table = &world.table;
                    table.update(&mut txn, &before, &after, None, flags, &mut scratch)
                }
                .unwrap();
                rows.insert(old.0, fresh.1);
                changed += 1;
            }
            _ => {}
        }
    }
    assert!(deleted > 100 && changed > 100);
    let mut found = Vec::new();
    while on {
        found.push(row(&buffer));
        on = cursor.next(&mut txn, &mut buffer).unwrap();
    }
    let expected: Vec<_> = by_k(&rows)
        .into_iter()
        .filter(|&row| matches(row, 1))
        .collect();
    assert!(expected.len() > 100);
    assert_eq!(found, expected);
}

#[test]
fn rows_of_entries_that_do_not_match_are_not_read() {
    let mut world = World::new(9);
    let mut rows = Rows::new();
    let mut txn = world.session();
    world.write(&mut txn, &mut rows, 1500);
    txn.commit().unwrap();
    world.db.compact_all().unwrap();
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    // Nothing has this remainder.
    let asked = aim(&mut cursor, 5);
    let mut buffer = [0; RECORD];
    buffer[9..].copy_from_slice(&UNREAD);
    assert!(!cursor.first(&mut txn, &mut buffer).unwrap());
    assert_eq!(asked.load(Ordering::Relaxed) as usize, rows.len());
    assert_eq!(buffer[9..], UNREAD, "a row was decoded");
    // The condition ends with the statement.
    cursor
        .reset(Some(1), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    assert!(cursor.first(&mut txn, &mut buffer).unwrap());
    assert_eq!(row(&buffer), by_k(&rows)[0]);
    assert_eq!(asked.load(Ordering::Relaxed) as usize, rows.len());
}

#[test]
fn a_kill_ends_a_scan_within_its_condition() {
    let mut world = World::new(3);
    let mut rows = Rows::new();
    let mut txn = world.session();
    world.write(&mut txn, &mut rows, 100);
    txn.commit().unwrap();
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    cursor
        .reset(Some(1), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    let mut left = 3;
    let killed = move |_: &mut [u8]| {
        left -= 1;
        [Verdict::Interrupted, Verdict::Pass][usize::from(left > 0)]
    };
    cursor.set_condition(Box::new(killed)).unwrap();
    let error = cursor.first(&mut txn, &mut [0; RECORD]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::Interrupted), "{error}");
}

#[test]
fn neither_the_clustered_index_nor_a_locking_read_has_a_condition() {
    let world = World::new(1);
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    let shared = ReadMode::Locking(LockMode::Shared);
    let validated = ReadMode::Validated(LockMode::Shared);
    for (index, mode) in [(0, ReadMode::Snapshot), (1, shared), (1, validated)] {
        cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
        let refused = cursor.set_condition(condition(0).0).unwrap_err();
        assert!(matches!(refused.kind(), ErrorKind::InvalidArgument));
    }
}
