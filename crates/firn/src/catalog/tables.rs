//! The tables of a database and their changes, each one atomic batch, durable on return.
//!
//! Keys under the catalog's index: `1` + name → table entry; `2` + index id (big-endian) → nothing:
//! the index was dropped, its entries are garbage until the last file that holds any is gone; `3` and `4`
//! are what `objects.rs` keeps for the server.

use super::CATALOG_INDEX;
use super::counters::{Counters, INDEX_IDS};
use super::entry::{IndexEntry, TableEntry};
use super::objects::{Image, OBJECT, ObjectKind, PARTITIONING};
use super::schema::TableSchema;
use super::shapes::Owners;
use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::range::prefix_successor;
use crate::base::{CounterValue, Error, ErrorKind, IndexId, Kind, Result, Seqno, Value};
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::keycode::KeyEnds;
use crate::read::{ReadPoint, ScanRange, scan_sources};
use crate::txn::PreparedTransactions;
use crate::write::{Batch, Pipeline, What};
use parking_lot::{Mutex, RwLock};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const TABLE: u8 = 1;
const RETIRED: u8 = 2;

/// What a new table is made of.
pub struct Definition<'a> {
    /// Columns and indexes.
    pub schema: TableSchema,
    /// The server's table definition image.
    pub frm: &'a [u8],
    /// The server's version of the definition.
    pub version: &'a [u8],
    /// Creation time, microseconds since 1970.
    pub created_micros: u64,
}

/// What the catalog says at one point.
#[derive(Debug, Clone, Default)]
pub struct Known {
    /// By name.
    pub tables: BTreeMap<String, Arc<TableEntry>>,
    /// Dropped indexes that files may still hold entries of, with the seqnos of their end.
    pub retired: BTreeMap<IndexId, Seqno>,
    /// Objects of the server, by kind and name.
    pub objects: BTreeMap<(ObjectKind, String), Image>,
    /// The server's `.par` images, by table.
    pub partitionings: BTreeMap<String, Image>,
}

impl Known {
    /// Reads it.
    ///
    /// # Errors
    /// Corruption of an entry or of the files that hold it; `Unsupported` for newer formats.
    pub fn read(point: &ReadPoint) -> Result<Self> {
        let lower = index_prefix(CATALOG_INDEX).to_vec();
        let range = ScanRange {
            upper: prefix_successor(&lower),
            lower,
        };
        let merged = MergeIter::new(scan_sources(&point.view, &range, None));
        let mut entries = MvccIter::new(merged, ReadAt::snapshot(point.seqno));
        let mut known = Self::default();
        let mut found = entries.seek_ge(&range.lower)?;
        while found && entries.user_key().starts_with(&range.lower) {
            let key = &entries.user_key()[INDEX_ID_LEN..];
            known.add(key, entries.seqno(), entries.value().head)?;
            found = entries.next()?;
        }
        Ok(known)
    }

    /// Adds the entry with `key`, without the index id.
    ///
    /// # Errors
    /// `Corruption` of the entry, `Unsupported` for newer formats.
    pub fn add(&mut self, key: &[u8], seqno: Seqno, value: &[u8]) -> Result<()> {
        let damaged = |what: &str| Error::corruption("", 0, what);
        let (tag, rest) = key
            .split_first()
            .ok_or_else(|| damaged("catalog key without a tag"))?;
        match *tag {
            TABLE => {
                let name =
                    std::str::from_utf8(rest).map_err(|_| damaged("table name is not UTF-8"))?;
                let entry = TableEntry::decode(name, seqno, value)?;
                self.tables.insert(name.to_owned(), Arc::new(entry));
            }
            RETIRED => {
                let id = rest
                    .try_into()
                    .map_err(|_| damaged("retired index id is damaged"))?;
                self.retired.insert(IndexId::from_be_bytes(id), seqno);
            }
            OBJECT => self.add_object(rest, value)?,
            PARTITIONING => self.add_partitioning(rest, value)?,
            other => return Err(Error::unsupported(format!("catalog entry kind {other}"))),
        }
        Ok(())
    }

    /// The largest index id that was ever given out, as far as the catalog shows it.
    fn largest_index(&self) -> IndexId {
        let live = self.tables.values().flat_map(|entry| entry.index_ids());
        live.chain(self.retired.keys().copied()).max().unwrap_or(0)
    }
}

