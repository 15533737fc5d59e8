//! Commits of more than half a memtable and half a log segment: they become runs of files, and stop
//! no other commit.

use firn::base::options::{CommitDurability, Options};
use firn::base::pause_points::{self, PausePoint};
use firn::base::{ErrorKind, Value};
use firn::db::Db;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv, ReadClass};
use firn::read;
use firn::store::{FileKind, file_name};
use firn::txn::{Isolation, Transaction};
use firn::version::Flushable;
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;

const DB: &str = "/db";
const SEGMENT: u64 = 64 << 10;

/// Bytes that a batch is expected to take for an entry besides its key and value.
const ENTRY_OVERHEAD: usize = 16;
const KEY_LEN: usize = 8;

/// How a transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Commit,
    TwoPhases,
}

const ENDS: [End; 2] = [End::Commit, End::TwoPhases];

/// Options with segments and memtables of `size` bytes. Commits of more than half of that are runs.
fn options(size: u64) -> Options {
    let options = Options {
        wal_segment_size: size,
        background_jobs: 0,
        ..Options::default()
    };
    options.mutable.memtable_size.store(size, Ordering::Relaxed);
    options
}

fn open(env: Arc<dyn Env>, segment_size: u64) -> Arc<Db> {
    Db::open(env, Path::new(DB), options(segment_size), None).unwrap()
}

fn key(index: u32, n: u32) -> Vec<u8> {
    [index.to_be_bytes(), n.to_be_bytes()].concat()
}

fn begin(db: &Db) -> Transaction {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
    txn
}

/// A value of `len` bytes that does not compress well.
fn value(n: u32, len: usize) -> Vec<u8> {
    let mut state = u64::from(n) + 1;
    let mut bytes = Vec::with_capacity(len);
    while bytes.len() < len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        bytes.push((state >> 56) as u8);
    }
    bytes
}

fn put(txn: &mut Transaction, index: u32, n: u32, len: usize) {
    txn.put(&key(index, n), Value::whole(&value(n, len)))
        .unwrap();
}

fn end(txn: &mut Transaction, end: End) -> firn::base::Result<()> {
    if end == End::TwoPhases {
        txn.prepare(b"x")?;
    }
    txn.commit()
}

fn small(db: &Db, n: u32) {
    let mut txn = begin(db);
    put(&mut txn, 1000, n, 10);
    txn.commit().unwrap();
}

fn has(db: &Db, index: u32, n: u32, len: usize) -> bool {
    let point = db.context().super_versions.latest();
    let found = read::get(
        &point.super_version,
        &key(index, n),
        point.seqno,
        ReadClass::Point,
        |key, found| key.kind.is_put() && [found.head, found.tail].concat() == value(n, len),
    );
    found.unwrap() == Some(true)
}

/// Numbers of files of the runs that wait for their place in the tree, newest first.
fn runs(db: &Db) -> Vec<usize> {
    let view = db.context().super_versions.pin();
    let runs = view.frozen.iter().filter_map(Flushable::run);
    runs.map(|run| run.run().files.len()).collect()
}

fn tables(db: &Db) -> BTreeSet<u64> {
    let store = db.context().ingest.versions().source().store().clone();
    store.list().unwrap().into_iter().collect()
}

/// Ids of the log segments on disk.
fn segments(env: &dyn Env) -> BTreeSet<u64> {
    let names = env.list_dir(Path::new(DB)).unwrap();
    let ids = names.iter().filter_map(|name| name.strip_suffix(".wal"));
    ids.map(|id| id.parse().unwrap()).collect()
}

#[test]
fn a_batch_takes_at_most_half_a_memtable() {
    const LEN: usize = 1000;
    let entry = KEY_LEN + LEN + ENTRY_OVERHEAD;
    let most = SEGMENT as usize / 2;
    for over in [0, 1] {
        for ends in ENDS {
            let db = open(Arc::new(MemEnv::new()), SEGMENT);
            let mut txn = begin(&db);
            let mut bytes = 0;
            let mut n = 0;
            while bytes + 2 * entry <= most {
                put(&mut txn, 1000, n, LEN);
                // Older versions of a key are not in the batch.
                put(&mut txn, 1000, 0, LEN);
                bytes += entry;
                n += 1;
            }
            let last = most + over - bytes - KEY_LEN - ENTRY_OVERHEAD;
            put(&mut txn, 1000, n, last);
            end(&mut txn, ends).unwrap();
            let view = db.context().super_versions.pin();
            let context = format!("{over} over, {ends:?}");
            assert_eq!(runs(&db).len(), over, "{context}");
            assert_eq!(view.active.entries() > 0, over == 0, "{context}");
            assert_eq!(!tables(&db).is_empty(), over == 1, "{context}");
            drop(view);
            assert!((0..n).all(|n| has(&db, 1000, n, LEN)), "{context}");
            assert!(has(&db, 1000, n, last), "{context}");
        }
    }
}

