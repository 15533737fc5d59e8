//! The writes of a write set that are in memory.

use super::key_order::{KeyOrder, KeyPlace};
use super::stored_versions::{OwnVersion, StoredVersions};
use crate::base::{Kind, Seqno, Value};

/// Estimated memory of a version in bytes, besides its key and value. The list of versions takes 40
/// bytes for it, or 80 just after the list has grown. The order of the keys takes 16 bytes, or 32
/// where blocks are half full. The spare room of the last chunk of bytes does not count.
const VERSION_OVERHEAD: u64 = 112;

/// Upper bound of the bytes that an entry takes in a batch besides its key and value: one for the
/// kind, and at most five for each of three lengths.
const BATCH_ENTRY_OVERHEAD: u64 = 16;

/// The writes in memory, in the order of their keys and in that of their positions.
///
/// A write is appended to `versions`, and its key and value to a buffer that many writes share.
/// Only the version's number is inserted into `order`. So most writes allocate nothing, and the end
/// of the transaction frees a few buffers. A rollback removes the last versions, so its cost is
/// proportional to the number of writes that it forgets.
#[derive(Default)]
pub(super) struct InMemoryWrites {
    versions: StoredVersions,
    order: KeyOrder,
    bytes: u64,
}

/// The versions of one user key, at least one.
#[derive(Clone, Copy)]
pub(super) struct OwnVersions<'a> {
    versions: &'a StoredVersions,
    newest: u32,
}

impl<'a> OwnVersions<'a> {
    pub(super) fn key(&self) -> &'a [u8] {
        self.versions.key(self.newest)
    }

    pub(super) fn newest(&self) -> OwnVersion<'a> {
        self.versions.get(self.newest)
    }

    pub(super) fn newest_first(&self) -> impl Iterator<Item = OwnVersion<'a>> + use<'a> {
        let versions = self.versions;
        let older = move |number: &u32| versions.older(*number);
        let numbers = std::iter::successors(Some(self.newest), older);
        numbers.map(move |number| versions.get(number))
    }
}

impl InMemoryWrites {
    /// Adds a write. `position` is greater than the positions of all others.
    pub(super) fn write(&mut self, position: u64, user_key: &[u8], kind: Kind, value: Value<'_>) {
        self.bytes += version_bytes(user_key.len(), value.len());
        let version = OwnVersion {
            position,
            kind,
            key: user_key,
            value,
        };
        match self.order.search(user_key, &self.versions) {
            Err(place) => {
                let newest = self.versions.push(version, None);
                self.order.insert(place, user_key, newest);
            }
            Ok(place) => {
                let older = Some(self.order.newest(place));
                let newest = self.versions.push(version, older);
                self.order.set_newest(place, newest);
            }
        }
    }

    /// Forgets all writes. Small buffers stay for the session's next transaction.
    pub(super) fn clear(&mut self) {
        self.versions.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Forgets every write after `position`. Returns whether there was one.
    pub(super) fn rollback_to(&mut self, position: u64) -> bool {
        let keep = self.versions.first_after(position);
        if keep == self.versions.len() {
            return false;
        }
        if keep == 0 {
            self.clear();
            return true;
        }
        while self.versions.len() > keep {
            let number = self.versions.len() as u32 - 1;
            let OwnVersion { key, value, .. } = self.versions.get(number);
            self.bytes -= version_bytes(key.len(), value.len());
            let place = self.order.search(key, &self.versions).expect("in order");
            match self.versions.older(number) {
                Some(older) => self.order.set_newest(place, older),
                None => self.order.remove(place),
            }
            self.versions.pop();
        }
        true
    }

    /// Adds the writes of `later`, another part of the same write set. All positions in `later`
    /// must be greater than all positions in `self`.
    pub(super) fn absorb(&mut self, later: &Self) {
        for number in 0..later.versions.len() as u32 {
            let OwnVersion {
                position,
                kind,
                key,
                value,
            } = later.versions.get(number);
            self.write(position, key, kind, value);
        }
    }

    /// The position of the last write; 0 if there is none.
    pub(super) fn last(&self) -> u64 {
        let last = self.versions.len().checked_sub(1);
        last.map_or(0, |last| self.versions.get(last as u32).position)
    }

    /// Whether a user key `k` with `lower ≤ k < upper` is written.
    pub(super) fn touches_range(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let first = self.from(lower).next();
        first.is_some_and(|first| upper.is_none_or(|upper| first.key() < upper))
    }

    /// The newest version of `user_key` at or below `bound`.
    pub(super) fn get(&self, user_key: &[u8], bound: Seqno) -> Option<OwnVersion<'_>> {
        let place = self.order.search(user_key, &self.versions).ok()?;
        let mut versions = self.of(self.order.newest(place)).newest_first();
        versions.find(|version| version.seqno() <= bound)
    }

    fn of(&self, newest: u32) -> OwnVersions<'_> {
        OwnVersions {
            versions: &self.versions,
            newest,
        }
    }

    /// All keys in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = OwnVersions<'_>> {
        self.order.all().map(|newest| self.of(newest))
    }

    /// Keys at or after `user_key`, ascending.
    pub(super) fn from(&self, user_key: &[u8]) -> impl Iterator<Item = OwnVersions<'_>> {
        let place = self.order.search(user_key, &self.versions);
        let numbers = self.order.from(place.unwrap_or_else(|place| place));
        numbers.map(|newest| self.of(newest))
    }

    /// The keys at or before `user_key` in descending order; all keys for `None`.
    pub(super) fn until(&self, user_key: Option<&[u8]>) -> impl Iterator<Item = OwnVersions<'_>> {
        let search = |key| self.order.search(key, &self.versions);
        let place = user_key.map(|key| search(key).map_or_else(|place| place, KeyPlace::after));
        let numbers = self.order.before(place);
        numbers.map(|newest| self.of(newest))
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An upper bound of the bytes that the newest versions take in a batch.
    pub(super) fn batch_bytes(&self) -> usize {
        let writes = self.versions.len() as u64;
        // `bytes` counts `VERSION_OVERHEAD` for each version. In a batch, an entry has only its
        // kind and its lengths in addition to key and value: at most `BATCH_ENTRY_OVERHEAD`, which
        // is less.
        let room = self.bytes - writes * (VERSION_OVERHEAD - BATCH_ENTRY_OVERHEAD);
        room as usize
    }

    /// As [`Self::batch_bytes`], without the versions that a newer one replaces: closer, but slower
    /// to compute.
    pub(super) fn newest_batch_bytes(&self) -> u64 {
        let newest = self.iter().map(|versions| versions.newest());
        let bytes = newest.map(|newest| newest.key.len() + newest.value.len());
        bytes.map(|bytes| bytes as u64 + BATCH_ENTRY_OVERHEAD).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.versions.len() == 0
    }
}

/// Memory of one write, in bytes.
pub(super) fn version_bytes(key_len: usize, value_len: usize) -> u64 {
    (key_len + value_len) as u64 + VERSION_OVERHEAD
}

#[cfg(test)]
mod tests;
