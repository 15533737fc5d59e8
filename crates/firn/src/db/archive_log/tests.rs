//! Tests of when segments are closed and archived, and of which log may continue an archive.

use super::*;
use crate::backup::{RecoveryTarget, archived_segments, coverage, find_point};
use crate::base::event_listener::EventListener;
use crate::base::options::CommitDurability;
use crate::base::{ErrorKind, IndexId, Value};
use crate::catalog::{CATALOG_INDEX, NewTable, TableLocking, TableSchema};
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{FaultEnv, MemEnv, ReadClass};
use crate::store::ReservePart;
use crate::txn::Isolation;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::time::Duration;

const DB: &str = "/db";
const ARCHIVE: &str = "/archive";
const HOUR_US: u64 = 3_600_000_000;

fn open(env: Arc<dyn Env>, dir: &str) -> Arc<Db> {
    open_heard(env, dir, &Arc::default())
}

fn open_heard(env: Arc<dyn Env>, dir: &str, heard: &Arc<Heard>) -> Arc<Db> {
    let options = Options {
        listener: Arc::clone(heard) as _,
        background_jobs: 0,
        wal_segment_size: 16 << 10,
        log_archive_dir: Some(PathBuf::from(ARCHIVE)),
        ..Options::default()
    };
    close_after(&options, HOUR_US);
    Db::open(env, Path::new(dir), options, None).unwrap()
}

#[derive(Default)]
struct Heard(Mutex<Vec<String>>);

impl EventListener for Heard {
    fn log(&self, _: Severity, message: &str) {
        self.0.lock().push(message.to_owned());
    }
}

fn close_after(options: &Options, timeout_us: u64) {
    let mutable = &options.mutable;
    mutable
        .log_archive_timeout_us
        .store(timeout_us, Ordering::Relaxed);
}

/// Commits a row of some 400 bytes.
fn write(db: &Db, n: u64) {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
    let key = [&1000u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
    txn.put(&key, Value::whole(&[7; 400])).unwrap();
    txn.commit().unwrap();
}

/// Closes the current segment and archives it.
fn archive(db: &Db) -> Result<u64> {
    close_after(db.options(), 0);
    let archived = db.archive_log();
    close_after(db.options(), HOUR_US);
    archived
}

fn waiting(db: &Db) -> u64 {
    db.archive_stats().unwrap().waiting
}

fn archived_in(env: &dyn Env) -> Vec<u64> {
    archived_segments(env, Path::new(ARCHIVE)).unwrap()
}

fn last_commit(db: &Db) -> u64 {
    db.context().pipeline.last_seqno()
}

fn last_commit_archived(env: &dyn Env) -> u64 {
    let found = find_point(env, Path::new(ARCHIVE), 0, 0, &RecoveryTarget::End);
    found.unwrap().seqno
}

/// Copies all files of a directory and of its `pending`.
fn copy_dir(env: &MemEnv, from: &str, to: &str) {
    for sub in ["", "pending"] {
        let (from, to) = (Path::new(from).join(sub), Path::new(to).join(sub));
        if !env.exists(&from).unwrap() {
            continue;
        }
        env.create_dir_all(&to).unwrap();
        for name in env.list_dir(&from).unwrap() {
            let Ok(file) = env.open(&from.join(&name)) else {
                continue;
            };
            let mut bytes = vec![0; file.size().unwrap() as usize];
            file.read_exact_at(ReadClass::Log, 0, &mut bytes).unwrap();
            env.place(&to.join(&name), bytes);
        }
    }
}

fn empty(env: &MemEnv, dir: &str) {
    for name in env.list_dir(Path::new(dir)).unwrap() {
        env.remove(&Path::new(dir).join(name)).unwrap();
    }
}

#[test]
fn a_full_disk_does_not_keep_what_waits_from_the_archive() {
    let mem = MemEnv::new();
    mem.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let env = FaultEnv::new(Arc::new(mem.clone()));
    let db = open(Arc::new(env.clone()), DB);
    // Full segments are linked into the archive, so the log cannot recycle their files.
    (0..3).for_each(|n| write(&db, n));
    assert_eq!(archive(&db).unwrap(), 1);
    (3..100).for_each(|n| write(&db, n));
    assert!(waiting(&db) > 3);
    db.flush().unwrap();
    let held = segments_in(&mem);
    env.inject(Fault {
        class: CallClass::Write,
        nth: 1,
        sticky: true,
        errno: Errno::NoSpace,
    });
    let error = archive(&db).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NoSpace, "{error}");
    assert_eq!(waiting(&db), 0);
    assert!(segments_in(&mem) < held, "the log keeps what is archived");
    assert!(db.archive_stats().unwrap().failures > 0);
    env.clear();
    assert_eq!(archive(&db).unwrap(), 1);
    assert_eq!(last_commit_archived(&mem), 100);
}

