//! Columns whose values lie out of line: which they are, writing them with a row, reading them.

use super::Table;
use crate::base::blob_buf::BlobBuf;
use crate::base::blob_ref::{self, BlobRef};
use crate::base::options::MutableOptions;
use crate::base::{Error, Kind, Result, Value};
use crate::blob::BlobStore;
use crate::catalog::TableSchema;
use crate::rowcode::{ColumnKind, DecodePlan, OutOfLineColumn, RowFormat};
use crate::txn::Transaction;
use std::sync::atomic::Ordering;

/// A shorter VARCHAR never goes out of line: a reference would save too little.
const VARCHAR_MIN: u32 = 256;

/// A value of so many bytes goes out of line whatever the threshold: a row must fit into an entry.
const INLINE_BYTES_MAX: u64 = 16 << 20;

/// Columns whose values may go out of line, by their numbers. Those of the primary key stay: the
/// key has their bytes anyway.
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

/// A value that is long enough for a blob file.
#[derive(Clone, Copy)]
pub(super) struct LargeValue<'a> {
    /// Id of its column.
    pub(super) column: u32,
    pub(super) bytes: &'a [u8],
}

impl Table {
    /// The large values of `record`, and those of the columns `out_of_line`.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes, which stay.
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

    /// Ids of the columns whose values `old` and `new` may lack, because the cursor did not read
    /// columns that the statement does not use: both point to the same zeros. If the stored row has
    /// the value out of line, it stays there, whatever the threshold is now; otherwise the zeros
    /// are the value.
    ///
    /// # Safety
    /// Blob columns of both point to their bytes.
    pub(super) unsafe fn unread(&self, old: &[u8], new: &[u8]) -> Result<Vec<u32>> {
        let layout = self.format().current();
        let mut unread = Vec::new();
        for &number in &self.candidates {
            // SAFETY: the caller promises that blob columns of `record` point to their bytes, and
            // the callee needs no more.
            let (old, new) =
                unsafe { (layout.variable(number, old)?, layout.variable(number, new)?) };
            if std::ptr::eq(old, new) && new.first() == Some(&0) {
                unread.push(layout.columns()[number].id);
            }
        }
        Ok(unread)
    }

    /// Adds the row in `record` to the transaction's writes, its large values out of line. Values
    /// that `kept` finds are stored already, and keep their references.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes.
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

    /// Encodes the row in `record`; `write` returns the references of its large values. Returns the
    /// kind of its entry.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes.
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

    /// The references of the row as it is stored now, which the caller has locked.
    pub(super) fn stored_refs(&self, txn: &Transaction, row_key: &[u8]) -> Result<Vec<BlobRef>> {
        let latest = txn.latest_point();
        let refs = txn.get(&latest, row_key, |key, value| match key.kind {
            Kind::PutBlobs => blob_ref::split(value.tail).map(|(_, refs)| refs),
            _ => Ok(Vec::new()),
        })?;
        let refs = refs.unwrap_or_else(|| Ok(Vec::new()));
        refs.map_err(|error| self.of_table(error))
    }
}

/// The reference to the value of `new`, if the stored row has it: `old` has the same bytes there.
///
/// Rejected: comparing length and checksum with the stored value's. The old record has the bytes,
/// and an equal hash is no proof.
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

/// Equality; an update that leaves a column alone has the same bytes in both records.
pub(super) fn same_bytes(a: &[u8], b: &[u8]) -> bool {
    std::ptr::eq(a, b) || a == b
}

/// The part of a column's out-of-line value that a reader needs, if that is not all of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartialColumn {
    /// Number of the column.
    pub column: usize,
    /// So many bytes from the beginning.
    pub prefix: u64,
    /// Whether the length of the whole value is needed. The record then has it, with zeros after
    /// the prefix; otherwise the record has the prefix as if it were the value.
    pub length: bool,
}

/// A part, and whose.
struct WantedPart {
    /// Id of the column.
    column: u32,
    /// The record points to the value.
    is_blob: bool,
    part: PartialColumn,
}

/// The part to be read of one value.
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
                // Such a value is no longer than a chunk, so a part of it saves no read.
                _ if column.is_copied() => Self::All,
                (wanted, true) => Self::PrefixAndLength(wanted),
            },
            _ => Self::All,
        }
    }

    /// Bytes from the beginning; `None` if none are read.
    fn bytes(self) -> Option<u64> {
        match self {
            Self::All => Some(u64::MAX),
            Self::Length => None,
            Self::Prefix(wanted) | Self::PrefixAndLength(wanted) => Some(wanted),
        }
    }
}

/// Decodes rows, with their values out of line.
pub(super) struct RowReader {
    plan: DecodePlan,
    /// Columns of which a part suffices; all others are read whole.
    parts: Vec<WantedPart>,
    wanted: Vec<OutOfLineColumn>,
    scratch: BlobBuf,
    /// Bytes that a column points to if only its length is needed.
    zeros: Vec<u8>,
}

impl RowReader {
    pub(super) fn new(format: &RowFormat, columns: Option<&[u8]>) -> Self {
        Self {
            plan: format.plan(columns),
            parts: Vec::new(),
            wanted: Vec::new(),
            scratch: BlobBuf::new(),
            zeros: Vec::new(),
        }
    }

    /// Decodes other columns from now on. The values that the last record points to stay.
    pub(super) fn set_columns(&mut self, format: &RowFormat, columns: Option<&[u8]>) {
        self.plan = format.plan(columns);
    }

    /// From now on, reads only these parts of their columns.
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

    /// From now on, reads values whole, except for those of which only the length is wanted and
    /// that need no bytes in the record: [`Table::update`] leaves them as they are stored.
    pub(super) fn keep_unread(&mut self) {
        self.parts
            .retain(|of| of.is_blob && of.part.prefix == 0 && of.part.length);
    }

    /// Decodes the values in the entry. [`Self::complete`] must follow, after the caller has
    /// released locks that others wait for, since it does I/O.
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
        self.plan
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
        let parts = &self.parts;
        let needs = |column: &OutOfLineColumn| ValueNeed::of(column, parts);
        let reads = self.wanted.iter().filter_map(|column| {
            let wanted = needs(column).bytes()?;
            Some((&column.blob, wanted))
        });
        store.prefetch(reads);
        // Size the zeros once: they must not move after the first column points to them.
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
            // A value that is copied into the record can use a scratch buffer.
            let buf = match column.is_copied() {
                true => &mut self.scratch,
                false => &mut *blobs,
            };
            let bytes = match ValueNeed::of(&column, parts) {
                ValueNeed::All => store.read(&column.blob, buf)?,
                ValueNeed::Prefix(wanted) => store.read_prefix(&column.blob, wanted, buf)?,
                ValueNeed::Length => &self.zeros[..column.blob.len as usize],
                ValueNeed::PrefixAndLength(wanted) => {
                    let prefix = store.read_prefix(&column.blob, wanted, &mut self.scratch)?;
                    blobs.put_beginning(prefix, column.blob.len as usize)
                }
            };
            column.finish(bytes, record)?;
        }
        Ok(())
    }

    /// Both steps.
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
