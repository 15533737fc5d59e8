//! Saves the remains of a damaged database into a new one.
//!
//! All entries that can still be read are merged into a fresh directory, which gets the newest
//! version of each key that is left. Then index entries are added and removed until the indexes fit
//! the rows. The damaged directory is not changed. Files of an object store are read there; the new
//! directory has all its files itself.
//!
//! Rejected: repair in place (a second failure would leave nothing), and moving intact files as
//! they are (what is readable of a damaged file would be left out, so rows that were deleted in it
//! would come back; one merge of all readable parts applies these deletions).

mod copy;
mod sources;
mod surviving_tree;

use super::Db;
use super::read_only::ReadOnlyDb;
use super::recovery::{self, Replayed};
use crate::base::options::Options;
use crate::base::{Error, ErrorKind, IndexId, InternalIterator, Kind, Result, Seqno, Value};
use crate::blob::TransactionBlobs;
use crate::catalog::{Counters, INDEX_IDS, TableEntry, autoincrement_counter, hidden_row_counter};
use crate::sst::Density;
use crate::table::{IndexFix, IndexRepair, repair_indexes};
use crate::txn::{Isolation, Transaction};
use crate::version::FileMeta;
use crate::write::{Batch, Changes};
use copy::RepairCopy;
use sources::{UnnamedLosses, salvaged, sources};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use surviving_tree::SurvivingTree;

/// The seqno of all entries in files of loads.
const LOADED_SEQNO: Seqno = 0;

/// Size at which a memtable of the replayed log is full, bytes.
const MEMTABLE_SIZE: u64 = 64 << 20;

/// Index changes per commit.
const CHANGES_MAX: usize = 10_000;

/// Commits of index changes between two flushes.
const COMMITS_A_FLUSH: u64 = 20;

/// Result of a repair.
#[derive(Debug, Default)]
pub struct Repaired {
    /// Entries saved, of all indexes.
    pub entries: u64,
    /// Size of the new files, bytes.
    pub bytes: u64,
    /// The tables and their numbers of rows.
    pub tables: BTreeMap<String, u64>,
    /// Index entries removed because their row is lost, or because the row has other values than
    /// the index entry.
    pub entries_removed: u64,
    /// Index entries made anew from rows.
    pub entries_added: u64,
    /// Prepared transactions saved; they still wait for their outcome.
    pub prepared: usize,
    /// Remarks and remaining work for the administrator.
    pub notes: Vec<String>,
}