fn segments_in(env: &MemEnv) -> usize {
    archived_segments(env, Path::new(DB)).unwrap().len()
}

#[test]
fn segments_are_not_closed_early_while_the_archive_is_away_and_at_once_when_it_is_back() {
    let env = MemEnv::new();
    let db = open(Arc::new(env.clone()), DB);
    close_after(db.options(), 1_000_000);
    for n in 0..10 {
        write(&db, n);
        let error = db.archive_log().unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound);
        env.advance_clock(1_000_000);
    }
    let segments = segments_in(&env);
    assert!(segments < 5, "{segments} segments of ten commits");
    env.create_dir_all(Path::new(ARCHIVE)).unwrap();
    assert!(db.archive_log().unwrap() > 0);
    assert_eq!(last_commit_archived(&env), 10);
    // From then on the timeout applies again.
    write(&db, 10);
    assert_eq!(db.archive_log().unwrap(), 0);
    env.advance_clock(1_000_000);
    assert_eq!(db.archive_log().unwrap(), 1);
    assert_eq!(last_commit_archived(&env), 11);
}

#[test]
fn an_archive_that_is_away_is_no_new_one() {
    let env = MemEnv::new();
    let mem: Arc<dyn Env> = Arc::new(env.clone());
    env.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let heard = Arc::new(Heard::default());
    let mut db = open_heard(Arc::clone(&mem), DB, &heard);
    write(&db, 0);
    assert_eq!(archive(&db).unwrap(), 1);
    copy_dir(&env, ARCHIVE, "/mounted elsewhere");
    empty(&env, ARCHIVE);
    for reopened in [false, true] {
        if reopened {
            db.close().unwrap();
            drop(db);
            db = open(Arc::clone(&mem), DB);
        }
        // An unreachable archive is an error even while nothing is written; the log reports it once
        // a minute.
        env.advance_clock(HOUR_US);
        let before = heard.0.lock().len();
        (0..5).for_each(|_| drop(db.archive_log()));
        if !reopened {
            let heard = heard.0.lock();
            assert_eq!(heard.len(), before + 1, "{heard:?}");
        }
        write(&db, 1);
        let error = archive(&db).unwrap_err();
        assert_eq!(*error.kind(), ErrorKind::NotFound);
        assert!(error.to_string().contains("not be mounted"), "{error}");
        assert_eq!(
            env.list_dir(Path::new(ARCHIVE)).unwrap(),
            Vec::<String>::new()
        );
    }
    copy_dir(&env, "/mounted elsewhere", ARCHIVE);
    assert!(archive(&db).unwrap() > 0);
    assert_eq!(last_commit_archived(&env), last_commit(&db));
    // A directory that contains log segments is no new archive either.
    let foreign = MemEnv::new();
    foreign.place(&Path::new(ARCHIVE).join("000001.wal"), vec![0; 4096]);
    let db = open(Arc::new(foreign.clone()), DB);
    write(&db, 0);
    let error = archive(&db).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::AlreadyExists, "{error}");
}

