//! Compression dictionaries, one to four in a file.
//!
//! Each file trains its own dictionary, because the dictionary of a neighbouring file compresses
//! clearly worse. The dictionary's id is a hash of its content and is stored in each block that
//! uses it. So block reuse can copy a block to another file together with its dictionary, and a
//! file may hold several dictionaries.

use super::decode_error::{DecodeError, Decoded};
use crate::base::checksum;
use crate::base::zstd_memory::ZstdObject;
use zstd::zstd_safe::DDict;

/// Largest number of dictionaries in one file.
pub(super) const DICTIONARIES_MAX: usize = 4;

/// A dictionary, with the digested form that ZSTD needs to decompress.
pub(super) struct Dictionary {
    id: u32,
    bytes: Vec<u8>,
    digested: ZstdObject<DDict<'static>>,
}

impl Dictionary {
    pub(super) fn new(bytes: Vec<u8>) -> Decoded<Self> {
        let digested = DDict::try_create(&bytes)
            .ok_or(DecodeError::Corrupt("dictionary cannot be digested"))?;
        Ok(Self {
            id: id_of(&bytes),
            digested: ZstdObject::new(digested),
            bytes,
        })
    }

    /// A hash of the content; never 0, because 0 stands for "no dictionary".
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(super) fn digested(&self) -> &DDict<'static> {
        self.digested.get()
    }

    /// Bytes of memory that the dictionary takes.
    pub(super) fn memory(&self) -> usize {
        self.bytes.len() + self.digested().sizeof()
    }
}

fn id_of(bytes: &[u8]) -> u32 {
    (checksum::xxh3(bytes) as u32).max(1)
}
