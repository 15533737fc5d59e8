//! Data blocks: sorted entries.
//!
//! Two layouts. *Row-wise* puts each value beside its key, keys prefix-compressed between restarts:
//! cheap to build, and one place in memory serves a small row. *Sectioned* keeps keys, trailers,
//! heads and tails apart, so that similar bytes are neighbours. Keys of one length (integers, most
//! often) are an array after their common prefix, searched directly; others are prefix-compressed.
//!
//! A trailer or a length of heads or tails that all entries share is stored once.
//! A block is read in one form and stored in another: arrays are stored as byte planes where that
//! compresses better (`planes`), and turned back once, when the block is loaded.
//!
//! Rejected: columns cut by the schema (denser by little over byte planes, and the engine would
//! have to know the schema below the row format); offsets of all prefix-compressed entries instead
//! of restarts (bytes that do not compress).

mod builder;
mod byte_planes;
mod entry;
mod header;
mod iter;
mod key_buf;
mod plane_layout;
mod search;

pub(super) use builder::BlockBuilder;
pub(super) use iter::BlockIter;
pub(super) use plane_layout::{PlaneLayout, StoredForm, to_stored_form};
pub(super) use search::BlockGet;

use super::decode_error::{DecodeError, Decoded};
use super::format::BlockKind;
use crate::cache::Weighted;
use header::{
    BlockHeader, BlockSection, HEAD_LEN_SAME, KEYS_FIXED, LEN_WIDTH, SECTIONS, TAIL_LEN_SAME,
    TRAILER_SAME, TRAILER_WIDTH,
};

/// Entries between two keys stored in full.
const RESTART_INTERVAL: usize = 16;

const BUCKET_ABSENT: u8 = 255;
const BUCKET_COLLISION: u8 = 254;
/// A bucket of the hash index stores the number of a restart in one byte.
const HASHED_RESTARTS_MAX: usize = 253;

/// The bucket of a key among `buckets`, from the lower half of the key's hash.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize
}

/// A span of bytes in a block.
type ByteSpan = (u32, u32);

/// A decoded data block, as the block cache holds it.
///
/// Invariant: the pieces lie inside `bytes` and in order, and have the sizes the header gives;
/// everything inside them is checked when it is read, since a cached block is loaded far less often
/// than it is read.
pub struct Block {
    bytes: Box<[u8]>,
    header: BlockHeader,
    bounds: [u32; SECTIONS + 1],
}

impl Weighted for Block {
    fn weight(&self) -> u64 {
        (self.bytes.len() + size_of::<Self>()) as u64
    }
}

impl Block {
    /// Decodes a raw data block and checks the bounds of its pieces.
    pub(super) fn new(kind: BlockKind, raw: Vec<u8>) -> Decoded<Self> {
        if !kind.is_data() {
            return Err(DecodeError::Corrupt(
                "no data block where the index names one",
            ));
        }
        let sectioned = kind == BlockKind::Sectioned;
        if raw
            .first()
            .is_some_and(|&flags| !BlockHeader::knows(sectioned, flags))
        {
            return Err(DecodeError::Unsupported("data block flags"));
        }
        Self::parse(sectioned, raw).ok_or(DecodeError::Corrupt("data block header"))
    }

    fn parse(sectioned: bool, raw: Vec<u8>) -> Option<Self> {
        let mut input = &raw[..];
        let header = BlockHeader::take(sectioned, &mut input)?;
        let header_len = raw.len() - input.len();
        let pieces = plane_layout::to_read_form(&header, raw, header_len)?;
        let mut block = Self {
            bytes: pieces.bytes.into_boxed_slice(),
            header,
            bounds: pieces.bounds,
        };
        if sectioned {
            for (same, lens, values) in [
                (HEAD_LEN_SAME, BlockSection::HeadLens, BlockSection::Heads),
                (TAIL_LEN_SAME, BlockSection::TailLens, BlockSection::Tails),
            ] {
                if !header.has(same) {
                    block.sum_lengths(lens, values)?;
                }
            }
        }
        Some(block)
    }

