//! Compactions that meet damaged files, and jobs that fail for other reasons.

use super::*;
use crate::base::health::FullDisk;
use crate::base::options::Options;
use crate::base::work_count::counted;
use crate::base::{Value, checksum};
use crate::compaction::RestGoal;
use crate::db::Db;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{Env, FaultEnv, MemEnv};
use crate::txn::Isolation;
use crate::version::{Edit, LAST_LEVEL, Version};
use std::path::{Path, PathBuf};

const DIR: &str = "/db";

pub(in crate::db::background) fn open(env: Arc<dyn Env>) -> Arc<Db> {
    open_with(env, |_| ())
}

fn open_with(env: Arc<dyn Env>, change: impl FnOnce(&mut Options)) -> Arc<Db> {
    let mut options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    change(&mut options);
    Db::open(env, Path::new(DIR), options, None).unwrap()
}

/// Writes and flushes one file of the table.
pub(in crate::db::background) fn write_file(db: &Arc<Db>, table: u32) {
    write(db, table..table + 1);
    db.flush().unwrap();
}

fn write(db: &Arc<Db>, tables: std::ops::Range<u32>) {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
    for table in tables {
        for n in 0..100u64 {
            let key = [&table.to_be_bytes()[..], &n.to_be_bytes()].concat();
            txn.put(&key, Value::whole(&[7; 200])).unwrap();
        }
    }
    txn.commit().unwrap();
}

/// The newest file of L0.
pub(in crate::db::background) fn newest(db: &Db) -> Arc<FileHandle> {
    let version = db.work.versions.current();
    version.l0[0].files.first().unwrap().clone()
}

fn path_of(id: u64) -> PathBuf {
    Path::new(DIR).join(file_name(FileKind::Sst, id))
}

/// Writes files of two tables, lets `harm` damage one of the first table in a closed database, and
/// compacts. The damage must fail one job, and the other table come to rest. Returns the damage.
fn met(harm: impl FnOnce(&MemEnv, u64)) -> DamagedFile {
    let env = MemEnv::new();
    let db = open(Arc::new(env.clone()));
    write_file(&db, 2000);
    write_file(&db, 2000);
    write_file(&db, 1000);
    write_file(&db, 1000);
    let id = newest(&db).file_id;
    db.close().unwrap();
    drop(db);
    harm(&env, id);
    let db = open(Arc::new(env));
    let mut damage = Vec::new();
    loop {
        match db.work.compaction_step(RestGoal::Complete).unwrap() {
            CompactionStep::Compacted => {}
            CompactionStep::NothingDue => break,
            CompactionStep::MetDamage(error) | CompactionStep::GaveUp(error) => damage.push(error),
        }
    }
    assert_eq!(damage.len(), 1, "{damage:?}");
    let version = db.work.versions.current();
    assert!(version.in_quarantine(id) && version.quarantine().len() == 1);
    for (level, file) in version.files() {
        let of_other = file.index(2000).is_some();
        assert!(
            !of_other || usize::from(level) == LAST_LEVEL,
            "L{level}: {file:?}"
        );
    }
    version.quarantine()[0].clone()
}

#[test]
fn a_file_of_another_format_version_is_set_aside() {
    let damaged = met(|env, id| {
        let change = |bytes: &mut Vec<u8>| {
            // The footer ends with version, checksum and magic.
            let (begin, len) = (bytes.len() - 72, bytes.len());
            bytes[len - 20] ^= 2;
            let sum = checksum::placed(&bytes[begin..len - 16], id, begin as u64);
            bytes[len - 16..len - 8].copy_from_slice(&sum.to_le_bytes());
        };
        env.damage(&path_of(id), change).unwrap();
    });
    assert_eq!(*damaged.error.kind(), ErrorKind::Unsupported);
}

#[test]
fn a_file_with_a_flipped_footer_is_set_aside() {
    let damaged = met(|env, id| {
        let change = |bytes: &mut Vec<u8>| {
            let len = bytes.len();
            bytes[len - 20] ^= 2;
        };
        env.damage(&path_of(id), change).unwrap();
    });
    assert!(damaged.error.is_corruption());
}

#[test]
fn a_missing_file_is_set_aside() {
    let damaged = met(|env, id| env.remove(&path_of(id)).unwrap());
    assert!(damaged.error.is_corruption());
}

