//! Counts of one index in one file, as the file's properties store them.

use crate::base::{IndexId, varint};

/// Counts of the entries that one index has in one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IndexStats {
    /// Id of the index.
    pub index: IndexId,
    /// Number of entries of all kinds.
    pub entries: u64,
    /// Number of entries that are tombstones.
    pub deletes: u64,
    /// Bytes of user keys and values before compression.
    pub raw_bytes: u64,
    /// Bytes of data blocks after compression. If several indexes have entries in a block, its
    /// bytes are divided between them in proportion to their raw bytes in the block.
    pub stored_bytes: u64,
}

impl IndexStats {
    pub(super) fn put(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, u64::from(self.index));
        for number in [
            self.entries,
            self.deletes,
            self.raw_bytes,
            self.stored_bytes,
        ] {
            varint::put_u64(out, number);
        }
    }

    pub(super) fn take(input: &mut &[u8]) -> Option<Self> {
        Some(Self {
            index: varint::take_u32(input)?,
            entries: varint::take_u64(input)?,
            deletes: varint::take_u64(input)?,
            raw_bytes: varint::take_u64(input)?,
            stored_bytes: varint::take_u64(input)?,
        })
    }
}
