//! The memory of open files stays within its part of the memory limit, and reads stay right while
//! files are evicted and opened again.

use firn::base::options::Options;
use firn::base::{InternalIterator, Value};
use firn::db::Db;
use firn::env::{Env, MemEnv, ReadClass};
use firn::sst::SstIter;
use firn::txn::Isolation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const KEYS: u32 = 100_000;

/// Leaves the pins of open files some tens of KiB, for a few readers of the tree's files.
const LIMIT: u64 = 512 << 10;

/// Version of each row, or `None` if it is deleted.
type Model = BTreeMap<u32, Option<u32>>;

fn key(row: u32) -> Vec<u8> {
    [7u32.to_be_bytes(), row.to_be_bytes()].concat()
}

/// Words that repeat through the file, between noise: a dictionary pays for them.
fn value(row: u32, version: u32) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(u64::from(row) << 32 | u64::from(version));
    let mut value: Vec<u8> = (0..30).map(|_| rng.random()).collect();
    for _ in 0..8 {
        let mut word = StdRng::seed_from_u64(rng.random_range(0..40));
        value.extend((0..12).map(|_| word.random_range(b'a'..=b'z')));
    }
    value
}

fn open(env: &MemEnv, limit: u64, threads: usize) -> Arc<Db> {
    open_with(env, limit, threads, 64 << 10)
}

fn open_with(env: &MemEnv, limit: u64, threads: usize, memtable_size: u64) -> Arc<Db> {
    let options = Options {
        background_jobs: threads,
        wal_segment_size: 1 << 20,
        block_size: 1024,
        // Files have a part of this, which is enough for a dictionary.
        target_file_size: 8 << 20,
        base_level_size: 256 << 10,
        ..Options::default()
    };
    let mutable = &options.mutable;
    mutable.memory_limit.store(limit, Ordering::Relaxed);
    mutable
        .memtable_size
        .store(memtable_size, Ordering::Relaxed);
    let env: Arc<dyn Env> = Arc::new(env.clone());
    Db::open(env, Path::new("/db"), options, None).unwrap()
}

fn write(db: &Db, rows: impl Iterator<Item = (u32, Option<u32>)>) {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
    for (row, version) in rows {
        match version {
            Some(version) => {
                let value = value(row, version);
                txn.put(&key(row), Value::split(&value[..1], &value[1..]))
            }
            None => txn.delete(&key(row)),
        }
        .unwrap();
    }
    txn.commit().unwrap();
}

/// A database of many small files at rest, with the rows of the model.
fn filled(env: &MemEnv, limit: u64) -> (Arc<Db>, Model) {
    let db = open_with(env, 0, 0, 4 << 20);
    for from in (0..KEYS).step_by(2000) {
        write(&db, (from..from + 2000).map(|row| (row, Some(0))));
        db.flush().unwrap();
        while db.compact_once().unwrap() {}
    }
    db.compact_all().unwrap();
    db.close().unwrap();
    drop(db);
    let model = (0..KEYS).map(|row| (row, Some(0))).collect();
    (open(env, limit, 0), model)
}

fn files(db: &Db) -> usize {
    db.context().super_versions.pin().version.files().count()
}

/// Number of files with a dictionary.
fn with_dictionary(db: &Db) -> usize {
    let version = Arc::clone(&db.context().super_versions.pin().version);
    let all = version.files();
    all.filter(|(_, file)| !file.reader().unwrap().dictionary_bytes().is_empty())
        .count()
}

fn check(db: &Db, row: u32, version: Option<u32>) {
    let point = db.context().super_versions.latest();
    let found = firn::read::get(
        &point.super_version,
        &key(row),
        point.seqno,
        ReadClass::Point,
        |key, value| key.kind.is_put().then(|| [value.head, value.tail].concat()),
    );
    let expected = version.map(|version| value(row, version));
    assert!(found.unwrap().flatten() == expected, "row {row}");
}

/// An iterator over one file, and the rows that it has to return from here on.
struct Held {
    iter: SstIter,
    last: Vec<u8>,
}