#[test]
fn a_file_whose_entries_the_manifest_miscounts_is_damaged() {
    let db = open(Arc::new(MemEnv::new()));
    write_file(&db, 1000);
    let file = newest(&db);
    assert!(examine(0, &file).is_none());
    let version = with_meta(&db, |meta| {
        meta.entries += 1;
        meta.per_index[0].entries += 1;
    });
    let miscounted = &version.l0[0].files[0];
    let damaged = examine(0, miscounted).expect("damage");
    assert!(damaged.error.is_corruption() && !damaged.unreadable);
}

/// A version with one file, the newest of `db`, about which it says something else.
pub(in crate::db::background) fn with_meta(db: &Db, change: impl FnOnce(&mut FileMeta)) -> Version {
    let mut meta = FileMeta::clone(newest(db).meta());
    change(&mut meta);
    let mut state = crate::version::ManifestState::default();
    state.apply(&Edit {
        added: vec![(0, db.work.versions.current().l0[0].number, meta)],
        ..Edit::default()
    });
    Version::of_state(&state, db.work.versions.source())
}

/// If no input is damaged, the job is given up after some attempts, and other jobs run. Errors that
/// pass do not count.
#[test]
fn a_job_that_always_fails_is_passed_over() {
    let db = open(Arc::new(MemEnv::new()));
    write_file(&db, 1000);
    write_file(&db, 1000);
    let work = &db.work;
    let pick = || work.pick(&work.retired(), RestGoal::Complete);
    let fail = |error: &Error| {
        let (_, job, ticket) = pick().expect("a job");
        work.end(ticket, &job, Some(error))
    };
    for _ in 0..5 {
        assert!(fail(&Error::new(ErrorKind::NoSpace, "full")).is_none());
    }
    assert!(work.given_up.lock().is_none());
    let bug = Error::new(ErrorKind::ShutDown, "bug");
    // Damage of a file that the job does not read says nothing about its inputs.
    let elsewhere = Error::corruption(file_name(FileKind::Sst, 1 << 30), 0, "elsewhere");
    for error in [&bug, &elsewhere] {
        assert!(fail(error).is_none());
    }
    assert!(matches!(fail(&bug), Some(CompactionStep::GaveUp(_))));
    assert_eq!(work.given_up.lock().as_ref().unwrap().kind(), bug.kind());
    assert!(pick().is_none());
    assert!(work.versions.current().quarantine().is_empty());
    // Others go on, and so does this one with other inputs.
    write_file(&db, 1000);
    assert!(work.compact_once(RestGoal::Complete).unwrap());
    assert!(work.given_up.lock().is_none());
    // A full compaction tries again.
    write_file(&db, 1000);
    (0..3).for_each(|_| drop(fail(&bug)));
    assert!(pick().is_none());
    db.compact_all().unwrap();
    assert!(work.versions.current().l0.is_empty());
}

/// A file that the device cannot read is found again once it can.
#[test]
fn an_unreadable_file_is_set_aside_until_it_reads_again() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let db = open(Arc::new(env.clone()));
    write_file(&db, 1000);
    write_file(&db, 1000);
    let file = newest(&db);
    env.fail_reads(&file_name(FileKind::Sst, file.file_id));
    let met = db.work.compaction_step(RestGoal::Complete).unwrap();
    assert!(matches!(met, CompactionStep::MetDamage(_)));
    assert!(db.work.versions.current().in_quarantine(file.file_id));
    env.clear();
    db.compact_all().unwrap();
    assert!(db.work.versions.current().quarantine().is_empty());
}

fn io_error() -> Error {
    Error::new(ErrorKind::Io { os_errno: 5 }, "no output can be written")
}

/// A database that stops writers at two runs of L0, and has two.
fn stopped(env: Arc<dyn Env>) -> Arc<Db> {
    let db = open_with(env, |options| {
        options.l0_compaction_runs = 2;
        options.l0_stop_runs = 2;
    });
    write_file(&db, 1000);
    write_file(&db, 1000);
    db
}

/// How a writer passes the gate that does not wait for long.
fn pass(db: &Arc<Db>) -> std::result::Result<(), ErrorKind> {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
    txn.before_write().map_err(|error| error.kind().clone())
}

