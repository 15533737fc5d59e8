//! A disk that is full to its last block. Deletes, truncates and drops must still work, and give
//! space back; the database must open and read; once there is room, it must write again.

use super::prepared::{begin, insert, record, schema};
use super::schema::open_or_create;
use firn::base::options::{MutableOptions, Options};
use firn::base::{Error, ErrorKind, Result, Value};
use firn::db::{Condition, Db};
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv};
use firn::store::ReservePart;
use firn::table::{RowScratch, Table, WriteFlags};
use std::path::Path;
use std::sync::Arc;

/// Number of rows that each table begins with.
const ROWS: i32 = 600;
/// Number of commits after which a run gives up waiting for the full disk.
const COMMITS_MAX: i32 = 150;

fn options(segment_size: u64) -> Options {
    let mutable = MutableOptions::default();
    mutable
        .memtable_size
        .store(8 << 10, std::sync::atomic::Ordering::Relaxed);
    Options {
        mutable: Arc::new(mutable),
        wal_segment_size: segment_size,
        background_jobs: 0,
        frozen_memtables_max: 3,
        target_file_size: 4 << 10,
        base_level_size: 8 << 10,
        ..Options::default()
    }
}

fn open(env: &MemEnv, segment_size: u64) -> Result<Arc<Db>> {
    open_with(env, options(segment_size))
}

fn open_with(env: &MemEnv, options: Options) -> Result<Arc<Db>> {
    Db::open(Arc::new(env.clone()), Path::new("/db"), options, None)
}

fn table(db: &Db, name: &str) -> Arc<Table> {
    open_or_create(db, name, schema())
}

fn put(db: &Db, table: &Table, id: i32) -> Result<()> {
    let mut txn = begin(db);
    insert(table, &mut txn, id, Some(id))?;
    txn.commit()
}

fn delete(db: &Db, table: &Table, ids: std::ops::Range<i32>) -> Result<()> {
    let mut txn = begin(db);
    for id in ids {
        let flags = WriteFlags::default();
        let row = record(id, Some(id));
        // SAFETY: blob columns must point to their bytes; this table has none.
        unsafe { table.delete(&mut txn, &row, None, flags, &mut RowScratch::default()) }?;
    }
    txn.commit()
}

fn rows(db: &Db, table: &Table) -> i32 {
    let report = table
        .check(&db.context().super_versions, true, &|| false)
        .unwrap();
    assert_eq!(report.problems, [""; 0]);
    report.rows as i32
}

fn is_full(error: &Error) -> bool {
    *error.kind() == ErrorKind::NoSpace
}

/// Does the work of the background threads, in several rounds, since one step may take the space
/// that another has freed. A step may fail, but only with `NoSpace`.
fn work(db: &Db) {
    let full = |done: Result<()>| done.unwrap_or_else(|error| assert!(is_full(&error), "{error}"));
    for _ in 0..4 {
        db.recheck_full_disk();
        full(db.flush());
        full((|| {
            while db.compact_once()? {}
            Ok(())
        })());
    }
}

/// A database with four tables of [`ROWS`] rows each, flushed.
fn filled(env: &MemEnv, segment_size: u64) -> Arc<Db> {
    let db = open(env, segment_size).unwrap();
    for name in ["d/kept", "d/deleted", "d/emptied", "d/dropped"] {
        let table = table(&db, name);
        let mut txn = begin(&db);
        for id in 0..ROWS {
            insert(&table, &mut txn, id, Some(id)).unwrap();
        }
        txn.commit().unwrap();
        // Give the table files of its own.
        db.flush().unwrap();
    }
    db.flush().unwrap();
    while db.compact_once().unwrap() {}
    db
}

/// Checks the tables after the deletions: `d/kept` has `kept` rows, `d/deleted` and `d/emptied`
/// have none, and `d/dropped` is gone.
fn check(db: &Db, kept: i32, context: &str) {
    assert_eq!(rows(db, &table(db, "d/kept")), kept, "{context}");
    assert_eq!(rows(db, &table(db, "d/deleted")), 0, "{context}");
    assert_eq!(rows(db, &table(db, "d/emptied")), 0, "{context}");
    assert!(db.catalog().get("d/dropped").is_err(), "{context}");
}

