//! The memory limit: the counted memory stays below it.

use firn::base::Value;
use firn::base::allocator_stats::{AllocatorBytes, AllocatorStats};
use firn::base::options::Options;
use firn::db::{Db, MemoryReport};
use firn::env::{Env, MemEnv, ReadClass};
use firn::txn::Isolation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const ROWS: u32 = 100_000;
const LIMIT: u64 = 4 << 20;

fn key(row: u32) -> Vec<u8> {
    [7u32.to_be_bytes(), row.to_be_bytes()].concat()
}

fn value(row: u32, version: u32) -> Vec<u8> {
    let mut rng = StdRng::seed_from_u64(u64::from(row) << 32 | u64::from(version));
    (0..150).map(|_| rng.random()).collect()
}

fn open(env: &MemEnv, limit: u64) -> Arc<Db> {
    open_with(env, limit, None)
}

fn open_with(env: &MemEnv, limit: u64, allocator: Option<Arc<dyn AllocatorStats>>) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        allocator,
        wal_segment_size: 1 << 20,
        target_file_size: 4 << 20,
        base_level_size: 4 << 20,
        ..Options::default()
    };
    options.mutable.memory_limit.store(limit, Ordering::Relaxed);
    let env: Arc<dyn Env> = Arc::new(env.clone());
    Db::open(env, Path::new("/db"), options, None).unwrap()
}

fn within(db: &Db) {
    let memory = db.memory();
    let caches = memory.block_cache + memory.row_cache;
    let others = memory.memtables + memory.write_sets + memory.sessions + memory.pinned;
    assert_eq!(memory.total(), caches + others + memory.uncounted);
    assert!(memory.total() <= memory.limit, "{memory:?}");
}

fn write(db: &Db, rows: impl Iterator<Item = u32>, version: u32) {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
    for row in rows {
        txn.put(&key(row), Value::whole(&value(row, version)))
            .unwrap();
    }
    within(db);
    txn.commit().unwrap();
    within(db);
}

fn read(db: &Db, row: u32, version: u32) {
    let point = db.context().super_versions.latest();
    let expected = value(row, version);
    let found = firn::read::get(
        &point.super_version,
        &key(row),
        point.seqno,
        ReadClass::Point,
        |_, v| v.head == expected,
    );
    assert_eq!(found.unwrap(), Some(true), "row {row}");
}

/// Data of four times the limit is read and written at random.
#[test]
fn the_limit_holds_under_random_load() {
    let env = MemEnv::new();
    let db = open(&env, LIMIT);
    let mut versions = vec![0u32; ROWS as usize];
    for from in (0..ROWS).step_by(500) {
        write(&db, from..from + 500, 0);
        db.flush().unwrap();
        within(&db);
        while db.compact_once().unwrap() {
            within(&db);
        }
    }
    let mut rng = StdRng::seed_from_u64(5);
    for round in 0..100 {
        let rows: Vec<u32> = (0..50).map(|_| rng.random_range(0..ROWS)).collect();
        rows.iter().for_each(|&row| versions[row as usize] = round);
        write(&db, rows.into_iter(), round);
        for _ in 0..200 {
            // Half of the reads go to a hundred rows.
            let hot = rng.random_bool(0.5);
            let row = rng.random_range(0..if hot { 100 } else { ROWS });
            read(&db, row, versions[row as usize]);
            within(&db);
        }
        if round % 10 == 0 {
            db.flush().unwrap();
            db.compact_once().unwrap();
        }
    }
    let memory = db.memory();
    assert!(memory.total() > LIMIT / 3, "the memory is used: {memory:?}");
    assert!(
        memory.row_cache > 0 && memory.block_cache > 0 && memory.pinned > 0,
        "{memory:?}"
    );
}

