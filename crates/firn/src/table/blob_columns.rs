//! Columns whose values may lie out of line, which means in a blob file: which columns they are,
//! how their values are written with a row, and how they are read.

use super::Table;
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::{self, BlobRef};
use crate::base::options::MutableOptions;
use crate::base::{Error, Kind, Result, Value};
use crate::blob::BlobStore;
use crate::catalog::TableSchema;
use crate::env::ReadClass;
use crate::read::ReadPoint;
use crate::rowcode::{ColumnKind, DecodePlan, OutOfLineColumn, RowFormat};
use crate::txn::Transaction;
use std::sync::atomic::Ordering;

/// A VARCHAR column with a smaller maximum length (bytes) keeps its values in the row: a reference
/// to a blob file would save too little.
const VARCHAR_MIN: u32 = 256;

/// A value of at least this many bytes goes out of line, even if the threshold is larger, because
/// the row must fit into one entry.
const INLINE_BYTES_MAX: u64 = 16 << 20;

/// Numbers of the columns whose values may go out of line. Columns of the primary key do not,
/// because the key has their bytes anyway.
pub(super) fn candidates(schema: &TableSchema) -> Vec<usize> {
    let in_key = |number: usize| {
        let primary = schema.primary.map(|i| &schema.indexes[i as usize]);
        let mut parts = primary.iter().flat_map(|index| &index.parts);
        parts.any(|part| part.column as usize == number)
    };
    let columns = schema.columns.iter().enumerate();
    columns
        .filter(|(number, column)| {
            let long = match column.column.kind {
                ColumnKind::Blob { .. } => true,
                ColumnKind::VarChar { max, .. } => max >= VARCHAR_MIN,
                ColumnKind::Fixed { .. } | ColumnKind::Char { .. } => false,
            };
            long && column.column.stored && !in_key(*number)
        })
        .map(|(number, _)| number)
        .collect()
}

/// A value that is stored in a blob file.
#[derive(Clone, Copy)]
pub(super) struct LargeValue<'a> {
    /// Id of its column.
    pub(super) column: u32,
    pub(super) bytes: &'a [u8],
}

