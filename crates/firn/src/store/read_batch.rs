//! Reads that are announced together: of files, and of the memory pool.

use super::block_pool::{IsIntact, WantedBlock};
use super::pooled_blocks::PooledBlocks;
use crate::env::{PrefetchBatch, ReadClass, ReadFile};
use std::ops::Range;
use std::sync::Arc;

/// A list of reads that a caller is about to make. Nothing happens until [`Self::start`]; dropping
/// it discards the list.
///
/// The reads of files begin first and go on while the pool answers. A block that the pool turns out
/// not to have is then announced as a read of its file.
#[derive(Default)]
pub struct ReadBatch {
    files: PrefetchBatch,
    pool: Option<Arc<PooledBlocks>>,
    pooled: Vec<PooledRead>,
}

struct PooledRead {
    file: Arc<dyn ReadFile>,
    /// The file is being read, too.
    is_under_way: bool,
    wanted: WantedBlock,
    is_intact: IsIntact,
    /// File id and offset.
    place: (u64, u64),
}

impl ReadBatch {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a read of these bytes of a file.
    pub fn add_file(&mut self, file: &dyn ReadFile, bytes: &Range<u64>) {
        file.prefetch(bytes.start, bytes.end - bytes.start, &mut self.files);
    }

    pub(super) fn add_pooled(
        &mut self,
        pool: &Arc<PooledBlocks>,
        (file, is_under_way): (&Arc<dyn ReadFile>, bool),
        wanted: WantedBlock,
        (is_intact, place): (IsIntact, (u64, u64)),
    ) {
        if self
            .pool
            .as_ref()
            .is_some_and(|other| !Arc::ptr_eq(other, pool))
        {
            std::mem::take(self).start();
        }
        self.pool.get_or_insert_with(|| Arc::clone(pool));
        self.pooled.push(PooledRead {
            file: Arc::clone(file),
            is_under_way,
            wanted,
            is_intact,
            place,
        });
    }

    /// Starts all reads. Waits for the pool, for a bounded time, but not for files.
    pub fn start(self) {
        self.files.start();
        let Some(pool) = self.pool else { return };
        let wanted: Vec<_> = self.pooled.iter().map(|read| read.wanted).collect();
        let is_right = |number: usize, bytes: &[u8]| {
            let read = self.pooled.get(number);
            read.is_some_and(|read| (read.is_intact)(bytes, read.place))
        };
        let mut rest = PrefetchBatch::new();
        pool.announce(&wanted, ReadClass::Range, &is_right, |number| {
            let read = &self.pooled[number];
            pool.announce_file(read.wanted.name);
            if !read.is_under_way {
                let len = read.wanted.len as u64;
                read.file.prefetch(read.place.1, len, &mut rest);
            }
        });
        rest.start();
    }
}
