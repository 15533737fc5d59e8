//! The database as a whole: transactions, recovery, flush and compaction.

use firn::base::options::Options;
use firn::base::{ErrorKind, Kind, Value};
use firn::db::Db;
use firn::env::{Env, MemEnv, ReadClass};
use firn::txn::{Isolation, LockMode, Transaction, WaitPolicy};
use firn::write::{Batch, CommitRecord};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

mod caches;
mod counters;
mod future_formats;
mod read_classes;
mod recovery;

fn options() -> Options {
    Options {
        background_jobs: 0,
        wal_segment_size: 1 << 16,
        ..Options::default()
    }
}

fn open(env: &MemEnv) -> Arc<Db> {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    Db::open(env, Path::new("/db"), options(), None).unwrap()
}

fn begin(db: &Db) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1_000_000, false);
    txn
}

/// A user key of index 7.
fn key(name: &str) -> Vec<u8> {
    [&7u32.to_be_bytes()[..], name.as_bytes()].concat()
}

fn put(txn: &mut Transaction, name: &str, value: &str) {
    txn.lock(&key(name), LockMode::Exclusive, None).unwrap();
    txn.put(&key(name), Value::split(value.as_bytes(), b"|tail"))
        .unwrap();
}

fn get(txn: &mut Transaction, name: &str) -> Option<String> {
    let point = txn.read_point();
    let read = |key: firn::base::InternalKey<'_>, value: Value<'_>| {
        key.kind.is_put().then(|| {
            assert_eq!(value.tail, b"|tail");
            String::from_utf8(value.head.to_vec()).unwrap()
        })
    };
    txn.get(&point, &key(name), ReadClass::Point, read)
        .unwrap()
        .flatten()
}

#[test]
fn a_snapshot_stays_where_it_is() {
    let db = open(&MemEnv::new());
    let (mut one, mut two) = (begin(&db), begin(&db));
    put(&mut one, "a", "1");
    assert_eq!(get(&mut two, "a"), None);
    assert_eq!(get(&mut one, "a").as_deref(), Some("1"));
    one.commit().unwrap();
    assert_eq!(get(&mut two, "a"), None);
    two.commit().unwrap();
    assert_eq!(get(&mut begin(&db), "a").as_deref(), Some("1"));
}

/// No flush could write an entry that is too large for a file: the log could never be released, and
/// the database would not open again.
#[test]
fn what_no_file_can_hold_is_refused_by_the_statement() {
    const BYTES_MAX: usize = 1000;
    for spills in [false, true] {
        let env = MemEnv::new();
        let db = open(&env);
        let mutable = &db.options().mutable;
        mutable
            .entry_bytes_max
            .store(BYTES_MAX as u64, Ordering::Relaxed);
        if spills {
            mutable.txn_memory_limit.store(1, Ordering::Relaxed);
        }
        let longest = vec![7; BYTES_MAX - key("a").len()];
        let too_long = vec![7; longest.len() + 1];
        let mut txn = begin(&db);
        txn.put(&key("a"), Value::whole(&longest)).unwrap();
        let error = txn.put(&key("b"), Value::whole(&too_long)).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::TooLarge);
        txn.put(&key("c"), Value::split(&longest, b"")).unwrap();
        txn.commit().unwrap();
        // The pipeline refuses it too, for callers without a transaction.
        let mut batch = Batch::new();
        batch.add(&key("b"), Kind::Put, Value::whole(&too_long));
        let pipeline = &db.context().pipeline;
        let error = pipeline
            .commit(CommitRecord::Batch, &batch, &[])
            .unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::TooLarge);
        db.flush().unwrap();
        drop((txn, db));
        let db = open(&env);
        let point = begin(&db).read_point();
        for (name, len) in [
            ("a", Some(longest.len())),
            ("b", None),
            ("c", Some(longest.len())),
        ] {
            let found =
                begin(&db).get(&point, &key(name), ReadClass::Point, |_, value| value.len());
            assert_eq!(found.unwrap(), len, "{name}");
        }
    }
}

#[test]
fn statements_and_savepoints_roll_back() {
    let db = open(&MemEnv::new());
    let mut txn = begin(&db);
    put(&mut txn, "a", "1");
    let mark = txn.savepoint();
    txn.begin_statement(2, Isolation::RepeatableRead, 0, false);
    put(&mut txn, "a", "2");
    put(&mut txn, "b", "2");
    txn.rollback_statement();
    assert_eq!(get(&mut txn, "a").as_deref(), Some("1"));
    assert_eq!(get(&mut txn, "b"), None);
    txn.begin_statement(3, Isolation::RepeatableRead, 0, false);
    put(&mut txn, "c", "3");
    txn.rollback_to(mark);
    assert_eq!(get(&mut txn, "c"), None);
    txn.commit().unwrap();
    assert_eq!(get(&mut begin(&db), "a").as_deref(), Some("1"));
}

#[test]
fn a_closed_database_leaves_nothing_behind() {
    let db = open(&MemEnv::new());
    let mut txn = begin(&db);
    put(&mut txn, "a", "1");
    txn.commit().unwrap();
    drop(txn);
    db.flush().unwrap();
    let pipeline = Arc::downgrade(&db.context().pipeline);
    drop(db);
    assert!(pipeline.upgrade().is_none());
}

#[test]
fn a_locked_row_is_not_available() {
    let db = open(&MemEnv::new());
    let (mut one, two) = (begin(&db), begin(&db));
    put(&mut one, "a", "1");
    let error = two
        .lock(&key("a"), LockMode::Shared, Some(WaitPolicy::NoWait))
        .unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::LockNotAvailable);
    one.rollback().unwrap();
    assert!(
        two.lock(&key("a"), LockMode::Shared, Some(WaitPolicy::NoWait))
            .unwrap()
            .newly
    );
}
