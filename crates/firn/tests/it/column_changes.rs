//! Columns that come, go, move and grow while the rows stay as they are, compared with a model.

use crate::schema::{column, int_index};
use firn::base::blob_buf::BlobBuf;
use firn::base::options::Options;
use firn::base::record_buffer::Pad;
use firn::base::{ErrorKind, Result};
use firn::catalog::{
    ColumnSchema, DdlSession, NewTable, SchemaChange, TableLocking, TableSchema, VERSIONS_MAX,
};
use firn::db::Db;
use firn::env::{Env, MemEnv};
use firn::rowcode::{Column, ColumnKind, NullBit};
use firn::table::{
    Cursor, IndexBuild, LockWait, ReadMode, RowScratch, Table, WriteFlags, WriteOutcome,
};
use firn::txn::{Isolation, LockMode, Transaction};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The value of a column; `None` is NULL.
type Field = Option<Vec<u8>>;

/// A column of the model. Its key never changes and is never used again.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ModelColumn {
    key: u32,
    kind: ColumnKind,
    nullable: bool,
    /// False for a virtual column, of which the table knows nothing but the place.
    stored: bool,
}

const ID: u32 = 0;
const NUMBER: u32 = 1;
const INT: ColumnKind = ColumnKind::Fixed { len: 4 };

/// The definition of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Definition {
    columns: Vec<ModelColumn>,
    /// Keys of the columns with a secondary index, which are all INT NOT NULL.
    indexes: Vec<u32>,
}

impl Definition {
    fn first() -> Self {
        let column = |key| ModelColumn {
            key,
            kind: INT,
            nullable: false,
            stored: true,
        };
        Self {
            columns: vec![column(ID), column(NUMBER)],
            indexes: vec![NUMBER],
        }
    }

    fn position(&self, key: u32) -> Option<usize> {
        self.columns.iter().position(|column| column.key == key)
    }

    fn null_bytes(&self) -> usize {
        self.columns.len().div_ceil(8)
    }

    /// The definition as the server gives it: ids and versions mean nothing.
    fn schema(&self) -> TableSchema {
        let mut offset = self.null_bytes();
        let columns = self.columns.iter().zip(0u32..).map(|(of, number)| {
            let plain = column(number, &format!("c{}", of.key), of.kind, offset);
            offset += of.kind.record_len() as usize;
            let null = of.nullable.then_some(NullBit {
                offset: number / 8,
                mask: 1 << (number % 8),
            });
            let stored = of.stored;
            ColumnSchema {
                column: Column {
                    null,
                    stored,
                    ..plain.column
                },
                ..plain
            }
        });
        let columns: Vec<_> = columns.collect();
        let at = |key: u32| self.position(key).unwrap() as u32;
        let secondary = self.indexes.iter();
        let secondary = secondary.map(|key| int_index(&format!("i{key}"), false, at(*key)));
        let mut indexes = vec![int_index("PRIMARY", true, at(ID))];
        indexes.extend(secondary);
        TableSchema {
            version: 1,
            older: Arc::default(),
            record_len: offset as u32,
            null_bytes: self.null_bytes() as u32,
            columns,
            indexes,
            primary: Some(0),
            auto_increment: None,
            locking: TableLocking::Pessimistic,
        }
    }

    /// The record of a row. Its blob columns point into `row`, which must outlive their use.
    fn record(&self, row: &Row) -> Vec<u8> {
        let schema = self.schema();
        let mut record = vec![0; schema.record_len as usize];
        for (of, column) in self.columns.iter().zip(&schema.columns) {
            if !of.stored {
                continue;
            }
            let Some(bytes) = &row[&of.key] else {
                column.column.null.unwrap().set(&mut record, true);
                continue;
            };
            let at = column.column.offset as usize;
            let field = &mut record[at..at + of.kind.record_len() as usize];
            let len = (bytes.len() as u32).to_le_bytes();
            match of.kind {
                ColumnKind::Fixed { .. } => field.copy_from_slice(bytes),
                ColumnKind::Char { pad, .. } => {
                    pad.fill(field);
                    field[..bytes.len()].copy_from_slice(bytes);
                }
                ColumnKind::VarChar { len_bytes, .. } => {
                    let n = usize::from(len_bytes);
                    field[..n].copy_from_slice(&len[..n]);
                    field[n..n + bytes.len()].copy_from_slice(bytes);
                }
                ColumnKind::Blob { len_bytes } => {
                    let n = usize::from(len_bytes);
                    field[..n].copy_from_slice(&len[..n]);
                    field[n..].copy_from_slice(&(bytes.as_ptr() as usize).to_ne_bytes());
                }
            }
        }
        record
    }

