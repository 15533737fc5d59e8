//! What a compaction does with the blocks of its inputs and outputs in block cache and memory pool.

use super::SstReader;
use crate::base::Result;
use crate::cache::BlockKey;
use crate::env::ReadClass;
use crate::sst::CachedBlock;
use crate::sst::block_frame;
use crate::sst::format::Handle;
use std::ops::Range;
use std::sync::Arc;

impl SstReader {
    /// The cached form of the data block at `offset`, if it is cached, so that the cache handover
    /// can insert it for another file. This does not count as a use of the block.
    pub fn cached_at(&self, offset: u64) -> Option<CachedBlock> {
        self.cache.peek(self.key_of(offset))
    }

    /// Removes the blocks, partitions and dictionaries of the file from the block cache, because
    /// the file will not be read again.
    ///
    /// # Errors
    /// `Corruption`, `Unsupported` or `Io` if an index partition cannot be loaded. Then nothing is
    /// removed, and the blocks are evicted in time because nobody uses them.
    pub fn forget_cached(&self) -> Result<()> {
        self.for_each_block_of_any_kind(|handle| self.cache.remove(self.key_of(handle.offset)))
    }

    /// Deletes the blocks, partitions, filters and dictionaries of the file from the memory pool,
    /// if that is on.
    ///
    /// # Errors
    /// As for [`Self::forget_cached`].
    pub fn forget_pooled(&self) -> Result<()> {
        if !self.file.is_pool_on() {
            return Ok(());
        }
        self.for_each_block_of_any_kind(|handle| self.file.delete_from_pool(handle.offset))
    }

    fn for_each_block_of_any_kind(&self, mut f: impl FnMut(Handle)) -> Result<()> {
        let index = self.whole_index(ReadClass::Compaction)?;
        self.dictionary_handles().for_each(&mut f);
        for spot in index.spots() {
            if spot.block == 0 {
                let top = self.index.top(spot.partition);
                f(top.index);
                if top.filter.len > 0 {
                    f(top.filter);
                }
            }
            f(index.block(spot).handle);
        }
        Ok(())
    }

    /// Loads into the block cache each data block of which at least half of the entries lie in
    /// `entries`. These are ranges of entry numbers, ascending and disjoint; the numbers count from
    /// 0 through the whole file. `decoded` has blocks that need not be read from the file, each
    /// with the number of its first entry, ascending. A block that is in the cache already stays
    /// there, and this does not count as a use of it.
    ///
    /// # Errors
    /// The first error of reading an index partition or a block: `Corruption`, `Unsupported`, `Io`.
    pub fn warm(&self, entries: &[Range<u64>], decoded: Vec<(u64, CachedBlock)>) -> Result<()> {
        let mut decoded = decoded.into_iter().peekable();
        self.for_each_within(entries, |handle, first_entry| {
            let key: BlockKey = self.key_of(handle.offset);
            if self.cache.peek(key).is_some() {
                return Ok(());
            }
            while decoded.next_if(|(entry, _)| *entry < first_entry).is_some() {}
            let block = match decoded.next_if(|(entry, _)| *entry == first_entry) {
                Some((_, cached)) => cached,
                None => {
                    let block = self.read(handle, ReadClass::Compaction, true)?;
                    CachedBlock::Block(Arc::new(block))
                }
            };
            self.cache.insert(key, block);
            Ok(())
        })
    }

    /// Puts into the memory pool each data block of which at least half of the entries lie in
    /// `entries`, as [`Self::warm`] does for the block cache. Blocks that follow each other in the
    /// file are read at once. `has_read` is called with the number of bytes after each read; an
    /// error of it ends the pass. `has_no_room` is called when the pool has no room for a block:
    /// the block is tried again if it returns true, and the pass ends otherwise.
    ///
    /// # Errors
    /// As for [`Self::warm`]; those of `has_read`.
    pub fn fill_pool(
        &self,
        entries: &[Range<u64>],
        mut has_read: impl FnMut(u64) -> Result<()>,
        mut has_no_room: impl FnMut() -> bool,
    ) -> Result<()> {
        let mut handles = Vec::new();
        self.for_each_within(entries, |handle, _| {
            handles.push(handle);
            Ok(())
        })?;
        let mut stored = Vec::new();
        let mut rest = &handles[..];
        while let Some(first) = rest.first() {
            let (run, later) = rest.split_at(run_len(rest));
            rest = later;
            let end = run.last().map_or(first.end(), Handle::end);
            stored.resize((end - first.offset) as usize, 0);
            self.file
                .read_run(ReadClass::Compaction, first.offset, &mut stored, false)?;
            has_read(end - first.offset)?;
            for handle in run {
                let at = (handle.offset - first.offset) as usize;
                let block = &stored[at..at + handle.len as usize];
                if !block_frame::is_intact(block, (self.file_id, handle.offset)) {
                    continue;
                }
                while !self.file.put_into_pool(handle.offset, block) {
                    if !has_no_room() {
                        return Ok(());
                    }
                }
            }
        }
        Ok(())
    }

    /// Calls `f` with each data block of which at least half of the entries lie in `entries`, and
    /// with the number of its first entry.
    fn for_each_within(
        &self,
        entries: &[Range<u64>],
        mut f: impl FnMut(Handle, u64) -> Result<()>,
    ) -> Result<()> {
        if entries.is_empty() {
            return Ok(());
        }
        let index = self.whole_index(ReadClass::Compaction)?;
        let mut ranges = entries.iter().peekable();
        let mut start = 0;
        for spot in index.spots() {
            let block = start..start + index.block(spot).stats.entries;
            start = block.end;
            let mut inside = 0;
            while let Some(range) = ranges.peek() {
                let (from, to) = (range.start.max(block.start), range.end.min(block.end));
                inside += to.saturating_sub(from);
                if range.end > block.end {
                    break;
                }
                ranges.next();
            }
            if inside > 0 && 2 * inside >= block.end - block.start {
                f(index.block(spot).handle, block.start)?;
            }
        }
        Ok(())
    }
}

/// Bytes of blocks that are read at once to be put into the memory pool.
const RUN_BYTES: u64 = 256 << 10;

/// Number of blocks at the front of `handles` that follow each other in the file and are read at
/// once.
fn run_len(handles: &[Handle]) -> usize {
    let fits = |pair: &&[Handle]| {
        pair[0].end() == pair[1].offset && pair[1].end() - handles[0].offset <= RUN_BYTES
    };
    1 + handles.windows(2).take_while(fits).count()
}
