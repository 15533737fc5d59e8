//! Bulk loads and index changes of real tables, with crashes and failing calls: each must take
//! effect completely or not at all.
//!
//! The model is a list of allowed states: rows and indexes of all tables before and after each step
//! of the operation under way. A successful operation leaves its last state; after a crash or a
//! failed call, the database must show one of the states.
//!
//! ```text
//! before                  {}
//! create of t1 under way  {}, {t1: empty}
//! created                 {t1: empty}
//! load of t1 under way    {t1: empty}, {t1: full}
//! loaded                  {t1: full}
//! ```

use crate::archive_recovery::{self, ARCHIVE};
use crate::ensure;
use crate::failure::Failure;
use crate::tiny_options::{one_of, tiny};
use firn::backup::RecoveryTarget;
use firn::base::blob_buf::BlobBuf;
use firn::base::options::CommitDurability;
use firn::base::{Error, Result};
use firn::catalog::{
    ColumnSchema, DdlSession, IndexPart, IndexSchema, NewTable, PartSchema, SchemaChange,
    TableLocking, TableSchema,
};
use firn::db::Db;
use firn::env::fault::{CallClass, Errno, Fault};
use firn::env::{Env, FaultEnv, MemEnv};
use firn::rowcode::{Column, ColumnKind, InstantDefault};
use firn::store::{FileKind, parse_file_name};
use firn::table::{
    BulkLoad, Cursor, IndexBuild, KeyImage, LockWait, ReadMode, RowScratch, SeekMode, Table,
    WriteFlags, WriteOutcome, check_stored,
};
use firn::txn::Isolation;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const DIR: &str = "/db";
const RECORD: usize = 13;

/// Counts of a run.
#[derive(Debug, Default)]
pub struct LoadStats {
    /// Loads that finished.
    pub loads: u64,
    /// Index changes that finished.
    pub changes: u64,
    /// Loads and index changes that a duplicate key ended.
    pub duplicates: u64,
    /// Operations that a crash or a failing call ended.
    pub ended: u64,
}

impl LoadStats {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        self.loads += other.loads;
        self.changes += other.changes;
        self.duplicates += other.duplicates;
        self.ended += other.ended;
    }
}

/// Rows by primary key: id → (a, b).
type Rows = BTreeMap<i32, (i32, i32)>;

/// The state of a table: its rows, and the numbers of its secondary indexes, see [`schema`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct TableState {
    rows: Rows,
    indexes: BTreeSet<u32>,
}

type TableStates = BTreeMap<String, TableState>;

/// The schema `id INT PRIMARY KEY, a INT, b INT` with the given secondary indexes; index 1 is
/// `KEY (a DESC)`, index 2 is `UNIQUE (b)`.
fn schema(indexes: &BTreeSet<u32>) -> TableSchema {
    let columns = (0..3).map(|i| ColumnSchema {
        name: format!("c{i}"),
        type_code: 3,
        chars: 0,
        interpretation: 0,
        column: Column {
            id: i,
            kind: ColumnKind::Fixed { len: 4 },
            offset: 1 + 4 * i,
            null: None,
            stored: true,
            instant_default: InstantDefault::Impossible,
        },
    });
    let index = |column: u32| IndexSchema {
        name: format!("i{column}"),
        unique: column != 1,
        parts: vec![IndexPart {
            column,
            kind: PartSchema::Int { signed: true },
            desc: column == 1,
            prefix: None,
            image_len: 4,
        }],
    };
    TableSchema {
        version: 1,
        older: std::sync::Arc::default(),
        record_len: RECORD as u32,
        null_bytes: 1,
        columns: columns.collect(),
        indexes: std::iter::once(0)
            .chain(indexes.iter().copied())
            .map(index)
            .collect(),
        primary: Some(0),
        auto_increment: None,
        locking: TableLocking::Pessimistic,
    }
}

fn record(id: i32, (a, b): (i32, i32)) -> [u8; RECORD] {
    let mut record = [0; RECORD];
    record[1..5].copy_from_slice(&id.to_le_bytes());
    record[5..9].copy_from_slice(&a.to_le_bytes());
    record[9..].copy_from_slice(&b.to_le_bytes());
    record
}

struct LoadRun {
    rng: StdRng,
    db: Arc<Db>,
    /// The states that the tables may have. Between operations there is only one.
    states: Vec<TableStates>,
    next_name: u32,
    stats: LoadStats,
}