impl Held {
    fn step(&mut self) -> bool {
        for _ in 0..20 {
            if !self.iter.next().unwrap() {
                return false;
            }
            let key = self.iter.key().user_key;
            assert!(key > &self.last[..]);
            self.last = key.to_vec();
        }
        true
    }
}

#[test]
fn random_work_while_files_are_evicted() {
    for seed in 0..2 {
        let env = MemEnv::new();
        let (db, mut model) = filled(&env, LIMIT);
        let mut rng = StdRng::seed_from_u64(seed);
        assert!(files(&db) > 40, "{} files", files(&db));
        assert!(
            with_dictionary(&db) > 20,
            "{} dictionaries",
            with_dictionary(&db)
        );
        let mut limit_max = 0;
        let mut held: Vec<Held> = Vec::new();
        for step in 0..4000 {
            match rng.random_range(0..40) {
                0 => {
                    let rows: Vec<_> = (0..50)
                        .map(|_| {
                            (
                                rng.random_range(0..KEYS),
                                rng.random_bool(0.8).then_some(step),
                            )
                        })
                        .collect();
                    model.extend(rows.iter().copied());
                    write(&db, rows.into_iter());
                }
                1 => {
                    db.flush().unwrap();
                    db.compact_once().unwrap();
                }
                2 if held.len() < 3 => {
                    let super_version = db.context().super_versions.pin();
                    let nth = rng.random_range(0..files(&db));
                    let (_, file) = super_version.version.files().nth(nth).unwrap();
                    let mut iter = file.reader().unwrap().iter(ReadClass::Range, rng.random());
                    assert!(iter.seek_to_first().unwrap());
                    let last = iter.key().user_key.to_vec();
                    held.push(Held { iter, last });
                }
                3 => held.retain_mut(Held::step),
                _ => {
                    let row = rng.random_range(0..KEYS);
                    check(&db, row, model[&row]);
                }
            }
            let (stats, memory) = (db.pin_stats(), db.memory());
            limit_max = limit_max.max(stats.limit);
            assert!(
                stats.used <= limit_max,
                "seed {seed}, step {step}: {stats:?}"
            );
            assert!(
                memory.total() <= memory.limit,
                "seed {seed}, step {step}: {memory:?}"
            );
        }
        let stats = db.pin_stats();
        assert!(stats.evictions > 500, "{stats:?}");
        held.clear();
        for (row, version) in model.iter().step_by(7) {
            check(&db, *row, *version);
        }
    }
}

/// Threads read files that other threads evict, compactions replace them, and the limit changes
/// meanwhile.
#[test]
fn threads_read_while_the_limit_changes() {
    let env = MemEnv::new();
    let (db, _) = filled(&env, 0);
    db.close().unwrap();
    drop(db);
    let db = open(&env, LIMIT, 1);
    std::thread::scope(|scope| {
        for seed in 0..3 {
            let db = &db;
            scope.spawn(move || {
                let mut rng = StdRng::seed_from_u64(seed);
                for _ in 0..3000 {
                    // Rows of each remainder have one writer.
                    let row = rng.random_range(0..KEYS / 4) * 4 + seed as u32;
                    check(db, row, Some(0));
                }
            });
        }
        let mut rng = StdRng::seed_from_u64(9);
        for round in 0..60 {
            let rows = (0..40).map(|_| (rng.random_range(0..KEYS / 4) * 4 + 3, Some(round)));
            write(&db, rows);
            let limit = [LIMIT, 2 * LIMIT, 16 * LIMIT, 0][rng.random_range(0..4)];
            db.set_memory_limit(limit);
        }
    });
    db.set_memory_limit(LIMIT);
    (0..KEYS)
        .step_by(4)
        .for_each(|row| check(&db, row, Some(0)));
    // A job may have some files pinned for a moment yet.
    let settled = (0..60_000).find_map(|_| {
        let stats = db.pin_stats();
        std::thread::sleep(Duration::from_millis(1));
        (stats.used <= stats.limit + stats.limit / 8).then_some(stats)
    });
    let stats = settled.unwrap_or_else(|| panic!("{:?}", db.pin_stats()));
    assert!(stats.evictions > 20, "{stats:?}");
}

