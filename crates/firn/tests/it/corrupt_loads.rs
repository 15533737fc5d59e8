//! Damage in a database with files written by bulk loads and large transactions.

use super::prepared::{begin, insert, open, record, schema};
use crate::schema::open_or_create;
use firn::base::options::Options;
use firn::db::{Db, ReadOnlyDb, repair, visible};
use firn::env::{Env, MemEnv};
use firn::store::{FileKind, file_name};
use firn::table::{BulkLoad, RowScratch, Table, WriteFlags};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Loads rows with ids below `count`.
fn load(db: &Arc<Db>, table: &Arc<Table>, one_by_one: bool, count: i32) {
    let owner = db.new_owner(0);
    let mut load = BulkLoad::new(Arc::clone(table), db.context(), owner, one_by_one, 0).unwrap();
    let mut scratch = RowScratch::default();
    for id in 0..count {
        let record = record(id, Some(id));
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { load.insert(&record, WriteFlags::default(), &mut scratch) }.unwrap();
    }
    load.finish(&mut |_, _| Ok(())).unwrap();
}

#[test]
fn rows_that_were_loaded_outlive_the_manifest() {
    let env = MemEnv::new();
    let (db, table) = open(&env, false);
    load(&db, &table, false, 500);
    // A table that is loaded and dropped: its files may still be on disk.
    let gone = open_or_create(&db, "d/gone", schema());
    load(&db, &gone, false, 300);
    db.catalog().drop_table("d/gone").unwrap();
    // Rows that are inserted after the load.
    let mut txn = begin(&db);
    for id in 500..510 {
        insert(&table, &mut txn, id, Some(id)).unwrap();
    }
    txn.commit().unwrap();
    db.close().unwrap();
    drop((db, table, gone));
    // This open writes a new manifest, whose first edit names all files.
    let (db, table) = open(&env, false);
    db.close().unwrap();
    drop((db, table));
    let dir = Path::new("/db");
    let names = env.list_dir(dir).unwrap();
    let manifests = names.iter().filter(|name| name.starts_with("MANIFEST"));
    for name in manifests {
        env.damage(&dir.join(name), |bytes| bytes[30..].fill(0x55))
            .unwrap();
    }
    let env: Arc<dyn Env> = Arc::new(env);
    let look = ReadOnlyDb::open(Arc::clone(&env), dir).unwrap();
    let mut lost = Vec::new();
    let repaired = repair(&look, Path::new("/new"), &mut |error| lost.push(error)).unwrap();
    assert!(!lost.is_empty());
    assert_eq!(repaired.tables.len(), 1, "{lost:?}");
    assert_eq!(repaired.tables["d/t"], 510, "{lost:?}");
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    let db = Db::open(env, Path::new("/new"), options, None).unwrap();
    let table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
    let report = table
        .check(&db.context().super_versions, true, &|| false)
        .unwrap();
    assert_eq!((report.rows, report.problems), (510, Vec::new()));
}

#[test]
fn a_check_reads_files_that_wait_in_the_queue() {
    let env = MemEnv::new();
    let (db, table) = open(&env, true);
    let mut txn = begin(&db);
    for id in 0..100 {
        insert(&table, &mut txn, id, Some(id)).unwrap();
    }
    txn.commit().unwrap();
    let store = db.context().ingest.versions().source().store().clone();
    let ids = store.list().unwrap();
    assert!(!ids.is_empty());
    let problems = || {
        let report = table.check(&db.context().super_versions, true, &|| false);
        report.map_or(1, |report| report.problems.len())
    };
    assert_eq!(problems(), 0);
    for id in ids {
        // The check must read the file: the damaged blocks are also in the block cache by now.
        let path = Path::new("/db").join(file_name(FileKind::Sst, id));
        env.damage(&path, |bytes| bytes[20] ^= 1).unwrap();
    }
    assert!(problems() > 0);
}

#[test]
fn a_load_row_by_row_commits_pieces_whatever_a_transaction_may_take() {
    let (db, table) = open(&MemEnv::new(), false);
    db.options()
        .mutable
        .txn_memory_limit
        .store(16 << 10, Ordering::Relaxed);
    let before = visible(&db);
    load(&db, &table, true, 2000);
    // Each piece is a commit, and none is large enough to spill.
    assert!(visible(&db) - before > 10, "{}", visible(&db) - before);
    let store = db.context().ingest.versions().source().store().clone();
    assert_eq!(store.list().unwrap(), []);
    let report = table
        .check(&db.context().super_versions, true, &|| false)
        .unwrap();
    assert_eq!((report.rows, report.problems), (2000, Vec::new()));
}
