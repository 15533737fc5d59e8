//! The header of a raw data block, and the sections that follow it.

use super::byte_planes;
use crate::base::varint;

/// All entries have the same trailer, which is `trailer_base`.
pub(super) const TRAILER_SAME: u8 = 1;
/// All value heads have the same length.
pub(super) const HEAD_LEN_SAME: u8 = 2;
/// All value tails have the same length.
pub(super) const TAIL_LEN_SAME: u8 = 4;
/// Sectioned blocks only: all keys have the same length and are stored as an array behind their
/// common prefix.
pub(super) const KEYS_FIXED: u8 = 8;
/// Sectioned blocks only: arrays of keys, trailers and lengths are stored as byte planes.
pub(super) const KEY_PLANES: u8 = 16;
/// Sectioned blocks only: value heads, which have the same length, are stored as byte planes.
pub(super) const HEAD_PLANES: u8 = 32;
/// Sectioned blocks only: value tails, which have the same length, are stored as byte planes.
pub(super) const TAIL_PLANES: u8 = 64;

const ROW_WISE_FLAGS: u8 = TRAILER_SAME | HEAD_LEN_SAME | TAIL_LEN_SAME;
const SECTIONED_FLAGS: u8 = 127;

/// The fields of the header.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct BlockHeader {
    pub(super) sectioned: bool,
    pub(super) flags: u8,
    pub(super) entries: u32,
    /// Number of entries from one key stored in full to the next; 0 if the keys are an array.
    pub(super) restart_interval: u32,
    /// The trailer of all entries, or the base that is added to each stored trailer.
    pub(super) trailer_base: u64,
    /// Length in bytes of each value head, if all are the same.
    pub(super) head_len: u32,
    /// Length in bytes of each value tail, if all are the same.
    pub(super) tail_len: u32,
    /// Keys stored as an array: length in bytes of their common prefix.
    pub(super) prefix_len: u32,
    /// Keys stored as an array: bytes of each key after the common prefix.
    pub(super) key_width: u32,
    /// Prefix-compressed keys: bytes of the section that holds them.
    pub(super) keys_len: u32,
    /// Bytes of all value heads, if their lengths differ.
    pub(super) heads_len: u32,
    /// Bytes of all value tails, if their lengths differ.
    pub(super) tails_len: u32,
    /// Number of buckets of the hash index, each one byte.
    pub(super) buckets_len: u32,
}

/// The sections of a raw block, in stored order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(super) enum BlockSection {
    KeyPrefix,
    Keys,
    Trailers,
    HeadLens,
    TailLens,
    Heads,
    Restarts,
    Buckets,
    /// Tails come last, so that the compressor can split a block in two parts: numbers, then text.
    Tails,
}

pub(super) const SECTIONS: usize = 9;

pub(super) const TRAILER_WIDTH: usize = 8;
pub(super) const LEN_WIDTH: usize = 4;

/// Size of a section in bytes, and the width of its items if it is stored as byte planes (else 0).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SectionSize {
    pub(super) len: usize,
    pub(super) plane_width: usize,
}

impl SectionSize {
    pub(super) fn stored_len(&self, entries: usize) -> Option<usize> {
        match self.plane_width {
            0 => Some(self.len),
            w => byte_planes::stored_len(entries, w),
        }
    }
}

impl BlockHeader {
    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn knows(sectioned: bool, flags: u8) -> bool {
        let known = if sectioned {
            SECTIONED_FLAGS
        } else {
            ROW_WISE_FLAGS
        };
        flags & !known == 0
    }

    pub(super) fn put(&self, out: &mut Vec<u8>) {
        out.push(self.flags);
        self.fields(|present, value| {
            if present {
                varint::put_u64(out, u64::from(value));
            }
        });
        varint::put_u64(out, self.trailer_base);
    }

    /// Calls `f` for each 32-bit field, in stored order. The arguments are whether the flags say
    /// that the field is stored, and the field's value.
    fn fields(&self, mut f: impl FnMut(bool, u32)) {
        let mut copy = *self;
        copy.fields_mut(|present, value| {
            f(present, *value);
            Some(())
        });
    }

