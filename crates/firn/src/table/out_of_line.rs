//! Columns whose values lie out of line: which they are, writing them with a row, reading them.

use super::Table;
use crate::base::options::LiveOptions;
use crate::base::{Kind, Result, Value};
use crate::blob::BlobStore;
use crate::catalog::TableSchema;
use crate::rowcode::{BlobBuf, BlobRef, ColumnKind, DecodePlan, OutOfLine, RowFormat, blob_ref};
use crate::txn::Transaction;
use std::sync::atomic::Ordering;

/// A shorter VARCHAR never goes out of line: its longest value is no longer than a reference is worth.
const VARCHAR_MIN: u32 = 256;

/// Columns whose values may go out of line, by their numbers. Those of the primary key stay: the key has
/// their bytes anyway.
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
pub(super) struct Large<'a> {
    /// Id of its column.
    pub(super) column: u32,
    pub(super) bytes: &'a [u8],
}

impl Table {
    /// The large values of `record`.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes, which stay.
    pub(super) unsafe fn large_values<'a>(
        &self,
        live: &LiveOptions,
        record: &'a [u8],
    ) -> Result<Vec<Large<'a>>> {
        let mut large = Vec::new();
        if self.candidates.is_empty() {
            return Ok(large);
        }
        let threshold = live.blob_threshold.load(Ordering::Relaxed);
        let layout = self.format().current();
        for &number in &self.candidates {
            // SAFETY: as the caller promises.
            let bytes = unsafe { layout.variable(number, record) }?;
            if bytes.len() as u64 >= threshold.max(1) {
                large.push(Large {
                    column: layout.columns()[number].id,
                    bytes,
                });
            }
        }
        Ok(large)
    }

    /// Adds the row in `record` to the own writes, its large values out of line. What `kept` finds is
    /// there already.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes.
    pub(super) unsafe fn put_with_large(
        &self,
        txn: &mut Transaction,
        record: &[u8],
        row_key: &[u8],
        large: &[Large<'_>],
        mut kept: impl FnMut(&Large<'_>) -> Option<BlobRef>,
        (head, tail): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> Result<()> {
        let write = |value: &Large<'_>| match kept(value) {
            Some(blob) => Ok(blob),
            None => txn.write_blob(value.column, value.bytes),
        };
        // SAFETY: as the caller promises.
        let kind = unsafe { self.encode_with_large(record, large, write, head, tail) }?;
        let value = Value::split(head, tail);
        match kind {
            Kind::PutBlobs => txn.put_with_blobs(row_key, value),
            _ => txn.put(row_key, value),
        }
    }

    /// Encodes the row in `record`; `write` says where its large values are. Returns the kind of its entry.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes.
    pub(super) unsafe fn encode_with_large(
        &self,
        record: &[u8],
        large: &[Large<'_>],
        write: impl FnMut(&Large<'_>) -> Result<BlobRef>,
        head: &mut Vec<u8>,
        tail: &mut Vec<u8>,
    ) -> Result<Kind> {
        let refs = large.iter().map(write).collect::<Result<Vec<BlobRef>>>()?;
        let columns: Vec<u32> = large.iter().map(|value| value.column).collect();
        let layout = self.format().current();
        head.clear();
        tail.clear();
        // SAFETY: as the caller promises.
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
/// Rejected: telling by length and checksum alone that a value is the one that is stored. The record
/// before the update is at hand, and a hash is no proof.
pub(super) fn unchanged(new: &Large<'_>, old: &[Large<'_>], stored: &[BlobRef]) -> Option<BlobRef> {
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

/// Decodes rows with all that lies out of line.
pub(super) struct RowReader {
    plan: DecodePlan,
    wanted: Vec<OutOfLine>,
    scratch: BlobBuf,
}

impl RowReader {
    pub(super) fn new(format: &RowFormat, columns: Option<&[u8]>) -> Self {
        Self {
            plan: format.plan(columns),
            wanted: Vec::new(),
            scratch: BlobBuf::new(),
        }
    }

    /// Decodes what the entry itself holds. To be followed by [`Self::complete`], when nothing is held
    /// that others wait for.
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

    /// Reads what lies out of line of the row last decoded.
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
        store.announce(self.wanted.iter().map(|column| &column.blob));
        for column in self.wanted.drain(..) {
            // A value that is copied into the record needs no place that stays.
            let buf = match column.is_copied() {
                true => {
                    self.scratch.clear();
                    &mut self.scratch
                }
                false => &mut *blobs,
            };
            let bytes = store.read(&column.blob, buf)?;
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