    /// The columns of a record that are in `wanted`.
    fn row(&self, record: &[u8], wanted: &[u8]) -> Row {
        let schema = self.schema();
        let mut row = Row::new();
        for (number, (of, column)) in self.columns.iter().zip(&schema.columns).enumerate() {
            if !of.stored || wanted[number / 8] >> (number % 8) & 1 == 0 {
                continue;
            }
            let at = column.column.offset as usize;
            let field = &record[at..at + of.kind.record_len() as usize];
            let split = |n: u8| {
                let (len, rest) = field.split_at(usize::from(n));
                let mut wide = [0; 8];
                wide[..len.len()].copy_from_slice(len);
                (usize::from_le_bytes(wide), rest)
            };
            let value = match of.kind {
                ColumnKind::Fixed { .. } => field.to_vec(),
                ColumnKind::Char { pad, .. } => field[..pad.stripped_len(field)].to_vec(),
                ColumnKind::VarChar { len_bytes, .. } => {
                    let (len, rest) = split(len_bytes);
                    rest[..len].to_vec()
                }
                ColumnKind::Blob { len_bytes } => match split(len_bytes) {
                    (0, _) => Vec::new(),
                    (len, address) => {
                        let address = usize::from_ne_bytes(address.try_into().unwrap());
                        // SAFETY: the callers pass a record that a cursor has filled, and do not
                        // move the cursor before this returns, so the address is that of `len`
                        // bytes in its buffer.
                        unsafe { std::slice::from_raw_parts(address as *const u8, len) }.to_vec()
                    }
                },
            };
            let is_null = column.column.null.is_some_and(|null| null.is_set(record));
            row.insert(of.key, (!is_null).then_some(value));
        }
        row
    }
}

/// The values of the stored columns, by key of the column.
type Row = BTreeMap<u32, Field>;

fn random_kind(rng: &mut SmallRng) -> ColumnKind {
    match rng.random_range(0..6) {
        0 => INT,
        1 => ColumnKind::Fixed { len: 2 },
        2 => ColumnKind::Char {
            len: 7,
            pad: Pad::SPACE,
        },
        3 => ColumnKind::VarChar {
            len_bytes: 1,
            max: 20,
        },
        4 => ColumnKind::VarChar {
            len_bytes: 2,
            max: 600,
        },
        _ => ColumnKind::Blob { len_bytes: 2 },
    }
}

fn random_field(rng: &mut SmallRng, column: &ModelColumn) -> Field {
    if column.nullable && rng.random_bool(0.25) {
        return None;
    }
    let len = match column.kind {
        ColumnKind::Fixed { len } => return Some((0..len).map(|_| rng.random()).collect()),
        ColumnKind::Char { len, .. } => rng.random_range(0..=len as usize),
        ColumnKind::VarChar { max, .. } => rng.random_range(0..=max as usize),
        ColumnKind::Blob { .. } => [0, 5, 90, 900][rng.random_range(0..4)],
    };
    Some((0..len).map(|_| rng.random_range(b'a'..b'e')).collect())
}

struct World {
    env: MemEnv,
    db: Arc<Db>,
    table: Arc<Table>,
    definition: Definition,
    rows: BTreeMap<i32, Row>,
    rng: SmallRng,
    next_key: u32,
    statement: u64,
}

fn open(env: &MemEnv) -> Arc<Db> {
    let options = Options {
        background_jobs: 0,
        block_size: 512,
        ..Options::default()
    };
    let env: Arc<dyn Env> = Arc::new(env.clone());
    let db = Db::open(env, Path::new("/db"), options, None).unwrap();
    // Values of more than a few bytes go out of line.
    db.options()
        .mutable
        .blob_threshold
        .store(300, Ordering::Relaxed);
    db
}

