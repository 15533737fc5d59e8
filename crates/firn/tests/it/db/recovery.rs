//! Recovery after crashes.

use super::*;
use firn::base::blob_buf::BlobBuf;
use firn::base::blob_ref;
use firn::base::options::CommitDurability;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{FaultEnv, ReadClass};

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
    for mode in [CommitDurability::Lazy, CommitDurability::Write] {
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
            options.mutable.set_commit_durability(mode);
            let shared: Arc<dyn Env> = Arc::new(env.clone());
            // The recovery flushes and releases the segments that it has replayed.
            let db = Db::open(shared, Path::new("/db"), options, None).unwrap();
            assert_eq!(db.prepared_xids(), [b"a".to_vec()], "{mode:?}");
            env = env.crash(0);
        }
    }
}

/// A commit that is already in the binary log must not fail for lack of space.
#[test]
fn prepared_transactions_are_ended_on_a_full_disk() {
    for spills in [false, true] {
        let memory = MemEnv::new();
        let faults = FaultEnv::new(Arc::new(memory.clone()));
        let env: Arc<dyn Env> = Arc::new(faults.clone());
        let options = options();
        let limit = &options.mutable.txn_memory_limit;
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
            class: CallClass::Create,
            nth: 1,
            sticky: true,
            errno: Errno::NoSpace,
        });
        db.options()
            .mutable
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
        let size = &options.mutable.memtable_size;
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
    options
        .mutable
        .set_commit_durability(CommitDurability::Lazy);
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

/// After a kill, the records that replay reads may exist only in the page cache. So recovery must
/// sync the log before it deletes the files of rolled-back transactions: a power cut may take the
/// rollback record, and the transaction comes back.
#[test]
fn a_recovery_that_is_cut_off_leaves_the_files_of_what_comes_back() {
    let value = vec![7; 10_000];
    let state = |seed: u64| {
        let env = MemEnv::new();
        let options = options();
        options
            .mutable
            .set_commit_durability(CommitDurability::Write);
        let spills = seed.is_multiple_of(2);
        let limit = &options.mutable.txn_memory_limit;
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
            .mutable
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
                    let blob = txn
                        .get(&point, &key(name), ReadClass::Point, read)
                        .unwrap()
                        .unwrap();
                    let mut buf = BlobBuf::new();
                    let found = db.context().blobs.read(&blob, ReadClass::Blob, &mut buf);
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
fn counters_that_nobody_committed_survive_a_clean_close() {
    let env = MemEnv::new();
    let db = open(&env);
    db.catalog().counters().raise(99, 7);
    db.close().unwrap();
    drop(db);
    let db = open(&env.kill());
    assert!(db.catalog().counters().snapshot().contains(&(99, 7.into())));
}

/// A commit of counters alone has a seqno too. After its log segment is released, no other commit
/// may get the same seqno: backups and recovery points are identified by it.
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
    // The checkpoint ends the segment, so that the flush releases the one with both commits.
    db.checkpoint(Path::new("/backup"), false).unwrap();
    db.flush().unwrap();
    let db = open(&env.kill());
    assert_eq!(db.context().pipeline.last_seqno(), last);
}
