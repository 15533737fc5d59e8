//! Directories with known rows, and functions that run the command on them.

use firn::base::options::Options;
use firn::base::record_buffer::Pad;
use firn::base::{ErrorKind, Result};
use firn::catalog::{
    CollationSchema, ColumnSchema, IndexPart, IndexSchema, NewTable, PartSchema, TableLocking,
    TableSchema,
};
use firn::db::Db;
use firn::env::{Env, PosixEnv};
use firn::keycode::{CollationLevel, CollationSpec, Collator, TextForm};
use firn::rowcode::{Column, ColumnKind, InstantDefault};
use firn::table::{Cursor, LockWait, ReadMode, RowScratch, Table, WriteFlags};
use firn::txn::Isolation;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const NAME_MAX: u32 = 20;
const NOTE_MAX: u32 = 300;
const NAME: usize = 9;
const NOTE: usize = NAME + 1 + NAME_MAX as usize;
const RECORD: usize = NOTE + 2 + NOTE_MAX as usize;

/// The columns k, name and note of a row.
pub type Row = (i32, String, String);

/// Rows by their id.
pub type Rows = BTreeMap<i32, Row>;

/// A collation whose weights are lower-case bytes, so that a key does not give back its text.
#[derive(Debug)]
struct NoCase;

impl Collator for NoCase {
    fn sort_key(&self, _: u32, text: &[u8], weights: &mut Vec<u8>) -> usize {
        weights.extend(text.iter().map(u8::to_ascii_lowercase));
        text.len()
    }

    fn prefix_len(&self, text: &[u8], chars: usize) -> usize {
        chars.min(text.len())
    }

    fn chars(&self, text: &[u8]) -> usize {
        text.len()
    }
}

/// id INT PRIMARY KEY, k INT, name VARCHAR(20), note VARCHAR(300), KEY (k), KEY (name).
fn schema() -> TableSchema {
    let column = |id: u32, name: &str, kind, offset| ColumnSchema {
        name: name.to_owned(),
        type_code: 0,
        chars: 0,
        interpretation: 0,
        column: Column {
            id,
            kind,
            offset,
            null: None,
            stored: true,
            instant_default: InstantDefault::Impossible,
        },
    };
    let int = ColumnKind::Fixed { len: 4 };
    let text = |len_bytes, max| ColumnKind::VarChar { len_bytes, max };
    let index = |name: &str, unique, column, kind, image_len| IndexSchema {
        name: name.to_owned(),
        unique,
        parts: vec![IndexPart {
            column,
            kind,
            desc: false,
            prefix: None,
            image_len,
        }],
    };
    let signed = PartSchema::Int { signed: true };
    let collated = PartSchema::Text(CollationSchema {
        spec: CollationSpec {
            id: 8,
            name: "no_case".into(),
            pad: Pad::SPACE,
            levels: vec![CollationLevel {
                number: 0,
                space: 0x20,
                no_pad: false,
            }],
            weight_len: 1,
            simple: Vec::new(),
            form: TextForm::Lost,
            char_filled: false,
        },
        collator: Some(Arc::new(NoCase)),
    });
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: RECORD as u32,
        null_bytes: 1,
        columns: vec![
            column(1, "id", int, 1),
            column(2, "k", int, 5),
            column(3, "name", text(1, NAME_MAX), NAME as u32),
            column(4, "note", text(2, NOTE_MAX), NOTE as u32),
        ],
        indexes: vec![
            index("PRIMARY", true, 0, signed.clone(), 4),
            index("k", false, 1, signed, 4),
            index("name", false, 2, collated, NAME_MAX),
        ],
        primary: Some(0),
        auto_increment: Some(0),
        locking: TableLocking::Pessimistic,
    }
}

fn record(id: i32, (k, name, note): &Row) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[1..5].copy_from_slice(&id.to_le_bytes());
    record[5..NAME].copy_from_slice(&k.to_le_bytes());
    record[NAME] = name.len() as u8;
    record[NAME + 1..][..name.len()].copy_from_slice(name.as_bytes());
    record[NOTE..NOTE + 2].copy_from_slice(&(note.len() as u16).to_le_bytes());
    record[NOTE + 2..][..note.len()].copy_from_slice(note.as_bytes());
    record
}

fn row(record: &[u8]) -> (i32, Row) {
    let number = |at: usize| i32::from_le_bytes(record[at..at + 4].try_into().unwrap());
    let text = |at: usize, len: usize| String::from_utf8(record[at..at + len].to_vec()).unwrap();
    let name = text(NAME + 1, usize::from(record[NAME]));
    let len = u16::from_le_bytes(record[NOTE..NOTE + 2].try_into().unwrap());
    let note = text(NOTE + 2, usize::from(len));
    (number(1), (number(5), name, note))
}

