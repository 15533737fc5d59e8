//! Computes the virtual columns of rows that a cascade changes.
//!
//! A row in the store has no virtual columns, but indexes may contain them. A cascade changes rows
//! that it has read from the store, so it has the host compute these columns: of the row before the
//! change, whose entries go, and of the row after it.

use crate::base::Result;
use crate::base::blob_buf::BlobBuf;
use crate::base::record_buffer::blob_bytes;
use crate::rowcode::ColumnKind;
use crate::table::Table;
use crate::txn::Transaction;

impl Table {
    /// Whether an index contains a virtual column.
    fn indexes_virtual_columns(&self) -> bool {
        let mut parts = self.schema.indexes.iter().flat_map(|index| &index.parts);
        parts.any(|part| !self.schema.columns[part.column as usize].column.stored)
    }

    /// Computes the virtual columns of `record` that indexes contain. Their blobs then point into
    /// `blobs`.
    ///
    /// # Errors
    /// `HostFailed` if a column has no value; `Unsupported` if no host computes it.
    pub(super) fn compute_virtual(
        &self,
        txn: &Transaction,
        record: &mut [u8],
        blobs: &mut BlobBuf,
    ) -> Result<()> {
        if !self.indexes_virtual_columns() {
            return Ok(());
        }
        let host = txn.owner().host();
        self.catalog.compute_virtual(host, &self.name, record)?;
        for column in self.schema.columns.iter().map(|column| &column.column) {
            let ColumnKind::Blob { len_bytes } = column.kind else {
                continue;
            };
            if column.stored || column.null.is_some_and(|null| null.is_set(record)) {
                continue;
            }
            let at = column.offset as usize;
            let field = &mut record[at..at + column.kind.record_len() as usize];
            // SAFETY: the host has set length and pointer of the computed columns, and keeps the
            // bytes until it computes the next record. The record had zeros in the others, because
            // no row in the store has a value of them.
            let address = blobs.put(unsafe { blob_bytes(field, len_bytes) }?);
            field[usize::from(len_bytes)..].copy_from_slice(&(address as usize).to_ne_bytes());
        }
        Ok(())
    }
}