#[test]
fn an_archive_is_continued_by_the_log_that_wrote_it_and_by_no_copy() {
    // `since`: the database archives more segments after it was copied. `same_segment`: it archives
    // just one more, the segment that was current when it was copied.
    for (since, same_segment) in [(false, false), (true, false), (true, true)] {
        let context = format!("archived since: {since}, {same_segment}");
        let env = MemEnv::new();
        let mem: Arc<dyn Env> = Arc::new(env.clone());
        env.create_dir_all(Path::new(ARCHIVE)).unwrap();
        let db = open(Arc::clone(&mem), DB);
        write(&db, 0);
        archive(&db).unwrap();
        write(&db, 1);
        copy_dir(&env, DB, "/copy");
        if since {
            write(&db, 2);
            archive(&db).unwrap();
            if !same_segment {
                write(&db, 3);
                archive(&db).unwrap();
            }
        }
        let before = archived_in(&env);
        let commits = last_commit_archived(&env);
        let copy = open(Arc::clone(&mem), "/copy");
        (10..15).for_each(|n| write(&copy, n));
        let (mut ours, mut other) = (&copy, &db);
        if since {
            (ours, other) = (other, ours);
        } else {
            assert!(archive(&copy).unwrap() > 0, "{context}");
        }
        write(other, 20);
        for _ in 0..2 {
            let error = archive(other).unwrap_err();
            assert_eq!(*error.kind(), ErrorKind::AlreadyExists, "{context}");
            assert!(error.to_string().contains("not of this log"), "{error}");
            assert!(waiting(other) > 0, "{context}");
        }
        if since {
            assert_eq!(archived_in(&env), before, "{context}");
            assert_eq!(last_commit_archived(&env), commits, "{context}");
        }
        write(ours, 30);
        archive(ours).unwrap();
        assert_eq!(last_commit_archived(&env), last_commit(ours), "{context}");
    }
}

#[test]
fn an_archive_goes_on_after_restarts_crashes_and_at_another_place() {
    let mut env = MemEnv::new();
    env.create_dir_all(Path::new(ARCHIVE)).unwrap();
    for life in 0..6 {
        let db = open(Arc::new(env.clone()), DB);
        (0..20).for_each(|n| write(&db, n));
        if life % 2 == 0 {
            db.flush().unwrap();
        }
        archive(&db).unwrap();
        assert_eq!(last_commit_archived(&env), last_commit(&db), "life {life}");
        write(&db, 100);
        match life % 3 {
            0 => db.close().unwrap(),
            1 => env = env.crash(life),
            _ => env = env.kill(),
        }
    }
    // The archive has moved; its contents identify it.
    copy_dir(&env, ARCHIVE, "/moved");
    empty(&env, ARCHIVE);
    let at = |place: Option<&str>| {
        let options = Options {
            background_jobs: 0,
            log_archive_dir: place.map(PathBuf::from),
            ..Options::default()
        };
        close_after(&options, 0);
        Db::open(Arc::new(env.clone()), Path::new(DB), options, None).unwrap()
    };
    let db = at(Some("/moved"));
    write(&db, 0);
    assert!(db.archive_log().unwrap() > 0);
    let moved = Path::new("/moved");
    let found = find_point(&env, moved, 0, 0, &RecoveryTarget::End).unwrap();
    assert_eq!(found.seqno, last_commit(&db));
    db.close().unwrap();
    drop(db);
    // After a time without an archive, the database cannot continue the old archive: the commits of
    // that time are missing.
    at(None).close().unwrap();
    let db = at(Some("/moved"));
    write(&db, 0);
    let error = db.archive_log().unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::AlreadyExists, "{error}");
    assert!(error.to_string().contains("a new one is needed"), "{error}");
}

