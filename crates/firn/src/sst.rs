//! Sorted string tables: immutable files of sorted entries.
//!
//! A file is a row of data blocks, then all a reader keeps in memory (filters, index, dictionary,
//! properties), then a footer of fixed size. `docs/formats/sst.md` has the bytes,
//! `docs/internals/sst.md` the reasons.
//!
//! Nothing read from a file is trusted: every block carries a checksum that includes its place, and
//! what the checksum lets through is bounds-checked. Damage is an error that names file and offset,
//! never a panic and never other data.

mod block;
mod block_frame;
mod codec;
mod compression_tuning;
mod decode_error;
mod dictionary;
mod dictionary_training;
mod filter;
mod format;
mod fuzz_decoders;
mod index;
mod index_stats;
mod iter;
mod options;
mod properties;
mod reader;
mod salvage;
mod sketches;
mod stored_block;
mod verify;
mod writer;

use crate::cache::{BlockCache, Weighted};
use std::sync::Arc;

pub use block::Block;
pub use codec::Codec;
pub use format::FORMAT_VERSION;
pub use fuzz_decoders::exercise_decoders;
pub use index::Partition;
pub use index_stats::IndexStats;
pub use iter::SstIter;
pub use options::{BlockLayout, Density, SstOptions};
pub use properties::Properties;
pub use reader::{BlockInfo, DataBlocks, OpenHints, SstReader};
pub use salvage::{LostRange, Salvage, SalvageIter};
pub use stored_block::StoredBlock;
pub use verify::VerifyReport;
pub use writer::{SstSummary, SstWriter};

/// An item that the readers of a database keep in the block cache.
#[derive(Clone)]
pub enum CachedBlock {
    /// A data block.
    Block(Arc<Block>),
    /// A partition of an index, with its filter.
    Partition(Arc<Partition>),
}

impl Weighted for CachedBlock {
    fn weight(&self) -> u64 {
        match self {
            Self::Block(block) => block.weight(),
            Self::Partition(partition) => partition.memory() as u64,
        }
    }
}

/// The cache that the readers of a database share.
pub type SstBlockCache = BlockCache<CachedBlock>;

#[cfg(test)]
mod tests;