#[test]
fn small_commits_go_on_while_a_large_one_is_written() {
    const LARGE: u32 = 60 << 8;
    for ends in ENDS {
        let fault = FaultEnv::new(Arc::new(MemEnv::new()));
        let db = open(Arc::new(fault.clone()), 16 << 20);
        small(&db, 0);
        // No SST can be created.
        let next = db.context().ingest.versions().new_file_id() + 1;
        let created = (next..next + 1000).map(|id| file_name(FileKind::Sst, id));
        created.for_each(|name| fault.hang(&Path::new(DB).join(name)));
        std::thread::scope(|scope| {
            let large = scope.spawn(|| {
                let mut txn = begin(&db);
                (0..LARGE).for_each(|n| put(&mut txn, 2000, n, 4 << 10));
                assert_eq!(txn.spilled_files(), []);
                end(&mut txn, ends).unwrap();
            });
            while fault.hanging() == 0 {
                assert!(!large.is_finished(), "{ends:?}: it has created no file");
                std::thread::yield_now();
            }
            // They need two more log segments.
            let before = segments(&fault).len();
            (1..200).for_each(|n| small(&db, n));
            for n in 0..50 {
                let mut txn = begin(&db);
                put(&mut txn, 1001, n, 700 << 10);
                txn.commit().unwrap();
            }
            assert!(segments(&fault).len() > before);
            assert!(!large.is_finished());
            assert!(!has(&db, 2000, 0, 4 << 10));
            fault.clear();
            large.join().unwrap();
        });
        assert_eq!(runs(&db).len(), 1, "{ends:?}");
        for n in (0..LARGE).step_by(100) {
            assert!(has(&db, 2000, n, 4 << 10), "{ends:?}: {n}");
        }
        assert!((0..200).all(|n| has(&db, 1000, n, 10)));
        assert!((0..50).all(|n| has(&db, 1001, n, 700 << 10)));
    }
}

/// The larger one of memtable and log segment decides.
#[test]
fn either_a_large_memtable_or_a_large_segment_keeps_a_batch() {
    const SMALL: u64 = 32 << 10;
    for (segment, memtable, is_run) in [
        (SMALL, SEGMENT, false),
        (SEGMENT, SMALL, false),
        (SMALL, SMALL, true),
    ] {
        let options = options(segment);
        options
            .mutable
            .memtable_size
            .store(memtable, Ordering::Relaxed);
        let db = Db::open(Arc::new(MemEnv::new()), Path::new(DB), options, None).unwrap();
        let mut txn = begin(&db);
        (0..24).for_each(|n| put(&mut txn, 2000, n, 1000));
        txn.commit().unwrap();
        assert_eq!(runs(&db).len(), usize::from(is_run), "{segment} {memtable}");
        assert!((0..24).all(|n| has(&db, 2000, n, 1000)));
    }
}