/// A job that always fails keeps L0 deep. The writers of all tables wait for it; they do not wait
/// in silence, and go on once the job succeeds.
#[test]
fn writers_who_wait_for_a_job_given_up_fail_with_its_error() {
    let env = MemEnv::new();
    let db = stopped(Arc::new(env.clone()));
    let work = &db.work;
    for _ in 0..ATTEMPTS_MAX {
        let picked = work.pick(&work.retired(), RestGoal::No);
        let (_, job, ticket) = picked.expect("a job");
        drop(work.end(ticket, &job, Some(&io_error())));
    }
    assert!(matches!(
        work.compaction_step(RestGoal::No).unwrap(),
        CompactionStep::NothingDue
    ));
    // An install of another table has succeeded.
    work.stall.set_failure(None);
    assert_eq!(pass(&db), Err(ErrorKind::LockTimeout));
    env.advance_clock(31_000_000);
    work.report_pressure();
    assert_eq!(pass(&db), Err(io_error().kind().clone()));
    // By now the job is tried again.
    assert!(work.compact_once(RestGoal::No).unwrap());
    assert_eq!(pass(&db), Ok(()));
    assert!(work.given_up.lock().is_none());
}

/// A job whose outputs cannot be written fails again and again. It is tried at longer and longer
/// intervals, is reported as given up, and succeeds once the device writes again.
#[test]
fn a_job_is_tried_again_after_a_while() {
    let mem = MemEnv::new();
    let env = FaultEnv::new(Arc::new(mem.clone()));
    let db = stopped(Arc::new(env.clone()));
    let step = || db.work.compaction_step(RestGoal::No);
    let break_writes = || {
        env.inject(Fault {
            class: CallClass::Create,
            nth: 1,
            sticky: true,
            errno: Errno::Io,
        });
    };
    break_writes();
    for _ in 1..ATTEMPTS_MAX {
        assert!(step().is_err());
    }
    assert!(matches!(step(), Ok(CompactionStep::GaveUp(_))));
    assert!({ db.status_text() }.contains("a compaction fails again and again"));
    let mut waits = Vec::new();
    for _ in 0..3 {
        let mut waited = 0;
        while matches!(step(), Ok(CompactionStep::NothingDue)) {
            mem.advance_clock(1_000_000);
            waited += 1;
            assert!(waited < 1000, "the job is not tried again");
        }
        waits.push(waited);
    }
    assert_eq!(waits, [10, 20, 40]);
    env.clear();
    mem.advance_clock(80_000_000);
    assert!(matches!(step(), Ok(CompactionStep::Compacted)));
    assert!(db.work.versions.current().quarantine().is_empty());
}

/// A freeze holds the mutex of the commit pipeline, so it visits no files.
#[test]
fn a_freeze_over_damage_visits_no_files() {
    let db = open(Arc::new(MemEnv::new()));
    write_file(&db, 1000);
    let file = newest(&db);
    (0..60).for_each(|_| write_file(&db, 1000));
    let damaged = DamagedFile {
        level: 0,
        meta: Arc::clone(file.meta()),
        error: io_error(),
        unreadable: false,
    };
    db.work.quarantine(damaged).unwrap();
    let freeze = || {
        let ((), work) = counted(|| db.work.memtable_frozen());
        assert!(work.files < 10, "{work:?}");
    };
    freeze();
    write_file(&db, 1000);
    // Also right after a new version was published, before the gate is told of it.
    let next = Version::clone(&db.work.versions.current());
    db.work.publish(Arc::new(next), &[]);
    freeze();
}

/// A job with which the only compaction thread was busy for long is given up from its end on.
#[test]
fn a_long_job_is_given_up_from_its_end_on() {
    let env = MemEnv::new();
    let db = stopped(Arc::new(env.clone()));
    let work = &db.work;
    let pick = || work.pick(&work.retired(), RestGoal::No);
    for _ in 0..ATTEMPTS_MAX {
        let (_, job, ticket) = pick().expect("a job");
        env.advance_clock(3_600_000_000);
        drop(work.end(ticket, &job, Some(&io_error())));
    }
    assert!(pick().is_none());
}

/// A read that finds no memory, and damage on the way from the device, say nothing about a file.
#[test]
fn what_passes_is_no_damage() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let db = open(Arc::new(env.clone()));
    (0..3).for_each(|_| write_file(&db, 1000));
    let file = newest(&db);
    let fault = |errno| Fault {
        class: CallClass::Read,
        nth: 1,
        sticky: true,
        errno,
    };
    env.inject(fault(Errno::NoMemory));
    assert!(examine(0, &file).is_none());
    env.clear();
    env.inject(fault(Errno::Io));
    assert!(examine(0, &file).unwrap().unreadable);
    env.clear();
    let work = &db.work;
    let fail = |kind| {
        let (_, job, ticket) = work.pick(&work.retired(), RestGoal::Complete).unwrap();
        let error = Error::corruption(file_name(kind, file.file_id), 0, "damaged");
        work.end(ticket, &job, Some(&error))
    };
    // The file reads well, so only the last attempt counts. A blob file of the same number is no
    // input.
    for kind in [FileKind::Blob, FileKind::Sst] {
        for _ in 1..ATTEMPTS_MAX {
            assert!(fail(kind).is_none());
        }
        let last = fail(kind);
        let is_sst = kind == FileKind::Sst;
        assert_eq!(matches!(last, Some(CompactionStep::MetDamage(_))), is_sst);
        assert_eq!(work.versions.current().in_quarantine(file.file_id), is_sst);
        work.running.lock().retry_all();
    }
}