/// Without memory for pins, each partition of each index is loaded and evicted again; reads stay
/// right.
#[test]
fn a_limit_far_below_the_indexes_only_slows() {
    let env = MemEnv::new();
    let rows = 20_000;
    let db = open(&env, 0);
    for from in (0..rows).step_by(500) {
        write_unlimited(&db, from..from + 500);
    }
    db.compact_all().unwrap();
    (0..rows).step_by(50).for_each(|row| read(&db, row, 0));
    let pinned = db.memory().pinned;
    db.close().unwrap();
    drop(db);
    let db = open(&env, 256 << 10);
    let mut rng = StdRng::seed_from_u64(6);
    for _ in 0..3000 {
        read(&db, rng.random_range(0..rows), 0);
    }
    let memory = db.memory();
    assert!(
        memory.pinned < pinned,
        "{memory:?}, {pinned} without a limit"
    );
    db.set_memory_limit(0);
    assert_eq!(db.memory().limit, 0);
    assert_eq!(
        db.memory().block_cache_capacity,
        Options::default().block_cache_size
    );
}

/// The pinned memory of open files follows a limit that is lowered while they are open. Files that
/// a compaction removes meanwhile leave the disk with the last super version that
/// has them.
#[test]
fn a_lowered_limit_unpins() {
    let env = MemEnv::new();
    let rows = 20_000;
    let db = open(&env, 0);
    for from in (0..rows).step_by(500) {
        write_unlimited(&db, from..from + 500);
    }
    db.compact_all().unwrap();
    (0..rows).step_by(50).for_each(|row| read(&db, row, 0));
    let before = db.memory().pinned;
    // A statement goes on reading the files as they were opened, even after a compaction has
    // removed them.
    let old = db.context().super_versions.latest();
    db.set_memory_limit(256 << 10);
    assert_eq!(db.memory().pinned, before);
    write_unlimited(&db, 0..rows);
    db.compact_all().unwrap();
    for row in (0..rows).step_by(100) {
        let found = firn::read::get(
            &old.super_version,
            &key(row),
            old.seqno,
            ReadClass::Point,
            |_, _| (),
        );
        assert!(found.unwrap().is_some(), "row {row}");
    }
    let on_disk = || {
        let names = env.list_dir(Path::new("/db")).unwrap();
        names.iter().filter(|name| name.ends_with(".sst")).count()
    };
    let live = db.context().super_versions.pin().version.files().count();
    assert!(on_disk() > live, "the old view's files stay");
    drop(old);
    db.compact_once().unwrap();
    assert_eq!(on_disk(), live);
    let after = db.memory();
    assert!(after.pinned < 64 << 10, "{after:?}, {before} before");
    assert!(after.pinned < before / 2, "{after:?}, {before} before");
    let mut rng = StdRng::seed_from_u64(7);
    for _ in 0..1000 {
        read(&db, rng.random_range(0..rows), 0);
        assert!(db.memory().pinned < 64 << 10);
    }
    // Without an open statement, pins are released at once.
    let db = reopened(&env, db);
    (0..rows).step_by(50).for_each(|row| read(&db, row, 0));
    assert!(db.memory().pinned > before / 2);
    db.set_memory_limit(256 << 10);
    assert!(db.memory().pinned < 64 << 10);
}

/// Closes the database and opens it without a limit.
fn reopened(env: &MemEnv, db: Arc<Db>) -> Arc<Db> {
    db.close().unwrap();
    drop(db);
    open(env, 0)
}

fn write_unlimited(db: &Db, rows: std::ops::Range<u32>) {
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
    for row in rows {
        txn.put(&key(row), Value::whole(&value(row, 0))).unwrap();
    }
    txn.commit().unwrap();
}

/// Uncommitted writes count, and their memory goes back to the caches afterwards.
#[test]
fn write_sets_take_their_memory_from_the_caches() {
    let db = open(&MemEnv::new(), 16 << 20);
    let before = db.memory();
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
    for row in 0..10_000 {
        txn.put(&key(row), Value::whole(&[1; 100])).unwrap();
    }
    let during = db.memory();
    assert!(during.write_sets > 2 << 20, "{during:?}");
    assert!(during.block_cache_capacity + (768 << 10) < before.block_cache_capacity);
    txn.rollback().unwrap();
    let after = db.memory();
    assert_eq!(after.write_sets, 0);
    assert_eq!(after.block_cache_capacity, before.block_cache_capacity);
}

