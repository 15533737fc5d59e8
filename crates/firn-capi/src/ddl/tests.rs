//! Definitions through the C ABI: what a crash leaves of `CREATE TABLE`, and what many `TRUNCATE`s
//! cost.

use super::*;
use crate::autoincrement::firn_autoinc_next_value;
use crate::schema::{
    FIRN_COLUMN_FIXED, FIRN_PART_INT, firn_column, firn_index, firn_key_part, firn_table_def,
};
use crate::session::{firn_session_free, firn_session_new};
use crate::table::{firn_table, firn_table_close, firn_table_open};
use firn::base::Value;
use firn::base::key::index_prefix;
use firn::base::options::Options;
use firn::catalog::{INDEX_IDS, autoincrement_counter};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn::txn::{Isolation, LockMode};
use std::path::Path;
use std::sync::Arc;

const DIR: &str = "/db";
const NAME: &std::ffi::CStr = c"d/t";

fn open(env: &MemEnv) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        wal_segment_size: 64 << 10,
        ..Options::default()
    };
    Db::open(Arc::new(env.clone()), Path::new(DIR), options, None).unwrap()
}

/// Calls `f` with the definition of `id INT AUTO_INCREMENT PRIMARY KEY`.
fn with_definition<T>(f: impl FnOnce(&firn_table_def) -> T) -> T {
    let column = firn_column {
        name: c"id".as_ptr(),
        kind: FIRN_COLUMN_FIXED,
        type_code: 3,
        offset: 1,
        len: 4,
        len_bytes: 0,
        chars: 0,
        interpretation: 0,
        null_offset: 0,
        null_mask: 0,
        stored: true,
        pad_len: 0,
        pad: [0; 4],
    };
    let part = firn_key_part {
        column: 0,
        kind: FIRN_PART_INT,
        prefix: 0,
        image_len: 4,
        desc: false,
        collation: std::ptr::null(),
    };
    let index = firn_index {
        name: c"PRIMARY".as_ptr(),
        parts: &raw const part,
        part_count: 1,
        unique: true,
    };
    f(&firn_table_def {
        record_len: 5,
        null_bytes: 1,
        columns: &raw const column,
        column_count: 1,
        indexes: &raw const index,
        index_count: 1,
        primary: 0,
        auto_increment: 0,
        collator: std::ptr::null(),
        default_record: std::ptr::null(),
        optimistic: false,
    })
}

/// `CREATE TABLE … AUTO_INCREMENT = next`.
fn create(db: &Arc<Db>, next: u64) -> firn_status {
    let handle = firn_db::over(Arc::clone(db));
    with_definition(|def| {
        // SAFETY: all pointers are to locals that live during the call.
        let created = unsafe {
            firn_create_table(
                handle,
                NAME.as_ptr(),
                def,
                std::ptr::null(),
                0,
                std::ptr::null(),
                0,
                next,
                std::ptr::null(),
            )
        };
        forget(handle);
        created
    })
}

/// Frees a handle, and leaves the database open.
fn forget(handle: *mut firn_db) {
    // SAFETY: the handle is from `firn_db::over` and is not used again.
    drop(unsafe { Box::from_raw(handle) });
}

/// The next AUTO_INCREMENT value of the table.
fn next_value(db: &Arc<Db>) -> u64 {
    let handle = firn_db::over(Arc::clone(db));
    let mut table: *mut firn_table = std::ptr::null_mut();
    with_definition(|def| {
        // SAFETY: all pointers are to locals that live during the calls.
        unsafe {
            let opened = firn_table_open(handle, NAME.as_ptr(), def, &raw mut table);
            assert_eq!(opened, firn_status::FIRN_OK);
            let next = firn_autoinc_next_value(table);
            firn_table_close(table);
            forget(handle);
            next
        }
    })
}

#[test]
fn a_crash_leaves_a_table_with_its_first_number_or_no_table() {
    let mut created = 0;
    for nth in 1..40 {
        let env = MemEnv::new();
        let db = open(&env);
        env.crash_at_sync(env.sync_points() + nth);
        let done = create(&db, 1000) == firn_status::FIRN_OK;
        if !done {
            assert!(env.is_dead());
        }
        drop(db);
        for env in [env.crash(nth), env.kill()] {
            let db = open(&env);
            let exists = db.catalog().get("d/t").is_ok();
            assert!(exists || !done, "sync {nth}");
            if exists {
                created += 1;
                assert_eq!(next_value(&db), 1000, "sync {nth}");
            }
        }
    }
    assert!(created > 10, "{created}");
}

/// Length of the manifest in force, and its name.
fn manifest(env: &MemEnv) -> (String, u64) {
    let names = env.list_dir(Path::new(DIR)).unwrap();
    let name = names
        .into_iter()
        .find(|n| n.starts_with("MANIFEST-"))
        .unwrap();
    let len = env.usage(&Path::new(DIR).join(&name)).unwrap().len;
    (name, len)
}

