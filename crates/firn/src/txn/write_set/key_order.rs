//! The order of the keys that are in memory. A key stands here as the number of its newest version
//! ([`StoredVersions`]).

use super::stored_versions::StoredVersions;
use crate::base::key::INDEX_ID_LEN;
use std::cmp::Ordering;

/// Most keys of a block.
const BLOCK_KEYS: usize = 128;

/// [`KeyOrder::clear`] keeps room for at most this many keys.
const KEPT_KEYS: usize = 32;

/// A key by its first bytes and the number of its newest version.
///
/// A search compares the first bytes, which are stored in the block. It looks at the whole key only
/// where the first bytes are the same, so few of its steps access memory outside the block.
#[derive(Clone, Copy)]
struct OrderedKey {
    start: KeyStart,
    newest: u32,
}

/// The first twelve bytes of a key: the index id and eight more, padded with zeros. If the starts
/// of two keys differ, they order the keys.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(Rust, packed(4))]
struct KeyStart {
    index: u32,
    rest: u64,
}

impl KeyStart {
    fn of(key: &[u8]) -> Self {
        let (index, rest) = key.split_at(key.len().min(INDEX_ID_LEN));
        Self {
            index: u32::from_be_bytes(padded(index)),
            rest: u64::from_be_bytes(padded(rest)),
        }
    }
}

fn padded<const N: usize>(bytes: &[u8]) -> [u8; N] {
    if let Some(first) = bytes.first_chunk() {
        return *first;
    }
    let mut padded = [0; N];
    padded[..bytes.len()].copy_from_slice(bytes);
    padded
}

/// The keys in order, each key once.
///
/// The keys are in sorted blocks. A full block is divided at the new key if keys come in ascending
/// order, so that full blocks are left behind, and otherwise in the middle. Most transactions have
/// one block.
///
/// Rejected:
/// - a `BTreeMap` of keys with an allocation each: a search reads another allocation in each step,
///   and each key costs three times the memory;
/// - a map for each index: a transaction of one row would allocate for each of its indexes.
#[derive(Default)]
pub(super) struct KeyOrder {
    /// Only a block without neighbours may be empty.
    blocks: Vec<KeyBlock>,
}

struct KeyBlock {
    /// The start of the block's first key, by which a search chooses the block. In the first block
    /// of all it may be out of date: a search takes that block if no other one fits, and does not
    /// look at its start.
    first: KeyStart,
    /// The place after the key that was inserted last.
    after_last_insert: u32,
    keys: Vec<OrderedKey>,
}

/// A place between two keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct KeyPlace {
    block: usize,
    /// Number of keys of the block before the place.
    at: usize,
}

impl OrderedKey {
    fn compare(&self, start: KeyStart, key: &[u8], versions: &StoredVersions) -> Ordering {
        self.start
            .cmp(&start)
            .then_with(|| versions.key(self.newest).cmp(key))
    }
}

impl KeyBlock {
    fn new(keys: Vec<OrderedKey>) -> Self {
        let mut block = Self {
            first: KeyStart { index: 0, rest: 0 },
            after_last_insert: u32::MAX,
            keys,
        };
        block.note_first();
        block
    }

    fn note_first(&mut self) {
        if let Some(first) = self.keys.first() {
            self.first = first.start;
        }
    }

    fn insert(&mut self, at: usize, key: OrderedKey) {
        self.keys.insert(at, key);
        self.after_last_insert = at as u32 + 1;
        if at == 0 {
            self.note_first();
        }
    }
}

impl KeyOrder {
    /// The place before the first key at or above `key`. `Ok` if that key is `key`.
    pub(super) fn search(
        &self,
        key: &[u8],
        versions: &StoredVersions,
    ) -> Result<KeyPlace, KeyPlace> {
        let start = KeyStart::of(key);
        let Some(last) = self.blocks.last() else {
            return Err(KeyPlace { block: 0, at: 0 });
        };
        // A statement that writes in key order appends.
        if last
            .keys
            .last()
            .is_none_or(|last| last.compare(start, key, versions).is_lt())
        {
            return Err(KeyPlace {
                block: self.blocks.len() - 1,
                at: last.keys.len(),
            });
        }
        let block = self.blocks[1..].partition_point(|block| {
            let first = || block.keys[0].compare(start, key, versions);
            block.first.cmp(&start).then_with(first).is_le()
        });
        let keys = &self.blocks[block].keys;
        let found = keys.binary_search_by(|other| other.compare(start, key, versions));
        match found {
            Ok(at) => Ok(KeyPlace { block, at }),
            Err(at) => Err(KeyPlace { block, at }),
        }
    }