/// The catalog of a database.
pub struct Catalog {
    pipeline: Arc<Pipeline>,
    prepared: Arc<PreparedTransactions>,
    counters: Arc<Counters>,
    known: RwLock<Known>,
    /// Grows with every change.
    generation: AtomicU64,
    /// One change at a time; the server's own locks keep users of a table away from its changes.
    changing: Mutex<()>,
    /// For [`crate::base::shape::KeyShapes`].
    owners: Mutex<Owners>,
    /// Indexes that are being filled, and what their keys look like.
    filling: Mutex<BTreeMap<IndexId, KeyEnds>>,
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

fn no_table(name: &str) -> Error {
    Error::new(ErrorKind::NotFound, format!("table {name} does not exist"))
}

impl Catalog {
    /// Reads the catalog at `point`.
    ///
    /// # Errors
    /// As [`Known::read`].
    pub fn load(
        pipeline: Arc<Pipeline>,
        prepared: Arc<PreparedTransactions>,
        counters: Arc<Counters>,
        point: &ReadPoint,
    ) -> Result<Self> {
        let known = Known::read(point)?;
        counters.raise(INDEX_IDS, known.largest_index().into());
        Ok(Self {
            pipeline,
            prepared,
            counters,
            known: RwLock::new(known),
            generation: AtomicU64::new(0),
            changing: Mutex::new(()),
            owners: Mutex::default(),
            filling: Mutex::default(),
        })
    }

    /// The table called `name`.
    pub fn get(&self, name: &str) -> Result<Arc<TableEntry>> {
        self.known
            .read()
            .tables
            .get(name)
            .cloned()
            .ok_or_else(|| no_table(name))
    }

    /// Tables whose names start with `prefix`, in order.
    pub fn list(&self, prefix: &str) -> Vec<Arc<TableEntry>> {
        let known = self.known.read();
        let from = known.tables.range(prefix.to_owned()..);
        from.take_while(|(name, _)| name.starts_with(prefix))
            .map(|(_, t)| Arc::clone(t))
            .collect()
    }

    /// All that it says now.
    pub fn known(&self) -> Known {
        self.known.read().clone()
    }

    /// Dropped indexes that files may still hold entries of, with the seqnos of their end.
    pub fn retired(&self) -> BTreeMap<IndexId, Seqno> {
        self.known.read().retired.clone()
    }

    /// Grows with every change; what was read at an older generation may be out of date.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Raises `counter` to `value` at least; durable on return.
    pub fn persist_counter(&self, counter: u64, value: u64) -> Result<()> {
        let _one = self.changing.lock();
        let raised = self.counters.raise(counter, value);
        self.log_counters(&[(counter, raised)])
    }

    /// Sets `counter` to `value`, which may be less than it is; durable on return. Nobody raises it meanwhile.
    ///
    /// # Errors
    /// Those of a commit: then the counter is as it was.
    pub fn set_counter(&self, counter: u64, value: u64) -> Result<()> {
        let _one = self.changing.lock();
        let cell = self.counters.cell(counter);
        let before = cell.read();
        // In memory first, so that a flush that lets go of the log record has the value in its edit.
        let set = cell.set(value);
        let logged = self.log_counters(&[(counter, set)]);
        if logged.is_err() {
            // A flush may have persisted what was set: it must not outdo what follows.
            cell.set(before.value);
        }
        logged
    }

    fn log_counters(&self, counters: &[(u64, CounterValue)]) -> Result<()> {
        self.pipeline.commit(What::Batch, &Batch::new(), counters)?;
        self.pipeline.sync_all()
    }

    /// Persists the values of all counters; durable on return, with everything committed before.
    pub fn persist_counters(&self) -> Result<()> {
        let _one = self.changing.lock();
        self.log_counters(&self.counters.snapshot())
    }

    /// The table called `name`, which no prepared transaction has changed: for a change that would leave the
    /// transaction's rows behind, or in a table of another name.
    pub(super) fn get_settled(&self, name: &str) -> Result<Arc<TableEntry>> {
        let entry = self.get(name)?;
        self.refuse_unsettled(&entry)?;
        Ok(entry)
    }

    /// Refuses a table that a prepared transaction has changed.
    pub(super) fn refuse_unsettled(&self, entry: &TableEntry) -> Result<()> {
        self.prepared.refuse_if_changed(&entry.index_ids())
    }

