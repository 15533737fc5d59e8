//! The tables of a database. Each change is one atomic batch, durable on return.
//!
//! Keys under the catalog's index: `1` + name → table entry. `2` + index id (big-endian) → empty
//! value: the index is retired, and its entries are garbage until no file holds any. `3` and `4`:
//! see `object_image.rs`.

use super::CATALOG_INDEX;
use super::catalog_state::{CatalogState, RETIRED, TABLE};
use super::counters::{Counter, Counters, INDEX_IDS, autoincrement_counter};
use super::index_owners::IndexOwners;
use super::schema::TableSchema;
use super::table_entry::{IndexEntry, TableEntry};
use crate::base::key::index_prefix;
use crate::base::{CounterValue, Error, ErrorKind, IndexId, Kind, Result, Seqno, Value};
use crate::keycode::KeyPrefixExtractor;
use crate::read::ReadPoint;
use crate::txn::PreparedTransactions;
use crate::write::{Batch, CommitRecord, Pipeline};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The definition of a new table.
pub struct NewTable<'a> {
    /// Columns and indexes.
    pub schema: TableSchema,
    /// The server's table definition image.
    pub frm: &'a [u8],
    /// The server's version of the definition.
    pub version: &'a [u8],
    /// Creation time, microseconds since 1970.
    pub created_micros: u64,
}

/// The catalog of a database.
///
/// A change holds `changing` from its check to its install: it writes one batch, waits until that
/// is durable, then updates `known` and the generation. Readers take `known` for moments only. The
/// server's metadata locks keep users of a table away while it changes.
///
/// Lock order: `changing`, then `owners` or `filling`, then `known`. The commit pipeline runs under
/// `changing` alone.
pub struct Catalog {
    pipeline: Arc<Pipeline>,
    prepared: Arc<PreparedTransactions>,
    counters: Arc<Counters>,
    known: RwLock<CatalogState>,
    /// Grows with every change.
    generation: AtomicU64,
    /// Serializes changes.
    changing: Mutex<()>,
    /// Index owners, for [`crate::base::prefix_extractor::KeyShapes`].
    owners: Mutex<IndexOwners>,
    /// Indexes that are being filled, and the ends of their key parts.
    filling: Mutex<BTreeMap<IndexId, KeyPrefixExtractor>>,
    /// Retired indexes that an open transaction has entries of.
    kept: Mutex<BTreeSet<IndexId>>,
}

/// A counter that was set in memory and is about to be logged. It is set in memory first: a flush
/// that releases the log record then has the value in its edit.
pub(super) struct SetCounter {
    counter: u64,
    cell: Arc<Counter>,
    before: CounterValue,
    set: CounterValue,
}

impl SetCounter {
    /// Sets `counter` to `value`, which may be smaller than the current value.
    pub(super) fn new(counters: &Counters, counter: u64, value: u64) -> Self {
        let cell = counters.cell(counter);
        let before = cell.read();
        let set = cell.set(value);
        Self {
            counter,
            cell,
            before,
            set,
        }
    }

    /// For the log record.
    pub(super) fn to_log(&self) -> (u64, CounterValue) {
        (self.counter, self.set)
    }

    /// Sets the old value again, since the log does not have the new one. A flush may have
    /// persisted the new value: the old one begins another generation, which outdoes it.
    pub(super) fn undo(&self) {
        self.cell.set(self.before.value);
    }
}

fn table_key(name: &str) -> Vec<u8> {
    let mut key = index_prefix(CATALOG_INDEX).to_vec();
    key.push(TABLE);
    key.extend_from_slice(name.as_bytes());
    key
}

pub(super) fn retired_key(index: IndexId) -> Vec<u8> {
    let mut key = index_prefix(CATALOG_INDEX).to_vec();
    key.push(RETIRED);
    key.extend_from_slice(&index.to_be_bytes());
    key
}

/// Whether a table is a partition of one, as the server names them.
fn is_partition(name: &str) -> bool {
    name.contains("#P#")
}

fn no_table(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("table {name} does not exist"))
}

impl Catalog {
    /// Reads the catalog at `point`, raises the counter of index ids above all that it names, and
    /// forgets the counters of other tables.
    ///
    /// # Errors
    /// Those of [`CatalogState::read`].
    pub fn load(
        pipeline: Arc<Pipeline>,
        prepared: Arc<PreparedTransactions>,
        counters: Arc<Counters>,
        point: &ReadPoint,
    ) -> Result<Self> {
        let known = CatalogState::read(point)?;
        counters.raise(INDEX_IDS, known.largest_index().into());
        let tables = known.tables.values();
        counters.keep_only(&tables.map(|table| table.clustered.id).collect());
        Ok(Self {
            pipeline,
            prepared,
            counters,
            known: RwLock::new(known),
            generation: AtomicU64::new(0),
            changing: Mutex::new(()),
            owners: Mutex::default(),
            filling: Mutex::default(),
            kept: Mutex::default(),
        })
    }

