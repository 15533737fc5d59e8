//! Rows and cursors: the operations of statements on one table.
//!
//! A [`Table`] is an open table, a [`Cursor`] a scan or lookup of one session in one index. Writes
//! go through [`Table::insert`], `update` and `delete`, which maintain all indexes; reads go from
//! an index entry to its row (`row_fetch`). The layer above passes rows in the server's record
//! buffer; the layers below take encoded keys and values.

mod autoincrement;
mod blob_columns;
mod bulk_load;
mod bulk_load_by_row;
mod check_table;
mod cursor;
mod entry_filter;
mod foreign_keys;
mod gap_bounds;
mod index_build;
mod index_info;
mod index_scan;
mod read_mode;
mod repair_indexes;
mod row_fetch;
mod row_lock;
mod row_prefetch;
mod row_scratch;
mod rows_per_key;
mod statistics;
mod write_options;
mod write_rows;

pub use blob_columns::PartialColumn;
pub use bulk_load::BulkLoad;
pub use check_table::{CheckReport, check_stored};
pub use cursor::{Cursor, KeyImage, SeekMode};
pub use entry_filter::{Condition, Verdict};
pub use foreign_keys::check_foreign_keys;
pub use index_build::IndexBuild;
pub use read_mode::{LockWait, ReadMode};
pub use repair_indexes::{IndexFix, IndexRepair, repair_indexes};
pub use row_scratch::RowScratch;
pub use statistics::{
    IndexSums, RangeEnd, TableSize, TableStatistics, estimated_rows, live_rows, out_of_line_bytes,
};
pub use write_options::{WriteFlags, WriteOutcome};

use crate::base::row_count::RowCount;
use crate::base::{Error, ErrorKind, IndexId, Result};
use crate::catalog::{
    Catalog, Counter, Counters, Difference, TableEntry, TableLocking, TableSchema,
    autoincrement_counter, hidden_row_counter,
};
use crate::rowcode::{ColumnKind, NullBit, RowFormat};
use crate::txn::Transaction;
use arc_swap::{ArcSwap, Guard};
use foreign_keys::ForeignKeys;
use index_info::IndexInfo;
use std::fmt::Display;
use std::sync::Arc;

/// The ids, indexes and counters of an open table. TRUNCATE and the end of a load replace them.
pub(crate) struct TableIds {
    /// Generation of the catalog when these index ids were read from it. If the catalog has another
    /// generation now, the table may have other index ids.
    generation: u64,
    entry: Arc<TableEntry>,
    pub(crate) clustered: Arc<IndexInfo>,
    pub(crate) indexes: Vec<Arc<IndexInfo>>,
    autoincrement: Arc<Counter>,
    hidden_rows: Arc<Counter>,
    live_rows: Arc<RowCount>,
    /// Whether the table is optimistic according to its stored definition.
    optimistic: bool,
    /// `None` if no foreign key concerns the table.
    foreign_keys: Option<Arc<ForeignKeys>>,
}

/// The bytes that the record buffer must have in a column while it is NULL: those of the column in
/// the server's row of defaults. Only columns in which they are not all zeros have a `NullImage`.
/// The server compares records byte by byte to find out whether an update changes anything.
struct NullImage {
    null: NullBit,
    offset: usize,
    bytes: Box<[u8]>,
}

fn null_images(schema: &TableSchema, defaults: &[u8]) -> Vec<NullImage> {
    let images = schema.columns.iter().filter_map(|column| {
        let column = &column.column;
        let offset = column.offset as usize;
        let bytes = defaults.get(offset..offset + column.kind.record_len() as usize)?;
        let plain = matches!(
            column.kind,
            ColumnKind::Fixed { .. } | ColumnKind::Char { .. }
        );
        let wanted = plain && column.stored && bytes.iter().any(|&byte| byte != 0);
        let null = column.null.filter(|_| wanted)?;
        Some(NullImage {
            null,
            offset,
            bytes: bytes.into(),
        })
    });
    images.collect()
}

