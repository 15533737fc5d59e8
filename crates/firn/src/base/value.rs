//! Values of entries, in two parts.

use super::error::{Error, ErrorKind, Result};

/// The longest entry, key and value together, in bytes. A data block of an SST and an append to the
/// log are limited to 1 GiB each. The longest entry is half of that, so it fits into either with
/// all headers.
pub const ENTRY_BYTES_MAX: u64 = 512 << 20;

/// Checks that an entry of `bytes` bytes, key and value together, is not longer than `bytes_max`.
///
/// # Errors
/// `TooLarge`.
pub fn check_entry(bytes: usize, bytes_max: u64) -> Result<()> {
    if bytes as u64 <= bytes_max {
        return Ok(());
    }
    let message = format!("a row or index entry of {bytes} bytes; at most {bytes_max} fit");
    Err(Error::new(ErrorKind::TooLarge, message))
}

/// A borrowed value: `head`, then `tail`.
///
/// Rows keep header and fixed columns in `head`, lengths and variable bytes in `tail`, so that a
/// block can store the parts in separate sections without knowing the schema. Other values have an
/// empty tail. WAL, memtable and files store where a value is split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Value<'a> {
    /// Row header and fixed columns, or the whole value.
    pub head: &'a [u8],
    /// Lengths and bytes of the variable columns; empty for values without a split.
    pub tail: &'a [u8],
}

impl<'a> Value<'a> {
    /// The value of a deletion.
    pub const EMPTY: Value<'static> = Value {
        head: &[],
        tail: &[],
    };

    /// A value without a split.
    pub fn whole(head: &'a [u8]) -> Self {
        Self { head, tail: &[] }
    }

    /// A value of two parts.
    pub fn split(head: &'a [u8], tail: &'a [u8]) -> Self {
        Self { head, tail }
    }

    /// Bytes of both parts.
    pub fn len(&self) -> usize {
        self.head.len() + self.tail.len()
    }

    /// Whether both parts are empty.
    pub fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty()
    }

    /// An owned copy.
    pub fn to_owned(&self) -> OwnedValue {
        let mut bytes = Vec::with_capacity(self.len());
        bytes.extend_from_slice(self.head);
        bytes.extend_from_slice(self.tail);
        OwnedValue {
            bytes: bytes.into_boxed_slice(),
            head_len: self.head.len() as u32,
        }
    }
}

/// An owned value: both parts in one allocation.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OwnedValue {
    bytes: Box<[u8]>,
    head_len: u32,
}

impl OwnedValue {
    /// The value of `bytes`; the first `head_len` of them are the head.
    ///
    /// # Panics
    /// If `head_len` exceeds the length: a bug of the caller.
    pub fn new(bytes: Box<[u8]>, head_len: usize) -> Self {
        assert!(head_len <= bytes.len());
        Self {
            bytes,
            head_len: head_len as u32,
        }
    }

    /// Borrows both parts.
    pub fn as_value(&self) -> Value<'_> {
        let (head, tail) = self.bytes.split_at(self.head_len as usize);
        Value { head, tail }
    }
}
