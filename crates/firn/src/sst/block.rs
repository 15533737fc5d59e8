//! Data blocks: sorted entries.
//!
//! There are two layouts. *Row-wise* puts each value beside its key, and keys are prefix-compressed
//! between restarts: such a block is cheap to build, and the key and value of a small row lie on
//! the same cache line. *Sectioned* keeps all keys, all trailers (seqno and kind), all value heads
//! and all value tails in sections of their own, so that similar bytes are neighbours and compress
//! well.
//! In a sectioned block, keys of one length (integers, most often) are an array behind their common
//! prefix and are searched directly; keys of other lengths are prefix-compressed.
//!
//! If all entries of a block have the same trailer, head length or tail length, the header has it
//! and the entries do not.
//! A block has a read form, which the block cache holds, and a stored form. The stored form has
//! arrays as byte planes where that compresses better (`plane_layout`); loading the block turns
//! them back into arrays.
//!
//! Rejected: one section per column of the row. It compresses only a little better than byte
//! planes, and SSTs would have to know the table's schema.
//! Rejected: the offset of each prefix-compressed entry instead of restarts. These offsets do not
//! compress.

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

/// A prefix-compressed key is stored in full at each restart; this is the number of entries from
/// one restart to the next.
const RESTART_INTERVAL: usize = 16;

const BUCKET_ABSENT: u8 = 255;
const BUCKET_COLLISION: u8 = 254;
/// Largest number of restarts in a block with a hash index: a bucket stores a restart number in one
/// byte, of which two values are reserved.
const HASHED_RESTARTS_MAX: usize = 253;

/// The bucket of a key in a hash index of `buckets` buckets, from the lower half of the key's hash.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize
}

/// Start and end of a range of bytes in a block.
type ByteSpan = (u32, u32);

/// A decoded data block, as the block cache holds it.
///
/// Invariant: the sections lie in order inside `bytes`, and their sizes agree with the header. The
/// content of a section is checked each time it is read, because checking all of it when the block
/// is loaded would cost too much.
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
    /// Decodes an uncompressed data block and checks the bounds of its sections.
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

    /// Replaces, in place, the value lengths in section `lens` by the offsets where the values of
    /// section `values` end. `None` if the lengths do not add up to the size of `values`.
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
        // All spans were checked against the size of this block when it was decoded, so the bytes
        // exist.
        self.bytes.get(start as usize..end as usize).unwrap_or(&[])
    }

    /// Number `i` of a section that is an array of 32-bit numbers.
    fn word(&self, part: BlockSection, i: u32) -> Option<u32> {
        let (start, end) = self.span(part);
        let at = start as usize + 4 * i as usize;
        let bytes = self.bytes.get(at..end as usize)?.first_chunk::<4>()?;
        Some(u32::from_le_bytes(*bytes))
    }

    /// The common prefix of all keys in a block with keys of one length.
    fn key_prefix(&self) -> &[u8] {
        self.slice(self.span(BlockSection::KeyPrefix))
    }

    /// In a block with keys of one length: the bytes of key `ordinal` after the common prefix. The
    /// key must exist.
    #[inline]
    fn fixed_suffix(&self, ordinal: u32) -> &[u8] {
        let width = self.header.key_width;
        let start = self.bounds[BlockSection::Keys as usize] + ordinal * width;
        self.slice((start, start + width))
    }

    /// Trailer (seqno and kind) of entry `ordinal` of a sectioned block; the entry must exist.
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

    /// Trailer, value head and value tail of entry `ordinal` of a sectioned block; the entry must
    /// exist.
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

    /// Offset in the block of the first entry of restart `restart`.
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
