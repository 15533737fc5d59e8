//! Options for writing an SST: layout, codec, filters.

use super::block_compression::Codec;

/// How the entries of a data block are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockLayout {
    /// Each value lies beside its key: for files that compactions soon rewrite.
    RowWise,
    /// Keys, value heads and value tails lie in sections of their own, which compresses better: for
    /// files that stay.
    Sectioned,
}

/// How an SST is written.
#[derive(Debug, Clone)]
pub struct SstOptions {
    /// Number of raw bytes at which a data block ends.
    pub block_size: usize,
    /// Layout of the data blocks.
    pub layout: BlockLayout,
    /// Compression of the data blocks.
    pub codec: Codec,
    /// Bits of filter for each key; 0 writes no filters.
    pub filter_bits_per_key: u32,
    /// Whether row-wise data blocks, and sectioned ones with keys of different lengths, have a hash
    /// index for point reads.
    pub hash_index: bool,
    /// Number of raw bytes at which an index partition ends.
    pub index_partition_size: usize,
}

const FILTER_BITS_PER_KEY: u32 = 10;
const INDEX_PARTITION_SIZE: usize = 4 << 10;
const ZSTD_LEVEL: i32 = 3;

/// How densely a file is written. The density decides on the file's layout and codec
/// ([`SstOptions::of`]).
///
/// A dense file takes a third of the bytes of a light one, but more time to write and to search. So
/// dense files are worth their cost only where data stays.
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

    /// The options of a light file.
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

    /// The options of a dense file. It has no hash index, because the bytes of one do not compress.
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
