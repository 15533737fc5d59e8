//! Prepared transactions without a session: they keep their unique values locked, and DDL away from
//! the tables they have changed.

use super::schema::{column, int_index, open_or_create};
use firn::base::options::Options;
use firn::base::{ErrorKind, Result};
use firn::catalog::{DdlSession, SchemaChange, TableLocking, TableSchema};
use firn::db::Db;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv};
use firn::rowcode::{ColumnKind, NullBit};
use firn::table::{IndexBuild, RowScratch, Table, WriteFlags, WriteOutcome};
use firn::txn::{Isolation, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const RECORD: usize = 9;
const NULL: NullBit = NullBit { offset: 0, mask: 2 };

/// The schema `id INT PRIMARY KEY, k INT NULL, UNIQUE (k)`.
pub(super) fn schema() -> TableSchema {
    let int = ColumnKind::Fixed { len: 4 };
    let mut k = column(2, "k", int, 5);
    k.column.null = Some(NULL);
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: RECORD as u32,
        null_bytes: 1,
        columns: vec![column(1, "id", int, 1), k],
        indexes: vec![int_index("PRIMARY", true, 0), int_index("k", true, 1)],
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

pub(super) fn record(id: i32, k: Option<i32>) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[1..5].copy_from_slice(&id.to_le_bytes());
    match k {
        Some(k) => record[5..].copy_from_slice(&k.to_le_bytes()),
        None => record[0] = NULL.mask,
    }
    record
}

/// Opens the database and its table; with `spills`, transactions with more than one entry spill.
pub(super) fn open(env: &MemEnv, spills: bool) -> (Arc<Db>, Arc<Table>) {
    let (db, table) = open_in(Arc::new(env.clone()), Options::default());
    if spills {
        let mutable = &db.options().mutable;
        mutable.txn_memory_limit.store(1, Ordering::Relaxed);
    }
    (db, table)
}

/// As [`open`], with these options but without background threads.
pub(super) fn open_in(env: Arc<dyn Env>, options: Options) -> (Arc<Db>, Arc<Table>) {
    let options = Options {
        background_jobs: 0,
        ..options
    };
    let db = Db::open(env, Path::new("/db"), options, None).unwrap();
    let table = open_or_create(&db, "d/t", schema());
    (db, table)
}

pub(super) fn begin(db: &Db) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
    txn
}

pub(super) fn insert(
    table: &Table,
    txn: &mut Transaction,
    id: i32,
    k: Option<i32>,
) -> Result<WriteOutcome> {
    let flags = WriteFlags::default();
    // SAFETY: blob columns must point to their bytes; this table has none.
    unsafe { table.insert(txn, &record(id, k), flags, &mut RowScratch::default()) }
}

fn delete(table: &Table, txn: &mut Transaction, id: i32, k: Option<i32>) {
    let flags = WriteFlags::default();
    // SAFETY: blob columns must point to their bytes; this table has none.
    unsafe { table.delete(txn, &record(id, k), None, flags, &mut RowScratch::default()) }.unwrap();
}

fn is_done(written: Result<WriteOutcome>) -> bool {
    matches!(written.unwrap(), WriteOutcome::Done { .. })
}

/// Tries an insert in a transaction, and rolls it back.
fn tried(db: &Db, table: &Table, id: i32, k: Option<i32>) -> Result<WriteOutcome> {
    let mut txn = begin(db);
    let written = insert(table, &mut txn, id, k);
    txn.rollback().unwrap();
    written
}

/// A database after a crash, with a prepared transaction `x`. Row 1 has k = 5; `x` deletes it, or
/// inserts row 2 with k = 7 and row 3 with k NULL.
fn prepared(spills: bool, deletes: bool) -> (MemEnv, Arc<Db>, Arc<Table>) {
    let env = MemEnv::new();
    let (db, table) = open(&env, spills);
    let mut txn = begin(&db);
    assert!(is_done(insert(&table, &mut txn, 1, Some(5))));
    txn.commit().unwrap();
    let mut txn = begin(&db);
    if deletes {
        delete(&table, &mut txn, 1, Some(5));
    } else {
        assert!(is_done(insert(&table, &mut txn, 2, Some(7))));
        assert!(is_done(insert(&table, &mut txn, 3, None)));
    }
    assert_eq!(!txn.spilled_files().is_empty(), spills);
    txn.prepare(b"x").unwrap();
    let env = env.crash(1);
    let (db, table) = open(&env, spills);
    assert_eq!(db.prepared_xids(), [b"x".to_vec()]);
    (env, db, table)
}