/// Runs the scenario once; the disk becomes full at the `nth` request for space. Returns whether
/// there were that many requests.
fn run(segment_size: u64, nth: u64) -> bool {
    let context = format!("segments of {segment_size} bytes, full at {nth}");
    let env = MemEnv::new();
    let db = filled(&env, segment_size);
    env.fill_at(nth);
    let kept = table(&db, "d/kept");
    let mut next = ROWS;
    let refused = loop {
        match put(&db, &kept, next) {
            Ok(()) => next += 1,
            Err(error) => break Some(error),
        }
        if next % 7 == 0 {
            work(&db);
        }
        if next > ROWS + COMMITS_MAX {
            break None;
        }
    };
    let met = env.is_limited();
    if let Some(error) = refused {
        assert!(met && is_full(&error), "{context}: {error}");
        assert_eq!(db.condition(), Condition::DiskFull, "{context}");
    }
    env.fill();
    delete(&db, &table(&db, "d/deleted"), 0..ROWS / 2).expect(&context);
    delete(&db, &table(&db, "d/deleted"), ROWS / 2..ROWS).expect(&context);
    db.catalog().truncate("d/emptied").expect(&context);
    db.catalog().drop_table("d/dropped").expect(&context);
    check(&db, next, &context);
    let full = env.used();
    work(&db);
    assert!(env.used() < full, "{context}: no room came back");
    check(&db, next, &context);
    // Other programs take the freed space.
    env.fill();
    drop(db);

    let mut env = env.kill();
    for end in 0..3 {
        let context = format!("{context}, start {end}");
        env.fill();
        let db = open(&env, segment_size).unwrap_or_else(|e| panic!("{context}: {e}"));
        check(&db, next, &context);
        // The reserve suffices for the first delete only.
        match delete(&db, &table(&db, "d/kept"), next - 1..next) {
            Ok(()) => next -= 1,
            Err(error) => assert!(end > 0 && is_full(&error), "{context}: {error}"),
        }
        check(&db, next, &context);
        work(&db);
        env.fill();
        drop(db);
        env = match end {
            0 => env.kill(),
            _ => env.crash(nth),
        };
    }
    env.fill();
    let db = open(&env, segment_size).unwrap();
    env.make_room(64 << 20);
    work(&db);
    put(&db, &table(&db, "d/kept"), next).expect(&context);
    work(&db);
    check(&db, next + 1, &context);
    assert_eq!(db.condition(), Condition::Good, "{context}");
    db.compact_all().unwrap();
    check(&db, next + 1, &context);
    let view = db.context().super_versions.pin();
    let named = view.version.files().count();
    drop(view);
    let store = db.context().ingest.versions().source().store();
    assert_eq!(store.list().unwrap().len(), named, "{context}");
    let (there, wanted) = store.reserve().unwrap().bytes();
    assert_eq!(there, wanted, "{context}: the reserve is not whole again");
    met
}

#[test]
fn a_full_disk_leaves_the_exits_open() {
    for (segment_size, from) in [(16 << 10, 1), (64 << 10, 6)] {
        // Try every 19th request: runs take long, and those in between are no different.
        let calls = (from..400).step_by(19);
        let met = calls.take_while(|&nth| run(segment_size, nth)).count();
        assert!((3..20).contains(&met), "{met} of the calls wanted room");
    }
}

