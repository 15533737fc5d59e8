//! The tables of a database. Each change is one atomic batch, durable on return.
//!
//! Keys under the catalog's index: `1` + name → table entry. `2` + index id (big-endian) → empty
//! value: the index is retired, and its entries are garbage until no file holds any. `3` and `4`:
//! see `object_image.rs`.

use super::CATALOG_INDEX;
use super::catalog_state::{CatalogState, RETIRED, TABLE};
use super::counters::{Counter, Counters, INDEX_IDS, autoincrement_counter};
use super::ddl_copies::{DdlRecovery, is_step};
use super::ddl_session::TableRename;
use super::foreign_key::is_copy;
use super::foreign_key_definition::ForeignKeyRequest;
use super::metadata_locks::MetadataLocks;
use super::schema::{Collations, TableSchema};
use super::table_entry::{IndexEntry, TableEntry};
use super::virtual_columns::VirtualColumns;
use crate::base::key::index_prefix;
use crate::base::work_count;
use crate::base::{CounterValue, Error, ErrorKind, IndexId, Kind, Result, Seqno, Value};
use crate::keycode::KeyPrefixExtractor;
use crate::read::ReadPoint;
use crate::txn::{PreparedTransactions, ReferencedTables};
use crate::write::{Batch, CommitRecord, Pipeline};
use parking_lot::{Mutex, RwLock};
use std::any::Any;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

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

/// A cache of open tables, which the layer above has made from stored definitions. It is valid for
/// one generation of the catalog and is emptied when the generation changes.
#[derive(Default)]
struct OpenedTables {
    generation: u64,
    by_name: HashMap<String, Arc<dyn Any + Send + Sync>>,
}

/// The catalog of a database.
///
/// A change holds `changing` from its check to its install: it writes one batch, waits until that
/// is durable, then updates `known` and the generation. Readers take `known` for moments only. The
/// server's metadata locks keep users of a table away while it changes.
///
/// Lock order: `changing`, then `filling`, then `known`. The commit pipeline runs under
/// `changing` alone.
pub struct Catalog {
    pipeline: Arc<Pipeline>,
    prepared: Arc<PreparedTransactions>,
    referenced: Arc<ReferencedTables>,
    /// The host's collations, for tables that the host has not opened.
    collations: OnceLock<Arc<dyn Collations>>,
    metadata_locks: OnceLock<Arc<dyn MetadataLocks>>,
    virtual_columns: OnceLock<Arc<dyn VirtualColumns>>,
    counters: Arc<Counters>,
    known: RwLock<CatalogState>,
    /// Grows with every change.
    generation: AtomicU64,
    /// Serializes changes.
    changing: Mutex<()>,
    opened: Mutex<OpenedTables>,
    /// Indexes that are being filled, each with a prefix extractor for its keys.
    filling: Mutex<BTreeMap<IndexId, KeyPrefixExtractor>>,
    /// Indexes of which an open transaction has uncommitted entries, and which are retired or about
    /// to be; see [`Catalog::pin_retired`].
    kept: Mutex<BTreeSet<IndexId>>,
    recovery: DdlRecovery,
}

/// A counter that was set in memory and is about to be logged. It is set in memory before the log
/// record is written: a flush right after the write may release the log record, and its manifest
/// edit, which persists the value in memory, must then have the new value.
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

    /// The counter's number and new value, for the log record.
    pub(super) fn to_log(&self) -> (u64, CounterValue) {
        (self.counter, self.set)
    }

    /// Sets the old value again, because the log record of the new value could not be written. A
    /// flush may have persisted the new value meanwhile. So the old value gets a further
    /// generation, which takes precedence over the new value.
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

/// Whether `name` is the name that the server gives to a partition of a table.
fn is_partition(name: &str) -> bool {
    name.contains("#P#")
}

/// The original name of `entry` after its renaming to `to`; see [`TableEntry::original`].
fn original_name(entry: &TableEntry, to: &str) -> Option<String> {
    let from = &entry.name;
    match (is_copy(from), is_copy(to)) {
        (true, true) => entry.original.clone(),
        (false, true) => Some(from.clone()),
        (false, false) if is_partition(from) != is_partition(to) => Some(from.clone()),
        (_, false) => None,
    }
}

fn no_table(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("table {name} does not exist"))
}

