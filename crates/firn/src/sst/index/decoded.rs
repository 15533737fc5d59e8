//! The decoded index, as a reader keeps it.

use super::BlockStats;
use super::keys::SortedKeys;
use super::partition::{Partition, PartitionStart, TopEntry};
use crate::base::varint;
use crate::sst::decode_error::{DecodeError, Decoded};
use crate::sst::format::Handle;
use std::sync::Arc;

/// Position of a data block: the number of its index partition, and its number in that partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sst) struct BlockPosition {
    pub(in crate::sst) partition: u32,
    pub(in crate::sst) block: u32,
}

/// The index of a file: the top index, and either all partitions or none. If it has none, the
/// reader takes partitions from the block cache, one at a time, and methods that access the
/// partition of a [`BlockPosition`] must not be called. Moving from one position to the next or
/// previous one needs only the top index.
///
/// Invariants: each partition describes at least one block. Separators ascend, though not strictly,
/// because versions of one key may fill several blocks. The offsets of blocks ascend.
#[derive(Default, Clone)]
pub(in crate::sst) struct Index {
    top: Arc<TopIndex>,
    partitions: Vec<Arc<Partition>>,
}

/// The top index: an entry for each partition.
#[derive(Default)]
struct TopIndex {
    last_separators: SortedKeys,
    partitions: Vec<TopEntry>,
    /// For each partition, the number of entries in all partitions before it.
    entries_before: Vec<u64>,
    entries: u64,
}

const BAD_TOP: DecodeError = DecodeError::Corrupt("top index");

fn take_top(input: &mut &[u8], top: &mut TopIndex) -> Option<()> {
    let mut last: Option<&[u8]> = None;
    for _ in 0..varint::take_u64(input)? {
        let separator = varint::take_bytes(input)?;
        // Separators must ascend: a search takes the first partition whose last separator is at or
        // above the key.
        if last.is_some_and(|last| separator < last) {
            return None;
        }
        last = Some(separator);
        top.last_separators.push(separator)?;
        let entry = TopEntry {
            index: Handle::take(input)?,
            filter: Handle::take(input)?,
            blocks: varint::take_u32(input).filter(|&blocks| blocks > 0)?,
            stats: BlockStats::take(input)?,
        };
        top.entries_before.push(top.entries);
        top.entries = top.entries.checked_add(entry.stats.entries)?;
        top.partitions.push(entry);
    }
    input.is_empty().then_some(())
}

impl Index {
    /// The index with the top index that `input` holds, and without partitions.
    pub(in crate::sst) fn decode_top(mut input: &[u8]) -> Decoded<Self> {
        let mut top = TopIndex::default();
        take_top(&mut input, &mut top).ok_or(BAD_TOP)?;
        top.last_separators.seal();
        Ok(Self {
            top: Arc::new(top),
            partitions: Vec::new(),
        })
    }

    /// A copy of this index that has all partitions in memory. To get each partition, calls `load`
    /// with the number of the partition and the offset at which its first data block begins, that
    /// is, where the blocks of the partition before it end.
    pub(in crate::sst) fn with_all<E>(
        &self,
        mut load: impl FnMut(u32, u64) -> Result<Arc<Partition>, E>,
    ) -> Result<Self, E> {
        let mut all = Self {
            top: Arc::clone(&self.top),
            partitions: Vec::with_capacity(self.top.partitions.len()),
        };
        for number in 0..self.top.partitions.len() as u32 {
            all.partitions.push(load(number, all.data_end())?);
        }
        Ok(all)
    }

    /// Whether the partitions are in memory.
    #[inline]
    pub(in crate::sst) fn is_whole(&self) -> bool {
        self.partitions.len() == self.top.partitions.len()
    }

    /// Number of partitions, in memory or not.
    pub(in crate::sst) fn partitions(&self) -> u32 {
        self.top.partitions.len() as u32
    }

    /// The separator of the last block of partition `number`.
    pub(in crate::sst) fn last_separator(&self, number: u32) -> &[u8] {
        self.top.last_separators.get(number as usize)
    }

    /// The top index's entry for partition `number`.
    pub(in crate::sst) fn top(&self, number: u32) -> &TopEntry {
        &self.top.partitions[number as usize]
    }

    /// Decodes partition `number`. `data_end` is the end of the data blocks before the partition,
    /// or 0 if that is not known.
    pub(in crate::sst) fn decode(
        &self,
        number: u32,
        data_end: u64,
        raw: &[u8],
        filter: Option<crate::sst::filter::Filter>,
    ) -> Decoded<Partition> {
        let keys = &self.top.last_separators;
        let before = PartitionStart {
            separator: match number.checked_sub(1) {
                Some(before) => keys.get(before as usize),
                None => &[],
            },
            data_end,
        };
        let last = keys.get(number as usize);
        Partition::decode(self.top(number), last, before, raw, filter)
    }