#[test]
fn the_segment_that_the_next_replay_begins_with_stays() {
    let env = MemEnv::new();
    let db = filled(&env, 64 << 10);
    let next = ROWS + 1;
    put(&db, &table(&db, "d/kept"), ROWS).unwrap();
    drop(db);
    let env = env.kill();
    // This open flushes the replayed commits and begins a new segment, where the next replay
    // begins; nothing is written to it.
    drop(open(&env, 64 << 10).unwrap());
    let env = env.kill();
    env.fill();
    let db = open(&env, 64 << 10).unwrap();
    delete(&db, &table(&db, "d/deleted"), 0..ROWS).unwrap();
    drop(db);
    let env = env.kill();
    env.make_room(64 << 20);
    let db = open(&env, 64 << 10).unwrap();
    assert_eq!(rows(&db, &table(&db, "d/kept")), next);
    assert_eq!(rows(&db, &table(&db, "d/deleted")), 0);
}

/// Removes the whole reserve: older versions leave a directory without one.
fn without_reserve(env: &MemEnv) {
    for part in [
        ReservePart::Log,
        ReservePart::Manifest,
        ReservePart::Current,
        ReservePart::Table,
    ] {
        let path = Path::new("/db").join(part.name());
        if env.exists(&path).unwrap() {
            env.remove(&path).unwrap();
        }
    }
    // Make the removals durable.
    env.sync_dir(Path::new("/db")).unwrap();
}

#[test]
fn without_any_room_it_opens_read_only_and_writes_once_there_is_some() {
    let env = MemEnv::new();
    let db = filled(&env, 64 << 10);
    let mut next = ROWS;
    // Begin a log segment. It has room for the outcomes of the prepared transactions, so the log
    // prepares no further one, which an open on a full disk would take.
    let newest = || {
        let names = env.list_dir(Path::new("/db")).unwrap();
        names
            .into_iter()
            .filter(|name| name.ends_with(".wal"))
            .max()
    };
    let before = newest();
    while newest() == before {
        put(&db, &table(&db, "d/kept"), next).unwrap();
        next += 1;
    }
    let mut txn = begin(&db);
    insert(&table(&db, "d/kept"), &mut txn, 9000, Some(9000)).unwrap();
    txn.prepare(b"commits").unwrap();
    txn.detach(db.new_owner(0));
    let mut txn = begin(&db);
    insert(&table(&db, "d/kept"), &mut txn, 9001, Some(9001)).unwrap();
    txn.prepare(b"rolls back").unwrap();
    txn.detach(db.new_owner(0));
    drop((txn, db));
    let mut env = env.kill();
    for start in 0..3 {
        without_reserve(&env);
        env.fill();
        let db = open(&env, 64 << 10).unwrap();
        assert_eq!(db.condition(), Condition::ReadOnly, "start {start}");
        let kept = table(&db, "d/kept");
        assert_eq!(rows(&db, &kept), next);
        assert!(is_full(&put(&db, &kept, 8000).unwrap_err()));
        assert!(is_full(&delete(&db, &kept, 0..1).unwrap_err()));
        assert_eq!(db.prepared_xids().len(), 2);
        // The decisions take effect in memory, though they cannot be logged yet.
        assert!(is_full(&db.commit_xid(b"commits").unwrap_err()));
        assert!(is_full(&db.rollback_xid(b"rolls back").unwrap_err()));
        assert_eq!(rows(&db, &kept), next + 1);
        assert!(db.prepared_xids().is_empty());
        drop((kept, db));
        // The kill takes the decisions back.
        env = env.kill();
    }
    env.fill();
    let db = open(&env, 64 << 10).unwrap();
    assert_eq!(db.prepared_xids().len(), 2);
    assert!(is_full(&db.commit_xid(b"commits").unwrap_err()));
    assert!(is_full(&db.rollback_xid(b"rolls back").unwrap_err()));
    env.make_room(64 << 20);
    work(&db);
    db.sync_log().unwrap();
    put(&db, &table(&db, "d/kept"), next).unwrap();
    work(&db);
    assert_eq!(db.condition(), Condition::Good);
    drop(db);
    let db = open(&env.crash(0), 64 << 10).unwrap();
    assert!(db.prepared_xids().is_empty());
    assert_eq!(rows(&db, &table(&db, "d/kept")), next + 2);
}