/// A close archives the last segment. The next start finds no room for a segment, so the log has
/// none. The archive's last segment is closed nevertheless, and the archive is that of this log.
#[test]
fn an_archive_goes_on_after_a_start_on_a_full_disk() {
    let env = MemEnv::new();
    env.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let db = open(Arc::new(env.clone()), DB);
    (0..5).for_each(|n| write(&db, n));
    db.close().unwrap();
    drop(db);
    let last = *archived_in(&env).last().unwrap();
    let dir = Path::new(DB);
    // Without the log's part of the disk reserve and without prepared segments.
    for name in env.list_dir(dir).unwrap() {
        let later = crate::wal::parse_segment_name(&name).is_some_and(|id| id > last);
        if later || name == ReservePart::Log.name() {
            env.remove(&dir.join(name)).unwrap();
        }
    }
    env.sync_dir(dir).unwrap();
    env.fill();
    let db = open(Arc::new(env.clone()), DB);
    assert!(db.work.wal.has_no_segment());
    // There is no room for a note of what the archive covers.
    let archived = archive(&db);
    if let Err(error) = archived {
        assert_eq!(*error.kind(), ErrorKind::NoSpace, "{error}");
    }
    env.unfill();
    db.recheck_full_disk();
    write(&db, 5);
    assert!(archive(&db).unwrap() > 0);
    assert_eq!(last_commit_archived(&env), last_commit(&db));
}

/// The archive was moved to another file system, which is not mounted at the next start. The
/// database neither begins a new archive there nor forgets what waits for the old one.
#[test]
fn an_archive_that_was_moved_and_is_away_is_continued() {
    let env = MemEnv::new();
    env.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let heard = Arc::new(Heard::default());
    let at = |place: Option<&str>| {
        let options = Options {
            listener: Arc::clone(&heard) as _,
            background_jobs: 0,
            log_archive_dir: place.map(PathBuf::from),
            ..Options::default()
        };
        close_after(&options, 0);
        Db::open(Arc::new(env.clone()), Path::new(DB), options, None).unwrap()
    };
    let refused = |place: &str, kind: ErrorKind, words: &str| {
        let db = at(Some(place));
        write(&db, 1);
        let error = db.archive_log().unwrap_err();
        assert_eq!(*error.kind(), kind, "{place}: {error}");
        assert!(error.to_string().contains(words), "{place}: {error}");
        assert!(waiting(&db) > 0, "{place}");
        db.close().unwrap();
    };
    let db = at(Some(ARCHIVE));
    write(&db, 0);
    db.archive_log().unwrap();
    write(&db, 1);
    db.close().unwrap();
    drop(db);
    copy_dir(&env, ARCHIVE, "/another file system");
    empty(&env, ARCHIVE);
    // The mount point is there, and empty. Then the path is wrong. Then it leads to an archive of
    // another database.
    env.create_dir_all(Path::new("/moved")).unwrap();
    env.create_dir_all(Path::new("/foreign")).unwrap();
    let foreign = "firn archive 1\nid 0123456789abcdef\nend\n";
    env.place(Path::new("/foreign/ARCHIVE"), foreign.into());
    let away = "not be mounted, or the archive was not moved there; a new archive begins after a start without any";
    refused("/moved", ErrorKind::NotFound, away);
    assert!(heard.0.lock().iter().any(|said| said.contains(away)));
    refused("/mistyped", ErrorKind::NotFound, "/mistyped");
    refused("/foreign", ErrorKind::AlreadyExists, "of another database");
    refused("/moved", ErrorKind::NotFound, away);
    assert!(env.list_dir(Path::new("/moved")).unwrap().is_empty());
    copy_dir(&env, "/another file system", "/moved");
    let db = at(Some("/moved"));
    db.archive_log().unwrap();
    let moved = find_point(&env, Path::new("/moved"), 0, 0, &RecoveryTarget::End);
    assert_eq!(moved.unwrap().seqno, last_commit(&db));
    db.close().unwrap();
    drop(db);
    // A start without an archive is the way to a new one.
    at(None).close().unwrap();
    env.create_dir_all(Path::new("/new")).unwrap();
    let db = at(Some("/new"));
    write(&db, 2);
    assert!(db.archive_log().unwrap() > 0);
}

