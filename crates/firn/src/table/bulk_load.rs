//! Loads a table that no other session sees: the target of a copying ALTER or of CREATE … SELECT.
//!
//! The rows become entries of all indexes. An [`IndexLoad`] sorts these and writes them into files
//! of the last level, and one edit installs all files. Then the table is published, so that only
//! later snapshots see its rows. Where single rows may be refused (ALTER IGNORE), each row is
//! looked up before it is written ([`super::bulk_load_by_row`]).

use super::blob_columns::RowReader;
use super::bulk_load_by_row::RowLoad;
use super::row_scratch::RowScratch;
use super::write_options::{WriteFlags, WriteOutcome};
use super::write_rows::index_entry;
use super::{Table, TableIds, corrupt};
use crate::base::blob_buf::BlobBuf;
use crate::base::key::index_prefix;
use crate::base::{Error, Result};
use crate::blob::TransactionBlobs;
use crate::catalog::{autoincrement_counter, hidden_row_counter};
use crate::env::ReadClass;
use crate::ingest::{Duplicate, IndexLoad, LoadEntry, LoadFailure, LoadProgress, Uniqueness};
use crate::txn::{LockOwner, TransactionContext};
use arc_swap::Guard;
use std::sync::Arc;

/// Number of loads of one session that get threads of their own. Further loads (of a table with
/// many partitions) work in the session's thread.
const THREADS_MAX: usize = 8;

/// A bulk load of one table that has begun.
pub struct BulkLoad {
    table: Arc<Table>,
    way: LoadMethod,
}

enum LoadMethod {
    /// Rows are sorted and written into files.
    Sorted(Box<SortedLoad>),
    /// Rows are written one by one, through the memtable.
    Rows(Box<RowLoad>),
}

struct SortedLoad {
    cx: Arc<TransactionContext>,
    current: Arc<TableIds>,
    /// For each sorter, the number of the index whose entries it sorts; `None` for the rows.
    indexes: Vec<Option<usize>>,
    load: Option<IndexLoad>,
    /// The memory that this load would have alone, bytes.
    memory: u64,
    /// The largest hidden row id of a loaded row; 0 if there is none.
    row_id: u64,
    /// The largest AUTO_INCREMENT value of a loaded row; 0 if there is none.
    autoincrement: u64,
    rows: u64,
    row_key: Vec<u8>,
    duplicate: Option<Box<Duplicate>>,
    /// The values that this load has written to blob files.
    blobs: TransactionBlobs,
}

impl BulkLoad {
    /// Begins to load `table` in a session in which `others` more loads are open. With
    /// `one_by_one`, each row is accepted or refused at once; without it, a duplicate may be
    /// reported only at the end of the load.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn new(
        table: Arc<Table>,
        cx: &Arc<TransactionContext>,
        owner: Arc<LockOwner>,
        one_by_one: bool,
        others: usize,
    ) -> Result<Self> {
        let way = match one_by_one {
            true => LoadMethod::Rows(Box::new(RowLoad::new(Arc::clone(&table), cx, owner))),
            false => LoadMethod::Sorted(Box::new(SortedLoad::new(&table, cx, &owner, others)?)),
        };
        Ok(Self { table, way })
    }

    /// The table being loaded.
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// Adapts the memory limit to the number of loads in the session, which share the memory.
    pub fn share_memory(&mut self, loads: usize) {
        if let LoadMethod::Sorted(load) = &mut self.way {
            load.share_memory(loads);
        }
    }

    /// Inserts a row. [`WriteOutcome::Duplicate`] means that this row, or one before it, has the
    /// same key as another row. The load is over then, and [`Self::duplicate_row`] returns one of
    /// these two rows.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    ///
    /// # Errors
    /// Those of [`Table::insert`], and errors of writing files since the previous call.
    pub unsafe fn insert(
        &mut self,
        record: &[u8],
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<WriteOutcome> {
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe {
            match &mut self.way {
                LoadMethod::Sorted(load) => load.insert(&self.table, record, flags, scratch),
                LoadMethod::Rows(load) => load.insert(record, flags, scratch),
            }
        }
    }

    /// Remembers a used auto-increment value.
    pub fn use_autoincrement(&mut self, value: u64) {
        match &mut self.way {
            LoadMethod::Sorted(load) => {
                load.autoincrement = load.autoincrement.max(value);
                load.current.autoincrement.raise(value);
            }
            LoadMethod::Rows(load) => load.use_autoincrement(value),
        }
    }

    /// Ends the load. On return, all rows are durable and visible to new snapshots. `progress` is
    /// called now and then. [`WriteOutcome::Duplicate`] means the same as for [`Self::insert`].
    ///
    /// # Errors
    /// Those of writing files, those of a commit, and those of `progress`. No row of the load
    /// becomes visible then.
    pub fn finish(&mut self, progress: LoadProgress<'_>) -> Result<WriteOutcome> {
        match &mut self.way {
            LoadMethod::Sorted(load) => {
                let written = load.finish(&self.table, progress)?;
                if matches!(written, WriteOutcome::Duplicate { .. }) {
                    return Ok(written);
                }
            }
            LoadMethod::Rows(load) => load.finish()?,
        }
        self.table.catalog.publish_loaded(&self.table.name)?;
        Ok(WriteOutcome::Done { row_id: None })
    }

    /// Of the two rows whose equal keys ended the load, decodes the second one into `record`, and
    /// its blobs into `blobs`.
    ///
    /// # Errors
    /// `InvalidArgument` if no duplicate ended the load; those of reading blobs.
    pub fn duplicate_row(&self, record: &mut [u8], blobs: &mut BlobBuf) -> Result<()> {
        match &self.way {
            LoadMethod::Sorted(load) => load.duplicate_row(&self.table, record, blobs),
            LoadMethod::Rows(_) => Err(Error::invalid("the row is the caller's")),
        }
    }
}

