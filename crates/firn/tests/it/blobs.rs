//! Rows with values out of line, against a model.

use firn::base::Error;
use firn::base::options::Options;
use firn::catalog::{ColumnSchema, Definition, IndexPart, IndexSchema, PartSchema, TableSchema};
use firn::db::{Db, Look, repair};
use firn::env::fault::{Class, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv};
use firn::rowcode::{Column, ColumnKind, Missing, NullBit};
use firn::table::{
    BulkLoad, Cursor, Key, LockWait, Part, ReadMode, RowScratch, SeekMode, Table, WriteFlags,
    Written,
};
use firn::txn::{Isolation, LockMode, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

const DIR: &str = "/db";
const VARCHAR_MAX: usize = 3000;
const THRESHOLD: u64 = 1000;
const N_AT: usize = 5;
const T_AT: usize = 9;
const B_AT: usize = T_AT + 2 + VARCHAR_MAX;
const C_AT: usize = B_AT + 12;
const RECORD: usize = C_AT + 11;
const NULL: NullBit = NullBit { offset: 0, mask: 2 };

/// id INT PRIMARY KEY, n INT, t VARCHAR(3000), b LONGBLOB, c MEDIUMTEXT NULL, KEY (n).
fn schema() -> TableSchema {
    let varchar = ColumnKind::VarChar {
        len_bytes: 2,
        max: VARCHAR_MAX as u32,
    };
    let columns = [
        ("id", 1, ColumnKind::Fixed { len: 4 }, None),
        ("n", N_AT, ColumnKind::Fixed { len: 4 }, None),
        ("t", T_AT, varchar, None),
        ("b", B_AT, ColumnKind::Blob { len_bytes: 4 }, None),
        ("c", C_AT, ColumnKind::Blob { len_bytes: 3 }, Some(NULL)),
    ];
    let columns = columns.into_iter().enumerate();
    let columns = columns.map(|(i, (name, offset, kind, null))| ColumnSchema {
        name: name.to_owned(),
        type_code: 0,
        chars: 0,
        column: Column {
            id: i as u32 + 1,
            kind,
            offset: offset as u32,
            null,
            stored: true,
            missing: Missing::Impossible,
        },
    });
    let index = |name: &str, unique, column| IndexSchema {
        name: name.to_owned(),
        unique,
        parts: vec![IndexPart {
            column,
            kind: PartSchema::Int { signed: true },
            desc: false,
            prefix: None,
            image_len: 4,
        }],
    };
    TableSchema {
        version: 1,
        record_len: RECORD as u32,
        null_bytes: 1,
        columns: columns.collect(),
        indexes: vec![index("PRIMARY", true, 0), index("n", false, 1)],
        primary: Some(0),
        auto_increment: None,
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Row {
    n: i32,
    t: Vec<u8>,
    b: Vec<u8>,
    c: Option<Vec<u8>>,
}

type Rows = BTreeMap<i32, Row>;

/// The record of a row; its blobs point into `row`.
fn record(id: i32, row: &Row) -> Vec<u8> {
    let mut record = vec![0; RECORD];
    record[1..5].copy_from_slice(&id.to_le_bytes());
    record[N_AT..T_AT].copy_from_slice(&row.n.to_le_bytes());
    record[T_AT..T_AT + 2].copy_from_slice(&(row.t.len() as u16).to_le_bytes());
    record[T_AT + 2..T_AT + 2 + row.t.len()].copy_from_slice(&row.t);
    let point = |record: &mut [u8], at: usize, len_bytes: usize, bytes: &[u8]| {
        let len = (bytes.len() as u32).to_le_bytes();
        record[at..at + len_bytes].copy_from_slice(&len[..len_bytes]);
        let address = bytes.as_ptr() as usize;
        record[at + len_bytes..at + len_bytes + 8].copy_from_slice(&address.to_ne_bytes());
    };
    point(&mut record, B_AT, 4, &row.b);
    match &row.c {
        Some(c) => point(&mut record, C_AT, 3, c),
        None => NULL.set(&mut record, true),
    }
    record
}

/// The columns of `record` whose bits `wanted` has; the others stay as they are by default.
fn row_of(record: &[u8], wanted: u8) -> (i32, Row) {
    let number = |at: usize| i32::from_le_bytes(record[at..at + 4].try_into().unwrap());
    let blob = |at: usize, len_bytes: usize| {
        let mut len = [0; 4];
        len[..len_bytes].copy_from_slice(&record[at..at + len_bytes]);
        let len = u32::from_le_bytes(len) as usize;
        let address = record[at + len_bytes..at + len_bytes + 8]
            .try_into()
            .unwrap();
        let address = usize::from_ne_bytes(address);
        match len {
            0 => Vec::new(),
            // SAFETY: a cursor has put the pointer there, and has not moved since.
            _ => unsafe { std::slice::from_raw_parts(address as *const u8, len) }.to_vec(),
        }
    };
    let mut row = Row::default();
    if wanted & 2 != 0 {
        row.n = number(N_AT);
    }
    if wanted & 4 != 0 {
        let len = u16::from_le_bytes([record[T_AT], record[T_AT + 1]]) as usize;
        row.t = record[T_AT + 2..T_AT + 2 + len].to_vec();
    }
    if wanted & 8 != 0 {
        row.b = blob(B_AT, 4);
    }
    if wanted & 16 != 0 && !NULL.is_set(record) {
        row.c = Some(blob(C_AT, 3));
    }
    (number(1), row)
}

fn masked(row: &Row, wanted: u8) -> Row {
    let mut row = row.clone();
    if wanted & 2 == 0 {
        row.n = 0;
    }
    if wanted & 4 == 0 {
        row.t.clear();
    }
    if wanted & 8 == 0 {
        row.b.clear();
    }
    if wanted & 16 == 0 {
        row.c = None;
    }
    row
}

/// What a reader finds that is content with `parts` of what lies out of line.
fn in_parts(row: &Row, parts: &[Part]) -> Row {
    let mut row = row.clone();
    for part in parts {
        let value = match part.column {
            2 => &mut row.t,
            3 => &mut row.b,
            _ => match &mut row.c {
                Some(c) => c,
                None => continue,
            },
        };
        let (len, prefix) = (value.len(), part.prefix as usize);
        if len < THRESHOLD as usize || prefix >= len {
            continue;
        }
        match part.length {
            false => value.truncate(prefix),
            // A VARCHAR is no longer than a chunk.
            true if prefix > 0 && part.column == 2 => {}
            true => value[prefix..].fill(0),
        }
    }
    row
}

struct World {
    env: MemEnv,
    fault: FaultEnv,
    db: Arc<Db>,
    table: Arc<Table>,
    rng: SmallRng,
    statement: u64,
}

fn options(threshold: u64) -> Options {
    let options = Options {
        background_jobs: 0,
        block_cache_size: 64 << 10,
        block_size: 512,
        target_file_size: 16 << 10,
        base_level_size: 16 << 10,
        blob_file_size: 512 << 10,
        blob_garbage_min: 64 << 10,
        // Nobody flushes but the tests.
        frozen_memtables_max: 1000,
        ..Options::default()
    };
    options
        .live
        .blob_threshold
        .store(threshold, Ordering::Relaxed);
    options
}

fn open(env: &FaultEnv) -> (Arc<Db>, Arc<Table>) {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    let db = Db::open(env, Path::new(DIR), options(THRESHOLD), None).unwrap();
    if db.catalog().list("").is_empty() {
        let definition = Definition {
            schema: schema(),
            frm: b"",
            version: b"",
            created_micros: 0,
        };
        db.catalog().create("d/t", definition).unwrap();
    }
    let table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
    (db, table)
}

impl World {
    fn new(seed: u64) -> Self {
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

    /// The database after a power cut or a kill.
    fn crash(&mut self) {
        self.env = match self.rng.random() {
            true => self.env.crash(self.rng.random()),
            false => self.env.kill(),
        };
        self.fault = FaultEnv::new(Arc::new(self.env.clone()));
        let (db, table) = open(&self.fault);
        (self.db, self.table) = (db, table);
    }

    fn begin(&mut self, txn: &mut Transaction) {
        self.statement += 1;
        txn.begin_statement(self.statement, Isolation::RepeatableRead, 0, false);
    }

    fn session(&mut self) -> Transaction {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        self.begin(&mut txn);
        txn
    }

    fn bytes(&mut self, max: usize) -> Vec<u8> {
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

    /// What a reader may find enough.
    fn parts(&mut self) -> Vec<Part> {
        let mut parts = Vec::new();
        for column in 2..5 {
            if self.rng.random() {
                let prefix = [0, 1, 600, 5000, 131_072, 131_073][self.rng.random_range(0..6)];
                parts.push(Part {
                    column,
                    prefix,
                    length: prefix == 0 || self.rng.random(),
                });
            }
        }
        parts
    }

    fn row(&mut self) -> Row {
        Row {
            n: self.rng.random_range(-9..9),
            t: self.bytes(VARCHAR_MAX),
            b: self.bytes(usize::MAX),
            c: self.rng.random_bool(0.7).then(|| self.bytes(usize::MAX)),
        }
    }

    /// The row with some columns changed.
    fn changed(&mut self, old: &Row) -> Row {
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

    /// Some inserts, updates and deletes.
    fn write(&mut self, txn: &mut Transaction, rows: &mut Rows, count: u32) -> Result<(), Error> {
        let mut scratch = RowScratch::default();
        let mut cursor = Cursor::new(Arc::clone(&self.table));
        let flags = WriteFlags::default();
        for _ in 0..count {
            self.begin(txn);
            let id = self.rng.random_range(0..40);
            let Some(old) = rows.get(&id).cloned() else {
                let row = self.row();
                let record = record(id, &row);
                // SAFETY: the blobs point into `row`.
                unsafe { self.table.insert(txn, &record, flags, &mut scratch) }?;
                rows.insert(id, row);
                continue;
            };
            // Read under a lock, as the server does.
            let mode = ReadMode::Locking(LockMode::Exclusive);
            cursor.reset(Some(0), mode, LockWait::Fail)?;
            let mut before = vec![0; RECORD];
            let key = id.to_le_bytes();
            assert!(cursor.get(txn, Key::image(&key), &mut before)?);
            assert_eq!(row_of(&before, 0xff), (id, old.clone()));
            if self.rng.random_bool(0.2) {
                // SAFETY: the blobs are the cursor's.
                unsafe { self.table.delete(txn, &before, None, flags, &mut scratch) }?;
                rows.remove(&id);
                continue;
            }
            let new = self.changed(&old);
            let moved = (0..60).find(|other| !rows.contains_key(other));
            let new_id = moved.filter(|_| self.rng.random_bool(0.1)).unwrap_or(id);
            let mut after = record(new_id, &new);
            if new.b == old.b && self.rng.random() {
                // A column that the statement leaves alone has the same pointer.
                after[B_AT..C_AT].copy_from_slice(&before[B_AT..C_AT]);
            }
            // SAFETY: the blobs are the cursor's or point into `new`.
            let done = unsafe {
                self.table
                    .update(txn, &before, &after, None, flags, &mut scratch)
            }?;
            let same = new_id == id && new == old;
            assert_eq!(done == Written::Same, same);
            rows.remove(&id);
            rows.insert(new_id, new);
        }
        Ok(())
    }

    /// Reads everything, some columns of it, both by index and by scan, and compares.
    fn check(&mut self, rows: &Rows, context: &str) {
        let mut txn = self.session();
        self.check_in(&mut txn, rows, context);
        txn.rollback().unwrap();
        let report = self
            .table
            .check(&self.db.context().views, false, &|| false)
            .unwrap();
        assert_eq!(report.problems, [""; 0], "{context}");
        assert_eq!(report.rows, rows.len() as u64, "{context}");
    }

    fn check_in(&mut self, txn: &mut Transaction, rows: &Rows, context: &str) {
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

    fn collect(&self) {
        for _ in 0..4 {
            self.db.collect_blobs().unwrap();
        }
    }
}

#[test]
fn rows_with_blobs_agree_with_a_model() {
    for seed in 0..9 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        for round in 0..60 {
            let context = format!("seed {seed}, round {round}");
            let mut txn = world.session();
            let mut next = rows.clone();
            world.write(&mut txn, &mut next, 6).unwrap();
            if world.rng.random_bool(0.3) {
                let mark = txn.savepoint();
                let mut forgotten = next.clone();
                world.write(&mut txn, &mut forgotten, 3).unwrap();
                txn.rollback_to(mark);
            }
            world.begin(&mut txn);
            world.check_in(&mut txn, &next, &context);
            match world.rng.random_range(0..8) {
                0 => txn.rollback().unwrap(),
                1 => {
                    let xid = format!("x{round}");
                    txn.prepare(xid.as_bytes()).unwrap();
                    txn.detach(world.db.new_owner(0));
                    drop(txn);
                    if world.rng.random() {
                        world.crash();
                    }
                    world.collect();
                    if world.rng.random() {
                        assert!(world.db.commit_xid(xid.as_bytes()).unwrap());
                        rows = next;
                    } else {
                        assert!(world.db.rollback_xid(xid.as_bytes()).unwrap());
                    }
                }
                _ => {
                    txn.commit().unwrap();
                    rows = next;
                }
            }
            match world.rng.random_range(0..8) {
                0 => world.db.flush().unwrap(),
                1 => world.db.compact_all().unwrap(),
                2 => drop(world.db.compact_once().unwrap()),
                3 => world.crash(),
                _ => {}
            }
            world.db.collect_blobs().unwrap();
            if round % 4 == 0 {
                world.check(&rows, &context);
            }
        }
    }
}

#[test]
fn an_old_view_keeps_the_blobs_it_shows() {
    for seed in 0..6 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        let mut txn = world.session();
        world.write(&mut txn, &mut rows, 60).unwrap();
        txn.commit().unwrap();
        // A scan stays in the middle of the table.
        let mut reader = world.db.new_transaction(world.db.new_owner(0));
        world.statement += 1;
        reader.begin_statement(world.statement, Isolation::ReadCommitted, 0, true);
        let mut cursor = Cursor::new(Arc::clone(&world.table));
        cursor
            .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
            .unwrap();
        let mut buffer = vec![0; RECORD];
        assert!(cursor.first(&mut reader, &mut buffer).unwrap());
        let before = rows.clone();
        for _ in 0..40 {
            let mut txn = world.session();
            world.write(&mut txn, &mut rows, 10).unwrap();
            txn.commit().unwrap();
        }
        world.db.compact_all().unwrap();
        world.collect();
        let live = world.db.blobs();
        for (id, row) in &before {
            assert_eq!(row_of(&buffer, 0xff), (*id, row.clone()), "seed {seed}");
            cursor.next(&mut reader, &mut buffer).unwrap();
        }
        drop((cursor, reader));
        world.collect();
        let after = world.db.blobs();
        assert!(after.allocated < live.allocated, "{live:?}, then {after:?}");
        world.check(&rows, "at the end");
    }
}

#[test]
fn space_follows_what_lives() {
    for seed in 0..3 {
        let mut world = World::new(seed);
        let mut rows = Rows::new();
        let mut most = 0.0f64;
        for round in 0..60 {
            for _ in 0..5 {
                let mut txn = world.session();
                world.write(&mut txn, &mut rows, 8).unwrap();
                txn.commit().unwrap();
            }
            world.db.flush().unwrap();
            while world.db.compact_once().unwrap() {}
            world.collect();
            let report = world.db.blobs();
            if round > 20 && report.live > 0 {
                most = most.max(report.allocated as f64 / report.live as f64);
            }
        }
        world.db.compact_all().unwrap();
        world.db.context().blobs.seal_active();
        world.collect();
        let report = world.db.blobs();
        let stats = world.db.context().blobs.stats();
        let written = stats.written_bytes.load(Ordering::Relaxed);
        assert!(written > 10 * report.allocated, "{written} bytes written");
        // Small values leave parts of blocks behind; where there are no holes, less than a third.
        let most_at_rest = report.live + report.live / 2 + 16 * 4096;
        assert!(report.allocated < most_at_rest, "seed {seed}: {report:?}");
        assert!(most < 3.0, "seed {seed}: {most} times the blobs");
        world.check(&rows, "at the end");
        // Without a row nothing is left.
        let mut txn = world.session();
        let mut scratch = RowScratch::default();
        for (id, row) in &rows {
            let old = record(*id, row);
            let flags = WriteFlags::default();
            // SAFETY: the blobs point into `row`.
            unsafe {
                world
                    .table
                    .delete(&mut txn, &old, None, flags, &mut scratch)
            }
            .unwrap();
        }
        txn.commit().unwrap();
        world.db.compact_all().unwrap();
        world.db.context().blobs.seal_active();
        world.collect();
        assert_eq!(world.db.blobs().files, 0, "seed {seed}");
    }
}

#[test]
fn a_failed_write_or_sync_of_a_blob_fails_the_statement_alone() {
    let mut world = World::new(4);
    let mut rows = Rows::new();
    let mut txn = world.session();
    world.write(&mut txn, &mut rows, 30).unwrap();
    txn.commit().unwrap();
    let mut failed = 0;
    for nth in 1..40 {
        for (class, errno) in [
            (Class::Write, Errno::NoSpace),
            (Class::Write, Errno::Io),
            (Class::Sync, Errno::Io),
        ] {
            let mut txn = world.session();
            let mut next = rows.clone();
            if class == Class::Sync {
                // The first sync of a commit is that of its blobs.
                world.write(&mut txn, &mut next, 8).unwrap();
                let fault = Fault {
                    class,
                    nth: 1,
                    sticky: false,
                    errno,
                };
                let held = world.db.context().blobs.stats();
                let before = held.written.load(Ordering::Relaxed);
                world.fault.inject(fault);
                let committed = txn.commit();
                world.fault.clear();
                assert!(before > 0);
                match committed {
                    Ok(()) => rows = next,
                    Err(_) => {
                        failed += 1;
                        txn.rollback().unwrap();
                        if world.db.sync_log().is_err() {
                            // It was the log's sync: nothing was written out of line.
                            world.crash();
                            rows = scan(&mut world);
                        }
                    }
                }
            } else {
                world.fault.inject(Fault {
                    class,
                    nth: nth % 12 + 1,
                    sticky: false,
                    errno,
                });
                let written = world.write(&mut txn, &mut next, 8);
                world.fault.clear();
                match written {
                    Ok(()) => {
                        txn.commit().unwrap();
                        rows = next;
                    }
                    Err(_) => {
                        failed += 1;
                        txn.rollback().unwrap();
                    }
                }
            }
            world.check(&rows, &format!("call {nth} of {class:?}"));
        }
    }
    assert!(failed > 20, "{failed} faults were felt");
}

/// All rows there are.
fn scan(world: &mut World) -> Rows {
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

#[test]
fn an_update_of_other_columns_writes_no_blob() {
    let mut world = World::new(5);
    let row = Row {
        n: 1,
        t: vec![1; 2000],
        b: vec![2; 100_000],
        c: Some(vec![3; 5000]),
    };
    let mut scratch = RowScratch::default();
    let flags = WriteFlags::default();
    let mut txn = world.session();
    // SAFETY: the blobs point into `row`.
    unsafe {
        let table = &world.table;
        table.insert(&mut txn, &record(1, &row), flags, &mut scratch)
    }
    .unwrap();
    txn.commit().unwrap();
    let db = Arc::clone(&world.db);
    let stats = db.context().blobs.stats();
    let written = || stats.written.load(Ordering::Relaxed);
    assert_eq!(written(), 3);
    let copy = row.clone();
    for n in 2..6 {
        if n == 4 {
            world.db.compact_all().unwrap();
        }
        let old = Row {
            n: n - 1,
            ..row.clone()
        };
        let new = Row { n, ..copy.clone() };
        let mut txn = world.session();
        // SAFETY: the blobs point into the rows.
        unsafe {
            let (old, new) = (record(1, &old), record(1, &new));
            let table = &world.table;
            table.update(&mut txn, &old, &new, None, flags, &mut scratch)
        }
        .unwrap();
        txn.commit().unwrap();
    }
    assert_eq!(written(), 3);
    let read = || stats.read.load(Ordering::Relaxed);
    let before = read();
    // A scan of other columns reads none.
    let mut txn = world.session();
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    cursor
        .reset(Some(0), ReadMode::Snapshot, LockWait::Fail)
        .unwrap();
    cursor.set_columns(Some(&[3]), false, &[]).unwrap();
    let mut buffer = vec![0; RECORD];
    let key = 1i32.to_le_bytes();
    let seek = (Key::image(&key), SeekMode::Exact);
    assert!(cursor.seek(&mut txn, seek.0, seek.1, &mut buffer).unwrap());
    assert_eq!(row_of(&buffer, 3).1.n, 5);
    assert_eq!(read(), before);
}

#[test]
fn damage_stays_with_its_value_and_a_repair_keeps_the_rest() {
    let mut world = World::new(0);
    let mut rows = Rows::new();
    for i in 0..6 {
        let mut row = world.row();
        (row.t, row.c) = (vec![1], None);
        row.b = (0..5000).map(|_| world.rng.random()).collect();
        rows.insert(i, row);
    }
    let mut txn = world.session();
    let mut scratch = RowScratch::default();
    for (id, row) in &rows {
        // SAFETY: the blobs point into `rows`.
        unsafe {
            let (table, flags) = (&world.table, WriteFlags::default());
            table.insert(&mut txn, &record(*id, row), flags, &mut scratch)
        }
        .unwrap();
    }
    txn.commit().unwrap();
    // A prepared one, which goes through the repair as well.
    let mut txn = world.session();
    let prepared = Row {
        b: vec![9; 3000],
        ..rows[&0].clone()
    };
    // SAFETY: the blobs point into `prepared`.
    unsafe {
        let (table, flags) = (&world.table, WriteFlags::default());
        table.insert(&mut txn, &record(77, &prepared), flags, &mut scratch)
    }
    .unwrap();
    txn.prepare(b"x").unwrap();
    txn.detach(world.db.new_owner(0));
    drop(txn);
    world.db.compact_all().unwrap();
    world.db.close().unwrap();
    let env = world.env.kill();
    let names = env.list_dir(Path::new(DIR)).unwrap();
    let name = names.iter().find(|name| name.ends_with(".blob")).unwrap();
    // In the third blob.
    let change = |bytes: &mut Vec<u8>| bytes[64 + 2 * 5032 + 400] ^= 1;
    env.damage(&Path::new(DIR).join(name), change).unwrap();
    world.fault = FaultEnv::new(Arc::new(env.clone()));
    let (db, table) = open(&world.fault);
    let point = db.context().views.clone();
    let report = table.check(&point, false, &|| false).unwrap();
    assert_eq!(report.problem_count, 1, "{:?}", report.problems);
    assert!(
        report.problems[0].contains(&name[..]),
        "{:?}",
        report.problems
    );
    db.close().unwrap();
    drop((table, point, db));

    let env: Arc<dyn Env> = Arc::new(env.kill());
    let look = Look::open(Arc::clone(&env), Path::new(DIR)).unwrap();
    let mut lost = Vec::new();
    let repaired = repair(&look, Path::new("/new"), &mut |error| lost.push(error)).unwrap();
    assert_eq!((repaired.tables["d/t"], repaired.prepared), (6, 1));
    assert_eq!(lost.len(), 1, "{lost:?}");
    drop(look);
    let db = Db::open(env, Path::new("/new"), options(1000), None).unwrap();
    let table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
    assert!(db.commit_xid(b"x").unwrap());
    (world.db, world.table) = (db, table);
    rows.get_mut(&2).unwrap().b.clear();
    rows.insert(77, prepared);
    world.check(&rows, "repaired");
}

#[test]
fn a_load_puts_large_values_out_of_line() {
    for one_by_one in [false, true] {
        let mut world = World::new(9);
        let mut rows = Rows::new();
        let owner = world.db.new_owner(0);
        let table = Arc::clone(&world.table);
        let cx = Arc::clone(world.db.context());
        let mut load = BulkLoad::new(table, &cx, owner, one_by_one, 0).unwrap();
        let mut scratch = RowScratch::default();
        for id in 0..60 {
            let id = id * 7 % 60;
            let row = world.row();
            // SAFETY: the blobs point into `row`.
            unsafe { load.insert(&record(id, &row), WriteFlags::default(), &mut scratch) }.unwrap();
            rows.insert(id, row);
        }
        // Files that are held are not collected, though nothing names them yet.
        cx.blobs.seal_active();
        world.collect();
        load.finish(&mut |_, _| Ok(())).unwrap();
        drop((load, cx));
        assert!(world.db.blobs().refs > 20);
        world.collect();
        world.check(&rows, "after the load");
        world.db.sync_log().unwrap();
        world.crash();
        world.collect();
        world.check(&rows, "after a crash");
    }
}
