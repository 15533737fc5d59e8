//! Compactions that meet damaged files, and jobs that fail for other reasons.

use super::*;
use crate::base::{Value, checksum};
use crate::db::Db;
use crate::env::{FaultEnv, MemEnv};
use crate::txn::Isolation;
use crate::version::LAST_LEVEL;
use std::path::{Path, PathBuf};

const DIR: &str = "/db";

pub(super) fn open(env: Arc<dyn Env>) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    Db::open(env, Path::new(DIR), options, None).unwrap()
}

/// Writes and flushes one file of the table.
pub(super) fn write_file(db: &Arc<Db>, table: u32) {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
    for n in 0..100u64 {
        let key = [&table.to_be_bytes()[..], &n.to_be_bytes()].concat();
        txn.put(&key, Value::whole(&[7; 200])).unwrap();
    }
    txn.commit().unwrap();
    db.flush().unwrap();
}

/// The newest file of L0.
pub(super) fn newest(db: &Db) -> Arc<FileHandle> {
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
            CompactionStep::MetDamage(error) => damage.push(error),
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
pub(super) fn with_meta(db: &Db, change: impl FnOnce(&mut FileMeta)) -> Version {
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
    let bug = Error::new(ErrorKind::ShutDown, "bug");
    // Damage of a file that the job does not read says nothing about its inputs.
    let elsewhere = Error::corruption(file_name(FileKind::Sst, 1 << 30), 0, "elsewhere");
    for error in [&bug, &elsewhere, &bug] {
        assert!(fail(error).is_none());
    }
    assert!(pick().is_none());
    assert!(work.versions.current().quarantine().is_empty());
    // Others go on, and so does this one with other inputs.
    write_file(&db, 1000);
    assert!(work.compact_once(RestGoal::Complete).unwrap());
    // A full compaction tries again.
    write_file(&db, 1000);
    (0..3).for_each(|_| assert!(fail(&bug).is_none()));
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
