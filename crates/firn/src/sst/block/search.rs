//! Point reads in one block, which compare keys without assembling them in a buffer.

use super::entry::RawEntry;
use super::header::{BlockSection, TRAILER_SAME};
use super::{BUCKET_ABSENT, BUCKET_COLLISION, Block, ByteSpan, bucket_of};
use crate::base::key::SEQNO_MAX;
use crate::base::{Kind, Seqno, Value};
use crate::sst::decode_error::{DecodeError, Decoded};
use std::cmp::Ordering;

/// The outcome of a point read of a key at a seqno in one block.
pub(in crate::sst) enum BlockGet<'a> {
    /// The newest version of the key at or below the seqno.
    Hit(Seqno, Kind, Value<'a>),
    /// The block has no such version, and no later block has one.
    Absent,
    /// The block has no such version, but a later block may have one: all entries of this block lie
    /// before the key at that seqno.
    BeyondBlock,
}

pub(super) const DAMAGED_ENTRY: DecodeError = DecodeError::Corrupt("data block entry");

/// Splits a stored trailer into seqno and kind.
#[inline]
pub(super) fn split_trailer(trailer: u64) -> Decoded<(Seqno, Kind)> {
    let kind = match trailer as u8 {
        kind if kind == Kind::Put as u8 => Kind::Put,
        kind => Kind::from_u8(kind).map_err(|_| DecodeError::Unsupported("entry kind"))?,
    };
    Ok((trailer >> 8, kind))
}

/// The first eight bytes of `bytes` as a big-endian number; shorter strings are padded with zeros.
/// If two byte strings have different numbers, the numbers order them as the strings do.
#[inline]
fn head_of(bytes: &[u8]) -> u64 {
    let mut eight = [0; 8];
    match bytes.first_chunk() {
        Some(first) => eight = *first,
        None => eight[..bytes.len()].copy_from_slice(bytes),
    }
    u64::from_be_bytes(eight)
}