impl Table {
    /// The values of `record` that are stored in blob files: those not shorter than the threshold,
    /// and all values of the columns `out_of_line`.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values, which must stay valid as
    /// long as the result.
    pub(super) unsafe fn large_values<'a>(
        &self,
        mutable: &MutableOptions,
        record: &'a [u8],
        out_of_line: &[u32],
    ) -> Result<Vec<LargeValue<'a>>> {
        let mut large = Vec::new();
        if self.candidates.is_empty() {
            return Ok(large);
        }
        let threshold = mutable.blob_threshold.load(Ordering::Relaxed);
        let layout = self.format().current();
        for &number in &self.candidates {
            // SAFETY: the caller promises that blob columns of `record` point to their bytes, and
            // the callee needs no more.
            let bytes = unsafe { layout.variable(number, record) }?;
            let column = layout.columns()[number].id;
            let is_large = bytes.len() as u64 >= threshold.clamp(1, INLINE_BYTES_MAX);
            if is_large || out_of_line.contains(&column) {
                large.push(LargeValue { column, bytes });
            }
        }
        Ok(large)
    }

    /// Ids of the columns whose values were perhaps not read into `old` and `new`. For a column
    /// that the statement does not use, the cursor does not read the out-of-line value, and points
    /// both records to the same zeros instead. But a column whose value really is zeros looks the
    /// same. The caller decides by the stored row: if it has the column's value out of line, the
    /// update keeps the reference, whatever the threshold is now; otherwise the zeros are the
    /// value.
    ///
    /// # Safety
    /// Blob columns of `old` and `new` must point to the bytes of their values.
    pub(super) unsafe fn unread(&self, old: &[u8], new: &[u8]) -> Result<Vec<u32>> {
        let layout = self.format().current();
        let mut unread = Vec::new();
        for &number in &self.candidates {
            // SAFETY: the caller promises that blob columns of both records point to their bytes,
            // and the callee needs no more.
            let (old, new) =
                unsafe { (layout.variable(number, old)?, layout.variable(number, new)?) };
            if std::ptr::eq(old, new) && new.first() == Some(&0) {
                unread.push(layout.columns()[number].id);
            }
        }
        Ok(unread)
    }

    /// Adds the row in `record` to the transaction's writes, its large values out of line. If the
    /// stored row already refers to the same value, `kept` returns this reference; all other large
    /// values are written to a blob file.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    pub(super) unsafe fn put_with_large(
        &self,
        txn: &mut Transaction,
        record: &[u8],
        row_key: &[u8],
        large: &[LargeValue<'_>],
        mut kept: impl FnMut(&LargeValue<'_>) -> Option<BlobRef>,
        (head, tail): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<()> {
        let write = |value: &LargeValue<'_>| match kept(value) {
            Some(blob) => Ok(blob),
            None => txn.write_blob(value.column, value.bytes),
        };
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        let kind = unsafe { self.encode_with_large(record, large, write, head, tail) }?;
        let value = Value::split(head, tail);
        match kind {
            Kind::PutBlobs => txn.put_with_blobs(row_key, value),
            _ => txn.put(row_key, value),
        }
    }

    /// Encodes the row in `record`. In place of the values `large` the row has the references that
    /// `write` returns for them. Returns the kind of the row's entry.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    pub(super) unsafe fn encode_with_large(
        &self,
        record: &[u8],
        large: &[LargeValue<'_>],
        write: impl FnMut(&LargeValue<'_>) -> Result<BlobRef>,
        head: &mut Vec<u8>,
        tail: &mut Vec<u8>,
    ) -> Result<Kind> {
        let refs = large.iter().map(write).collect::<Result<Vec<BlobRef>>>()?;
        let columns: Vec<u32> = large.iter().map(|value| value.column).collect();
        let layout = self.format().current();
        head.clear();
        tail.clear();
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe { layout.encode_without(record, &columns, head, tail) }?;
        if refs.is_empty() {
            return Ok(Kind::Put);
        }
        blob_ref::append(tail, &refs);
        Ok(Kind::PutBlobs)
    }

    /// The blob references that the row has at `point`. The caller is about to change the row; it
    /// has locked the row, or its commit will validate the row.
    pub(super) fn stored_refs(
        &self,
        txn: &Transaction,
        point: &ReadPoint,
        row_key: &[u8],
    ) -> Result<Vec<BlobRef>> {
        // The statement has read the row before, mostly through a scan.
        let refs = txn.get(point, row_key, ReadClass::Range, |key, value| {
            match key.kind {
                Kind::PutBlobs => blob_ref::split(value.tail).map(|(_, refs)| refs),
                _ => Ok(Vec::new()),
            }
        })?;
        let refs = refs.unwrap_or_else(|| Ok(Vec::new()));
        refs.map_err(|error| self.of_table(error))
    }
}

/// Returns the stored row's reference to the large value `new` if the update does not change that
/// value, otherwise `None`. `old` has the large values before the update, and `stored` all
/// references of the stored row.
///
/// Rejected: to compare length and checksum with those of the stored value. Equal checksums do not
/// prove equal bytes, and the old bytes are in memory anyway.
pub(super) fn unchanged(
    new: &LargeValue<'_>,
    old: &[LargeValue<'_>],
    stored: &[BlobRef],
) -> Option<BlobRef> {
    let before = old.iter().find(|value| value.column == new.column)?;
    if !same_bytes(before.bytes, new.bytes) {
        return None;
    }
    let of = |blob: &&BlobRef| blob.column == new.column && blob.len == new.bytes.len() as u64;
    stored.iter().find(of).copied()
}

/// Whether the bytes are equal. If an update leaves a column alone, the slices of both records have
/// the same address, so their bytes need no comparison.
pub(super) fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    std::ptr::eq(a, b) || a == b
}

/// The part of a column's out-of-line value that suffices for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialColumn {
    /// Number of the column.
    pub column: usize,
    /// Bytes that are needed from the beginning of the value.
    pub prefix: u64,
    /// Whether the length of the whole value is needed. If so, the record gets a value of that
    /// length, with zeros after the prefix; otherwise it gets the prefix as if it were the value.
    pub length: bool,
}

/// The part of one column's out-of-line value that suffices.
struct WantedPart {
    /// Id of the column.
    column: u32,
    /// Whether the column is a BLOB: the record then holds a pointer to the value's bytes.
    is_blob: bool,
    part: PartialColumn,
}

