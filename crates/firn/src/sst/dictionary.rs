//! Compression dictionaries, one to four in a file.
//!
//! The scope is one file: a neighbour's dictionary compresses clearly worse. The id is derived from
//! the content and stored in each block, so that a block can be copied to another file together
//! with its dictionary; a file may carry several.

use super::decode_error::{DecodeError, Decoded};
use crate::base::checksum;
use zstd::zstd_safe::DDict;

/// Dictionaries a file may carry.
pub(super) const DICTIONARIES_MAX: usize = 4;

/// A dictionary, digested for reading.
pub(super) struct Dictionary {
    id: u32,
    bytes: Vec<u8>,
    digested: DDict<'static>,
}

impl Dictionary {
    pub(super) fn new(bytes: Vec<u8>) -> Decoded<Self> {
        let digested = DDict::try_create(&bytes)
            .ok_or(DecodeError::Corrupt("dictionary cannot be digested"))?;
        Ok(Self {
            id: id_of(&bytes),
            digested,
            bytes,
        })
    }

    /// Derived from the content; never 0.
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn digested(&self) -> &DDict<'static> {
        &self.digested
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + self.digested.sizeof()
    }
}

fn id_of(bytes: &[u8]) -> u32 {
    (checksum::xxh3(bytes) as u32).max(1)
}