impl Catalog {
    /// Makes the host's metadata locks known. Further calls have no effect.
    pub fn set_metadata_locks(&self, locks: Arc<dyn MetadataLocks>) {
        let _ = self.metadata_locks.set(locks);
    }

    /// As [`MetadataLocks::is_held`]; true if there is no host, or if the caller is no session of
    /// the host (`host` is 0).
    pub(crate) fn is_metadata_locked(&self, host: u64, table: &str, writes: bool) -> bool {
        match self.metadata_locks.get() {
            Some(locks) if host != 0 => locks.is_held(host, table, writes),
            _ => true,
        }
    }

    /// Makes the host's virtual columns known. Further calls have no effect.
    pub fn set_virtual_columns(&self, columns: Arc<dyn VirtualColumns>) {
        let _ = self.virtual_columns.set(columns);
    }

    /// As [`VirtualColumns::compute`].
    ///
    /// # Errors
    /// `HostFailed` if a column has no value; `Unsupported` if no host computes it.
    pub(crate) fn compute_virtual(&self, host: u64, table: &str, record: &mut [u8]) -> Result<()> {
        match self.virtual_columns.get() {
            Some(columns) if host != 0 => match columns.compute(host, table, record) {
                true => Ok(()),
                false => Err(Error::new(
                    ErrorKind::HostFailed,
                    format!("a virtual column of {table} has no value"),
                )),
            },
            _ => Err(Error::unsupported(format!(
                "nobody computes the virtual columns of {table}"
            ))),
        }
    }
}

impl Catalog {
    /// Reads the catalog at `point`. Raises the counter of index ids to the largest id in the
    /// catalog, and forgets the counters of tables that are not in the catalog.
    ///
    /// # Errors
    /// Those of [`CatalogState::read`].
    pub fn load(
        pipeline: Arc<Pipeline>,
        prepared: Arc<PreparedTransactions>,
        referenced: Arc<ReferencedTables>,
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
            referenced,
            collations: OnceLock::new(),
            metadata_locks: OnceLock::new(),
            virtual_columns: OnceLock::new(),
            counters,
            known: RwLock::new(known),
            generation: AtomicU64::new(0),
            changing: Mutex::new(()),
            opened: Mutex::default(),
            filling: Mutex::default(),
            kept: Mutex::default(),
            recovery: DdlRecovery::default(),
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
        let from = from.take_while(|(name, _)| name.starts_with(prefix));
        let tables: Vec<_> = from.map(|(_, table)| Arc::clone(table)).collect();
        work_count::tables_seen(tables.len());
        tables
    }

    /// A copy of the current contents.
    pub fn known(&self) -> CatalogState {
        let known = self.known.read().clone();
        work_count::tables_seen(known.tables.len());
        known
    }

    /// Retired indexes of which files may still hold entries, with the seqno of their retirement.
    pub fn retired(&self) -> BTreeMap<IndexId, Seqno> {
        self.known.read().retired.clone()
    }

    /// A number that grows with every change of the catalog. What a caller has read from the
    /// catalog at an older generation may be outdated.
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

    /// The table called `name`, if no prepared transaction has changed it. Drop, truncate and
    /// rename use this: otherwise the transaction might commit rows of a table that is gone or has
    /// another name.
    ///
    /// # Errors
    /// `NotFound`; `LockTimeout` if a prepared transaction has changed the table.
    pub(super) fn get_unless_prepared_changed(&self, name: &str) -> Result<Arc<TableEntry>> {
        let entry = self.get(name)?;
        self.refuse_prepared_changes(&entry)?;
        Ok(entry)
    }

    /// Refuses a table that a prepared transaction has changed.
    ///
    /// # Errors
    /// `LockTimeout`.
    pub(super) fn refuse_prepared_changes(&self, entry: &TableEntry) -> Result<()> {
        self.prepared.refuse_if_changed(&entry.index_ids())
    }

    pub(super) fn entries(&self) -> &RwLock<CatalogState> {
        &self.known
    }

    pub(super) fn referenced(&self) -> &ReferencedTables {
        &self.referenced
    }

    pub(super) fn recovery(&self) -> &DdlRecovery {
        &self.recovery
    }

