//! Readahead of an SST iterator: reads several blocks at once, from the file or the memory pool.

use super::block::Block;
use super::decode_error::DecodeError;
use super::format::Handle;
use super::reader::{BlockWindow, SstReader, UsedDictionaries};
use crate::base::Result;
use crate::env::ReadClass;
use crate::store::{PoolOutlook, ReadBatch};
use std::collections::VecDeque;
use std::ops::Range;

/// Largest number of bytes that readahead reads at once. An iterator that does not put the blocks
/// that it reads into the block cache, as in a compaction, uses this size from the start.
pub(super) const READ_AHEAD: u64 = 256 << 10;
/// Number of bytes that an iterator that fills the cache reads at the third block in a row. The
/// number doubles with each further block.
pub(super) const READ_AHEAD_MIN: u64 = 8 << 10;
pub(super) const READ_AHEAD_FROM: u32 = 2;

/// If readahead reads at least this many bytes at once, it also begins a prefetch of the bytes
/// after them.
const PREFETCH_FROM: u64 = 32 << 10;

/// Blocks that were read ahead.
///
/// ```text
/// file:  | 7 | 8 | 9 | 10 | 11 | 12 | 13 | 14 |      the iterator needs 8, the window ends in 13
/// the memory pool has few of 8 … 12: one read of the file, up to the end of the window
/// it has all but 10:                 one batch for 8, 9, 11 and 12, and later a read of 10 alone
/// ```
#[derive(Default)]
pub(super) struct ReadAhead {
    /// The stored bytes of the file from `offset` on.
    bytes: Vec<u8>,
    offset: u64,
    /// The byte range after the buffer whose prefetch has begun.
    prefetched: Range<u64>,
    /// Blocks that the memory pool had, by offset, ascending.
    pooled: VecDeque<(u64, Vec<u8>)>,
    dictionaries: UsedDictionaries,
}

/// Where a block that was loaded is.
enum Loaded {
    /// In the buffer.
    Buffer(Range<usize>),
    /// It came from the memory pool.
    Pooled(Vec<u8>),
}

/// The blocks for which the memory pool is asked when the block at `handle`, the first one of
/// `window`, is needed: the whole window if most of it comes from there. If asking does not pay,
/// the first block alone, which asks now and then and so finds out when that changes.
fn asked_window<'a>(
    reader: &SstReader,
    handle: Handle,
    window: &BlockWindow<'a>,
    class: ReadClass,
) -> Option<BlockWindow<'a>> {
    if reader.pool_has_most(window, class) {
        return Some(*window);
    }
    let tries = reader.outlook(class, handle.offset, false) == PoolOutlook::Tries;
    tries.then_some(BlockWindow {
        end: handle.end(),
        ..*window
    })
}

impl ReadAhead {
    /// The data block at `handle`, the first block of `window`. If its dictionary is read from the
    /// file and `fill` is set, the dictionary goes into the block cache.
    pub(super) fn block(
        &mut self,
        reader: &SstReader,
        handle: Handle,
        window: &BlockWindow<'_>,
        class: ReadClass,
        fill: bool,
    ) -> Result<Block> {
        let loaded = self.load(reader, handle, window, class)?;
        let dictionaries = &mut self.dictionaries;
        match loaded {
            Loaded::Buffer(at) => {
                let stored = &self.bytes[at];
                match reader.decode(stored, handle, class, fill, dictionaries) {
                    Ok(block) => {
                        reader.blocks_file().offer(class, handle.offset, stored);
                        Ok(block)
                    }
                    Err(error) if reader.distrusts(&error) => {
                        self.bytes.clear();
                        reader.read_with(handle, class, fill, dictionaries)
                    }
                    Err(error) => Err(error),
                }
            }
            Loaded::Pooled(stored) => reader
                .decode(&stored, handle, class, fill, dictionaries)
                .or_else(|_| reader.read_with(handle, class, fill, dictionaries)),
        }
    }

    /// The stored bytes of the block at `handle`, for a compaction.
    pub(super) fn stored(
        &mut self,
        reader: &SstReader,
        handle: Handle,
        window: &BlockWindow<'_>,
        class: ReadClass,
    ) -> Result<&[u8]> {
        match self.load(reader, handle, window, class)? {
            Loaded::Buffer(at) => Ok(&self.bytes[at]),
            Loaded::Pooled(_) => {
                let damage = DecodeError::Corrupt("a block of the pool in a compaction");
                Err(reader.damaged(damage, handle))
            }
        }
    }

