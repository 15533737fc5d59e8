//! Checkpoints: their contents, the files they share, and targets that they refuse.

use firn::backup::CheckpointInfo;
use firn::base::options::Options;
use firn::base::{ErrorKind, Value};
use firn::db::Db;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv, PosixEnv, ReadClass};
use firn::txn::{Isolation, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

const INDEX: u32 = 1_000_000;

fn options() -> Options {
    Options {
        background_jobs: 0,
        wal_segment_size: 64 << 10,
        target_file_size: 8 << 10,
        block_size: 512,
        ..Options::default()
    }
}

fn open(env: &Arc<dyn Env>, dir: &Path) -> Arc<Db> {
    Db::open(Arc::clone(env), dir, options(), None).unwrap()
}

fn key(n: u64) -> Vec<u8> {
    [&INDEX.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

fn begin(db: &Db) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1_000_000, false);
    txn
}

fn write(db: &Db, pairs: impl IntoIterator<Item = (u64, u64)>) {
    let mut txn = begin(db);
    for (n, value) in pairs {
        let text = format!("{value:0>100}");
        txn.put(&key(n), Value::split(text.as_bytes(), b""))
            .unwrap();
    }
    txn.commit().unwrap();
}

fn read(db: &Db, n: u64) -> Option<u64> {
    let txn = &mut begin(db);
    let point = txn.read_point();
    let read = |key: firn::base::InternalKey<'_>, value: Value<'_>| {
        let text = String::from_utf8(value.head.to_vec()).unwrap();
        key.kind.is_put().then(|| text.parse().unwrap())
    };
    txn.get(&point, &key(n), ReadClass::Point, read)
        .unwrap()
        .flatten()
}

#[test]
fn a_checkpoint_shares_files_and_nobody_writes_to_them() {
    let directory = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let source = directory.path().join("db");
    let db = open(&env, &source);
    write(&db, (0..500).map(|n| (n, 1)));
    db.compact_all().unwrap();
    write(&db, (0..100).map(|n| (n, 2)));
    let target = directory.path().join("one");
    let made = db.checkpoint(&target, false).unwrap();
    assert!(made.files > 0 && made.segments > 0, "{made:?}");
    assert_eq!(made.copied_bytes, 0);
    assert_eq!(made.info.seqno, firn::db::visible(&db));
    assert_eq!(CheckpointInfo::read(&*env, &target).unwrap(), made.info);
    let shared = std::fs::read_dir(&target).unwrap().filter(|entry| {
        let path = entry.as_ref().unwrap().path();
        env.links(&path).unwrap() == 2
    });
    assert_eq!(shared.count() as u64, made.files + made.segments);

    // Write to both, enough that each would recycle the shared segments.
    let copy = open(&env, &target);
    for round in 0..40 {
        write(&db, (0..200).map(|n| (n, 100 + round)));
        write(&copy, (0..200).map(|n| (n, 200 + round)));
        if round % 4 == 3 {
            db.flush().unwrap();
            copy.flush().unwrap();
        }
    }
    let second = directory.path().join("two");
    copy.checkpoint(&second, true).unwrap();
    db.compact_all().unwrap();
    copy.compact_all().unwrap();
    for (dir, db, value) in [(&source, db, 139), (&target, copy, 239)] {
        db.close().unwrap();
        drop(db);
        let again = open(&env, dir);
        assert_eq!(read(&again, 7), Some(value));
        assert_eq!(read(&again, 499), Some(1));
    }
    let second = open(&env, &second);
    assert_eq!(read(&second, 7), Some(239));
}

#[test]
fn a_checkpoint_taken_under_load_holds_every_commit_before_it_and_none_by_half() {
    const WRITERS: u64 = 3;
    let directory = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let loaded = Options {
        background_jobs: 1,
        ..options()
    };
    let db = Db::open(Arc::clone(&env), &directory.path().join("db"), loaded, None).unwrap();
    db.options()
        .mutable
        .memtable_size
        .store(64 << 10, Ordering::Relaxed);
    let stop = AtomicBool::new(false);
    let done: Vec<AtomicU64> = (0..WRITERS).map(|_| AtomicU64::new(0)).collect();
    let (db, done) = (&db, &done);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let stop = &stop;
            scope.spawn(move || {
                let mut n = 0;
                while !stop.load(Ordering::Acquire) {
                    n += 1;
                    // Two keys hold the number of the commit, and each commit adds a key.
                    let base = (writer + 1) << 32;
                    write(db, [(base, n), (base + 1, n), (base + 1 + n, n)]);
                    done[writer as usize].store(n, Ordering::Release);
                }
            });
        }
        for round in 0..8 {
            while done[0].load(Ordering::Acquire) < 50 * (round + 1) {
                std::thread::yield_now();
            }
            let before: Vec<u64> = done.iter().map(|n| n.load(Ordering::Acquire)).collect();
            let target = directory.path().join(format!("c{round}"));
            let made = db.checkpoint(&target, round % 2 == 0).unwrap();
            let after: Vec<u64> = done.iter().map(|n| n.load(Ordering::Acquire)).collect();
            let copy = open(&env, &target);
            assert_eq!(firn::db::visible(&copy), made.info.seqno);
            for writer in 0..WRITERS {
                let base = (writer + 1) << 32;
                let n = read(&copy, base).unwrap_or(0);
                assert_eq!(read(&copy, base + 1).unwrap_or(0), n);
                let range = before[writer as usize]..=after[writer as usize] + 1;
                assert!(range.contains(&n), "writer {writer}: {n}, not in {range:?}");
                assert!((1..=n).all(|i| i == 1 || read(&copy, base + 1 + i) == Some(i)));
                assert_eq!(read(&copy, base + 2 + n), None);
            }
        }
        stop.store(true, Ordering::Release);
    });
    db.close().unwrap();
}