impl World {
    fn new(seed: u64) -> Self {
        let env = MemEnv::new();
        let db = open(&env);
        let definition = Definition::first();
        let new = NewTable {
            schema: definition.schema(),
            frm: b"",
            version: b"0",
            created_micros: 0,
        };
        db.catalog().create("d/t", new).unwrap();
        let table = Table::open(db.catalog(), "d/t", definition.schema(), &[]).unwrap();
        Self {
            env,
            db,
            table,
            definition,
            rows: BTreeMap::new(),
            rng: SmallRng::seed_from_u64(seed),
            next_key: 2,
            statement: 0,
        }
    }

    fn reopen_table(&mut self) {
        let schema = self.definition.schema();
        self.table = Table::open(self.db.catalog(), "d/t", schema, &[]).unwrap();
        assert_eq!(self.table.warning(), None);
    }

    fn session(&mut self) -> Transaction {
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        self.statement += 1;
        txn.begin_statement(self.statement, Isolation::RepeatableRead, 0, false);
        txn
    }

    fn random_row(&mut self, id: i32) -> Row {
        let columns = self.definition.columns.iter().filter(|of| of.stored);
        let mut row: Row = columns
            .map(|of| (of.key, random_field(&mut self.rng, of)))
            .collect();
        row.insert(ID, Some(id.to_le_bytes().to_vec()));
        row
    }

    /// Random changes of rows, which are committed or rolled back.
    fn write(&mut self, count: u32) {
        let mut txn = self.session();
        let mut rows = self.rows.clone();
        let mut scratch = RowScratch::default();
        let flags = WriteFlags::default();
        for _ in 0..count {
            let id = self.rng.random_range(0..60);
            let mut new = self.random_row(id);
            let old = rows.get(&id).cloned();
            // An update leaves some columns as they are.
            if let Some(old) = &old {
                for (key, value) in old {
                    if self.rng.random_bool(0.5) {
                        new.insert(*key, value.clone());
                    }
                }
            }
            let old_record = old.as_ref().map(|row| self.definition.record(row));
            let new_record = self.definition.record(&new);
            let removes = self.rng.random_bool(0.2);
            // SAFETY: blob columns of the records point into `old` and `new`.
            let done = unsafe {
                match &old_record {
                    Some(old) if removes => self
                        .table
                        .delete(&mut txn, old, None, flags, &mut scratch)
                        .map(|()| WriteOutcome::Done { row_id: None }),
                    Some(old) => {
                        self.table
                            .update(&mut txn, old, &new_record, None, flags, &mut scratch)
                    }
                    None => self
                        .table
                        .insert(&mut txn, &new_record, flags, &mut scratch),
                }
            };
            assert!(!matches!(done.unwrap(), WriteOutcome::Duplicate { .. }));
            match removes && old.is_some() {
                true => rows.remove(&id),
                false => rows.insert(id, new),
            };
        }
        if self.rng.random_bool(0.2) {
            txn.rollback().unwrap();
        } else {
            txn.commit().unwrap();
            self.rows = rows;
        }
    }

    /// Up to three random changes of the definition, and the values of new columns in all rows.
    fn random_change(&mut self) -> (Definition, Row) {
        let mut to = self.definition.clone();
        let mut defaults = Row::new();
        for _ in 0..self.rng.random_range(1..4) {
            let at = self.rng.random_range(0..to.columns.len());
            let key = to.columns[at].key;
            let is_free = key > NUMBER && !to.indexes.contains(&key);
            match self.rng.random_range(0..8) {
                0..=2 => {
                    let column = ModelColumn {
                        key: self.next_key,
                        kind: random_kind(&mut self.rng),
                        nullable: self.rng.random_bool(0.5),
                        stored: self.rng.random_bool(0.9),
                    };
                    self.next_key += 1;
                    if column.stored {
                        let value = random_field(&mut self.rng, &column);
                        defaults.insert(column.key, value);
                    }
                    to.columns.insert(at, column);
                }
                3 if is_free => {
                    to.columns.remove(at);
                }
                4 => {
                    let column = to.columns.remove(at);
                    let place = self.rng.random_range(0..=to.columns.len());
                    to.columns.insert(place, column);
                }
                5 => {
                    if let ColumnKind::VarChar { max, .. } = &to.columns[at].kind {
                        to.columns[at].kind = ColumnKind::VarChar {
                            len_bytes: 2,
                            max: (max + 100).min(900),
                        };
                    }
                }
                6 if is_free => to.columns[at].nullable = true,
                7 => {
                    let column = &to.columns[at];
                    let is_plain = column.kind == INT && !column.nullable && column.stored;
                    match to.indexes.iter().position(|of| *of == key) {
                        Some(number) if key != NUMBER => {
                            to.indexes.remove(number);
                        }
                        None if is_plain && key != ID => to.indexes.push(key),
                        _ => {}
                    }
                }
                _ => {}
            }
        }
        (to, defaults)
    }

