//! Names of values in the pool.

use xxhash_rust::xxh3::{xxh3_64_with_seed, xxh3_128_with_seed};

/// Bytes of a name.
pub const NAME_LEN: usize = 16;

/// The seeds keep names of different kinds apart.
const BLOCK: u64 = 0;
const BLOB_CHUNK: u64 = 1;
const NEWS: u64 = 2;

/// The name of a value: XXH3-128 of everything that makes the value's bytes what they are. The
/// checksum of the file is part of it, so two files that got the same id (a fork of a database, a
/// restored copy) never share a name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Name([u8; NAME_LEN]);

impl Name {
    /// The name of the stored block at `offset` of a file. `file_checksum` is the one that the
    /// manifest has for the file.
    pub fn of_block(file_id: u64, file_checksum: u64, offset: u64) -> Self {
        Self::of(BLOCK, [file_id, file_checksum, offset])
    }

    /// The name of a chunk of a value out of line. `checksum` is the one of the reference to the
    /// value.
    pub fn of_blob_chunk(file_id: u64, checksum: u64, chunk: u64) -> Self {
        Self::of(BLOB_CHUNK, [file_id, checksum, chunk])
    }

    /// The name of a page of news; see [`crate::news`].
    pub(crate) fn of_news(kind: u64, server: u64, number: u64) -> Self {
        Self::of(NEWS, [kind, server, number])
    }

    fn of(seed: u64, parts: [u64; 3]) -> Self {
        let mut bytes = [0; 24];
        for (at, part) in parts.iter().enumerate() {
            bytes[at * 8..at * 8 + 8].copy_from_slice(&part.to_le_bytes());
        }
        Self(xxh3_128_with_seed(&bytes, seed).to_le_bytes())
    }

    /// The name under a mask that depends on the key.
    pub(crate) fn masked(&self, mask: &[u8; NAME_LEN]) -> Self {
        Self(std::array::from_fn(|at| self.0[at] ^ mask[at]))
    }

    /// The name as bytes.
    pub fn as_bytes(&self) -> &[u8; NAME_LEN] {
        &self.0
    }

    /// The half of the name by which the fingerprint table and news know it.
    pub fn short(&self) -> u64 {
        u64::from_le_bytes(self.0[..8].try_into().unwrap_or_default())
    }

    /// The hash of the name for the node with this seed; see [`crate::rendezvous`].
    pub(crate) fn hash_for(&self, node_seed: u64) -> u64 {
        xxh3_64_with_seed(&self.0, node_seed)
    }

    /// Appends the name in base64, which is how a command of the meta protocol carries binary
    /// keys.
    pub(crate) fn write_base64(&self, out: &mut Vec<u8>) {
        const DIGITS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        for chunk in self.0.chunks(3) {
            let mut group = [0; 3];
            group[..chunk.len()].copy_from_slice(chunk);
            let bits = u32::from_be_bytes([0, group[0], group[1], group[2]]);
            for digit in 0..4 {
                let index = (bits >> (18 - 6 * digit)) as usize & 63;
                out.push(if digit <= chunk.len() {
                    DIGITS[index]
                } else {
                    b'='
                });
            }
        }
    }
}

#[cfg(test)]
mod tests;
