//! Values as nodes keep them.
//!
//! ```text
//! plain      name 16 · stored bytes
//! encrypted  name 16 · nonce 24 · ciphertext · tag 16      the name is bound to the ciphertext
//! ```
//!
//! A node may be wrong or lie, so a value has its name in it, and whoever gets it knows how long
//! it must be. The checksum of the stored bytes is the engine's, and the engine checks it.

use crate::cipher::{Cipher, NONCE_LEN, TAG_LEN};
use crate::name::{NAME_LEN, Name};
use std::ops::{Deref, Range};

/// Stored bytes that came out of the pool.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    buffer: Vec<u8>,
    range: Range<usize>,
}

impl Deref for Stored {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buffer[self.range.clone()]
    }
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Stored({} bytes)", self.len())
    }
}

/// Length of the value for `len` stored bytes.
pub fn value_len(len: usize, cipher: Option<&Cipher>) -> usize {
    NAME_LEN
        + len
        + if cipher.is_some() {
            NONCE_LEN + TAG_LEN
        } else {
            0
        }
}

/// The value for stored bytes.
pub fn seal(name: &Name, stored: &[u8], cipher: Option<&Cipher>) -> Vec<u8> {
    let mut value = Vec::with_capacity(value_len(stored.len(), cipher));
    value.extend_from_slice(name.as_bytes());
    let Some(cipher) = cipher else {
        value.extend_from_slice(stored);
        return value;
    };
    value.extend_from_slice(&[0; NONCE_LEN]);
    value.extend_from_slice(stored);
    let (nonce, tag) = cipher.encrypt(name.as_bytes(), &mut value[NAME_LEN + NONCE_LEN..]);
    value[NAME_LEN..NAME_LEN + NONCE_LEN].copy_from_slice(&nonce);
    value.extend_from_slice(&tag);
    value
}

/// The stored bytes of a value, if it is one of this name, of `len` stored bytes (any number if
/// none is given), and authentic if there is a key.
pub fn open(
    name: &Name,
    len: Option<usize>,
    value: Vec<u8>,
    cipher: Option<&Cipher>,
) -> Option<Stored> {
    let long_enough = value.len() >= value_len(0, cipher);
    if !long_enough || len.is_some_and(|len| value.len() != value_len(len, cipher)) {
        return None;
    }
    if &value[..NAME_LEN] != name.as_bytes() {
        return None;
    }
    let mut buffer = value;
    let Some(cipher) = cipher else {
        let range = NAME_LEN..buffer.len();
        return Some(Stored { buffer, range });
    };
    let (head, rest) = buffer.split_at_mut(NAME_LEN + NONCE_LEN);
    let (bytes, tag) = rest.split_at_mut(rest.len() - TAG_LEN);
    let nonce = head[NAME_LEN..].try_into().ok()?;
    let tag = (&*tag).try_into().ok()?;
    if !cipher.decrypt(name.as_bytes(), nonce, bytes, tag) {
        return None;
    }
    let range = NAME_LEN + NONCE_LEN..buffer.len() - TAG_LEN;
    Some(Stored { buffer, range })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cipher::Key;

    #[test]
    fn a_value_opens_under_its_name_and_length_only() {
        let (name, other) = (Name::of_block(1, 2, 3), Name::of_block(1, 2, 4));
        let cipher = Cipher::new(Key::parse(&"a5".repeat(32)).unwrap(), [1; 12]);
        for cipher in [None, Some(&cipher)] {
            let value = seal(&name, b"block", cipher);
            assert_eq!(value.len(), value_len(5, cipher));
            let open = |name, len, value: &[u8]| open(name, len, value.to_vec(), cipher);
            assert_eq!(&*open(&name, Some(5), &value).unwrap(), b"block");
            assert_eq!(&*open(&name, None, &value).unwrap(), b"block");
            assert!(open(&other, Some(5), &value).is_none());
            assert!(open(&name, Some(4), &value).is_none());
            for len in 0..value.len() {
                assert!(open(&name, Some(5), &value[..len]).is_none());
            }
            let mut renamed = value.clone();
            renamed[..NAME_LEN].copy_from_slice(other.as_bytes());
            assert_eq!(open(&other, Some(5), &renamed).is_none(), cipher.is_some());
        }
        let plain = seal(&name, b"block", None);
        assert!(open(&name, Some(5), plain, Some(&cipher)).is_none());
    }
}