    /// Loads the block at `handle`, unless it was read ahead.
    fn load(
        &mut self,
        reader: &SstReader,
        handle: Handle,
        window: &BlockWindow<'_>,
        class: ReadClass,
    ) -> Result<Loaded> {
        if let Some(stored) = self.take_pooled(handle) {
            return Ok(Loaded::Pooled(stored));
        }
        if handle.offset < self.offset || handle.end() > self.end() {
            let asks = !self.is_under_way(handle) && self.pooled.is_empty();
            let window_asked = match asks {
                true => asked_window(reader, handle, window, class),
                false => None,
            };
            if let Some(window) = window_asked {
                let pooled = &mut self.pooled;
                reader.read_from_pool(&window, class, &mut |offset, stored| {
                    pooled.push_back((offset, stored.to_vec()));
                });
                pooled
                    .make_contiguous()
                    .sort_unstable_by_key(|(offset, _)| *offset);
                if let Some(stored) = self.take_pooled(handle) {
                    return Ok(Loaded::Pooled(stored));
                }
            }
            self.read(reader, handle, window, class)?;
        }
        let start = (handle.offset - self.offset) as usize;
        Ok(Loaded::Buffer(start..start + handle.len as usize))
    }

    /// The block at `handle` if the pool has brought it. Drops the blocks before it.
    fn take_pooled(&mut self, handle: Handle) -> Option<Vec<u8>> {
        while let Some((offset, _)) = self.pooled.front() {
            if *offset > handle.offset {
                // The iterator has moved back: what was ahead of it is not any more.
                if *offset - handle.offset > READ_AHEAD {
                    self.pooled.clear();
                }
                return None;
            }
            let (offset, stored) = self.pooled.pop_front()?;
            if offset == handle.offset {
                return Some(stored);
            }
        }
        None
    }

    fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }

    /// Number of bytes of the block that the buffer has: the last read may have ended inside of it.
    fn kept(&self, handle: Handle) -> u64 {
        match handle.offset >= self.offset {
            true => self.end().saturating_sub(handle.offset),
            false => 0,
        }
    }

    /// Whether a prefetch of the rest of the block has begun.
    fn is_under_way(&self, handle: Handle) -> bool {
        let from = handle.offset + self.kept(handle);
        self.prefetched.contains(&from) && handle.end() <= self.prefetched.end
    }

    /// Makes the buffer begin with the block at `handle` and have about the bytes of `window`.
    fn read(
        &mut self,
        reader: &SstReader,
        handle: Handle,
        window: &BlockWindow<'_>,
        class: ReadClass,
    ) -> Result<()> {
        let kept = self.kept(handle);
        let from = handle.offset + kept;
        let under_way = self.is_under_way(handle);
        let to = match under_way {
            true => self.prefetched.end,
            false => {
                // The blocks that the pool has brought need not be read.
                let pooled = self.pooled.front().map_or(u64::MAX, |(offset, _)| *offset);
                let end = window.end.saturating_add(kept).min(pooled);
                end.min(reader.data_end()).max(handle.end())
            }
        };
        self.bytes.drain(..self.bytes.len() - kept as usize);
        self.bytes.resize((kept + to - from) as usize, 0);
        self.offset = handle.offset;
        let read =
            reader
                .blocks_file()
                .read_run(class, from, &mut self.bytes[kept as usize..], under_way);
        if read.is_err() {
            self.bytes.clear();
        }
        read?;
        let size = window.end.saturating_sub(handle.offset);
        if size >= PREFETCH_FROM && to < reader.data_end() && self.pooled.is_empty() {
            let next = (to + (2 * size).min(READ_AHEAD)).min(reader.data_end());
            self.prefetch(reader, to..next, window, class);
        }
        Ok(())
    }

    /// Begins a prefetch of these bytes, unless the memory pool will serve the blocks there.
    fn prefetch(
        &mut self,
        reader: &SstReader,
        bytes: Range<u64>,
        window: &BlockWindow<'_>,
        class: ReadClass,
    ) {
        if reader.blocks_file().is_pooled(class) {
            let ahead = BlockWindow {
                partition: window.partition,
                first: window.first_from(bytes.start),
                end: bytes.end,
            };
            if reader.pool_has_most(&ahead, class) {
                return;
            }
        }
        // A reader that reads a remote file once, in order, has its own way to read ahead.
        if reader.blocks_file().is_remote() && !class.is_of_query() {
            return;
        }
        let mut reads = ReadBatch::new();
        reads.add_file(&**reader.file(), &bytes);
        reads.start();
        self.prefetched = bytes;
    }
}