    /// The table called `name`.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn get(&self, name: &str) -> Result<Arc<TableEntry>> {
        self.known
            .read()
            .tables
            .get(name)
            .cloned()
            .ok_or_else(|| no_table(name))
    }

    /// The tables whose names start with `prefix`, in order.
    pub fn list(&self, prefix: &str) -> Vec<Arc<TableEntry>> {
        let known = self.known.read();
        let from = known.tables.range(prefix.to_owned()..);
        from.take_while(|(name, _)| name.starts_with(prefix))
            .map(|(_, t)| Arc::clone(t))
            .collect()
    }

    /// A copy of the current contents.
    pub fn known(&self) -> CatalogState {
        self.known.read().clone()
    }

    /// Retired indexes of which files may still hold entries, with the seqno of their retirement.
    pub fn retired(&self) -> BTreeMap<IndexId, Seqno> {
        self.known.read().retired.clone()
    }

    /// A number that grows with every change of a table; data read at an older generation may be
    /// outdated.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Raises `counter` to at least `value`. Durable on return.
    ///
    /// # Errors
    /// Those of a commit: `NoSpace`, `Poisoned`, `ShutDown`, `Io`.
    pub fn persist_counter(&self, counter: u64, value: u64) -> Result<()> {
        let _one = self.changing.lock();
        let raised = self.counters.raise(counter, value);
        self.log_counters(&[(counter, raised)])
    }

    /// Sets `counter` to `value`, which may be smaller than the current value. Durable on return.
    /// No other thread may raise the counter meanwhile.
    ///
    /// # Errors
    /// Those of a commit (`NoSpace`, `Poisoned`, `ShutDown`, `Io`): the counter then has its old
    /// value.
    pub fn set_counter(&self, counter: u64, value: u64) -> Result<()> {
        let _one = self.changing.lock();
        let set = SetCounter::new(&self.counters, counter, value);
        self.log_counters(&[set.to_log()])
            .inspect_err(|_| set.undo())
    }

    fn log_counters(&self, counters: &[(u64, CounterValue)]) -> Result<()> {
        self.pipeline
            .commit(CommitRecord::Batch, &Batch::new(), counters)?;
        self.pipeline.sync_all()
    }

    /// Persists all counters. Durable on return, with everything committed before.
    ///
    /// # Errors
    /// Those of a commit: `NoSpace`, `Poisoned`, `ShutDown`, `Io`.
    pub fn persist_counters(&self) -> Result<()> {
        let _one = self.changing.lock();
        self.log_counters(&self.counters.snapshot())
    }

    /// The table called `name`, if no prepared transaction has changed it. For changes that would
    /// leave the transaction's rows behind, or move them to another name.
    ///
    /// # Errors
    /// `NotFound`; `LockTimeout` if a prepared transaction has changed the table.
    pub(super) fn get_settled(&self, name: &str) -> Result<Arc<TableEntry>> {
        let entry = self.get(name)?;
        self.refuse_unsettled(&entry)?;
        Ok(entry)
    }

    /// Refuses a table that a prepared transaction has changed.
    ///
    /// # Errors
    /// `LockTimeout`.
    pub(super) fn refuse_unsettled(&self, entry: &TableEntry) -> Result<()> {
        self.prepared.refuse_if_changed(&entry.index_ids())
    }

    pub(super) fn entries(&self) -> &RwLock<CatalogState> {
        &self.known
    }

    pub(super) fn changing(&self) -> &Mutex<()> {
        &self.changing
    }

    pub(super) fn filling(&self) -> &Mutex<BTreeMap<IndexId, KeyPrefixExtractor>> {
        &self.filling
    }

    /// Records index ids as retired from `seqno` on, in memory.
    pub(super) fn retire_known(&self, ids: &[IndexId], seqno: Seqno) {
        let retired = ids.iter().map(|id| (*id, seqno));
        self.known.write().retired.extend(retired);
    }

    pub(super) fn owners(&self) -> &Mutex<IndexOwners> {
        &self.owners
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Creates a table.
    ///
    /// # Errors
    /// `AlreadyExists`; `Unsupported` if the index ids are used up; those of a commit (`NoSpace`,
    /// `Poisoned`, `ShutDown`, `Io`).
    pub fn create(&self, name: &str, definition: NewTable<'_>) -> Result<Arc<TableEntry>> {
        self.create_numbered(name, definition, 0)
    }

    /// As [`Self::create`], with `used` as the last AUTO_INCREMENT value that counts as used. Table
    /// and value are one commit: after a crash there is no table that begins at another value.
    ///
    /// # Errors
    /// Those of [`Self::create`].
    pub fn create_numbered(
        &self,
        name: &str,
        definition: NewTable<'_>,
        used: u64,
    ) -> Result<Arc<TableEntry>> {
        let _one = self.changing.lock();
        if self.known.read().tables.contains_key(name) {
            let message = format!("table {name} exists already");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        let (indexes, clustered) = self.new_indexes(&definition.schema)?;
        let entry = TableEntry {
            name: name.to_owned(),
            schema: definition.schema,
            indexes,
            clustered,
            frm: definition.frm.to_vec(),
            version: definition.version.to_vec(),
            created_micros: definition.created_micros,
        };
        let new = entry.index_ids();
        let mut batch = Batch::new();
        put_entry(&mut batch, &entry, &new);
        let mut counters = Vec::new();
        if used > 0 {
            let counter = autoincrement_counter(entry.clustered.id);
            counters.push((counter, self.counters.raise(counter, used)));
        }
        let written = self.write_with_counters(&batch, &format!("create table {name}"), &counters);
        let seqno = written.inspect_err(|_| self.counters.forget(entry.clustered.id))?;
        Ok(self.install(entry, &new, seqno))
    }

    /// Drops a table: deletes its entry and retires its index ids.
    ///
    /// # Errors
    /// `NotFound`; `LockTimeout` if a prepared transaction has changed the table; those of a commit
    /// (`NoSpace`, `Poisoned`, `ShutDown`, `Io`).
    pub fn drop_table(&self, name: &str) -> Result<()> {
        let _one = self.changing.lock();
        let entry = self.get_settled(name)?;
        let mut batch = Batch::new();
        batch.add(&table_key(name), Kind::Delete, Value::EMPTY);
        retire(&mut batch, &entry);
        let seqno = self.write_retirement(&batch, &format!("drop table {name}"))?;
        let mut known = self.known.write();
        known.tables.remove(name);
        known
            .retired
            .extend(entry.index_ids().into_iter().map(|id| (id, seqno)));
        self.counters.forget(entry.clustered.id);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Renames a table.
    ///
    /// # Errors
    /// Those of [`Self::drop_table`]; `AlreadyExists` if there is a table `to`.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let _one = self.changing.lock();
        let entry = self.get_settled(from)?;
        if self.known.read().tables.contains_key(to) {
            let message = format!("table {to} exists already");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        let mut renamed = TableEntry {
            name: to.to_owned(),
            ..(*entry).clone()
        };
        if is_partition(from) != is_partition(to) {
            // A partition becomes a table, or the other way round: its definition is another one,
            // which the server does not show.
            renamed.frm.clear();
            renamed.version.clear();
        }
        let mut batch = Batch::new();
        batch.add(&table_key(from), Kind::Delete, Value::EMPTY);
        put_entry(&mut batch, &renamed, &[]);
        self.write(&batch, &format!("rename table {from} to {to}"))?;
        let mut known = self.known.write();
        known.tables.remove(from);
        known.tables.insert(to.to_owned(), Arc::new(renamed));
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Empties a table: it gets new index ids, and the old ones retire.
    ///
    /// # Errors
    /// Those of [`Self::drop_table`]; `Unsupported` if the index ids are used up.
    pub fn truncate(&self, name: &str) -> Result<Arc<TableEntry>> {
        let _one = self.changing.lock();
        let old = self.get_settled(name)?;
        let (indexes, clustered) = self.new_indexes(&old.schema)?;
        let entry = TableEntry {
            indexes,
            clustered,
            ..(*old).clone()
        };
        let new = entry.index_ids();
        let mut batch = Batch::new();
        retire(&mut batch, &old);
        put_entry(&mut batch, &entry, &new);
        let seqno = self.write_retirement(&batch, &format!("truncate table {name}"))?;
        let retired = old.index_ids().into_iter().map(|id| (id, seqno));
        self.known.write().retired.extend(retired);
        self.counters.forget(old.clustered.id);
        Ok(self.install(entry, &new, seqno))
    }

    /// Ends a bulk load that committed its rows in pieces. Sets the creation seqno of the indexes
    /// to this commit, so that no snapshot sees a part of the rows.
    ///
    /// # Errors
    /// `NotFound`; those of a commit (`NoSpace`, `Poisoned`, `ShutDown`, `Io`).
    pub fn publish_loaded(&self, name: &str) -> Result<Arc<TableEntry>> {
        let _one = self.changing.lock();
        let entry = (*self.get(name)?).clone();
        let new = entry.index_ids();
        let mut batch = Batch::new();
        put_entry(&mut batch, &entry, &new);
        let seqno = self.write(&batch, &format!("load table {name}"))?;
        Ok(self.install(entry, &new, seqno))
    }

    /// Forgets retired indexes of which no file and no memtable holds an entry.
    ///
    /// # Errors
    /// Those of a commit: `NoSpace`, `Poisoned`, `ShutDown`, `Io`.
    pub fn forget_retired(&self, gone: &[IndexId]) -> Result<()> {
        let _one = self.changing.lock();
        let kept = self.kept.lock().clone();
        let gone: Vec<IndexId> = gone
            .iter()
            .filter(|id| !kept.contains(id))
            .copied()
            .collect();
        if gone.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        gone.iter()
            .for_each(|id| batch.add(&retired_key(*id), Kind::Delete, Value::EMPTY));
        self.write_retirement(&batch, "forget retired indexes")?;
        let mut known = self.known.write();
        for id in gone {
            known.retired.remove(&id);
        }
        Ok(())
    }

    /// Keeps indexes from being [forgotten](Self::forget_retired) once they are retired, because a
    /// transaction may yet commit entries of them: these are garbage only as long as the index is
    /// known to be retired.
    pub fn keep_retired(&self, ids: &[IndexId]) {
        self.kept.lock().extend(ids);
    }

    /// Ends [`Self::keep_retired`]: the transaction has ended.
    pub fn release_retired(&self, ids: &[IndexId]) {
        let mut kept = self.kept.lock();
        for id in ids {
            kept.remove(id);
        }
    }

    fn new_indexes(&self, schema: &TableSchema) -> Result<(Vec<IndexEntry>, IndexEntry)> {
        let count = schema.indexes.len() + usize::from(schema.primary.is_none());
        let mut ids = self.take_ids(count)?.into_iter();
        let mut entry = || IndexEntry {
            id: ids.next().expect("as many as counted"),
            created: 0,
        };
        let indexes: Vec<_> = schema.indexes.iter().map(|_| entry()).collect();
        let clustered = match schema.primary {
            Some(primary) => indexes[primary as usize],
            None => entry(),
        };
        self.counters.rows(clustered.id).set(0, 0);
        Ok((indexes, clustered))
    }

    /// The last index id that was given out.
    pub fn last_index_id(&self) -> u64 {
        self.counters
            .cell(INDEX_IDS)
            .value()
            .load(Ordering::Relaxed)
    }

    /// Takes `count` consecutive index ids.
    pub(super) fn take_ids(&self, count: usize) -> Result<Vec<IndexId>> {
        let ids = self.counters.cell(INDEX_IDS);
        let last = ids.value().fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        let last =
            IndexId::try_from(last).map_err(|_| Error::unsupported("index ids are used up"))?;
        Ok((last + 1 - count as u32..=last).collect())
    }

    pub(super) fn write(&self, batch: &Batch, description: &str) -> Result<Seqno> {
        self.write_change(
            CommitRecord::SchemaChange(description.as_bytes()),
            batch,
            &[],
        )
    }

    /// As [`Self::write`], with values of counters.
    pub(super) fn write_with_counters(
        &self,
        batch: &Batch,
        description: &str,
        counters: &[(u64, CounterValue)],
    ) -> Result<Seqno> {
        self.write_change(
            CommitRecord::SchemaChange(description.as_bytes()),
            batch,
            counters,
        )
    }

    /// As [`Self::write`], for batches that retire or forget indexes: on a full disk they may use
    /// the reserve.
    pub(super) fn write_retirement(&self, batch: &Batch, description: &str) -> Result<Seqno> {
        self.write_change(CommitRecord::Retirement(description.as_bytes()), batch, &[])
    }

    fn write_change(
        &self,
        what: CommitRecord<'_>,
        batch: &Batch,
        counters: &[(u64, CounterValue)],
    ) -> Result<Seqno> {
        let ids = self.counters.cell(INDEX_IDS).read();
        let counters = [&[(INDEX_IDS, ids)], counters].concat();
        let committed = self.pipeline.commit(what, batch, &counters)?;
        self.pipeline.sync_all()?;
        Ok(committed.seqno)
    }

    pub(super) fn install(
        &self,
        mut entry: TableEntry,
        new: &[IndexId],
        seqno: Seqno,
    ) -> Arc<TableEntry> {
        let indexes = entry
            .indexes
            .iter_mut()
            .chain(std::iter::once(&mut entry.clustered));
        for index in indexes.filter(|index| new.contains(&index.id)) {
            index.created = seqno;
        }
        let entry = Arc::new(entry);
        self.known
            .write()
            .tables
            .insert(entry.name.clone(), Arc::clone(&entry));
        self.generation.fetch_add(1, Ordering::Release);
        entry
    }
}

pub(super) fn put_entry(batch: &mut Batch, entry: &TableEntry, new: &[IndexId]) {
    batch.add(
        &table_key(&entry.name),
        Kind::Put,
        Value::whole(&entry.encode(new)),
    );
}

fn retire(batch: &mut Batch, entry: &TableEntry) {
    for id in entry.index_ids() {
        batch.add(&retired_key(id), Kind::Put, Value::EMPTY);
    }
}