/// A power cut at each sync of a large commit, which writes files for each of four indexes.
#[test]
fn a_large_commit_survives_a_power_cut_at_each_sync_or_is_gone() {
    const ROWS: u32 = 60;
    const LEN: usize = 1000;
    let modes = [CommitDurability::Sync, CommitDurability::Lazy];
    for (ends, mode) in ENDS.into_iter().flat_map(|e| modes.map(|mode| (e, mode))) {
        let (mut lost, mut kept, mut prepared) = (0, 0, 0);
        // Seed 0 keeps only what was synced; another keeps some of the rest.
        for (nth, seed) in (1..).flat_map(|nth| [(nth, 0), (nth, nth)]) {
            let context = format!("{ends:?}, {mode:?}, sync {nth}, seed {seed}");
            let env = MemEnv::new();
            let db = open(Arc::new(env.clone()), SEGMENT);
            small(&db, 0);
            db.options().mutable.set_commit_durability(mode);
            env.crash_at_sync(env.sync_points() + nth);
            let mut txn = begin(&db);
            (0..ROWS).for_each(|n| put(&mut txn, 2000 + n % 4, n, LEN));
            let ended = end(&mut txn, ends);
            let died = env.is_dead();
            assert!(ended.is_ok() || died, "{context}");
            drop((txn, db));
            let after = env.crash(seed);
            let db = open(Arc::new(after), SEGMENT);
            for xid in db.prepared_xids() {
                prepared += 1;
                // The files of the prepared transaction are there.
                match nth % 2 {
                    0 => assert!(db.commit_xid(&xid).unwrap(), "{context}"),
                    _ => assert!(db.rollback_xid(&xid).unwrap(), "{context}"),
                }
            }
            let found = (0..ROWS).filter(|&n| has(&db, 2000 + n % 4, n, LEN));
            let found = found.count();
            assert!(found == 0 || found == ROWS as usize, "{context}: {found}");
            assert!(has(&db, 1000, 0, 10), "{context}");
            if ended.is_ok() && mode == CommitDurability::Sync {
                assert!(found > 0, "{context}: acknowledged and lost");
            }
            match found {
                0 => lost += 1,
                _ => kept += 1,
            }
            // Nothing is left of a commit that is gone.
            db.flush().unwrap();
            while db.compact_once().unwrap() {}
            db.context().ingest.versions().delete_obsolete().unwrap();
            let view = db.context().super_versions.pin();
            let named: BTreeSet<u64> = view.version.files().map(|(_, f)| f.file_id).collect();
            assert_eq!(tables(&db), named, "{context}");
            if !died {
                break;
            }
        }
        // A commit that waits for no sync may be lost after its end, too.
        if mode == CommitDurability::Sync {
            assert!(lost > 1 && kept > 0, "{ends:?}: {lost} {kept}");
            assert_eq!(prepared > 0, ends == End::TwoPhases);
        }
    }
}

/// If there is no room or no descriptor for files, the commit is a batch as a small one is.
#[test]
fn without_files_a_large_commit_is_a_batch() {
    const ROWS: u32 = 60;
    const LEN: usize = 1000;
    let classes = [
        CallClass::Create,
        CallClass::Open,
        CallClass::Write,
        CallClass::Sync,
    ];
    for (ends, class) in ENDS
        .into_iter()
        .flat_map(|e| classes.map(|class| (e, class)))
    {
        let (mut batches, mut refused) = (0, 0);
        for nth in 1..100 {
            let context = format!("{ends:?}, {class:?} {nth}");
            let mem = MemEnv::new();
            let fault = FaultEnv::new(Arc::new(mem.clone()));
            let db = open(Arc::new(fault.clone()), SEGMENT);
            small(&db, 0);
            let before = fault.count(class);
            let mut txn = begin(&db);
            (0..ROWS).for_each(|n| put(&mut txn, 2000, n, LEN));
            fault.inject(Fault {
                class,
                nth,
                sticky: false,
                errno: match class {
                    CallClass::Open => Errno::ProcessTableFull,
                    _ => Errno::NoSpace,
                },
            });
            let ended = end(&mut txn, ends);
            let met = fault.count(class) - before >= nth;
            fault.clear();
            let is_batch = runs(&db).is_empty();
            match ended {
                Ok(()) => assert!(met || !is_batch, "{context}"),
                // The files were there, and the log could not take the record that names them.
                Err(error) => {
                    assert!(error.message().contains(".wal"), "{context}: {error}");
                    refused += 1;
                    continue;
                }
            }
            if is_batch {
                batches += 1;
                // Each call for the files comes before those for the log, so the fault has hit a
                // call for the log whenever the commit was refused.
                assert_eq!(refused, 0, "{context}");
                assert_eq!(tables(&db), BTreeSet::new(), "{context}");
            }
            assert!((0..ROWS).all(|n| has(&db, 2000, n, LEN)), "{context}");
            drop((txn, db));
            let db = open(Arc::new(mem.crash(0)), SEGMENT);
            assert!((0..ROWS).all(|n| has(&db, 2000, n, LEN)), "{context}");
            if !met {
                break;
            }
        }
        assert!(batches > 0, "{ends:?}, {class:?}");
    }
}