/// Why a run stopped.
enum Stop {
    Engine(Error),
    Failed(Failure),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl From<Failure> for Stop {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

fn no_progress(_: u64, _: u64) -> Result<()> {
    Ok(())
}

impl LoadRun {
    fn state(&self) -> &TableStates {
        self.states.last().expect("one at least")
    }

    /// Begins an operation: until [`Self::done`] or [`Self::undone`], the tables may have the
    /// current state or one of `after`.
    fn attempt(&mut self, after: impl IntoIterator<Item = TableStates>) {
        self.states.extend(after);
    }

    /// The operation succeeded: only the last state remains.
    fn done(&mut self) {
        self.states.drain(..self.states.len() - 1);
    }

    /// The operation was taken back: only the first state remains.
    fn undone(&mut self) {
        self.states.truncate(1);
    }

    fn any_table(&mut self) -> Option<String> {
        let count = self.state().len();
        let at = (count > 0).then(|| self.rng.random_range(0..count))?;
        self.state().keys().nth(at).cloned()
    }

    fn step(&mut self) -> Result<(), Stop> {
        // There are no background threads: a writer that the stall gate stops would wait forever.
        if !self.db.context().super_versions.pin().frozen.is_empty() {
            self.db.flush()?;
        }
        while self.db.context().super_versions.pin().version.l0.len() > 8
            && self.db.compact_once()?
        {}
        match self.rng.random_range(0..10) {
            0..3 => self.load(),
            3..6 => self.change_indexes(),
            6 => self.insert(),
            7 => {
                self.db.flush()?;
                Ok(())
            }
            8 => {
                self.db.compact_once()?;
                Ok(())
            }
            _ if self.state().len() > 3 => self.drop_table(),
            _ => self.insert(),
        }
    }

    fn random_rows(&mut self) -> Rows {
        let count = one_of(&mut self.rng, &[0, 1, 30, 700]);
        // Values of column b are distinct, as index 2 needs them.
        let mut values = BTreeSet::new();
        let row = |rng: &mut StdRng| (rng.random_range(0..20), rng.random());
        (0..count)
            .map(|_| (self.rng.random_range(-5000..5000), row(&mut self.rng)))
            .filter(|(_, (_, b))| values.insert(*b))
            .collect()
    }

    /// Creates a table and loads it, sometimes with a duplicate row, which the load must refuse.
    fn load(&mut self) -> Result<(), Stop> {
        self.next_name += 1;
        let name = format!("db/t{}", self.next_name);
        let indexes = (1..3)
            .filter(|_| self.rng.random())
            .collect::<BTreeSet<u32>>();
        let rows = self.random_rows();
        let mut records: Vec<_> = rows.iter().map(|(id, row)| record(*id, *row)).collect();
        match self.rng.random_range(0..4) {
            0 => {}
            1 => records.reverse(),
            _ => records.shuffle(&mut self.rng),
        }
        let twice = !records.is_empty() && self.rng.random_ratio(1, 5);
        if twice {
            let again = records[self.rng.random_range(0..records.len())];
            records.insert(self.rng.random_range(0..=records.len()), again);
        }
        let empty = TableState {
            rows: Rows::new(),
            indexes: indexes.clone(),
        };
        let mut created = self.state().clone();
        created.insert(name.clone(), empty.clone());
        self.attempt([created.clone()]);
        let definition = NewTable {
            schema: schema(&indexes),
            frm: b"",
            version: b"1",
            created_micros: 1,
        };
        self.db.catalog().create(&name, definition)?;
        self.done();
        let table = Table::open(self.db.catalog(), &name, schema(&indexes), &[])?;
        let mut full = created;
        let loaded = TableState { rows, ..empty };
        full.insert(name, loaded);
        if !twice {
            self.attempt([full]);
        }
        let owner = self.db.new_owner(0);
        let mut load = BulkLoad::new(table, self.db.context(), owner, false, 0)?;
        let mut scratch = RowScratch::default();
        let mut refused = None;
        for record in &records {
            // SAFETY: `insert` follows the pointers of blob columns; `schema` has none.
            let written = unsafe { load.insert(record, WriteFlags::default(), &mut scratch) }?;
            if matches!(written, WriteOutcome::Duplicate { .. }) {
                refused = Some(written);
                break;
            }
        }
        let written = match refused {
            Some(written) => written,
            None => load.finish(&mut no_progress)?,
        };
        let right = match twice {
            true => matches!(written, WriteOutcome::Duplicate { index: 0 }),
            false => matches!(written, WriteOutcome::Done { .. }),
        };
        ensure!(right, "a load with a duplicate ({twice}) gave {written:?}");
        if twice {
            let mut found = [0; RECORD];
            load.duplicate_row(&mut found, &mut BlobBuf::new())?;
            ensure!(records.contains(&found), "the row of a duplicate is no row");
            self.stats.duplicates += 1;
        } else {
            self.done();
            self.stats.loads += 1;
        }
        Ok(())
    }

    /// Adds or drops secondary indexes of a random table, or both.
    fn change_indexes(&mut self) -> Result<(), Stop> {
        let Some(name) = self.any_table() else {
            return Ok(());
        };
        let old = self.state()[&name].clone();
        let indexes: BTreeSet<u32> = (1..3).filter(|_| self.rng.random()).collect();
        let mut after = self.state().clone();
        let shape = after.get_mut(&name).expect("any table is one");
        shape.indexes.clone_from(&indexes);
        let values: BTreeSet<i32> = old.rows.values().map(|(_, b)| *b).collect();
        let twice =
            indexes.contains(&2) && !old.indexes.contains(&2) && values.len() < old.rows.len();
        if !twice {
            self.attempt([after]);
        }
        let table = Table::open(self.db.catalog(), &name, schema(&old.indexes), &[])?;
        let origin = |column: &u32| {
            let place = old.indexes.iter().position(|have| have == column);
            place.map(|place| place + 1)
        };
        let from = std::iter::once(Some(0)).chain(indexes.iter().map(origin));
        let from: Vec<_> = from.collect();
        let fills = from.contains(&None);
        let change = SchemaChange::of_indexes(schema(&indexes), from);
        let mut build = IndexBuild::new(table, self.db.context(), change)?;
        let mut found = [0; RECORD];
        if fills {
            let owner = self.db.new_owner(0);
            let written = build.fill(&owner, &mut no_progress, &mut found, &mut BlobBuf::new())?;
            let duplicate = matches!(written, WriteOutcome::Duplicate { .. });
            ensure!(
                duplicate == twice,
                "an index over duplicates ({twice}) gave {written:?}"
            );
        }
        if twice {
            self.stats.duplicates += 1;
            return Ok(());
        }
        if fills && self.rng.random_ratio(1, 6) {
            // A host may abandon a change of indexes that it has filled.
            drop(build);
            self.undone();
            return Ok(());
        }
        IndexBuild::commit(&mut [&mut build], b"frm", b"2", &DdlSession::default())?;
        self.done();
        self.stats.changes += 1;
        Ok(())
    }

    /// Inserts rows into a random table with a transaction.
    fn insert(&mut self) -> Result<(), Stop> {
        let Some(name) = self.any_table() else {
            return Ok(());
        };
        let mut after = self.state().clone();
        let shape = after.get_mut(&name).expect("any table is one");
        let table = Table::open(self.db.catalog(), &name, schema(&shape.indexes), &[])?;
        let mut txn = self.db.new_transaction(self.db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 0, true);
        let mut scratch = RowScratch::default();
        for _ in 0..self.rng.random_range(1..20) {
            let id = self.rng.random_range(-5000..5000);
            let row = (self.rng.random_range(0..20), self.rng.random_range(0..300));
            let flags = WriteFlags::default();
            // SAFETY: `insert` follows the pointers of blob columns; `schema` has none.
            let written = unsafe { table.insert(&mut txn, &record(id, row), flags, &mut scratch) }?;
            let values = || shape.rows.values().any(|(_, b)| *b == row.1);
            let twice = shape.rows.contains_key(&id) || shape.indexes.contains(&2) && values();
            let refused = matches!(written, WriteOutcome::Duplicate { .. });
            ensure!(
                refused == twice,
                "row {id} of {name}: {written:?}, twice {twice}"
            );
            if !twice {
                shape.rows.insert(id, row);
            }
        }
        self.attempt([after]);
        txn.commit()?;
        self.done();
        Ok(())
    }

    fn drop_table(&mut self) -> Result<(), Stop> {
        let Some(name) = self.any_table() else {
            return Ok(());
        };
        let mut after = self.state().clone();
        after.remove(&name);
        self.attempt([after]);
        self.db.catalog().drop_table(&name)?;
        self.done();
        Ok(())
    }

    /// Compares the tables with the allowed states. The state that fits is the only allowed state
    /// from now on.
    fn check(&mut self) -> Result<(), Stop> {
        let found = found(&self.db)?;
        let Some(state) = self.states.iter().find(|state| **state == found) else {
            let counts = |state: &TableStates| {
                let tables = state
                    .iter()
                    .map(|(n, s)| (n.clone(), s.rows.len(), s.indexes.clone()));
                tables.collect::<Vec<_>>()
            };
            let may: Vec<_> = self.states.iter().map(counts).collect();
            let found = counts(&found);
            return Err(Failure::new(format!("found {found:?}, expected one of {may:?}")).into());
        };
        self.states = vec![state.clone()];
        Ok(())
    }
}

/// Reads the tables of the database, and checks that the indexes of each fit its rows.
fn found(db: &Arc<Db>) -> Result<TableStates, Stop> {
    let mut state = TableStates::new();
    for entry in db.catalog().list("") {
        let point = db.context().super_versions.latest();
        let report = check_stored(&entry, &point, &|| false)?;
        let name = &entry.name;
        ensure!(report.problem_count == 0, "{name}: {:?}", report.problems);
        let indexes = entry
            .schema
            .indexes
            .iter()
            .skip(1)
            .map(|i| i.parts[0].column);
        let mut shape = TableState {
            rows: Rows::new(),
            indexes: indexes.collect(),
        };
        let table = Table::open(db.catalog(), name, schema(&shape.indexes), &[])?;
        let mut cursor = Cursor::new(table);
        cursor.reset(Some(0), ReadMode::Snapshot, LockWait::Fail)?;
        let mut txn = db.new_transaction(db.new_owner(0));
        txn.begin_statement(1, Isolation::RepeatableRead, 0, false);
        let mut buffer = [0; RECORD];
        let least = i32::MIN.to_le_bytes();
        let mut on = cursor.seek(
            &mut txn,
            KeyImage::image(&least),
            SeekMode::AtOrAfter,
            &mut buffer,
        )?;
        while on {
            let number = |at: usize| i32::from_le_bytes(std::array::from_fn(|i| buffer[at + i]));
            shape.rows.insert(number(1), (number(5), number(9)));
            on = cursor.next(&mut txn, &mut buffer)?;
        }
        state.insert(name.clone(), shape);
    }
    Ok(state)
}

/// Checks, after a full compaction, that every SST is in the tree and no sort file is left.
fn no_strays(env: &dyn Env, db: &Db) -> Result<(), Stop> {
    db.compact_all()?;
    let version = Arc::clone(&db.context().super_versions.pin().version);
    let named: BTreeSet<u64> = version.files().map(|(_, file)| file.file_id).collect();
    let names = env.list_dir(Path::new(DIR))?;
    let files = names.iter().filter_map(|name| parse_file_name(name));
    for (kind, id) in files {
        let known = kind != FileKind::Sort && (kind != FileKind::Sst || named.contains(&id));
        ensure!(known, "file {id} ({kind:?}) is left over");
    }
    Ok(())
}

/// Runs random loads and index changes over several lives of a database. A life ends with a power
/// cut or a kill, after a planned death at a sync, after a failed call, or after its last step.
///
/// # Errors
/// A [`Failure`] if a state is not allowed, if an index does not fit its rows, if a file is left
/// over, or if an open or check fails.
pub fn load_run(seed: u64) -> Result<LoadStats, Failure> {
    run(seed).map_err(|stop| {
        let failure = match stop {
            Stop::Failed(failure) => failure,
            Stop::Engine(error) => Failure::new(format!("a call failed: {error}")),
        };
        failure.within(format_args!("load seed {seed}"))
    })
}

fn run(seed: u64) -> Result<LoadStats, Stop> {
    let mut rng = StdRng::seed_from_u64(seed);
    let options = tiny(&mut rng, CommitDurability::Sync);
    let mut env = MemEnv::new();
    let mut states = vec![TableStates::new()];
    let mut stats = LoadStats::default();
    let mut next_name = 0;
    for life in 0..4 {
        let faulty = FaultEnv::new(Arc::new(env.clone()));
        let db = Db::open(
            Arc::new(faulty.clone()),
            Path::new(DIR),
            options.clone(),
            None,
        )?;
        let mut run = LoadRun {
            rng: StdRng::seed_from_u64(seed * 16 + life),
            db,
            states,
            next_name,
            stats,
        };
        run.check()?;
        no_strays(&env, &run.db)?;
        match run.rng.random_range(0..3) {
            0 => env.crash_at_sync(env.sync_points() + run.rng.random_range(1..150)),
            1 => faulty.inject(Fault {
                class: one_of(
                    &mut run.rng,
                    &[
                        CallClass::Read,
                        CallClass::Write,
                        CallClass::Sync,
                        CallClass::Create,
                    ],
                ),
                nth: run.rng.random_range(1..300),
                sticky: run.rng.random(),
                errno: one_of(&mut run.rng, &[Errno::Io, Errno::NoSpace]),
            }),
            _ => {}
        }
        for _ in 0..25 {
            match run.step() {
                Ok(()) => {}
                Err(Stop::Failed(failure)) => return Err(failure.into()),
                Err(Stop::Engine(_)) => {
                    run.stats.ended += 1;
                    break;
                }
            }
        }
        if !env.is_dead() {
            let names = env.list_dir(Path::new(DIR))?;
            let left = names.iter().find(|name| name.ends_with(".sort"));
            ensure!(left.is_none(), "a load that has ended left {left:?}");
        }
        let end: u64 = run.rng.random();
        env = match end % 2 {
            0 => env.crash(end),
            _ => env.kill(),
        };
        (states, next_name, stats) = (run.states, run.next_name, run.stats);
    }
    let db = Db::open(Arc::new(env.clone()), Path::new(DIR), options, None)?;
    let mut last = LoadRun {
        rng,
        db,
        states,
        next_name,
        stats,
    };
    last.check()?;
    no_strays(&env, &last.db)?;
    last.db.close()?;
    Ok(last.stats)
}

/// Runs loads and index changes with an archived log and a crash in between, then recovers each
/// backup to a randomly chosen state that the database had after the backup.
///
/// # Errors
/// A [`Failure`] if a recovery fails or leads to another state, or if a call fails.
pub fn load_point_run(seed: u64) -> Result<LoadStats, Failure> {
    run_to_point(seed).map_err(|stop| {
        let failure = match stop {
            Stop::Failed(failure) => failure,
            Stop::Engine(error) => Failure::new(format!("a call failed: {error}")),
        };
        failure.within(format_args!("load point seed {seed}"))
    })
}

fn run_to_point(seed: u64) -> Result<LoadStats, Stop> {
    let mut rng = StdRng::seed_from_u64(seed);
    let mut options = tiny(&mut rng, CommitDurability::Sync);
    options.log_archive_dir = Some(ARCHIVE.into());
    let timeout_us = &options.mutable.log_archive_timeout_us;
    timeout_us.store(0, Ordering::Relaxed);
    let mut env = MemEnv::new();
    env.create_dir_all(Path::new(ARCHIVE))?;
    if seed.is_multiple_of(3) {
        env.set_apart(Path::new(ARCHIVE));
    }
    let open = |env: &MemEnv| {
        let env = Arc::new(env.clone());
        Db::open(env, Path::new(DIR), options.clone(), None)
    };
    let mut run = LoadRun {
        rng,
        db: open(&env)?,
        states: vec![TableStates::new()],
        next_name: 0,
        stats: LoadStats::default(),
    };
    let mut backups = Vec::new();
    let mut marks = Vec::new();
    for round in 0..40u64 {
        if round % 13 == 2 {
            let dir = PathBuf::from(format!("/b{round}"));
            let made = run.db.checkpoint(&dir, run.rng.random())?;
            backups.push((dir, made.info.seqno));
        }
        if round == 25 {
            let end: u64 = run.rng.random();
            env = match end % 2 {
                0 => env.crash(end),
                _ => env.kill(),
            };
            run.db = open(&env)?;
            run.check()?;
        }
        run.step()?;
        if run.rng.random_ratio(1, 3) {
            run.db.archive_log()?;
        }
        if !backups.is_empty() {
            let seqno = run.db.context().pipeline.last_seqno();
            marks.push((seqno, run.state().clone()));
        }
    }
    run.db.archive_log()?;
    let disk: Arc<dyn Env> = Arc::new(env.copy().crash(0));
    for (n, (backup, from)) in backups.iter().enumerate() {
        let later: Vec<_> = marks.iter().filter(|(seqno, _)| seqno >= from).collect();
        let (seqno, state) = later[run.rng.random_range(0..later.len())];
        let wanted = RecoveryTarget::Seqno(*seqno);
        let dir = PathBuf::from(format!("/recovered{n}"));
        let recovered = archive_recovery::recover(&disk, backup, *from, &wanted, &dir, &options);
        let (db, _) = match recovered {
            Ok(recovered) => recovered,
            Err(error) => {
                ensure!(
                    false,
                    "{} is not brought to {wanted:?}: {error}",
                    backup.display()
                );
                unreachable!("ensured")
            }
        };
        let recovered = found(&db)?;
        ensure!(
            recovered == *state,
            "{} at commit {seqno} has other tables or rows",
            backup.display()
        );
    }
    Ok(run.stats)
}