/// Notes of at least this many bytes are stored out of line.
pub const OUT_OF_LINE: usize = 12;

/// Options with small files and blocks, so that there are many of them.
pub fn options() -> Options {
    let options = Options {
        background_jobs: 0,
        block_size: 512,
        target_file_size: 8 << 10,
        wal_segment_size: 256 << 10,
        wal_direct_io: false,
        ..Options::default()
    };
    let threshold = &options.mutable.blob_threshold;
    threshold.store(OUT_OF_LINE as u64, Ordering::Relaxed);
    options
}

/// A database that grows, and the rows that it should have.
pub struct World {
    pub db: Arc<Db>,
    table: Arc<Table>,
    pub rows: Rows,
    rng: SmallRng,
    statement: u64,
}

impl World {
    /// Creates a database in `dir` with one empty table.
    pub fn create(dir: &Path, seed: u64) -> Self {
        Self::create_with(dir, seed, options())
    }

    /// As [`Self::create`], with other options.
    pub fn create_with(dir: &Path, seed: u64, options: Options) -> Self {
        let db = open_with(dir, options).unwrap();
        let definition = NewTable {
            schema: schema(),
            frm: b"",
            version: b"",
            created_micros: 0,
        };
        db.catalog().create("d/t", definition).unwrap();
        let table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
        Self {
            db,
            table,
            rows: Rows::new(),
            rng: SmallRng::seed_from_u64(seed),
            statement: 0,
        }
    }

    /// Inserts, changes and deletes rows, ten to a commit.
    pub fn write(&mut self, changes: usize) {
        for _ in 0..changes / 10 {
            self.statement += 1;
            let mut txn = self.db.new_transaction(self.db.new_owner(0));
            txn.begin_statement(self.statement, Isolation::RepeatableRead, 0, true);
            for _ in 0..10 {
                self.change(&mut txn);
            }
            txn.commit().unwrap();
        }
    }

    /// With `all`, later transactions are too large for their memory: their entries go to files
    /// that the log names. Without, they have the usual memory.
    pub fn spill(&self, all: bool) {
        let limit = match all {
            true => 1,
            false => options().mutable.txn_memory_limit.load(Ordering::Relaxed),
        };
        let mutable = &self.db.options().mutable;
        mutable.txn_memory_limit.store(limit, Ordering::Relaxed);
    }

    /// Closes the database. [`Stopped::started`] opens it again.
    pub fn stopped(self) -> Stopped {
        Stopped {
            rows: self.rows,
            rng: self.rng,
            statement: self.statement,
        }
    }

    /// Creates further empty tables.
    pub fn more_tables(&mut self, names: &[&str]) {
        for name in names {
            let definition = NewTable {
                schema: schema(),
                frm: b"image",
                version: b"",
                created_micros: 0,
            };
            self.db.catalog().create(name, definition).unwrap();
        }
    }

    /// Inserts rows in a transaction that is prepared and waits for its outcome. Returns them.
    pub fn prepare(&mut self, xid: &str, ids: Range<i32>) -> Rows {
        self.statement += 1;
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        txn.begin_statement(self.statement, Isolation::RepeatableRead, 0, true);
        let mut scratch = RowScratch::default();
        let rows = ids.map(|id| (id, (id % 7, format!("name {id}"), format!("waits as {id}"))));
        let rows: Rows = rows.collect();
        for (id, row) in &rows {
            let (row, flags) = (record(*id, row), WriteFlags::default());
            // SAFETY: there are no blob columns.
            unsafe { self.table.insert(&mut txn, &row, flags, &mut scratch) }.unwrap();
        }
        txn.prepare(xid.as_bytes()).unwrap();
        txn.leave_prepared();
        rows
    }

    fn change(&mut self, txn: &mut firn::txn::Transaction) {
        let mut scratch = RowScratch::default();
        let flags = WriteFlags::default();
        let id = self.rng.random_range(0..2000);
        let letters = |rng: &mut SmallRng, max: usize| -> String {
            let len = rng.random_range(0..max);
            let letter = |_| char::from(rng.random_range(b'A'..=b'z'));
            (0..len).map(letter).collect()
        };
        let name = letters(&mut self.rng, NAME_MAX as usize);
        let note = letters(&mut self.rng, 3 * OUT_OF_LINE);
        let new = (self.rng.random_range(-50..50), name, note);
        let remove = self.rng.random_bool(0.2);
        // SAFETY: there are no blob columns.
        unsafe {
            match self.rows.get(&id) {
                None => {
                    let row = record(id, &new);
                    self.table.insert(txn, &row, flags, &mut scratch).unwrap();
                }
                Some(old) if remove => {
                    let row = record(id, old);
                    let table = &self.table;
                    table.delete(txn, &row, None, flags, &mut scratch).unwrap();
                    self.rows.remove(&id);
                    return;
                }
                Some(old) => {
                    let (old, new) = (record(id, old), record(id, &new));
                    let table = &self.table;
                    table
                        .update(txn, &old, &new, None, flags, &mut scratch)
                        .unwrap();
                }
            }
        }
        self.rows.insert(id, new);
    }
}

