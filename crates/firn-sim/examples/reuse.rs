//! Measures the savings of block reuse: runs loads of sysbench-like rows (84 bytes stored each)
//! with block reuse and without. One thread does all work, so that its CPU time can be attributed.
//!
//! `reuse DIR [ROWS]`

use firn::base::Value;
use firn::base::options::{CommitDurability, MutableOptions, Options};
use firn::db::{Db, Metrics};
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

struct Load {
    db: Arc<Db>,
    rng: StdRng,
    texts: Vec<u8>,
    compact_us: f64,
}

const MEMTABLE: u64 = 8 << 20;
const BATCH: u64 = 500;

impl Load {
    fn new(dir: &Path, block_reuse: bool) -> Self {
        let mutable = MutableOptions::default();
        mutable.set_commit_durability(CommitDurability::Lazy);
        mutable.memtable_size.store(MEMTABLE, Ordering::Relaxed);
        let options = Options {
            mutable: Arc::new(mutable),
            base_level_size: 16 << 20,
            target_file_size: 16 << 20,
            background_jobs: 0,
            block_size: 16 << 10,
            block_reuse,
            ..Options::default()
        };
        let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
        let mut rng = StdRng::seed_from_u64(1);
        let texts = (0..200_000).map(|i| match i % 12 {
            11 => b'-',
            _ => b'0' + rng.random_range(0..10u8),
        });
        Self {
            db: Db::open(env, dir, options, None).unwrap(),
            texts: texts.collect(),
            rng,
            compact_us: 0.0,
        }
    }

    /// Commits puts or deletions of `keys`; flushes and compacts when the memtable is full.
    fn commit(&mut self, keys: &[u64], put: bool) {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 1000, false);
        for &n in keys {
            let key = [&1u32.to_be_bytes()[..], &n.to_be_bytes()].concat();
            if !put {
                txn.delete(&key).unwrap();
                continue;
            }
            let mut head = vec![1, 0];
            head.extend_from_slice(&n.to_le_bytes());
            let at = self.rng.random_range(0..self.texts.len() - 200);
            let tail = &self.texts[at..at + 178];
            txn.put(&key, Value::split(&head, tail)).unwrap();
        }
        txn.commit().unwrap();
        if self.db.counters().memtable_bytes > MEMTABLE {
            self.work();
        }
    }

    fn work(&mut self) {
        self.db.flush().unwrap();
        let start = cpu_us();
        while self.db.compact_once().unwrap() {}
        self.compact_us += cpu_us() - start;
    }

    fn rest(&mut self) {
        let start = cpu_us();
        self.db.compact_all().unwrap();
        self.compact_us += cpu_us() - start;
    }

    fn each(&mut self, keys: impl Iterator<Item = u64>, put: bool) {
        let keys: Vec<u64> = keys.collect();
        keys.chunks(BATCH as usize)
            .for_each(|batch| self.commit(batch, put));
    }

    fn report(&mut self, name: &str, before: &Metrics, before_us: f64) {
        let now = self.db.counters();
        let (read, written, reused) = (
            now.compacted_bytes_read - before.compacted_bytes_read,
            now.compacted_bytes_written - before.compacted_bytes_written,
            now.reused_bytes - before.reused_bytes,
        );
        let us = self.compact_us - before_us;
        println!(
            "{name:20} read {:6.1} MiB, written {:6.1} MiB, reused {:4.1} %, {:6.0} ms, {:5.1} ns a byte written",
            read as f64 / (1 << 20) as f64,
            written as f64 / (1 << 20) as f64,
            reused as f64 * 100.0 / written.max(1) as f64,
            us / 1000.0,
            us * 1000.0 / written.max(1) as f64,
        );
    }

    fn size(&self) -> u64 {
        self.db.levels().iter().map(|l| l.stored_bytes).sum()
    }
}

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let rows: u64 = args.get(2).map_or(600_000, |a| a.parse().unwrap());
    for reuse in [false, true] {
        let load_of =
            |name: &str| Load::new(&Path::new(&args[1]).join(format!("{name}-{reuse}")), reuse);
        println!("block reuse: {reuse}");

        // Rows arrive nearly in key order: each key is moved by up to 2000 places.
        let mut load = load_of("append");
        let (before, us) = (load.db.counters(), load.compact_us);
        let late: Vec<u64> = (0..rows)
            .map(|n| n * 1000 + load.rng.random_range(0..2_000_000))
            .collect();
        load.each(late.into_iter(), true);
        load.report("nearly appended", &before, us);
        let (before, us) = (load.db.counters(), load.compact_us);
        load.rest();
        load.report("  to rest", &before, us);
        println!("  {} bytes", load.size());

        // Rows are added at one end and deleted at the other.
        let mut load = load_of("queue");
        let (before, us) = (load.db.counters(), load.compact_us);
        for n in (0..rows).step_by(BATCH as usize) {
            load.each(n..n + BATCH, true);
            if n >= rows / 4 {
                load.each(n - rows / 4..n - rows / 4 + BATCH, false);
            }
        }
        load.report("a queue", &before, us);

        let mut load = load_of("updates");
        load.each((0..rows).map(|n| n * 1000), true);
        load.db.compact_all().unwrap();
        println!("  at rest {} bytes", load.size());
        // All updates go to a fifth of the keys: to a thousand neighbouring keys in each five
        // thousand.
        let (before, us) = (load.db.counters(), load.compact_us);
        let keys: Vec<u64> = (0..rows / 2)
            .map(|_| {
                1000 * (load.rng.random_range(0..rows / 5000) * 5000
                    + load.rng.random_range(0..1000))
            })
            .collect();
        load.each(keys.into_iter(), true);
        load.report("clustered updates", &before, us);
        // New keys arrive at a hundred places of the key range, in ascending order at each place.
        let (before, us) = (load.db.counters(), load.compact_us);
        let keys: Vec<u64> = (0..rows / 2)
            .map(|n| (n % 100) * (rows / 100) * 1000 + 500 + n / 100)
            .collect();
        load.each(keys.into_iter(), true);
        load.report("a hundred places", &before, us);
        // All updates go to the first fifth of the keys.
        let (before, us) = (load.db.counters(), load.compact_us);
        let keys: Vec<u64> = (0..rows / 2)
            .map(|_| 1000 * load.rng.random_range(0..rows / 5))
            .collect();
        load.each(keys.into_iter(), true);
        load.report("one hot range", &before, us);
        let (before, us) = (load.db.counters(), load.compact_us);
        let keys: Vec<u64> = (0..rows / 2)
            .map(|_| load.rng.random_range(0..rows))
            .collect();
        load.each(keys.into_iter(), true);
        load.report("uniform updates", &before, us);
        load.db.compact_all().unwrap();
        println!("  at rest {} bytes", load.size());
    }
}
