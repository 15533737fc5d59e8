//! A partition of the index: the unit that comes and goes as one.

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

/// Position and key that precede a partition; its own must be greater.
#[derive(Debug, Clone, Copy)]
pub(in crate::sst) struct PartitionStart<'a> {
    /// The last separator; empty before the first partition.
    pub(in crate::sst) separator: &'a [u8],
    /// Where the data blocks have ended, as far as is known.
    pub(in crate::sst) data_end: u64,
}

/// Data blocks that follow one another, and the filter over their keys. Never empty.
pub struct Partition {
    separators: SortedKeys,
    blocks: Vec<BlockEntry>,
    /// Entries before each block, counted from the start of the partition.
    entries_before: Vec<u64>,
    filter: Option<Filter>,
}

const BAD: DecodeError = DecodeError::Corrupt("index partition");

impl Partition {
    /// Decodes the partition that `top` describes and whose last separator is `last`.
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
            // The first of a partition shares nothing; all lie at or above the one before.
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

    /// The first block that reaches `user_key`; the number of blocks if none does.
    #[inline]
    pub(in crate::sst) fn find(&self, user_key: &[u8]) -> u32 {
        self.separators.lower_bound(user_key) as u32
    }

    /// Whether it may hold the key with this hash.
    #[inline]
    pub(in crate::sst) fn may_contain(&self, hash: u64) -> bool {
        self.filter.as_ref().is_none_or(|f| f.may_contain(hash))
    }

    /// Number of blocks.
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

    /// Entries in the blocks of the partition before `block`.
    pub(in crate::sst) fn entries_before(&self, block: u32) -> u64 {
        self.entries_before[block as usize]
    }

    /// First byte after the last data block.
    pub(in crate::sst) fn data_end(&self) -> u64 {
        self.blocks.last().map_or(0, |block| block.handle.end())
    }

    /// Bytes of memory, the filter included.
    pub(in crate::sst) fn memory(&self) -> usize {
        size_of::<Self>()
            + self.separators.memory()
            + self.blocks.capacity() * size_of::<BlockEntry>()
            + self.entries_before.capacity() * size_of::<u64>()
            + self.filter.as_ref().map_or(0, Filter::memory)
    }
}