/// Sessions count, and take their memory from the caches, but leave them a part that works.
#[test]
fn sessions_take_their_memory_from_the_caches() {
    let db = open(&MemEnv::new(), 16 << 20);
    let before = db.memory();
    let guest = db.open_ephemeral(Path::new("/temporary")).unwrap();
    // A cursor of a temporary table belongs to the ephemeral database.
    let of_guest = guest.charge_session(1 << 20);
    let charges: Vec<_> = (0..1500).map(|_| db.charge_session(8 << 10)).collect();
    let during = db.memory();
    assert_eq!(during.sessions, 1500 * (8 << 10) + (1 << 20));
    let caches = |memory: &MemoryReport| memory.block_cache_capacity + memory.row_cache_capacity;
    assert!(caches(&during) < caches(&before) / 3, "{during:?}");
    assert!(caches(&during) > during.limit / 32, "{during:?}");
    drop((charges, of_guest, guest));
    let after = db.memory();
    assert_eq!(after.sessions, 0);
    // A cache grows by an eighth or more.
    assert!(after.block_cache_capacity > before.block_cache_capacity / 8 * 7);
}

/// An allocator with as much memory in use as the test says.
#[derive(Default)]
struct FakeAllocator {
    active: AtomicU64,
    reads: AtomicU64,
    decays: AtomicU64,
    purges: AtomicU64,
}

impl AllocatorStats for FakeAllocator {
    fn read(&self) -> AllocatorBytes {
        self.reads.fetch_add(1, Ordering::Relaxed);
        let active = self.active.load(Ordering::Relaxed);
        AllocatorBytes {
            active,
            resident: active,
            ..AllocatorBytes::default()
        }
    }

    fn decay(&self) {
        self.decays.fetch_add(1, Ordering::Relaxed);
    }

    fn purge(&self) {
        self.purges.fetch_add(1, Ordering::Relaxed);
    }

    fn describe(&self) -> String {
        "a fake".to_owned()
    }
}

/// The caches shrink by what the allocator has in use beyond the counted parts, and grow when it is
/// gone. Without a limit they do not change.
#[test]
fn memory_that_is_not_counted_takes_room_from_the_caches() {
    let (env, fake) = (MemEnv::new(), Arc::new(FakeAllocator::default()));
    let db = open_with(&env, 16 << 20, Some(Arc::clone(&fake) as _));
    let capacity = |limit, active| {
        env.advance_clock(100_000);
        fake.active.store(active, Ordering::Relaxed);
        db.set_memory_limit(limit);
        db.watch_memory();
        let memory = db.memory();
        memory.block_cache_capacity + memory.row_cache_capacity
    };
    let limit = 16 << 20;
    let most = capacity(limit, 0);
    let counted = db.memory().total();
    let less = capacity(limit, counted + (6 << 20));
    assert_eq!(db.memory().uncounted, 6 << 20);
    assert_eq!(db.memory().total(), counted + (6 << 20));
    assert!(
        (most - (7 << 20)..=most - (4 << 20)).contains(&less),
        "{most}, {less}"
    );
    let least = capacity(limit, 100 << 20);
    assert!(least > limit / 8 && least < less, "{least}");
    for _ in 0..400 {
        capacity(limit, 0);
    }
    // The row cache, a third of the caches, grows only by an eighth or more.
    assert!(capacity(limit, 0) >= most - most / 24);
    capacity(limit, 100 << 20);
    assert_eq!(
        capacity(0, 100 << 20),
        Options::default().block_cache_size + Options::default().row_cache_size
    );
    // A new limit does not remember the readings from before.
    assert!(capacity(limit, 0) >= most - most / 24);
}

/// Neither reports nor statements read the allocator's statistics.
#[test]
fn only_the_watch_reads_the_allocator() {
    let (env, fake) = (MemEnv::new(), Arc::new(FakeAllocator::default()));
    let db = open_with(&env, 16 << 20, Some(Arc::clone(&fake) as _));
    let reads = || fake.reads.load(Ordering::Relaxed);
    let before = reads();
    fake.active.store(100 << 20, Ordering::Relaxed);
    for _ in 0..1000 {
        env.advance_clock(1_000_000);
        db.memory();
    }
    write(&db, 0..ROWS / 10, 0);
    db.flush().unwrap();
    assert_eq!((reads(), db.memory().uncounted), (before, 0));
    db.watch_memory();
    assert_eq!(reads(), before + 1);
    assert!(db.memory().uncounted > 90 << 20);
}

