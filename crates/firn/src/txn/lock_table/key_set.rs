//! A sorted set of keys in little memory, for the locks of a large statement, and for the keys that
//! an optimistic transaction validates.
//!
//! Example: the keys 7, 8, 9, 10, 20 (as 8-byte numbers) and "x" behind one index id make one block
//! `7 | 3 × +1 | 1 × +10 | "x"`, with the bytes `06 01`, `02 0a`, `09 01 78` for the steps after
//! the first key. A million rows with consecutive numbers take one block of a few bytes. A key
//! without such order takes two to about ten bytes more than the suffix that differs from the key
//! before.

mod key_block;

use crate::base::key::INDEX_ID_LEN;
use key_block::{Block, BlockWalk, KeyRemoval};
use std::collections::{BTreeMap, btree_map};
use std::ops::Bound;

/// A sorted set of keys in blocks, by the first key of each block.
///
/// Invariants: blocks are not empty, ascend, do not overlap, and each has keys of one index only.
/// The set holds exactly the keys put into it, so no key is locked that its owner did not request.
///
/// Rejected: intervals that stand for all keys between two bounds. They are smaller where keys have
/// no arithmetic order, but also lock keys without rows: inserts between two rows would wait at
/// READ COMMITTED, where they need not wait in InnoDB; and each merge would have to look for rows
/// in between that other owners hold. Rejected as well: hashes of the keys. They have no order, so
/// there would be no bounds to report, and take 16 bytes per key where consecutive numbers take
/// none.
#[derive(Default)]
pub(in crate::txn) struct KeySet {
    blocks: BTreeMap<Box<[u8]>, Block>,
    len: u64,
}

/// Whether two keys lie in one index.
pub(super) fn same_index(one: &[u8], other: &[u8]) -> bool {
    let index = |key: &[u8]| key.len().min(INDEX_ID_LEN);
    one[..index(one)] == other[..index(other)]
}

impl KeySet {
    /// Number of keys.
    pub(in crate::txn) fn len(&self) -> u64 {
        self.len
    }

    /// Number of blocks.
    #[cfg(test)]
    pub(super) fn blocks(&self) -> usize {
        self.blocks.len()
    }

    /// Memory, in bytes.
    pub(in crate::txn) fn bytes(&self) -> u64 {
        // Memory of a block in the map, besides the bytes of its first key: the map's slot for that
        // key, and the header of the key's allocation.
        const ENTRY: usize = size_of::<Box<[u8]>>() + 16;
        let blocks = self.blocks.iter();
        blocks
            .map(|(first, block)| (ENTRY + first.len() + block.bytes()) as u64)
            .sum()
    }

    /// Whether `key` is in the set.
    pub(in crate::txn) fn contains(&self, key: &[u8]) -> bool {
        let found = self.before(key);
        found.is_some_and(|(first, block)| block.contains(first, key))
    }

    /// The last block that begins at or before `key`.
    fn before(&self, key: &[u8]) -> Option<(&[u8], &Block)> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (first, block) = self.blocks.range::<[u8], _>(up_to).next_back()?;
        Some((first, block))
    }

    fn before_mut(&mut self, key: &[u8]) -> Option<(&[u8], &mut Block)> {
        let up_to = (Bound::Unbounded, Bound::Included(key));
        let (first, block) = self.blocks.range_mut::<[u8], _>(up_to).next_back()?;
        Some((first, block))
    }

    /// Adds `key`, which is not in the set, if it is greater than all keys of the last block that
    /// begins before it: then it goes to the end of that block or begins a new one, which is cheap.
    /// Otherwise leaves the set as it is. Returns whether the key was added.
    pub(super) fn append(&mut self, key: &[u8]) -> bool {
        match self.before_mut(key) {
            Some((first, block))
                if block.last() < key && block.has_room() && same_index(first, key) =>
            {
                block.append(key);
                self.len += 1;
                true
            }
            Some((_, block)) if block.last() < key => {
                block.close();
                self.begin(key);
                true
            }
            _ => false,
        }
    }

    /// Adds a new block for `key`.
    fn begin(&mut self, key: &[u8]) {
        let before = self.blocks.insert(key.into(), Block::new(key));
        debug_assert!(before.is_none(), "a key is locked once");
        self.len += 1;
    }

    /// Adds `key`, which is not in the set.
    pub(in crate::txn) fn insert(&mut self, key: &[u8]) {
        if self.append(key) {
            return;
        }
        let Some((first, block)) = self.before_mut(key) else {
            return self.insert_first(key);
        };
        block.insert(first, key);
        let halves = (!block.has_room()).then(|| block.split(first)).flatten();
        if let Some((first, block)) = halves {
            self.blocks.insert(first, block);
        }
        self.len += 1;
    }

    /// Adds a key before all others.
    fn insert_first(&mut self, key: &[u8]) {
        let next = self.blocks.first_entry();
        match next.filter(|next| next.get().has_room() && same_index(next.key(), key)) {
            None => self.begin(key),
            Some(next) => {
                let (first, mut block) = next.remove_entry();
                block.prepend(key, &first);
                self.blocks.insert(key.into(), block);
                self.len += 1;
            }
        }
    }

    /// Removes `key`. Returns whether it was in the set.
    pub(in crate::txn) fn remove(&mut self, key: &[u8]) -> bool {
        let Some((first, block)) = self.before_mut(key) else {
            return false;
        };
        match block.remove(first, key) {
            KeyRemoval::Absent => return false,
            KeyRemoval::Inner => {}
            KeyRemoval::First(next) => {
                let block = self.blocks.remove(key).expect("found just now");
                if let Some(next) = next {
                    self.blocks.insert(next, block);
                }
            }
        }
        self.len -= 1;
        true
    }

    /// For each block of the key set, ascending: its first key, its last key and its number of
    /// keys.
    pub(super) fn spans(&self) -> impl Iterator<Item = (&[u8], &[u8], u64)> {
        let blocks = self.blocks.iter();
        blocks.map(|(first, block)| (&first[..], block.last(), block.len()))
    }

    /// Calls `f` with each key, in order.
    pub(in crate::txn) fn for_each(&self, mut f: impl FnMut(&[u8])) {
        let mut walk = self.walk();
        while walk.advance() {
            f(walk.key());
        }
    }

    /// A walk over all keys in order, without a copy of them.
    pub(in crate::txn) fn walk(&self) -> KeyWalk<'_> {
        KeyWalk {
            blocks: self.blocks.iter(),
            block: None,
            key: Vec::new(),
        }
    }

    /// All keys in order.
    #[cfg(test)]
    pub(super) fn keys(&self) -> Vec<Vec<u8>> {
        let mut keys = Vec::new();
        self.for_each(|key| keys.push(key.to_vec()));
        keys
    }
}

/// A walk over the keys of a set, in order.
pub(in crate::txn) struct KeyWalk<'a> {
    blocks: btree_map::Iter<'a, Box<[u8]>, Block>,
    block: Option<BlockWalk<'a>>,
    key: Vec<u8>,
}

impl KeyWalk<'_> {
    /// Moves to the first or the next key. False at the end.
    pub(in crate::txn) fn advance(&mut self) -> bool {
        if let Some(block) = &mut self.block
            && block.advance(&mut self.key)
        {
            return true;
        }
        let Some((first, block)) = self.blocks.next() else {
            self.block = None;
            return false;
        };
        self.key.clear();
        self.key.extend_from_slice(first);
        self.block = Some(block.walk());
        true
    }

    /// The key that the walk has reached.
    pub(in crate::txn) fn key(&self) -> &[u8] {
        &self.key
    }
}

#[cfg(test)]
mod tests;