    fn fields_mut(&mut self, mut f: impl FnMut(bool, &mut u32) -> Option<()>) -> Option<()> {
        let (sectioned, flags) = (self.sectioned, self.flags);
        let has = |flag| flags & flag != 0;
        let fixed = has(KEYS_FIXED);
        f(true, &mut self.entries)?;
        f(!fixed, &mut self.restart_interval)?;
        f(has(HEAD_LEN_SAME), &mut self.head_len)?;
        f(has(TAIL_LEN_SAME), &mut self.tail_len)?;
        f(fixed, &mut self.prefix_len)?;
        f(fixed, &mut self.key_width)?;
        f(!fixed, &mut self.keys_len)?;
        f(sectioned && !has(HEAD_LEN_SAME), &mut self.heads_len)?;
        f(sectioned && !has(TAIL_LEN_SAME), &mut self.tails_len)?;
        f(!fixed, &mut self.buckets_len)
    }

    /// Takes the header from the front of `input`; the caller must have checked that the flags are
    /// known.
    pub(super) fn take(sectioned: bool, input: &mut &[u8]) -> Option<Self> {
        let mut header = Self {
            sectioned,
            flags: varint::take_u8(input)?,
            ..Self::default()
        };
        header.fields_mut(|present, value| {
            if present {
                *value = varint::take_u32(input)?;
            }
            Some(())
        })?;
        header.trailer_base = varint::take_u64(input)?;
        let fixed = header.has(KEYS_FIXED);
        // Entries that take no bytes at all would let a damaged header claim any number of entries.
        // More than one is never legal: several versions of one key have different trailers.
        let empty = fixed && header.key_width == 0 && header.has(TRAILER_SAME);
        let walkable = fixed || header.restart_interval > 0;
        (header.entries > 0 && walkable && !(empty && header.entries > 1)).then_some(header)
    }

    /// Number of restarts, that is, of keys stored in full.
    pub(super) fn restarts(&self) -> u32 {
        match self.restart_interval {
            0 => 0,
            interval => self.entries.div_ceil(interval),
        }
    }

    /// The sizes of the sections behind the header. `None` if a size overflows.
    pub(super) fn pieces(&self) -> Option<[SectionSize; SECTIONS]> {
        let n = self.entries as usize;
        let mut pieces = [SectionSize::default(); SECTIONS];
        let mut set = |part: BlockSection, width: usize, count: usize, planes: bool| {
            pieces[part as usize] = SectionSize {
                len: width.checked_mul(count)?,
                plane_width: if planes { width } else { 0 },
            };
            Some(())
        };
        if self.has(KEYS_FIXED) {
            let planes = self.has(KEY_PLANES);
            set(BlockSection::KeyPrefix, self.prefix_len as usize, 1, false)?;
            set(BlockSection::Keys, self.key_width as usize, n, planes)?;
        } else {
            set(BlockSection::Keys, self.keys_len as usize, 1, false)?;
            set(BlockSection::Restarts, 4, self.restarts() as usize, false)?;
            set(BlockSection::Buckets, self.buckets_len as usize, 1, false)?;
        }
        if self.sectioned {
            let planes = self.has(KEY_PLANES);
            if !self.has(TRAILER_SAME) {
                set(BlockSection::Trailers, TRAILER_WIDTH, n, planes)?;
            }
            if self.has(HEAD_LEN_SAME) {
                let width = self.head_len as usize;
                set(BlockSection::Heads, width, n, self.has(HEAD_PLANES))?;
            } else {
                set(BlockSection::HeadLens, LEN_WIDTH, n, planes)?;
                set(BlockSection::Heads, self.heads_len as usize, 1, false)?;
            }
            if self.has(TAIL_LEN_SAME) {
                let width = self.tail_len as usize;
                set(BlockSection::Tails, width, n, self.has(TAIL_PLANES))?;
            } else {
                set(BlockSection::TailLens, LEN_WIDTH, n, planes)?;
                set(BlockSection::Tails, self.tails_len as usize, 1, false)?;
            }
        }
        Some(pieces)
    }
}
