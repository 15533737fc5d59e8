//! The index as a reader keeps it: decoded, searched without touching the file.

use super::{BlockEntry, Stats};
use crate::base::varint;
use crate::sst::damage::{Damage, Decoded};
use crate::sst::filter::Filter;
use crate::sst::format::{Handle, RAW_BLOCK_MAX};

/// Sorted keys in one buffer. What all start with is kept once, and the eight bytes after it as an
/// integer, so that most steps of a search compare two integers.
#[derive(Default)]
struct Keys {
    common: usize,
    bytes: Vec<u8>,
    ends: Vec<u32>,
    heads: Vec<u64>,
}

fn head_of(key: &[u8], common: usize) -> u64 {
    let rest = key.get(common..).unwrap_or(&[]);
    match rest.first_chunk::<8>() {
        Some(eight) => u64::from_be_bytes(*eight),
        None => {
            let mut padded = [0; 8];
            padded[..rest.len()].copy_from_slice(rest);
            u64::from_be_bytes(padded)
        }
    }
}

impl Keys {
    /// Adds the key that follows; `None` if the keys grow past any sane index.
    fn push(&mut self, key: &[u8]) -> Option<()> {
        if self.bytes.len() + key.len() > RAW_BLOCK_MAX {
            return None;
        }
        self.bytes.extend_from_slice(key);
        self.ends.push(self.bytes.len() as u32);
        Some(())
    }

    fn get(&self, i: usize) -> &[u8] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.bytes[start..self.ends[i] as usize]
    }

    /// Ends the pushing; the keys were pushed in order.
    fn seal(&mut self) {
        let len = self.ends.len();
        if len > 0 {
            let pairs = self.get(0).iter().zip(self.get(len - 1));
            self.common = pairs.take_while(|(a, b)| a == b).count();
        }
        self.heads = (0..len)
            .map(|i| head_of(self.get(i), self.common))
            .collect();
        self.bytes.shrink_to_fit();
        self.ends.shrink_to_fit();
    }

    /// The first key ≥ `key`; their number if there is none.
    #[inline]
    fn lower_bound(&self, key: &[u8]) -> usize {
        let len = self.ends.len();
        if len == 0 {
            return 0;
        }
        let common = self.common.min(key.len());
        match key[..common].cmp(&self.bytes[..common]) {
            std::cmp::Ordering::Less => return 0,
            std::cmp::Ordering::Greater => return len,
            // A key shorter than what all have in common lies below all.
            std::cmp::Ordering::Equal if common < self.common => return 0,
            std::cmp::Ordering::Equal => {}
        }
        let head = head_of(key, self.common);
        let mut at = self.heads.partition_point(|&h| h < head);
        if at < len && self.heads[at] == head {
            let same = at + self.heads[at..].partition_point(|&h| h == head);
            let (mut low, mut high) = (at, same);
            while low < high {
                let mid = low + (high - low) / 2;
                if self.get(mid) < key {
                    low = mid + 1
                } else {
                    high = mid
                }
            }
            at = low;
        }
        at
    }

    fn memory(&self) -> usize {
        self.bytes.capacity() + self.ends.capacity() * 4 + self.heads.capacity() * 8
    }
}

struct Partition {
    separators: Keys,
    blocks: Vec<BlockEntry>,
    /// Entries before each block, counted from the start of the partition.
    entries_before: Vec<u64>,
    filter: Option<Filter>,
}

/// What the top index says about a partition.
pub(in crate::sst) struct TopEntry {
    pub(in crate::sst) index: Handle,
    pub(in crate::sst) filter: Handle,
    blocks: u64,
    stats: Stats,
    last_separator: Vec<u8>,
}

/// Names a data block: partition, and number in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::sst) struct Spot {
    partition: u32,
    block: u32,
}

/// The whole index of a file, decoded.
///
/// Invariants: no partition is empty; separators ascend (not strictly: versions of one key may fill
/// several blocks); blocks follow one another in the file.
#[derive(Default)]
pub(in crate::sst) struct Index {
    last_separators: Keys,
    partitions: Vec<Partition>,
    /// Entries before each partition.
    entries_before: Vec<u64>,
    entries: u64,
    data_end: u64,
}

const BAD_TOP: Damage = Damage::Corrupt("top index");
const BAD_PARTITION: Damage = Damage::Corrupt("index partition");

/// Decodes the top index.
pub(in crate::sst) fn decode_top(mut input: &[u8]) -> Decoded<Vec<TopEntry>> {
    let count = varint::take_u64(&mut input).ok_or(BAD_TOP)?;
    let mut entries = Vec::new();
    for _ in 0..count {
        entries.push(take_top(&mut input).ok_or(BAD_TOP)?);
    }
    if input.is_empty() {
        Ok(entries)
    } else {
        Err(BAD_TOP)
    }
}

fn take_top(input: &mut &[u8]) -> Option<TopEntry> {
    Some(TopEntry {
        last_separator: varint::take_bytes(input)?.to_vec(),
        index: Handle::take(input)?,
        filter: Handle::take(input)?,
        blocks: varint::take_u64(input)?,
        stats: Stats::take(input)?,
    })
}