#[test]
fn unique_values_of_a_recovered_transaction_stay_taken() {
    for (spills, deletes) in [(false, false), (false, true), (true, false), (true, true)] {
        let context = format!("spilled: {spills}, deletes: {deletes}");
        let (_env, db, table) = prepared(spills, deletes);
        let taken = if deletes { 5 } else { 7 };
        let refused = tried(&db, &table, 9, Some(taken)).unwrap_err();
        assert_eq!(*refused.kind(), ErrorKind::LockTimeout, "{context}");
        // Neighbouring values are free, and NULL may occur any number of times.
        assert!(is_done(tried(&db, &table, 9, Some(taken + 1))), "{context}");
        assert!(is_done(tried(&db, &table, 9, None)), "{context}");
        match deletes {
            true => assert!(db.rollback_xid(b"x").unwrap()),
            false => assert!(db.commit_xid(b"x").unwrap()),
        }
        let written = tried(&db, &table, 9, Some(taken)).unwrap();
        assert_eq!(written, WriteOutcome::Duplicate { index: 1 }, "{context}");
        let report = table
            .check(&db.context().super_versions, true, &|| false)
            .unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "{context}");
        assert_eq!(report.rows, if deletes { 1 } else { 3 }, "{context}");
    }
}

/// Tries each DDL that would orphan the changes of a prepared transaction.
fn changes_of_the_table(db: &Arc<Db>) -> Vec<(&'static str, Result<()>)> {
    let catalog = db.catalog();
    let table = Table::open(catalog, "d/t", schema(), &[]).unwrap();
    let mut dropped = schema();
    dropped.indexes.pop();
    let change = SchemaChange::of_indexes(dropped, vec![Some(0)]);
    let mut build = IndexBuild::new(table, db.context(), change).unwrap();
    let index = IndexBuild::commit(&mut [&mut build], b"", b"", &DdlSession::default());
    vec![
        ("drop an index", index),
        ("rename", catalog.rename("d/t", "d/u")),
        ("truncate", catalog.truncate("d/t").map(|_| ())),
        ("drop", catalog.drop_table("d/t")),
    ]
}

fn refused(db: &Arc<Db>, when: &str) {
    for (what, outcome) in changes_of_the_table(db) {
        let kind = outcome.map_err(|error| error.kind().clone());
        assert_eq!(kind, Err(ErrorKind::LockTimeout), "{what}, {when}");
    }
}

#[test]
fn a_table_with_prepared_changes_stays_as_it_is() {
    for spills in [false, true] {
        let (_env, db, table) = prepared(spills, false);
        refused(&db, "recovered");
        db.commit_xid(b"x").unwrap();
        let report = table
            .check(&db.context().super_versions, true, &|| false)
            .unwrap();
        assert_eq!((report.rows, report.problems), (3, Vec::new()));
        assert!(db.catalog().truncate("d/t").is_ok());
        assert!(db.catalog().drop_table("d/t").is_ok());
    }
}

#[test]
fn ddl_knows_of_a_prepared_transaction_before_its_session_ends() {
    for end in ["commit", "rollback", "detach"] {
        let (db, table) = open(&MemEnv::new(), false);
        let mut txn = begin(&db);
        assert!(is_done(insert(&table, &mut txn, 1, Some(5))));
        txn.prepare_to_stay(b"x").unwrap();
        refused(&db, "in its session");
        match end {
            "commit" => txn.commit().unwrap(),
            "rollback" => txn.rollback().unwrap(),
            _ => {
                txn.detach(db.new_owner(0));
                refused(&db, "detached");
                assert!(db.rollback_xid(b"x").unwrap());
            }
        }
        db.catalog().drop_table("d/t").unwrap();
    }
}

