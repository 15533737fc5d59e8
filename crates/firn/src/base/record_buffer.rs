//! Conventions of the record buffer that the C ABI hands over: NULL bits, lengths, padding, blobs.

use super::{Error, Result};

/// The bit of the record buffer that marks a column as NULL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NullBit {
    /// Byte of the record buffer.
    pub offset: u32,
    /// Mask with one bit set.
    pub mask: u8,
}

impl NullBit {
    /// Whether the column is NULL in `record`. Panics if `record` ends before the byte with the
    /// NULL bit.
    pub fn is_set(self, record: &[u8]) -> bool {
        record[self.offset as usize] & self.mask != 0
    }

    /// Sets or clears the NULL bit in `record`. Panics if `record` ends before the byte with the
    /// NULL bit.
    pub fn set(self, record: &mut [u8], null: bool) {
        let byte = &mut record[self.offset as usize];
        *byte = if null {
            *byte | self.mask
        } else {
            *byte & !self.mask
        };
    }
}

/// Splits a field that starts with a little-endian length of 1 to 4 bytes into length and rest.
///
/// # Panics
/// If the field is shorter than `len_bytes`: a bug of the caller.
pub fn take_len(field: &[u8], len_bytes: u8) -> (usize, &[u8]) {
    let (len, rest) = field.split_at(usize::from(len_bytes));
    let mut wide = [0u8; 4];
    wide[..len.len()].copy_from_slice(len);
    (u32::from_le_bytes(wide) as usize, rest)
}

/// The bytes that a blob field refers to; the field is a length, then a pointer.
///
/// # Safety
/// If the length is not zero and the pointer not null, the pointer must refer to that many readable
/// bytes, and they must not change while the result is used.
///
/// # Errors
/// `InvalidArgument` if a blob has a length and no pointer.
pub unsafe fn blob_bytes<'a>(field: &[u8], len_bytes: u8) -> Result<&'a [u8]> {
    let (len, pointer) = take_len(field, len_bytes);
    if len == 0 {
        return Ok(&[]);
    }
    let address = pointer
        .first_chunk()
        .map(|bytes| usize::from_ne_bytes(*bytes))
        .filter(|&address| address != 0)
        .ok_or_else(|| Error::invalid("blob without bytes"))?;
    // SAFETY: `len` is not zero and `address` not null here, so the contract of this function
    // applies: `address` refers to `len` readable bytes that stay unchanged for `'a`.
    Ok(unsafe { std::slice::from_raw_parts(address as *const u8, len) })
}

/// The padding of fixed-length text: one space in its character set, of 1, 2 or 4 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pad {
    bytes: [u8; 4],
    len: u8,
}

impl Pad {
    /// The one-byte space that most character sets share.
    pub const SPACE: Pad = Pad {
        bytes: [b' ', 0, 0, 0],
        len: 1,
    };

    /// A space of 1, 2 or 4 bytes.
    ///
    /// # Errors
    /// `InvalidArgument` for any other length.
    pub fn new(bytes: &[u8]) -> Result<Self> {
        if !matches!(bytes.len(), 1 | 2 | 4) {
            return Err(Error::invalid("a pad has 1, 2 or 4 bytes"));
        }
        let mut pad = Self {
            bytes: [0; 4],
            len: bytes.len() as u8,
        };
        pad.bytes[..bytes.len()].copy_from_slice(bytes);
        Ok(pad)
    }

    /// The bytes of one space.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    /// Length of `text` without the padding at its end.
    pub fn stripped_len(&self, text: &[u8]) -> usize {
        const SPACES: u64 = u64::from_ne_bytes([b' '; 8]);
        let mut rest = text;
        if *self == Self::SPACE {
            while let Some((front, last)) = rest.split_last_chunk::<8>() {
                if u64::from_ne_bytes(*last) != SPACES {
                    break;
                }
                rest = front;
            }
            return rest.iter().rposition(|b| *b != b' ').map_or(0, |at| at + 1);
        }
        // A space character counts only at an offset that is a multiple of its length. In UTF-16,
        // for example, the bytes 0x20 0x00 0x20 0x00 are two characters, none of which is the space
        // 0x00 0x20.
        if rest.len().is_multiple_of(self.as_bytes().len()) {
            while let Some(front) = rest.strip_suffix(self.as_bytes()) {
                rest = front;
            }
        }
        rest.len()
    }

    /// Fills `room` with padding.
    #[inline]
    pub fn fill(&self, room: &mut [u8]) {
        match self.len {
            1 if room.len() < 16 => fill_short(room, self.bytes[0]),
            _ => self.fill_long(room),
        }
    }

    fn fill_long(&self, room: &mut [u8]) {
        if self.len == 1 {
            room.fill(self.bytes[0]);
        } else {
            for (i, byte) in room.iter_mut().enumerate() {
                *byte = self.bytes[i % usize::from(self.len)];
            }
        }
    }
}

/// Fills fewer than 16 bytes with `byte`. It makes two stores that may overlap, which is cheaper
/// than a call of `memset`.
#[inline]
fn fill_short(room: &mut [u8], byte: u8) {
    fn ends<const N: usize>(room: &mut [u8], byte: u8) -> bool {
        let Some(first) = room.first_chunk_mut::<N>() else {
            return false;
        };
        *first = [byte; N];
        if let Some(last) = room.last_chunk_mut::<N>() {
            *last = [byte; N];
        }
        true
    }
    let _ = ends::<8>(room, byte)
        || ends::<4>(room, byte)
        || ends::<2>(room, byte)
        || ends::<1>(room, byte);
}

#[cfg(test)]
mod tests;
