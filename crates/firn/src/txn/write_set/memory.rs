//! The writes of a write set that are in memory.

use crate::base::key::UNCOMMITTED_BIT;
use crate::base::{Kind, Seqno, Value};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::Arc;

/// Memory of a version without its key and value, in bytes: a slot in the map, a slot in the log,
/// and the headers of two allocations. Measured with a million rows in key order, which leave the
/// map's nodes half full.
const VERSION_OVERHEAD: u64 = 212;

/// [`InMemoryWrites::clear`] keeps room for at most this many writes in the log.
const LOG_KEPT: usize = 32;
/// [`InMemoryWrites::clear`] keeps at most this many bytes of the scratch buffer.
const SCRATCH_KEPT: usize = 1024;

/// Most bytes of an entry in a batch besides its key and value: the kind, and three lengths of at
/// most five bytes each.
const BATCH_ENTRY_OVERHEAD: u64 = 16;

#[derive(Clone)]
pub(super) struct OwnVersion {
    pub(super) position: u64,
    pub(super) kind: Kind,
    head_len: u32,
    /// Head and tail of the value.
    bytes: Arc<[u8]>,
}

impl OwnVersion {
    pub(super) fn seqno(&self) -> Seqno {
        UNCOMMITTED_BIT | self.position
    }

    pub(super) fn value(&self) -> Value<'_> {
        let (head, tail) = self.bytes.split_at(self.head_len as usize);
        Value { head, tail }
    }
}

/// The versions of one user key, at least one.
pub(super) struct OwnVersions {
    /// Oldest first.
    older: Vec<OwnVersion>,
    pub(super) newest: OwnVersion,
}

impl OwnVersions {
    pub(super) fn newest_first(&self) -> impl DoubleEndedIterator<Item = &OwnVersion> {
        std::iter::once(&self.newest).chain(self.older.iter().rev())
    }
}

/// Writes in key order, and in the order of their positions.
///
/// Invariant: `log` lists position and key of every write in `map`, by position. So the cost of a
/// rollback is proportional to the number of writes that it forgets.
#[derive(Default)]
pub(super) struct InMemoryWrites {
    map: BTreeMap<Arc<[u8]>, OwnVersions>,
    log: Vec<(u64, Arc<[u8]>)>,
    bytes: u64,
    /// Scratch buffer of [`Self::joined`].
    scratch: Vec<u8>,
}

impl InMemoryWrites {
    /// Adds a write. `position` is greater than the positions of all others.
    pub(super) fn write(&mut self, position: u64, user_key: &[u8], kind: Kind, value: Value<'_>) {
        self.bytes += version_bytes(user_key.len(), value.len());
        let version = OwnVersion {
            position,
            kind,
            head_len: value.head.len() as u32,
            bytes: self.joined(value),
        };
        match self.map.entry(Arc::from(user_key)) {
            Entry::Vacant(slot) => {
                self.log.push((position, Arc::clone(slot.key())));
                slot.insert(OwnVersions {
                    older: Vec::new(),
                    newest: version,
                });
            }
            Entry::Occupied(mut slot) => {
                self.log.push((position, Arc::clone(slot.key())));
                let versions = slot.get_mut();
                let before = std::mem::replace(&mut versions.newest, version);
                versions.older.push(before);
            }
        }
    }

    /// Forgets all writes. Small buffers stay for the session's next transaction.
    pub(super) fn clear(&mut self) {
        self.map.clear();
        self.log.clear();
        self.log.shrink_to(LOG_KEPT);
        self.bytes = 0;
        self.scratch.clear();
        self.scratch.shrink_to(SCRATCH_KEPT);
    }

    /// Copies both parts of the value into one allocation.
    fn joined(&mut self, value: Value<'_>) -> Arc<[u8]> {
        if value.tail.is_empty() {
            return Arc::from(value.head);
        }
        self.scratch.clear();
        self.scratch.extend_from_slice(value.head);
        self.scratch.extend_from_slice(value.tail);
        Arc::from(&self.scratch[..])
    }

    /// Forgets every write after `position`. Returns whether there was one.
    pub(super) fn rollback_to(&mut self, position: u64) -> bool {
        let keep = self.log.partition_point(|(at, _)| *at <= position);
        let forgets = self.log.len() > keep;
        while self.log.len() > keep {
            let (_, key) = self.log.pop().expect("longer than what is kept");
            let versions = self.map.get_mut(&key).expect("logged");
            let forgotten = match versions.older.pop() {
                Some(before) => {
                    let newest = std::mem::replace(&mut versions.newest, before);
                    newest.bytes.len()
                }
                None => {
                    let versions = self.map.remove(&key).expect("logged");
                    versions.newest.bytes.len()
                }
            };
            self.bytes -= version_bytes(key.len(), forgotten);
        }
        forgets
    }

    /// Adds the writes of `later`, whose positions are greater than all positions in this memory.
    pub(super) fn absorb(&mut self, later: &Self) {
        for (position, key) in &later.log {
            let versions = &later.map[key];
            let mut found = versions.newest_first();
            let version = found.find(|version| version.position == *position);
            let version = version.expect("logged");
            self.write(*position, key, version.kind, version.value());
        }
    }

    /// The position of the last write; 0 if there is none.
    pub(super) fn last(&self) -> u64 {
        self.log.last().map_or(0, |(position, _)| *position)
    }

    /// Whether a user key `k` with `lower ≤ k < upper` is written.
    pub(super) fn touches_range(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let first = self.from(lower).next();
        first.is_some_and(|(key, _)| upper.is_none_or(|upper| &key[..] < upper))
    }

    /// The newest version of `user_key` at or below `bound`.
    pub(super) fn get(&self, user_key: &[u8], bound: Seqno) -> Option<(&[u8], &OwnVersion)> {
        let (key, versions) = self.map.get_key_value(user_key)?;
        let version = versions.newest_first().find(|v| v.seqno() <= bound)?;
        Some((key, version))
    }

    /// All keys in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&[u8], &OwnVersions)> {
        self.map.iter().map(|(key, versions)| (&key[..], versions))
    }

    /// Keys at or after `user_key`, ascending.
    pub(super) fn from(&self, user_key: &[u8]) -> impl Iterator<Item = (&Arc<[u8]>, &OwnVersions)> {
        let from = (Bound::Included(user_key), Bound::Unbounded);
        self.map.range::<[u8], _>(from)
    }

    /// Keys at or before `user_key`, descending; all keys for `None`.
    pub(super) fn until(
        &self,
        user_key: Option<&[u8]>,
    ) -> impl Iterator<Item = (&Arc<[u8]>, &OwnVersions)> {
        let to = user_key.map_or(Bound::Unbounded, Bound::Included);
        self.map.range::<[u8], _>((Bound::Unbounded, to)).rev()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An upper bound of the bytes that the newest versions take in a batch.
    pub(super) fn batch_bytes(&self) -> usize {
        let writes = self.log.len() as u64;
        // Per version, replace the overhead in memory by the most that kind and lengths take in a
        // batch.
        let room = self.bytes - writes * (VERSION_OVERHEAD - BATCH_ENTRY_OVERHEAD);
        room as usize
    }

    pub(super) fn is_empty(&self) -> bool {
        self.map.is_empty()
    }
}

/// Memory of one write, in bytes.
pub(super) fn version_bytes(key_len: usize, value_len: usize) -> u64 {
    (key_len + value_len) as u64 + VERSION_OVERHEAD
}
