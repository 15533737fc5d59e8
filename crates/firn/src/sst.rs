//! Sorted string tables: immutable files of sorted entries.
//!
//! A file consists of data blocks, then the tail (filters, index, dictionaries, properties), then a
//! footer of fixed size. `docs/formats/sst.md` has the byte format, `docs/internals/sst.md` the
//! reasons for it.
//!
//! Nothing read from a file is trusted. The checksum of each block covers the block's file id and
//! offset too, so that a block from another position is noticed. Decoders check all bounds even
//! after a checksum that matches. A damaged block gives an error that names the file and the
//! offset, never a panic or wrong data.

mod block;
mod block_compression;
mod block_frame;
mod compression_recipe;
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
mod read_ahead;
mod reader;
mod recipe_offers;
mod sketches;
mod sst_salvage;
mod stored_block;
mod verify;
mod writer;

use crate::cache::{BlockCache, Weighted};
use std::sync::Arc;

pub use block::Block;
pub use block_compression::Codec;
pub use dictionary::DigestedDictionary;
pub use format::FORMAT_VERSION;
pub use fuzz_decoders::exercise_decoders;
pub use index::Partition;
pub use index_stats::IndexStats;
pub use iter::SstIter;
pub use options::{BlockLayout, Density, SstOptions};
pub use properties::Properties;
pub(crate) use reader::REREADS_MAX;
pub use reader::{BlockInfo, DataBlocks, KeyPlace, OpenHints, SstReader};
pub use recipe_offers::RecipeOffers;
pub use sst_salvage::{LostRange, Salvage, SalvageIter};
pub use stored_block::StoredBlock;
pub use verify::VerifyReport;
pub use writer::{SstSummary, SstWriter};

/// An item of the block cache: a decoded data block, an index partition, or a dictionary. The
/// readers of all files share the cache.
#[derive(Clone)]
pub enum CachedBlock {
    /// A data block.
    Block(Arc<Block>),
    /// A partition of an index, with its filter.
    Partition(Arc<Partition>),
    /// A dictionary that data blocks are decompressed with.
    Dictionary(Arc<DigestedDictionary>),
}

impl Weighted for CachedBlock {
    fn weight(&self) -> u64 {
        match self {
            Self::Block(block) => block.weight(),
            Self::Partition(partition) => partition.memory() as u64,
            Self::Dictionary(dictionary) => dictionary.memory() as u64,
        }
    }
}

/// The block cache that all SST readers of a database share.
pub type SstBlockCache = BlockCache<CachedBlock>;

#[cfg(test)]
mod tests;
