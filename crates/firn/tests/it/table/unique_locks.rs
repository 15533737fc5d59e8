//! Locks of unique secondary keys: what reads, writes and rollbacks lock and release. The table is
//! `id INT PRIMARY KEY, k INT UNIQUE, v INT`.

use super::*;
use firn::base::{ErrorKind, Result};
use std::sync::atomic::Ordering;

type RowTuple = (i32, (i32, i32));

struct Unique {
    db: Arc<Db>,
    table: Arc<Table>,
    scratch: RowScratch,
}

impl Unique {
    /// The rows n → (10 n, 0) for n from 1 to `rows`.
    fn new(rows: i32) -> Self {
        let options = Options {
            background_jobs: 0,
            ..Options::default()
        };
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        let db = Db::open(env, Path::new("/db"), options, None).unwrap();
        let mut schema = schema();
        schema.indexes[1] = int_index("k", true, 1);
        let table = open_or_create(&db, "d/t", schema);
        let mut unique = Self {
            db,
            table,
            scratch: RowScratch::default(),
        };
        let mut txn = unique.begin(Isolation::ReadCommitted);
        for id in 1..=rows {
            unique.insert(&mut txn, (id, (10 * id, 0))).unwrap();
        }
        txn.commit().unwrap();
        unique
    }

    fn begin(&self, isolation: Isolation) -> Transaction {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        txn.begin_statement(1, isolation, 0, false);
        txn
    }

    /// Whether the row was inserted; false if one of its keys is taken.
    fn insert(&mut self, txn: &mut Transaction, row: RowTuple) -> Result<bool> {
        let flags = WriteFlags::default();
        let record = record(row);
        // SAFETY: blob columns must point to their bytes; this table has none.
        let done = unsafe { self.table.insert(txn, &record, flags, &mut self.scratch) };
        done.map(|outcome| matches!(outcome, WriteOutcome::Done { .. }))
    }

    fn update(&mut self, txn: &mut Transaction, old: RowTuple, new: RowTuple) -> Result<bool> {
        let flags = WriteFlags::default();
        let (old, new) = (record(old), record(new));
        let (table, scratch) = (&self.table, &mut self.scratch);
        // SAFETY: blob columns must point to their bytes; this table has none.
        let done = unsafe { table.update(txn, &old, &new, None, flags, scratch) };
        done.map(|outcome| matches!(outcome, WriteOutcome::Done { .. }))
    }

    fn delete(&mut self, txn: &mut Transaction, row: RowTuple) {
        let flags = WriteFlags::default();
        let record = record(row);
        let (table, scratch) = (&self.table, &mut self.scratch);
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.delete(txn, &record, None, flags, scratch) }.unwrap();
    }

    fn cursor(&self, index: usize, mode: ReadMode) -> Cursor {
        let mut cursor = Cursor::new(Arc::clone(&self.table));
        cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
        cursor
    }

    /// The outcome of an insert of a row with `k` by another transaction, in words.
    fn insert_of_other(&mut self, k: i32) -> &'static str {
        let mut txn = self.begin(Isolation::ReadCommitted);
        match self.insert(&mut txn, (1000 + k, (k, 0))) {
            Ok(true) => "inserted",
            Ok(false) => "duplicate",
            Err(error) if *error.kind() == ErrorKind::LockTimeout => "waits",
            Err(error) => panic!("{error}"),
        }
    }

    /// Whether another transaction can lock the row.
    fn is_free(&self, id: i32) -> bool {
        let mut txn = self.begin(Isolation::ReadCommitted);
        let mut cursor = self.cursor(0, ReadMode::Locking(LockMode::Exclusive));
        let key = id.to_le_bytes();
        let found = cursor.get(&mut txn, KeyImage::image(&key), &mut [0; RECORD]);
        found.is_ok_and(|found| found)
    }
}

/// Reads the row with `k` through the unique index.
fn look(cursor: &mut Cursor, txn: &mut Transaction, k: i32) -> Option<RowTuple> {
    let (mut buffer, key) = ([0; RECORD], k.to_le_bytes());
    let found = cursor.get(txn, KeyImage::image(&key), &mut buffer);
    found.unwrap().then(|| row(&buffer))
}

