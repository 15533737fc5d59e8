//! The log stays bounded, whatever holds it: small commits, commits without entries, and prepared
//! transactions, which are logged again.

use super::*;
use crate::base::options::Options;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{ErrorKind, Value};
use crate::binlog::{BinlogFile, ServerRun};
use crate::env::{Env, MemEnv, ReadClass};
use crate::read;
use crate::store::PENDING;
use crate::txn::{Isolation, Transaction};
use crate::wal::parse_segment_name;
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const DB: &str = "/db";
const LIMIT: u64 = 256 << 10;

/// Most bytes that the log may take. It exceeds the limit by released segments that wait to be
/// recycled, and by records that are written until a freeze takes effect.
const BYTES_MAX: u64 = 2 * LIMIT;

fn open(env: &MemEnv) -> Arc<Db> {
    open_with(env, None)
}

fn open_with(env: &MemEnv, archive: Option<&str>) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        wal_segment_size: 16 << 10,
        log_archive_dir: archive.map(PathBuf::from),
        ..Options::default()
    };
    let mutable = &options.mutable;
    mutable.max_wal_size.store(LIMIT, Ordering::Relaxed);
    Db::open(Arc::new(env.clone()), Path::new(DB), options, None).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    [&1000u32.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

fn begin(db: &Db) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
    txn
}

fn write(db: &Db, n: u64) {
    let mut txn = begin(db);
    txn.put(&key(n), Value::whole(&[7; 100])).unwrap();
    txn.commit().unwrap();
}

/// A transaction with two entries; with `spills`, they are in a file.
fn prepare(db: &Db, xid: &[u8], first: u64, spills: bool) -> Transaction {
    let memory = &db.options().mutable.txn_memory_limit;
    let usual = memory.load(Ordering::Relaxed);
    if spills {
        memory.store(1, Ordering::Relaxed);
    }
    let mut txn = begin(db);
    for n in [first, first + 1] {
        txn.put(&key(n), Value::whole(&[8; 100])).unwrap();
    }
    txn.prepare(xid).unwrap();
    memory.store(usual, Ordering::Relaxed);
    txn
}

fn has(db: &Db, n: u64) -> bool {
    let point = db.context().super_versions.latest();
    let found = read::get(
        &point.super_version,
        &key(n),
        point.seqno,
        ReadClass::Point,
        |key, _| key.kind.is_put(),
    );
    found.unwrap() == Some(true)
}

/// Does what the background threads do.
fn work(db: &Db) -> u64 {
    while db.work.flush_oldest().unwrap() {}
    let relogged = db.bound_log().unwrap();
    while db.work.flush_oldest().unwrap() {}
    relogged
}

fn log_bytes(env: &MemEnv) -> u64 {
    let names = env.list_dir(Path::new(DB)).unwrap();
    let segments = names.iter().filter(|n| parse_segment_name(n).is_some());
    segments
        .map(|name| env.usage(&Path::new(DB).join(name)).unwrap().len)
        .sum()
}

/// Writes much more log than the limit, and checks that it is given back. Returns how many times
/// prepared transactions were logged again.
fn write_much(env: &MemEnv, db: &Db) -> u64 {
    let mut relogged = 0;
    for n in 0..1000 {
        write(db, n % 3);
        relogged += work(db);
        assert!(log_bytes(env) <= BYTES_MAX, "after {n} commits");
    }
    relogged
}

#[test]
fn small_changes_of_the_same_rows_do_not_keep_the_log() {
    let env = MemEnv::new();
    let db = open(&env);
    write_much(&env, &db);
    assert!(db.context().super_versions.pin().active.size_bytes() < 1 << 20);
    let env = env.crash(1);
    let db = open(&env);
    assert!((0..3).all(|n| has(&db, n)));
}

#[test]
fn commits_without_entries_do_not_keep_the_log() {
    let env = MemEnv::new();
    let db = open(&env);
    for n in 1..1000 {
        db.catalog().persist_counter(77_777, n).unwrap();
        work(&db);
        assert!(log_bytes(&env) <= BYTES_MAX, "after {n} commits");
    }
    let db = open(&env.crash(2));
    assert_eq!(db.catalog().counters().cell(77_777).read().value, 999);
}

#[test]
fn ended_transactions_do_not_keep_the_log() {
    let env = MemEnv::new();
    let db = open(&env);
    for n in 0..500 {
        prepare(&db, b"x", 10, n % 9 == 0).rollback().unwrap();
        work(&db);
        assert!(log_bytes(&env) <= BYTES_MAX, "after {n} rollbacks");
    }
}

#[test]
fn a_transaction_that_stays_prepared_is_logged_again() {
    for (spills, commits) in [(false, false), (false, true), (true, false), (true, true)] {
        let env = MemEnv::new();
        let db = open(&env);
        let mut txn = prepare(&db, b"x", 100, spills);
        let relogged = write_much(&env, &db);
        assert!((5..100).contains(&relogged), "{relogged}");
        if commits {
            // Commit in the session that prepared the transaction, after the log has gone on.
            txn.commit().unwrap();
            write_much(&env, &db);
        }
        let env = env.crash(3);
        let db = open(&env);
        let expected: &[&[u8]] = if commits { &[] } else { &[b"x"] };
        assert_eq!(db.prepared_xids(), expected, "spills: {spills}");
        if !commits {
            assert!(!has(&db, 100));
            // Recovery has adopted the prepared transaction. The reopened database logs it again,
            // too.
            assert!(write_much(&env, &db) > 0);
            assert!(db.commit_xid(b"x").unwrap());
        }
        let db = open(&env.crash(4));
        assert!(has(&db, 100) && has(&db, 101), "spills: {spills}");
        assert!(db.prepared_xids().is_empty());
    }
}