/// An open table, shared by all sessions.
///
/// It follows the catalog: when TRUNCATE or the end of a load gives the table new ids, the next
/// statement uses them.
pub struct Table {
    catalog: Arc<Catalog>,
    name: String,
    /// The definition as the server gave it at open, with its collations, and with the versions and
    /// ids of columns that the catalog has.
    schema: TableSchema,
    format: RowFormat,
    null_images: Vec<NullImage>,
    /// Numbers of the columns whose values may be stored in blob files.
    candidates: Vec<usize>,
    /// A harmless difference between the server's definition and the stored one, in words.
    warning: Option<String>,
    current: ArcSwap<TableIds>,
}

impl Table {
    /// Opens the table called `name`, which the server defines as `schema`. `defaults` is the
    /// record of a row of defaults, or empty. The definition may differ from the stored one if rows
    /// and keys have the same bytes in both; [`Self::warning`] then has the difference.
    ///
    /// # Errors
    /// `NotFound`; `DefinitionDiffers` if rows or keys are stored by another definition.
    pub fn open(
        catalog: &Arc<Catalog>,
        name: &str,
        schema: TableSchema,
        defaults: &[u8],
    ) -> Result<Arc<Self>> {
        let generation = catalog.generation();
        let entry = catalog.get(name)?;
        let warning = match entry.schema.difference(&schema) {
            None => None,
            Some(Difference::Harmless(difference)) => Some(difference),
            Some(Difference::Stored(difference)) => {
                let message = format!(
                    "table {name}: the server's definition is not the one that the rows are stored by: {difference}. \
                     Its .frm file is another table's or an older one: put the right one back, which a backup has \
                     and `firn definition` writes"
                );
                return Err(Error::new(ErrorKind::DefinitionDiffers, message));
            }
        };
        Self::over(
            catalog,
            name,
            schema,
            defaults,
            (entry, generation),
            warning,
        )
    }

    /// The table called `name` by its stored definition. The host need not have it open.
    ///
    /// # Errors
    /// `NotFound`; `Unsupported` if the host does not know a collation of the table.
    pub(crate) fn open_stored(catalog: &Arc<Catalog>, name: &str) -> Result<Arc<Self>> {
        catalog.opened(name, || {
            let generation = catalog.generation();
            let entry = catalog.get(name)?;
            let schema = catalog.with_collations(&entry.schema)?;
            Self::over(catalog, name, schema, &[], (entry, generation), None)
        })
    }

    fn over(
        catalog: &Arc<Catalog>,
        name: &str,
        schema: TableSchema,
        defaults: &[u8],
        (entry, generation): (Arc<TableEntry>, u64),
        warning: Option<String>,
    ) -> Result<Arc<Self>> {
        let schema = schema.with_versions_of(&entry.schema);
        let format = schema.row_format()?;
        let foreign_keys = ForeignKeys::resolve(catalog, &entry)?;
        let current = TableIds::new(catalog.counters(), &schema, entry, generation)?;
        let current = TableIds {
            foreign_keys,
            ..current
        };
        Ok(Arc::new(Self {
            catalog: Arc::clone(catalog),
            name: name.to_owned(),
            null_images: null_images(&schema, defaults),
            candidates: blob_columns::candidates(&schema),
            warning,
            schema,
            format,
            current: ArcSwap::from_pointee(current),
        }))
    }

    /// `database/table`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How the server's definition differs from the stored one, in words. Rows and keys have the
    /// same bytes by both definitions.
    pub fn warning(&self) -> Option<&str> {
        self.warning.as_deref()
    }

    /// The definition that the server gave when it opened the table, with the versions and ids of
    /// columns that the catalog has.
    pub fn schema(&self) -> &TableSchema {
        &self.schema
    }