/// The part of one out-of-line value that a read fetches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ValueNeed {
    All,
    Length,
    Prefix(u64),
    PrefixAndLength(u64),
}

impl ValueNeed {
    fn of(column: &OutOfLineColumn, parts: &[WantedPart]) -> Self {
        let part = parts.iter().find(|part| part.column == column.blob.column);
        match part.map(|of| of.part) {
            Some(part) if part.prefix < column.blob.len => match (part.prefix, part.length) {
                (0, true) => Self::Length,
                (wanted, false) => Self::Prefix(wanted),
                // The record buffer has the value itself, as for a VARCHAR, and no pointer to it.
                // Such a value is at most 64 KiB long, less than a chunk of a blob file, so reading
                // only a part of it would save nothing.
                _ if column.is_copied() => Self::All,
                (wanted, true) => Self::PrefixAndLength(wanted),
            },
            _ => Self::All,
        }
    }

    /// Number of bytes to read from the beginning of the value; `None` if no read is needed.
    fn bytes(self) -> Option<u64> {
        match self {
            Self::All => Some(u64::MAX),
            Self::Length => None,
            Self::Prefix(wanted) | Self::PrefixAndLength(wanted) => Some(wanted),
        }
    }
}

/// Number of plans that a reader keeps beside the one in use. A transaction reads a table by a few
/// statements with different columns, again and again; making a plan costs more than decoding a
/// row with it.
const SPARE_PLANS: usize = 3;

/// A plan with the columns that it decodes, as a bitmap; `None` for all columns.
struct ColumnsPlan {
    columns: Option<Vec<u8>>,
    plan: DecodePlan,
}

impl ColumnsPlan {
    fn new(format: &RowFormat, columns: Option<&[u8]>) -> Self {
        Self {
            columns: columns.map(<[u8]>::to_vec),
            plan: format.plan(columns),
        }
    }
}

/// Decodes rows and reads their values that lie out of line.
pub(super) struct RowReader {
    /// The purpose of the reads of these values.
    class: ReadClass,
    current: ColumnsPlan,
    /// Plans for columns that were set before, the last used one at the end.
    spare: Vec<ColumnsPlan>,
    /// Columns of which only a part of the value is read. All other columns are read whole.
    parts: Vec<WantedPart>,
    wanted: Vec<OutOfLineColumn>,
    scratch: BlobBuf,
    /// If only the length of a value is needed, its column points to these bytes.
    zeros: Vec<u8>,
}

impl RowReader {
    /// A reader of rows of `format`, of which it decodes `columns`; `None` stands for all. `class`
    /// is the purpose of its reads of values that lie out of line.
    pub(super) fn new(format: &RowFormat, class: ReadClass, columns: Option<&[u8]>) -> Self {
        Self {
            class,
            current: ColumnsPlan::new(format, columns),
            spare: Vec::new(),
            parts: Vec::new(),
            wanted: Vec::new(),
            scratch: BlobBuf::new(),
            zeros: Vec::new(),
        }
    }

    /// Makes later calls decode these columns. The bytes that the last decoded record points to
    /// stay valid. `format` must be the same in all calls.
    pub(super) fn set_columns(&mut self, format: &RowFormat, columns: Option<&[u8]>) {
        if self.current.columns.as_deref() == columns {
            return;
        }
        let known = |spare: &ColumnsPlan| spare.columns.as_deref() == columns;
        let next = match self.spare.iter().position(known) {
            Some(at) => self.spare.remove(at),
            None => {
                if self.spare.len() == SPARE_PLANS {
                    self.spare.remove(0);
                }
                ColumnsPlan::new(format, columns)
            }
        };
        let last = std::mem::replace(&mut self.current, next);
        self.spare.push(last);
    }

    /// Makes later calls read the out-of-line values of the columns in `parts` only in part, each
    /// as its item of `parts` says.
    pub(super) fn set_parts(&mut self, format: &RowFormat, parts: &[PartialColumn]) -> Result<()> {
        self.parts.clear();
        for &part in parts {
            let column = format.current().columns().get(part.column);
            let column = column.ok_or_else(|| Error::invalid("a part of no column"))?;
            self.parts.push(WantedPart {
                column: column.id,
                is_blob: matches!(column.kind, ColumnKind::Blob { .. }),
                part,
            });
        }
        Ok(())
    }