/// Puts files into the directory that nothing names, far more than an open deletes at once, as a
/// stop leaves them after the drop of a large table. Returns their number.
fn leave_strays(env: &MemEnv) -> usize {
    let ids = 1_000_000..1_001_000;
    for id in ids.clone() {
        let name = firn::store::file_name(firn::store::FileKind::Sst, id);
        env.place(&Path::new("/db").join(name), vec![1; 8 << 10]);
    }
    ids.count()
}

#[test]
fn an_open_on_a_full_disk_takes_the_room_of_all_files_that_nothing_names() {
    let parts = [
        ReservePart::Log,
        ReservePart::Manifest,
        ReservePart::Current,
        ReservePart::Table,
    ];
    // First for the disk reserve.
    let env = MemEnv::new();
    drop(open_usual(&env));
    let env = env.kill();
    without_reserve(&env);
    leave_strays(&env);
    env.fill();
    let db = open_usual(&env);
    assert!(parts.iter().all(|part| has(&db, *part)));
    db.recheck_full_disk();
    put_loose(&db, 1, &noise(1)).unwrap();
    drop(db);

    // Then for what the log holds, if the reserve is whole.
    let env = MemEnv::new();
    let db = open_usual(&env);
    // More than the room of the first files that go and that of the reserve together.
    for n in 0..4000 {
        put_loose(&db, n, &noise(n)).unwrap();
    }
    db.sync_log().unwrap();
    drop(db);
    let env = env.kill();
    leave_strays(&env);
    env.fill();
    let db = open_usual(&env);
    assert!(db.context().super_versions.pin().frozen.is_empty());
    assert!(files(&db) < 100, "{} files", files(&db));
    drop(db);

    // With room for all, most of the files are left for later.
    let env = MemEnv::new();
    drop(open_usual(&env));
    let strays = leave_strays(&env);
    assert!(files(&open_usual(&env)) > strays / 2);
}

#[test]
fn a_start_on_a_full_disk_may_be_killed_at_any_sync() {
    let mut killed = 0;
    for at in 1.. {
        let context = format!("killed at sync {at}");
        let env = MemEnv::new();
        drop(filled(&env, 64 << 10));
        let env = env.kill();
        env.fill();
        env.crash_at_sync(env.sync_points() + at);
        let opened = open(&env, 64 << 10);
        let died = env.is_dead();
        drop(opened);
        if !died {
            break;
        }
        killed += 1;
        let env = env.kill();
        env.fill();
        let db = open(&env, 64 << 10).expect(&context);
        db.catalog().truncate("d/emptied").expect(&context);
        db.catalog().drop_table("d/dropped").expect(&context);
        let files = files(&db);
        work(&db);
        // Count files instead of bytes: the reserve may take the freed space.
        assert!(self::files(&db) < files, "{context}: no room came back");
        assert_eq!(rows(&db, &table(&db, "d/emptied")), 0, "{context}");
        assert_eq!(rows(&db, &table(&db, "d/kept")), ROWS, "{context}");
    }
    assert!(killed > 7, "{killed} syncs");
}

