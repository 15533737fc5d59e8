//! Measures from which size on values are better out of line: durable updates of single rows,
//! values in the row and in a blob file, one client and eight.
//!
//! `cargo run --release -p firn --example blob_threshold -- DIRECTORY [SECONDS [ROUNDS [KIB…]]]`
//! prints medians of the rounds: updates per second; updates per second if the time of flushes and
//! compactions after the run counts too; bytes written per byte updated, these flushes and
//! compactions included, as the process counts them (without those of the file system's journal);
//! and bytes of files per live byte, at most and at rest. Rounds with values in line and out of
//! line take turns. With `STAT=/sys/block/sda/stat` the example counts the bytes sent to that
//! device instead, and prints the device's flushes per update.
#![allow(clippy::disallowed_methods)] // A measurement reads the clock.

use firn::base::Value;
use firn::base::blob_ref;
use firn::base::options::Options;
use firn::db::Db;
use firn::env::{Env, PosixEnv};
use firn::txn::{Isolation, LockMode};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const INDEX: u32 = 1_000_000;
const LIVE: u64 = 32 << 20;
/// Random bytes; a value is a piece of them.
const POOL: usize = 16 << 20;
const SIZES_KIB: [usize; 6] = [4, 8, 16, 32, 64, 128];

/// Opens a database with small files and levels, whose proportions are those of a large one.
fn open(dir: &Path) -> Arc<Db> {
    let options = Options {
        block_cache_size: 16 << 20,
        target_file_size: 2 << 20,
        base_level_size: 8 << 20,
        blob_file_size: 16 << 20,
        blob_garbage_min: 2 << 20,
        wal_segment_size: 4 << 20,
        ..Options::default()
    };
    options
        .mutable
        .memtable_size
        .store(4 << 20, Ordering::Relaxed);
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    Db::open(env, dir, options, None).expect("a directory to write to")
}