    pub(super) fn entries(&self) -> &RwLock<Known> {
        &self.known
    }

    pub(super) fn changing(&self) -> &Mutex<()> {
        &self.changing
    }

    pub(super) fn filling(&self) -> &Mutex<BTreeMap<IndexId, KeyEnds>> {
        &self.filling
    }

    /// What readers of the catalog see as retired from `seqno` on.
    pub(super) fn retire_known(&self, ids: &[IndexId], seqno: Seqno) {
        let retired = ids.iter().map(|id| (*id, seqno));
        self.known.write().retired.extend(retired);
    }

    pub(super) fn owners(&self) -> &Mutex<Owners> {
        &self.owners
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Creates a table.
    pub fn create(&self, name: &str, definition: Definition<'_>) -> Result<Arc<TableEntry>> {
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
        let seqno = self.write(&batch, &format!("create table {name}"))?;
        Ok(self.install(entry, &new, seqno))
    }

    /// Drops a table: its entry goes, its index ids retire.
    ///
    /// # Errors
    /// `NotFound`; `LockTimeout` if a prepared transaction has changed the table; those of a commit.
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
        self.counters.forget_rows(entry.clustered.id);
        self.generation.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Renames a table.
    ///
    /// # Errors
    /// As of [`Self::drop_table`]; `AlreadyExists`.
    pub fn rename(&self, from: &str, to: &str) -> Result<()> {
        let _one = self.changing.lock();
        let entry = self.get_settled(from)?;
        if self.known.read().tables.contains_key(to) {
            let message = format!("table {to} exists already");
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        let renamed = TableEntry {
            name: to.to_owned(),
            ..(*entry).clone()
        };
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

    /// Empties a table: new index ids, the old ones retire.
    ///
    /// # Errors
    /// As of [`Self::drop_table`].
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
        self.counters.forget_rows(old.clustered.id);
        Ok(self.install(entry, &new, seqno))
    }

    /// Ends a bulk load, which committed its rows in pieces: only snapshots from now on see the
    /// table, so nobody sees a part of it.
    pub fn publish_loaded(&self, name: &str) -> Result<Arc<TableEntry>> {
        let _one = self.changing.lock();
        let entry = (*self.get(name)?).clone();
        let new = entry.index_ids();
        let mut batch = Batch::new();
        put_entry(&mut batch, &entry, &new);
        let seqno = self.write(&batch, &format!("load table {name}"))?;
        Ok(self.install(entry, &new, seqno))
    }

    /// Forgets retired indexes of which no file and no memtable holds an entry any more.
    pub fn forget_retired(&self, gone: &[IndexId]) -> Result<()> {
        let _one = self.changing.lock();
        if gone.is_empty() {
            return Ok(());
        }
        let mut batch = Batch::new();
        gone.iter()
            .for_each(|id| batch.add(&retired_key(*id), Kind::Delete, Value::EMPTY));
        self.write_retirement(&batch, "forget retired indexes")?;
        let mut known = self.known.write();
        known.retired.retain(|id, _| !gone.contains(id));
        Ok(())
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

    /// Takes so many index ids, one after the other.
    pub(super) fn take_ids(&self, count: usize) -> Result<Vec<IndexId>> {
        let ids = self.counters.cell(INDEX_IDS);
        let last = ids.value().fetch_add(count as u64, Ordering::Relaxed) + count as u64;
        let last =
            IndexId::try_from(last).map_err(|_| Error::unsupported("index ids are used up"))?;
        Ok((last + 1 - count as u32..=last).collect())
    }

    pub(super) fn write(&self, batch: &Batch, description: &str) -> Result<Seqno> {
        self.write_change(What::SchemaChange(description.as_bytes()), batch)
    }

    /// As [`Self::write`], of what retires indexes, or forgets them: a full disk does not keep it from that.
    pub(super) fn write_retirement(&self, batch: &Batch, description: &str) -> Result<Seqno> {
        self.write_change(What::Retirement(description.as_bytes()), batch)
    }

    fn write_change(&self, what: What<'_>, batch: &Batch) -> Result<Seqno> {
        let ids = self.counters.cell(INDEX_IDS).read();
        let committed = self.pipeline.commit(what, batch, &[(INDEX_IDS, ids)])?;
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