    /// The open table called `name`. Calls `open` only if the table was not opened since the last
    /// change of the catalog.
    ///
    /// # Errors
    /// Those of `open`.
    pub fn opened<T: Any + Send + Sync>(
        &self,
        name: &str,
        open: impl FnOnce() -> Result<Arc<T>>,
    ) -> Result<Arc<T>> {
        let generation = self.generation();
        {
            let mut opened = self.opened.lock();
            if opened.generation != generation {
                *opened = OpenedTables {
                    generation,
                    by_name: HashMap::new(),
                };
            }
            let known = opened.by_name.get(name).map(Arc::clone);
            if let Some(Ok(table)) = known.map(Arc::downcast) {
                return Ok(table);
            }
        }
        let table = open()?;
        let mut opened = self.opened.lock();
        if opened.generation == generation {
            let table: Arc<dyn Any + Send + Sync> = table.clone();
            opened.by_name.insert(name.to_owned(), table);
        }
        Ok(table)
    }

    /// Makes the host's collations known. Further calls have no effect.
    pub fn set_collations(&self, collations: Arc<dyn Collations>) {
        let _ = self.collations.set(collations);
    }

    /// A copy of `schema`, which was read from the catalog, with the host's collations.
    ///
    /// # Errors
    /// `Unsupported` if the host does not have a collation, or has another version of it.
    pub fn with_collations(&self, schema: &TableSchema) -> Result<TableSchema> {
        schema.with_collations(self.collations.get().map(|all| &**all))
    }

    pub(super) fn changing(&self) -> &Mutex<()> {
        &self.changing
    }

    pub(super) fn filling(&self) -> &Mutex<BTreeMap<IndexId, KeyPrefixExtractor>> {
        &self.filling
    }

    /// Records in memory, not on disk, that indexes are retired from `seqno` on.
    pub(super) fn retire_known(&self, ids: &[IndexId], seqno: Seqno) {
        let retired = ids.iter().map(|id| (*id, seqno));
        self.known.write().retired.extend(retired);
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
        self.create_referencing(name, definition, 0, &ForeignKeyRequest::default())
    }

