//! Changes the columns and secondary indexes of a table in place.
//!
//! A change of columns leaves the rows as they are: from the commit on, rows are written with a
//! new schema version, and older ones are decoded by the version that they were written with.
//!
//! New indexes are filled in one pass over the rows, while readers go on and the server keeps
//! writers away: their entries are sorted and written into files of the last level. Rows are
//! decoded by the new definition for this, since new indexes may have new columns. One commit of
//! the catalog then changes the columns, adds the new indexes, drops and renames others, and stores
//! the server's new definition.

use super::autoincrement::last_used;
use super::blob_columns::RowReader;
use super::index_info::IndexInfo;
use super::row_scratch::RowScratch;
use super::statistics::live_rows;
use super::write_options::{WriteFlags, WriteOutcome};
use super::write_rows::index_entry;
use super::{Table, corrupt};
use crate::base::blob_buf::BlobBuf;
use crate::base::key::index_prefix;
use crate::base::key_range::prefix_successor;
use crate::base::{Error, IndexId, Result};
use crate::catalog::{
    Catalog, DdlSession, ForeignKeyRequest, IndexChange, IndexEntry, IndexOrigin, SchemaChange,
    TableSchema,
};
use crate::env::ReadClass;
use crate::ingest::{IndexLoad, LoadFailure, LoadLimits, LoadProgress, Uniqueness};
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{self, ReadPoint, ScanRange, scan_sources};
use crate::rowcode::RowFormat;
use crate::txn::{LockOwner, TransactionContext};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Number of rows between two calls of the progress function.
const PACE: u64 = 1024;

/// A change of one table's columns and secondary indexes, from its beginning to its commit.
///
/// Steps: [`Self::new`]; [`Self::fill`] if there are new indexes; [`Self::commit`] of all tables
/// that change together. The server keeps writers away from the first read of the rows to the
/// commit, and all other sessions during the commit.
///
/// Invariant: if an `IndexBuild` is dropped before its commit, or the server crashes, only garbage
/// entries remain. No table in the catalog has their index ids, so compactions remove them like the
/// entries of a dropped table.
pub struct IndexBuild {
    table: Arc<Table>,
    cx: Arc<TransactionContext>,
    change: SchemaChange,
    /// The new definition, with versions and ids of columns.
    schema: TableSchema,
    /// Ids of the new indexes, in the order of their numbers.
    ids: Vec<IndexId>,
    filled: bool,
    /// The AUTO_INCREMENT counter's new value, which the commit stores; `None` if it does not
    /// change.
    autoincrement: Option<u64>,
    committed: bool,
    foreign_keys: ForeignKeyRequest,
}

impl IndexBuild {
    /// Plans a change of the definition of `table`.
    ///
    /// # Errors
    /// `Unsupported`, with the reason in words, if the change takes a copy of the rows or of the
    /// primary index.
    pub fn new(
        table: Arc<Table>,
        cx: &Arc<TransactionContext>,
        change: SchemaChange,
    ) -> Result<Self> {
        if let Some(trouble) = table.schema.change_trouble(&change) {
            return Err(Error::unsupported(trouble));
        }
        let schema = table.schema.changed_to(&change)?;
        // A foreign key keeps the room of its columns in characters, which the definition lacks. A
        // referenced value must not outgrow the referencing column. The host refuses both when it
        // copies.
        let entry = Arc::clone(&table.current().entry);
        let referencing = table.catalog.referencing(&table.name);
        let own = entry.foreign_keys.iter().flat_map(|key| key.column_names());
        let others = referencing
            .iter()
            .flat_map(|(_, key)| key.parent_column_names());
        let mut of_keys = own.chain(others);
        let grows = |name: &&str| {
            let old = table.schema.column_called(name);
            let old = old.map(|at| table.schema.columns[at].column.kind);
            let new = table.schema.column_in(name, &schema);
            new.is_some_and(|new| old != Some(new.column.kind))
        };
        if let Some(name) = of_keys.find(grows) {
            return Err(Error::unsupported(format_args!(
                "column {name} of a foreign key gets more room"
            )));
        }
        Ok(Self {
            schema,
            table,
            cx: Arc::clone(cx),
            change,
            ids: Vec::new(),
            filled: false,
            autoincrement: None,
            committed: false,
            foreign_keys: ForeignKeyRequest::default(),
        })
    }

    /// Lets the commit make `next` the next AUTO_INCREMENT value, as [`Table::set_autoincrement`]
    /// does.
    pub fn set_autoincrement(&mut self, next: u64, largest: u64) {
        self.autoincrement = Some(last_used(next, largest));
    }