/// Saves the remains of the database under `damaged_db` into `target`, a directory that is empty or
/// missing. Reports each loss to `lost`.
///
/// # Errors
/// `AlreadyExists` if `target` holds anything; `Unsupported` for newer formats, and if files may be
/// in an object store that is not attached; `Unreachable` if the store does not answer; `Io` and
/// `NoSpace`.
/// After an error `target` is incomplete; the caller may remove it.
pub fn repair(
    damaged_db: &ReadOnlyDb,
    target: &Path,
    lost: &mut dyn FnMut(Error),
) -> Result<Repaired> {
    let env = damaged_db.env();
    env.create_dir_all(target)?;
    if !env.list_dir(target)?.is_empty() {
        let message = format!("{} is not empty", target.display());
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    let mut repaired = Repaired::default();
    let tree = SurvivingTree::of(damaged_db, &mut repaired, lost)?;
    let counters = Counters::default();
    let log = recovery::salvage(
        &**env,
        damaged_db.dir(),
        damaged_db.source(),
        tree.log,
        tree.last_seqno,
        MEMTABLE_SIZE,
        &counters,
        lost,
    )?;
    let stored = tree.counters.iter();
    stored.for_each(|(counter, value)| counters.learn(*counter, *value));
    let mut unnamed = UnnamedLosses::default();
    let sources = sources(damaged_db, &tree, &log, &mut unnamed, lost)?;
    let mut copy = RepairCopy::new(env, target, tree.blobs(damaged_db))?;
    copy.all(sources, lost)?;
    unnamed.report(&copy.known, lost);
    counters.raise(INDEX_IDS, u64::from(copy.largest_index));
    let last_seqno = copy.last_seqno.max(log.last_seqno).max(tree.last_seqno);
    repaired.entries = copy.entries;
    repaired.bytes = copy.files.iter().map(|file| file.size).sum();
    let mut gtids = tree.gtids.clone();
    gtids.extend(&log.gtids);
    copy.install(last_seqno, counters.snapshot(), &gtids)?;
    finish(damaged_db, &tree, target, &log, &mut repaired, lost)?;
    Ok(repaired)
}

/// Copies the files of a prepared transaction into `db`.
fn copy_prepared(
    damaged_db: &ReadOnlyDb,
    db: &Db,
    tree: &SurvivingTree,
    files: &[FileMeta],
    lost: &mut dyn FnMut(Error),
) -> Result<Changes> {
    let known = db.catalog().known();
    let mut writer = db.context().ingest.writer(Density::Light, 0);
    let (from, to) = (tree.blobs(damaged_db), &db.context().blobs);
    let mut session = TransactionBlobs::new();
    let mut unnamed = UnnamedLosses::default();
    for file in files {
        // A prepared transaction wrote these files, and their entries get a seqno only when it
        // commits. Until then any seqno serves to read them.
        let id = file.file_id;
        let Some(mut source) = salvaged(damaged_db, tree, id, Some(0), &mut unnamed, lost)? else {
            continue;
        };
        let mut on = source.seek_to_first()?;
        while on {
            let key = source.key();
            let value = source.value();
            if key.kind == Kind::PutBlobs {
                let (kind, tail) = copy::own_blobs(
                    &from,
                    to,
                    &mut session,
                    &known,
                    key.user_key,
                    value.tail,
                    lost,
                )?;
                writer.add(key.user_key, kind, Value::split(value.head, &tail))?;
            } else {
                writer.add(key.user_key, key.kind, value)?;
            }
            on = source.next()?;
        }
    }
    unnamed.report(&known, lost);
    session.sync()?;
    let files = writer.finish()?;
    files.sync()?;
    Ok(match files.files() {
        [] => Changes::Batch(Batch::new()),
        _ => Changes::Run(files.keep()),
    })
}

/// Opens the new database, moves the prepared transactions there, and mends the indexes.
fn finish(
    damaged_db: &ReadOnlyDb,
    tree: &SurvivingTree,
    target: &Path,
    log: &Replayed,
    repaired: &mut Repaired,
    lost: &mut dyn FnMut(Error),
) -> Result<()> {
    let options = Options {
        background_jobs: 0,
        ..Options::default()
    };
    options
        .mutable
        .txn_memory_limit
        .store(u64::MAX, Ordering::Relaxed);
    let db = Db::open(Arc::clone(damaged_db.env()), target, options, None)?;
    for (xid, changes) in &log.prepared {
        let changes = match &**changes {
            Changes::Batch(batch) => {
                Changes::Batch(with_own_blobs(&db, damaged_db, tree, batch, lost)?)
            }
            Changes::Run(files) => copy_prepared(damaged_db, &db, tree, files, lost)?,
        };
        let pipeline = &db.context().pipeline;
        // Keep the server run with the transaction: the server's next start needs it to decide.
        pipeline.set_server_run(log.runs.get(xid).cloned());
        pipeline.prepare_changes(xid, &Arc::new(changes), &[])?;
        repaired.prepared += 1;
    }
    let tables = db.catalog().list("");
    repaired.notes.extend(shared_ids(&tables));
    for entry in tables {
        let mended = mend(&db, &entry, repaired)?;
        let raise = |counter, value: Option<u64>| match value {
            Some(value) => db.catalog().persist_counter(counter, value),
            None => Ok(()),
        };
        let id = entry.clustered.id;
        raise(autoincrement_counter(id), mended.auto_increment)?;
        raise(hidden_row_counter(id), mended.hidden_row)?;
        repaired.tables.insert(entry.name.clone(), mended.rows);
        for index in mended.uncertain {
            let note = format!(
                "table {}: index {index} could not be compared with the rows; ALTER TABLE … FORCE rebuilds it",
                entry.name
            );
            repaired.notes.push(note);
        }
        for row in mended.undecoded {
            let row = db.catalog().entry_text(&row);
            let what = format!("{row}: the row does not decode");
            lost(Error::corruption(entry.name.clone(), 0, what));
        }
    }
    db.flush()?;
    db.close()
}

/// The batch of a prepared transaction, its blobs copied into the new database.
fn with_own_blobs(
    db: &Arc<Db>,
    damaged_db: &ReadOnlyDb,
    tree: &SurvivingTree,
    batch: &Batch,
    lost: &mut dyn FnMut(Error),
) -> Result<Batch> {
    let from = tree.blobs(damaged_db);
    let known = db.catalog().known();
    let mut session = TransactionBlobs::new();
    let mut copied = Batch::new();
    let mut failed = Ok(());
    batch.for_each(|entry| {
        if failed.is_err() {
            return;
        }
        if entry.kind != Kind::PutBlobs {
            copied.add(entry.user_key, entry.kind, entry.value);
            return;
        }
        let to = &db.context().blobs;
        let (key, tail) = (entry.user_key, entry.value.tail);
        let tail = copy::own_blobs(&from, to, &mut session, &known, key, tail, lost);
        match tail {
            Ok((kind, tail)) => {
                let value = Value::split(entry.value.head, &tail);
                copied.add(entry.user_key, kind, value);
            }
            Err(error) => failed = Err(error),
        }
    })?;
    failed?;
    session.sync()?;
    Ok(copied)
}

/// A note for each table whose clustered index belongs to another table as well. If one half of a
/// rename is lost, the same rows have two names.
fn shared_ids(tables: &[Arc<TableEntry>]) -> Vec<String> {
    let mut owners: BTreeMap<IndexId, &str> = BTreeMap::new();
    let mut notes = Vec::new();
    for entry in tables {
        if let Some(other) = owners.insert(entry.clustered.id, &entry.name) {
            let note = format!(
                "{other} and {} are one table under two names: drop neither, copy the rows out of one",
                entry.name
            );
            notes.push(note);
        }
    }
    notes
}

/// Makes the indexes of a table fit its rows.
fn mend(db: &Arc<Db>, entry: &Arc<TableEntry>, repaired: &mut Repaired) -> Result<IndexRepair> {
    let point = db.context().super_versions.latest();
    let mut changes = IndexChanges {
        db: Arc::clone(db),
        txn: db.new_transaction(db.new_owner(0)),
        pending: 0,
        commits: 0,
    };
    let mended = repair_indexes(entry, &point, &mut |change| changes.add(change))?;
    changes.commit()?;
    repaired.entries_removed += mended.removed;
    repaired.entries_added += mended.added;
    Ok(mended)
}

/// Writes index changes to the new database in commits of limited size.
struct IndexChanges {
    db: Arc<Db>,
    txn: Transaction,
    pending: usize,
    commits: u64,
}

impl IndexChanges {
    fn add(&mut self, change: IndexFix<'_>) -> Result<()> {
        if self.pending == 0 {
            self.txn
                .begin_statement(self.commits, Isolation::ReadCommitted, 0, true);
        }
        self.pending += 1;
        match change {
            IndexFix::Remove(key) => self.txn.delete(key)?,
            IndexFix::Add(key, value) => self.txn.put(key, Value::whole(value))?,
        }
        match self.pending >= CHANGES_MAX {
            true => self.commit(),
            false => Ok(()),
        }
    }

    fn commit(&mut self) -> Result<()> {
        self.commits += 1;
        self.pending = 0;
        self.txn.commit()?;
        // Flush here: the database has no background threads.
        match self.commits % COMMITS_A_FLUSH {
            0 => self.db.flush(),
            _ => Ok(()),
        }
    }
}