#[test]
fn a_locking_read_locks_the_unique_key_that_it_finds() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        for (mode, other) in [
            (LockMode::Exclusive, "waits"),
            (LockMode::Shared, "duplicate"),
        ] {
            let mut unique = Unique::new(3);
            let mut txn = unique.begin(isolation);
            let mut cursor = unique.cursor(1, ReadMode::Locking(mode));
            assert_eq!(look(&mut cursor, &mut txn, 20), Some((2, (20, 0))));
            assert_eq!(unique.insert_of_other(20), other);
            assert_eq!(unique.insert_of_other(10), "duplicate");
            assert!(!unique.is_free(2));
            // A read of the same row by its primary key does not lock its unique key.
            let mut by_id = unique.begin(isolation);
            let mut cursor = unique.cursor(0, ReadMode::Locking(LockMode::Exclusive));
            let key = 3_i32.to_le_bytes();
            let found = cursor.get(&mut by_id, KeyImage::image(&key), &mut [0; RECORD]);
            assert!(found.unwrap());
            assert_eq!(unique.insert_of_other(30), "duplicate");
            txn.rollback().unwrap();
            assert_eq!(unique.insert_of_other(20), "duplicate");
        }
    }
}

#[test]
fn a_row_that_does_not_match_is_released_with_its_unique_key() {
    let mut unique = Unique::new(3);
    let mut txn = unique.begin(Isolation::ReadCommitted);
    let mut cursor = unique.cursor(1, ReadMode::Locking(LockMode::Exclusive));
    look(&mut cursor, &mut txn, 20).unwrap();
    cursor.unlock_row(&txn);
    assert_eq!(txn.owner().locks_held(), 0);
    assert_eq!(unique.insert_of_other(20), "duplicate");
    // A lock that the transaction had before stays.
    look(&mut cursor, &mut txn, 20).unwrap();
    look(&mut cursor, &mut txn, 20).unwrap();
    cursor.unlock_row(&txn);
    assert_eq!(txn.owner().locks_held(), 2);
    assert_eq!(unique.insert_of_other(20), "waits");
}

#[test]
fn a_large_scan_of_a_unique_index_keeps_its_locks_in_little_memory() {
    let rows = 20_000;
    let mut unique = Unique::new(rows);
    let mut txn = unique.begin(Isolation::ReadCommitted);
    let mut cursor = unique.cursor(1, ReadMode::Locking(LockMode::Exclusive));
    let mut buffer = [0; RECORD];
    let mut on = cursor.first(&mut txn, &mut buffer).unwrap();
    while on {
        on = cursor.next(&mut txn, &mut buffer).unwrap();
    }
    assert_eq!(txn.owner().locks_held(), 2 * rows as usize);
    let memory = unique.db.context().locks.memory();
    assert!(memory.rows < 10_000, "{memory:?}");
    assert!(memory.merged_bytes < 100_000, "{memory:?}");
    assert_eq!(unique.insert_of_other(10 * rows / 2), "waits");
    assert!(!unique.is_free(rows / 2));
}

/// A shared read that the unique index covers leaves the row itself free, but no change of the
/// entry.
#[test]
fn a_shared_covered_read_locks_the_entry_alone() {
    let mut unique = Unique::new(4);
    let mut txn = unique.begin(Isolation::ReadCommitted);
    let mut cursor = unique.cursor(1, ReadMode::Locking(LockMode::Shared));
    cursor.set_columns(Some(&[0b011]), true, &[]).unwrap();
    for k in [10, 20, 30] {
        look(&mut cursor, &mut txn, k).unwrap();
    }
    assert_eq!(txn.owner().locks_held(), 3);
    let mut other = unique.begin(Isolation::ReadCommitted);
    assert!(
        unique
            .update(&mut other, (1, (10, 0)), (1, (10, 7)))
            .unwrap()
    );
    for changed in [(2, (21, 0)), (5, (20, 0))] {
        let refused = unique.update(&mut other, (2, (20, 0)), changed);
        assert_eq!(*refused.unwrap_err().kind(), ErrorKind::LockTimeout);
    }
    let record = record((3, (30, 0)));
    let (flags, table) = (WriteFlags::default(), Arc::clone(&unique.table));
    // SAFETY: blob columns must point to their bytes; this table has none.
    let refused = unsafe { table.delete(&mut other, &record, None, flags, &mut unique.scratch) };
    assert_eq!(*refused.unwrap_err().kind(), ErrorKind::LockTimeout);
}