/// A transaction over very many indexes makes as many files as its bytes ask for, not one for each
/// index: small indexes share files.
#[test]
fn the_number_of_files_of_a_large_commit_does_not_depend_on_its_indexes() {
    const ROWS: u32 = 2400;
    const LEN: usize = 4 << 10;
    let files = [1, 20, 200, ROWS].map(|indexes| {
        let db = open(Arc::new(MemEnv::new()), 16 << 20);
        let mut txn = begin(&db);
        (0..ROWS).for_each(|n| put(&mut txn, 2000 + n % indexes, n, LEN));
        txn.commit().unwrap();
        let view = db.context().super_versions.pin();
        let run = view.frozen.iter().find_map(Flushable::run).unwrap();
        let of = |index| {
            run.run()
                .files
                .iter()
                .filter(move |f| f.index(index).is_some())
        };
        // No index is cut into small pieces.
        let most = (0..indexes)
            .map(|index| of(2000 + index).count())
            .max()
            .unwrap();
        assert!(
            indexes < 200 || most <= 2,
            "{indexes} indexes: one is in {most} files"
        );
        run.run().files.len()
    });
    assert!(files.iter().all(|&count| count <= 256), "{files:?}");
}

/// Savepoints, deletions and older versions: the run has the newest version of each key.
#[test]
fn a_large_commit_has_the_newest_version_of_each_key() {
    const ROWS: u32 = 100;
    const LEN: usize = 600;
    let env = MemEnv::new();
    let db = open(Arc::new(env.clone()), SEGMENT);
    let mut txn = begin(&db);
    (0..10).for_each(|n| put(&mut txn, 2000, n, 7));
    txn.commit().unwrap();
    let snapshot = db.context().super_versions.latest();
    txn.begin_statement(2, Isolation::ReadCommitted, 0, false);
    (0..ROWS).for_each(|n| put(&mut txn, 2000, n, LEN - 1));
    let mark = txn.savepoint();
    (0..ROWS).for_each(|n| put(&mut txn, 2000, n + 50, LEN + 1));
    txn.rollback_to(mark);
    (20..ROWS).for_each(|n| put(&mut txn, 2000, n, LEN));
    (0..5).for_each(|n| txn.delete(&key(2000, n)).unwrap());
    txn.commit().unwrap();
    assert_eq!(runs(&db).len(), 1);
    let check = |db: &Db| {
        assert!((0..5).all(|n| !has(db, 2000, n, LEN - 1) && !has(db, 2000, n, 7)));
        assert!((5..20).all(|n| has(db, 2000, n, LEN - 1)));
        assert!((20..ROWS).all(|n| has(db, 2000, n, LEN)));
        assert!((ROWS..2 * ROWS).all(|n| !has(db, 2000, n, LEN + 1)));
    };
    check(&db);
    // A reader from before sees the old rows.
    let old = read::get(
        &snapshot.super_version,
        &key(2000, 3),
        snapshot.seqno,
        ReadClass::Point,
        |key, found| key.kind.is_put() && found.len() == 7,
    );
    assert_eq!(old.unwrap(), Some(true));
    // The next transaction of the session begins with an empty write set.
    txn.begin_statement(3, Isolation::ReadCommitted, 0, false);
    put(&mut txn, 3000, 1, 7);
    txn.commit().unwrap();
    assert!(has(&db, 3000, 1, 7));
    assert_eq!(runs(&db).len(), 1);
    drop((snapshot, txn));
    db.flush().unwrap();
    check(&db);
    drop(db);
    check(&open(Arc::new(env.crash(1)), SEGMENT));
}

/// An ephemeral database has no log in which a large batch could be in the way.
#[test]
fn a_large_commit_in_an_ephemeral_database_is_a_batch() {
    let host = open(Arc::new(MemEnv::new()), SEGMENT);
    let db = host.open_ephemeral(Path::new("/temporary")).unwrap();
    let mut txn = begin(&db);
    (0..100).for_each(|n| put(&mut txn, 2000, n, 1000));
    txn.commit().unwrap();
    assert_eq!(runs(&db).len(), 0);
    assert!((0..100).all(|n| has(&db, 2000, n, 1000)));
}

