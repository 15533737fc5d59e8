//! Builds the index while the data blocks are written.

use super::{BlockEntry, BlockStats};
use crate::base::varint;
use crate::sst::filter;
use crate::sst::format::Handle;

/// A key at or above `last` and below `next`: a short one, or `last` itself if that is not shorter.
pub(in crate::sst) fn separator(last: &[u8], next: &[u8]) -> Vec<u8> {
    let common = last.iter().zip(next).take_while(|(a, b)| a == b).count();
    if common == last.len() || common == next.len() {
        return last.to_vec();
    }
    let raised = |i: usize| {
        let mut key = last[..=i].to_vec();
        key[i] += 1;
        key
    };
    if last[common] + 1 < next[common] {
        return raised(common);
    }
    // Behind their common prefix, the byte of `next` is greater than that of `last` by 1 exactly,
    // so no byte fits in between. Keep the byte of `last`, so that the separator stays below
    // `next`, and raise a later byte of `last`.
    match (common + 1..last.len()).find(|&i| last[i] < 0xff) {
        Some(i) if i + 1 < last.len() => raised(i),
        _ => last.to_vec(),
    }
}

/// A complete index partition, raw: the writer still has to compress and append it.
pub(in crate::sst) struct BuiltPartition {
    pub(in crate::sst) last_separator: Vec<u8>,
    pub(in crate::sst) raw_index: Vec<u8>,
    pub(in crate::sst) raw_filter: Option<Vec<u8>>,
    blocks: u64,
    stats: BlockStats,
}

/// Collects the index entries of data blocks and the hashes of their keys, and ends a partition
/// when it is large enough.
pub(in crate::sst) struct IndexBuilder {
    partition_size: usize,
    filter_bits_per_key: u32,
    done: Vec<BuiltPartition>,
    entries: Vec<u8>,
    blocks: u64,
    stats: BlockStats,
    hashes: Vec<u64>,
    last_separator: Vec<u8>,
    last_end: u64,
    size_done: usize,
}

impl IndexBuilder {
    pub(in crate::sst) fn new(partition_size: usize, filter_bits_per_key: u32) -> Self {
        Self {
            partition_size,
            filter_bits_per_key,
            done: Vec::new(),
            entries: Vec::new(),
            blocks: 0,
            stats: BlockStats::default(),
            hashes: Vec::new(),
            last_separator: Vec::new(),
            last_end: 0,
            size_done: 0,
        }
    }

    /// Approximate stored size in bytes of index and filters so far.
    pub(in crate::sst) fn size(&self) -> usize {
        let filter = self.hashes.len() * self.filter_bits_per_key as usize / 8;
        self.size_done + self.entries.len() + filter
    }

    /// Adds the next data block. `separator` is at or above the last key of the block and below the
    /// first key of the next block. If both blocks have versions of one key, `separator` is that
    /// key.
    pub(in crate::sst) fn add(&mut self, separator: &[u8], entry: BlockEntry, hashes: &[u64]) {
        let first = self.blocks == 0;
        let pairs = self.last_separator.iter().zip(separator);
        let shared = if first {
            0
        } else {
            pairs.take_while(|(a, b)| a == b).count()
        };
        let out = &mut self.entries;
        varint::put_u64(out, shared as u64);
        varint::put_bytes(out, &separator[shared..]);
        // Store the offset as the distance from the end of the previous block, which is nearly
        // always 0.
        let base = if first { 0 } else { self.last_end };
        varint::put_u64(out, entry.handle.offset - base);
        varint::put_u64(out, u64::from(entry.handle.len));
        entry.stats.put(out);
        self.last_end = entry.handle.end();
        self.last_separator.clear();
        self.last_separator.extend_from_slice(separator);
        self.blocks += 1;
        self.stats.add(&entry.stats);
        if self.filter_bits_per_key > 0 {
            self.hashes.extend_from_slice(hashes);
        }
        if self.entries.len() >= self.partition_size {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let mut raw_index = Vec::with_capacity(self.entries.len() + 4);
        varint::put_u64(&mut raw_index, self.blocks);
        raw_index.append(&mut self.entries);
        self.hashes.dedup();
        let raw_filter = (self.filter_bits_per_key > 0)
            .then(|| filter::build(&self.hashes, self.filter_bits_per_key));
        self.size_done += raw_index.len() + raw_filter.as_ref().map_or(0, Vec::len);
        self.hashes.clear();
        self.done.push(BuiltPartition {
            last_separator: self.last_separator.clone(),
            raw_index,
            raw_filter,
            blocks: std::mem::take(&mut self.blocks),
            stats: std::mem::take(&mut self.stats),
        });
    }

    /// All index partitions, in key order.
    pub(in crate::sst) fn finish(mut self) -> Vec<BuiltPartition> {
        if self.blocks > 0 {
            self.cut();
        }
        self.done
    }
}

/// The raw top index over partitions, each with the handle of its index block and the handle of its
/// filter (length 0 if there is none).
pub(in crate::sst) fn top_index(partitions: &[(BuiltPartition, Handle, Handle)]) -> Vec<u8> {
    let mut out = Vec::new();
    varint::put_u64(&mut out, partitions.len() as u64);
    for (partition, index, filter) in partitions {
        varint::put_bytes(&mut out, &partition.last_separator);
        index.put(&mut out);
        filter.put(&mut out);
        varint::put_u64(&mut out, partition.blocks);
        partition.stats.put(&mut out);
    }
    out
}
