//! The trailer of rows with blob references (entries of kind `PutBlobs`).
//!
//! A reader finds the trailer from the end of the row's tail and needs no schema, because
//! compactions count the references of rows that they cannot decode.

use crate::base::{Error, Result, encryption_envelope, varint};
use std::collections::BTreeMap;

/// Size of the header before each blob in its file, bytes.
pub const BLOB_HEADER_LEN: u64 = 32;

/// A value longer than this is stored in chunks of this size, bytes; the last chunk is shorter. A
/// read of the first bytes of the value reads and decompresses only the chunks that hold them.
pub const BLOB_CHUNK_LEN: u64 = 128 << 10;

/// Size of an entry in the table of chunks, bytes: the stored length of a chunk and its checksum.
pub const CHUNK_ENTRY_LEN: u64 = 12;

/// Size, in bytes, of the table of chunks that stands before the chunks of a value of `len` bytes.
pub fn chunk_table_len(len: u64) -> u64 {
    len.div_ceil(BLOB_CHUNK_LEN) * CHUNK_ENTRY_LEN
}

/// How a blob is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum BlobCodec {
    /// Uncompressed.
    None = 0,
    /// ZSTD, one frame.
    Zstd = 1,
    /// The stored form is a table and chunks; each chunk is uncompressed or one ZSTD frame.
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

/// Flag in the codec byte of an encrypted value.
const ENCRYPTED: u8 = 0x80;

/// The location of one column's bytes in a blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlobRef {
    /// Id of the column.
    pub column: u32,
    /// Logical id of the blob file, which stays the same when blob gc rewrites the file.
    pub file: u64,
    /// Offset at which the blob's header was first written. A rewrite of the file moves the blob,
    /// but not this offset: a table in the new file maps it to the offset at which the blob lies
    /// now.
    pub offset: u64,
    /// Length of the value, bytes.
    pub len: u64,
    /// How the value is stored.
    pub codec: BlobCodec,
    /// Number of stored bytes, without the header.
    pub stored: u64,
    /// XXH3-64 of the stored bytes, or only of the table if the value is stored in chunks, plus a
    /// term that depends on `file` and `offset`.
    pub checksum: u64,
}

impl BlobRef {
    /// Bytes that the blob takes in its file, header included.
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

/// Splits a tail that ends with a trailer into the tail proper and the encoded references.
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
///
/// # Errors
/// `Corruption`, without file name, if the trailer is malformed; `Unsupported` if a value is
/// encrypted.
pub fn split(tail: &[u8]) -> Result<(&[u8], Vec<BlobRef>)> {
    let (proper, refs) = cut(tail)?;
    let refs = refs.collect::<Result<_>>()?;
    Ok((proper, refs))
}

/// Calls `f` with each reference of a tail that ends with a trailer.
///
/// # Errors
/// As [`split`]; `f` may have been called before.
pub fn for_each(tail: &[u8], mut f: impl FnMut(BlobRef)) -> Result<()> {
    let (_, refs) = cut(tail)?;
    for blob in refs {
        f(blob?);
    }
    Ok(())
}

/// Decodes the references of a trailer.
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

/// The error for a reference at the front of `input` that cannot be decoded.
#[cold]
fn refusal(mut input: &[u8]) -> Error {
    let mut place = || {
        for _ in 0..4 {
            varint::take_u64(&mut input)?;
        }
        varint::take_u8(&mut input)
    };
    match place() {
        Some(codec) if codec & ENCRYPTED != 0 => {
            encryption_envelope::refused("a value out of line")
        }
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
    // Refuse impossible numbers: a value is smaller than 4 GiB, and its stored form is no longer
    // than the sum of the lengths of the value and of the table of chunks.
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

/// The references to one blob file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlobUse {
    /// Logical id of the blob file, which stays the same when blob gc rewrites the file.
    pub file: u64,
    /// Number of references.
    pub refs: u64,
    /// Bytes that they refer to, headers included.
    pub bytes: u64,
}

/// Sums references by blob file.
#[derive(Debug, Clone, Default)]
pub struct BlobUses(BTreeMap<u64, (u64, u64)>);

impl BlobUses {
    /// Adds the references in the tail of an entry of kind `PutBlobs`.
    ///
    /// # Errors
    /// As [`split`]; some references may have been added before.
    pub fn add_tail(&mut self, tail: &[u8]) -> Result<()> {
        for_each(tail, |blob| {
            self.add(BlobUse {
                file: blob.file,
                refs: 1,
                bytes: blob.span(),
            });
        })
    }

    /// Adds `blobs` to the sums of its blob file.
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

    /// Number of files with references.
    pub fn files(&self) -> usize {
        self.0.len()
    }

    /// Sum of the bytes over all files.
    pub fn bytes(&self) -> u64 {
        let all = self.0.values().map(|&(_, bytes)| bytes);
        all.fold(0, u64::saturating_add)
    }

    /// Whether there are no references.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// An error for a damaged reference. The caller that reads the file adds its name and the offset to
/// it.
fn damaged(what: &str) -> Error {
    Error::corruption("", 0, format_args!("row: {what}"))
}

#[cfg(test)]
mod tests;