/// Brings the tree to rest. Returns the bytes of the edits that this needs; `None` if the manifest
/// was rewritten meanwhile.
fn rest(env: &MemEnv, db: &Db) -> Option<u64> {
    let (before, len) = manifest(env);
    db.flush().unwrap();
    while db.compact_once().unwrap() {}
    // Retired indexes are forgotten once no file and no memtable has entries of them.
    assert!(db.catalog().retired().len() < 500);
    assert!(db.catalog().counters().snapshot().len() < 10);
    let (after, grown) = manifest(env);
    (before == after).then(|| grown - len)
}

/// The second half of `costs` is at most `room` above the first.
fn check_flat(costs: &[u64], room: u64) {
    let (early, late) = costs.split_at(costs.len() / 2);
    let most = |costs: &[u64]| *costs.iter().max().expect("costs were measured");
    let (before, now) = (most(early), most(late));
    assert!(now <= before + room, "{now} bytes, before {before}");
}

/// 1000 pairs of `CREATE` and `DROP`, or `FIRN_TEST_CREATES` of them. Each table has a row and an
/// AUTO_INCREMENT counter when it is dropped.
#[test]
fn creates_and_drops_leave_nothing_behind() {
    let count = std::env::var("FIRN_TEST_CREATES");
    let count: u64 = count.map_or(1000, |count| count.parse().unwrap());
    let env = MemEnv::new();
    let db = open(&env);
    let handle = firn_db::over(Arc::clone(&db));
    let (mut edits, mut log, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for n in 1..=count {
        let before = db.counters().wal_bytes_written;
        assert_eq!(create(&db, 5), firn_status::FIRN_OK);
        let clustered = db.catalog().get("d/t").unwrap().clustered.id;
        db.catalog()
            .persist_counter(autoincrement_counter(clustered), 100 + n)
            .unwrap();
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
        let key = [&index_prefix(clustered)[..], b"row"].concat();
        txn.lock(&key, LockMode::Exclusive, None).unwrap();
        txn.put(&key, Value::whole(&[b'v'; 100])).unwrap();
        txn.commit().unwrap();
        // SAFETY: the handle is live, the name a string; no session is allowed.
        let done =
            unsafe { firn_drop_table(handle, std::ptr::null_mut(), NAME.as_ptr(), true, false) };
        assert_eq!(done, firn_status::FIRN_OK);
        log.push(db.counters().wal_bytes_written - before);
        if n % 50 == 0 {
            edits.extend(rest(&env, &db));
            memory.push(db.memory().total());
        }
    }
    check_flat(&edits, 256);
    check_flat(&log, 64);
    check_flat(&memory, 256 << 10);
    assert!(db.catalog().list("").is_empty());
    forget(handle);
    db.close().unwrap();
    drop(db);
    let db = open(&env);
    assert!(manifest(&env).1 < 64 << 10, "{:?}", manifest(&env));
    assert!(db.catalog().get("d/t").is_err());
}

/// 3000 `TRUNCATE`s, or `FIRN_TEST_TRUNCATES` of them. Each empties a table whose AUTO_INCREMENT
/// counter is in the manifest.
#[test]
fn truncates_leave_nothing_behind() {
    let count = std::env::var("FIRN_TEST_TRUNCATES");
    let count: u64 = count.map_or(3000, |count| count.parse().unwrap());
    let env = MemEnv::new();
    let db = open(&env);
    assert_eq!(create(&db, 5), firn_status::FIRN_OK);
    let handle = firn_db::over(Arc::clone(&db));
    let mut session = std::ptr::null_mut();
    // SAFETY: the handle is live; a session without host calls nothing back.
    let status = unsafe { firn_session_new(handle, std::ptr::null_mut(), 0, &raw mut session) };
    assert_eq!(status, firn_status::FIRN_OK);
    let (mut edits, mut log) = (Vec::new(), Vec::new());
    for n in 1..=count {
        let before = db.counters().wal_bytes_written;
        let entry = db.catalog().get("d/t").unwrap();
        let counter = autoincrement_counter(entry.clustered.id);
        db.catalog().persist_counter(counter, 100 + n).unwrap();
        // SAFETY: the handle is live, the name a string.
        let done = unsafe { firn_truncate_table(handle, session, NAME.as_ptr(), 0) };
        assert_eq!(done, firn_status::FIRN_OK);
        log.push(db.counters().wal_bytes_written - before);
        if n % 50 == 0 {
            edits.extend(rest(&env, &db));
        }
    }
    check_flat(&edits, 256);
    check_flat(&log, 0);
    assert!(db.catalog().counters().cell(INDEX_IDS).read().value >= count);
    // SAFETY: the session is not used afterwards.
    unsafe { firn_session_free(session) };
    forget(handle);
    db.close().unwrap();
    drop(db);
    let db = open(&env);
    // The manifest of the next start holds only the sum of all edits, so it is short.
    assert!(manifest(&env).1 < 64 << 10, "{:?}", manifest(&env));
    assert_eq!(next_value(&db), 1);
}
