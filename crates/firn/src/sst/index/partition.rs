//! An index partition: the unit in which the index is loaded and evicted.

use super::keys::SortedKeys;
use super::{BlockEntry, BlockStats};
use crate::base::varint;
use crate::sst::decode_error::{DecodeError, Decoded};
use crate::sst::filter::Filter;
use crate::sst::format::Handle;

/// The top index's entry for a partition.
#[derive(Debug, Clone, Copy)]
pub(in crate::sst) struct TopEntry {
    pub(in crate::sst) index: Handle,
    pub(in crate::sst) filter: Handle,
    pub(in crate::sst) blocks: u32,
    pub(in crate::sst) stats: BlockStats,
}

/// Separator and offset that precede a partition. The partition's own separators and block offsets
/// must not lie below them.
#[derive(Debug, Clone, Copy)]
pub(in crate::sst) struct PartitionStart<'a> {
    /// The last separator of the partition before; empty for the first partition.
    pub(in crate::sst) separator: &'a [u8],
    /// End of the data blocks before the partition, or 0 if it is not known.
    pub(in crate::sst) data_end: u64,
}

/// The index entries of consecutive data blocks, and the filter over the keys of these blocks.
/// There is at least one block.
pub struct Partition {
    separators: SortedKeys,
    blocks: Vec<BlockEntry>,
    /// For each block, the number of entries in the blocks before it in this partition.
    entries_before: Vec<u64>,
    filter: Option<Filter>,
}

const BAD: DecodeError = DecodeError::Corrupt("index partition");

impl Partition {
    /// Decodes the index partition that `top`, an entry of the file's top index, describes. `last`
    /// is the last separator of the partition.
    pub(in crate::sst) fn decode(
        top: &TopEntry,
        last: &[u8],
        before: PartitionStart<'_>,
        raw: &[u8],
        filter: Option<Filter>,
    ) -> Decoded<Self> {
        let mut partition = Self {
            separators: SortedKeys::default(),
            blocks: Vec::new(),
            entries_before: Vec::new(),
            filter,
        };
        let mut input = raw;
        let stats = partition.take_blocks(&mut input, before).ok_or(BAD)?;
        let len = partition.blocks.len();
        if len == 0
            || !input.is_empty()
            || stats != top.stats
            || len != top.blocks as usize
            || partition.separators.get(len - 1) != last
        {
            return Err(DecodeError::Corrupt(
                "index partition differs from the top index",
            ));
        }
        partition.separators.seal();
        partition.blocks.shrink_to_fit();
        partition.entries_before.shrink_to_fit();
        Ok(partition)
    }

    fn take_blocks(&mut self, input: &mut &[u8], before: PartitionStart<'_>) -> Option<BlockStats> {
        let mut stats = BlockStats::default();
        let mut separator = before.separator.to_vec();
        let (mut end, mut data_end) = (0, before.data_end);
        for i in 0..varint::take_u64(input)? {
            let shared = usize::try_from(varint::take_u64(input)?).ok()?;
            let suffix = varint::take_bytes(input)?;
            // The first separator of a partition is stored in full. Each separator must be at or
            // above the one before.
            if (i == 0 && shared != 0) || suffix < separator.get(shared..)? {
                return None;
            }
            separator.truncate(shared);
            separator.extend_from_slice(suffix);
            let handle = Handle {
                offset: varint::take_u64(input)?.checked_add(end)?,
                len: varint::take_u32(input)?,
            };
            if handle.offset < data_end {
                return None;
            }
            end = handle.offset.checked_add(u64::from(handle.len))?;
            data_end = end;
            let block = BlockEntry {
                handle,
                stats: BlockStats::take(input)?,
            };
            self.separators.push(&separator)?;
            self.entries_before.push(stats.entries);
            self.blocks.push(block);
            stats.add(&block.stats);
        }
        Some(stats)
    }

    /// The first block whose separator is at or above `user_key`; the number of blocks if there is
    /// none.
    #[inline]
    pub(in crate::sst) fn find(&self, user_key: &[u8]) -> u32 {
        self.separators.lower_bound(user_key) as u32
    }

    /// Whether a block of the partition may hold a key with this hash; `false` means that none
    /// does.
    #[inline]
    pub(in crate::sst) fn may_contain(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|f| f.may_contain(hash))
    }

    /// Number of data blocks in the partition.
    pub(in crate::sst) fn blocks(&self) -> u32 {
        self.blocks.len() as u32
    }

    #[inline]
    pub(in crate::sst) fn block(&self, block: u32) -> &BlockEntry {
        &self.blocks[block as usize]
    }

    pub(in crate::sst) fn separator(&self, block: u32) -> &[u8] {
        self.separators.get(block as usize)
    }

    /// Number of entries in the blocks of the partition before `block`.
    pub(in crate::sst) fn entries_before(&self, block: u32) -> u64 {
        self.entries_before[block as usize]
    }

    /// Offset of the first byte after the last data block of the partition.
    pub(in crate::sst) fn data_end(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.handle.end())
    }

    /// Bytes of memory that the partition takes, the filter included.
    pub(in crate::sst) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.separators.memory()
            + self.blocks.capacity() * size_of::<BlockEntry>()
            + self.entries_before.capacity() * size_of::<u64>()
            + self.filter.as_ref().map_or(0, Filter::memory)
    }
}
