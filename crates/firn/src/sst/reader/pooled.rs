//! Reads of blocks that the memory pool may have.

use super::SstReader;
use crate::base::{Error, ErrorKind, Result};
use crate::env::ReadClass;
use crate::sst::block_frame;
use crate::sst::format::Handle;
use crate::sst::index::Partition;
use crate::store::PoolOutlook;
use std::ops::Range;
use std::sync::Arc;

/// Where a block may come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BlockSource {
    /// The memory pool or the file.
    Any,
    /// The file.
    File,
}

/// How often bytes of a remote file are read again that have failed their check: they may have been
/// damaged in the local copy, or on their way.
pub(crate) const REREADS_MAX: u32 = 3;

/// Blocks of a scan that are asked for together.
const BATCH_MAX: usize = 32;

/// A scan asks the pool for the blocks of a window if the pool probably has at least this share of
/// them, in quarters. Otherwise one read of the file brings all of them.
const POOL_QUARTERS: usize = 3;

/// Data blocks of a partition that follow each other in the file.
#[derive(Clone, Copy)]
pub(in crate::sst) struct BlockWindow<'a> {
    /// The partition.
    pub(in crate::sst) partition: &'a Partition,
    /// The first block.
    pub(in crate::sst) first: u32,
    /// The window has the blocks that end before this offset, and the first one.
    pub(in crate::sst) end: u64,
}

impl<'a> BlockWindow<'a> {
    /// The blocks of `bytes` bytes from block `first` of the partition on that an iterator is in.
    pub(in crate::sst) fn of(
        current: Option<&'a (u32, Arc<Partition>)>,
        first: u32,
        bytes: u64,
    ) -> Result<Self> {
        let Some((_, partition)) = current else {
            return Err(Error::invalid("readahead before an index partition"));
        };
        let begin = partition.block(first).handle.offset;
        Ok(Self {
            partition,
            first,
            end: begin.saturating_add(bytes),
        })
    }
}

impl BlockWindow<'_> {
    /// The first block of the partition, from the first of the window on, that begins at or after
    /// this offset.
    pub(in crate::sst) fn first_from(&self, offset: u64) -> u32 {
        let mut blocks = self.first..self.partition.blocks();
        let at = blocks.find(|at| self.partition.block(*at).handle.offset >= offset);
        at.unwrap_or(self.partition.blocks())
    }

    fn places(&self) -> impl Iterator<Item = Range<u64>> {
        let handles =
            (self.first..self.partition.blocks()).map(|at| self.partition.block(at).handle);
        let within = move |(number, handle): &(usize, Handle)| {
            *number == 0 || *number < BATCH_MAX && handle.end() <= self.end
        };
        handles
            .enumerate()
            .take_while(within)
            .map(|(_, handle)| handle.offset..handle.end())
    }
}

fn is_io(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Io { .. } | ErrorKind::Unreachable)
}

impl SstReader {
    /// Calls `read` for a block that may come from anywhere. If the memory pool takes part in reads
    /// of this class and `read` fails, calls it once more for the block in the file: only what the
    /// file has is damage. Of a remote file, only what the store has is damage: if the bytes may
    /// have come from a local copy, they are read again.
    pub(super) fn read_from_any<T>(
        &self,
        class: ReadClass,
        mut read: impl FnMut(BlockSource) -> Result<T>,
    ) -> Result<T> {
        // Asked first: the pool may be switched off while the read goes on.
        let is_pooled = self.file.is_pooled(class);
        let mut done = match read(BlockSource::Any) {
            Err(error) if !is_io(&error) && is_pooled => read(BlockSource::File),
            done => done,
        };
        for _ in 0..REREADS_MAX {
            match &done {
                Err(error) if self.distrusts(error) => done = read(BlockSource::File),
                _ => break,
            }
        }
        done
    }

    /// Whether bytes that have failed with `error` may have come from a local copy of a remote
    /// file. Then the copy is dropped, and reading them again asks the store.
    pub(in crate::sst) fn distrusts(&self, error: &Error) -> bool {
        error.is_corruption() && self.file().distrust()
    }

    /// Fills `stored` with the block at `handle`.
    pub(super) fn fill(
        &self,
        source: BlockSource,
        handle: Handle,
        class: ReadClass,
        stored: &mut [u8],
    ) -> Result<()> {
        match source {
            BlockSource::Any => {
                self.file
                    .read(class, handle.offset, stored, block_frame::is_intact)
            }
            BlockSource::File => self.file.read_run(class, handle.offset, stored, false),
        }
    }

    /// Whether the memory pool would be asked for most blocks of `window`.
    pub(in crate::sst) fn pool_has_most(&self, window: &BlockWindow<'_>, class: ReadClass) -> bool {
        if !self.file.is_pooled(class) {
            return false;
        }
        let (mut blocks, mut known) = (0, 0);
        for place in window.places() {
            blocks += 1;
            known += usize::from(self.outlook(class, place.start, true) == PoolOutlook::Asks);
        }
        known > 0 && known * 4 >= blocks * POOL_QUARTERS
    }

    /// Asks the memory pool for the blocks of `window`. Calls `found` with the offset and the bytes
    /// of each that it has, in any order.
    pub(in crate::sst) fn read_from_pool(
        &self,
        window: &BlockWindow<'_>,
        class: ReadClass,
        found: &mut dyn FnMut(u64, &[u8]),
    ) {
        let places: Vec<_> = window
            .places()
            .filter(|place| self.outlook(class, place.start, true) != PoolOutlook::Passes)
            .collect();
        let found = &mut |number: usize, bytes: &[u8]| {
            if let Some(place) = places.get(number) {
                found(place.start, bytes);
            }
        };
        self.file
            .read_from_pool(class, &places, block_frame::is_intact, found);
    }

    /// How a read of the block at `offset` from the memory pool would go, alone or together with
    /// others.
    pub(in crate::sst) fn outlook(
        &self,
        class: ReadClass,
        offset: u64,
        together: bool,
    ) -> PoolOutlook {
        self.file.outlook(class, offset, together)
    }

    /// Whether the memory pool probably has the block at `offset`.
    pub(in crate::sst) fn is_in_pool(&self, offset: u64) -> bool {
        self.file.is_in_pool(offset)
    }
}