/// Opens a database that was just closed. A process that another test starts holds a copy of the
/// lock's file from its fork until its exec, so the lock may outlive the database for a moment.
fn reopen(dir: &Path, options: Options) -> Arc<Db> {
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        match open_with(dir, options.clone()) {
            Err(error) if error.kind() == &ErrorKind::Busy && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            opened => return opened.unwrap(),
        }
    }
}

/// A world without its database.
pub struct Stopped {
    rows: Rows,
    rng: SmallRng,
    statement: u64,
}

impl Stopped {
    /// The world of a database that another process has written, with these rows.
    pub fn with(rows: Rows, seed: u64) -> Self {
        Self {
            rows,
            rng: SmallRng::seed_from_u64(seed),
            statement: 0,
        }
    }

    /// Opens the database in `dir` and continues with it.
    pub fn started(self, dir: &Path) -> World {
        self.started_with(dir, options())
    }

    /// As [`Self::started`], with other options.
    pub fn started_with(self, dir: &Path, options: Options) -> World {
        let db = reopen(dir, options);
        let table = Table::open(db.catalog(), "d/t", schema(), &[]).unwrap();
        World {
            db,
            table,
            rows: self.rows,
            rng: self.rng,
            statement: self.statement,
        }
    }
}

/// Creates a database with data in the last level, above it, in files that only the log names, and
/// in the log alone. Some values are out of line.
pub fn build(dir: &Path, seed: u64, close: bool) -> Rows {
    let mut world = World::create(dir, seed);
    world.write(3000);
    world.db.compact_all().unwrap();
    for _ in 0..3 {
        world.write(300);
        world.db.flush().unwrap();
    }
    world.write(100);
    world.spill(true);
    world.write(50);
    world.spill(false);
    world.write(50);
    if close {
        world.db.close().unwrap();
    }
    world.rows
}

/// Opens the database in `dir`.
pub fn open(dir: &Path) -> Result<Arc<Db>> {
    open_with(dir, options())
}

fn open_with(dir: &Path, options: Options) -> Result<Arc<Db>> {
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    Db::open(env, dir, options, None)
}

/// Reads the rows of the table through the primary key and through an index, which must agree.
pub fn read(db: &Arc<Db>) -> Result<Rows> {
    let table = Table::open(db.catalog(), "d/t", schema(), &[])?;
    let by = |index: usize| -> Result<Rows> {
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 0, true);
        let mut cursor = Cursor::new(Arc::clone(&table));
        cursor.reset(Some(index), ReadMode::Snapshot, LockWait::Fail)?;
        let mut buffer = [0; RECORD];
        let mut rows = Rows::new();
        let mut on = cursor.first(&mut txn, &mut buffer)?;
        while on {
            let (id, rest) = row(&buffer);
            rows.insert(id, rest);
            on = cursor.next(&mut txn, &mut buffer)?;
        }
        cursor.park();
        Ok(rows)
    };
    let rows = by(0)?;
    assert_eq!(by(1)?, rows, "index k against the rows");
    Ok(rows)
}

/// Runs the command.
pub fn firn<A: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = A>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_firn"))
        .args(args)
        .output()
        .unwrap()
}

/// Runs the command with `--json` and reads what it prints.
pub fn json(args: &[&str]) -> (i32, serde_json::Value) {
    json_with(args, &[])
}

/// As [`json`], with further environment variables.
pub fn json_with(args: &[&str], environment: &[(&str, &str)]) -> (i32, serde_json::Value) {
    let output = Command::new(env!("CARGO_BIN_EXE_firn"))
        .args(args.iter().chain(&["--json"]))
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    let code = output.status.code().unwrap();
    let text = match output.stdout.is_empty() {
        true => output.stderr,
        false => output.stdout,
    };
    let value = serde_json::from_slice(&text)
        .unwrap_or_else(|e| panic!("{args:?}: {e}: {}", String::from_utf8_lossy(&text)));
    (code, value)
}
