//! The write batch: the entries of one commit, encoded as in the log.
//!
//! The bytes are encoded once. The log record stores them as they are, and the memtable insert
//! reads the entries from them. `docs/formats/batch.md` has the layout.

use crate::base::varint::{put_bytes, put_u64, take_bytes, take_exact, take_u8, take_u32};
use crate::base::{Error, Kind, Result, Value};

const HEADER_LEN: usize = 4;

/// An encoded batch. All its entries get the seqno of the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    bytes: Vec<u8>,
}

/// One entry of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchEntry<'a> {
    /// User key: the index id and the encoded key parts.
    pub user_key: &'a [u8],
    /// Whether the key is put or deleted, and how.
    pub kind: Kind,
    /// The value; empty for a deletion.
    pub value: Value<'a>,
}

impl Default for Batch {
    fn default() -> Self {
        Self {
            bytes: vec![0; HEADER_LEN],
        }
    }
}

impl Batch {
    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes a batch of encoded bytes, after checking that every entry can be decoded.
    ///
    /// # Errors
    /// `Corruption` for a malformed entry.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        let batch = Self { bytes };
        let mut entries = batch.try_iter()?;
        while entries.next_entry()?.is_some() {}
        Ok(batch)
    }

    /// An empty batch with room for `bytes` bytes of entries.
    pub fn with_capacity(bytes: usize) -> Self {
        let mut buffer = Vec::with_capacity(HEADER_LEN + bytes);
        buffer.resize(HEADER_LEN, 0);
        Self { bytes: buffer }
    }

    /// Adds an entry behind the others.
    pub fn add(&mut self, user_key: &[u8], kind: Kind, value: Value<'_>) {
        self.bytes.push(kind as u8);
        put_bytes(&mut self.bytes, user_key);
        if kind != Kind::Delete {
            put_u64(&mut self.bytes, value.head.len() as u64);
            put_u64(&mut self.bytes, value.tail.len() as u64);
            self.bytes.extend_from_slice(value.head);
            self.bytes.extend_from_slice(value.tail);
        }
        let count = self.count() + 1;
        self.bytes[..HEADER_LEN].copy_from_slice(&count.to_le_bytes());
    }

    /// Bytes that the batch may take before it has to grow.
    #[cfg(test)]
    pub(crate) fn room(&self) -> usize {
        self.bytes.capacity()
    }

    /// Number of entries.
    pub fn count(&self) -> u32 {
        self.bytes
            .first_chunk::<HEADER_LEN>()
            .map_or(0, |b| u32::from_le_bytes(*b))
    }

    /// Whether there is no entry.
    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    /// Whether all entries are deletions.
    pub fn only_deletes(&self) -> bool {
        let mut only = true;
        let whole = self.for_each(|entry| only &= entry.kind == Kind::Delete);
        only && whole.is_ok()
    }

    /// The encoded bytes of the batch.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Calls `f` for each entry, in the order in which they were added.
    ///
    /// # Errors
    /// `Corruption` for a malformed entry.
    pub fn for_each(&self, mut f: impl FnMut(BatchEntry<'_>)) -> Result<()> {
        let mut entries = self.try_iter()?;
        while let Some(entry) = entries.next_entry()? {
            f(entry);
        }
        Ok(())
    }

    fn try_iter(&self) -> Result<Entries<'_>> {
        let (header, rest) = self
            .bytes
            .split_at_checked(HEADER_LEN)
            .ok_or_else(damaged)?;
        let left = u32::from_le_bytes(header.try_into().expect("four bytes"));
        Ok(Entries { rest, left })
    }
}

struct Entries<'a> {
    rest: &'a [u8],
    left: u32,
}

impl<'a> Entries<'a> {
    fn next_entry(&mut self) -> Result<Option<BatchEntry<'a>>> {
        if self.left == 0 {
            return if self.rest.is_empty() {
                Ok(None)
            } else {
                Err(damaged())
            };
        }
        self.left -= 1;
        let kind = Kind::from_u8(take_u8(&mut self.rest).ok_or_else(damaged)?)?;
        let user_key = take_bytes(&mut self.rest).ok_or_else(damaged)?;
        let value = match kind {
            Kind::Delete => Value::EMPTY,
            _ => self.take_value().ok_or_else(damaged)?,
        };
        Ok(Some(BatchEntry {
            user_key,
            kind,
            value,
        }))
    }

    fn take_value(&mut self) -> Option<Value<'a>> {
        let head_len = take_u32(&mut self.rest)? as usize;
        let tail_len = take_u32(&mut self.rest)? as usize;
        let head = take_exact(&mut self.rest, head_len)?;
        let tail = take_exact(&mut self.rest, tail_len)?;
        Some(Value { head, tail })
    }
}

fn damaged() -> Error {
    Error::corruption("", 0, "write batch is cut short or overlong")
}

#[cfg(test)]
mod tests;