/// A commit that panics when its record is in the log leaves its files, which the log names.
#[test]
fn a_panic_after_the_append_leaves_the_files() {
    const ROWS: u32 = 60;
    const LEN: usize = 1000;
    for (ends, spills) in ENDS.into_iter().flat_map(|e| [(e, false), (e, true)]) {
        let context = format!("{ends:?}, spills: {spills}");
        let env = MemEnv::new();
        let db = open(Arc::new(env.clone()), SEGMENT);
        small(&db, 0);
        if spills {
            let limit = &db.options().mutable.txn_memory_limit;
            limit.store(8 << 10, Ordering::Relaxed);
        }
        let mut txn = begin(&db);
        (0..ROWS).for_each(|n| put(&mut txn, 2000, n, LEN));
        assert_eq!(!txn.spilled_files().is_empty(), spills, "{context}");
        let pipeline = Arc::clone(&db.context().pipeline);
        pause_points::on_this_thread(move |point| {
            if point == PausePoint::Sequenced {
                pipeline.sync_all().unwrap();
                panic!("injected");
            }
        });
        let ended = catch_unwind(AssertUnwindSafe(|| end(&mut txn, ends)));
        pause_points::clear();
        assert!(ended.is_err(), "{context}");
        drop((txn, db));
        let db = open(Arc::new(env.crash(0)), SEGMENT);
        assert!((0..ROWS).all(|n| has(&db, 2000, n, LEN)), "{context}");
        assert!(has(&db, 1000, 0, 10), "{context}");
    }
}

/// A prepare whose sync fails leaves its files, because the log may name them.
#[test]
fn a_failed_sync_of_a_prepare_leaves_the_files() {
    const ROWS: u32 = 60;
    const LEN: usize = 1000;
    let mut survived = 0;
    for nth in 1..40 {
        let mem = MemEnv::new();
        let fault = FaultEnv::new(Arc::new(mem.clone()));
        let db = open(Arc::new(fault.clone()), SEGMENT);
        small(&db, 0);
        let mut txn = begin(&db);
        (0..ROWS).for_each(|n| put(&mut txn, 2000, n, LEN));
        fault.inject(Fault {
            class: CallClass::Sync,
            nth,
            sticky: true,
            errno: Errno::Io,
        });
        let prepared = txn.prepare(b"x");
        drop((txn, db));
        if prepared.is_ok() {
            assert!(survived > 0, "no log named files");
            return;
        }
        let db = open(Arc::new(mem.kill()), SEGMENT);
        if db.prepared_xids() == [b"x"] {
            survived += 1;
            assert!(db.commit_xid(b"x").unwrap());
            assert!((0..ROWS).all(|n| has(&db, 2000, n, LEN)), "sync {nth}");
        }
    }
    panic!("a prepare has fewer syncs");
}

#[test]
fn a_kill_ends_the_writing_of_files_and_nothing_is_committed() {
    for ends in ENDS {
        let db = open(Arc::new(MemEnv::new()), SEGMENT);
        let owner = db.new_owner(0);
        let mut txn = db.new_transaction(Arc::clone(&owner));
        txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
        (0..60).for_each(|n| put(&mut txn, 2000, n, 1000));
        owner.interrupt();
        let error = end(&mut txn, ends).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::Interrupted);
        assert_eq!(tables(&db), BTreeSet::new());
        assert!(runs(&db).is_empty() && !has(&db, 2000, 0, 1000));
        // The next try of the session commits all of it.
        owner.clear_interrupt();
        end(&mut txn, ends).unwrap();
        assert!((0..60).all(|n| has(&db, 2000, n, 1000)));
    }
}

/// The files of a large commit fill the disk. Their room goes to the log, in which the batch needs
/// a segment of its own.
#[test]
fn files_that_found_no_room_leave_theirs_to_the_batch() {
    const SIZE: u64 = 16 << 20;
    const ROWS: u32 = 24 << 8;
    const LEN: usize = 4 << 10;
    let attempt = |nth: Option<u64>| {
        let mem = MemEnv::new();
        let fault = FaultEnv::new(Arc::new(mem.clone()));
        let db = open(Arc::new(fault.clone()), SIZE);
        small(&db, 0);
        let mut txn = begin(&db);
        (0..ROWS).for_each(|n| put(&mut txn, 2000, n, LEN));
        mem.fill();
        // The batch needs a segment of 16 MiB and one of 33 MiB. Beside the files that were
        // finished until the fault, there is less room.
        mem.make_room(53 << 20);
        let before = fault.count(CallClass::Write);
        if let Some(nth) = nth {
            fault.inject(Fault {
                class: CallClass::Write,
                nth,
                sticky: false,
                errno: Errno::NoSpace,
            });
        }
        txn.commit().unwrap();
        assert_eq!(runs(&db).len(), usize::from(nth.is_none()));
        assert_eq!(tables(&db).is_empty(), nth.is_some());
        assert!((0..ROWS).step_by(50).all(|n| has(&db, 2000, n, LEN)));
        fault.count(CallClass::Write) - before
    };
    let writes = attempt(None);
    attempt(Some(writes * 3 / 4));
}

