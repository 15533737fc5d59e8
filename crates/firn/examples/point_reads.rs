//! Point reads over ten times the cache, uniform and under Zipf(1.0), with and without row cache.
//! Rates are per second of CPU time, so that other work on the machine does not count (Linux).
//!
//! `cargo run --release -p firn --example point_reads [rows] [seconds]`

use firn::base::Value;
use firn::base::options::{CommitDurability, Options};
use firn::db::Db;
use firn::env::{Env, PosixEnv, ReadClass};
use firn::read;
use firn::txn::Isolation;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;

const ROW: usize = 200;

fn key(row: u64) -> Vec<u8> {
    [&7u32.to_be_bytes()[..], &row.to_be_bytes()].concat()
}

fn open(dir: &Path, block_cache_size: u64, row_cache_size: u64) -> Arc<Db> {
    let options = Options {
        block_cache_size,
        row_cache_size,
        ..Options::default()
    };
    options
        .mutable
        .set_commit_durability(CommitDurability::Lazy);
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    Db::open(env, dir, options, None).unwrap()
}

fn load(db: &Db, rows: u64) {
    let mut rng = SmallRng::seed_from_u64(1);
    let mut value = [0; ROW];
    for from in (0..rows).step_by(1000) {
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::ReadCommitted, 0, false);
        for row in from..(from + 1000).min(rows) {
            // Half of a row is random, and the other half compresses.
            rng.fill(&mut value[..ROW / 2]);
            txn.put(&key(row), Value::split(&value[..60], &value[60..]))
                .unwrap();
        }
        txn.commit().unwrap();
    }
    db.compact_all().unwrap();
}

/// Draws a row: ranks follow Zipf(1.0), by inversion of the continuous law, and a multiplication
/// scatters them over the rows.
fn zipf(rng: &mut SmallRng, rows: u64) -> u64 {
    let rank = ((rows as f64 + 1.0).powf(rng.random::<f64>()) - 1.0) as u64;
    rank.wrapping_mul(0x9e37_79b9_7f4a_7c15) % rows
}

/// CPU time of this thread, nanoseconds.
fn cpu_ns() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    stat.split(' ').next().unwrap().parse().unwrap()
}

fn measure(db: &Db, what: &str, seconds: u64, mut next: impl FnMut() -> u64) -> f64 {
    let env = PosixEnv::new();
    let mut rate = 0.0;
    // The first round only fills the caches.
    for round in 0..3 {
        let (start, cpu, before) = (env.monotonic_micros(), cpu_ns(), db.counters());
        let mut reads = 0u64;
        while env.monotonic_micros() < start + seconds * 1_000_000 {
            for _ in 0..1000 {
                let point = db.context().super_versions.latest();
                let found = read::get(
                    &point.super_version,
                    &key(next()),
                    point.seqno,
                    ReadClass::Point,
                    |_, v| v.len(),
                );
                assert_eq!(found.unwrap(), Some(ROW));
            }
            reads += 1000;
        }
        rate = reads as f64 * 1e9 / (cpu_ns() - cpu) as f64;
        let after = db.counters();
        let share = |hits: u64, misses: u64| 100.0 * hits as f64 / (hits + misses).max(1) as f64;
        println!(
            "{what} {round}: {:.0} reads/s, row hits {:.1} %, block hits {:.1} %",
            rate,
            share(
                after.row_cache_hits - before.row_cache_hits,
                after.row_cache_misses - before.row_cache_misses
            ),
            share(
                after.block_cache_hits - before.block_cache_hits,
                after.block_cache_misses - before.block_cache_misses
            ),
        );
    }
    rate
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse().unwrap());
    let rows = args.next().unwrap_or(700_000);
    let time = args.next().unwrap_or(2);
    let dir = tempfile::tempdir().unwrap();
    load(&open(dir.path(), 8 << 20, 0), rows);
    let cache = rows * ROW as u64 / 10;
    for percent in [0, 12, 25, 33, 50] {
        let row_cache = cache * percent / 100;
        let mut rng = SmallRng::seed_from_u64(2);
        let db = open(dir.path(), cache - row_cache, row_cache);
        println!(
            "row cache {percent} %: block cache {}, row cache {row_cache}",
            cache - row_cache
        );
        let uniform = measure(&db, "uniform", time, || rng.random_range(0..rows));
        db.close().unwrap();
        drop(db);
        let db = open(dir.path(), cache - row_cache, row_cache);
        let hot = measure(&db, "zipf", time, || zipf(&mut rng, rows));
        println!("zipf / uniform {:.2}", hot / uniform);
        db.close().unwrap();
    }
}
