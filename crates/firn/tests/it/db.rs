//! The database as a whole: transactions, recovery, flush and compaction.

use firn::base::options::{FlushMode, Options};
use firn::base::{ErrorKind, Kind, Value};
use firn::db::Db;
use firn::env::fault::{Class, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv, PosixEnv};
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::read::{ScanRange, scan_sources};
use firn::rowcode::{BlobBuf, blob_ref};
use firn::txn::{Isolation, LockMode, Transaction, WaitPolicy};
use firn::write::{Batch, What};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

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
    txn.get(&point, &key(name), read).unwrap().flatten()
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

/// An entry that no file can hold would keep the log from ever being let go: the database would not open again.
#[test]
fn what_no_file_can_hold_is_refused_by_the_statement() {
    const BYTES_MAX: usize = 1000;
    for spills in [false, true] {
        let env = MemEnv::new();
        let db = open(&env);
        let live = &db.options().live;
        live.entry_bytes_max
            .store(BYTES_MAX as u64, Ordering::Relaxed);
        if spills {
            live.txn_memory_limit.store(1, Ordering::Relaxed);
        }
        let longest = vec![7; BYTES_MAX - key("a").len()];
        let too_long = vec![7; longest.len() + 1];
        let mut txn = begin(&db);
        txn.put(&key("a"), Value::whole(&longest)).unwrap();
        let error = txn.put(&key("b"), Value::whole(&too_long)).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::TooLarge);
        txn.put(&key("c"), Value::split(&longest, b"")).unwrap();
        txn.commit().unwrap();
        // The last line, for whoever writes without a transaction.
        let mut batch = Batch::new();
        batch.add(&key("b"), Kind::Put, Value::whole(&too_long));
        let pipeline = &db.context().pipeline;
        let error = pipeline.commit(What::Batch, &batch, &[]).unwrap_err();
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
            let found = begin(&db).get(&point, &key(name), |_, value| value.len());
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
fn commits_survive_a_crash_before_and_after_flush_and_compaction() {
    let mut env = MemEnv::new();
    for round in 0..4u64 {
        let db = open(&env);
        for earlier in 0..round {
            for i in 0..50 {
                let name = format!("{earlier}-{i}");
                assert_eq!(
                    get(&mut begin(&db), &name),
                    Some(name.clone()),
                    "round {round}"
                );
            }
        }
        for i in 0..50 {
            let mut txn = begin(&db);
            let name = format!("{round}-{i}");
            put(&mut txn, &name, &name);
            txn.commit().unwrap();
        }
        match round {
            1 => db.flush().unwrap(),
            2 => db.compact_all().unwrap(),
            _ => {}
        }
        let mut lost = begin(&db);
        put(&mut lost, "lost", "never committed");
        let after = env.crash(round);
        drop(lost);
        drop(db);
        env = after;
    }
    let db = open(&env);
    assert_eq!(get(&mut begin(&db), "lost"), None);
    assert_eq!(get(&mut begin(&db), "3-49").as_deref(), Some("3-49"));
}

#[test]
fn prepared_transactions_wait_for_their_outcome_over_a_crash() {
    let mut env = MemEnv::new();
    {
        let db = open(&env);
        for name in ["commit", "rollback", "undecided"] {
            let mut txn = begin(&db);
            put(&mut txn, name, "1");
            txn.prepare(name.as_bytes()).unwrap();
            std::mem::forget(txn);
        }
        let mut done = begin(&db);
        put(&mut done, "done", "1");
        done.prepare(b"done").unwrap();
        done.commit_prepared(Some((b"binlog.000001", 4))).unwrap();
        done.commit().unwrap();
        db.sync_log().unwrap();
        env = env.crash(7);
    }
    for _ in 0..2 {
        let db = open(&env);
        assert_eq!(get(&mut begin(&db), "done").as_deref(), Some("1"));
        assert_eq!(get(&mut begin(&db), "commit"), None);
        assert_eq!(db.prepared_xids().len(), 3);
        drop(db);
        env = env.crash(8);
    }
    {
        let db = open(&env);
        assert!(db.commit_xid(b"commit").unwrap());
        assert!(db.rollback_xid(b"rollback").unwrap());
        assert!(!db.commit_xid(b"commit").unwrap());
        db.flush().unwrap();
        env = env.crash(9);
    }
    let db = open(&env);
    assert_eq!(db.prepared_xids(), [b"undecided".to_vec()]);
    assert_eq!(get(&mut begin(&db), "commit").as_deref(), Some("1"));
    assert_eq!(get(&mut begin(&db), "rollback"), None);
}

#[test]
fn a_recovery_keeps_prepared_transactions_durable_in_every_flush_mode() {
    for mode in [FlushMode::Lazy, FlushMode::Write] {
        let mut env = MemEnv::new();
        {
            let db = open(&env);
            let mut txn = begin(&db);
            put(&mut txn, "a", "1");
            txn.prepare(b"a").unwrap();
            std::mem::forget(txn);
            let mut other = begin(&db);
            put(&mut other, "b", "1");
            other.commit().unwrap();
            env = env.crash(0);
        }
        for _ in 0..2 {
            let options = options();
            options.live.set_flush_mode(mode);
            let shared: Arc<dyn Env> = Arc::new(env.clone());
            // The recovery flushes and lets go of the log that it read.
            let db = Db::open(shared, Path::new("/db"), options, None).unwrap();
            assert_eq!(db.prepared_xids(), [b"a".to_vec()], "{mode:?}");
            env = env.crash(0);
        }
    }
}

/// The binary log may have told others of the commit already: there is no way back for want of a few bytes.
#[test]
fn prepared_transactions_are_ended_on_a_full_disk() {
    for spills in [false, true] {
        let memory = MemEnv::new();
        let faults = FaultEnv::new(Arc::new(memory.clone()));
        let env: Arc<dyn Env> = Arc::new(faults.clone());
        let options = options();
        let limit = &options.live.txn_memory_limit;
        limit.store(if spills { 1 } else { 1 << 20 }, Ordering::Relaxed);
        let db = Db::open(env, Path::new("/db"), options, None).unwrap();
        let prepared = |name: &str| {
            let mut txn = begin(&db);
            put(&mut txn, name, "1");
            put(&mut txn, &format!("{name}, too"), "1");
            txn.prepare(name.as_bytes()).unwrap();
            txn
        };
        let (mut committed, mut undone) = (prepared("committed"), prepared("undone"));
        prepared("later").detach(db.new_owner(0));
        faults.inject(Fault {
            class: Class::Create,
            nth: 1,
            sticky: true,
            errno: Errno::NoSpace,
        });
        db.options()
            .live
            .txn_memory_limit
            .store(1 << 20, Ordering::Relaxed);
        loop {
            let mut filler = begin(&db);
            put(&mut filler, "filler", "1");
            if let Err(error) = filler.commit() {
                assert_eq!(*error.kind(), ErrorKind::NoSpace);
                break;
            }
        }
        committed
            .commit_prepared(Some((b"binlog.000001", 100)))
            .unwrap();
        committed.commit().unwrap();
        undone.rollback().unwrap();
        assert!(db.commit_xid(b"later").unwrap());
        drop((committed, undone, db));
        let db = open(&memory.crash(0));
        assert!(db.prepared_xids().is_empty());
        let mut txn = begin(&db);
        for (name, there) in [("committed", true), ("undone", false), ("later", true)] {
            assert_eq!(get(&mut txn, name).is_some(), there, "{name}");
            assert_eq!(get(&mut txn, &format!("{name}, too")).is_some(), there);
        }
    }
}

#[test]
fn a_recovery_cut_off_between_two_memtables_finds_the_prepare_record_again() {
    let small = || {
        let options = Options {
            wal_segment_size: 3 * 4096,
            ..options()
        };
        let size = &options.live.memtable_size;
        size.store(1024, std::sync::atomic::Ordering::Relaxed);
        options
    };
    let open = |env: &MemEnv| Db::open(Arc::new(env.clone()), Path::new("/db"), small(), None);
    let env = MemEnv::new();
    let db = open(&env).unwrap();
    let mut early = begin(&db);
    put(&mut early, "early", "1");
    early.prepare(b"early").unwrap();
    for i in 0..20 {
        let mut txn = begin(&db);
        put(&mut txn, &i.to_string(), &"x".repeat(200));
        txn.commit().unwrap();
    }
    early.commit().unwrap();
    for n in 1.. {
        let cut = env.crash(0);
        cut.crash_at_sync(n);
        let opened = open(&cut).is_ok();
        let db = open(&cut.crash(0)).unwrap_or_else(|e| panic!("after sync {n}: {e}"));
        assert_eq!(get(&mut begin(&db), "early").as_deref(), Some("1"));
        if opened {
            break;
        }
    }
}

#[test]
fn a_rollback_is_not_durable_before_what_the_log_has_before_it() {
    let env = MemEnv::new();
    let options = Options {
        wal_segment_size: 3 * 4096,
        ..options()
    };
    options.live.set_flush_mode(FlushMode::Lazy);
    let shared: Arc<dyn Env> = Arc::new(env.clone());
    let db = Db::open(shared, Path::new("/db"), options, None).unwrap();
    let mut first = begin(&db);
    put(&mut first, "first", "1");
    first.prepare(b"first").unwrap();
    for i in 0..8 {
        let mut txn = begin(&db);
        put(&mut txn, &i.to_string(), "1");
        txn.commit().unwrap();
        db.sync_log().unwrap();
    }
    let mut second = begin(&db);
    put(&mut second, "second", "1");
    second.prepare(b"second").unwrap();
    first.rollback().unwrap();
    db.flush().unwrap();
    let db = open(&env.crash(0));
    assert_eq!(db.prepared_xids(), [b"second".to_vec()]);
}

/// After a kill, what replay has read may be in the page cache only: what it says goes no earlier than it is durable.
#[test]
fn a_recovery_that_is_cut_off_leaves_the_files_of_what_comes_back() {
    let value = vec![7; 10_000];
    let state = |seed: u64| {
        let env = MemEnv::new();
        let options = options();
        options.live.set_flush_mode(FlushMode::Write);
        let spills = seed.is_multiple_of(2);
        let limit = &options.live.txn_memory_limit;
        limit.store(if spills { 1 } else { 1 << 20 }, Ordering::Relaxed);
        let shared: Arc<dyn Env> = Arc::new(env.clone());
        let db = Db::open(shared, Path::new("/db"), options, None).unwrap();
        let mut txn = begin(&db);
        for name in ["a", "b"] {
            txn.lock(&key(name), LockMode::Exclusive, None).unwrap();
            let mut tail = Vec::new();
            let blob = txn.write_blob(1, &value).unwrap();
            blob_ref::append(&mut tail, &[blob]);
            txn.put_with_blobs(&key(name), Value::split(b"row", &tail))
                .unwrap();
        }
        txn.prepare(b"x").unwrap();
        txn.rollback().unwrap();
        let mut other = begin(&db);
        put(&mut other, "other", "1");
        db.options()
            .live
            .txn_memory_limit
            .store(1 << 20, Ordering::Relaxed);
        other.commit().unwrap();
        env.kill()
    };
    let mut came_back = 0;
    for seed in 0..24 {
        for n in 1.. {
            let env = state(seed);
            env.crash_at_sync(n);
            let opened = Db::open(Arc::new(env.clone()), Path::new("/db"), options(), None).is_ok();
            let db = open(&env.crash(seed));
            if db.commit_xid(b"x").unwrap() {
                came_back += 1;
                let mut txn = begin(&db);
                let point = txn.read_point();
                for name in ["a", "b"] {
                    let read = |_: firn::base::InternalKey<'_>, value: Value<'_>| {
                        blob_ref::split(value.tail).unwrap().1.remove(0)
                    };
                    let blob = txn.get(&point, &key(name), read).unwrap().unwrap();
                    let mut buf = BlobBuf::new();
                    let found = db.context().blobs.read(&blob, &mut buf);
                    assert!(found.unwrap() == value, "seed {seed}, sync {n}");
                }
            }
            if opened {
                break;
            }
        }
    }
    assert!(came_back > 0, "no power cut took the rollback");
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

#[test]
fn counters_that_nobody_committed_survive_a_clean_close() {
    let env = MemEnv::new();
    let db = open(&env);
    db.catalog().counters().raise(99, 7);
    db.close().unwrap();
    drop(db);
    let db = open(&env.kill());
    assert!(db.catalog().counters().snapshot().contains(&(99, 7)));
}

/// A commit of counters alone has a seqno, too. With the log that held it gone, no other commit gets that one: backups and
/// the places to recover to are told apart by it.
#[test]
fn seqnos_of_commits_without_entries_are_not_given_out_again() {
    let env = MemEnv::new();
    let db = open(&env);
    let mut txn = begin(&db);
    put(&mut txn, "a", "1");
    txn.commit().unwrap();
    db.catalog().counters().raise(99, 7);
    db.catalog().persist_counters().unwrap();
    let last = db.context().pipeline.last_seqno();
    // Moves the log to its next segment, so that the flush lets go of the one with both.
    db.checkpoint(Path::new("/backup"), false).unwrap();
    db.flush().unwrap();
    let db = open(&env.kill());
    assert_eq!(db.context().pipeline.last_seqno(), last);
}

/// Rows that are read again after a flush come from the row cache, and never in a stale version: not
/// to a snapshot from before, not after the next flush, not after a compaction.
#[test]
fn the_row_cache_follows_flushes() {
    let db = open(&MemEnv::new());
    let commit = |value: &str| {
        let mut txn = begin(&db);
        put(&mut txn, "a", value);
        txn.commit().unwrap();
    };
    let read = |times: usize| {
        for _ in 1..times {
            get(&mut begin(&db), "a");
        }
        get(&mut begin(&db), "a").unwrap()
    };
    let hits = || db.counters().row_cache_hits;
    commit("1");
    assert_eq!((read(3).as_str(), hits()), ("1", 0));
    db.flush().unwrap();
    assert_eq!((read(3).as_str(), hits()), ("1", 2));
    let mut old = begin(&db);
    assert_eq!(get(&mut old, "a").as_deref(), Some("1"));
    commit("2");
    assert_eq!((read(3).as_str(), hits()), ("2", 3));
    db.flush().unwrap();
    // The flush has erased the row.
    assert_eq!((read(3).as_str(), hits()), ("2", 5));
    assert_eq!(get(&mut old, "a").as_deref(), Some("1"));
    old.commit().unwrap();
    assert_eq!((read(1).as_str(), hits()), ("2", 6));
    db.compact_all().unwrap();
    assert_eq!((read(2).as_str(), hits()), ("2", 8));
    commit("3");
    db.compact_all().unwrap();
    assert_eq!(read(3), "3");
}

/// Rows `0..count`, in as many runs of L0 as `rounds`, and a read of each of `range` twice.
fn cached_rows(db: &Db, rounds: u32, range: std::ops::Range<u32>) {
    for round in 0..rounds {
        let mut txn = begin(db);
        for row in 0..4000u32 {
            if row % rounds == round {
                let value = format!("{row:0>100}");
                txn.put(
                    &key(&format!("{row:06}")),
                    Value::split(value.as_bytes(), b"|tail"),
                )
                .unwrap();
            }
        }
        txn.commit().unwrap();
        db.flush().unwrap();
    }
    for _ in 0..2 {
        misses(db, range.clone());
    }
}

/// Blocks read from files while the rows are read once.
fn misses(db: &Db, range: std::ops::Range<u32>) -> u64 {
    let before = db.counters().block_cache_misses;
    let mut txn = begin(db);
    for row in range {
        assert!(get(&mut txn, &format!("{row:06}")).is_some());
    }
    db.counters().block_cache_misses - before
}

fn without_row_cache(block_cache_size: u64) -> Arc<Db> {
    let options = Options {
        row_cache_size: 0,
        block_cache_size,
        block_size: 1 << 10,
        ..options()
    };
    Db::open(Arc::new(MemEnv::new()), Path::new("/db"), options, None).unwrap()
}

#[test]
fn a_compaction_hands_cached_blocks_over() {
    let db = without_row_cache(64 << 20);
    cached_rows(&db, 3, 0..4000);
    assert_eq!(misses(&db, 0..4000), 0);
    let before = db.counters().block_cache_bytes;
    db.compact_all().unwrap();
    assert_eq!(misses(&db, 0..4000), 0, "blocks read after the compaction");
    let after = db.counters().block_cache_bytes;
    assert!(after < before * 11 / 10, "{before} bytes became {after}");
}

/// The cache is about as large as the tree, so that what the inputs leave behind would be in the way.
#[test]
fn a_full_cache_is_handed_over() {
    let db = without_row_cache(64 << 20);
    cached_rows(&db, 3, 0..4000);
    let size = db.counters().block_cache_bytes;
    drop(db);
    let db = without_row_cache(size * 5 / 4);
    cached_rows(&db, 3, 0..4000);
    let before = misses(&db, 0..4000);
    db.compact_all().unwrap();
    let after = misses(&db, 0..4000);
    let blocks = 4000 / 8;
    assert!(
        after <= before + blocks / 50,
        "{before} misses became {after}"
    );
}

#[test]
fn a_compaction_fills_no_cache() {
    let db = without_row_cache(64 << 20);
    cached_rows(&db, 3, 0..2000);
    let before = db.counters().block_cache_bytes;
    db.compact_all().unwrap();
    let after = db.counters().block_cache_bytes;
    assert!(after < before * 11 / 10, "{before} bytes became {after}");
    assert!(misses(&db, 0..2000) <= 1, "the border's block at most");
    let cold = misses(&db, 2000..4000);
    assert!(cold > 100, "{cold} blocks of rows nobody had read");
}

/// Files on a disk, read past the page cache: point reads, batches, scans over many blocks,
/// compactions, a restart; with `io_uring`, and as it is without.
#[test]
fn direct_reads_show_what_was_written() {
    for ring in [true, false] {
        direct_reads(ring);
    }
}

fn direct_reads(ring: bool) {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = Options {
            direct_reads: true,
            block_cache_size: 1 << 20,
            row_cache_size: 0,
            ..options()
        };
        let env = match ring {
            true => PosixEnv::new(),
            false => PosixEnv::without_ring(),
        };
        Db::open(Arc::new(env), dir.path(), options, None).unwrap()
    };
    let name = |n: u32| format!("{n:06}");
    let db = open();
    for half in [0, 1] {
        let mut txn = begin(&db);
        for n in (half..20_000).step_by(2) {
            put(&mut txn, &name(n), &name(n * 7 % 20_011).repeat(20));
        }
        txn.commit().unwrap();
        db.flush().unwrap();
    }
    db.compact_all().unwrap();
    db.close().unwrap();
    drop(db);
    let db = open();
    let before = db.counters().bytes_read;
    let mut txn = begin(&db);
    for n in (0..20_000).step_by(777) {
        assert_eq!(
            get(&mut txn, &name(n)),
            Some(name(n * 7 % 20_011).repeat(20))
        );
    }
    let wanted: Vec<Vec<u8>> = (0..300).map(|n| key(&name(n * 7919 % 20_100))).collect();
    let keys: Vec<&[u8]> = wanted.iter().map(|key| &key[..]).collect();
    let point = txn.read_point();
    let found = txn.multi_get(&point, &keys, |i, _, value| (i, value.head.to_vec()));
    for (at, found) in found.into_iter().enumerate() {
        let n = at as u32 * 7919 % 20_100;
        let expected = (n < 20_000).then(|| name(n * 7 % 20_011).repeat(20).into_bytes());
        assert_eq!(found.unwrap(), expected.map(|row| (at, row)), "row {n}");
    }
    let point = db.context().views.latest();
    let range = ScanRange {
        lower: 7u32.to_be_bytes().to_vec(),
        upper: Some(8u32.to_be_bytes().to_vec()),
    };
    let sources = scan_sources(&point.view, &range, None);
    let mut scan = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
    scan.set_bounds(Some(&range.lower), range.upper.as_deref());
    let mut on = scan.first().unwrap();
    for n in 0..20_000 {
        assert!(on, "the scan ends at {n}");
        assert_eq!(scan.user_key(), key(&name(n)));
        assert_eq!(
            scan.value().head,
            name(n * 7 % 20_011).repeat(20).as_bytes()
        );
        on = scan.next().unwrap();
    }
    assert!(!on);
    assert!(db.counters().bytes_read > before);
    let status = db.status_text();
    let line = |l: &&str| l.starts_with("batched reads: ");
    let line = status.lines().find(line).expect("in the status");
    assert!(ring || line.contains("threads"), "{line}");
    assert!(!line.contains(" 0 submitted"), "{line}");
}

/// A seek over several runs reads one block of each; those of all runs begin together, and only if
/// more than one is not cached.
#[test]
fn a_cold_seek_begins_with_all_runs() {
    for ring in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let env = match ring {
            true => PosixEnv::new(),
            false => PosixEnv::without_ring(),
        };
        let env = Arc::new(env);
        let options = Options {
            direct_reads: true,
            background_jobs: 0,
            row_cache_size: 0,
            ..options()
        };
        let shared = Arc::clone(&env) as Arc<dyn Env>;
        let db = Db::open(shared, dir.path(), options, None).unwrap();
        let name = |n: u32| format!("{n:06}");
        for round in 0..3 {
            let mut txn = begin(&db);
            for n in (round..6000).step_by(3) {
                put(&mut txn, &name(n), &name(n).repeat(20));
            }
            txn.commit().unwrap();
            db.flush().unwrap();
        }
        let runs: u64 = db.levels().iter().map(|level| level.runs).sum();
        assert!(runs >= 2, "{runs} runs");
        let submitted = || env.batched_reads().1.submitted;
        let first_from = |n: u32| {
            let point = db.context().views.latest();
            let upper = 8u32.to_be_bytes();
            let lower = key(&name(n));
            let range = ScanRange {
                lower: lower.clone(),
                upper: Some(upper.to_vec()),
            };
            let sources = scan_sources(&point.view, &range, None);
            let mut scan = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
            scan.set_bounds(Some(&range.lower), range.upper.as_deref());
            assert!(scan.seek_ge(&lower).unwrap());
            assert_eq!(scan.user_key(), lower);
        };
        let before = submitted();
        first_from(3000);
        assert_eq!(submitted() - before, runs, "a block of each run");
        first_from(3000);
        assert_eq!(submitted() - before, runs, "all is cached");
    }
}
