//! Measures the cost of flushes and compactions per update: loads sysbench-like rows with one
//! secondary index, then updates random rows. One thread does all work, so that its CPU time can be
//! attributed.
//!
//! `updates DIR ROWS UPDATES [MEMTABLE_MIB BASE_MIB FILE_MIB]`

use firn::base::Value;
use firn::base::options::{CommitDurability, MutableOptions, Options};
use firn::db::Db;
use firn::env::{Env, PosixEnv};
use firn::txn::Isolation;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

fn cpu_us() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let ns: u64 = text
        .split(' ')
        .next()
        .and_then(|n| n.parse().ok())
        .expect("a number");
    ns as f64 / 1000.0
}

fn row_key(n: u32) -> Vec<u8> {
    [&1u32.to_be_bytes()[..], &(n ^ 1 << 31).to_be_bytes()].concat()
}

fn index_key(k: u32, n: u32) -> Vec<u8> {
    [
        &2u32.to_be_bytes()[..],
        &(k ^ 1 << 31).to_be_bytes(),
        &(n ^ 1 << 31).to_be_bytes(),
    ]
    .concat()
}

fn digits(rng: &mut StdRng, groups: usize, out: &mut Vec<u8>) {
    for g in 0..groups {
        if g > 0 {
            out.push(b'-');
        }
        out.extend((0..11).map(|_| b'0' + rng.random_range(0..10u8)));
    }
}

struct Load {
    db: Arc<Db>,
    rng: StdRng,
    ks: Vec<u32>,
    texts: Vec<u8>,
}

impl Load {
    fn row(&mut self, n: u32, k: u32) -> (Vec<u8>, Vec<u8>) {
        let mut head = vec![1, 0];
        head.extend_from_slice(&n.to_le_bytes());
        head.extend_from_slice(&k.to_le_bytes());
        head.extend_from_slice(&[119, 59]);
        let at = (n as usize * 7919) % (self.texts.len() - 200);
        (head, self.texts[at..at + 178].to_vec())
    }

    fn commit(&mut self, rows: &[(u32, u32)], old: Option<u32>) {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
        for &(n, k) in rows {
            let (head, tail) = self.row(n, k);
            txn.put(&row_key(n), Value::split(&head, &tail)).unwrap();
            txn.put(&index_key(k, n), Value::EMPTY).unwrap();
            if let Some(old) = old {
                txn.delete(&index_key(old, n)).unwrap();
            }
        }
        txn.commit().unwrap();
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize, default: u64| args.get(i).map_or(default, |a| a.parse().unwrap());
    let rows = number(2, 1_000_000) as u32;
    let updates = number(3, 500_000);
    let mutable = MutableOptions::default();
    mutable.set_commit_durability(CommitDurability::Lazy);
    let memtable = number(4, 16) << 20;
    mutable.memtable_size.store(memtable, Ordering::Relaxed);
    let options = Options {
        mutable: Arc::new(mutable),
        base_level_size: number(5, 16) << 20,
        target_file_size: number(6, 32) << 20,
        background_jobs: 0,
        block_size: 16 << 10,
        ..Options::default()
    };
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let db = Db::open(env, Path::new(&args[1]), options, None).unwrap();
    let mut rng = StdRng::seed_from_u64(1);
    let mut texts = Vec::new();
    digits(&mut rng, 20_000, &mut texts);
    let mut load = Load {
        db: Arc::clone(&db),
        rng,
        ks: vec![0; rows as usize],
        texts,
    };
    let mut n = 0;
    while n < rows {
        let batch: Vec<(u32, u32)> = (n..(n + 1000).min(rows))
            .map(|n| (n, load.rng.random_range(0..rows)))
            .collect();
        batch.iter().for_each(|&(n, k)| load.ks[n as usize] = k);
        load.commit(&batch, None);
        n += 1000;
        work(&db, memtable);
    }
    db.compact_all().unwrap();
    let resting = db.counters();
    let size: u64 = db.levels().iter().map(|l| l.stored_bytes).sum();
    println!(
        "loaded: {} bytes a row, written {}",
        size / u64::from(rows),
        resting.compacted_bytes_written / u64::from(rows)
    );
    let (mut flush_us, mut compact_us, mut worst, mut before) = (0.0, 0.0, 0u64, resting);
    for i in 0..updates {
        let n = load.rng.random_range(0..rows);
        let k = load.rng.random_range(0..rows);
        let old = std::mem::replace(&mut load.ks[n as usize], k);
        load.commit(&[(n, k)], Some(old));
        if i == updates / 2 {
            (flush_us, compact_us, before) = (0.0, 0.0, db.counters());
        }
        if i % 1000 == 999 {
            let (f, c) = work(&db, memtable);
            flush_us += f;
            compact_us += c;
            let size: u64 = db
                .levels()
                .iter()
                .filter(|l| l.level > 0)
                .map(|l| l.stored_bytes)
                .sum();
            worst = worst.max(size);
        }
    }
    let c = db.counters();
    let per = |a: u64, b: u64| (a - b) as f64 / (updates - updates / 2) as f64;
    let half = (updates - updates / 2) as f64;
    println!(
        "an update: flush {:.2} us, compaction {:.2} us; flushed {:.0}, read {:.0}, written {:.0} bytes; worst size {:.3}",
        flush_us / half,
        compact_us / half,
        per(c.flushed_bytes, before.flushed_bytes),
        per(c.compacted_bytes_read, before.compacted_bytes_read),
        per(c.compacted_bytes_written, before.compacted_bytes_written),
        worst as f64 / size as f64,
    );
    println!("{}", db.status_text());
}

fn work(db: &Db, memtable: u64) -> (f64, f64) {
    let (mut flush_us, mut compact_us) = (0.0, 0.0);
    if db.counters().memtable_bytes > memtable {
        let start = cpu_us();
        db.flush().unwrap();
        flush_us += cpu_us() - start;
        let start = cpu_us();
        while db.compact_once().unwrap() {}
        compact_us += cpu_us() - start;
    }
    (flush_us, compact_us)
}