/// A thread of the database reads, divides the limit, and gives pages back. The test hangs if it
/// does not.
#[test]
fn a_thread_watches_the_allocator() {
    let (env, fake) = (MemEnv::new(), Arc::new(FakeAllocator::default()));
    let options = Options {
        background_jobs: 1,
        allocator: Some(Arc::clone(&fake) as _),
        ..Options::default()
    };
    options
        .mutable
        .memory_limit
        .store(64 << 20, Ordering::Relaxed);
    let db = Db::open(Arc::new(env), Path::new("/db"), options, None).unwrap();
    let wait = |done: &dyn Fn() -> bool| {
        while !done() {
            std::thread::yield_now();
        }
    };
    let calls = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    wait(&|| calls(&fake.decays) > 0);
    let before = db.memory().block_cache_capacity;
    assert_eq!(calls(&fake.purges), 0);
    fake.active.store(100 << 20, Ordering::Relaxed);
    wait(&|| db.memory().block_cache_capacity < before);
    wait(&|| calls(&fake.purges) > 0);
    db.close().unwrap();
    let reads = calls(&fake.reads);
    db.memory();
    assert_eq!(calls(&fake.reads), reads);
}

/// An ephemeral database spills as early as its host database, as soon as that is pressed.
#[test]
fn write_sets_of_an_ephemeral_database_share_the_limit() {
    let limit = 16 << 20;
    let db = open(&MemEnv::new(), limit);
    let guest = db.open_ephemeral(Path::new("/temporary")).unwrap();
    let cap = |db: &Db| db.options().mutable.write_set_limit();
    let alone = cap(&guest);
    assert_eq!(alone, cap(&db));
    let mut txn = db.new_transaction(db.new_owner(0));
    txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
    for row in 0..10_000 {
        txn.put(&key(row), Value::whole(&[1; 100])).unwrap();
    }
    assert!(cap(&guest) < alone);
    assert_eq!(cap(&guest), cap(&db));
    txn.rollback().unwrap();
    assert_eq!(cap(&guest), alone);
}

/// Loads that have begun and have no entry yet leave little to others.
#[test]
fn loads_that_begin_together_share_the_limit() {
    let limit = 64 << 20;
    let db = open(&MemEnv::new(), limit);
    let cap = || db.options().mutable.write_set_limit();
    let alone = cap();
    let loads = &db.context().loads;
    let begun: Vec<_> = (0..20).map(|_| loads.limits()).collect();
    let sum: u64 = begun.iter().map(|load| load.memory).sum();
    assert!(begun[0].memory > limit / 8 && begun[0].memory <= limit / 6);
    assert!(sum <= limit / 4 + 20 * (1 << 20), "{sum}");
    assert!(cap() < alone / 8, "{} of {alone}", cap());
    assert_eq!(db.memory().write_sets, 0);
    drop(begun);
    assert_eq!(cap(), alone);
}

/// Transactions that write at the same time spill before they take more than a quarter of the
/// limit together, whatever each of them may take by its own limit.
#[test]
fn many_write_sets_spill_early() {
    let limit = 16 << 20;
    let db = open(&MemEnv::new(), limit);
    let mut sets: Vec<_> = (0..10)
        .map(|i| db.new_transaction(db.new_owner(i)))
        .collect();
    for (i, txn) in sets.iter_mut().enumerate() {
        txn.begin_statement(i as u64 + 1, Isolation::ReadCommitted, 0, false);
    }
    let mut most = 0;
    for round in 0..4000 {
        for (i, txn) in sets.iter_mut().enumerate() {
            let row = i as u32 * 100_000 + round;
            txn.put(&key(row), Value::whole(&value(row, 0))).unwrap();
        }
        most = most.max(db.memory().write_sets);
    }
    assert!(most > limit / 8, "{most}");
    assert!(most <= limit / 4 + 10 * (64 << 10), "{most}");
    for mut txn in sets {
        txn.commit().unwrap();
    }
    assert_eq!(db.memory().write_sets, 0);
    db.flush().unwrap();
    for row in [0, 3999, 100_000, 903_999] {
        read(&db, row, 0);
    }
}