/// The thread `firn-pins` brings the pins back below a lower limit, without a flush, a compaction
/// or the opening of a file.
#[test]
fn a_thread_closes_files_when_memtables_take_the_room() {
    let env = MemEnv::new();
    let (db, _) = filled(&env, 0);
    db.close().unwrap();
    drop(db);
    let db = open(&env, 0, 1);
    (0..KEYS)
        .step_by(100)
        .for_each(|row| check(&db, row, Some(0)));
    let before = db.pin_stats();
    assert_eq!(before.charges, 0, "all files have their indexes");
    // Divide a limit again without the sweep of `set_memory_limit`, as an install does.
    let mutable = &db.options().mutable;
    mutable.memory_limit.store(LIMIT, Ordering::Relaxed);
    db.set_block_cache_size(1 << 20);
    assert!(db.pin_stats().limit < before.used / 2);
    // Nothing else happens. The test ends when the thread has done its work.
    while db.pin_stats().used > db.pin_stats().limit * 9 / 8 {
        std::thread::yield_now();
    }
    (0..KEYS)
        .step_by(100)
        .for_each(|row| check(&db, row, Some(0)));
}

/// Number of files of the current version that have their whole index in memory.
fn pinned(db: &Db) -> usize {
    let version = Arc::clone(&db.context().super_versions.pin().version);
    version
        .files()
        .filter(|(_, file)| file.pinned().is_some())
        .count()
}

/// A statement keeps what the files that it reads have pinned. A second sweep closes no further
/// files for the memory that comes back when the statement ends.
#[test]
fn memory_on_its_way_back_closes_no_other_files() {
    let env = MemEnv::new();
    let (db, _) = filled(&env, 0);
    let all = pinned_after_reads(&db);
    let used = db.pin_stats().used;
    let old = db.context().super_versions.latest();
    // About two thirds of the pins fit.
    let limit = 2 * used + (300 << 10);
    db.set_memory_limit(limit);
    assert_eq!(db.pin_stats().used, used, "the statement has them");
    let once = pinned(&db);
    assert!(once > 0 && once < all, "{once} of {all}");
    db.set_memory_limit(limit);
    assert_eq!(pinned(&db), once);
    drop(old);
    assert!(db.pin_stats().used <= db.pin_stats().limit);
}

/// Reads from all files; returns the number of those that have their whole index in memory then.
fn pinned_after_reads(db: &Db) -> usize {
    (0..KEYS)
        .step_by(100)
        .for_each(|row| check(db, row, Some(0)));
    assert_eq!(pinned(db), files(db));
    files(db)
}

/// Files that are evicted are removed from the tree and from the disk; a statement that began
/// before reads them to its end.
#[test]
fn evicted_files_can_be_removed() {
    let env = MemEnv::new();
    let (db, _) = filled(&env, LIMIT);
    let old = db.context().super_versions.latest();
    for from in (0..KEYS).step_by(2000) {
        write(&db, (from..from + 2000).map(|row| (row, Some(1))));
        db.flush().unwrap();
    }
    db.compact_all().unwrap();
    for row in (0..KEYS).step_by(37) {
        let found = firn::read::get(
            &old.super_version,
            &key(row),
            old.seqno,
            ReadClass::Point,
            |_, v| [v.head, v.tail].concat() == value(row, 0),
        );
        assert_eq!(found.unwrap(), Some(true), "row {row}");
        check(&db, row, Some(1));
    }
    assert!(db.pin_stats().evictions > 50, "{:?}", db.pin_stats());
    drop(old);
    db.compact_once().unwrap();
    let names = env.list_dir(Path::new("/db")).unwrap();
    let on_disk = names.iter().filter(|name| name.ends_with(".sst")).count();
    assert_eq!(on_disk, files(&db));
}
