//! Decoding one entry whose key is prefix-compressed.

use super::header::{BlockSection, HEAD_LEN_SAME, TAIL_LEN_SAME, TRAILER_SAME};
use super::{Block, ByteSpan};
use crate::base::varint;

/// A decoded entry: its key in prefix-compressed form, and the spans of its key suffix, value head
/// and value tail in the block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawEntry {
    pub(super) shared: u32,
    pub(super) suffix: ByteSpan,
    pub(super) trailer: u64,
    pub(super) head: ByteSpan,
    pub(super) tail: ByteSpan,
    /// Offset in the block of the entry that follows.
    pub(super) next: u32,
}

impl Block {
    /// Decodes entry number `ordinal`, whose key lies at offset `at`. `None` if the entry reaches
    /// beyond its section.
    #[inline]
    pub(super) fn entry(&self, at: u32, ordinal: u32) -> Option<RawEntry> {
        let (_, keys_end) = self.span(BlockSection::Keys);
        let mut input = self.bytes.get(at as usize..keys_end as usize)?;
        let shared = varint::take_u32(&mut input)?;
        let suffix_len = varint::take_u32(&mut input)?;
        if self.header.sectioned {
            let start = keys_end - input.len() as u32;
            let end = start.checked_add(suffix_len).filter(|e| *e <= keys_end)?;
            let (trailer, head, tail) = self.parts(ordinal)?;
            return Some(RawEntry {
                shared,
                suffix: (start, end),
                trailer,
                head,
                tail,
                next: end,
            });
        }
        let header = &self.header;
        let mut trailer = header.trailer_base;
        if !header.has(TRAILER_SAME) {
            trailer = trailer.checked_add(varint::take_u64(&mut input)?)?;
        }
        let mut length = |same, len| {
            if header.has(same) {
                Some(len)
            } else {
                varint::take_u32(&mut input)
            }
        };
        let head_len = length(HEAD_LEN_SAME, header.head_len)?;
        let tail_len = length(TAIL_LEN_SAME, header.tail_len)?;
        let start = keys_end - input.len() as u32;
        let end = start.checked_add(suffix_len)?;
        let head_end = end.checked_add(head_len)?;
        let next = head_end.checked_add(tail_len).filter(|e| *e <= keys_end)?;
        Some(RawEntry {
            shared,
            suffix: (start, end),
            trailer,
            head: (end, head_end),
            tail: (head_end, next),
            next,
        })
    }
}
