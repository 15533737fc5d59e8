//! The caches after flushes and compactions, and direct I/O.

use super::*;
use firn::env::{PosixEnv, ReadClass};
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::read::{ScanRange, scan_sources};

/// After a flush, repeated reads of a row come from the row cache. No read gets a stale version:
/// not by an older snapshot, not after the next flush, not after a compaction.
#[test]
fn the_row_cache_follows_flushes() {
    let db = open(&MemEnv::new());
    let commit = |value: &str| {
        let mut txn = begin(&db);
        put(&mut txn, "a", value);
        txn.commit().unwrap();
    };
    let read = |times: usize| {
        for _ in 1..times {
            get(&mut begin(&db), "a");
        }
        get(&mut begin(&db), "a").unwrap()
    };
    let hits = || db.counters().row_cache_hits;
    commit("1");
    assert_eq!((read(3).as_str(), hits()), ("1", 0));
    db.flush().unwrap();
    assert_eq!((read(3).as_str(), hits()), ("1", 2));
    let mut old = begin(&db);
    assert_eq!(get(&mut old, "a").as_deref(), Some("1"));
    commit("2");
    assert_eq!((read(3).as_str(), hits()), ("2", 3));
    db.flush().unwrap();
    // The flush has removed the row from the cache.
    assert_eq!((read(3).as_str(), hits()), ("2", 5));
    assert_eq!(get(&mut old, "a").as_deref(), Some("1"));
    old.commit().unwrap();
    assert_eq!((read(1).as_str(), hits()), ("2", 6));
    db.compact_all().unwrap();
    assert_eq!((read(2).as_str(), hits()), ("2", 8));
    commit("3");
    db.compact_all().unwrap();
    assert_eq!(read(3), "3");
}

/// Writes rows 0 to 3999 in as many runs of L0 as `rounds`, and reads those of `range` twice.
fn cached_rows(db: &Db, rounds: u32, range: std::ops::Range<u32>) {
    for round in 0..rounds {
        let mut txn = begin(db);
        for row in 0..4000u32 {
            if row % rounds == round {
                let value = format!("{row:0>100}");
                txn.put(
                    &key(&format!("{row:06}")),
                    Value::split(value.as_bytes(), b"|tail"),
                )
                .unwrap();
            }
        }
        txn.commit().unwrap();
        db.flush().unwrap();
    }
    for _ in 0..2 {
        misses(db, range.clone());
    }
}

/// Reads each row of `range`, and returns the number of block cache misses.
fn misses(db: &Db, range: std::ops::Range<u32>) -> u64 {
    let before = db.counters().block_cache_misses;
    let mut txn = begin(db);
    for row in range {
        assert!(get(&mut txn, &format!("{row:06}")).is_some());
    }
    db.counters().block_cache_misses - before
}

fn without_row_cache(block_cache_size: u64) -> Arc<Db> {
    let options = Options {
        row_cache_size: 0,
        block_cache_size,
        block_size: 1 << 10,
        ..options()
    };
    Db::open(Arc::new(MemEnv::new()), Path::new("/db"), options, None).unwrap()
}

#[test]
fn a_compaction_hands_cached_blocks_over() {
    let db = without_row_cache(64 << 20);
    cached_rows(&db, 3, 0..4000);
    assert_eq!(misses(&db, 0..4000), 0);
    let before = db.counters().block_cache_bytes;
    db.compact_all().unwrap();
    assert_eq!(misses(&db, 0..4000), 0, "blocks read after the compaction");
    let after = db.counters().block_cache_bytes;
    assert!(after < before * 11 / 10, "{before} bytes became {after}");
}

/// The cache is about as large as the tree: blocks of the inputs that stayed in it would displace
/// those of the output.
#[test]
fn a_full_cache_is_handed_over() {
    let db = without_row_cache(64 << 20);
    cached_rows(&db, 3, 0..4000);
    let size = db.counters().block_cache_bytes;
    drop(db);
    let db = without_row_cache(size * 5 / 4);
    cached_rows(&db, 3, 0..4000);
    let before = misses(&db, 0..4000);
    db.compact_all().unwrap();
    let after = misses(&db, 0..4000);
    let blocks = 4000 / 8;
    assert!(
        after <= before + blocks / 50,
        "{before} misses became {after}"
    );
}

#[test]
fn a_compaction_fills_no_cache() {
    let db = without_row_cache(64 << 20);
    cached_rows(&db, 3, 0..2000);
    let before = db.counters().block_cache_bytes;
    db.compact_all().unwrap();
    let after = db.counters().block_cache_bytes;
    assert!(after < before * 11 / 10, "{before} bytes became {after}");
    assert!(misses(&db, 0..2000) <= 1, "the border's block at most");
    let cold = misses(&db, 2000..4000);
    assert!(cold > 100, "{cold} blocks of rows nobody had read");
}

