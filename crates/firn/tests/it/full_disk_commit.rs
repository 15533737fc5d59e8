//! Commit and prepare of a spilled transaction on a full disk: there is no room for its last file,
//! or for the WAL record that names its files.

use super::prepared::{begin, insert, open_in};
use firn::base::options::Options;
use firn::base::{Error, ErrorKind};
use firn::db::Db;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv};
use firn::table::Table;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The call for which there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    Prepare,
}

const LARGE: u64 = 100;

fn options() -> Options {
    Options {
        wal_segment_size: 16 << 10,
        ..Options::default()
    }
}

fn rows(db: &Db, table: &Table) -> u64 {
    let report = table
        .check(&db.context().super_versions, true, &|| false)
        .unwrap();
    assert_eq!(report.problems, [""; 0]);
    report.rows
}

/// Ids of the SSTs on disk.
fn tables(db: &Db) -> BTreeSet<u64> {
    let store = db.context().ingest.versions().source().store().clone();
    store.list().unwrap().into_iter().collect()
}

/// Commits five rows. The WAL record is no longer than one that names files.
fn small(db: &Db, table: &Table, number: i32) {
    let mut txn = begin(db);
    for id in 5 * number..5 * number + 5 {
        insert(table, &mut txn, id, Some(id)).unwrap();
    }
    txn.commit().unwrap();
}

/// Runs the large transaction after `before` small ones; from the `nth` creation of a file on,
/// creations fail. Returns the error of its end, if it failed.
fn run(end: End, before: i32, nth: u64) -> Option<Error> {
    let context = format!("{end:?} after {before}, {nth}");
    let mem = MemEnv::new();
    let faulty = FaultEnv::new(Arc::new(mem.clone()));
    let env: Arc<dyn Env> = Arc::new(faulty.clone());
    let (db, table) = open_in(env, options());
    (0..before).for_each(|id| small(&db, &table, id));
    let mutable = &db.options().mutable;
    let limit = mutable.txn_memory_limit.swap(1, Ordering::Relaxed);
    let mut txn = begin(&db);
    for id in 0..LARGE as i32 {
        insert(&table, &mut txn, 10_000 + id, None).unwrap();
    }
    assert!(!txn.spilled_files().is_empty());
    mutable.txn_memory_limit.store(limit, Ordering::Relaxed);
    faulty.inject(Fault {
        class: CallClass::Create,
        nth,
        sticky: true,
        errno: Errno::NoSpace,
    });
    let ended = match end {
        End::Commit => txn.commit(),
        End::Prepare => txn.prepare(b"x"),
    };
    let full = ended.err();
    let mut expected = 5 * before as u64;
    if let Some(error) = &full {
        assert_eq!(*error.kind(), ErrorKind::NoSpace, "{context}: {error}");
        assert_eq!(rows(&db, &table), expected, "{context}");
    }
    match &full {
        Some(_) => {
            txn.rollback().unwrap();
            assert_eq!(tables(&db), BTreeSet::new(), "{context}");
        }
        // The commit succeeds: for the outcome of a prepared transaction the log has kept room.
        None => {
            txn.commit().unwrap();
            expected += LARGE;
        }
    }
    faulty.clear();
    drop(txn);
    small(&db, &table, 5000);
    expected += 5;
    assert_eq!(rows(&db, &table), expected, "{context}");
    for env in [mem.copy().kill(), mem.crash(nth)] {
        let (db, table) = open_in(Arc::new(env), options());
        assert!(db.prepared_xids().is_empty(), "{context}");
        assert_eq!(rows(&db, &table), expected, "{context}");
        db.flush().unwrap();
        // The open has deleted some of the files that nothing names.
        db.context().ingest.versions().delete_obsolete().unwrap();
        let view = db.context().super_versions.pin();
        let named: BTreeSet<u64> = view.version.files().map(|(_, file)| file.file_id).collect();
        assert_eq!(tables(&db), named, "{context}");
        assert_eq!(rows(&db, &table), expected, "{context}");
    }
    full
}

#[test]
fn a_transaction_that_finds_the_disk_full_is_as_it_was() {
    for end in [End::Commit, End::Prepare] {
        let mut in_the_log = 0;
        for before in 0..12 {
            let met = (1..100).map_while(|nth| run(end, before, nth));
            in_the_log += met.filter(|error| error.message().contains(".wal")).count();
        }
        assert!(in_the_log > 0, "{end:?}: there was always room in the log");
    }
}