    /// The only partition in which a search for `user_key` can begin; `None` if the key lies above
    /// all keys of the file.
    #[inline]
    pub(in crate::sst) fn partition_of(&self, user_key: &[u8]) -> Option<u32> {
        let number = self.top.last_separators.lower_bound(user_key);
        (number < self.top.partitions.len()).then_some(number as u32)
    }

    /// Partition `number`, if the partitions are in memory.
    #[inline]
    pub(in crate::sst) fn partition(&self, number: u32) -> Option<&Arc<Partition>> {
        self.partitions.get(number as usize)
    }

    fn of(&self, spot: BlockPosition) -> &Partition {
        &self.partitions[spot.partition as usize]
    }

    /// The only block in which a search for `user_key` can begin; `None` if the key lies above all
    /// keys of the file.
    pub(in crate::sst) fn find(&self, user_key: &[u8]) -> Option<BlockPosition> {
        let partition = self.partition_of(user_key)?;
        let block = self.partitions[partition as usize].find(user_key);
        Some(BlockPosition { partition, block })
    }

    /// Whether the filter of the partition in which `spot` lies admits a key with this hash;
    /// `false` means that the partition does not have the key.
    pub(in crate::sst) fn may_contain(&self, spot: BlockPosition, hash: u64) -> bool {
        self.of(spot).may_contain(hash)
    }

    pub(in crate::sst) fn block(&self, spot: BlockPosition) -> &super::BlockEntry {
        self.of(spot).block(spot.block)
    }

    pub(in crate::sst) fn separator(&self, spot: BlockPosition) -> &[u8] {
        self.of(spot).separator(spot.block)
    }

    pub(in crate::sst) fn first(&self) -> Option<BlockPosition> {
        (!self.top.partitions.is_empty()).then_some(BlockPosition {
            partition: 0,
            block: 0,
        })
    }

    pub(in crate::sst) fn last(&self) -> Option<BlockPosition> {
        let partition = self.top.partitions.len().checked_sub(1)?;
        Some(self.last_of(partition as u32))
    }

    fn last_of(&self, partition: u32) -> BlockPosition {
        BlockPosition {
            partition,
            block: self.top(partition).blocks - 1,
        }
    }

    pub(in crate::sst) fn next(&self, spot: BlockPosition) -> Option<BlockPosition> {
        let block = spot.block + 1;
        if block < self.top(spot.partition).blocks {
            return Some(BlockPosition { block, ..spot });
        }
        let partition = spot.partition + 1;
        ((partition as usize) < self.top.partitions.len()).then_some(BlockPosition {
            partition,
            block: 0,
        })
    }

    pub(in crate::sst) fn prev(&self, spot: BlockPosition) -> Option<BlockPosition> {
        match spot.block.checked_sub(1) {
            Some(block) => Some(BlockPosition { block, ..spot }),
            None => Some(self.last_of(spot.partition.checked_sub(1)?)),
        }
    }

    /// The positions of all blocks, in key order.
    pub(in crate::sst) fn spots(&self) -> impl Iterator<Item = BlockPosition> {
        std::iter::successors(self.first(), |&spot| self.next(spot))
    }

    /// Number of entries in the partitions before partition `number`.
    pub(in crate::sst) fn entries_before_partition(&self, number: u32) -> u64 {
        self.top.entries_before[number as usize]
    }

    /// Number of entries in all blocks of the file.
    pub(in crate::sst) fn entries(&self) -> u64 {
        self.top.entries
    }

    /// Offset of the first byte after the data blocks of the partitions in memory; 0 if no
    /// partition is in memory.
    pub(in crate::sst) fn data_end(&self) -> u64 {
        self.partitions.last().map_or(0, |p| p.data_end())
    }

    /// Bytes of memory that the top index takes.
    pub(in crate::sst) fn top_memory(&self) -> usize {
        self.top.last_separators.memory()
            + self.top.partitions.capacity() * size_of::<TopEntry>()
            + self.top.entries_before.capacity() * size_of::<u64>()
    }

    /// Bytes of memory that the partitions in memory take, filters included.
    pub(in crate::sst) fn partitions_memory(&self) -> usize {
        let each = self.partitions.iter().map(|p| p.memory());
        each.sum::<usize>() + self.partitions.capacity() * size_of::<usize>()
    }
}
