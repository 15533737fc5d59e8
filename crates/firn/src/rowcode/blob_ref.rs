//! The trailer of rows whose blobs lie out of line (entries of kind `PutBlobs`).
//!
//! Found from the end of the tail, without a schema: compaction counts the references of a row it
//! cannot decode.

use super::damaged;
use crate::base::{Error, Result, envelope, varint};
use std::collections::BTreeMap;

/// Bytes of the header before each blob in its file.
pub const BLOB_HEADER_LEN: u64 = 32;

/// A longer value is stored in chunks of so many bytes, the last one of what is left.
pub const BLOB_CHUNK_LEN: u64 = 128 << 10;

/// Bytes of an entry of their table.
pub const CHUNK_ENTRY_LEN: u64 = 12;

/// Bytes of the table of the chunks of a value.
pub fn chunk_table_len(len: u64) -> u64 {
    len.div_ceil(BLOB_CHUNK_LEN) * CHUNK_ENTRY_LEN
}

/// How a blob is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlobCodec {
    /// As it is.
    None = 0,
    /// ZSTD, one frame.
    Zstd = 1,
    /// A table and chunks, each as it is or one ZSTD frame.
    Chunks = 2,
}

impl BlobCodec {
    /// The codec with this byte.
    pub fn from_u8(byte: u8) -> Option<Self> {
        match byte {
            0 => Some(Self::None),
            1 => Some(Self::Zstd),
            2 => Some(Self::Chunks),
            _ => None,
        }
    }
}

/// Set in the codec of a value that is encrypted.
const ENCRYPTED: u8 = 0x80;

/// Where one column's bytes lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRef {
    /// Id of the column.
    pub column: u32,
    /// Id of the blob file.
    pub file: u64,
    /// Offset of the blob, header included, in the file as it was first written.
    pub offset: u64,
    /// Bytes of the value.
    pub len: u64,
    /// How it is stored.
    pub codec: BlobCodec,
    /// Bytes stored, without the header.
    pub stored: u64,
    /// XXH3-64 of the stored bytes, of chunks of their table, plus the term of file and offset.
    pub checksum: u64,
}

impl BlobRef {
    /// Bytes that the blob takes in its file.
    pub fn span(&self) -> u64 {
        self.stored.saturating_add(BLOB_HEADER_LEN)
    }
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
        tail.push(blob.codec as u8);
        if blob.codec != BlobCodec::None {
            varint::put_u64(tail, blob.stored);
        }
        tail.extend_from_slice(&blob.checksum.to_le_bytes());
    }
    let len = (tail.len() - start) as u32;
    tail.extend_from_slice(&len.to_le_bytes());
}

/// Splits a tail that ends with a trailer into the tail proper and the references, still encoded.
fn cut(tail: &[u8]) -> Result<(&[u8], Refs<'_>)> {
    let (rest, footer) = tail
        .split_last_chunk::<FOOTER_LEN>()
        .ok_or_else(|| damaged("blob trailer too short"))?;
    let len = u32::from_le_bytes(*footer) as usize;
    let at = rest
        .len()
        .checked_sub(len)
        .ok_or_else(|| damaged("blob trailer longer than the row"))?;
    let (proper, entries) = rest.split_at(at);
    Ok((proper, Refs(entries)))
}

/// Splits a tail that ends with a trailer into the tail proper and the references.
pub fn split(tail: &[u8]) -> Result<(&[u8], Vec<BlobRef>)> {
    let (proper, refs) = cut(tail)?;
    let refs = refs.collect::<Result<_>>()?;
    Ok((proper, refs))
}

/// Calls `f` with each reference of a tail that ends with a trailer.
pub fn for_each(tail: &[u8], mut f: impl FnMut(BlobRef)) -> Result<()> {
    let (_, refs) = cut(tail)?;
    for blob in refs {
        f(blob?);
    }
    Ok(())
}

/// The references of a trailer.
struct Refs<'a>(&'a [u8]);

impl Iterator for Refs<'_> {
    type Item = Result<BlobRef>;

    fn next(&mut self) -> Option<Result<BlobRef>> {
        if self.0.is_empty() {
            return None;
        }
        let before = self.0;
        let taken = take(&mut self.0);
        if taken.is_none() {
            self.0 = &[];
        }
        Some(taken.ok_or_else(|| refusal(before)))
    }
}

/// Why the reference at the front of `input` cannot be taken.
#[cold]
fn refusal(mut input: &[u8]) -> Error {
    let mut place = || {
        for _ in 0..4 {
            varint::take_u64(&mut input)?;
        }
        varint::take_u8(&mut input)
    };
    match place() {
        Some(codec) if codec & ENCRYPTED != 0 => envelope::refused("a value out of line"),
        _ => damaged("blob reference"),
    }
}

fn take(input: &mut &[u8]) -> Option<BlobRef> {
    let column = varint::take_u32(input)?;
    let file = varint::take_u64(input)?;
    let offset = varint::take_u64(input)?;
    let len = varint::take_u64(input)?;
    let codec = BlobCodec::from_u8(varint::take_u8(input)?)?;
    let stored = match codec {
        BlobCodec::None => len,
        BlobCodec::Zstd | BlobCodec::Chunks => varint::take_u64(input)?,
    };
    // A value is under 4 GiB, and is compressed only where that makes it smaller.
    let table = match codec {
        BlobCodec::Chunks => chunk_table_len(len),
        BlobCodec::None | BlobCodec::Zstd => 0,
    };
    let sane = len <= u64::from(u32::MAX) && offset < 1 << 62 && file < 1 << 62;
    (sane && (table..=table + len).contains(&stored)).then_some(())?;
    Some(BlobRef {
        column,
        file,
        offset,
        len,
        codec,
        stored,
        checksum: varint::take_u64_le(input)?,
    })
}

/// What refers to one blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobUse {
    /// Id of the blob file.
    pub file: u64,
    /// References.
    pub refs: u64,
    /// Bytes that they refer to, headers included.
    pub bytes: u64,
}

/// Sums references by blob file.
#[derive(Debug, Clone, Default)]
pub struct BlobUses(BTreeMap<u64, (u64, u64)>);

impl BlobUses {
    /// Counts the references in the tail of an entry of kind `PutBlobs`.
    ///
    /// # Errors
    /// `Corruption`, without file name, if it has no such trailer.
    pub fn add_tail(&mut self, tail: &[u8]) -> Result<()> {
        for_each(tail, |blob| {
            self.add(BlobUse {
                file: blob.file,
                refs: 1,
                bytes: blob.span(),
            });
        })
    }

    /// Counts what was summed elsewhere.
    pub fn add(&mut self, blobs: BlobUse) {
        let (refs, bytes) = self.0.entry(blobs.file).or_default();
        *refs += blobs.refs;
        *bytes = bytes.saturating_add(blobs.bytes);
    }

    /// The sums, ascending by file.
    pub fn iter(&self) -> impl Iterator<Item = BlobUse> {
        let all = self.0.iter();
        all.map(|(&file, &(refs, bytes))| BlobUse { file, refs, bytes })
    }

    /// The sum of one file.
    pub fn of(&self, file: u64) -> BlobUse {
        let (refs, bytes) = self.0.get(&file).copied().unwrap_or_default();
        BlobUse { file, refs, bytes }
    }

    /// Bytes referred to in all files.
    pub fn bytes(&self) -> u64 {
        let all = self.0.values().map(|&(_, bytes)| bytes);
        all.fold(0, u64::saturating_add)
    }

    /// Whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
