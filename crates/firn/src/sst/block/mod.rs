//! Data blocks: sorted entries, prefix-compressed between restarts.
//!
//! Two layouts share one encoding of keys. Row-wise puts each value beside its key: one cache line
//! serves a small row, and it is cheap to build. Sectioned keeps keys, heads and tails apart, so
//! that like lies beside like and compresses better. What all entries have in common (trailer,
//! length of the heads, of the tails) is stored once.
//!
//! Rejected: columns inside the sections (denser by a few percent, but rows must be put together
//! again for each read); a full offset array instead of restarts (bytes that do not compress).

mod builder;
mod cursor;
mod entry;
mod search;

pub(super) use builder::BlockBuilder;
pub(super) use cursor::BlockCursor;
pub(super) use search::Found;

use super::damage::{Damage, Decoded};
use super::format::BlockKind;
use crate::base::varint;
use crate::cache::Weighted;
use entry::Pos;

/// Entries between two keys stored in full.
const RESTART_INTERVAL: usize = 16;

const FLAG_TRAILER_SAME: u8 = 1;
const FLAG_HEAD_LEN_SAME: u8 = 2;
const FLAG_TAIL_LEN_SAME: u8 = 4;
const FLAGS_KNOWN: u8 = 7;

const BUCKET_ABSENT: u8 = 255;
const BUCKET_COLLISION: u8 = 254;
/// A bucket names a restart in one byte.
const HASHED_RESTARTS_MAX: usize = 253;

/// The bucket of a key among `buckets`; the filter uses the other half of the hash.
fn bucket_of(hash: u64, buckets: usize) -> usize {
    (((hash & 0xffff_ffff) * buckets as u64) >> 32) as usize
}

/// A decoded data block, as the block cache holds it.
///
/// Invariant: the section bounds lie inside `raw` and in order; everything inside the sections is
/// checked when it is read, since a cached block is read far less often than it is entered.
pub struct Block {
    raw: Box<[u8]>,
    sectioned: bool,
    flags: u8,
    entries: u32,
    restart_interval: u32,
    trailer_base: u64,
    head_len: u32,
    tail_len: u32,
    keys: u32,
    keys_end: u32,
    heads_end: u32,
    tails_end: u32,
    restarts: u32,
    restart_arrays: u32,
    buckets: u32,
    buckets_len: u32,
}

impl Weighted for Block {
    fn weight(&self) -> u64 {
        (self.raw.len() + size_of::<Self>()) as u64
    }
}

impl Block {
    /// Reads the header of a raw data block and checks the bounds of its sections.
    pub(super) fn new(kind: BlockKind, raw: Vec<u8>) -> Decoded<Self> {
        if !kind.is_data() {
            return Err(Damage::Corrupt("no data block where the index names one"));
        }
        let unknown = raw.first().is_none_or(|flags| flags & !FLAGS_KNOWN != 0);
        if unknown && !raw.is_empty() {
            return Err(Damage::Unsupported("data block flags"));
        }
        Self::parse(kind == BlockKind::Sectioned, raw).ok_or(Damage::Corrupt("data block header"))
    }

    fn parse(sectioned: bool, raw: Vec<u8>) -> Option<Self> {
        let mut input = &raw[..];
        let flags = varint::take_u8(&mut input)?;
        let entries = varint::take_u32(&mut input)?;
        let restart_interval = varint::take_u32(&mut input)?;
        let trailer_base = varint::take_u64(&mut input)?;
        let mut length_if = |flag| match flags & flag {
            0 => Some(0),
            _ => varint::take_u32(&mut input),
        };
        let head_len = length_if(FLAG_HEAD_LEN_SAME)?;
        let tail_len = length_if(FLAG_TAIL_LEN_SAME)?;
        let keys_len = varint::take_u32(&mut input)?;
        let (mut heads_len, mut tails_len) = (0, 0);
        if sectioned {
            heads_len = varint::take_u32(&mut input)?;
            tails_len = varint::take_u32(&mut input)?;
        }
        let buckets_len = varint::take_u32(&mut input)?;
        if entries == 0 || restart_interval == 0 {
            return None;
        }
        let keys = (raw.len() - input.len()) as u32;
        let keys_end = keys.checked_add(keys_len)?;
        let heads_end = keys_end.checked_add(heads_len)?;
        let tails_end = heads_end.checked_add(tails_len)?;
        let restarts = entries.div_ceil(restart_interval);
        let arrays = 1
            + u32::from(sectioned && flags & FLAG_HEAD_LEN_SAME == 0)
            + u32::from(sectioned && flags & FLAG_TAIL_LEN_SAME == 0);
        let restarts_len = restarts.checked_mul(4)?.checked_mul(arrays)?;
        let buckets = tails_end.checked_add(restarts_len)?;
        if buckets.checked_add(buckets_len)? as usize != raw.len() {
            return None;
        }
        Some(Self {
            sectioned,
            flags,
            entries,
            restart_interval,
            trailer_base,
            head_len,
            tail_len,
            keys,
            keys_end,
            heads_end,
            tails_end,
            restarts,
            restart_arrays: tails_end,
            buckets,
            buckets_len,
            raw: raw.into_boxed_slice(),
        })
    }

    /// Where the first entry after restart `restart` lies in the sections.
    fn restart(&self, restart: u32) -> Option<Pos> {
        if restart >= self.restarts {
            return None;
        }
        let word = |array: u32| {
            let at = (self.restart_arrays + 4 * (array * self.restarts + restart)) as usize;
            let bytes = self.raw.get(at..at + 4)?.first_chunk::<4>()?;
            Some(u32::from_le_bytes(*bytes))
        };
        let key = self.keys.checked_add(word(0)?)?;
        if !self.sectioned {
            return Some(Pos {
                key,
                head: 0,
                tail: 0,
            });
        }
        let ordinal = restart.checked_mul(self.restart_interval)?;
        let mut array = 0;
        let mut offset = |flag: u8, len: u32| {
            if self.flags & flag != 0 {
                ordinal.checked_mul(len)
            } else {
                array += 1;
                word(array)
            }
        };
        let head = offset(FLAG_HEAD_LEN_SAME, self.head_len)?;
        let tail = offset(FLAG_TAIL_LEN_SAME, self.tail_len)?;
        Some(Pos {
            key,
            head: self.keys_end.checked_add(head)?,
            tail: self.heads_end.checked_add(tail)?,
        })
    }

    fn slice(&self, (start, end): (u32, u32)) -> &[u8] {
        // Bounds were checked when the entry was decoded from this very block.
        self.raw.get(start as usize..end as usize).unwrap_or(&[])
    }
}

#[cfg(test)]
mod tests;