    /// The table's entry in the catalog.
    pub fn entry(&self) -> Arc<TableEntry> {
        Arc::clone(&self.current().entry)
    }

    /// Bytes of a record buffer.
    pub fn record_len(&self) -> usize {
        self.schema.record_len as usize
    }

    /// Number of columns, stored or not.
    pub fn column_count(&self) -> usize {
        self.schema.columns.len()
    }

    /// Whether the table has no primary key. A hidden row id is then the key of its clustered
    /// index.
    pub fn has_hidden_key(&self) -> bool {
        self.schema.primary.is_none()
    }

    /// Whether the table is optimistic: the stored definition decides, not the server's.
    pub fn is_optimistic(&self) -> bool {
        let current = self.current.load();
        match current.generation == self.catalog.generation() {
            true => current.optimistic,
            false => self.current().optimistic,
        }
    }

    /// The mode in which a cursor of `txn` reads this table when the host asks for `mode`. In an
    /// optimistic table, a locking read becomes a read that the commit validates.
    pub fn read_mode(&self, txn: &Transaction, mode: ReadMode) -> ReadMode {
        match mode {
            ReadMode::Locking(lock) if self.validates(txn) => ReadMode::Validated(lock),
            mode => mode,
        }
    }

    /// Tells `txn` that the statement which begins will change or lock rows of this table. For an
    /// optimistic table `txn` then prepares to validate them.
    pub fn expect_changes(&self, txn: &mut Transaction) {
        if self.validates(txn) {
            txn.expect_validation();
        }
    }

    /// Whether `txn` locks nothing in this table, because its commit validates what it has read and
    /// written there.
    fn validates(&self, txn: &Transaction) -> bool {
        self.is_optimistic() && !txn.locks_optimistic_tables()
    }

    fn format(&self) -> &RowFormat {
        &self.format
    }

    fn primary_number(&self) -> Option<usize> {
        self.schema.primary.map(|number| number as usize)
    }

    /// Columns of the primary key; none if it is hidden.
    fn primary_columns(&self) -> impl Iterator<Item = u32> {
        let primary = self
            .schema
            .primary
            .map(|number| &self.schema.indexes[number as usize]);
        primary
            .into_iter()
            .flat_map(|index| index.parts.iter().map(|part| part.column))
    }

    /// Writes the bytes that the server expects in NULL columns, because the server compares
    /// records byte by byte.
    fn fill_nulls(&self, record: &mut [u8]) {
        for image in &self.null_images {
            if image.null.is_set(record) {
                record[image.offset..image.offset + image.bytes.len()]
                    .copy_from_slice(&image.bytes);
            }
        }
    }

    /// Replaces `known` by the current ids if the catalog has changed since `known` was read. If it
    /// has not, this changes no reference count: the count of the current ids is in a cache line
    /// that all sessions share and would contend for.
    pub(crate) fn refresh(&self, known: &mut Arc<TableIds>) {
        if known.generation != self.catalog.generation() {
            *known = Guard::into_inner(self.current());
        }
    }

    /// The current ids, read anew if the catalog has changed since they were read. Like
    /// [`Self::refresh`], the guard changes no reference count that sessions share.
    pub(crate) fn current(&self) -> Guard<Arc<TableIds>> {
        let current = self.current.load();
        let generation = self.catalog.generation();
        match current.generation == generation {
            true => current,
            false => Guard::from_inner(self.read_anew(&current, generation)),
        }
    }