impl SortedLoad {
    fn new(
        table: &Table,
        cx: &Arc<TransactionContext>,
        owner: &LockOwner,
        others: usize,
    ) -> Result<Self> {
        let current = Guard::into_inner(table.current());
        let mut limits = cx.loads.limits();
        let memory = limits.memory;
        limits.share(others as u64 + 1);
        limits.threads &= others < THREADS_MAX;
        limits.interrupted = owner.interrupt_flag();
        let mut indexes = vec![None];
        let mut sorters = vec![Uniqueness::Key];
        for (number, index) in Table::secondaries(&current) {
            indexes.push(Some(number));
            sorters.push(match index.unique {
                true => Uniqueness::Start,
                false => Uniqueness::None,
            });
        }
        Ok(Self {
            load: Some(IndexLoad::new(&cx.ingest, &sorters, limits)?),
            memory,
            cx: Arc::clone(cx),
            current,
            indexes,
            row_id: 0,
            autoincrement: 0,
            rows: 0,
            row_key: Vec::new(),
            duplicate: None,
            blobs: TransactionBlobs::new(),
        })
    }

    fn share_memory(&mut self, loads: usize) {
        if let Some(load) = &mut self.load {
            load.set_memory(self.memory / loads.max(1) as u64);
        }
    }

    unsafe fn insert(
        &mut self,
        table: &Table,
        record: &[u8],
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<WriteOutcome> {
        table.check_record(record)?;
        let row_id = table.next_row_id(&self.current);
        self.row_id = self.row_id.max(row_id.unwrap_or(0));
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        match unsafe { self.add(table, record, row_id, flags, scratch) } {
            Ok(()) => {
                self.rows += 1;
                Ok(WriteOutcome::Done { row_id })
            }
            Err(failure) => self.failed(table, failure),
        }
    }

    unsafe fn add(
        &mut self,
        table: &Table,
        record: &[u8],
        row_id: Option<u64>,
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<(), LoadFailure> {
        let load = self.load.as_mut();
        let load = load.ok_or_else(|| Error::invalid("the load is over"))?;
        let current = &self.current;
        let row_key = &mut self.row_key;
        row_key.clear();
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe { current.clustered.row_key(record, row_id, row_key) }?;
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        let row = unsafe { table.encode_row(&self.cx, &mut self.blobs, record, scratch) };
        let (kind, value) = row?;
        let entry = LoadEntry {
            user_key: row_key,
            unique_len: row_key.len(),
            kind,
            value,
        };
        load.add(0, entry)?;
        for (sorter, (_, index)) in (1..).zip(Table::secondaries(current)) {
            // SAFETY: the caller promises that blob columns of `record` point to their bytes, and
            // the callee needs no more.
            let entry = unsafe { index_entry(index, record, row_key, flags, scratch) }?;
            load.add(sorter, entry)?;
        }
        Ok(())
    }

    /// Ends a load that failed. Dropping the `IndexLoad` removes its files.
    fn failed(&mut self, table: &Table, failure: LoadFailure) -> Result<WriteOutcome> {
        self.load = None;
        match failure {
            LoadFailure::Error(error) => Err(error),
            LoadFailure::Duplicate(duplicate) => {
                let index = self.indexes[duplicate.sorter].or(table.primary_number());
                self.duplicate = Some(duplicate);
                let index = index.ok_or_else(|| corrupt(table, "a hidden row id came twice"))?;
                Ok(WriteOutcome::Duplicate { index })
            }
        }
    }

    fn finish(&mut self, table: &Table, progress: LoadProgress<'_>) -> Result<WriteOutcome> {
        let load = self.load.take();
        let load = load.ok_or_else(|| Error::invalid("the load is over"))?;
        let files = match load.finish(progress) {
            Ok(files) => files,
            Err(failure) => return self.failed(table, failure),
        };
        let id = self.current.entry.clustered.id;
        let counters = [
            (hidden_row_counter(id), self.row_id),
            (autoincrement_counter(id), self.autoincrement),
        ];
        let counters = counters.into_iter().filter(|(_, value)| *value > 0);
        let all = table.catalog.counters();
        let counters = counters.map(|(counter, value)| (counter, all.raise(counter, value)));
        let counters: Vec<_> = counters.collect();
        if !files.files().is_empty() {
            // Sync the blob files before an entry names them. `self.blobs` keeps them from being
            // removed until a super version has the entries.
            self.blobs.sync()?;
            self.cx.loads.install(files, counters)?;
        }
        self.current
            .live_rows
            .count(i64::try_from(self.rows).unwrap_or(i64::MAX));
        Ok(WriteOutcome::Done { row_id: None })
    }

    fn duplicate_row(&self, table: &Table, record: &mut [u8], blobs: &mut BlobBuf) -> Result<()> {
        let duplicate = self.duplicate.as_ref();
        let duplicate = duplicate.ok_or_else(|| Error::invalid("there was no duplicate"))?;
        let mut reader = RowReader::new(table.format(), ReadClass::Blob, None);
        let store = &self.cx.blobs;
        blobs.clear();
        if duplicate.sorter == 0 {
            let value = duplicate.value.as_value();
            return reader.read(store, duplicate.kind, value, record, blobs);
        }
        let mut row_key = index_prefix(self.current.clustered.id()).to_vec();
        row_key.extend_from_slice(&duplicate.user_key[duplicate.unique_len..]);
        match duplicate.in_first(&row_key)? {
            Some((kind, row)) => reader.read(store, kind, row.as_value(), record, blobs),
            None => Err(corrupt(table, "the row of a duplicate is missing")),
        }
    }
}
