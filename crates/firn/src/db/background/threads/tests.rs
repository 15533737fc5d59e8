use super::*;
use crate::base::Value;
use crate::base::health::FullDisk;
use crate::base::options::Options;
use crate::catalog::{NewTable, TableLocking, TableSchema};
use crate::db::Db;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{Env, FaultEnv, MemEnv, PosixEnv};
use crate::txn::Isolation;
use crate::write::Pressure;
use std::cell::Cell;
use std::io;
use std::path::Path;

thread_local! {
    /// Number of threads that this thread may still start; the next one is refused.
    static THREADS_LEFT: Cell<u32> = const { Cell::new(u32::MAX) };
}

/// The error of a system without room for another thread, if this test has asked for it.
pub(super) fn refuse_thread() -> Result<()> {
    match THREADS_LEFT.get() {
        0 => Err(Error::io(
            &io::Error::from_raw_os_error(11),
            "start a thread",
        )),
        u32::MAX => Ok(()),
        left => {
            THREADS_LEFT.set(left - 1);
            Ok(())
        }
    }
}

/// Without the threads that it started, a failed open would leave a second writer behind.
#[test]
fn an_open_that_gets_no_thread_ends_those_that_it_has() {
    let dir = tempfile::tempdir().unwrap();
    let options = || Options {
        background_jobs: 2,
        ..Options::default()
    };
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let db = Db::open(Arc::clone(&env), dir.path(), options(), None).unwrap();
    runs(&db, 1);
    db.close().unwrap();
    drop(db);
    let mut refused = 0;
    for left in 0.. {
        THREADS_LEFT.set(left);
        let opened = Db::open(Arc::clone(&env), dir.path(), options(), None);
        THREADS_LEFT.set(u32::MAX);
        match opened {
            Ok(db) => {
                db.close().unwrap();
                break;
            }
            Err(e) => {
                assert_eq!(*e.kind(), ErrorKind::Io { os_errno: 11 });
                refused += 1;
            }
        }
        // Nothing is left of the attempt: the threads share the environment.
        assert_eq!(Arc::strong_count(&env), 1, "after {left} threads");
    }
    assert!(refused >= 7, "{refused}");
}

/// A table with one row, without columns that matter.
fn dropped_table(db: &Db) {
    let schema = TableSchema {
        version: 2,
        older: std::sync::Arc::default(),
        record_len: 8,
        null_bytes: 1,
        columns: Vec::new(),
        indexes: Vec::new(),
        primary: None,
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    };
    let new = NewTable {
        schema,
        frm: b"",
        version: b"",
        created_micros: 0,
    };
    db.catalog().create("d/t", new).unwrap();
    db.catalog().drop_table("d/t").unwrap();
}

/// Under steady load a compaction is always due, so the compaction threads do not come to it.
#[test]
fn the_deletion_thread_forgets_dropped_indexes() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    dropped_table(&db);
    assert_eq!(db.catalog().retired().len(), 1);
    let thread = spawn(&db.work, "firn-delete", BackgroundWork::delete_loop).unwrap();
    for _ in 0..12_000 {
        if db.catalog().retired().is_empty() {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    db.work.stopping.store(true, Ordering::Release);
    thread.join().unwrap();
    assert!(db.catalog().retired().is_empty());
}

/// A background thread only logs that it could not delete the notes of dropped indexes, but a full
/// compaction promises that they are gone.
#[test]
fn a_full_compaction_fails_if_it_cannot_forget_dropped_indexes() {
    let mut failed = 0;
    for (class, nth) in [CallClass::Write, CallClass::Sync]
        .into_iter()
        .flat_map(|class| (1..40).map(move |nth| (class, nth)))
    {
        let env = FaultEnv::new(Arc::new(MemEnv::new()));
        let options = Options {
            background_jobs: 0,
            ..Options::default()
        };
        let path = Path::new("/db");
        let db = Db::open(Arc::new(env.clone()), path, options, None).unwrap();
        dropped_table(&db);
        env.inject(Fault {
            class,
            nth,
            sticky: false,
            errno: Errno::Io,
        });
        match db.compact_all() {
            Ok(()) => assert!(db.catalog().retired().is_empty(), "{class:?} {nth}"),
            Err(_) => failed += 1,
        }
    }
    assert!(failed > 4, "{failed}");
}

/// Writers wait at the gate for flushes and compactions, not for deletions.
#[test]
fn only_work_that_writers_wait_for_fails_them() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let work = &db.work;
    // `stopping` skips the pause after a failure.
    work.stopping.store(true, Ordering::Release);
    let error = Error::new(ErrorKind::NoDescriptor, "no file can be opened");
    work.failed("deleting files", &error);
    assert!(work.stall.failure().is_none());
    work.failed_for_writers("flush", &error);
    assert_eq!(
        *work.stall.failure().unwrap().kind(),
        ErrorKind::NoDescriptor
    );
}

