//! The index of an SST: index partitions describe the data blocks, and the top index describes the
//! partitions.
//!
//! Each data block has a *separator*: a key at or above the last key of the block and below the
//! first key of the next block, as short as possible. One user key may have versions in both
//! blocks; then the separator is that key, and a search for an older version goes on into the next
//! block.

mod builder;
mod decoded;
mod keys;
mod partition;

pub(super) use builder::{IndexBuilder, separator, top_index};
pub(super) use decoded::{BlockPosition, Index};
pub use partition::Partition;

use super::format::Handle;
use crate::base::{Seqno, varint};

/// Counts that the index keeps for each data block, and for all blocks of a partition together.
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

/// Share of deletions, in quarters, from which on a block counts as dense in deletions: a scan
/// passes most of its entries and finds few rows. A share of one half would be too low. It is
/// reached by all blocks of an index whose keys are updated, because such an update is a deletion
/// and a put.
const DENSE_QUARTERS: u64 = 3;

impl BlockStats {
    /// The number of deletions if the block is dense in them, else 0.
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

/// The index entry of a data block: its location and its counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct BlockEntry {
    pub(super) handle: Handle,
    pub(super) stats: BlockStats,
}

#[cfg(test)]
mod tests;