    /// Makes later calls read out-of-line values whole, because the row may be updated. The
    /// exception is a BLOB of which only the length is wanted: the record gets zeros for it, and
    /// [`Table::update`] keeps the stored reference to its value.
    pub(super) fn keep_unread(&mut self) {
        self.parts
            .retain(|of| of.is_blob && of.part.prefix == 0 && of.part.length);
    }

    /// Frees the buffer of values that were copied into records.
    pub(super) fn park(&mut self) {
        self.scratch.trim();
    }

    /// Frees the bytes that the record points to in place of a value that was not read.
    pub(super) fn trim(&mut self) {
        self.zeros = Vec::new();
    }

    /// Decodes the values that the entry itself holds. [`Self::complete`] must follow. It does I/O,
    /// so between the two calls the caller releases locks that other threads wait for.
    #[inline]
    pub(super) fn decode(
        &mut self,
        kind: Kind,
        value: Value<'_>,
        record: &mut [u8],
        blobs: &mut BlobBuf,
    ) -> Result<()> {
        if !self.wanted.is_empty() {
            self.wanted.clear();
        }
        self.current
            .plan
            .decode_entry(kind, value, record, blobs, &mut self.wanted)
    }

    /// Reads the values out of line of the row last decoded.
    ///
    /// # Errors
    /// `Corruption` that names the blob file; I/O errors.
    #[inline]
    pub(super) fn complete(
        &mut self,
        store: &BlobStore,
        record: &mut [u8],
        blobs: &mut BlobBuf,
    ) -> Result<()> {
        if self.wanted.is_empty() {
            return Ok(());
        }
        self.read_wanted(store, record, blobs)
    }

    #[cold]
    fn read_wanted(
        &mut self,
        store: &BlobStore,
        record: &mut [u8],
        blobs: &mut BlobBuf,
    ) -> Result<()> {
        self.wanted.iter().try_for_each(|column| column.check())?;
        let (parts, class) = (&self.parts, self.class);
        let needs = |column: &OutOfLineColumn| ValueNeed::of(column, parts);
        let reads = self.wanted.iter().filter_map(|column| {
            let wanted = needs(column).bytes()?;
            Some((&column.blob, wanted))
        });
        store.prefetch(reads);
        // For a column of which only the length is needed, the record gets a pointer to that many
        // zeros. All such columns point to the same zeros, so allocate them once, in the greatest
        // length: they must not move after the first column points to them.
        let lengths = self
            .wanted
            .iter()
            .filter(|&c| needs(c) == ValueNeed::Length);
        let longest = lengths.map(|c| c.blob.len).max().unwrap_or(0) as usize;
        if self.zeros.len() < longest {
            self.zeros = vec![0; longest];
        }
        for column in self.wanted.drain(..) {
            self.scratch.clear();
            // A value that is copied into the record is needed only until the copy, so all such
            // values use one buffer.
            let buf = match column.is_copied() {
                true => &mut self.scratch,
                false => &mut *blobs,
            };
            let bytes = match ValueNeed::of(&column, parts) {
                ValueNeed::All => store.read(&column.blob, class, buf)?,
                ValueNeed::Prefix(wanted) => store.read_prefix(&column.blob, wanted, class, buf)?,
                ValueNeed::Length => &self.zeros[..column.blob.len as usize],
                ValueNeed::PrefixAndLength(wanted) => {
                    let (at, scratch) = (&column.blob, &mut self.scratch);
                    let prefix = store.read_prefix(at, wanted, class, scratch)?;
                    blobs.put_beginning(prefix, column.blob.len as usize)
                }
            };
            column.finish(bytes, record)?;
        }
        Ok(())
    }

    /// [`Self::decode`] and [`Self::complete`] together.
    #[inline]
    pub(super) fn read(
        &mut self,
        store: &BlobStore,
        kind: Kind,
        value: Value<'_>,
        record: &mut [u8],
        blobs: &mut BlobBuf,
    ) -> Result<()> {
        self.decode(kind, value, record, blobs)?;
        self.complete(store, record, blobs)
    }
}