    #[cold]
    fn read_anew(&self, current: &Arc<TableIds>, generation: u64) -> Arc<TableIds> {
        let entry = match self.catalog.get(&self.name) {
            Ok(entry) => entry,
            // The table was renamed or dropped while it is open: keep the old ids, because the
            // server is about to close it.
            Err(_) => Arc::clone(&current.entry),
        };
        // An ALTER has changed columns or indexes: keep the old ids, which fit the definition that
        // this `Table` was opened with. The server opens a new `Table` for the new definition.
        let changed = entry.schema.version != self.schema.version
            || matches!(
                entry.schema.difference(&self.schema),
                Some(Difference::Stored(_))
            );
        let entry = match changed {
            true => Arc::clone(&current.entry),
            false => entry,
        };
        let foreign_keys = ForeignKeys::resolve(&self.catalog, &entry)
            .unwrap_or_else(|error| Some(ForeignKeys::unresolved(error)));
        match TableIds::new(self.catalog.counters(), &self.schema, entry, generation) {
            Ok(next) => {
                let next = Arc::new(TableIds {
                    foreign_keys,
                    ..next
                });
                self.current.store(Arc::clone(&next));
                next
            }
            Err(_) => Arc::clone(current),
        }
    }

    /// The ids of all indexes that the table has now.
    pub fn index_ids(&self) -> Vec<IndexId> {
        let current = self.current();
        let secondaries = Self::secondaries(&current).map(|(_, index)| index.id());
        std::iter::once(current.clustered.id())
            .chain(secondaries)
            .collect()
    }

    /// The secondary indexes, each with its number.
    fn secondaries(current: &TableIds) -> impl Iterator<Item = (usize, &IndexInfo)> {
        let clustered = current.clustered.id();
        let all = current.indexes.iter().enumerate();
        all.filter(move |(_, index)| index.id() != clustered)
            .map(|(i, index)| (i, &**index))
    }

    fn next_row_id(&self, current: &TableIds) -> Option<u64> {
        self.has_hidden_key().then(|| current.hidden_rows.take(1))
    }

    /// Adds the table's name to a corruption error that names no file.
    fn of_table(&self, error: Error) -> Error {
        match error.kind() {
            ErrorKind::Corruption { file, offset } if file.is_empty() => {
                let message = format!("table {}: {}", self.name, error.message());
                Error::corruption(self.name.clone(), *offset, message)
            }
            _ => error,
        }
    }
}

impl TableIds {
    fn hidden_counter(&self) -> u64 {
        hidden_row_counter(self.entry.clustered.id)
    }

    /// Whether a write must look at foreign keys.
    fn has_foreign_keys(&self, flags: WriteFlags) -> bool {
        self.foreign_keys.is_some() && !flags.skip_foreign_keys && !flags.private
    }

    /// Counts a changed row. When `txn` commits, `net` is added to the table's number of rows.
    /// `cascades` as for [`Transaction::count_rows`].
    fn count_rows(&self, txn: &mut Transaction, net: i64, cascades: bool) {
        txn.count_changed_row();
        txn.count_rows(self.entry.clustered.id, &self.live_rows, net, cascades);
    }

    fn new(
        counters: &Counters,
        schema: &TableSchema,
        entry: Arc<TableEntry>,
        generation: u64,
    ) -> Result<Self> {
        let mut indexes = Vec::with_capacity(entry.indexes.len());
        let codecs = schema.index_codecs()?;
        for ((index, ids), codec) in schema.indexes.iter().zip(&entry.indexes).zip(codecs) {
            indexes.push(Arc::new(IndexInfo::new(index, *ids, codec)));
        }
        let clustered = match schema.primary {
            Some(primary) => Arc::clone(&indexes[primary as usize]),
            None => Arc::new(IndexInfo::hidden(entry.clustered)),
        };
        let id = entry.clustered.id;
        Ok(Self {
            generation,
            clustered,
            indexes,
            autoincrement: counters.cell(autoincrement_counter(id)),
            hidden_rows: counters.cell(hidden_row_counter(id)),
            live_rows: counters.rows(id),
            optimistic: entry.schema.locking == TableLocking::Optimistic,
            entry,
            foreign_keys: None,
        })
    }
}

fn corrupt(table: &Table, what: impl Display) -> Error {
    Error::corruption(table.name.clone(), 0, what)
}