#[test]
fn what_is_covered_is_in_the_archive() {
    let mem = MemEnv::new();
    mem.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let env = FaultEnv::new(Arc::new(mem.clone()));
    let covered = |env: &dyn Env| coverage(env, Path::new(ARCHIVE)).unwrap();
    let db = open(Arc::new(env.clone()), DB);
    write(&db, 0);
    archive(&db).unwrap();
    mem.advance_clock(HOUR_US);
    let now_ms = mem.wall_micros() / 1000;
    db.archive_log().unwrap();
    let noted = covered(&mem).unwrap();
    assert!(noted.until_ms >= now_ms - 1 && noted.until_ms < mem.wall_micros() / 1000);
    assert_eq!(noted.segment, *archived_in(&mem).last().unwrap());
    // A commit in the current segment is not covered, however long ago it was made.
    write(&db, 1);
    mem.advance_clock(HOUR_US / 2);
    db.archive_log().unwrap();
    assert_eq!(covered(&mem).unwrap(), noted);
    // If the log could not be closed, the archive covers no later commits either.
    env.inject(Fault {
        class: CallClass::Write,
        nth: 1,
        sticky: true,
        errno: Errno::Io,
    });
    assert!(db.close().is_err());
    env.clear();
    let _ = db.close();
    assert_eq!(covered(&mem).unwrap(), noted);
}

#[test]
fn closing_does_not_wait_without_end_for_an_archive_that_does_not_answer() {
    let mem = MemEnv::new();
    mem.create_dir_all(Path::new(ARCHIVE)).unwrap();
    // The archive hangs from the start (`before`), or only when the database closes.
    for before in [false, true] {
        let env = FaultEnv::new(Arc::new(mem.clone()));
        let heard = Arc::new(Heard::default());
        let options = Options {
            log_archive_dir: Some(PathBuf::from(ARCHIVE)),
            listener: Arc::clone(&heard) as _,
            ..Options::default()
        };
        close_after(&options, if before { 0 } else { HOUR_US });
        if before {
            env.hang(Path::new(ARCHIVE));
        }
        let db = Db::open(Arc::new(env.clone()), Path::new(DB), options, None).unwrap();
        write(&db, 1);
        env.hang(Path::new(ARCHIVE));
        db.close_within(Duration::from_millis(50)).unwrap();
        drop(db);
        let told = heard.0.lock().concat();
        assert!(told.contains("does not answer"), "{told}");
        assert_eq!(archived_in(&mem), [0; 0]);
        // Now the archive answers, but nobody waits any more: no step and no message may follow.
        let said = heard.0.lock().len();
        env.clear();
        let gone = (0..6000).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            Arc::strong_count(&heard) == 1
        });
        assert!(gone, "a thread goes on with the archive");
        assert_eq!(heard.0.lock().len(), said);
        assert_eq!(archived_in(&mem), [0; 0]);
    }
    let db = open(Arc::new(mem.clone()), DB);
    archive(&db).unwrap();
    assert_eq!(last_commit_archived(&mem), last_commit(&db));
}

