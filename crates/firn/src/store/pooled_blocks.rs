//! The memory pool of a database: its switch, its counters, and the blocks that came ahead.

use super::announced_blocks::{AnnouncedBlocks, AnnouncedFrom};
use super::block_pool::{BlockName, BlockPool, WantedBlock};
use crate::base::Result;
use crate::env::{Env, IoStats, ReadClass, ReadFile};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The memory pool between the readers of files and a [`BlockPool`].
///
/// Readers ask [`Self::serves`] first, which is one load of a flag. So a pool that is off costs
/// nothing else, and only where a file is about to be read.
pub struct PooledBlocks {
    pool: Arc<dyn BlockPool>,
    is_on: AtomicBool,
    env: Arc<dyn Env>,
    io: Arc<IoStats>,
    announced: AnnouncedBlocks,
}

impl PooledBlocks {
    /// The blocks of `pool`, which is off. `env` has the clock; `io` counts the reads.
    pub fn new(pool: Arc<dyn BlockPool>, env: Arc<dyn Env>, io: Arc<IoStats>) -> Self {
        Self {
            pool,
            is_on: AtomicBool::new(false),
            env,
            io,
            announced: AnnouncedBlocks::default(),
        }
    }

    /// Switches the pool on or off.
    pub fn set_on(&self, on: bool) {
        self.is_on.store(on, Ordering::Relaxed);
        if !on {
            self.announced.clear();
        }
    }

    /// Whether the pool is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// Whether the pool is on and takes part in reads of this class.
    #[inline]
    pub fn serves(&self, class: ReadClass) -> bool {
        self.is_on() && class.is_of_query()
    }

    /// The pool itself.
    pub fn pool(&self) -> &dyn BlockPool {
        &*self.pool
    }

    /// Fills `stored` with the block of this name, if the pool has it. `is_right` judges the bytes.
    pub fn get(
        &self,
        name: BlockName,
        class: ReadClass,
        stored: &mut [u8],
        is_right: impl Fn(&[u8]) -> bool,
    ) -> bool {
        let len = stored.len();
        let wanted = [WantedBlock { name, len }];
        let mut is_found = false;
        self.get_many(
            &wanted,
            class,
            &|_, bytes| is_right(bytes),
            &mut |_, bytes| {
                stored.copy_from_slice(bytes);
                is_found = true;
            },
        );
        is_found
    }

    /// Fills `stored` with the block of this name, if a batch has brought it from the pool. Returns
    /// where the block was announced from.
    pub fn take_announced(
        &self,
        name: &BlockName,
        class: ReadClass,
        stored: &mut [u8],
    ) -> Option<AnnouncedFrom> {
        let from = self.announced.take(name)?;
        if let AnnouncedFrom::Pool(bytes) = &from {
            if bytes.len() != stored.len() {
                return None;
            }
            stored.copy_from_slice(bytes);
            self.io.pool_reads().count(class, stored.len() as u64, 0);
        }
        Some(from)
    }

    /// Notes that the file of a block is being read for a reader that will need it soon.
    pub fn announce_file(&self, name: BlockName) {
        let now_us = self.env.monotonic_micros();
        self.announced.keep(name, AnnouncedFrom::File, now_us);
    }

    /// As [`BlockPool::get`], and counts what was found: the time of the call is divided among the
    /// blocks.
    pub fn get_many(
        &self,
        wanted: &[WantedBlock],
        class: ReadClass,
        is_right: &dyn Fn(usize, &[u8]) -> bool,
        found: &mut dyn FnMut(usize, &[u8]),
    ) {
        let begun = self.env.monotonic_micros();
        let (mut count, mut lens) = (0, [0; COUNTED_MAX]);
        self.pool
            .get(wanted, class, is_right, &mut |number, bytes| {
                if let Some(len) = lens.get_mut(count) {
                    *len = bytes.len() as u64;
                }
                count += 1;
                found(number, bytes);
            });
        if count > 0 {
            let us = self.env.monotonic_micros().saturating_sub(begun) / count as u64;
            for len in &lens[..count.min(COUNTED_MAX)] {
                self.io.pool_reads().count(class, *len, us);
            }
        }
    }

    /// Asks for blocks that a caller will read soon. What comes is kept for
    /// [`Self::take_announced`]. Calls `missing` with the number of each block that does not come.
    pub(super) fn announce(
        &self,
        wanted: &[WantedBlock],
        class: ReadClass,
        is_right: &dyn Fn(usize, &[u8]) -> bool,
        mut missing: impl FnMut(usize),
    ) {
        let mut came = vec![false; wanted.len()];
        self.pool
            .get(wanted, class, is_right, &mut |number, bytes| {
                let now_us = self.env.monotonic_micros();
                let from = AnnouncedFrom::Pool(bytes.into());
                self.announced.keep(wanted[number].name, from, now_us);
                came[number] = true;
            });
        (0..)
            .zip(came)
            .filter(|(_, came)| !came)
            .for_each(|(n, _)| missing(n));
    }

    /// Now, for [`Self::note_read`].
    pub fn now_us(&self) -> u64 {
        self.env.monotonic_micros()
    }

    /// Tells the pool how long a read from it took that began at `begun_us`, and for which the
    /// caller would have read the file once. Without that, all its bytes are compared with the time
    /// of one answer. A read of which a part came counts: its reader has waited, and goes to the
    /// file nevertheless. One of which nothing came may have asked nobody.
    pub fn note_read(&self, class: ReadClass, begun_us: u64) {
        let us = self.now_us().saturating_sub(begun_us);
        self.pool.note_pool_read(class, us);
    }

    /// Reads a file, and tells the pool how long that took.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_file(
        &self,
        file: &dyn ReadFile,
        class: ReadClass,
        offset: u64,
        stored: &mut [u8],
    ) -> Result<()> {
        let begun = self.env.monotonic_micros();
        file.read_exact_at(class, offset, stored)?;
        let us = self.env.monotonic_micros().saturating_sub(begun);
        self.pool.note_file_read(class, us);
        Ok(())
    }
}

/// More blocks than any caller asks for at a time.
const COUNTED_MAX: usize = 64;