#[test]
fn a_rollback_after_it_was_logged_again_stays() {
    let env = MemEnv::new();
    let db = open(&env);
    let mut txn = prepare(&db, b"x", 100, true);
    assert!(write_much(&env, &db) > 0);
    txn.rollback().unwrap();
    db.sync_log().unwrap();
    for seed in 0..3 {
        let db = open(&env.crash(seed));
        assert!(!has(&db, 100) && db.prepared_xids().is_empty());
    }
}

#[test]
fn no_crash_while_it_is_logged_again_loses_it() {
    for nth in 1..200 {
        let env = MemEnv::new();
        let db = open(&env);
        let _first = prepare(&db, b"x", 100, nth % 2 == 0);
        let _second = prepare(&db, b"y", 200, false);
        // Write until the prepare records keep enough log for `bound_log` to write them again.
        let mut n = 0;
        while db.work.wal.bytes_from(1) <= LIMIT / 2 {
            write(&db, n % 3);
            n += 1;
        }
        env.crash_at_sync(env.sync_points() + nth);
        let relogged = db.bound_log().and_then(|_| db.flush());
        let done = relogged.is_ok();
        drop((_first, _second, db));
        let env = env.crash(nth);
        let db = open(&env);
        assert_eq!(db.prepared_xids(), [b"x", b"y"], "crash at sync {nth}");
        for (xid, first) in [(b"x", 100), (b"y", 200)] {
            assert!(db.commit_xid(xid).unwrap());
            assert!(has(&db, first) && has(&db, first + 1));
        }
        if done {
            assert!(nth > 3, "{nth} syncs");
            return;
        }
    }
    panic!("it never ended");
}

#[test]
fn the_server_run_is_logged_again_with_the_transaction() {
    let run = |number: u32| {
        Some(Arc::new(ServerRun::Binlog(BinlogFile {
            path: PathBuf::from(format!("/binlog.{number}")),
            created: number,
            server_id: 1,
        })))
    };
    let env = MemEnv::new();
    let db = open(&env);
    let pipeline = &db.context().pipeline;
    pipeline.set_server_run(run(1));
    let _first = prepare(&db, b"x", 100, false);
    pipeline.set_server_run(run(2));
    let _second = prepare(&db, b"y", 200, false);
    assert!(write_much(&env, &db) > 0);
    // This transaction belongs to the second server run, although the log has named the first one
    // since.
    let _third = prepare(&db, b"z", 300, false);
    let db = open(&env.crash(5));
    let runs = db.context().prepared.runs();
    let found: Vec<_> = runs.iter().map(|(_, run)| Some(Arc::clone(run))).collect();
    assert_eq!(found, [run(1), run(2), run(2)]);
}

/// A step takes at most 256 transactions. One of the first 256 ends while their files are linked
/// for the archive, so a list made after that would have the next transaction, too, whose file is
/// not linked yet.
#[test]
fn an_archive_gets_the_files_of_all_that_is_logged_again() {
    const COUNT: u64 = 258;
    let env = MemEnv::new();
    let archive = Path::new("/archive");
    env.create_dir_all(archive).unwrap();
    let db = open_with(&env, Some("/archive"));
    let mut prepared: Vec<Transaction> = (0..COUNT)
        .map(|n| prepare(&db, &n.to_be_bytes(), 1000 + 2 * n, true))
        .collect();
    let pending = Path::new(DB).join(PENDING);
    let files = || {
        let mut names = env.list_dir(&pending).unwrap();
        names.retain(|name| parse_segment_name(name).is_none());
        names.len() as u64
    };
    // Each transaction has two entries, and each entry exceeds the limit and so gets its own file.
    assert_eq!(files(), 2 * COUNT);
    // All the files are in the archive, and then somebody removes them there.
    let timeout_us = &db.options().mutable.log_archive_timeout_us;
    timeout_us.store(0, Ordering::Relaxed);
    db.archive_log().unwrap();
    assert_eq!(files(), 0);
    let mut fifth = Some(prepared.remove(4));
    let linked = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&linked);
    let (listed, dir) = (env.clone(), pending.clone());
    pause_points::on_this_thread(move |point| {
        if point != PausePoint::PinnedFilesKept {
            return;
        }
        if let Some(mut fifth) = fifth.take() {
            fifth.commit().unwrap();
        }
        seen.lock()
            .push(listed.list_dir(&dir).unwrap().len() as u64);
    });
    let before = db.work.wal.current_segment();
    let relogged = db.context().pipeline.relog_prepared(before);
    pause_points::clear();
    assert_eq!(relogged.unwrap(), COUNT - 1);
    assert_eq!(*linked.lock(), [2 * 256, 2 * 258]);
}

#[test]
fn a_full_disk_keeps_the_log_of_a_prepared_transaction() {
    let env = MemEnv::new();
    let db = open(&env);
    let _txn = prepare(&db, b"x", 100, false);
    env.fill();
    let refused = (0..1000).find_map(|_| {
        let mut txn = begin(&db);
        txn.put(&key(1), Value::whole(&[7; 3000])).unwrap();
        txn.commit().err()
    });
    assert_eq!(*refused.unwrap().kind(), ErrorKind::NoSpace);
    let current = db.work.wal.current_segment();
    let refused = db.context().pipeline.relog_prepared(current + 1);
    assert_eq!(*refused.unwrap_err().kind(), ErrorKind::NoSpace);
    env.unfill();
    let db = open(&env.crash(6));
    assert_eq!(db.prepared_xids(), [b"x"]);
}