/// The changes of a prepared transaction stay in memory until its outcome, whoever has them.
#[test]
fn the_memory_of_prepared_changes_is_counted() {
    const ROWS: i32 = 2000;
    let env = MemEnv::new();
    let (db, table) = open(&env, false);
    let tracker = Arc::clone(&db.context().write_sets);
    let mut txn = begin(&db);
    for id in 0..ROWS {
        assert!(is_done(insert(&table, &mut txn, id, Some(id))));
    }
    let active = tracker.sum();
    txn.prepare_to_stay(b"x").unwrap();
    // A row has an entry of at least 16 bytes in each of two indexes.
    let least = 2 * 16 * ROWS as u64;
    assert!(tracker.sum() >= active + least, "beside the write set");
    txn.detach(db.new_owner(0));
    let detached = tracker.sum();
    assert!(detached >= least, "without a session");
    assert!(db.rollback_xid(b"x").unwrap());
    assert!(tracker.sum() + least <= detached);
    let mut txn = begin(&db);
    assert!(is_done(insert(&table, &mut txn, 1, Some(1))));
    for id in 2..ROWS {
        assert!(is_done(insert(&table, &mut txn, id, Some(id))));
    }
    txn.prepare(b"y").unwrap();
    let (db, _table) = open(&env.crash(1), false);
    assert!(db.context().write_sets.sum() >= least - 64, "recovered");
    assert!(db.commit_xid(b"y").unwrap());
    assert_eq!(db.context().write_sets.sum(), 0);
}

#[test]
fn a_run_keeps_of_the_log_what_the_empty_memtable_before_it_kept() {
    let env = MemEnv::new();
    let options = Options {
        wal_segment_size: 16 << 10,
        ..Options::default()
    };
    let (db, table) = open_in(Arc::new(env.clone()), options.clone());
    db.flush().unwrap();
    // The memtable stays empty, but must keep the log segments with the prepare and rollback
    // records until these are durable.
    for _ in 0..10 {
        let mut txn = begin(&db);
        for id in 0..100 {
            assert!(is_done(insert(&table, &mut txn, id, Some(id))));
        }
        txn.prepare(b"x").unwrap();
        txn.rollback().unwrap();
    }
    let kept = {
        let view = db.context().super_versions.pin();
        assert_eq!((view.active.entries(), view.frozen.len()), (0, 0));
        view.active.min_segment()
    };
    let mutable = &db.options().mutable;
    mutable.txn_memory_limit.store(1, Ordering::Relaxed);
    let mut txn = begin(&db);
    for id in 0..100 {
        assert!(is_done(insert(&table, &mut txn, id, Some(id))));
    }
    txn.commit().unwrap();
    {
        let view = db.context().super_versions.pin();
        assert!(view.active.min_segment() > kept, "the log has not gone on");
        assert_eq!(view.frozen.len(), 1);
        assert!(view.frozen[0].run().is_some());
        assert_eq!(view.frozen[0].min_segment(), kept);
    }
    let rows = |db: &Db, table: &Table| {
        let report = table
            .check(&db.context().super_versions, true, &|| false)
            .unwrap();
        assert_eq!(report.problems, [""; 0]);
        report.rows
    };
    assert_eq!(rows(&db, &table), 100);
    let (db, table) = open_in(Arc::new(env.crash(3)), options);
    assert!(db.prepared_xids().is_empty());
    assert_eq!(rows(&db, &table), 100);
}

/// A rollback that the log refuses leaves the transaction prepared: DDL never slips in between.
#[test]
fn ddl_is_refused_while_a_rollback_fails() {
    let fault = FaultEnv::new(Arc::new(MemEnv::new()));
    let (db, table) = open_in(Arc::new(fault.clone()), Options::default());
    let mut txn = begin(&db);
    assert!(is_done(insert(&table, &mut txn, 1, Some(5))));
    txn.prepare_to_stay(b"x").unwrap();
    txn.detach(db.new_owner(0));
    fault.inject(Fault {
        class: CallClass::Sync,
        nth: 1,
        sticky: true,
        errno: Errno::Io,
    });
    let mut other = begin(&db);
    assert!(is_done(insert(&table, &mut other, 2, Some(6))));
    assert!(other.commit().is_err(), "the log is poisoned");
    drop(other);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3000 {
                assert!(db.rollback_xid(b"x").is_err());
            }
            ended.store(true, Ordering::Release);
        });
        while !ended.load(Ordering::Acquire) {
            let error = db.catalog().drop_table("d/t").unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::LockTimeout);
        }
    });
    assert_eq!(db.prepared_xids(), [b"x".to_vec()]);
}
