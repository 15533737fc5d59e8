//! The bytes of a value of several chunks: a table, then the chunks; `docs/formats/blob.md`.
//!
//! ```text
//! value of 300 KiB: table (3 entries, summed by the reference) | 128 KiB | 128 KiB | 44 KiB
//! all of it:        one read
//! its first byte:   one read of the table and the first chunk
//! ```

use super::codec;
use crate::base::checksum::xxh3;
use crate::rowcode::{BLOB_CHUNK_LEN, BlobCodec, BlobRef, CHUNK_ENTRY_LEN, chunk_table_len};
use std::ops::Range;

const CHUNK: usize = BLOB_CHUNK_LEN as usize;
const ENTRY: usize = CHUNK_ENTRY_LEN as usize;

/// Whether a value of so many bytes is stored in chunks.
pub(super) fn in_chunks(len: usize) -> bool {
    len > CHUNK
}

/// Table and chunks of `value`, each chunk as `pack` makes it; no chunks if each is as it was.
pub(super) fn split(
    value: &[u8],
    mut pack: impl FnMut(&[u8]) -> Option<Vec<u8>>,
) -> (Vec<u8>, Option<Vec<u8>>) {
    let mut table = Vec::with_capacity(chunk_table_len(value.len() as u64) as usize);
    let mut packed: Option<Vec<u8>> = None;
    for (number, chunk) in value.chunks(CHUNK).enumerate() {
        let smaller = pack(chunk);
        let stored = smaller.as_deref().unwrap_or(chunk);
        table.extend_from_slice(&(stored.len() as u32).to_le_bytes());
        table.extend_from_slice(&xxh3(stored).to_le_bytes());
        if smaller.is_some() && packed.is_none() {
            packed = Some(value[..number * CHUNK].to_vec());
        }
        if let Some(packed) = &mut packed {
            packed.extend_from_slice(stored);
        }
    }
    (table, packed)
}

/// A chunk that is read.
pub(super) struct Chunk<'a> {
    /// Its place in the value.
    pub(super) place: Range<usize>,
    /// What is stored of it: as long as its place, or compressed.
    pub(super) stored: &'a [u8],
}

impl Chunk<'_> {
    /// Fills its place in `value`; whether that was possible.
    pub(super) fn unpack_to(&self, value: &mut [u8]) -> bool {
        let place = &mut value[self.place.clone()];
        match self.is_plain() {
            true => {
                place.copy_from_slice(self.stored);
                true
            }
            false => codec::unpack(self.stored, place),
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.stored.len() == self.place.len()
    }
}

/// Checks the chunks of the first `len` bytes of a value, of `body` as far as that was read, and calls `f`
/// with each. Returns the bytes they store; the first that is damaged as an error, by its place in `body`.
pub(super) fn for_each(
    table: &[u8],
    body: &[u8],
    len: usize,
    mut f: impl FnMut(&Chunk<'_>) -> bool,
) -> Result<usize, usize> {
    let mut at = 0;
    for (number, entry) in table.chunks_exact(ENTRY).enumerate() {
        let start = number * CHUNK;
        if start >= len {
            break;
        }
        let (stored, sum) = entry.split_at(4);
        let stored = u32::from_le_bytes(stored.try_into().expect("four bytes")) as usize;
        let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
        let chunk = Chunk {
            place: start..len.min(start + CHUNK),
            stored: body.get(at..).and_then(|b| b.get(..stored)).ok_or(at)?,
        };
        if xxh3(chunk.stored) != sum || !f(&chunk) {
            return Err(at);
        }
        at += stored;
    }
    Ok(at)
}

/// What is read of a blob for the beginning of its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    /// Bytes of the table of chunks.
    pub(super) table: usize,
    /// Bytes of the value, which are whole chunks or all of it.
    pub(super) len: usize,
    /// Bytes read behind the header: enough for these, since a chunk never grows.
    pub(super) stored: u64,
    /// The bytes read are table and value, nothing is compressed.
    pub(super) plain: bool,
}

impl Extent {
    /// For the first `wanted` bytes of the value of `blob`.
    pub(super) fn of(blob: &BlobRef, wanted: u64) -> Self {
        if blob.codec != BlobCodec::Chunks {
            return Self {
                table: 0,
                len: blob.len as usize,
                stored: blob.stored,
                plain: blob.codec == BlobCodec::None,
            };
        }
        let table = chunk_table_len(blob.len);
        let len = wanted.max(1).div_ceil(BLOB_CHUNK_LEN);
        let len = len.saturating_mul(BLOB_CHUNK_LEN).min(blob.len);
        Self {
            table: table as usize,
            len: len as usize,
            stored: match len == blob.len {
                true => blob.stored,
                false => blob.stored.min(table + len),
            },
            plain: blob.stored == table + blob.len,
        }
    }
}

#[cfg(test)]
mod tests;
