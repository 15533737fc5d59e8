//! Where encryption has its place in a stored unit: block, value out of line, log group, edit of the manifest.
//!
//! ```text
//! key id 4 · key version 4 · nonce 12 · ciphertext · tag 16
//! ```
//!
//! A unit without encryption has none of it. This version encrypts and decrypts nothing: what it finds in an
//! envelope it refuses with an error that says so.
//!
//! The tag covers no file id and no offset, since block reuse copies stored blocks between files: that a unit
//! lies where it belongs is what the placed checksum around the envelope says.

use super::Error;
use super::varint::{take_exact, take_u32_le};
use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering};

/// The envelope byte of a unit without encryption.
pub const NONE: u8 = 0;

/// The envelope byte of AES-256-GCM.
pub const AES_256_GCM: u8 = 1;

/// The key, in all versions, of units about several tables: index, filters, catalog, manifest.
pub const DATABASE_KEY: u32 = 1;

/// Bytes before the ciphertext.
pub const HEAD_LEN: usize = 4 + 4 + NONCE_LEN;

/// Bytes behind it.
pub const TAG_LEN: usize = 16;

const NONCE_LEN: usize = 12;

/// What stands before the ciphertext.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The server's id of the key.
    pub key: u32,
    /// Its version.
    pub version: u32,
    /// Never the same twice under one version of a key: see [`Nonces`].
    pub nonce: [u8; NONCE_LEN],
}

/// An encrypted unit, taken apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sealed<'a> {
    /// How it is encrypted.
    pub envelope: Envelope,
    /// The unit.
    pub ciphertext: &'a [u8],
    /// Proves that key, nonce and ciphertext belong together.
    pub tag: &'a [u8; TAG_LEN],
}

impl Envelope {
    /// Appends it; ciphertext and tag follow.
    pub fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.key.to_le_bytes());
        out.extend_from_slice(&self.version.to_le_bytes());
        out.extend_from_slice(&self.nonce);
    }
}

impl<'a> Sealed<'a> {
    /// Appends it.
    pub fn put(&self, out: &mut Vec<u8>) {
        self.envelope.put(out);
        out.extend_from_slice(self.ciphertext);
        out.extend_from_slice(self.tag);
    }

    /// Takes a unit apart; `None` if it is too short for an envelope.
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

/// The error for an encrypted unit, which nobody here can read.
#[cold]
pub fn refused(unit: impl Display) -> Error {
    Error::unsupported(format!(
        "{unit} is encrypted, and this version of Firn has no encryption"
    ))
}

/// Nonces for the writes of one open database: a number drawn at random, and a counter of writes.
///
/// The place of a write is no nonce: a log group is written again at its place with more records, segments
/// are recycled, and after a restored backup or a power cut numbers come again.
#[derive(Debug)]
pub struct Nonces {
    drawn: u64,
    /// Writes so far; the last number stays unused and says that there are no more.
    writes: AtomicU32,
}

impl Nonces {
    /// With a number that was just drawn.
    pub fn new(drawn: u64) -> Self {
        Self {
            drawn,
            writes: AtomicU32::new(0),
        }
    }

    /// The nonce of the next write; `None` when the counter is used up and another number must be drawn.
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