/// A job that fails because of a file that is in quarantine by then has met damage, and no other
/// reason is sought.
#[test]
fn damage_that_another_thread_has_met_counts() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let db = open(Arc::new(env.clone()));
    write_file(&db, 1000);
    write_file(&db, 1000);
    let (file, work) = (newest(&db), &db.work);
    let (_, job, ticket) = work.pick(&work.retired(), RestGoal::Complete).unwrap();
    env.fail_reads(&file_name(FileKind::Sst, file.file_id));
    work.quarantine(examine(0, &file).unwrap()).unwrap();
    let met = work.end(ticket, &job, Some(&io_error()));
    assert!(matches!(met, Some(CompactionStep::MetDamage(_))));
    assert_eq!(work.versions.current().quarantine().len(), 1);
    assert_eq!(work.running.lock().failures(&job), 0);
    let status = db.status_text();
    let name = file_name(FileKind::Sst, file.file_id);
    assert!(status.contains(&format!(
        "1 damaged table files are left out of compactions: {name}"
    )));
}

/// The compaction thread reads unreadable files again, one after the other and less and less often.
#[test]
fn unreadable_files_are_read_again_from_time_to_time() {
    let mem = MemEnv::new();
    let env = FaultEnv::new(Arc::new(mem.clone()));
    let db = open(Arc::new(env.clone()));
    let mut names = Vec::new();
    for table in [1000, 2000] {
        write_file(&db, table);
        write_file(&db, table);
        names.push(file_name(FileKind::Sst, newest(&db).file_id));
        env.fail_reads(names.last().unwrap());
    }
    let step = || db.work.compaction_step(RestGoal::No).unwrap();
    let damaged = || db.work.versions.current().quarantine().len();
    for _ in 0..2 {
        let met = db.work.compaction_step(RestGoal::Complete).unwrap();
        assert!(matches!(met, CompactionStep::MetDamage(_)));
    }
    assert_eq!(damaged(), 2);
    assert!(matches!(step(), CompactionStep::NothingDue));
    let aside = || db.work.blob_gc.has_set_aside();
    db.work.blob_gc.set_aside(77);
    // After a minute, two and four minutes the files still cannot be read.
    for minutes in [1, 2, 4] {
        let reads = env.count(CallClass::Read) + env.count(CallClass::Open);
        mem.advance_clock(minutes * 60_000_000 - 1_000_000);
        step();
        assert_eq!(
            env.count(CallClass::Read) + env.count(CallClass::Open),
            reads
        );
        mem.advance_clock(1_000_000);
        step();
        assert!(env.count(CallClass::Read) + env.count(CallClass::Open) > reads);
        assert_eq!(damaged(), 2);
    }
    env.clear();
    mem.advance_clock(8 * 60_000_000);
    step();
    assert_eq!(damaged(), 1);
    assert!(!aside());
    mem.advance_clock(60_000_000);
    step();
    assert_eq!(damaged(), 0);
    db.compact_all().unwrap();
}

/// On a full disk a memtable is flushed while L0 is shallow. Runs that damage keeps there, and that
/// lie beside each other, do not make it deep.
#[test]
fn held_runs_keep_no_memtable_from_its_flush_on_a_full_disk() {
    let db = open_with(Arc::new(MemEnv::new()), |options| {
        options.l0_compaction_runs = 2;
    });
    write(&db, 1000..1010);
    db.flush().unwrap();
    let oldest = newest(&db);
    (1000..1010).for_each(|table| write_file(&db, table));
    let damaged = DamagedFile {
        level: 0,
        meta: Arc::clone(oldest.meta()),
        error: io_error(),
        unreadable: false,
    };
    db.work.quarantine(damaged).unwrap();
    write(&db, 1000..1001);
    db.work.health.set_full(FullDisk::Compaction, true);
    db.work.recheck_full_disk();
    assert_eq!(db.work.versions.current().l0.len(), 12);
}