/// A full disk has left the log without a segment for the next commits. The open that follows
/// flushes what it has recovered. The manifest must then name a log segment that exists, though
/// the log has none for new commits: the process may be killed before there is room for one.
#[test]
fn a_flush_without_a_log_segment_leaves_a_database_that_opens() {
    // The memtable has room for all commits, and there is less room on the disk than for a segment.
    let open = |env: &MemEnv| {
        let usual = Options {
            wal_segment_size: 2 << 20,
            background_jobs: 0,
            ..Options::default()
        };
        open_with(env, usual).unwrap()
    };
    let env = MemEnv::new();
    drop(filled(&env, 64 << 10));
    let env = env.kill();
    let db = open(&env);
    env.fill();
    let kept = table(&db, "d/kept");
    while put(&db, &kept, ROWS).is_ok() {
        delete(&db, &kept, ROWS..ROWS + 1).unwrap();
    }
    // Use up the reserve of the log.
    let deleted = (0..ROWS).find(|&id| delete(&db, &kept, id..id + 1).is_err());
    let deleted = deleted.expect("the disk reserve takes no end of deletions");
    assert!(deleted > 100 && !has(&db, ReservePart::Log));
    drop((kept, db));
    let env = env.kill();
    // The process has created the file of the next segment and was killed before it found no room.
    let last = newest_segment(&env);
    let next = Path::new("/db").join(firn::wal::segment_name(last + 1));
    env.place(&next, Vec::new());
    env.fill();
    env.make_room(300 << 10);
    let db = open(&env);
    assert_eq!(db.condition(), Condition::ReadOnly);
    drop(db);
    let env = env.kill();
    let db = open(&env);
    assert_eq!(rows(&db, &table(&db, "d/kept")), ROWS - deleted);
    drop(db);
    let env = env.kill();
    env.unfill();
    let db = open(&env);
    put(&db, &table(&db, "d/kept"), ROWS).unwrap();
    assert_eq!(rows(&db, &table(&db, "d/kept")), ROWS - deleted + 1);
}

fn newest_segment(env: &MemEnv) -> u64 {
    let names = env.list_dir(Path::new("/db")).unwrap();
    let ids = names
        .iter()
        .filter_map(|name| firn::wal::parse_segment_name(name));
    ids.max().unwrap()
}

/// Number of SSTs on disk.
fn files(db: &Db) -> usize {
    let store = db.context().ingest.versions().source().store();
    store.list().unwrap().len()
}

fn has(db: &Db, part: ReservePart) -> bool {
    let store = db.context().ingest.versions().source().store();
    store.reserve().unwrap().has(part)
}

#[test]
fn the_room_for_a_table_stays_where_no_manifest_can_name_it() {
    let env = MemEnv::new();
    drop(filled(&env, 64 << 10));
    let env = env.kill();
    for part in [ReservePart::Manifest, ReservePart::Current] {
        env.remove(&Path::new("/db").join(part.name())).unwrap();
    }
    env.fill();
    let db = open(&env, 64 << 10).unwrap();
    delete(&db, &table(&db, "d/deleted"), 0..1).unwrap();
    work(&db);
    assert!(has(&db, ReservePart::Table));
    assert_eq!(rows(&db, &table(&db, "d/deleted")), ROWS - 1);
}

#[test]
fn a_part_that_somebody_removes_counts_as_not_there() {
    let env = MemEnv::new();
    let db = filled(&env, 64 << 10);
    env.fill();
    without_reserve(&env);
    env.fill();
    let kept = table(&db, "d/kept");
    let next = (ROWS..).find(|&id| put(&db, &kept, id).is_err()).unwrap();
    let refused = put(&db, &kept, next).unwrap_err();
    assert!(is_full(&refused), "{refused}");
    let refused = (0..next).find_map(|id| delete(&db, &kept, id..id + 1).err());
    assert!(refused.as_ref().is_some_and(is_full), "{refused:?}");
    assert!(!has(&db, ReservePart::Log));
    env.make_room(64 << 20);
    work(&db);
    assert!(has(&db, ReservePart::Log) && has(&db, ReservePart::Table));
}

#[test]
fn the_condition_is_good_once_there_is_room_though_nobody_writes() {
    for replayed in [false, true] {
        let env = MemEnv::new();
        let db = filled(&env, 64 << 10);
        drop(db);
        let env = env.kill();
        // This open flushes the replayed commits.
        let db = open(&env, 64 << 10).unwrap();
        let before = match replayed {
            true => {
                put(&db, &table(&db, "d/kept"), ROWS).unwrap();
                Condition::ReadOnly
            }
            false => Condition::DiskFull,
        };
        drop(db);
        let env = env.kill();
        without_reserve(&env);
        env.fill();
        let db = open(&env, 64 << 10).unwrap();
        assert_eq!(db.condition(), before);
        env.make_room(64 << 20);
        db.recheck_full_disk();
        assert_ne!(db.condition(), Condition::ReadOnly);
        // Do the work of the background threads.
        db.flush().unwrap();
        while db.compact_once().unwrap() {}
        assert_eq!(db.condition(), Condition::Good);
    }
}