#[test]
fn a_segment_that_is_being_closed_is_not_covered() {
    let env = MemEnv::new();
    env.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let covered = || coverage(&env, Path::new(ARCHIVE)).unwrap();
    let db = open(Arc::new(env.clone()), DB);
    write(&db, 0);
    archive(&db).unwrap();
    env.advance_clock(HOUR_US);
    db.archive_log().unwrap();
    let noted = covered().unwrap();
    // Make a commit that is not durable; then let a checkpoint begin a new segment behind it.
    db.options()
        .mutable
        .set_commit_durability(CommitDurability::Lazy);
    write(&db, 1);
    env.advance_clock(HOUR_US);
    let pipeline = &db.context().pipeline;
    let begun = pipeline.begin_cut(&|| 0).unwrap();
    assert_eq!(db.archive_log().unwrap(), 0);
    assert_eq!(covered(), Some(noted), "covered without the last commit");
    pipeline.finish_cut(begun).unwrap();
    assert_eq!(db.archive_log().unwrap(), 1);
    env.advance_clock(HOUR_US);
    db.archive_log().unwrap();
    assert!(covered().unwrap().until_ms > noted.until_ms);
    assert_eq!(last_commit_archived(&env), last_commit(&db));
}

/// Each archived minute closes a segment of full size, however little was written.
#[test]
fn a_slow_writer_does_not_keep_a_segment_a_minute() {
    let env = MemEnv::new();
    env.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let db = open(Arc::new(env.clone()), DB);
    let mutable = &db.options().mutable;
    mutable.max_wal_size.store(512 << 10, Ordering::Relaxed);
    for n in 0..200 {
        write(&db, n % 3);
        assert_eq!(archive(&db).unwrap(), 1);
        while db.work.flush_oldest().unwrap() {}
        let segments = segments_in(&env);
        // 16 segments are half of the log's limit; the others were released and wait to be
        // recycled.
        assert!(segments <= 16 + 8 + 3, "{segments} segments");
    }
    assert_eq!(last_commit_archived(&env), last_commit(&db));
}

