//! Repairs the indexes of a table after rows or entries were lost: each index gets exactly the
//! entries that the rows require.

use super::TableIds;
use super::blob_columns::RowReader;
use super::check_table::{CheckedTable, Secondary};
use crate::base::blob_buf::BlobBuf;
use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::{Kind, Result, Value};
use crate::catalog::{Counters, PartSchema, TableEntry};
use crate::env::ReadClass;
use crate::read::{self, ReadPoint};
use crate::rowcode::ColumnKind;
use std::sync::Arc;

/// A change that repairs an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexFix<'a> {
    /// Remove the entry with this key: it has no row, or its row requires another entry.
    Remove(&'a [u8]),
    /// Add the entry with this key and value, which a row requires.
    Add(&'a [u8], &'a [u8]),
}

/// Result of a repair of a table's indexes.
#[derive(Debug, Default)]
pub struct IndexRepair {
    /// Rows read, including those that do not decode.
    pub rows: u64,
    /// Keys of rows that do not decode.
    pub undecoded: Vec<Vec<u8>>,
    /// Entries removed.
    pub removed: u64,
    /// Entries added.
    pub added: u64,
    /// Names of the indexes whose keys cannot be computed without the server, because collations
    /// are missing or columns are virtual. The repair removes entries of lost rows from these
    /// indexes, but cannot add missing entries.
    pub uncertain: Vec<String>,
    /// The largest value in the AUTO_INCREMENT column of any row.
    pub auto_increment: Option<u64>,
    /// The largest hidden row id of any row.
    pub hidden_row: Option<u64>,
}

/// Computes the changes that make the indexes of a table fit its rows at `point`, and passes each
/// one to `change`.
///
/// # Errors
/// Those of reading files (`Corruption`, `Unsupported`, `Io`), and those of `change`.
pub fn repair_indexes(
    entry: &Arc<TableEntry>,
    point: &ReadPoint,
    change: &mut dyn FnMut(IndexFix<'_>) -> Result<()>,
) -> Result<IndexRepair> {
    let weightless = entry.schema.with_any_collator();
    let current = TableIds::new(&Counters::default(), &weightless, Arc::clone(entry), 0)?;
    let subject = CheckedTable {
        schema: &entry.schema,
        format: &weightless.row_format()?,
        current: &current,
        point,
        interrupted: &|| false,
    };
    let indexes = subject.secondaries();
    let mut mended = IndexRepair::default();
    subject.add_missing(&indexes, &mut mended, change)?;
    for secondary in &indexes {
        if !secondary.computable {
            mended.uncertain.push(secondary.index.name().to_owned());
        }
        subject.remove_surplus(secondary, &mut mended, change)?;
    }
    Ok(mended)
}

impl CheckedTable<'_> {
    fn add_missing(
        &self,
        indexes: &[Secondary<'_>],
        mended: &mut IndexRepair,
        change: &mut dyn FnMut(IndexFix<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut reader = RowReader::new(self.format, ReadClass::Verify, None);
        let mut record = vec![0; self.schema.record_len as usize];
        let mut blobs = BlobBuf::new();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        let mut rows = self.entries_of(&self.current.clustered);
        let mut found = rows.first()?;
        while found {
            mended.rows += 1;
            blobs.clear();
            let row_key = rows.user_key();
            if self.schema.primary.is_none() {
                let id = row_key[INDEX_ID_LEN..].try_into().map(u64::from_be_bytes);
                mended.hidden_row = mended.hidden_row.max(id.ok());
            }
            let store = &self.point.super_version.blobs;
            let (kind, stored) = (rows.kind(), rows.value());
            let decoded = reader.read(store, kind, stored, &mut record, &mut blobs);
            if decoded.is_err() {
                mended.undecoded.push(row_key.to_vec());
                found = rows.next()?;
                continue;
            }
            mended.auto_increment = mended.auto_increment.max(self.auto_increment(&record));
            for Secondary { index, .. } in indexes.iter().filter(|i| i.computable) {
                key.clear();
                value.clear();
                // SAFETY: `reader.read` succeeded, so each blob pointer in `record` points into
                // `blobs`.
                unsafe {
                    index.declared_key(&record, &mut key)?;
                    index.entry_value(&record, &mut value)?;
                }
                key.extend_from_slice(&row_key[INDEX_ID_LEN..]);
                if !self.is_there(&key)? {
                    mended.added += 1;
                    change(IndexFix::Add(&key, &value))?;
                }
            }
            found = rows.next()?;
        }
        Ok(())
    }

    fn remove_surplus(
        &self,
        secondary: &Secondary<'_>,
        mended: &mut IndexRepair,
        change: &mut dyn FnMut(IndexFix<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut entries = self.entries_of(secondary.index);
        let mut found = entries.first()?;
        while found {
            let key = entries.user_key();
            if !self.is_wanted(secondary, key)? {
                mended.removed += 1;
                change(IndexFix::Remove(key))?;
            }
            found = entries.next()?;
        }
        Ok(())
    }

    /// Whether a row requires the entry with `key`. If the row exists, but its key in this index
    /// cannot be computed, the entry counts as required.
    fn is_wanted(&self, secondary: &Secondary<'_>, key: &[u8]) -> Result<bool> {
        let Ok(declared) = secondary.index.declared_len(key) else {
            return Ok(false);
        };
        let mut row_key = index_prefix(self.current.clustered.id()).to_vec();
        row_key.extend_from_slice(&key[declared..]);
        let wanted = read::get(
            &self.point.super_version,
            &row_key,
            self.point.seqno,
            ReadClass::Verify,
            |found, value| {
                let there = found.kind.is_put();
                Ok(there
                    && (!secondary.computable
                        || self.asks_for(secondary, &key[..declared], found.kind, value)?))
            },
        )?;
        wanted.unwrap_or(Ok(false))
    }

    /// Whether the row stored as `value` has `declared` as its key in the index. True for a row
    /// that does not decode, because it might have that key.
    fn asks_for(
        &self,
        secondary: &Secondary<'_>,
        declared: &[u8],
        kind: Kind,
        value: Value<'_>,
    ) -> Result<bool> {
        let mut record = vec![0; self.schema.record_len as usize];
        let mut blobs = BlobBuf::new();
        let mut reader = RowReader::new(self.format, ReadClass::Verify, None);
        let store = &self.point.super_version.blobs;
        let decoded = reader.read(store, kind, value, &mut record, &mut blobs);
        if decoded.is_err() {
            return Ok(true);
        }
        let mut own = Vec::new();
        // SAFETY: `reader.read` succeeded, so each blob pointer in `record` points into `blobs`.
        unsafe { secondary.index.declared_key(&record, &mut own) }?;
        Ok(own == declared)
    }

    /// The value of the AUTO_INCREMENT column, if it is an integer above zero.
    fn auto_increment(&self, record: &[u8]) -> Option<u64> {
        let number = self.schema.auto_increment?;
        let parts = self.schema.indexes.iter().flat_map(|index| &index.parts);
        let signed = parts
            .filter(|part| part.column == number)
            .find_map(|part| match part.kind {
                PartSchema::Int { signed } => Some(signed),
                _ => None,
            })?;
        let column = &self.schema.columns[number as usize].column;
        let ColumnKind::Fixed { len } = column.kind else {
            return None;
        };
        let (at, len) = (column.offset as usize, len as usize);
        let mut bytes = [0; 8];
        bytes
            .get_mut(..len)?
            .copy_from_slice(record.get(at..at + len)?);
        let value = u64::from_le_bytes(bytes);
        let negative = signed && value >> (8 * len - 1) & 1 == 1;
        (!negative).then_some(value)
    }
}
