//! The envelope of an encrypted unit: a block, an out-of-line value, a log group or a manifest
//! edit.
//!
//! ```text
//! key id 4 · key version 4 · nonce 12 · ciphertext · tag 16
//! ```
//!
//! A unit without encryption has none of these bytes. This version neither encrypts nor decrypts:
//! it refuses every envelope with [`ErrorKind::Unsupported`](super::ErrorKind::Unsupported).
//!
//! The tag covers neither file id nor offset, because block reuse copies stored blocks between
//! files. Outside of the envelope the unit has a checksum that depends on its file and offset,
//! which proves that the unit lies where it was written.

use super::Error;
use super::varint::{take_exact, take_u32_le};
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};

/// The envelope byte of a unit without encryption.
pub const NONE: u8 = 0;

/// The envelope byte of AES-256-GCM.
pub const AES_256_GCM: u8 = 1;

/// The id of the encryption key for units that concern several tables: index partitions, filters,
/// the catalog, the manifest.
pub const DATABASE_KEY: u32 = 1;

/// Bytes before the ciphertext.
pub const HEAD_LEN: usize = 4 + 4 + NONCE_LEN;

/// Bytes after the ciphertext.
pub const TAG_LEN: usize = 16;

const NONCE_LEN: usize = 12;

/// The fields before the ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The server's key id.
    pub key: u32,
    /// Version of the key.
    pub version: u32,
    /// Nonce; unique under one version of a key, see [`Nonces`].
    pub nonce: [u8; NONCE_LEN],
}

/// An encrypted unit, split into its parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncryptedUnit<'a> {
    /// How it is encrypted.
    pub envelope: Envelope,
    /// The encrypted bytes of the unit.
    pub ciphertext: &'a [u8],
    /// Authenticates key, nonce and ciphertext together.
    pub tag: &'a [u8; TAG_LEN],
}

impl Envelope {
    /// Appends the encoded envelope; ciphertext and tag follow.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.nonce);
    }
}

impl<'a> EncryptedUnit<'a> {
    /// Appends the encoded unit.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.envelope.put(out);
        out.extend_from_slice(self.ciphertext);
        out.extend_from_slice(self.tag);
    }

    /// Splits a unit; `None` if it is too short for an envelope.
    pub fn take(mut unit: &'a [u8]) -> Option<Self> {
        let (key, version) = (take_u32_le(&mut unit)?, take_u32_le(&mut unit)?);
        let nonce = take_exact(&mut unit, NONCE_LEN)?.try_into().ok()?;
        let (ciphertext, tag) = unit.split_last_chunk()?;
        Some(Self {
            envelope: Envelope {
                key,
                version,
                nonce,
            },
            ciphertext,
            tag,
        })
    }
}

/// The error for an encrypted unit: kind `Unsupported`.
#[cold]
pub fn refused(unit: impl Display) -> Error {
    Error::unsupported(format!(
        "{unit} is encrypted, and this version of Firn has no encryption"
    ))
}

/// Makes the nonces for the writes of one open database. A nonce is a random number followed by a
/// count of writes.
///
/// The position of a write cannot serve as its nonce: a log group is rewritten at its position with
/// more records, segments are recycled, and file ids repeat after a restored backup or a power cut.
#[derive(Debug)]
pub struct Nonces {
    drawn: u64,
    /// Number of writes so far; it stops at `u32::MAX`.
    writes: AtomicU32,
}

impl Nonces {
    /// Nonces that begin with `drawn`, which must be a fresh random number.
    pub fn new(drawn: u64) -> Self {
        Self {
            drawn,
            writes: AtomicU32::new(0),
        }
    }

    /// The nonce of the next write; `None` once the count has reached its maximum. The caller must
    /// then make new [`Nonces`] with another random number.
    pub fn next_write(&self) -> Option<[u8; NONCE_LEN]> {
        let next = |writes: u32| (writes < u32::MAX).then(|| writes + 1);
        let (to, from) = (Ordering::Relaxed, Ordering::Relaxed);
        let write = self.writes.fetch_update(to, from, next).ok()?;
        let mut nonce = [0; NONCE_LEN];
        nonce[..8].copy_from_slice(&self.drawn.to_le_bytes());
        nonce[8..].copy_from_slice(&write.to_le_bytes());
        Some(nonce)
    }
}

#[cfg(test)]
mod tests;