impl Index {
    /// Adds the partition that follows.
    pub(in crate::sst) fn push(
        &mut self,
        top: &TopEntry,
        raw: &[u8],
        filter: Option<Filter>,
    ) -> Decoded<()> {
        let mut partition = Partition {
            separators: Keys::default(),
            blocks: Vec::new(),
            entries_before: Vec::new(),
            filter,
        };
        let mut input = raw;
        let stats = self
            .take_blocks(&mut input, &mut partition)
            .ok_or(BAD_PARTITION)?;
        let last = partition.blocks.len().checked_sub(1).ok_or(BAD_PARTITION)?;
        if !input.is_empty()
            || stats != top.stats
            || top.blocks != partition.blocks.len() as u64
            || partition.separators.get(last) != top.last_separator
        {
            return Err(Damage::Corrupt(
                "index partition differs from the top index",
            ));
        }
        partition.separators.seal();
        self.last_separators
            .push(&top.last_separator)
            .ok_or(BAD_TOP)?;
        self.entries_before.push(self.entries);
        self.entries = self
            .entries
            .checked_add(stats.entries)
            .ok_or(BAD_PARTITION)?;
        self.partitions.push(partition);
        Ok(())
    }

    fn take_blocks(&mut self, input: &mut &[u8], partition: &mut Partition) -> Option<Stats> {
        let mut stats = Stats::default();
        let mut separator = match self.partitions.last() {
            Some(before) => before.separators.get(before.blocks.len() - 1).to_vec(),
            None => Vec::new(),
        };
        let mut end = 0;
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
            if handle.offset < self.data_end {
                return None;
            }
            end = handle.offset.checked_add(u64::from(handle.len))?;
            self.data_end = end;
            let block = BlockEntry {
                handle,
                stats: Stats::take(input)?,
            };
            partition.separators.push(&separator)?;
            partition.entries_before.push(stats.entries);
            partition.blocks.push(block);
            stats.add(&block.stats);
        }
        Some(stats)
    }

    /// Ends the pushing.
    pub(in crate::sst) fn seal(&mut self) {
        self.last_separators.seal();
    }

    /// The only block where a search for `user_key` can begin; `None` above all keys.
    #[inline]
    pub(in crate::sst) fn find(&self, user_key: &[u8]) -> Option<Spot> {
        let partition = self.last_separators.lower_bound(user_key);
        let block = self
            .partitions
            .get(partition)?
            .separators
            .lower_bound(user_key);
        Some(Spot {
            partition: partition as u32,
            block: block as u32,
        })
    }

    /// Whether the partition of `spot` may hold the key with this hash.
    #[inline]
    pub(in crate::sst) fn may_contain(&self, spot: Spot, hash: u64) -> bool {
        let filter = &self.partitions[spot.partition as usize].filter;
        filter.as_ref().is_none_or(|f| f.may_contain(hash))
    }

    #[inline]
    pub(in crate::sst) fn block(&self, spot: Spot) -> &BlockEntry {
        &self.partitions[spot.partition as usize].blocks[spot.block as usize]
    }

    pub(in crate::sst) fn separator(&self, spot: Spot) -> &[u8] {
        self.partitions[spot.partition as usize]
            .separators
            .get(spot.block as usize)
    }

    pub(in crate::sst) fn first(&self) -> Option<Spot> {
        (!self.partitions.is_empty()).then_some(Spot {
            partition: 0,
            block: 0,
        })
    }

    pub(in crate::sst) fn last(&self) -> Option<Spot> {
        let partition = self.partitions.len().checked_sub(1)?;
        Some(self.last_of(partition))
    }

    fn last_of(&self, partition: usize) -> Spot {
        Spot {
            partition: partition as u32,
            block: self.partitions[partition].blocks.len() as u32 - 1,
        }
    }

    pub(in crate::sst) fn next(&self, spot: Spot) -> Option<Spot> {
        let block = spot.block + 1;
        if (block as usize) < self.partitions[spot.partition as usize].blocks.len() {
            return Some(Spot { block, ..spot });
        }
        let partition = spot.partition + 1;
        ((partition as usize) < self.partitions.len()).then_some(Spot {
            partition,
            block: 0,
        })
    }

    pub(in crate::sst) fn prev(&self, spot: Spot) -> Option<Spot> {
        match spot.block.checked_sub(1) {
            Some(block) => Some(Spot { block, ..spot }),
            None => Some(self.last_of(spot.partition.checked_sub(1)? as usize)),
        }
    }

    /// All blocks in key order.
    pub(in crate::sst) fn spots(&self) -> impl Iterator<Item = Spot> {
        std::iter::successors(self.first(), |&spot| self.next(spot))
    }

    /// Entries in the blocks before `spot`.
    pub(in crate::sst) fn entries_before(&self, spot: Spot) -> u64 {
        let partition = spot.partition as usize;
        self.entries_before[partition]
            + self.partitions[partition].entries_before[spot.block as usize]
    }

    /// Entries in all blocks.
    pub(in crate::sst) fn entries(&self) -> u64 {
        self.entries
    }

    /// First byte after the last data block.
    pub(in crate::sst) fn data_end(&self) -> u64 {
        self.data_end
    }

    /// Bytes of memory, filters included.
    pub(in crate::sst) fn memory(&self) -> usize {
        let partition = |p: &Partition| {
            size_of::<Partition>()
                + p.separators.memory()
                + p.blocks.capacity() * size_of::<BlockEntry>()
                + p.entries_before.capacity() * 8
                + p.filter.as_ref().map_or(0, Filter::memory)
        };
        self.last_separators.memory() + self.partitions.iter().map(partition).sum::<usize>()
    }
}
