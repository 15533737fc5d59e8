//! A transaction changes a row that another one has changed after its snapshot, wherever the other
//! one's change lies by then.

use super::{RECORD, World, entry_key, record, row};
use firn::table::{Cursor, LockWait, ReadMode, RowScratch, WriteFlags, WriteOutcome};
use firn::txn::Transaction;
use std::sync::Arc;

/// Where the entries lie that were committed after the snapshot.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Lies {
    InMemtable,
    /// In files, with an empty memtable.
    InFiles,
    InLastLevel,
    /// In files; the memtable has newer entries of other rows.
    BelowMemtable,
}

const PLACES: [Lies; 4] = [
    Lies::InMemtable,
    Lies::InFiles,
    Lies::InLastLevel,
    Lies::BelowMemtable,
];

fn update(world: &World, txn: &mut Transaction, old: (i32, (i32, i32)), new: (i32, (i32, i32))) {
    let (old, new) = (record(old), record(new));
    let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
    // SAFETY: blob columns must point to their bytes; this table has none.
    let done = unsafe {
        world
            .table
            .update(txn, &old, &new, None, flags, &mut scratch)
    };
    assert!(matches!(done.unwrap(), WriteOutcome::Done { .. }));
}

fn rows_by(
    world: &World,
    txn: &mut Transaction,
    index: usize,
    locks: bool,
) -> Vec<(i32, (i32, i32))> {
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    let mode = match locks {
        true => ReadMode::Locking(firn::txn::LockMode::Exclusive),
        false => ReadMode::Snapshot,
    };
    cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
    let mut buffer = [0; RECORD];
    let mut rows = Vec::new();
    let mut on = cursor.first(txn, &mut buffer).unwrap();
    while on {
        rows.push(row(&buffer));
        on = cursor.next(txn, &mut buffer).unwrap();
    }
    rows
}

/// A world with the rows 1 to 20, and a transaction whose snapshot shows them. Another transaction
/// then changes the columns k and v of row `changed`.
fn changed_after_snapshot(changed: i32, lies: Lies) -> (World, Transaction) {
    let mut world = World::new(1);
    let mut first = world.session();
    let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
    for id in 1..=20 {
        let fresh = record((id, (id, 0)));
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { world.table.insert(&mut first, &fresh, flags, &mut scratch) }.unwrap();
    }
    first.commit().unwrap();
    world.db.flush().unwrap();
    let mut txn = world.session();
    txn.fix_snapshot();
    let mut other = world.session();
    update(
        &world,
        &mut other,
        (changed, (changed, 0)),
        (changed, (100, 1)),
    );
    other.commit().unwrap();
    match lies {
        Lies::InMemtable => {}
        Lies::InFiles => world.db.flush().unwrap(),
        Lies::InLastLevel => world.db.compact_all().unwrap(),
        Lies::BelowMemtable => {
            world.db.flush().unwrap();
            let mut other = world.session();
            update(&world, &mut other, (19, (19, 0)), (19, (19, 3)));
            other.commit().unwrap();
        }
    }
    world.begin(&mut txn);
    (world, txn)
}

#[test]
fn a_changed_newer_row_hides_the_version_of_the_snapshot() {
    for lies in PLACES {
        let (world, mut txn) = changed_after_snapshot(7, lies);
        update(&world, &mut txn, (7, (100, 1)), (7, (100, 2)));
        let mut expected: Vec<_> = (1..=20).map(|id| (id, (id, 0))).collect();
        expected[6] = (7, (100, 2));
        assert_eq!(rows_by(&world, &mut txn, 0, false), expected, "{lies:?}");
        // By k the row comes last.
        let moved = expected.remove(6);
        expected.push(moved);
        assert_eq!(rows_by(&world, &mut txn, 1, false), expected, "{lies:?}");
    }
}

#[test]
fn a_changed_row_that_is_not_newer_writes_no_unchanged_entry() {
    for lies in PLACES {
        for (row, newer) in [(7, true), (8, false)] {
            let (world, mut txn) = changed_after_snapshot(7, lies);
            let k = if newer { 100 } else { row };
            let v = i32::from(newer);
            update(&world, &mut txn, (row, (k, v)), (row, (k, 5)));
            let entry = entry_key(&world, k, row);
            assert_eq!(
                txn.has_written(&entry).unwrap(),
                newer,
                "{lies:?}, row {row}"
            );
        }
    }
}

#[test]
fn a_deleted_newer_row_is_gone_from_all_indexes() {
    for lies in PLACES {
        let (world, mut txn) = changed_after_snapshot(7, lies);
        let old = record((7, (100, 1)));
        let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
        // SAFETY: blob columns must point to their bytes; this table has none.
        let deleted = unsafe {
            let table = &world.table;
            table.delete(&mut txn, &old, None, flags, &mut scratch)
        };
        deleted.unwrap();
        for index in [0, 1] {
            for locks in [false, true] {
                let rows = rows_by(&world, &mut txn, index, locks);
                assert_eq!(rows.len(), 19, "{lies:?}, index {index}, locks {locks}");
                assert!(rows.iter().all(|&(id, _)| id != 7));
            }
        }
    }
}