impl Block {
    /// The newest version of `user_key` with a seqno of at most `seqno`; `hash` is the hash of
    /// `user_key`.
    pub(in crate::sst) fn get(
        &self,
        user_key: &[u8],
        hash: u64,
        seqno: Seqno,
    ) -> Decoded<BlockGet<'_>> {
        if self.is_fixed() {
            return self.get_fixed(user_key, seqno);
        }
        let restart = match self.bucket(hash) {
            Some(BUCKET_ABSENT) => return Ok(BlockGet::Absent),
            Some(restart) if restart != BUCKET_COLLISION => u32::from(restart),
            _ => self.restart_before(user_key, seqno)?,
        };
        let mut ordinal = restart
            .checked_mul(self.header.restart_interval)
            .ok_or(DAMAGED_ENTRY)?;
        let mut at = self.restart(restart).ok_or(DAMAGED_ENTRY)?;
        // Number of leading bytes that `user_key` and the previous key have in common. The previous
        // key lies at or below `user_key`. So an entry's key that shares more bytes than this with
        // the previous key lies below `user_key` too, and one that shares fewer lies above it.
        let mut matched = 0;
        while ordinal < self.header.entries {
            let entry = self.entry(at, ordinal).ok_or(DAMAGED_ENTRY)?;
            match self.compare_suffix(&entry, user_key, &mut matched)? {
                Ordering::Greater => return Ok(BlockGet::Absent),
                Ordering::Less => {}
                Ordering::Equal => {
                    if entry.trailer >> 8 <= seqno {
                        return self.hit(entry.trailer, entry.head, entry.tail);
                    }
                }
            }
            at = entry.next;
            ordinal += 1;
        }
        Ok(BlockGet::BeyondBlock)
    }

    fn get_fixed(&self, user_key: &[u8], seqno: Seqno) -> Decoded<BlockGet<'_>> {
        let ordinal = self.fixed_lower_bound(user_key, seqno)?;
        if ordinal >= self.header.entries {
            return Ok(BlockGet::BeyondBlock);
        }
        let rest = user_key.get(self.header.prefix_len as usize..);
        if rest != Some(self.fixed_suffix(ordinal)) || !user_key.starts_with(self.key_prefix()) {
            return Ok(BlockGet::Absent);
        }
        let (trailer, head, tail) = self.parts(ordinal).ok_or(DAMAGED_ENTRY)?;
        self.hit(trailer, head, tail)
    }

    fn hit(&self, trailer: u64, head: ByteSpan, tail: ByteSpan) -> Decoded<BlockGet<'_>> {
        let (seqno, kind) = split_trailer(trailer)?;
        Ok(BlockGet::Hit(seqno, kind, self.value(head, tail)))
    }

    pub(super) fn value(&self, head: ByteSpan, tail: ByteSpan) -> Value<'_> {
        Value::split(self.slice(head), self.slice(tail))
    }

    /// In a block with keys of one length: the first entry at or after (`user_key`, `seqno`), or
    /// the number of entries if there is none.
    pub(super) fn fixed_lower_bound(&self, user_key: &[u8], seqno: Seqno) -> Decoded<u32> {
        let prefix = self.key_prefix();
        let common = prefix.len().min(user_key.len());
        match user_key[..common].cmp(&prefix[..common]) {
            Ordering::Less => return Ok(0),
            Ordering::Greater => return Ok(self.header.entries),
            Ordering::Equal if common < prefix.len() => return Ok(0),
            Ordering::Equal => {}
        }
        let rest = &user_key[common..];
        let head = head_of(rest);
        let (mut low, mut high) = (0, self.header.entries);
        while low < high {
            let mid = low + (high - low) / 2;
            let order = self.suffix_head(mid).cmp(&head);
            let below = match order.then_with(|| self.fixed_suffix(mid).cmp(rest)) {
                Ordering::Less => true,
                Ordering::Greater => false,
                Ordering::Equal => self.parts(mid).ok_or(DAMAGED_ENTRY)?.0 >> 8 > seqno,
            };
            if below {
                low = mid + 1;
            } else {
                high = mid;
            }
        }
        Ok(low)
    }

    /// Number of entries whose user key lies before `user_key`.
    pub(in crate::sst) fn rank(&self, user_key: &[u8]) -> Decoded<u32> {
        if self.is_fixed() {
            return self.fixed_lower_bound(user_key, SEQNO_MAX);
        }
        let restart = self.restart_before(user_key, SEQNO_MAX)?;
        let first = restart.checked_mul(self.header.restart_interval);
        let mut ordinal = first.ok_or(DAMAGED_ENTRY)?;
        let mut at = self.restart(restart).ok_or(DAMAGED_ENTRY)?;
        let mut matched = 0;
        while ordinal < self.header.entries {
            let entry = self.entry(at, ordinal).ok_or(DAMAGED_ENTRY)?;
            if self.compare_suffix(&entry, user_key, &mut matched)? != Ordering::Less {
                break;
            }
            at = entry.next;
            ordinal += 1;
        }
        Ok(ordinal)
    }

    /// In a block with keys of one length: the number of consecutive entries after `ordinal` that
    /// are puts below `limit`, have a stored seqno that `sees` accepts, and have another key than
    /// the entry before. Counting stops at the first entry that does not fit.
    pub(super) fn rows_after(
        &self,
        ordinal: u32,
        limit: Option<&[u8]>,
        sees: impl Fn(Seqno) -> bool,
    ) -> u32 {
        let end = limit.map_or(self.header.entries, |limit| self.fixed_below(limit));
        let is_row = |trailer: u64| {
            split_trailer(trailer).is_ok_and(|(seqno, kind)| kind.is_put() && sees(seqno))
        };
        let len = end.saturating_sub(ordinal + 1);
        if self.header.has(TRAILER_SAME) {
            // All entries have the same seqno, and a file never holds a pair of user key and seqno
            // twice, so all keys differ.
            return if is_row(self.header.trailer_base) {
                len
            } else {
                0
            };
        }
        let mut before = self.suffix_head(ordinal);
        for row in 0..len {
            let at = ordinal + 1 + row;
            let head = self.suffix_head(at);
            let again = head == before && self.fixed_suffix(at) == self.fixed_suffix(at - 1);
            if again || !self.trailer(at).is_some_and(is_row) {
                return row;
            }
            before = head;
        }
        len
    }

    /// In a block with keys of one length: the number of entries with keys below `limit`.
    fn fixed_below(&self, limit: &[u8]) -> u32 {
        let entries = self.header.entries;
        let last = self.fixed_suffix(entries - 1);
        match limit.strip_prefix(self.key_prefix()) {
            // The usual case: all keys lie below `limit`.
            Some(rest) if last < rest => entries,
            // A damaged entry counts as no keys here; the iterator reports the damage when it comes
            // to that entry.
            _ => self.fixed_lower_bound(limit, SEQNO_MAX).unwrap_or(0),
        }
    }

    /// [`head_of`] of the suffix of key `ordinal`, in a block with keys of one length; the key must
    /// exist.
    #[inline]
    fn suffix_head(&self, ordinal: u32) -> u64 {
        let width = self.header.key_width;
        let start = (self.bounds[BlockSection::Keys as usize] + ordinal * width) as usize;
        match (self.bytes.get(start..start + 8), width) {
            (_, 0) => 0,
            (Some(eight), width) => {
                // The eight bytes reach beyond a shorter suffix: zero the bytes behind it.
                let cut = 8 * 8u32.saturating_sub(width);
                let eight = eight.first_chunk().map_or(0, |b| u64::from_be_bytes(*b));
                eight >> cut << cut
            }
            (None, _) => head_of(self.fixed_suffix(ordinal)),
        }
    }

    fn bucket(&self, hash: u64) -> Option<u8> {
        let (start, end) = self.span(BlockSection::Buckets);
        if start == end {
            return None;
        }
        let at = start as usize + bucket_of(hash, (end - start) as usize);
        self.bytes.get(at).copied()
    }

    /// Compares the key of `entry` with `user_key`. The previous entry's key lies at or below
    /// `user_key` and shares `matched` leading bytes with it. Unless the stored prefix length
    /// decides, compares bytes and sets `matched` to the number of leading bytes that the key of
    /// `entry` shares with `user_key`.
    #[inline]
    fn compare_suffix(
        &self,
        entry: &RawEntry,
        user_key: &[u8],
        matched: &mut usize,
    ) -> Decoded<Ordering> {
        let shared = entry.shared as usize;
        if shared > *matched {
            return Ok(Ordering::Less);
        }
        // A key that shares fewer bytes than `matched` lies above `user_key`, unless the scan has
        // come to a restart, where the stored prefix length is always 0. So compare the bytes.
        let rest = user_key.get(shared..).ok_or(DAMAGED_ENTRY)?;
        let suffix = self.slice(entry.suffix);
        let common = suffix.iter().zip(rest).take_while(|(a, b)| a == b).count();
        *matched = shared + common;
        Ok(suffix[common..].first().cmp(&rest[common..].first()))
    }

    /// The last restart whose key lies below (`user_key`, `seqno`), or the first restart if there
    /// is none.
    pub(super) fn restart_before(&self, user_key: &[u8], seqno: Seqno) -> Decoded<u32> {
        let (mut low, mut high) = (0, self.header.restarts());
        while high - low > 1 {
            let mid = low + (high - low) / 2;
            let entry = self.restart_entry(mid)?;
            let below = match self.slice(entry.suffix).cmp(user_key) {
                Ordering::Less => true,
                Ordering::Equal => entry.trailer >> 8 > seqno,
                Ordering::Greater => false,
            };
            if below { low = mid } else { high = mid }
        }
        Ok(low)
    }

    fn restart_entry(&self, restart: u32) -> Decoded<RawEntry> {
        let at = self.restart(restart).ok_or(DAMAGED_ENTRY)?;
        // This product does not overflow: it is the number of an entry of the block, because the
        // block has this restart.
        let ordinal = restart * self.header.restart_interval;
        let entry = self.entry(at, ordinal).ok_or(DAMAGED_ENTRY)?;
        if entry.shared != 0 {
            return Err(DecodeError::Corrupt("restart with a shared prefix"));
        }
        Ok(entry)
    }
}
