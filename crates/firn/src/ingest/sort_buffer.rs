//! Entries collected in memory for sorting.

use crate::base::key::INDEX_ID_LEN;
use crate::base::varint::{put_u64, take_exact, take_u8, take_u64};
use crate::base::{Kind, Value};

/// Size of the chunks that entries are packed into, bytes; the first chunks of a list are smaller.
const CHUNK: usize = 256 << 10;
const FIRST_CHUNK: usize = 4 << 10;

/// Longest head of a packed entry: four numbers and the kind.
const HEAD_MAX: usize = 4 * 10 + 1;

/// An entry to be written into a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoadEntry<'a> {
    /// Index id and memcomparable key.
    pub user_key: &'a [u8],
    /// Length in bytes of the unique part at the start of the key: no other entry may begin with
    /// the same bytes. 0 if nothing must be unique.
    pub unique_len: usize,
    /// Kind of the entry.
    pub kind: Kind,
    /// Value of the entry.
    pub value: Value<'a>,
}

impl<'a> LoadEntry<'a> {
    /// Appends the packed form.
    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        out.push(self.kind as u8);
        put_u64(out, self.user_key.len() as u64);
        put_u64(out, self.unique_len as u64);
        put_u64(out, self.value.head.len() as u64);
        put_u64(out, self.value.tail.len() as u64);
        out.extend_from_slice(self.user_key);
        out.extend_from_slice(self.value.head);
        out.extend_from_slice(self.value.tail);
    }

    /// Decodes a packed entry from the front of `input`; `None` if it is malformed.
    pub(super) fn take(input: &mut &'a [u8]) -> Option<Self> {
        let kind = Kind::from_u8(take_u8(input)?).ok()?;
        let mut len = || usize::try_from(take_u64(input)?).ok();
        let (key, unique_len, head, tail) = (len()?, len()?, len()?, len()?);
        if unique_len > key {
            return None;
        }
        Some(Self {
            user_key: take_exact(input, key)?,
            unique_len,
            kind,
            value: Value::split(take_exact(input, head)?, take_exact(input, tail)?),
        })
    }

    fn packed_max(&self) -> usize {
        HEAD_MAX + self.user_key.len() + self.value.len()
    }

    /// The first eight bytes of the key behind the index id, as a big-endian number padded with
    /// zeros.
    pub(super) fn prefix(&self) -> u64 {
        prefix(self.user_key)
    }
}

fn prefix(user_key: &[u8]) -> u64 {
    let rest = user_key.get(INDEX_ID_LEN..).unwrap_or_default();
    match rest.first_chunk::<8>() {
        Some(bytes) => u64::from_be_bytes(*bytes),
        None => {
            let mut bytes = [0; 8];
            bytes[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(bytes)
        }
    }
}

/// Position of an entry and the prefix of its key. Most comparisons need only the prefix.
#[derive(Debug, Clone, Copy)]
struct SortSlot {
    prefix: u64,
    chunk: u32,
    offset: u32,
}

/// A list of entries of one index in packed form.
///
/// A single entry needs no allocation: entries are packed one after the other into chunks that
/// never move, and sorting moves slots of 16 bytes. The list notices while it grows whether entries
/// come in order.
#[derive(Debug, Default)]
pub struct SortBuffer {
    chunks: Vec<Vec<u8>>,
    slots: Vec<SortSlot>,
    chunk_bytes: usize,
    packed_bytes: u64,
    /// Some entry came out of order.
    mixed: bool,
}

impl SortBuffer {
    /// Adds an entry. Returns whether all entries so far came in order, equal keys included.
    pub fn push(&mut self, entry: LoadEntry<'_>) -> bool {
        let prefix = entry.prefix();
        if let (false, Some(last)) = (self.mixed, self.slots.last()) {
            let last_key = || self.at(*last).user_key;
            self.mixed =
                last.prefix > prefix || last.prefix == prefix && last_key() > entry.user_key;
        }
        let room = entry.packed_max();
        let full = |chunk: &Vec<u8>| chunk.capacity() - chunk.len() < room;
        if self.chunks.last().is_none_or(full) {
            let size = (FIRST_CHUNK << self.chunks.len().min(16))
                .min(CHUNK)
                .max(room);
            self.chunks.push(Vec::with_capacity(size));
            self.chunk_bytes += size;
        }
        let chunk = self.chunks.len() - 1;
        let offset = self.chunks[chunk].len();
        entry.pack(&mut self.chunks[chunk]);
        self.packed_bytes += (self.chunks[chunk].len() - offset) as u64;
        self.slots.push(SortSlot {
            prefix,
            chunk: chunk as u32,
            offset: offset as u32,
        });
        !self.mixed
    }

    /// Memory of the list, bytes.
    pub fn memory(&self) -> u64 {
        (self.chunk_bytes + self.slots.capacity() * size_of::<SortSlot>()) as u64
    }

    /// Bytes of the packed entries.
    pub fn packed_bytes(&self) -> u64 {
        self.packed_bytes
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Whether the entries are in order.
    pub fn is_sorted(&self) -> bool {
        !self.mixed
    }

    /// Sorts the entries by user key.
    pub fn sort(&mut self) {
        if self.mixed {
            let mut slots = std::mem::take(&mut self.slots);
            slots.sort_unstable_by(|a, b| {
                let by_key = || self.at(*a).user_key.cmp(self.at(*b).user_key);
                a.prefix.cmp(&b.prefix).then_with(by_key)
            });
            self.slots = slots;
            self.mixed = false;
        }
    }

    /// Entry number `i`.
    ///
    /// # Panics
    /// If there are not that many entries.
    pub fn get(&self, i: usize) -> LoadEntry<'_> {
        self.at(self.slots[i])
    }

    /// All entries.
    pub fn iter(&self) -> impl Iterator<Item = LoadEntry<'_>> {
        self.slots.iter().map(|slot| self.at(*slot))
    }

    fn at(&self, slot: SortSlot) -> LoadEntry<'_> {
        let mut packed = &self.chunks[slot.chunk as usize][slot.offset as usize..];
        LoadEntry::take(&mut packed).expect("packed by push")
    }
}

#[cfg(test)]
mod tests;