    /// Lets the commit add and drop foreign keys. Checks that the change is allowed.
    ///
    /// # Errors
    /// `ForeignKey`.
    pub fn set_foreign_keys(&mut self, request: ForeignKeyRequest) -> Result<()> {
        self.foreign_keys = request;
        let origins = self.change.indexes.iter().map(|from| match from {
            Some(number) => IndexOrigin::Old(*number),
            None => IndexOrigin::New(IndexId::MAX),
        });
        let change = IndexChange {
            table: &self.table.name,
            columns: self.change.columns.clone(),
            indexes: origins.collect(),
            schema: self.change.schema.clone(),
            autoincrement: None,
            foreign_keys: &self.foreign_keys,
        };
        let checks = self.foreign_keys.checks;
        self.table.catalog.check_index_change(change, checks)
    }

    fn new_numbers(&self) -> Vec<usize> {
        let numbers = self.change.indexes.iter().enumerate();
        numbers
            .filter(|(_, from)| from.is_none())
            .map(|(number, _)| number)
            .collect()
    }

    /// Fills the new indexes. A kill of the session of `owner` ends the work. `progress` is called
    /// now and then. [`WriteOutcome::Duplicate`] means that two rows have the same key in a unique
    /// index; the second one is decoded into `record`, its blobs into `blobs`.
    ///
    /// # Errors
    /// Those of reading and writing files; those of `progress`; `LockTimeout` if a prepared
    /// transaction has changed the table, because its rows would lack entries in the new indexes.
    pub fn fill(
        &mut self,
        owner: &LockOwner,
        progress: LoadProgress<'_>,
        record: &mut [u8],
        blobs: &mut BlobBuf,
    ) -> Result<WriteOutcome> {
        let numbers = self.new_numbers();
        // Refuse the index build now if a prepared transaction has changed the table. The commit of
        // the build checks this again; this check saves the work of a build that would fail there.
        self.table.refuse_prepared_changes(&self.cx)?;
        self.ids = self.table.catalog.reserve_indexes(&self.schema, &numbers)?;
        let indexes = self.new_indexes(&numbers)?;
        let uniqueness = indexes.iter().map(|index| match index.unique {
            true => Uniqueness::Start,
            false => Uniqueness::None,
        });
        let uniqueness: Vec<_> = uniqueness.collect();
        let interrupted = owner.interrupt_flag();
        let limits = LoadLimits {
            interrupted: Arc::clone(&interrupted),
            ..self.cx.loads.limits()
        };
        let mut load = IndexLoad::new(&self.cx.ingest, &uniqueness, limits)?;
        let point = self.cx.super_versions.latest();
        let format = self.schema.row_format()?;
        let filled = self.add_rows(&indexes, &format, &mut load, &point, interrupted, progress);
        match filled.and_then(|()| load.finish(progress)) {
            Ok(files) => {
                if !files.files().is_empty() {
                    self.cx.loads.install(files, Vec::new())?;
                }
                self.filled = true;
                Ok(WriteOutcome::Done { row_id: None })
            }
            Err(LoadFailure::Error(error)) => Err(error),
            Err(LoadFailure::Duplicate(duplicate)) => {
                let clustered = self.table.current().clustered.id();
                let mut row_key = index_prefix(clustered).to_vec();
                row_key.extend_from_slice(&duplicate.user_key[duplicate.unique_len..]);
                let row = read::get(
                    &point.super_version,
                    &row_key,
                    point.seqno,
                    ReadClass::Point,
                    |key, value| (key.kind, value.to_owned()),
                )?;
                let (kind, row) = row.ok_or_else(|| corrupt(&self.table, "a row is gone"))?;
                blobs.clear();
                let mut reader = RowReader::new(&format, ReadClass::Blob, None);
                reader.read(&self.cx.blobs, kind, row.as_value(), record, blobs)?;
                Ok(WriteOutcome::Duplicate {
                    index: numbers[duplicate.sorter],
                })
            }
        }
    }

    fn new_indexes(&self, numbers: &[usize]) -> Result<Vec<IndexInfo>> {
        let codecs = self.schema.index_codecs()?;
        let made = numbers.iter().zip(&self.ids).map(|(&number, &id)| {
            let ids = IndexEntry { id, created: 0 };
            IndexInfo::new(&self.schema.indexes[number], ids, codecs[number].clone())
        });
        Ok(made.collect())
    }

