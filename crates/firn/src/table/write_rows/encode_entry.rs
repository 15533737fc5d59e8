//! Encodes a row's entries in the clustered index and in secondary indexes.

use crate::base::key::INDEX_ID_LEN;
use crate::base::{Kind, Result, Value};
use crate::blob::TransactionBlobs;
use crate::ingest::LoadEntry;
use crate::table::Table;
use crate::table::blob_columns::LargeValue;
use crate::table::index_info::IndexInfo;
use crate::table::row_scratch::RowScratch;
use crate::table::write_options::WriteFlags;
use crate::txn::TransactionContext;

pub(super) struct EntryParts {
    pub(super) declared_len: usize,
    pub(super) has_null: bool,
}

/// Writes the key of the row's entry in a secondary index to `out`: the index id, the declared
/// parts, and the key of the row without its index id.
///
/// # Safety
/// Blob columns of `record` must point to the bytes of their values.
pub(super) unsafe fn entry_key(
    index: &IndexInfo,
    record: &[u8],
    row_key: &[u8],
    out: &mut Vec<u8>,
) -> Result<EntryParts> {
    out.clear();
    // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
    // callee needs no more.
    let has_null = unsafe { index.declared_key(record, out) }?;
    let declared_len = out.len();
    out.extend_from_slice(&row_key[INDEX_ID_LEN..]);
    Ok(EntryParts {
        declared_len,
        has_null,
    })
}

impl Table {
    /// Encodes the row in `record` for a bulk load, into buffers of `scratch`. Writes large values
    /// to blob files by means of `session`, which keeps these files from being removed.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    pub(in crate::table) unsafe fn encode_row<'a>(
        &self,
        cx: &TransactionContext,
        session: &mut TransactionBlobs,
        record: &[u8],
        scratch: &'a mut RowScratch,
    ) -> Result<(Kind, Value<'a>)> {
        let (head, tail) = (&mut scratch.head, &mut scratch.tail);
        let write = |value: &LargeValue<'_>| cx.blobs.write(session, value.column, value.bytes);
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        let kind = unsafe {
            let large = self.large_values(&cx.mutable, record, &[])?;
            self.encode_with_large(record, &large, write, head, tail)
        }?;
        Ok((kind, Value::split(head, tail)))
    }
}

/// Encodes the row's entry in a secondary index for a bulk load, into buffers of `scratch`.
///
/// # Safety
/// Blob columns of `record` must point to the bytes of their values.
pub(in crate::table) unsafe fn index_entry<'a>(
    index: &IndexInfo,
    record: &[u8],
    row_key: &[u8],
    flags: WriteFlags,
    scratch: &'a mut RowScratch,
) -> Result<LoadEntry<'a>> {
    // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
    // callee needs no more.
    let parts = unsafe { entry_key(index, record, row_key, &mut scratch.new_entry) }?;
    scratch.new_value.clear();
    // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
    // callee needs no more.
    unsafe { index.entry_value(record, &mut scratch.new_value) }?;
    let unique = index.unique && !parts.has_null && !flags.skip_unique_secondary;
    Ok(LoadEntry {
        user_key: &scratch.new_entry,
        unique_len: if unique { parts.declared_len } else { 0 },
        kind: Kind::Put,
        value: Value::whole(&scratch.new_value),
    })
}
