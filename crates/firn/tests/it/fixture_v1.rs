//! A whole database of format version 1: SSTs, manifest, and a log with commits that are not
//! flushed. Old formats must stay readable for ever.

use firn::base::options::Options;
use firn::base::{Kind, Value};
use firn::catalog::{NewTable, TableLocking, TableSchema};
use firn::db::Db;
use firn::env::{Env, PosixEnv, ReadClass};
use firn::txn::{Isolation, LockMode, Transaction};
use std::path::{Path, PathBuf};
use std::sync::Arc;

fn kept() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/db-v1")
}

fn open(dir: &Path) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        wal_segment_size: 16 << 10,
        wal_direct_io: false,
        ..Options::default()
    };
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    Db::open(env, dir, options, None).unwrap()
}

fn begin(db: &Db) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
    txn
}

fn key(n: u32) -> Vec<u8> {
    [&100u32.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

fn put(db: &Db, numbers: std::ops::Range<u32>) {
    let mut txn = begin(db);
    for n in numbers {
        txn.lock(&key(n), LockMode::Exclusive, None).unwrap();
        txn.put(
            &key(n),
            Value::split(b"fixed", format!("text {n}").as_bytes()),
        )
        .unwrap();
    }
    txn.commit().unwrap();
}

fn definition() -> NewTable<'static> {
    let schema = TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: 8,
        null_bytes: 1,
        columns: Vec::new(),
        indexes: Vec::new(),
        primary: None,
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    };
    NewTable {
        schema,
        frm: b"image",
        version: b"uuid",
        created_micros: 1,
    }
}

/// Writes the fixture; fails if it exists.
#[test]
#[ignore = "writes the fixture that the other test reads"]
fn write_fixture() {
    let dir = kept();
    assert!(!dir.exists(), "a fixture is never written again");
    let db = open(&dir);
    db.catalog().create("d/t", definition()).unwrap();
    put(&db, 0..100);
    db.flush().unwrap();
    put(&db, 50..150);
    db.compact_all().unwrap();
    put(&db, 150..160);
    db.flush().unwrap();
    let mut gone = begin(&db);
    gone.lock(&key(7), LockMode::Exclusive, None).unwrap();
    gone.delete(&key(7)).unwrap();
    gone.commit().unwrap();
    let mut prepared = begin(&db);
    prepared.put(&key(200), Value::whole(b"prepared")).unwrap();
    prepared.prepare(b"xid").unwrap();
    db.catalog().counters().raise(77, 5);
    db.close().unwrap();
}

#[test]
fn a_database_of_version_1_opens() {
    let dir = tempfile::tempdir().unwrap();
    for file in std::fs::read_dir(kept()).unwrap() {
        let file = file.unwrap();
        std::fs::copy(file.path(), dir.path().join(file.file_name())).unwrap();
    }
    let db = open(dir.path());
    let mut txn = begin(&db);
    let point = txn.read_point();
    for n in 0..160 {
        let read = |entry: firn::base::InternalKey<'_>, value: Value<'_>| {
            (entry.kind, value.head.to_vec(), value.tail.to_vec())
        };
        let found = txn.get(&point, &key(n), ReadClass::Point, read).unwrap();
        match n {
            7 => assert!(found.is_none_or(|(kind, ..)| kind == Kind::Delete)),
            n => {
                let text = format!("text {n}").into_bytes();
                assert_eq!(found, Some((Kind::Put, b"fixed".to_vec(), text)), "key {n}");
            }
        }
    }
    assert_eq!(db.catalog().get("d/t").unwrap().frm, b"image");
    assert_eq!(db.prepared_xids(), [b"xid".to_vec()]);
    assert!(db.catalog().counters().snapshot().contains(&(77, 5.into())));
    assert!(db.commit_xid(b"xid").unwrap());
}