    /// Changes the table from `self.definition` to `to`.
    fn alter(&mut self, to: &Definition, defaults: &Row) -> Result<()> {
        let from = &self.definition;
        let columns = to.columns.iter().map(|of| from.position(of.key));
        let indexes = to.indexes.iter().map(|key| {
            let number = from.indexes.iter().position(|of| of == key);
            number.map(|number| number + 1)
        });
        let indexes: Vec<_> = std::iter::once(Some(0)).chain(indexes).collect();
        let fills = indexes.contains(&None);
        let mut row = defaults.clone();
        for of in &to.columns {
            row.entry(of.key).or_insert_with(|| match of.kind {
                ColumnKind::Fixed { len } => Some(vec![0; len as usize]),
                _ => Some(Vec::new()),
            });
        }
        let record = to.record(&row);
        // SAFETY: blob columns of the record point into `row`.
        let change =
            unsafe { SchemaChange::new(to.schema(), columns.collect(), indexes, &record) }?;
        let mut build = IndexBuild::new(Arc::clone(&self.table), self.db.context(), change)?;
        if fills {
            let mut found = vec![0; to.schema().record_len as usize];
            let owner = self.db.new_owner(0);
            let mut blobs = BlobBuf::new();
            build.fill(&owner, &mut |_, _| Ok(()), &mut found, &mut blobs)?;
        }
        IndexBuild::commit(&mut [&mut build], b"image", b"1", &DdlSession::default())
    }

    fn alter_randomly(&mut self) {
        let (to, defaults) = self.random_change();
        self.alter(&to, &defaults).unwrap();
        for row in self.rows.values_mut() {
            row.retain(|key, _| to.position(*key).is_some());
            row.extend(defaults.clone());
            row.retain(|key, _| to.position(*key).is_some());
        }
        self.definition = to;
        self.reopen_table();
    }

    /// Compares all rows, by the primary key and by each index, with the model.
    fn compare(&mut self, context: &str) {
        let mut txn = self.session();
        let mut cursor = Cursor::new(Arc::clone(&self.table));
        let mut record = vec![0x5a; self.table.record_len()];
        let locking = ReadMode::Locking(LockMode::Shared);
        for index in 0..=self.definition.indexes.len() {
            let mode = [ReadMode::Snapshot, locking][usize::from(self.rng.random_bool(0.3))];
            cursor.reset(Some(index), mode, LockWait::Fail).unwrap();
            let mut wanted: Vec<u8> = vec![0xff; self.definition.null_bytes()];
            if self.rng.random_bool(0.5) {
                wanted.fill_with(|| self.rng.random());
                let id = self.definition.position(ID).unwrap();
                wanted[id / 8] |= 1 << (id % 8);
            }
            cursor.set_columns(Some(&wanted), false, &[]).unwrap();
            let mut found = BTreeMap::new();
            let mut on = cursor.first(&mut txn, &mut record).unwrap();
            while on {
                let row = self.definition.row(&record, &wanted);
                let id = row[&ID].as_deref().unwrap().try_into().unwrap();
                assert!(found.insert(i32::from_le_bytes(id), row).is_none());
                on = cursor.next(&mut txn, &mut record).unwrap();
            }
            cursor.park();
            let mut expected = self.rows.clone();
            for row in expected.values_mut() {
                row.retain(|key, _| {
                    let at = self.definition.position(*key).unwrap();
                    wanted[at / 8] >> (at % 8) & 1 == 1
                });
            }
            let id = |row: &BTreeMap<i32, Row>| row.keys().copied().collect::<Vec<_>>();
            assert_eq!(id(&found), id(&expected), "{context}, index {index}");
            for (id, row) in &expected {
                assert_eq!(&found[id], row, "{context}, index {index}, row {id}");
            }
        }
        txn.commit().unwrap();
        let super_versions = &self.db.context().super_versions;
        let report = self.table.check(super_versions, true, &|| false).unwrap();
        assert_eq!(report.problems, Vec::<String>::new(), "{context}");
    }