/// Commits `value` under a key that belongs to no table.
fn put_loose(db: &Db, n: u64, value: &[u8]) -> Result<()> {
    let key = [&1_000_000_u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
    let mut txn = begin(db);
    txn.put(&key, Value::whole(value))?;
    txn.commit()
}

/// Bytes that do not compress.
fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let byte = |_| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 56) as u8
    };
    (0..2000).map(byte).collect()
}

fn open_usual(env: &MemEnv) -> Arc<Db> {
    let options = Options {
        wal_segment_size: 64 << 10,
        background_jobs: 0,
        ..Options::default()
    };
    Db::open(Arc::new(env.clone()), Path::new("/db"), options, None).unwrap()
}

#[test]
fn a_large_memtable_whose_file_is_small_gives_its_log_back() {
    let env = MemEnv::new();
    let db = open_usual(&env);
    // Many versions of three rows: far more in memory than the reserve has for a table.
    for n in 0..2000 {
        put_loose(&db, n % 3, &noise(n)).unwrap();
    }
    assert!(db.context().super_versions.pin().active.size_bytes() > 3 << 20);
    env.fill();
    let refused = (0..).find_map(|n| put_loose(&db, n % 3, &noise(n)).err());
    assert!(is_full(&refused.unwrap()));
    // No other program makes room. The flush of the memtable does, because it frees log segments.
    db.recheck_full_disk();
    for n in 0..100 {
        put_loose(&db, n % 3, &noise(n)).unwrap();
    }
    drop(db);
    let env = env.crash(1);
    env.unfill();
    let db = open_usual(&env);
    assert_eq!(db.condition(), Condition::Good);
}

/// A flush finds no room for its file, and the file cannot be removed either.
#[test]
fn a_file_that_found_no_room_is_removed_later_if_not_at_once() {
    let mut left = 0;
    for nth in 1..8 {
        let mem = MemEnv::new();
        let fault = FaultEnv::new(Arc::new(mem.clone()));
        let env: Arc<dyn Env> = Arc::new(fault.clone());
        let db = Db::open(env, Path::new("/db"), options(64 << 10), None).unwrap();
        (0..3).for_each(|n| put_loose(&db, n, &noise(n)).unwrap());
        for (class, nth, sticky, errno) in [
            (CallClass::Write, nth, false, Errno::NoSpace),
            (CallClass::Remove, 1, true, Errno::NoMemory),
        ] {
            fault.inject(Fault {
                class,
                nth,
                sticky,
                errno,
            });
        }
        let flushed = db.flush();
        assert!(flushed.as_ref().err().is_none_or(is_full), "{flushed:?}");
        fault.clear();
        let versions = db.context().ingest.versions();
        left += versions.delete_obsolete().unwrap();
        let tree: u64 = db.levels().iter().map(|level| level.files).sum();
        assert_eq!(files(&db) as u64, tree, "write {nth}");
    }
    assert!(left > 0, "every file was removed at once");
}

#[test]
fn a_flush_that_does_not_fit_the_reserve_gives_it_back() {
    let env = MemEnv::new();
    let db = open_usual(&env);
    for n in 0..2000 {
        put_loose(&db, n, &noise(n)).unwrap();
    }
    env.fill();
    let used = env.used();
    for _ in 0..3 {
        assert!(is_full(&db.flush().unwrap_err()));
        assert!(has(&db, ReservePart::Table));
        // Another program that fills the disk finds no room.
        assert_eq!(env.used(), used);
    }
    env.unfill();
    db.flush().unwrap();
    env.fill();
    // The file of the reserve was written to, and serves again.
    put_loose(&db, 1, &noise(1)).unwrap();
    db.flush().unwrap();
    assert!(!has(&db, ReservePart::Table));
}