/// Direct reads of files on a disk: point reads, batches, scans over many blocks, compactions, a
/// restart; with `io_uring` and without.
#[test]
fn direct_reads_show_what_was_written() {
    for ring in [true, false] {
        direct_reads(ring);
    }
}

fn direct_reads(ring: bool) {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let options = Options {
            direct_reads: true,
            block_cache_size: 1 << 20,
            row_cache_size: 0,
            ..options()
        };
        let env = match ring {
            true => PosixEnv::new(),
            false => PosixEnv::without_ring(),
        };
        Db::open(Arc::new(env), dir.path(), options, None).unwrap()
    };
    let name = |n: u32| format!("{n:06}");
    let db = open();
    for half in [0, 1] {
        let mut txn = begin(&db);
        for n in (half..20_000).step_by(2) {
            put(&mut txn, &name(n), &name(n * 7 % 20_011).repeat(20));
        }
        txn.commit().unwrap();
        db.flush().unwrap();
    }
    db.compact_all().unwrap();
    db.close().unwrap();
    drop(db);
    let db = open();
    let before = db.counters().bytes_read;
    let mut txn = begin(&db);
    for n in (0..20_000).step_by(777) {
        assert_eq!(
            get(&mut txn, &name(n)),
            Some(name(n * 7 % 20_011).repeat(20))
        );
    }
    let wanted: Vec<Vec<u8>> = (0..300).map(|n| key(&name(n * 7919 % 20_100))).collect();
    let keys: Vec<&[u8]> = wanted.iter().map(|key| &key[..]).collect();
    let point = txn.read_point();
    let found = txn.multi_get(&point, &keys, |i, _, value| (i, value.head.to_vec()));
    for (at, found) in found.into_iter().enumerate() {
        let n = at as u32 * 7919 % 20_100;
        let expected = (n < 20_000).then(|| name(n * 7 % 20_011).repeat(20).into_bytes());
        assert_eq!(found.unwrap(), expected.map(|row| (at, row)), "row {n}");
    }
    let point = db.context().super_versions.latest();
    let range = ScanRange {
        lower: 7u32.to_be_bytes().to_vec(),
        upper: Some(8u32.to_be_bytes().to_vec()),
    };
    let sources = scan_sources(&point.super_version, &range, ReadClass::Range, None);
    let mut scan = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
    scan.set_bounds(Some(&range.lower), range.upper.as_deref());
    let mut on = scan.first().unwrap();
    for n in 0..20_000 {
        assert!(on, "the scan ends at {n}");
        assert_eq!(scan.user_key(), key(&name(n)));
        assert_eq!(
            scan.value().head,
            name(n * 7 % 20_011).repeat(20).as_bytes()
        );
        on = scan.next().unwrap();
    }
    assert!(!on);
    assert!(db.counters().bytes_read > before);
    let status = db.status_text();
    let line = |l: &&str| l.starts_with("batched reads: ");
    let line = status.lines().find(line).expect("in the status");
    assert!(ring || line.contains("threads"), "{line}");
    assert!(!line.contains(" 0 submitted"), "{line}");
}

/// A seek over several runs reads one block of each run. The reads begin together if more than one
/// block is not cached.
#[test]
fn a_cold_seek_begins_with_all_runs() {
    for ring in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let env = match ring {
            true => PosixEnv::new(),
            false => PosixEnv::without_ring(),
        };
        let env = Arc::new(env);
        let options = Options {
            direct_reads: true,
            background_jobs: 0,
            row_cache_size: 0,
            ..options()
        };
        let shared = Arc::clone(&env) as Arc<dyn Env>;
        let db = Db::open(shared, dir.path(), options, None).unwrap();
        let name = |n: u32| format!("{n:06}");
        for round in 0..3 {
            let mut txn = begin(&db);
            for n in (round..6000).step_by(3) {
                put(&mut txn, &name(n), &name(n).repeat(20));
            }
            txn.commit().unwrap();
            db.flush().unwrap();
        }
        let runs: u64 = db.levels().iter().map(|level| level.runs).sum();
        assert!(runs >= 2, "{runs} runs");
        let submitted = || env.prefetch_method().1.submitted;
        let first_from = |n: u32| {
            let point = db.context().super_versions.latest();
            let upper = 8u32.to_be_bytes();
            let lower = key(&name(n));
            let range = ScanRange {
                lower: lower.clone(),
                upper: Some(upper.to_vec()),
            };
            let sources = scan_sources(&point.super_version, &range, ReadClass::Range, None);
            let mut scan = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
            scan.set_bounds(Some(&range.lower), range.upper.as_deref());
            assert!(scan.seek_ge(&lower).unwrap());
            assert_eq!(scan.user_key(), lower);
        };
        let before = submitted();
        first_from(3000);
        assert_eq!(submitted() - before, runs, "a block of each run");
        first_from(3000);
        assert_eq!(submitted() - before, runs, "all is cached");
    }
}