#[test]
fn what_stands_in_the_way_stays() {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let db = open(&env, Path::new("/db"));
    write(&db, [(1, 1)]);
    let kind = |target: &str| {
        let refused = db.checkpoint(Path::new(target), false).unwrap_err();
        refused.kind().clone()
    };
    assert_eq!(kind("/db"), ErrorKind::AlreadyExists);
    assert_eq!(kind("/nowhere/c"), ErrorKind::NotFound);
    assert_eq!(kind("/"), ErrorKind::AlreadyExists);
    // A name with this suffix marks an unfinished checkpoint.
    assert_eq!(kind("/other.tmp"), ErrorKind::InvalidArgument);
    env.create_dir_all(Path::new("/c.tmp")).unwrap();
    drop(env.create(Path::new("/c.tmp/mine")).unwrap());
    assert_eq!(kind("/c"), ErrorKind::AlreadyExists);
    assert!(env.exists(Path::new("/c.tmp/mine")).unwrap());
    // A leftover file of an unfinished checkpoint is replaced.
    drop(env.create(Path::new("/c.tmp/CURRENT.tmp")).unwrap());
    env.remove(Path::new("/c.tmp/mine")).unwrap();
    db.checkpoint(Path::new("/c"), false).unwrap();
    assert_eq!(read(&open(&env, Path::new("/c")), 1), Some(1));
}

#[test]
fn a_checkpoint_that_fails_leaves_nothing_and_the_database_as_it_was() {
    for class in [
        CallClass::Create,
        CallClass::Rename,
        CallClass::Sync,
        CallClass::Write,
    ] {
        for nth in 1.. {
            let faulty = FaultEnv::new(Arc::new(MemEnv::new()));
            let env: Arc<dyn Env> = Arc::new(faulty.clone());
            let db = open(&env, Path::new("/db"));
            write(&db, (0..100).map(|n| (n, 1)));
            db.flush().unwrap();
            write(&db, (0..100).map(|n| (n, 2)));
            faulty.inject(Fault {
                class,
                nth,
                sticky: false,
                errno: Errno::NoSpace,
            });
            let made = db.checkpoint(Path::new("/c"), false);
            faulty.clear();
            let Err(error) = made else { break };
            assert!(nth < 400);
            let what = format!("{class:?} {nth}: {error}");
            assert!(!env.exists(Path::new("/c.tmp")).unwrap(), "{what}");
            assert_eq!(read(&db, 5), Some(2), "{what}");
            // If the log itself has failed, writes are refused until the next open.
            let mut txn = begin(&db);
            txn.put(&key(5), Value::split(b"3", b"")).unwrap();
            if txn.commit().is_err() {
                continue;
            }
            drop(txn);
            // If only the sync after the rename has failed, the complete checkpoint exists.
            if !env.exists(Path::new("/c")).unwrap() {
                db.checkpoint(Path::new("/c"), false).unwrap();
            }
            assert!(read(&open(&env, Path::new("/c")), 5).is_some(), "{what}");
        }
    }
}

/// Files that wait for their deletion do not become part of a checkpoint, which would keep their
/// room taken.
#[test]
fn a_checkpoint_leaves_out_what_waits_for_its_deletion() {
    let directory = tempfile::tempdir().unwrap();
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let db = open(&env, &directory.path().join("db"));
    write(&db, (0..500).map(|n| (n, 1)));
    db.compact_all().unwrap();
    let versions = db.context().ingest.versions();
    let store = versions.source().store();
    let waiting: Vec<(u64, u64)> = (0..20).map(|_| (versions.new_file_id(), 1 << 20)).collect();
    // A file that nothing names yet, as a running job writes it.
    let running = versions.new_file_id();
    for id in waiting.iter().map(|(id, _)| *id).chain([running]) {
        store.create(id).unwrap();
    }
    versions.give_up(&waiting);
    assert_eq!(versions.obsolete().0, 20);
    let target = directory.path().join("checkpoint");
    let made = db.checkpoint(&target, false).unwrap();
    let names = env.list_dir(&target).unwrap();
    let ssts = names.iter().filter(|name| name.ends_with(".sst")).count();
    assert_eq!(ssts as u64, made.files + 1, "{names:?}");
    let running = firn::store::file_name(firn::store::FileKind::Sst, running);
    assert!(names.contains(&running));
    assert_eq!(read(&open(&env, &target), 7), Some(1));
}