/// The second of two large commits at a time meets an active memtable without entries, and leaves
/// no memtable to be flushed.
#[test]
fn a_large_commit_does_not_freeze_an_empty_memtable() {
    let db = open(Arc::new(MemEnv::new()), SEGMENT);
    let large = |index: u32| {
        let mut txn = begin(&db);
        (0..60).for_each(|n| put(&mut txn, index, n, 1000));
        txn.commit().unwrap();
    };
    let (large, db) = (&large, &db);
    std::thread::scope(|scope| {
        let (go, gone) = channel::<()>();
        scope.spawn(move || {
            pause_points::on_this_thread(move |point| {
                if point == PausePoint::Sequenced {
                    gone.recv().unwrap();
                }
            });
            large(2000);
            pause_points::clear();
        });
        while runs(db).is_empty() {
            std::thread::yield_now();
        }
        scope.spawn(|| large(2001));
        while runs(db).len() < 2 {
            std::thread::yield_now();
        }
        go.send(()).unwrap();
    });
    let view = db.context().super_versions.pin();
    let memtables = view.frozen.iter().filter_map(Flushable::memtable);
    assert_eq!(memtables.count(), 0);
    assert!((0..60).all(|n| has(db, 2000, n, 1000) && has(db, 2001, n, 1000)));
}

/// A small commit inserts into a memtable that has no entries yet, and ends at any moment of a
/// large commit. The memtable stays.
#[test]
fn a_large_commit_keeps_the_memtable_of_a_small_one_that_is_inserting() {
    for ends_when_sought in [true, false] {
        let env = MemEnv::new();
        let db = open(Arc::new(env.clone()), SEGMENT);
        let active = Arc::clone(&db.context().super_versions.pin().active);
        let (go, gone) = channel::<()>();
        std::thread::scope(|scope| {
            let db = &db;
            let inserts = scope.spawn(move || {
                pause_points::on_this_thread(move |point| {
                    if point == PausePoint::Sequenced {
                        gone.recv().unwrap();
                    }
                });
                small(db, 0);
                pause_points::clear();
            });
            while active.is_quiescent() {
                std::thread::yield_now();
            }
            let mut txn = begin(db);
            (0..60).for_each(|n| put(&mut txn, 2000, n, 1000));
            pause_points::on_this_thread(move |point| match point {
                PausePoint::InsertersSought if ends_when_sought => {
                    go.send(()).unwrap();
                    active.wait_quiescent();
                }
                PausePoint::Sequenced if !ends_when_sought => go.send(()).unwrap(),
                _ => {}
            });
            txn.commit().unwrap();
            pause_points::clear();
            inserts.join().unwrap();
        });
        let rows = |db: &Db| has(db, 1000, 0, 10) && (0..60).all(|n| has(db, 2000, n, 1000));
        assert!(rows(&db), "ends when sought: {ends_when_sought}");
        db.flush().unwrap();
        assert!(rows(&open(Arc::new(env.crash(0)), SEGMENT)));
    }
}

/// A batch of half a memtable is larger than a log segment. Without descriptors there is neither a
/// file for a run nor one for a segment: the large commit is refused, and small ones go on.
#[test]
fn without_descriptors_a_commit_larger_than_a_segment_is_refused() {
    for ends in ENDS {
        let fault = FaultEnv::new(Arc::new(MemEnv::new()));
        let db = open(Arc::new(fault.clone()), SEGMENT);
        let memtable_size = &db.options().mutable.memtable_size;
        memtable_size.store(4 * SEGMENT, Ordering::Relaxed);
        small(&db, 0);
        let mut txn = begin(&db);
        (0..150).for_each(|n| put(&mut txn, 2000, n, 1000));
        fault.inject(Fault {
            class: CallClass::Open,
            nth: 1,
            sticky: true,
            errno: Errno::ProcessTableFull,
        });
        let error = end(&mut txn, ends).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NoDescriptor, "{ends:?}: {error}");
        // The current segment has room for them.
        (1..8).for_each(|n| small(&db, n));
        fault.clear();
        assert!(runs(&db).is_empty() && !has(&db, 2000, 0, 1000));
        end(&mut txn, ends).unwrap();
        assert_eq!(runs(&db).len(), 1);
        assert!((0..150).all(|n| has(&db, 2000, n, 1000)));
        assert!((0..8).all(|n| has(&db, 1000, n, 10)));
    }
}

