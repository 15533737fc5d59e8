//! Compression dictionaries, one to four in a file.
//!
//! A file trains its own dictionary or inherits that of a file with the same kind of data
//! (`compression_recipe.rs`); in both cases it stores all dictionaries that its blocks need. The
//! dictionary's id is a hash of its content and is stored in each block that
//! uses it. So block reuse can copy a block to another file together with its dictionary, and a
//! file may hold several dictionaries.
//!
//! A dictionary has two forms, and no reader keeps both: writers need its bytes, and decompression
//! needs the digested form, which contains the bytes once more.

use super::decode_error::{DecodeError, Decoded};
use crate::base::checksum;
use crate::base::zstd_memory::ZstdObject;
use zstd::zstd_safe::DDict;

/// Largest number of dictionaries in one file.
pub(super) const DICTIONARIES_MAX: usize = 4;

/// The bytes of a dictionary, which a writer compresses with and stores.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Dictionary {
    id: u32,
    bytes: Vec<u8>,
}

impl Dictionary {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        Self {
            id: id_of(&bytes),
            bytes,
        }
    }

    /// A hash of the content; never 0, because 0 stands for "no dictionary".
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// A dictionary in the form in which ZSTD decompresses with it. The block cache holds it.
pub struct DigestedDictionary {
    id: u32,
    digested: ZstdObject<DDict<'static>>,
}

impl DigestedDictionary {
    pub(super) fn of(dictionary: &Dictionary) -> Decoded<Self> {
        let digested = DDict::try_create(dictionary.bytes())
            .ok_or(DecodeError::Corrupt("dictionary cannot be digested"))?;
        Ok(Self {
            id: dictionary.id(),
            digested: ZstdObject::new(digested),
        })
    }

    /// As [`Dictionary::id`].
    pub(super) fn id(&self) -> u32 {
        self.id
    }

    pub(super) fn digested(&self) -> &DDict<'static> {
        self.digested.get()
    }

    /// Bytes of memory that the digested form takes.
    pub(super) fn memory(&self) -> usize {
        size_of::<Self>() + self.digested().sizeof()
    }
}

fn id_of(bytes: &[u8]) -> u32 {
    (checksum::xxh3(bytes) as u32).max(1)
}