    /// Creates a table with foreign keys. `used` is the last AUTO_INCREMENT value that counts as
    /// used. The table and this value are written in one commit, so that after a crash the table
    /// does not exist without it.
    ///
    /// # Errors
    /// Those of [`Self::create`]; `ForeignKey` if a foreign key is not allowed, or if one that
    /// refers to the new table does not fit it.
    pub fn create_referencing(
        &self,
        name: &str,
        definition: NewTable<'_>,
        used: u64,
        request: &ForeignKeyRequest,
    ) -> Result<Arc<TableEntry>> {
        let _one = self.changing.lock();
        if self.known.read().tables.contains_key(name) {
            let message = format!("table {name} exists already");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        let known = self.known.read();
        let foreign_keys = known.foreign_keys_of(name, &definition.schema, request)?;
        known.check_referencing(name, &definition.schema, request.checks)?;
        // If a table of another engine is altered to this engine, the copy replaces no table of
        // this catalog, so it records no original.
        let original = request.replaces.clone();
        let original = original.filter(|table| is_copy(name) && known.has_table(table));
        drop(known);
        let (indexes, clustered) = self.new_indexes(&definition.schema)?;
        let entry = TableEntry {
            name: name.to_owned(),
            schema: definition.schema,
            indexes,
            clustered,
            frm: definition.frm.to_vec(),
            version: definition.version.to_vec(),
            created_micros: definition.created_micros,
            foreign_keys,
            original,
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
        self.drop_if(name, |_| Ok(()))
    }

    pub(super) fn drop_if(
        &self,
        name: &str,
        allows: impl FnOnce(&CatalogState) -> Result<()>,
    ) -> Result<()> {
        let _one = self.changing.lock();
        let entry = self.get_unless_prepared_changed(name)?;
        allows(&self.known.read())?;
        let mut batch = Batch::new();
        batch.add(&table_key(name), Kind::Delete, Value::EMPTY);
        retire(&mut batch, &entry);
        let seqno = self.write_retirement(&batch, &format!("drop table {name}"))?;
        let mut known = self.known.write();
        known.remove_table(name);
        known.check_owners();
        known
            .retired
            .extend(entry.index_ids().into_iter().map(|id| (id, seqno)));
        self.counters.forget(entry.clustered.id);
        self.generation.fetch_add(1, Ordering::Release);
        drop(known);
        // If a copying ALTER has swapped the table out, the ALTER has closed the table's indexes
        // for foreign key checks. Open them, so that no session waits for them for ever.
        self.referenced.open(entry.clustered.id);
        Ok(())
    }

    /// Renames a table.
    ///
    /// # Errors
    /// Those of [`Self::drop_table`]; `AlreadyExists` if there is a table `to`.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        self.rename_referencing(from, to, &TableRename::default())
    }

    /// Renames a table. Foreign keys that refer to the table get its new name. But if a copying
    /// ALTER swaps the table out, they keep the old name, because the copy gets that name next.
    ///
    /// # Errors
    /// Those of [`Self::rename`]; `ForeignKey` if the table is a copy and does not fit the foreign
    /// keys of the table that it replaces; `LockTimeout` and `Interrupted` while transactions rely
    /// on the indexes of a table that is swapped out.
    pub fn rename_referencing(&self, from: &str, to: &str, rename: &TableRename<'_>) -> Result<()> {
        let swap_out = !is_copy(from) && is_copy(to);
        let closed = match swap_out {
            true => Some(self.close_indexes(from, &rename.session)?),
            false => None,
        };
        let renamed = self.rename_now(from, to, rename, swap_out);
        if renamed.is_err() {
            self.recovery.note_failed(from, to);
        }
        match (&renamed, closed) {
            (Err(_), Some(closed)) => self.referenced.open(closed),
            // While a copying ALTER renames the tables, no further transaction may rely on the old
            // table's indexes for a foreign key. This ban ends now, because a table has the name
            // `to` again: the copy, or the old table if the ALTER has failed.
            (Ok(Some(swapped)), _) => self.referenced.open(*swapped),
            _ => {}
        }
        renamed.map(|_| ())
    }

    /// Renames the table. If a copying ALTER had taken the name `to` from another table, returns
    /// the id of the clustered index of that other table.
    fn rename_now(
        &self,
        from: &str,
        to: &str,
        rename: &TableRename<'_>,
        swap_out: bool,
    ) -> Result<Option<IndexId>> {
        let _one = self.changing.lock();
        let entry = self.get_unless_prepared_changed(from)?;
        if self.known.read().tables.contains_key(to) {
            let message = format!("table {to} exists already");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        let mut renamed = TableEntry {
            name: to.to_owned(),
            original: original_name(&entry, to),
            ..(*entry).clone()
        };
        if is_partition(from) != is_partition(to) {
            // A partition becomes a table, or a table becomes a partition. The stored definition
            // image is wrong from now on, and the server does not pass the new one here, so store
            // none.
            renamed.frm.clear();
            renamed.version.clear();
        }
        let following = match is_copy(to) {
            true => Vec::new(),
            false => {
                let known = self.known.read();
                let mut following = known.follow_rename(&entry, &mut renamed, rename);
                if !self.recovery.runs() {
                    known.check_renamed(&entry, &renamed, rename.session.checks)?;
                }
                following.extend(known.end_of_copying(&entry, to));
                following
            }
        };
        let mut batch = Batch::new();
        batch.add(&table_key(from), Kind::Delete, Value::EMPTY);
        put_entry(&mut batch, &renamed, &[]);
        following
            .iter()
            .for_each(|child| put_entry(&mut batch, child, &[]));
        let description = format!("rename table {from} to {to}");
        match self.recovery.runs() || is_step(from, to) {
            // The statement might find no way back if it stopped here.
            true => self.write_retirement(&batch, &description)?,
            false => self.write(&batch, &description)?,
        };
        let mut known = self.known.write();
        let swapped = known.swapped_out(to).map(|old| old.clustered.id);
        match swap_out {
            true => known.swap_out(from),
            false => {
                known.take_table(from);
                known.forget_references(&entry);
            }
        }
        for table in following {
            known.put_table(Arc::new(table));
        }
        known.put_table(Arc::new(renamed));
        known.check_owners();
        self.generation.fetch_add(1, Ordering::Release);
        Ok(swapped)
    }

    /// Empties a table: it gets new index ids, and the old ones retire.
    ///
    /// # Errors
    /// Those of [`Self::drop_table`]; `Unsupported` if the index ids are used up.
    pub fn truncate(&self, name: &str) -> Result<Arc<TableEntry>> {
        self.truncate_now(name)
    }

    pub(super) fn truncate_now(&self, name: &str) -> Result<Arc<TableEntry>> {
        let _one = self.changing.lock();
        let old = self.get_unless_prepared_changed(name)?;
        let (indexes, clustered) = self.new_indexes(&old.schema)?;
        let entry = TableEntry {
            indexes,
            clustered,
            schema: old.schema.clone().without_older_versions(),
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

    /// Ends a bulk load into the table called `name`, after all its rows are stored. Commits the
    /// table's entry again, and the seqno of this commit becomes the creation seqno of the table's
    /// indexes. Older snapshots cannot use the indexes, so no snapshot sees only a part of the
    /// rows.
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

    /// Retires those indexes of `found` that the catalog has given out, that no table has, and that
    /// are not retired yet. Durable on return. `found` are the indexes of which files or memtables
    /// have entries. To be called before the first transaction.
    ///
    /// # Errors
    /// Those of a commit: `NoSpace`, `Poisoned`, `ShutDown`, `Io`.
    pub fn retire_unknown(&self, found: impl Iterator<Item = IndexId>) -> Result<()> {
        let _one = self.changing.lock();
        // Larger ids belong to callers that use the store without tables.
        let last = self.last_index_id();
        let unknown: BTreeSet<IndexId> = {
            let known = self.known.read();
            let is_known = |id| {
                id == CATALOG_INDEX || known.owner(id).is_some() || known.retired.contains_key(&id)
            };
            let given_out = found.filter(|id| u64::from(*id) <= last);
            given_out.filter(|id| !is_known(*id)).collect()
        };
        if unknown.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        for id in &unknown {
            batch.add(&retired_key(*id), Kind::Put, Value::EMPTY);
        }
        let seqno = self.write_retirement(&batch, "retire indexes that no table has")?;
        self.retire_known(&Vec::from_iter(unknown), seqno);
        Ok(())
    }

    /// Forgets the retired indexes in `gone`. No file and no memtable may hold an entry of them.
    /// The caller must have called [`Self::pinned_retired`] before it looked for entries, and
    /// `gone` must have none of the indexes that this call returned.
    ///
    /// # Errors
    /// Those of a commit: `NoSpace`, `Poisoned`, `ShutDown`, `Io`.
    pub fn forget_retired(&self, gone: &[IndexId]) -> Result<()> {
        if gone.is_empty() {
            return Ok(());
        }
        let _one = self.changing.lock();
        // Another thread may have forgotten some of them.
        let known = self.known.read();
        let left = |id: &&IndexId| known.retired.contains_key(*id);
        let gone: Vec<IndexId> = gone.iter().filter(left).copied().collect();
        drop(known);
        if gone.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        gone.iter()
            .for_each(|id| batch.add(&retired_key(*id), Kind::Delete, Value::EMPTY));
        self.write_retirement(&batch, "forget retired indexes")?;
        let mut known = self.known.write();
        for id in &gone {
            known.retired.remove(id);
        }
        Ok(())
    }

    /// The indexes passed to [`Self::pin_retired`] and not released yet. If an index was retired
    /// before this call and is not in the result, no further entry of it will be committed, and its
    /// committed entries are in a memtable or in a file by now.
    pub fn pinned_retired(&self) -> BTreeSet<IndexId> {
        self.kept.lock().clone()
    }

    /// Call this before retiring indexes of which an open transaction has uncommitted entries. The
    /// indexes are then not [forgotten](Self::forget_retired) before [`Self::unpin_retired`], even
    /// if no file has entries of them: the transaction may still commit its entries, and
    /// compactions drop entries only while their index is known to be retired.
    pub fn pin_retired(&self, ids: &[IndexId]) {
        self.kept.lock().extend(ids);
    }

    /// Ends [`Self::pin_retired`] for these indexes, because the transaction has ended.
    pub fn unpin_retired(&self, ids: &[IndexId]) {
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
        self.counters.cell(INDEX_IDS).read().value
    }

    /// Takes `count` consecutive index ids.
    pub(super) fn take_ids(&self, count: usize) -> Result<Vec<IndexId>> {
        let ids = self.counters.cell(INDEX_IDS);
        let last = ids.take(count as u64);
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

    /// As [`Self::write`], for batches that may use the disk reserve on a full disk. These are
    /// batches that retire or forget indexes, because they lead to free space, and renames inside a
    /// statement with several steps, which the server may need to undo the statement.
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
        let mut known = self.known.write();
        known.put_table(Arc::clone(&entry));
        known.check_owners();
        drop(known);
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