/// The row cache loses the rows that a large commit has changed, and keeps their neighbours.
#[test]
fn a_large_commit_costs_the_row_cache_its_own_keys() {
    const ROWS: u32 = 200;
    const LEN: usize = 1000;
    let options = Options {
        row_cache_size: 8 << 20,
        ..options(SEGMENT)
    };
    let db = Db::open(Arc::new(MemEnv::new()), Path::new(DB), options, None).unwrap();
    let mut txn = begin(&db);
    (0..ROWS).for_each(|n| put(&mut txn, 2000, n, LEN));
    txn.commit().unwrap();
    db.flush().unwrap();
    let cached = || {
        let view = db.context().super_versions.pin();
        view.rows.stats().entries
    };
    // A row gets into the cache once it was read several times.
    for _ in 0..5 {
        assert!((0..ROWS).all(|n| has(&db, 2000, n, LEN)));
    }
    let before = cached();
    assert!(before > u64::from(ROWS) / 2, "{before}");
    let mut txn = begin(&db);
    (0..ROWS)
        .step_by(2)
        .for_each(|n| put(&mut txn, 2000, n, LEN + 1));
    txn.commit().unwrap();
    assert_eq!(runs(&db).len(), 1);
    db.flush().unwrap();
    let after = cached();
    assert!(after + u64::from(ROWS) / 2 >= before, "{after} of {before}");
    for n in 0..ROWS {
        assert!(has(&db, 2000, n, LEN + usize::from(n % 2 == 0)), "{n}");
    }
}

/// The prepare record of a large transaction is logged again, and names the same files.
#[test]
fn a_large_prepared_transaction_is_logged_again() {
    const ROWS: u32 = 60;
    const LEN: usize = 1000;
    let env = MemEnv::new();
    let db = open(Arc::new(env.clone()), SEGMENT);
    let mut txn = begin(&db);
    (0..ROWS).for_each(|n| put(&mut txn, 2000, n, LEN));
    txn.prepare(b"x").unwrap();
    let first = *segments(&env).first().unwrap();
    let mut n = 0;
    while *segments(&env).last().unwrap() < first + 3 {
        small(&db, n);
        n += 1;
    }
    let current = *segments(&env).last().unwrap();
    let relogged = db.context().pipeline.relog_prepared(current - 1).unwrap();
    assert_eq!(relogged, 1);
    db.flush().unwrap();
    assert!(db.context().ingest.versions().log_number() > first);
    let after = open(Arc::new(env.copy().crash(0)), SEGMENT);
    assert_eq!(after.prepared_xids(), [b"x".to_vec()]);
    assert!(after.commit_xid(b"x").unwrap());
    assert!((0..ROWS).all(|n| has(&after, 2000, n, LEN)));
    assert!((0..n).all(|n| has(&after, 1000, n, 10)));
    txn.commit().unwrap();
    assert!((0..ROWS).all(|n| has(&db, 2000, n, LEN)));
}

#[test]
fn the_files_of_a_large_prepared_transaction_go_with_its_rollback() {
    let env = MemEnv::new();
    let db = open(Arc::new(env.clone()), SEGMENT);
    small(&db, 0);
    let mut txn = begin(&db);
    (0..60).for_each(|n| put(&mut txn, 2000, n, 1000));
    txn.prepare(b"x").unwrap();
    let files = tables(&db);
    assert!(!files.is_empty());
    // A power cut before the rollback finds the transaction and its files.
    let before = open(Arc::new(env.copy().crash(0)), SEGMENT);
    assert_eq!(before.prepared_xids(), [b"x".to_vec()]);
    // A background thread may have flushed the recovered row, too.
    assert!(tables(&before).is_superset(&files));
    txn.rollback().unwrap();
    db.context().ingest.versions().delete_obsolete().unwrap();
    assert!(tables(&db).is_disjoint(&files));
    let after = open(Arc::new(env.crash(0)), SEGMENT);
    assert!(after.prepared_xids().is_empty() && tables(&after).is_disjoint(&files));
    assert!(has(&after, 1000, 0, 10) && !has(&after, 2000, 0, 1000));
}
