//! The index: partitions over data blocks, a top index over partitions.
//!
//! A *separator* stands between the last key of its block and the first of the next, as short as it
//! can be. Versions of one user key may cross a block's end; the separator is then that key, and a
//! search for older versions goes on into the next block.

mod builder;
mod decoded;
mod keys;
mod partition;

pub(super) use builder::{IndexBuilder, separator, top_index};
pub(super) use decoded::{BlockPosition, Index};
pub use partition::Partition;

use super::format::Handle;
use crate::base::{Seqno, varint};

/// Counts that the index keeps for one data block, or for all blocks of a partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockStats {
    pub(super) entries: u64,
    pub(super) deletes: u64,
    pub(super) min_seqno: Seqno,
    pub(super) max_seqno: Seqno,
}

impl Default for BlockStats {
    fn default() -> Self {
        Self {
            entries: 0,
            deletes: 0,
            min_seqno: Seqno::MAX,
            max_seqno: 0,
        }
    }
}

/// A block is dense in deletions if they are at least three quarters of its entries: a scan passes
/// them and finds few rows. With a share of one half, all blocks of an index whose keys are updated
/// would count as dense, because such an update is a deletion and a put.
const DENSE_QUARTERS: u64 = 3;

impl BlockStats {
    /// Deletions, if the block is dense in them; else 0.
    pub(in crate::sst) fn dense_deletes(&self) -> u64 {
        let dense =
            u128::from(self.deletes) * 4 >= u128::from(self.entries) * u128::from(DENSE_QUARTERS);
        if dense { self.deletes } else { 0 }
    }

    pub(super) fn add_entry(&mut self, seqno: Seqno, delete: bool) {
        self.entries += 1;
        self.deletes += u64::from(delete);
        self.min_seqno = self.min_seqno.min(seqno);
        self.max_seqno = self.max_seqno.max(seqno);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.entries = self.entries.saturating_add(other.entries);
        self.deletes = self.deletes.saturating_add(other.deletes);
        self.min_seqno = self.min_seqno.min(other.min_seqno);
        self.max_seqno = self.max_seqno.max(other.max_seqno);
    }

    fn put(&self, out: &mut Vec<u8>) {
        varint::put_u64(out, self.entries);
        varint::put_u64(out, self.deletes);
        varint::put_u64(out, self.min_seqno);
        varint::put_u64(out, self.max_seqno - self.min_seqno);
    }

    fn take(input: &mut &[u8]) -> Option<Self> {
        let entries = varint::take_u64(input)?;
        let deletes = varint::take_u64(input)?;
        let min_seqno = varint::take_u64(input)?;
        Some(Self {
            entries,
            deletes,
            min_seqno,
            max_seqno: min_seqno.checked_add(varint::take_u64(input)?)?,
        })
    }
}

/// The index entry of a data block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEntry {
    pub(super) handle: Handle,
    pub(super) stats: BlockStats,
}

#[cfg(test)]
mod tests;
