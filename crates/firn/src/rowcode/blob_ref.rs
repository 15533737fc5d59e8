//! The trailer of rows whose blobs lie out of line (entries of kind `PutBlobs`).
//!
//! Found from the end of the tail, without a schema: compaction counts the references of a row it
//! cannot decode.

use super::damaged;
use crate::base::{Result, varint};

/// Where one column's bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRef {
    /// Id of the column.
    pub column: u32,
    /// Id of the blob file.
    pub file: u64,
    /// Offset of the bytes in the file.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
    /// XXH3-64 of the bytes.
    pub checksum: u64,
}

const FOOTER_LEN: usize = 4;

/// Appends the trailer for `refs` to the tail of a row.
pub fn append(tail: &mut Vec<u8>, refs: &[BlobRef]) {
    let start = tail.len();
    for blob in refs {
        varint::put_u64(tail, u64::from(blob.column));
        varint::put_u64(tail, blob.file);
        varint::put_u64(tail, blob.offset);
        varint::put_u64(tail, blob.len);
        tail.extend_from_slice(&blob.checksum.to_le_bytes());
    }
    let len = (tail.len() - start) as u32;
    tail.extend_from_slice(&len.to_le_bytes());
}

/// Splits a tail that ends with a trailer into the tail proper and the references.
pub fn split(tail: &[u8]) -> Result<(&[u8], Vec<BlobRef>)> {
    let (rest, footer) = tail
        .split_last_chunk::<FOOTER_LEN>()
        .ok_or_else(|| damaged("blob trailer too short"))?;
    let len = u32::from_le_bytes(*footer) as usize;
    let at = rest
        .len()
        .checked_sub(len)
        .ok_or_else(|| damaged("blob trailer longer than the row"))?;
    let (proper, mut entries) = rest.split_at(at);
    let mut refs = Vec::new();
    while !entries.is_empty() {
        refs.push(take(&mut entries).ok_or_else(|| damaged("blob reference"))?);
    }
    Ok((proper, refs))
}

fn take(input: &mut &[u8]) -> Option<BlobRef> {
    Some(BlobRef {
        column: varint::take_u32(input)?,
        file: varint::take_u64(input)?,
        offset: varint::take_u64(input)?,
        len: varint::take_u64(input)?,
        checksum: varint::take_u64_le(input)?,
    })
}

#[cfg(test)]
mod tests;
