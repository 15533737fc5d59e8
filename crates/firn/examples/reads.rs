//! Measures reads as a statement does them: rows as sysbench has them, through tables and cursors.
//!
//! `cargo run --release -p firn --example reads -- [rows] [directory]` prints nanoseconds per
//! operation, of the best of several rounds, and allocations per operation. Without a directory all
//! files are in memory. With `COLD` it reads through a small cache, with `REST` it measures the
//! tree at rest only, with `ONLY` only operations whose names have these words. `DIRECT=ring` and
//! `DIRECT=threads` read past the page cache.
#![allow(clippy::disallowed_methods)] // A measurement reads the clock.

#[path = "../tests/it/schema.rs"]
mod schema_parts;

use firn::base::options::{CommitDurability, Options};
use firn::base::record_buffer::Pad;
use firn::catalog::{ColumnSchema, TableLocking, TableSchema};
use firn::db::Db;
use firn::env::{Env, MemEnv, PosixEnv};
use firn::rowcode::ColumnKind;
use firn::table::{
    BulkLoad, Cursor, KeyImage, LockWait, ReadMode, RowScratch, SeekMode, Table, WriteFlags,
};
use firn::txn::{Isolation, LockMode, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use schema_parts::{column, int_index, open_or_create};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// An allocator that counts allocations.
struct Counting;

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the layout is passed on unchanged, and the system's allocator has the same
        // contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: pointer and layout are passed on unchanged, and the system's allocator has the
        // same contract.
        unsafe { System.dealloc(ptr, layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: all arguments are passed on unchanged, and the system's allocator has the same
        // contract.
        unsafe { System.realloc(ptr, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ID: usize = 1;
const K: usize = 5;
const C: usize = 9;
const PAD: usize = 129;
const RECORD: usize = 189;

fn schema() -> TableSchema {
    let spec = [
        ("id", ID, 4, true),
        ("k", K, 4, true),
        ("c", C, 120, false),
        ("pad", PAD, 60, false),
    ];
    let columns = spec.iter().zip(1..).map(|(&(name, at, len, fixed), id)| {
        let pad = Pad::new(b" ").expect("a space pads");
        let kind = match fixed {
            true => ColumnKind::Fixed { len },
            false => ColumnKind::Char { len, pad },
        };
        let chars = if fixed { 0 } else { len };
        ColumnSchema {
            chars,
            ..column(id, name, kind, at)
        }
    });
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: RECORD as u32,
        null_bytes: 1,
        columns: columns.collect(),
        indexes: vec![int_index("PRIMARY", true, 0), int_index("k_1", false, 1)],
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

fn fill(rng: &mut SmallRng, record: &mut [u8], id: u32, rows: u32) {
    record[ID..ID + 4].copy_from_slice(&id.to_le_bytes());
    let k = rows / 4 + rng.random_range(0..rows / 2);
    record[K..K + 4].copy_from_slice(&k.to_le_bytes());
    for (at, groups, len) in [(C, 10, 120), (PAD, 5, 60)] {
        let field = &mut record[at..at + len];
        field.fill(b' ');
        for group in 0..groups {
            for digit in 0..11 {
                field[group * 12 + digit] = b'0' + rng.random_range(0..10u8);
            }
            if group + 1 < groups {
                field[group * 12 + 11] = b'-';
            }
        }
    }
}

struct Bench {
    db: Arc<Db>,
    table: Arc<Table>,
    txn: Transaction,
    cursor: Cursor,
    record: Vec<u8>,
    statement: u64,
    rows: u32,
    /// Number of rows, from the first on, that reads choose from. A small number keeps them in the
    /// processor's caches.
    span: u32,
    rng: SmallRng,
}

impl Bench {
    fn statement(&mut self, autocommit: bool) {
        self.statement += 1;
        self.txn.begin_statement(
            self.statement,
            Isolation::RepeatableRead,
            1_000_000,
            autocommit,
        );
    }

    fn aim(&mut self, index: usize, mode: ReadMode) {
        self.cursor
            .reset(Some(index), mode, LockWait::Wait)
            .unwrap();
    }

    fn end(&mut self, autocommit: bool) {
        self.cursor.park();
        self.txn.end_statement();
        if autocommit {
            self.txn.commit().unwrap();
        }
    }

    fn id(&mut self) -> [u8; 4] {
        self.rng.random_range(1..=self.span).to_le_bytes()
    }

    /// A SELECT of one row by its key. With `autocommit` the statement is a transaction of its own.
    fn point(&mut self, autocommit: bool) {
        let id = self.id();
        self.statement(autocommit);
        self.aim(0, ReadMode::Snapshot);
        let found = self
            .cursor
            .get(&mut self.txn, KeyImage::image(&id), &mut self.record)
            .unwrap();
        assert!(found && self.record[ID..ID + 4] == id);
        self.end(autocommit);
    }

    /// A lookup in the inner table of a join: one statement does many of them.
    fn inner(&mut self) {
        let id = self.id();
        let found = self
            .cursor
            .get(&mut self.txn, KeyImage::image(&id), &mut self.record)
            .unwrap();
        assert!(found && self.record[ID..ID + 4] == id);
    }

    /// A SELECT of a range of `len` rows. The difference between two lengths shows the cost of a
    /// row.
    fn range(&mut self, index: usize, len: u32, key_only: bool, autocommit: bool) {
        let first = self
            .rng
            .random_range(1..=(self.span + 1).saturating_sub(len).max(1));
        let last = first + len - 1;
        self.statement(autocommit);
        self.aim(index, ReadMode::Snapshot);
        self.cursor.set_columns(None, key_only, &[]).unwrap();
        let end = last.to_le_bytes();
        self.cursor
            .set_end_range(Some(KeyImage::image(&end)), true)
            .unwrap();
        let (txn, record) = (&mut self.txn, &mut self.record);
        let start = first.to_le_bytes();
        let mut on = self
            .cursor
            .seek(txn, KeyImage::image(&start), SeekMode::AtOrAfter, record)
            .unwrap();
        let mut count = 0;
        while on {
            count += 1;
            on = self.cursor.next(txn, record).unwrap();
        }
        assert!(index != 0 || count == len, "{count} rows of {len}");
        self.cursor.set_end_range(None, false).unwrap();
        self.cursor.set_columns(None, false, &[]).unwrap();
        self.end(autocommit);
    }

    /// A SELECT of the rows with one value of the secondary index.
    fn secondary(&mut self, autocommit: bool) {
        let k = (self.rows / 4 + self.rng.random_range(0..self.rows / 2)).to_le_bytes();
        self.statement(autocommit);
        self.aim(1, ReadMode::Snapshot);
        let (txn, record) = (&mut self.txn, &mut self.record);
        let mut on = self
            .cursor
            .seek(txn, KeyImage::image(&k), SeekMode::Exact, record)
            .unwrap();
        while on {
            on = self
                .cursor
                .next_same(txn, KeyImage::image(&k), record)
                .unwrap();
        }
        self.end(autocommit);
    }

    fn update(&mut self, rows: u32) {
        let mut scratch = RowScratch::default();
        let mut new = vec![0; RECORD];
        for _ in 0..rows {
            let id = self.id();
            self.statement(true);
            self.aim(0, ReadMode::Locking(LockMode::Exclusive));
            let found = self
                .cursor
                .get(&mut self.txn, KeyImage::image(&id), &mut self.record)
                .unwrap();
            assert!(found);
            new.copy_from_slice(&self.record);
            let c = self.rng.random_range(0..100_000_000u32).to_string();
            new[C..C + c.len()].copy_from_slice(c.as_bytes());
            // SAFETY: there are no blob columns.
            unsafe {
                self.table.update(
                    &mut self.txn,
                    &self.record,
                    &new,
                    None,
                    WriteFlags::default(),
                    &mut scratch,
                )
            }
            .unwrap();
            self.cursor.park();
            self.txn.end_statement();
            self.txn.commit().unwrap();
        }
    }

    #[inline(never)]
    fn measure(&mut self, what: &str, times: u32, per: u32, mut f: impl FnMut(&mut Self)) {
        for _ in 0..times / 4 {
            f(self);
        }
        let mut best = f64::MAX;
        let mut allocations = 0;
        for _ in 0..7 {
            let before = ALLOCATIONS.load(Ordering::Relaxed);
            let start = Instant::now();
            for _ in 0..times {
                f(self);
            }
            let nanos = start.elapsed().as_nanos() as f64 / f64::from(times);
            allocations = ALLOCATIONS.load(Ordering::Relaxed) - before;
            best = best.min(nanos);
        }
        let allocations = allocations as f64 / f64::from(times);
        let per_row = best / f64::from(per);
        println!("{what:<44} {best:>9.0} ns {per_row:>8.0} ns/row {allocations:>8.2} allocations");
    }

    /// Measures reads through a small cache, when the page cache was dropped before or is bypassed.
    fn cold(&mut self) {
        let mut measure = |what: &str, times: u32, f: &mut dyn FnMut(&mut Self)| {
            let start = Instant::now();
            (0..times).for_each(|_| f(self));
            let micros = start.elapsed().as_micros() as f64 / f64::from(times);
            println!("{micros:>10.1} us for {what}");
        };
        let ranges = "a range of about 100 rows of the secondary index";
        measure(ranges, 200, &mut |b| b.range(1, 50, false, true));
        measure("a point read", 5000, &mut |b| b.point(true));
        measure("100,000 rows of the primary key", 2, &mut |b| {
            b.range(0, 100_000.min(b.rows), false, true);
        });
        let keys = "100 random keys at once";
        measure(keys, 200, &mut |b| b.batch(100));
        println!("batched reads: {}", self.prefetch_method());
    }

    fn prefetch_method(&self) -> String {
        let status = self.db.status_text();
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("batched reads: "));
        line.unwrap_or_default().to_owned()
    }

    /// Reads random rows by key with one multi get.
    fn batch(&mut self, rows: usize) {
        let entry = self.db.catalog().get("bench/t").unwrap();
        let clustered = entry.clustered.id.to_be_bytes();
        let key = |id: u32| [&clustered[..], &(id ^ 1 << 31).to_be_bytes()].concat();
        let span = self.span;
        let ids = (0..rows).map(|_| self.rng.random_range(1..=span));
        let keys: Vec<Vec<u8>> = ids.map(key).collect();
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        self.statement(true);
        let point = self.txn.read_point();
        for found in self.txn.multi_get(&point, &keys, |_, _, value| value.len()) {
            assert!(found.unwrap().is_some());
        }
        self.end(true);
    }

    fn both(&mut self, state: &str) {
        self.all(state);
        self.span = 10_000.min(self.rows);
        self.all(&format!("{state}, 10000 rows again and again"));
        self.span = self.rows;
    }

    fn all(&mut self, state: &str) {
        let only = std::env::var("ONLY").ok();
        let wanted = |what: &str| {
            only.as_ref()
                .is_none_or(|only| what.contains(only.as_str()))
        };
        println!("-- {state}");
        type Op = fn(&mut Bench);
        let ops: [(&str, u32, u32, Op); 8] = [
            ("point, autocommit", 100_000, 1, |b| b.point(true)),
            ("point, in a transaction", 100_000, 1, |b| b.point(false)),
            ("point, in a statement", 100_000, 1, |b| b.inner()),
            ("range of 1", 20_000, 1, |b| b.range(0, 1, false, true)),
            ("range of 100", 5_000, 100, |b| b.range(0, 100, false, true)),
            ("range of 10000", 50, 10_000, |b| {
                b.range(0, 10_000, false, true)
            }),
            ("secondary, rows of one value", 20_000, 2, |b| {
                b.secondary(true)
            }),
            ("secondary range of 5000, entries alone", 50, 10_000, |b| {
                b.range(1, 5000, true, true)
            }),
        ];
        for (what, times, per, op) in ops {
            if !wanted(what) {
                continue;
            }
            self.statement(false);
            self.aim(0, ReadMode::Snapshot);
            self.measure(what, times, per, op);
            self.end(true);
        }
    }
}

fn main() {
    let mut args = std::env::args().skip(1);
    let rows: u32 = args.next().map_or(1_000_000, |rows| rows.parse().unwrap());
    let direct = std::env::var("DIRECT").ok();
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    let (env, dir) = match args.next() {
        Some(dir) if direct.as_deref() == Some("threads") => {
            (Arc::new(PosixEnv::without_ring()) as Arc<dyn Env>, dir)
        }
        Some(dir) => (Arc::new(PosixEnv::new()) as Arc<dyn Env>, dir),
        None => (env, "/bench".to_owned()),
    };
    let cold = std::env::var("COLD").is_ok();
    let options = Options {
        block_cache_size: if cold { 8 << 20 } else { 1 << 30 },
        background_jobs: 0,
        direct_reads: direct.is_some(),
        row_cache_size: if cold { 0 } else { 32 << 20 },
        ..Options::default()
    };
    options
        .mutable
        .set_commit_durability(CommitDurability::Lazy);
    let db = Db::open(env, Path::new(&dir), options, None).unwrap();
    let mut rng = SmallRng::seed_from_u64(7);
    let mut record = vec![0; RECORD];
    let fresh = db.catalog().get("bench/t").is_err();
    let table = open_or_create(&db, "bench/t", schema());
    if fresh {
        let mut load =
            BulkLoad::new(Arc::clone(&table), db.context(), db.new_owner(0), false, 0).unwrap();
        let mut scratch = RowScratch::default();
        for id in 1..=rows {
            fill(&mut rng, &mut record, id, rows);
            // SAFETY: there are no blob columns.
            unsafe { load.insert(&record, WriteFlags::default(), &mut scratch) }.unwrap();
        }
        load.finish(&mut |_, _| Ok(())).unwrap();
        db.compact_all().unwrap();
    }
    let mut bench = Bench {
        txn: db.new_transaction(db.new_owner(0)),
        cursor: Cursor::new(Arc::clone(&table)),
        table,
        db,
        record,
        statement: 0,
        rows,
        span: rows,
        rng,
    };
    if cold {
        bench.cold();
        return;
    }
    bench.both("at rest");
    if std::env::var("REST").is_ok() {
        return;
    }
    for _ in 0..4 {
        bench.update(rows / 40);
        bench.db.flush().unwrap();
    }
    bench.update(rows / 20);
    bench.both("a sixth of the rows updated: in four files of L0 and the memtable");
}
