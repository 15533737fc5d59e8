//! Decoding one entry.

use super::{Block, FLAG_HEAD_LEN_SAME, FLAG_TAIL_LEN_SAME, FLAG_TRAILER_SAME};
use crate::base::varint;

/// A place between entries: offsets into the raw block. Row-wise blocks use `key` alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Pos {
    pub(super) key: u32,
    pub(super) head: u32,
    pub(super) tail: u32,
}

/// A decoded entry: its key in prefix-compressed form, and where its parts lie in the raw block.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct RawEntry {
    pub(super) shared: u32,
    pub(super) suffix: (u32, u32),
    pub(super) trailer: u64,
    pub(super) head: (u32, u32),
    pub(super) tail: (u32, u32),
    /// The place of the entry that follows.
    pub(super) next: Pos,
}

/// A number at the front of `input`; nearly all fit one byte.
#[inline(always)]
fn small(input: &mut &[u8]) -> Option<u32> {
    match input.split_first() {
        Some((&byte, rest)) if byte < 0x80 => {
            *input = rest;
            Some(u32::from(byte))
        }
        _ => varint::take_u32(input),
    }
}

impl Block {
    /// Decodes the entry at `at`. `None` if it does not lie inside its sections.
    #[inline]
    pub(super) fn entry(&self, at: Pos) -> Option<RawEntry> {
        let keys_end = self.keys_end as usize;
        let mut input = self.raw.get(at.key as usize..keys_end)?;
        let shared = small(&mut input)?;
        let suffix_len = small(&mut input)?;
        let trailer = if self.flags & FLAG_TRAILER_SAME != 0 {
            self.trailer_base
        } else {
            self.trailer_base
                .checked_add(varint::take_u64(&mut input)?)?
        };
        let head_len = if self.flags & FLAG_HEAD_LEN_SAME != 0 {
            self.head_len
        } else {
            small(&mut input)?
        };
        let tail_len = if self.flags & FLAG_TAIL_LEN_SAME != 0 {
            self.tail_len
        } else {
            small(&mut input)?
        };
        let suffix_start = (keys_end - input.len()) as u32;
        let suffix_end = suffix_start.checked_add(suffix_len)?;
        let (head_start, tail_start) = if self.sectioned {
            (at.head, at.tail)
        } else {
            (suffix_end, suffix_end.checked_add(head_len)?)
        };
        let head_end = head_start.checked_add(head_len)?;
        let tail_end = tail_start.checked_add(tail_len)?;
        let next = if self.sectioned {
            if suffix_end > self.keys_end || head_end > self.heads_end || tail_end > self.tails_end
            {
                return None;
            }
            Pos {
                key: suffix_end,
                head: head_end,
                tail: tail_end,
            }
        } else {
            if tail_end > self.keys_end {
                return None;
            }
            Pos {
                key: tail_end,
                head: 0,
                tail: 0,
            }
        };
        Some(RawEntry {
            shared,
            suffix: (suffix_start, suffix_end),
            trailer,
            head: (head_start, head_end),
            tail: (tail_start, tail_end),
            next,
        })
    }
}