fn key(n: u64) -> Vec<u8> {
    [&INDEX.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

struct Cell<'a> {
    db: Arc<Db>,
    pool: &'a [u8],
    size: usize,
    out_of_line: bool,
}

impl Cell<'_> {
    /// Writes these rows in one committed transaction.
    fn write(&self, rng: &mut SmallRng, rows: impl Iterator<Item = u64>) {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 10_000_000, false);
        for n in rows {
            let key = key(n);
            let at = rng.random_range(0..POOL - self.size);
            let value = &self.pool[at..at + self.size];
            txn.lock(&key, LockMode::Exclusive, None).expect("a lock");
            let put = match self.out_of_line {
                false => txn.put(&key, Value::split(b"a row", value)),
                true => txn.write_blob(1, value).and_then(|blob| {
                    let mut tail = Vec::new();
                    blob_ref::append(&mut tail, &[blob]);
                    txn.put_with_blobs(&key, Value::split(b"a row", &tail))
                }),
            };
            put.expect("a write");
        }
        txn.commit().expect("a commit");
    }

    /// Updates random rows. Returns the number of updates.
    fn update(&self, rows: u64, clients: u64, time: Duration) -> u64 {
        let done = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for client in 0..clients {
                let done = &done;
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(client);
                    let began = Instant::now();
                    while began.elapsed() < time {
                        let row = rng.random_range(0..rows);
                        self.write(&mut rng, std::iter::once(row));
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        done.into_inner()
    }

    fn rest(&self) {
        self.db.flush().expect("a flush");
        while self.db.compact_once().expect("a compaction") {}
        while self.db.collect_blobs().expect("a collection") {}
    }

    /// Size of the SSTs and blob files, without the log, bytes.
    fn stored(&self) -> u64 {
        let sorted: u64 = self.db.levels().iter().map(|l| l.stored_bytes).sum();
        sorted + self.db.blobs().allocated
    }
}

/// Bytes written by the process, or with `STAT` by the device; and the device's flushes, 0 without
/// `STAT`.
fn written() -> (u64, u64) {
    let read = |path: &str| std::fs::read_to_string(path).expect("Linux");
    if let Ok(path) = std::env::var("STAT") {
        let stat = read(&path);
        let field = |at: usize| stat.split_whitespace().nth(at)?.parse::<u64>().ok();
        let number = |at: usize| field(at).expect("a number");
        return (number(6) * 512, number(15));
    }
    let io = read("/proc/self/io");
    let line = io
        .lines()
        .find_map(|line| line.strip_prefix("write_bytes: "));
    let bytes = line.and_then(|bytes| bytes.parse().ok());
    (bytes.expect("a count of bytes"), 0)
}

#[derive(Clone, Copy)]
struct Result {
    updates: f64,
    /// Updates per second, if the time until all background work is done counts too.
    sustained: f64,
    bytes: f64,
    most: f64,
    at_rest: f64,
    flushes: f64,
}

fn measure(
    dir: &Path,
    pool: &[u8],
    size: usize,
    out_of_line: bool,
    clients: u64,
    time: Duration,
) -> Result {
    let dir = dir.join("firn-blob-threshold");
    let _ = std::fs::remove_dir_all(&dir);
    let (db, rows) = (open(&dir), LIVE / size as u64);
    let cell = Cell {
        db,
        pool,
        size,
        out_of_line,
    };
    let mut rng = SmallRng::seed_from_u64(7);
    for first in (0..rows).step_by(16) {
        cell.write(&mut rng, first..(first + 16).min(rows));
    }
    cell.rest();
    let live = (rows * size as u64) as f64;
    let (before, began) = (written(), Instant::now());
    let updates = cell.update(rows, clients, time);
    let flushes = written().1 - before.1;
    let most = cell.stored();
    cell.rest();
    let sustained = updates as f64 / began.elapsed().as_secs_f64();
    let bytes = written().0 - before.0;
    let result = Result {
        updates: updates as f64 / time.as_secs_f64(),
        sustained,
        bytes: bytes as f64 / (updates as f64 * size as f64),
        most: most as f64 / live,
        at_rest: cell.stored() as f64 / live,
        flushes: flushes as f64 / updates as f64,
    };
    cell.db.close().expect("a clean end");
    drop(cell);
    std::fs::remove_dir_all(&dir).expect("what was just made");
    result
}

fn median(results: &[Result], of: fn(&Result) -> f64) -> f64 {
    let mut all: Vec<f64> = results.iter().map(of).collect();
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(dir) = arguments.first() else {
        eprintln!("a directory, please");
        std::process::exit(2);
    };
    let number = |at: usize| arguments.get(at).and_then(|text| text.parse().ok());
    let time = Duration::from_secs(number(1).unwrap_or(5));
    let rounds = number(2).unwrap_or(3).max(1);
    let mut sizes: Vec<usize> = (3..arguments.len())
        .filter_map(number)
        .map(|kib| kib as usize)
        .collect();
    if sizes.is_empty() {
        sizes = SIZES_KIB.to_vec();
    }
    let mut rng = SmallRng::seed_from_u64(1);
    let pool: Vec<u8> = (0..POOL).map(|_| rng.random()).collect();
    let mut cells = Vec::new();
    for &kib in &sizes {
        for clients in [1, 8] {
            cells.push((kib, clients, [Vec::new(), Vec::new()]));
        }
    }
    for round in 0..rounds {
        for (kib, clients, results) in &mut cells {
            for out_of_line in [false, true] {
                let result = measure(
                    Path::new(dir),
                    &pool,
                    *kib << 10,
                    out_of_line,
                    *clients,
                    time,
                );
                results[usize::from(out_of_line)].push(result);
                eprintln!(
                    "round {round}: {kib} KiB, {clients} clients, {}: {:.0} updates/s, {:.0} until at rest, {:.2} bytes a byte, space {:.2} and \
                     {:.2}, {:.2} flushes an update",
                    if out_of_line {
                        "out of line"
                    } else {
                        "in line"
                    },
                    result.updates,
                    result.sustained,
                    result.bytes,
                    result.most,
                    result.at_rest,
                    result.flushes
                );
            }
        }
    }
    println!(
        "| value | clients | updates/s | until at rest | bytes a byte | space at most | at rest | flushes |"
    );
    println!("|---|---|---|---|---|---|---|---|");
    for (kib, clients, [inline, out]) in &cells {
        let pair = |of: fn(&Result) -> f64| (median(inline, of), median(out, of));
        let rate = |of: fn(&Result) -> f64| {
            let (inline, out) = pair(of);
            format!("{inline:.0} / {out:.0} ({:.2})", out / inline)
        };
        let each = |of: fn(&Result) -> f64| {
            let (inline, out) = pair(of);
            format!("{inline:.2} / {out:.2}")
        };
        println!(
            "| {kib} KiB | {clients} | {} | {} | {} | {} | {} | {} |",
            rate(|r| r.updates),
            rate(|r| r.sustained),
            each(|r| r.bytes),
            each(|r| r.most),
            each(|r| r.at_rest),
            each(|r| r.flushes)
        );
    }
}