    fn add_rows(
        &self,
        indexes: &[IndexInfo],
        format: &RowFormat,
        load: &mut IndexLoad,
        point: &ReadPoint,
        interrupted: Arc<AtomicBool>,
        progress: LoadProgress<'_>,
    ) -> Result<(), LoadFailure> {
        let table = &self.table;
        let current = table.current();
        let expected = live_rows(
            &current.live_rows,
            &self.cx.super_versions,
            current.clustered.id(),
        )
        .0;
        let mut reader = RowReader::new(format, ReadClass::Load, Some(&self.columns()));
        let store = &self.cx.blobs;
        let mut record = vec![0; self.schema.record_len as usize];
        let mut blobs = BlobBuf::new();
        let mut scratch = RowScratch::default();
        let lower = index_prefix(current.clustered.id()).to_vec();
        let range = ScanRange {
            upper: prefix_successor(&lower),
            lower,
        };
        let merged = MergeIter::new(scan_sources(
            &point.super_version,
            &range,
            ReadClass::Load,
            None,
        ));
        let mut rows = MvccIter::new(merged, ReadAt::snapshot(point.seqno));
        rows.set_bounds(Some(&range.lower), range.upper.as_deref());
        // Check for a kill also while the scan skips tombstones, since `progress` is not called
        // then.
        rows.set_interrupt(Some(Arc::new(move || interrupted.load(Ordering::Relaxed))));
        let mut seen = 0;
        let mut found = rows.first()?;
        while found {
            blobs.clear();
            let (kind, value) = (rows.kind(), rows.value());
            reader
                .read(store, kind, value, &mut record, &mut blobs)
                .map_err(|error| table.of_table(error))?;
            for (sorter, index) in indexes.iter().enumerate() {
                let flags = WriteFlags::default();
                // SAFETY: `reader.read` succeeded, so each blob pointer in `record` points into
                // `blobs`.
                let entry =
                    unsafe { index_entry(index, &record, rows.user_key(), flags, &mut scratch) }?;
                load.add(sorter, entry)?;
            }
            seen += 1;
            if u64::is_multiple_of(seen, PACE) {
                progress(seen, expected.max(seen))?;
            }
            found = rows.next()?;
        }
        Ok(())
    }

    /// The columns from which the entries of the new indexes are made, one bit for each column.
    fn columns(&self) -> Vec<u8> {
        let mut bits = vec![0; self.schema.columns.len().div_ceil(8)];
        let new = self.new_numbers().into_iter();
        let primary = self.schema.primary.map(|number| number as usize);
        for index in new.chain(primary) {
            for part in &self.schema.indexes[index].parts {
                let column = part.column as usize;
                bits[column / 8] |= 1 << (column % 8);
            }
        }
        bits
    }

    /// Commits the changes of several tables in one commit of the catalog. `frm` and `version` are
    /// those of the server's new definition.
    ///
    /// # Errors
    /// Those of a commit of the catalog; `InvalidArgument` if new indexes were not filled.
    pub fn commit(
        changes: &mut [&mut IndexBuild],
        frm: &[u8],
        version: &[u8],
        session: &DdlSession<'_>,
    ) -> Result<()> {
        let Some(catalog) = changes.first().map(|c| Arc::clone(&c.table.catalog)) else {
            return Ok(());
        };
        let planned = changes.iter().map(|change| change.planned());
        let planned = planned.collect::<Result<Vec<_>>>()?;
        catalog.change_indexes(planned, frm, version, session)?;
        changes
            .iter_mut()
            .for_each(|change| change.committed = true);
        Ok(())
    }

    fn planned(&self) -> Result<IndexChange<'_>> {
        let mut ids = self.ids.iter();
        let origins = self.change.indexes.iter().map(|from| match from {
            Some(number) => Ok(IndexOrigin::Old(*number)),
            None => match ids.next() {
                Some(id) if self.filled => Ok(IndexOrigin::New(*id)),
                _ => Err(Error::invalid("a new index was not filled")),
            },
        });
        Ok(IndexChange {
            table: &self.table.name,
            columns: self.change.columns.clone(),
            indexes: origins.collect::<Result<_>>()?,
            schema: self.change.schema.clone(),
            autoincrement: self.autoincrement,
            foreign_keys: &self.foreign_keys,
        })
    }

    fn catalog(&self) -> &Catalog {
        &self.table.catalog
    }
}

impl Drop for IndexBuild {
    fn drop(&mut self) {
        if !self.committed {
            self.catalog().give_up_indexes(&self.ids);
        }
    }
}