#[test]
fn a_rollback_releases_what_the_writes_alone_had_locked() {
    for isolation in [Isolation::ReadCommitted, Isolation::RepeatableRead] {
        for spills in [false, true] {
            let mut unique = Unique::new(6);
            if spills {
                let mutable = &unique.db.context().mutable;
                mutable.txn_memory_limit.store(1, Ordering::Relaxed);
            }
            let mut txn = unique.begin(isolation);
            unique.insert(&mut txn, (50, (500, 0))).unwrap();
            unique.delete(&mut txn, (6, (60, 0)));
            txn.end_statement();
            let savepoint = txn.set_savepoint();
            txn.begin_statement(2, isolation, 0, false);
            unique.insert(&mut txn, (51, (510, 0))).unwrap();
            unique.insert(&mut txn, (52, (60, 0))).unwrap();
            txn.end_statement();
            txn.begin_statement(3, isolation, 0, false);
            assert!(unique.update(&mut txn, (2, (20, 0)), (2, (25, 0))).unwrap());
            unique.delete(&mut txn, (3, (30, 0)));
            assert!(
                !unique.insert(&mut txn, (53, (10, 0))).unwrap(),
                "duplicate"
            );
            for k in [510, 60, 20, 25, 30, 500] {
                assert_eq!(unique.insert_of_other(k), "waits", "{k}");
            }
            txn.rollback_statement();
            for (k, found) in [
                (20, "duplicate"),
                (25, "inserted"),
                (30, "duplicate"),
                (510, "waits"),
            ] {
                assert_eq!(unique.insert_of_other(k), found, "{k}");
            }
            txn.rollback_to(savepoint);
            for (k, found) in [(510, "inserted"), (60, "waits"), (500, "waits")] {
                assert_eq!(unique.insert_of_other(k), found, "{k}");
            }
            assert!(!unique.is_free(2), "a changed row stays locked");
            let mut other = unique.begin(Isolation::ReadCommitted);
            assert!(unique.insert(&mut other, (51, (511, 0))).unwrap());
            assert!(unique.insert(&mut other, (52, (520, 0))).unwrap());
            assert!(unique.insert(&mut other, (53, (530, 0))).unwrap());
            assert!(unique.insert(&mut other, (50, (540, 0))).is_err());
        }
    }
}

/// A row that is newer than the snapshot is hidden while the transaction has a version of its own
/// of it, and shown again after a rollback.
#[test]
fn a_rollback_shows_the_row_of_the_snapshot_again() {
    for spills in [false, true] {
        let mut unique = Unique::new(3000);
        if spills {
            let mutable = &unique.db.context().mutable;
            mutable.txn_memory_limit.store(10_000, Ordering::Relaxed);
        }
        let mut txn = unique.begin(Isolation::RepeatableRead);
        txn.fix_snapshot();
        let mut other = unique.begin(Isolation::ReadCommitted);
        for id in 1..=3000 {
            unique
                .update(&mut other, (id, (10 * id, 0)), (id, (10 * id + 1, 1)))
                .unwrap();
        }
        other.commit().unwrap();
        let read = |txn: &mut Transaction| {
            txn.pin();
            let mut cursor = unique_cursor(&unique, ReadMode::Snapshot);
            let mut found = Vec::new();
            let mut buffer = [0; RECORD];
            let mut on = cursor.first(txn, &mut buffer).unwrap();
            while on {
                found.push(row(&buffer));
                on = cursor.next(txn, &mut buffer).unwrap();
            }
            found
        };
        let old: Vec<RowTuple> = (1..=3000).map(|id| (id, (10 * id, 0))).collect();
        assert_eq!(read(&mut txn), old);
        let savepoint = txn.set_savepoint();
        let table = Arc::clone(&unique.table);
        let mut scratch = RowScratch::default();
        for id in 1..=3000 {
            let (before, after) = ((id, (10 * id + 1, 1)), (id, (10 * id + 2, 2)));
            let (before, after) = (record(before), record(after));
            let flags = WriteFlags::default();
            // SAFETY: blob columns must point to their bytes; this table has none.
            let done =
                unsafe { table.update(&mut txn, &before, &after, None, flags, &mut scratch) };
            assert!(matches!(done.unwrap(), WriteOutcome::Done { .. }));
        }
        let own: Vec<RowTuple> = (1..=3000).map(|id| (id, (10 * id + 2, 2))).collect();
        assert_eq!(read(&mut txn), own);
        txn.rollback_to(savepoint);
        assert_eq!(read(&mut txn), old);
    }
}

fn unique_cursor(unique: &Unique, mode: ReadMode) -> Cursor {
    unique.cursor(1, mode)
}
