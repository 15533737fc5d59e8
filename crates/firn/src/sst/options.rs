//! How SSTs are written: layout, codec, filters.

use super::codec::Codec;

/// How the entries of a data block are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockLayout {
    /// Values beside their keys: for upper levels.
    RowWise,
    /// Keys, heads and tails apart: denser, for the last level.
    Sectioned,
}

/// How an SST is written.
#[derive(Debug, Clone)]
pub struct SstOptions {
    /// Raw bytes at which a data block ends.
    pub block_size: usize,
    /// Layout of the data blocks.
    pub layout: BlockLayout,
    /// Compression of the data blocks.
    pub codec: Codec,
    /// Bits per key of the filters; 0 writes none.
    pub filter_bits_per_key: u32,
    /// Whether blocks carry a hash index for point reads.
    pub hash_index: bool,
    /// Raw bytes at which an index partition ends.
    pub index_partition_size: usize,
}

const FILTER_BITS_PER_KEY: u32 = 10;
const INDEX_PARTITION_SIZE: usize = 4 << 10;
const ZSTD_LEVEL: i32 = 3;

/// How densely a file is written: the policy of codecs by level.
///
/// Dense files take a third of the bytes and more time to write and to search. So they pay where
/// data stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Density {
    /// For data that compactions soon rewrite: files above the last level that are not at rest, and
    /// spilled files of large transactions that lie in the range of older data.
    Light,
    /// For data that stays: the last level, files at rest above it, bulk loads, spilled
    /// files of keys beyond all older data, index builds, and files written by a repair.
    Dense,
}

impl SstOptions {
    /// The options for a file of this density.
    pub fn of(density: Density, block_size: usize) -> Self {
        match density {
            Density::Light => Self::upper_level(block_size),
            Density::Dense => Self::last_level(block_size),
        }
    }

    /// For levels that are rewritten soon.
    pub fn upper_level(block_size: usize) -> Self {
        Self {
            block_size,
            layout: BlockLayout::RowWise,
            codec: Codec::Lz4,
            filter_bits_per_key: FILTER_BITS_PER_KEY,
            hash_index: true,
            index_partition_size: INDEX_PARTITION_SIZE,
        }
    }

    /// For the last level: dense, and no hash index, whose bytes do not compress.
    pub fn last_level(block_size: usize) -> Self {
        Self {
            layout: BlockLayout::Sectioned,
            codec: Codec::Zstd {
                level: ZSTD_LEVEL,
                dictionary: true,
            },
            hash_index: false,
            ..Self::upper_level(block_size)
        }
    }
}