    /// Turns the lengths of one piece into the ends of the values of another.
    fn sum_lengths(&mut self, lens: BlockSection, values: BlockSection) -> Option<()> {
        let (start, end) = self.span(lens);
        let (values_start, values_end) = self.span(values);
        let mut at = values_start;
        for word in self.bytes[start as usize..end as usize].chunks_exact_mut(LEN_WIDTH) {
            let len = u32::from_le_bytes(word.try_into().ok()?);
            at = at.checked_add(len).filter(|at| *at <= values_end)?;
            word.copy_from_slice(&at.to_le_bytes());
        }
        (at == values_end).then_some(())
    }

    fn span(&self, part: BlockSection) -> ByteSpan {
        let at = part as usize;
        (self.bounds[at], self.bounds[at + 1])
    }

    fn slice(&self, (start, end): ByteSpan) -> &[u8] {
        // Bounds were checked when the span was made from this very block.
        self.bytes.get(start as usize..end as usize).unwrap_or(&[])
    }

    /// Item `i` of an array of 32-bit numbers.
    fn word(&self, part: BlockSection, i: u32) -> Option<u32> {
        let (start, end) = self.span(part);
        let at = start as usize + 4 * i as usize;
        let bytes = self.bytes.get(at..end as usize)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// The common prefix of fixed keys.
    fn key_prefix(&self) -> &[u8] {
        self.slice(self.span(BlockSection::KeyPrefix))
    }

    /// The bytes after the prefix in fixed key `ordinal`, which exists.
    #[inline]
    fn fixed_suffix(&self, ordinal: u32) -> &[u8] {
        let width = self.header.key_width;
        let start = self.bounds[BlockSection::Keys as usize] + ordinal * width;
        self.slice((start, start + width))
    }

    /// Trailer of entry `ordinal` of a sectioned block; the entry exists.
    #[inline]
    fn trailer(&self, ordinal: u32) -> Option<u64> {
        let base = self.header.trailer_base;
        if self.header.has(TRAILER_SAME) {
            return Some(base);
        }
        let (start, end) = self.span(BlockSection::Trailers);
        let at = start as usize + TRAILER_WIDTH * ordinal as usize;
        let bytes = self.bytes.get(at..end as usize)?.first_chunk::<8>()?;
        base.checked_add(u64::from_le_bytes(*bytes))
    }

    /// Trailer, head and tail of entry `ordinal` of a sectioned block; the entry exists.
    #[inline]
    fn parts(&self, ordinal: u32) -> Option<(u64, ByteSpan, ByteSpan)> {
        let header = &self.header;
        let trailer = self.trailer(ordinal)?;
        let value = |same, len: u32, lens: BlockSection, values: BlockSection| {
            let start = self.bounds[values as usize];
            Some(if header.has(same) {
                let start = start + ordinal * len;
                (start, start + len)
            } else {
                let from = match ordinal.checked_sub(1) {
                    Some(before) => self.word(lens, before)?,
                    None => start,
                };
                (from, self.word(lens, ordinal)?)
            })
        };
        Some((
            trailer,
            value(
                HEAD_LEN_SAME,
                header.head_len,
                BlockSection::HeadLens,
                BlockSection::Heads,
            )?,
            value(
                TAIL_LEN_SAME,
                header.tail_len,
                BlockSection::TailLens,
                BlockSection::Tails,
            )?,
        ))
    }

    /// Offset of the entry at restart `restart`.
    fn restart(&self, restart: u32) -> Option<u32> {
        let (start, _) = self.span(BlockSection::Keys);
        start.checked_add(self.word(BlockSection::Restarts, restart)?)
    }

    fn is_fixed(&self) -> bool {
        self.header.has(KEYS_FIXED)
    }
}

#[cfg(test)]
mod tests;
