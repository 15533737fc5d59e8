//! A database with a table, and random work on it.

use super::rows::*;
use crate::schema::open_or_create;
use firn::base::Error;
use firn::base::options::Options;
use firn::db::Db;
use firn::env::{Env, FaultEnv, MemEnv};
use firn::table::{
    Cursor, KeyImage, LockWait, PartialColumn, ReadMode, RowScratch, Table, WriteFlags,
    WriteOutcome,
};
use firn::txn::{Isolation, LockMode, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

pub const DIR: &str = "/db";

pub struct World {
    pub env: MemEnv,
    pub fault: FaultEnv,
    pub db: Arc<Db>,
    pub table: Arc<Table>,
    pub rng: SmallRng,
    pub statement: u64,
}

pub fn options(threshold: u64) -> Options {
    let options = Options {
        background_jobs: 0,
        block_cache_size: 64 << 10,
        block_size: 512,
        target_file_size: 16 << 10,
        base_level_size: 16 << 10,
        blob_file_size: 512 << 10,
        blob_garbage_min: 64 << 10,
        // Only the tests flush: writers must never wait for it.
        frozen_memtables_max: 1000,
        ..Options::default()
    };
    options
        .mutable
        .blob_threshold
        .store(threshold, Ordering::Relaxed);
    options
}

pub fn open(env: &FaultEnv) -> (Arc<Db>, Arc<Table>) {
    open_in(env, DIR)
}

pub fn open_in(env: &FaultEnv, dir: &str) -> (Arc<Db>, Arc<Table>) {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    let db = Db::open(env, Path::new(dir), options(THRESHOLD), None).unwrap();
    let table = open_or_create(&db, "d/t", schema());
    (db, table)
}

impl World {
    pub fn new(seed: u64) -> Self {
        let env = MemEnv::new();
        env.set_punches(seed % 3 != 2);
        let fault = FaultEnv::new(Arc::new(env.clone()));
        let (db, table) = open(&fault);
        Self {
            env,
            fault,
            db,
            table,
            rng: SmallRng::seed_from_u64(seed),
            statement: 0,
        }
    }

    /// Crashes the environment with a power cut or a kill, and opens the database again.
    pub fn crash(&mut self) {
        self.env = match self.rng.random() {
            true => self.env.crash(self.rng.random()),
            false => self.env.kill(),
        };
        self.fault = FaultEnv::new(Arc::new(self.env.clone()));
        let (db, table) = open(&self.fault);
        (self.db, self.table) = (db, table);
    }

    pub fn begin(&mut self, txn: &mut Transaction) {
        self.statement += 1;
        txn.begin_statement(self.statement, Isolation::RepeatableRead, 0, false);
    }

    pub fn session(&mut self) -> Transaction {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        self.begin(&mut txn);
        txn
    }

    pub fn bytes(&mut self, max: usize) -> Vec<u8> {
        let around = [
            0, 1, 500, 999, 1000, 1001, 2900, 4096, 33_000, 70_000, 300_000,
        ];
        let len = match self.rng.random_range(0..8) {
            0..7 => around[self.rng.random_range(0..around.len() - 3)],
            _ => around[self.rng.random_range(0..around.len())],
        };
        let len = len.min(max);
        let (noise, byte) = (self.rng.random::<bool>(), self.rng.random());
        let rng = &mut self.rng;
        (0..len)
            .map(|_| if noise { rng.random() } else { byte })
            .collect()
    }

    /// Random columns of which a reader wants a prefix or the length only.
    pub fn parts(&mut self) -> Vec<PartialColumn> {
        let mut parts = Vec::new();
        for column in 2..5 {
            if self.rng.random() {
                let prefix = [0, 1, 600, 5000, 131_072, 131_073][self.rng.random_range(0..6)];
                parts.push(PartialColumn {
                    column,
                    prefix,
                    length: prefix == 0 || self.rng.random(),
                });
            }
        }
        parts
    }

    pub fn row(&mut self) -> Row {
        Row {
            n: self.rng.random_range(-9..9),
            t: self.bytes(VARCHAR_MAX),
            b: self.bytes(usize::MAX),
            c: self.rng.random_bool(0.7).then(|| self.bytes(usize::MAX)),
        }
    }

    /// A copy of `old` with random columns changed.
    pub fn changed(&mut self, old: &Row) -> Row {
        let fresh = self.row();
        let pick: u8 = self.rng.random();
        let mut new = old.clone();
        if pick & 1 != 0 {
            new.n = fresh.n;
        }
        if pick & 6 == 6 {
            new.t = fresh.t;
        }
        if pick & 24 == 24 {
            new.b = fresh.b;
        }
        if pick & 96 == 96 {
            new.c = fresh.c;
        }
        new
    }

    /// Makes random inserts, updates and deletes in `txn`, and the same changes in `rows`.
    pub fn write(
        &mut self,
        txn: &mut Transaction,
        rows: &mut Rows,
        count: u32,
    ) -> Result<(), Error> {
        let mut scratch = RowScratch::default();
        let mut cursor = Cursor::new(Arc::clone(&self.table));
        let flags = WriteFlags::default();
        for _ in 0..count {
            self.begin(txn);
            let id = self.rng.random_range(0..40);
            let Some(old) = rows.get(&id).cloned() else {
                let row = self.row();
                let record = record(id, &row);
                // SAFETY: the blob columns point into `row`, which outlives the call.
                unsafe { self.table.insert(txn, &record, flags, &mut scratch) }?;
                rows.insert(id, row);
                continue;
            };
            // Read under a lock, as the server does.
            let mode = ReadMode::Locking(LockMode::Exclusive);
            cursor.reset(Some(0), mode, LockWait::Fail)?;
            let new = self.changed(&old);
            // If an UPDATE does not change a column, it may read only the length of its value.
            let same = [(3, new.b == old.b), (4, new.c == old.c)].into_iter();
            let same = same.filter(|(_, same)| *same && self.rng.random());
            let unread = same.map(|(column, _)| PartialColumn {
                column,
                prefix: 0,
                length: true,
            });
            let unread: Vec<PartialColumn> = unread.collect();
            cursor.set_columns(None, false, &unread)?;
            let mut before = vec![0; RECORD];
            let key = id.to_le_bytes();
            assert!(cursor.get(txn, KeyImage::image(&key), &mut before)?);
            let wanted = unread
                .iter()
                .fold(0xff, |all, part| all & !(1 << part.column));
            assert_eq!(row_of(&before, wanted), (id, masked(&old, wanted)));
            if self.rng.random_bool(0.2) {
                // SAFETY: the blob columns point into the cursor's buffers, valid until it moves.
                unsafe { self.table.delete(txn, &before, None, flags, &mut scratch) }?;
                rows.remove(&id);
                continue;
            }
            let moved = (0..60).find(|other| !rows.contains_key(other));
            let new_id = moved.filter(|_| self.rng.random_bool(0.1)).unwrap_or(id);
            let mut after = record(new_id, &new);
            // A column that does not change keeps the pointer that was read.
            let is_unread = |column| unread.iter().any(|part| part.column == column);
            if is_unread(3) || new.b == old.b && self.rng.random() {
                after[B_AT..C_AT].copy_from_slice(&before[B_AT..C_AT]);
            }
            if is_unread(4) {
                after[C_AT..].copy_from_slice(&before[C_AT..]);
            }
            // SAFETY: the blob columns point into the cursor's buffers, valid until it moves, or
            // into `new`.
            let done = unsafe {
                self.table
                    .update(txn, &before, &after, None, flags, &mut scratch)
            }?;
            let same = new_id == id && new == old;
            assert_eq!(done == WriteOutcome::Same, same);
            rows.remove(&id);
            rows.insert(new_id, new);
        }
        Ok(())
    }

    /// Compares all rows with `rows` in a new transaction, and checks the table.
    pub fn check(&mut self, rows: &Rows, context: &str) {
        let mut txn = self.session();
        self.check_in(&mut txn, rows, context);
        txn.rollback().unwrap();
        let report = self
            .table
            .check(&self.db.context().super_versions, false, &|| false)
            .unwrap();
        assert_eq!(report.problems, [""; 0], "{context}");
        assert_eq!(report.rows, rows.len() as u64, "{context}");
    }

    /// Compares a scan of each index, with random columns and parts, with `rows`.
    pub fn check_in(&mut self, txn: &mut Transaction, rows: &Rows, context: &str) {
        let mut cursor = Cursor::new(Arc::clone(&self.table));
        for index in [0, 1] {
            let wanted = [0x1f, 0x1f, 3, 5, 9, 17][self.rng.random_range(0..6)];
            cursor
                .reset(Some(index), ReadMode::Snapshot, LockWait::Fail)
                .unwrap();
            let parts = self.parts();
            cursor.set_columns(Some(&[wanted]), false, &parts).unwrap();
            let mut buffer = vec![0; RECORD];
            let mut found = Rows::new();
            let mut on = cursor.first(txn, &mut buffer).unwrap();
            while on {
                let (id, row) = row_of(&buffer, wanted);
                assert!(found.insert(id, row).is_none(), "{context}");
                on = cursor.next(txn, &mut buffer).unwrap();
            }
            cursor.park();
            let expected: Rows = rows
                .iter()
                .map(|(id, r)| (*id, in_parts(&masked(r, wanted), &parts)))
                .collect();
            assert!(
                found == expected,
                "{context}: index {index}, columns {wanted:#x}, {parts:?}"
            );
        }
    }

    pub fn collect(&self) {
        for _ in 0..4 {
            self.db.collect_blobs().unwrap();
        }
    }
}

/// Reads all rows.
pub fn scan(world: &mut World) -> Rows {
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    cursor
        .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    let mut buffer = vec![0; RECORD];
    let mut rows = Rows::new();
    let mut on = cursor.first(&mut txn, &mut buffer).unwrap();
    while on {
        let (id, row) = row_of(&buffer, 0xff);
        rows.insert(id, row);
        on = cursor.next(&mut txn, &mut buffer).unwrap();
    }
    rows
}
