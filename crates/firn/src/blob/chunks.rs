//! The stored form of a value that is longer than one chunk: a table of chunks, then the chunks.
//! `docs/formats/blob.md` has the byte format.
//!
//! ```text
//! value of 300 KiB: table (3 entries, checked by the reference) | 128 KiB | 128 KiB | 44 KiB
//! all of it:        one read
//! its first byte:   one read of the table and the first chunk
//! ```

use super::value_compression;
use crate::base::blob_ref::{BLOB_CHUNK_LEN, BlobCodec, BlobRef, CHUNK_ENTRY_LEN, chunk_table_len};
use crate::base::checksum::xxh3;
use std::ops::Range;

const CHUNK: usize = BLOB_CHUNK_LEN as usize;
const ENTRY: usize = CHUNK_ENTRY_LEN as usize;

/// Whether a value of `len` bytes is stored in chunks.
pub(super) fn in_chunks(len: usize) -> bool {
    len > CHUNK
}

/// Splits `value` into chunks and compresses each with `pack`; a chunk for which `pack` returns
/// `None` stays plain. Returns the table of the chunks and the stored chunks. Instead of the chunks
/// it returns `None` if all of them stay plain; then the caller stores `value` itself behind the
/// table.
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

/// A chunk that was read from the file.
pub(super) struct Chunk<'a> {
    /// Range of the chunk in the value.
    pub(super) place: Range<usize>,
    /// Stored bytes of the chunk. If their number equals the length of `place`, they are the plain
    /// bytes, otherwise they are compressed.
    pub(super) stored: &'a [u8],
}

impl Chunk<'_> {
    /// Writes the plain bytes of the chunk to its range of `value`. Returns false if the stored
    /// bytes do not decompress to the length of that range.
    pub(super) fn unpack_to(&self, value: &mut [u8]) -> bool {
        let place = &mut value[self.place.clone()];
        match self.is_plain() {
            true => {
                place.copy_from_slice(self.stored);
                true
            }
            false => value_compression::unpack(self.stored, place),
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        self.stored.len() == self.place.len()
    }
}

/// The ranges behind the table, with their checksums, of the chunks that hold the first `len` bytes
/// of a value.
pub(super) fn places(table: &[u8], len: usize) -> impl Iterator<Item = (Range<usize>, u64)> {
    let mut at = 0;
    let entries = table.chunks_exact(ENTRY).take(len.div_ceil(CHUNK));
    entries.map(move |entry| {
        let (stored, sum) = entry.split_at(4);
        let stored = u32::from_le_bytes(stored.try_into().expect("four bytes")) as usize;
        let sum = u64::from_le_bytes(sum.try_into().expect("eight bytes"));
        let place = at..at + stored;
        at = place.end;
        (place, sum)
    })
}

/// Verifies the chunks that hold the first `len` bytes of a value against the checksums in `table`,
/// and calls `f` with each. `body` has the stored bytes of the blob behind its table. Returns how
/// many bytes of `body` the verified chunks take. If a chunk is damaged or `f` returns false for
/// it, the error is the offset of that chunk in `body`.
pub(super) fn for_each(
    table: &[u8],
    body: &[u8],
    len: usize,
    mut f: impl FnMut(&Chunk<'_>) -> bool,
) -> Result<usize, usize> {
    let mut end = 0;
    for (number, (place, sum)) in places(table, len).enumerate() {
        let start = number * CHUNK;
        let chunk = Chunk {
            place: start..len.min(start + CHUNK),
            stored: body.get(place.clone()).ok_or(place.start)?,
        };
        if xxh3(chunk.stored) != sum || !f(&chunk) {
            return Err(place.start);
        }
        end = place.end;
    }
    Ok(end)
}

/// The part of a blob that a reader must read to get a prefix of the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlobReadExtent {
    /// Length of the table of chunks in bytes; 0 for a blob without chunks.
    pub(super) table: usize,
    /// Length of the prefix of the value that the read yields, in bytes before compression. The
    /// prefix that the reader asked for is rounded up to whole chunks; without chunks it is the
    /// whole value.
    pub(super) len: usize,
    /// Number of bytes to read after the blob's header. They are the table and all stored bytes of
    /// the prefix, and perhaps more: the stored length of the chunks is unknown before the table is
    /// read, so their plain length, which is never less, is taken.
    pub(super) stored: u64,
    /// Whether no stored byte is compressed, judged by the lengths. Then the stored bytes are the
    /// table followed by the value.
    pub(super) plain: bool,
}

impl BlobReadExtent {
    /// The part to read for the first `wanted` bytes of the value of `blob`.
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