fn open(dir: &Path) -> Arc<Db> {
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    Db::open(env, dir, options, None).unwrap()
}

/// Writes and flushes the same rows `count` times: `count` runs.
fn runs(db: &Arc<Db>, count: u64) {
    for run in 0..count {
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(run, Isolation::RepeatableRead, 1000, false);
        for n in 0..100u64 {
            let key = [&1000u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
            txn.put(&key, Value::whole(&[7; 200])).unwrap();
        }
        txn.commit().unwrap();
        db.flush().unwrap();
    }
}

#[test]
fn jobs_at_rest_do_not_look_like_a_slow_drain() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let work = &db.work;
    let rate = || {
        work.stall.set_pressure(Pressure {
            l0: 1.0,
            ..Pressure::default()
        });
        work.stall.stats().rate
    };
    runs(&db, 2);
    // A job of reason `Size`, long enough to measure a rate.
    work.stall.job_begins();
    std::thread::sleep(Duration::from_millis(250));
    work.stall.job_ends(100 << 20);
    let before = rate();
    assert!(before > 0);
    // Compactions move L0 to the last level. They are not of reason `Size`, so no writer waits for
    // them.
    let mut jobs = 0;
    while work.compact_once(RestGoal::Complete).unwrap() {
        jobs += 1;
    }
    assert!(jobs > 0);
    assert_eq!(rate(), before);
}

#[test]
fn a_closed_database_leaves_no_obsolete_file() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    runs(&db, 3);
    while db.work.compact_once(RestGoal::Complete).unwrap() {}
    assert!(db.work.versions.obsolete().0 > 0);
    let live = db.work.versions.current().files().count();
    db.close().unwrap();
    let on_disk = db.work.versions.source().store().list().unwrap();
    assert_eq!(on_disk.len(), live);
}

#[test]
fn obsolete_files_go_at_once_when_room_is_short() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    runs(&db, 3);
    let work = &db.work;
    while work.compact_once(RestGoal::Complete).unwrap() {}
    let (files, bytes) = work.versions.obsolete();
    assert!(files >= 3, "{files} files");
    // `stopping` skips the pause after a failure.
    work.stopping.store(true, Ordering::Release);
    work.failed(
        "a test",
        &Error::new(ErrorKind::ShutDown, "of another kind"),
    );
    assert_eq!(work.versions.obsolete(), (files, bytes));
    work.failed("a test", &Error::new(ErrorKind::NoSpace, "no room"));
    assert_eq!(work.versions.obsolete(), (0, 0));
    let on_disk = work.versions.source().store().list().unwrap();
    assert_eq!(on_disk.len(), work.versions.current().files().count());
}

#[test]
fn a_close_leaves_most_of_many_obsolete_files_unless_the_disk_is_full() {
    for full in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let db = open(dir.path());
        runs(&db, 1);
        let versions = &db.work.versions;
        let given_up: Vec<(u64, u64)> = (0..300)
            .map(|_| (versions.new_file_id(), 1 << 20))
            .collect();
        for &(id, _) in &given_up {
            versions.source().store().create(id).unwrap();
        }
        versions.give_up(&given_up);
        db.work.health.set_full(FullDisk::Compaction, full);
        db.close().unwrap();
        let left = versions.source().store().list().unwrap().len() - 1;
        assert_eq!(left, if full { 0 } else { 300 - 128 });
    }
}
