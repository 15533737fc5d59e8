//! Point reads in one block, without assembling keys.

use super::entry::{Pos, RawEntry};
use super::{BUCKET_ABSENT, BUCKET_COLLISION, Block, bucket_of};
use crate::base::key::unpack_trailer;
use crate::base::{Kind, Seqno, Value};
use crate::sst::damage::{Damage, Decoded};
use std::cmp::Ordering;

/// The outcome of a point read.
pub(in crate::sst) enum Found<'a> {
    /// The newest version at or below the seqno.
    Hit(Seqno, Kind, Value<'a>),
    /// The block holds nothing of the key, and no later block does.
    Absent,
    /// The block ends before a version was found: later blocks may hold older ones.
    Older,
}

pub(super) const DAMAGED_ENTRY: Damage = Damage::Corrupt("data block entry");

/// Splits a stored trailer.
pub(super) fn split_trailer(trailer: u64) -> Decoded<(Seqno, Kind)> {
    unpack_trailer(trailer).map_err(|_| Damage::Unsupported("entry kind"))
}

impl Block {
    /// The newest version of `user_key` with a seqno of at most `seqno`; `hash` is the key's.
    pub(in crate::sst) fn get(
        &self,
        user_key: &[u8],
        hash: u64,
        seqno: Seqno,
    ) -> Decoded<Found<'_>> {
        let restart = match self.bucket(hash) {
            Some(BUCKET_ABSENT) => return Ok(Found::Absent),
            Some(restart) if restart != BUCKET_COLLISION => u32::from(restart),
            _ => self.restart_before(user_key, seqno)?,
        };
        let ordinal = restart.checked_mul(self.restart_interval);
        let mut left = ordinal
            .and_then(|o| self.entries.checked_sub(o))
            .ok_or(DAMAGED_ENTRY)?;
        let mut at = self.restart(restart).ok_or(DAMAGED_ENTRY)?;
        // Bytes of `user_key` that the previous key starts with. That key lies below `user_key`, so
        // a key that shares more with it than this lies below too, and one that shares less above.
        let mut matched = 0;
        while left > 0 {
            let entry = self.entry(at).ok_or(DAMAGED_ENTRY)?;
            match self.compare_suffix(&entry, user_key, &mut matched)? {
                Ordering::Greater => return Ok(Found::Absent),
                Ordering::Less => {}
                Ordering::Equal => {
                    if entry.trailer >> 8 <= seqno {
                        let (seqno, kind) = split_trailer(entry.trailer)?;
                        return Ok(Found::Hit(seqno, kind, self.value(&entry)));
                    }
                }
            }
            at = entry.next;
            left -= 1;
        }
        Ok(Found::Older)
    }

    pub(super) fn value(&self, entry: &RawEntry) -> Value<'_> {
        Value::split(self.slice(entry.head), self.slice(entry.tail))
    }

    fn bucket(&self, hash: u64) -> Option<u8> {
        let len = self.buckets_len as usize;
        if len == 0 {
            return None;
        }
        let at = self.buckets as usize + bucket_of(hash, len);
        self.raw.get(at).copied()
    }

    /// Compares the key of `entry` with `user_key`, of which the previous key has the first
    /// `matched` bytes and lies at or below it; moves `matched` on.
    #[inline]
    fn compare_suffix(
        &self,
        entry: &RawEntry,
        user_key: &[u8],
        matched: &mut usize,
    ) -> Decoded<Ordering> {
        let shared = entry.shared as usize;
        match shared.cmp(matched) {
            Ordering::Greater => return Ok(Ordering::Less),
            Ordering::Less => {
                // Only a key above its predecessor drops shared bytes, the first byte apart: a
                // restart in the middle of the scan shares nothing.
                *matched = shared;
            }
            Ordering::Equal => {}
        }
        let rest = user_key.get(shared..).ok_or(DAMAGED_ENTRY)?;
        let suffix = self.slice(entry.suffix);
        let common = suffix.iter().zip(rest).take_while(|(a, b)| a == b).count();
        *matched = shared + common;
        Ok(suffix[common..].first().cmp(&rest[common..].first()))
    }

    /// The last restart whose key lies below (`user_key`, `seqno`), or the first.
    pub(super) fn restart_before(&self, user_key: &[u8], seqno: Seqno) -> Decoded<u32> {
        let (mut low, mut high) = (0, self.restarts);
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
        let at: Pos = self.restart(restart).ok_or(DAMAGED_ENTRY)?;
        let entry = self.entry(at).ok_or(DAMAGED_ENTRY)?;
        if entry.shared != 0 {
            return Err(Damage::Corrupt("restart with a shared prefix"));
        }
        Ok(entry)
    }
}
