//! The versions in memory, in the order of their positions.

use super::byte_arena::{ArenaAddress, ByteArena};
use crate::base::key::UNCOMMITTED_BIT;
use crate::base::{Kind, Seqno, Value};

/// [`StoredVersions::clear`] keeps room for at most this many versions.
const KEPT_VERSIONS: usize = 32;

/// Value of [`StoredVersion::older`] for the first version of a key, which replaces none.
const NO_VERSION: u32 = u32::MAX;

/// All versions of all keys that a write set holds in memory, in the order in which they were
/// written. A version is named by its number in this order, from 0 on. Only the last version can be
/// removed.
#[derive(Default)]
pub(super) struct StoredVersions {
    list: Vec<StoredVersion>,
    /// The key, head and tail of each version, in the order of `list`.
    bytes: ByteArena,
}

struct StoredVersion {
    position: u64,
    address: ArenaAddress,
    key_len: u32,
    head_len: u32,
    tail_len: u32,
    /// Number of the version of the same key that this one replaces, or [`NO_VERSION`].
    older: u32,
    kind: Kind,
}

/// A version in memory.
#[derive(Clone, Copy)]
pub(super) struct OwnVersion<'a> {
    pub(super) position: u64,
    pub(super) kind: Kind,
    pub(super) key: &'a [u8],
    pub(super) value: Value<'a>,
}

impl OwnVersion<'_> {
    pub(super) fn seqno(&self) -> Seqno {
        UNCOMMITTED_BIT | self.position
    }
}

impl StoredVersions {
    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Adds a version. It replaces an earlier version of the same key, which has the number
    /// `older`; `None` if the key has no earlier version. Returns the number of the new version.
    ///
    /// # Panics
    /// If there are 2^32 - 1 versions, which take more memory than a write set may have.
    pub(super) fn push(&mut self, version: OwnVersion<'_>, older: Option<u32>) -> u32 {
        let number = self.list.len() as u32;
        assert!(self.list.len() < NO_VERSION as usize, "too many versions");
        let Value { head, tail } = version.value;
        self.list.push(StoredVersion {
            position: version.position,
            address: self.bytes.push([version.key, head, tail]),
            key_len: version.key.len() as u32,
            head_len: head.len() as u32,
            tail_len: tail.len() as u32,
            older: older.unwrap_or(NO_VERSION),
            kind: version.kind,
        });
        number
    }

    /// Removes the last version.
    ///
    /// # Panics
    /// If there is none.
    pub(super) fn pop(&mut self) {
        let last = self.list.pop().expect("a version");
        self.bytes.truncate(last.address);
    }

    /// Removes all versions. Small buffers stay for the next ones.
    pub(super) fn clear(&mut self) {
        self.list.clear();
        self.list.shrink_to(KEPT_VERSIONS);
        self.bytes.clear();
    }

    pub(super) fn key(&self, number: u32) -> &[u8] {
        let version = &self.list[number as usize];
        self.bytes.get(version.address, version.key_len as usize)
    }

    pub(super) fn get(&self, number: u32) -> OwnVersion<'_> {
        let version = &self.list[number as usize];
        let lens = [version.key_len, version.head_len, version.tail_len];
        let [key_len, head_len, tail_len] = lens.map(|len| len as usize);
        let bytes = self
            .bytes
            .get(version.address, key_len + head_len + tail_len);
        let (key, value) = bytes.split_at(key_len);
        let (head, tail) = value.split_at(head_len);
        OwnVersion {
            position: version.position,
            kind: version.kind,
            key,
            value: Value { head, tail },
        }
    }

    /// Number of the version that version `number` replaces.
    pub(super) fn older(&self, number: u32) -> Option<u32> {
        let older = self.list[number as usize].older;
        (older != NO_VERSION).then_some(older)
    }

    /// The first version with a position greater than `position`, by its number.
    pub(super) fn first_after(&self, position: u64) -> usize {
        let before = |version: &StoredVersion| version.position <= position;
        self.list.partition_point(before)
    }
}

#[cfg(test)]
impl StoredVersions {
    /// Bytes that the lists take.
    pub(super) fn capacity(&self) -> usize {
        self.list.capacity() * size_of::<StoredVersion>() + self.bytes.capacity()
    }
}