/// A recovery to a point on a disk that becomes full at some moment fails, or ends at the point for
/// good: no later start replays beyond it.
#[test]
fn a_recovery_to_a_point_on_a_full_disk_never_goes_beyond_it() {
    let mem = MemEnv::new();
    mem.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let db = open(Arc::new(mem.clone()), DB);
    (0..5).for_each(|n| write(&db, n));
    db.checkpoint(Path::new("/backup"), false).unwrap();
    let backup = last_commit(&db);
    let large = |n: u64| {
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
        let key = [&1000u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
        let value: Vec<u8> = (0..100_000u32)
            .map(|i| (i.wrapping_mul(i) >> 7) as u8)
            .collect();
        txn.put(&key, Value::whole(&value)).unwrap();
        txn.commit().unwrap();
    };
    // More than the disk reserve has room for.
    (100..140).for_each(large);
    let mut prepared = db.new_transaction(db.new_owner(0));
    prepared.begin_statement(1, Isolation::RepeatableRead, 1000, false);
    let key = [&1000u32.to_be_bytes()[..], &900u64.to_be_bytes()].concat();
    prepared.put(&key, Value::whole(b"prepared")).unwrap();
    prepared.prepare(b"x").unwrap();
    let point = last_commit(&db);
    (200..205).for_each(|n| write(&db, n));
    archive(&db).unwrap();
    let last = archived_segments(&mem, Path::new("/backup")).unwrap();
    let last = *last.last().unwrap();
    let wanted = RecoveryTarget::Seqno(point);
    let reached = find_point(&mem, Path::new(ARCHIVE), last, backup, &wanted).unwrap();
    copy_dir(&mem, "/backup", "/restored");
    for id in archived_in(&mem) {
        let name = crate::wal::segment_name(id);
        let segment = mem.read(&Path::new(ARCHIVE).join(&name)).unwrap();
        if id > last && id <= reached.point.segment {
            mem.place(&Path::new("/restored").join(&name), segment);
        }
    }
    let (mut done, mut refused) = (0, 0);
    for nth in 1..60 {
        let disk = mem.copy();
        let env: Arc<dyn Env> = Arc::new(disk.clone());
        let dir = Path::new("/restored");
        let options = || Options {
            background_jobs: 0,
            wal_segment_size: 16 << 10,
            ..Options::default()
        };
        disk.fill_at(nth);
        match Db::recover_to(Arc::clone(&env), dir, options(), reached.point) {
            Ok(db) => {
                assert_eq!(last_commit(&db), point, "full at sync {nth}");
                assert_eq!(db.prepared_xids(), [b"x"]);
                done += 1;
            }
            Err(error) => {
                assert_eq!(*error.kind(), ErrorKind::NoSpace, "{error}");
                refused += 1;
                continue;
            }
        }
        disk.unfill();
        let db = Db::open(env, dir, options(), None).unwrap();
        assert_eq!(last_commit(&db), point, "full at sync {nth}, opened again");
        assert_eq!(db.prepared_xids(), [b"x"]);
    }
    assert!(done > 0 && refused > 0, "{done} done, {refused} refused");
}

/// A table without columns that matter, with one row. Returns the id of its index.
fn table_with_row(db: &Db, name: &str) -> IndexId {
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
    let id = db.catalog().create(name, new).unwrap().clustered.id;
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
    let key = [&id.to_be_bytes()[..], b"row"].concat();
    txn.put(&key, Value::whole(b"value")).unwrap();
    txn.commit().unwrap();
    id
}

/// The indexes of which files have entries, but not the catalog's own.
fn indexes_in_files(db: &Db) -> Vec<IndexId> {
    let version = db.work.versions.current();
    let mut ids: Vec<_> = version.all_index_stats().map(|stats| stats.index).collect();
    ids.retain(|id| *id != CATALOG_INDEX);
    ids.sort_unstable();
    ids
}

/// The backup's files have entries of a table that was dropped later, and the log says that the
/// index was dropped, and also that it is forgotten.
#[test]
fn a_recovery_to_a_point_purges_indexes_that_were_dropped_since_the_backup() {
    let env = MemEnv::new();
    env.create_dir_all(Path::new(ARCHIVE)).unwrap();
    let db = open(Arc::new(env.clone()), DB);
    let kept = table_with_row(&db, "d/kept");
    let dropped = table_with_row(&db, "d/dropped");
    write(&db, 1);
    db.checkpoint(Path::new("/backup"), true).unwrap();
    let backup = last_commit(&db);
    assert_eq!(indexes_in_files(&db), [kept, dropped, 1000]);
    db.catalog().drop_table("d/dropped").unwrap();
    db.compact_all().unwrap();
    db.compact_all().unwrap();
    assert!(db.catalog().retired().is_empty());
    assert_eq!(indexes_in_files(&db), [kept, 1000]);
    archive(&db).unwrap();
    let last = archived_segments(&env, Path::new("/backup")).unwrap();
    let last = *last.last().unwrap();
    let reached = find_point(&env, Path::new(ARCHIVE), last, backup, &RecoveryTarget::End).unwrap();
    copy_dir(&env, "/backup", "/restored");
    for id in archived_in(&env) {
        let name = crate::wal::segment_name(id);
        if id > last && id <= reached.point.segment {
            let segment = env.read(&Path::new(ARCHIVE).join(&name)).unwrap();
            env.place(&Path::new("/restored").join(&name), segment);
        }
    }
    let options = || Options {
        background_jobs: 0,
        wal_segment_size: 16 << 10,
        ..Options::default()
    };
    let (dir, point) = (Path::new("/restored"), reached.point);
    let env: Arc<dyn Env> = Arc::new(env);
    let restored = Db::recover_to(Arc::clone(&env), dir, options(), point).unwrap();
    assert_eq!(last_commit(&restored), reached.seqno);
    restored.retire_unknown_indexes().unwrap();
    assert!(restored.catalog().retired().contains_key(&dropped));
    restored.close().unwrap();
    drop(restored);
    // The note is durable.
    let restored = Db::open(env, dir, options(), None).unwrap();
    assert!(restored.catalog().retired().contains_key(&dropped));
    restored.compact_all().unwrap();
    assert_eq!(indexes_in_files(&restored), [kept, 1000]);
    assert!(restored.catalog().retired().is_empty());
}