    /// The server is killed.
    fn crash(&mut self) {
        let env = self.env.kill();
        self.db = open(&env);
        self.env = env;
        self.reopen_table();
    }
}

#[test]
fn rows_of_all_versions_agree_with_a_model() {
    let mut versions = 0;
    for seed in 0..12 {
        let mut world = World::new(seed);
        for round in 0..40 {
            let count = world.rng.random_range(0..25);
            world.write(count);
            match world.rng.random_range(0..8) {
                0 => world.db.flush().unwrap(),
                1 => world.db.compact_all().unwrap(),
                2 => world.crash(),
                3 if round % 3 == 0 => {
                    world.db.catalog().truncate("d/t").unwrap();
                    world.rows.clear();
                    let entry = world.db.catalog().get("d/t").unwrap();
                    assert!(entry.schema.older.is_empty());
                }
                _ => {}
            }
            if world.rng.random_bool(0.7) {
                world.alter_randomly();
            }
            world.compare(&format!("seed {seed}, round {round}"));
            let entry = world.db.catalog().get("d/t").unwrap();
            versions = versions.max(entry.schema.older.len());
        }
    }
    assert!(versions > 12, "no table has had many versions");
}

fn added(world: &mut World, kind: ColumnKind) -> (Definition, Row) {
    let mut to = world.definition.clone();
    let column = ModelColumn {
        key: world.next_key,
        kind,
        nullable: false,
        stored: true,
    };
    world.next_key += 1;
    let defaults = Row::from([(column.key, random_field(&mut world.rng, &column))]);
    to.columns.push(column);
    (to, defaults)
}

/// A table that has had too many versions must be copied. Until then each ALTER takes little room
/// in the definition.
#[test]
fn versions_are_limited() {
    let mut world = World::new(1);
    world.write(5);
    let mut len = 0;
    for change in 0..=VERSIONS_MAX {
        let (to, defaults) = match change % 2 {
            0 => added(&mut world, INT),
            _ => {
                let mut to = world.definition.clone();
                to.columns.pop();
                (to, Row::new())
            }
        };
        let changed = world.alter(&to, &defaults);
        if change == VERSIONS_MAX {
            let error = changed.unwrap_err();
            assert_eq!(error.kind(), &ErrorKind::Unsupported);
            assert!(error.message().contains("too many changes"), "{error}");
            break;
        }
        changed.unwrap();
        world.definition = to;
        for row in world.rows.values_mut() {
            row.retain(|key, _| *key <= NUMBER);
            row.extend(defaults.clone());
        }
        world.reopen_table();
        world.write(1);
        let entry = world.db.catalog().get("d/t").unwrap();
        let now = entry.schema.to_bytes().len();
        assert!(change < 2 || now < len + 40, "{now} bytes after {len}");
        len = now;
    }
    world.compare("after all changes");
    world.crash();
    world.compare("after a crash");
    world.db.catalog().truncate("d/t").unwrap();
    world.rows.clear();
    world.reopen_table();
    world.alter_randomly();
    world.write(10);
    world.compare("after TRUNCATE");
}

/// A change that leaves the stored form of rows alone makes no version: room for longer text,
/// virtual columns.
#[test]
fn changes_without_another_form_make_no_version() {
    let mut world = World::new(2);
    let text = ColumnKind::VarChar {
        len_bytes: 1,
        max: 20,
    };
    let (to, defaults) = added(&mut world, text);
    world.alter(&to, &defaults).unwrap();
    world.definition = to;
    world.reopen_table();
    world.write(20);
    let before = world.db.catalog().get("d/t").unwrap().schema.version;
    assert_eq!(before, 2);
    let mut to = world.definition.clone();
    to.columns.last_mut().unwrap().kind = ColumnKind::VarChar {
        len_bytes: 2,
        max: 700,
    };
    let computed = ModelColumn {
        key: world.next_key,
        kind: INT,
        nullable: true,
        stored: false,
    };
    to.columns.insert(1, computed);
    world.alter(&to, &Row::new()).unwrap();
    world.definition = to;
    world.reopen_table();
    let entry = world.db.catalog().get("d/t").unwrap();
    assert_eq!((entry.schema.version, entry.schema.older.len()), (2, 1));
    world.write(20);
    world.compare("with a virtual column");
}