    /// Inserts `key`, whose newest version is number `newest`, at the place that
    /// [`Self::search`] has found.
    pub(super) fn insert(&mut self, place: KeyPlace, key: &[u8], newest: u32) {
        let KeyPlace { mut block, mut at } = place;
        let key = OrderedKey {
            start: KeyStart::of(key),
            newest,
        };
        if self.blocks.is_empty() {
            self.blocks.push(KeyBlock::new(Vec::new()));
        }
        if self.blocks[block].keys.len() == BLOCK_KEYS {
            let ascends = at > 0 && self.blocks[block].after_last_insert as usize == at;
            let middle = if ascends { at } else { BLOCK_KEYS / 2 };
            let keys = match BLOCK_KEYS - middle {
                0 => Vec::with_capacity(BLOCK_KEYS),
                _ => self.blocks[block].keys.split_off(middle),
            };
            self.blocks.insert(block + 1, KeyBlock::new(keys));
            if at > middle || middle == BLOCK_KEYS {
                (block, at) = (block + 1, at - middle);
            }
        }
        self.blocks[block].insert(at, key);
    }

    /// Number of the newest version of the key after `place`.
    pub(super) fn newest(&self, place: KeyPlace) -> u32 {
        self.blocks[place.block].keys[place.at].newest
    }

    /// Makes `newest` the newest version of the key after `place`.
    pub(super) fn set_newest(&mut self, place: KeyPlace, newest: u32) {
        self.blocks[place.block].keys[place.at].newest = newest;
    }

    /// Removes the key after `place`.
    pub(super) fn remove(&mut self, place: KeyPlace) {
        let block = &mut self.blocks[place.block];
        block.keys.remove(place.at);
        block.note_first();
        if block.keys.is_empty() && self.blocks.len() > 1 {
            self.blocks.remove(place.block);
        }
    }

    /// Removes all keys. A small block stays for the next ones.
    pub(super) fn clear(&mut self) {
        self.blocks.truncate(1);
        self.blocks.shrink_to(4);
        if let Some(first) = self.blocks.first_mut() {
            first.keys.clear();
            first.keys.shrink_to(KEPT_KEYS);
        }
    }

    /// The newest versions of all keys, ascending.
    pub(super) fn all(&self) -> impl Iterator<Item = u32> {
        self.from(KeyPlace { block: 0, at: 0 })
    }

    /// The newest versions of the keys after `place`, ascending.
    pub(super) fn from(&self, place: KeyPlace) -> impl Iterator<Item = u32> {
        let mut blocks = self.blocks[place.block.min(self.blocks.len())..].iter();
        let first = blocks
            .next()
            .map_or(&[][..], |block| &block.keys[place.at..]);
        let others = blocks.flat_map(|block| &block.keys);
        first.iter().chain(others).map(|key| key.newest)
    }

    /// The newest versions of the keys before `place`, descending. `None` is the place after all
    /// keys.
    pub(super) fn before(&self, place: Option<KeyPlace>) -> impl Iterator<Item = u32> {
        let (whole, part) = match place {
            Some(KeyPlace { block, at }) => {
                let part = self.blocks.get(block).map(|block| &block.keys[..at]);
                (&self.blocks[..block], part.unwrap_or_default())
            }
            None => (&self.blocks[..], &[][..]),
        };
        let whole = whole.iter().rev().flat_map(|block| block.keys.iter().rev());
        part.iter().rev().chain(whole).map(|key| key.newest)
    }
}

impl KeyPlace {
    /// The place after the next key of the block.
    pub(super) fn after(self) -> Self {
        Self {
            at: self.at + 1,
            ..self
        }
    }
}

#[cfg(test)]
mod tests;