/// Changes that the rows or their keys do not allow are refused, and change nothing.
#[test]
fn other_changes_are_refused() {
    let mut world = World::new(3);
    world.write(20);
    let entry = || world_entry(&world.db);
    let before = entry().schema.to_bytes();
    let refused = |change: &dyn Fn(&mut Definition)| {
        let mut to = world.definition.clone();
        change(&mut to);
        let columns = to
            .columns
            .iter()
            .map(|of| world.definition.position(of.key));
        let indexes = to.indexes.iter().map(|key| {
            let number = world.definition.indexes.iter().position(|of| of == key);
            number.map(|number| number + 1)
        });
        let indexes = std::iter::once(Some(0)).chain(indexes).collect();
        let change = SchemaChange {
            schema: to.schema(),
            columns: columns.collect(),
            indexes,
        };
        let built = IndexBuild::new(Arc::clone(&world.table), world.db.context(), change);
        assert!(built.is_err());
        assert_eq!(entry().schema.to_bytes(), before);
    };
    // The key of an index part that may be NULL has a marker.
    refused(&|to| to.columns[1].nullable = true);
    refused(&|to| to.columns[1].kind = ColumnKind::Fixed { len: 8 });
    // A new column without a default.
    refused(&|to| {
        to.columns.push(ModelColumn {
            key: 99,
            kind: INT,
            nullable: false,
            stored: true,
        });
    });
}

fn world_entry(db: &Db) -> Arc<firn::catalog::TableEntry> {
    db.catalog().get("d/t").unwrap()
}

/// A prepared transaction keeps its rows in the form that they have, so no change of columns may
/// come between it and its commit. It has no session and no metadata lock after a crash.
#[test]
fn a_prepared_transaction_keeps_the_version() {
    let mut world = World::new(4);
    world.write(30);
    let mut txn = world.session();
    let row = world.random_row(200);
    let record = world.definition.record(&row);
    let (flags, mut scratch) = (WriteFlags::default(), RowScratch::default());
    // SAFETY: blob columns of the record point into `row`.
    unsafe { world.table.insert(&mut txn, &record, flags, &mut scratch) }.unwrap();
    txn.prepare(b"x").unwrap();
    world.crash();
    drop(txn);
    let (to, defaults) = added(&mut world, INT);
    let error = world.alter(&to, &defaults).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::LockTimeout);
    assert!(world.db.commit_xid(b"x").unwrap());
    world.rows.insert(200, row);
    world.compare("after the commit");
    world.alter(&to, &defaults).unwrap();
    for row in world.rows.values_mut() {
        row.extend(defaults.clone());
    }
    world.definition = to;
    world.reopen_table();
    world.compare("after the change");
}

/// A snapshot that is older than a change of columns reads its rows by the new definition, as in
/// InnoDB.
#[test]
fn older_snapshots_read_by_the_new_definition() {
    let mut world = World::new(5);
    world.write(30);
    let before = world.rows.clone();
    let mut old = world.session();
    let _ = old.read_point();
    let (to, defaults) = added(&mut world, INT);
    world.alter(&to, &defaults).unwrap();
    for row in world.rows.values_mut() {
        row.extend(defaults.clone());
    }
    world.definition = to;
    world.reopen_table();
    world.write(30);
    world.write(30);
    let mut cursor = Cursor::new(Arc::clone(&world.table));
    let mut record = vec![0; world.table.record_len()];
    for index in [0, 1] {
        cursor
            .reset(Some(index), ReadMode::Snapshot, LockWait::Fail)
            .unwrap();
        let mut found = BTreeMap::new();
        let mut on = cursor.first(&mut old, &mut record).unwrap();
        while on {
            let row = world.definition.row(&record, &[0xff]);
            let id = row[&ID].as_deref().unwrap().try_into().unwrap();
            found.insert(i32::from_le_bytes(id), row);
            on = cursor.next(&mut old, &mut record).unwrap();
        }
        cursor.park();
        let mut expected = before.clone();
        expected
            .values_mut()
            .for_each(|row| row.extend(defaults.clone()));
        assert_eq!(found, expected);
    }
    old.rollback().unwrap();
    world.compare("a new snapshot");
}
