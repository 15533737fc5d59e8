//! A file of stored blocks, some of which the memory pool may have.

use super::announced_blocks::AnnouncedFrom;
use super::block_pool::{BlockName, IsIntact, PoolOutlook, WantedBlock};
use super::file_name::FileId;
use super::pooled_blocks::PooledBlocks;
use super::read_batch::ReadBatch;
use crate::base::Result;
use crate::env::{ReadClass, ReadFile};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An SST that is open for reading by blocks.
///
/// A read of a block asks the memory pool first, if that is on and serves the class of the read,
/// and then the file. Bytes from the pool are trusted no more than those of the file: what fails
/// the check of the block is as good as not found. A block that was read from the file is offered
/// to the pool, if it passes the check.
#[derive(Clone)]
pub struct BlockFile {
    file: Arc<dyn ReadFile>,
    pooled: Option<PooledFile>,
    last_read: Option<ReadMark>,
    is_remote: bool,
}

/// Notes when a query has last read a file.
#[derive(Clone)]
struct ReadMark {
    last_s: Arc<AtomicU64>,
    now_s: Arc<AtomicU64>,
}

impl ReadMark {
    #[inline]
    fn note(&self) {
        let now_s = self.now_s.load(Ordering::Relaxed);
        // A needless store would take the cache line away from other processors.
        if self.last_s.load(Ordering::Relaxed) != now_s {
            self.last_s.store(now_s, Ordering::Relaxed);
        }
    }
}

/// Names the blocks of a file in the pool.
#[derive(Clone)]
struct PooledFile {
    blocks: Arc<PooledBlocks>,
    id: FileId,
    checksum: u64,
}

impl From<Arc<dyn ReadFile>> for BlockFile {
    /// A file without a pool.
    fn from(file: Arc<dyn ReadFile>) -> Self {
        Self {
            file,
            pooled: None,
            last_read: None,
            is_remote: false,
        }
    }
}

impl PooledFile {
    fn name(&self, offset: u64) -> BlockName {
        BlockName::Block {
            file: self.id,
            checksum: self.checksum,
            offset,
        }
    }

    fn wanted(&self, bytes: &Range<u64>) -> WantedBlock {
        WantedBlock {
            name: self.name(bytes.start),
            len: (bytes.end - bytes.start) as usize,
        }
    }
}

impl BlockFile {
    /// The file with this id and checksum, whose blocks may be in the pool `blocks`.
    pub(super) fn new(
        file: Arc<dyn ReadFile>,
        blocks: Option<&Arc<PooledBlocks>>,
        (id, checksum): (FileId, u64),
    ) -> Self {
        let pooled = blocks.map(|blocks| PooledFile {
            blocks: Arc::clone(blocks),
            id,
            checksum,
        });
        Self {
            file,
            pooled,
            last_read: None,
            is_remote: false,
        }
    }

    /// Lets reads of queries set `last_s` to `now_s`, seconds.
    pub(super) fn with_read_mark(self, last_s: Arc<AtomicU64>, now_s: Arc<AtomicU64>) -> Self {
        Self {
            last_read: Some(ReadMark { last_s, now_s }),
            ..self
        }
    }

    /// The file is in an object store.
    pub(super) fn remote(self) -> Self {
        Self {
            is_remote: true,
            ..self
        }
    }

    /// Whether the file is in an object store.
    pub fn is_remote(&self) -> bool {
        self.is_remote
    }

    /// Notes that a block is read, from the file or from a cache. What only opens the file does
    /// not count: compactions do that, too.
    #[inline]
    pub(crate) fn note_read(&self, class: ReadClass) {
        if let Some(mark) = &self.last_read
            && class.is_of_query()
            && class != ReadClass::Index
        {
            mark.note();
        }
    }

    /// The file alone.
    pub fn file(&self) -> &Arc<dyn ReadFile> {
        &self.file
    }

    /// Whether the pool takes part in reads of this class.
    #[inline]
    pub fn is_pooled(&self, class: ReadClass) -> bool {
        self.served(class).is_some()
    }

    #[inline]
    fn served(&self, class: ReadClass) -> Option<&PooledFile> {
        self.pooled
            .as_ref()
            .filter(|pooled| pooled.blocks.serves(class))
    }

    #[inline]
    fn on(&self) -> Option<&PooledFile> {
        self.pooled.as_ref().filter(|pooled| pooled.blocks.is_on())
    }

    /// Fills `stored` with the block at `offset`.
    ///
    /// # Errors
    /// `Io`.
    pub fn read(
        &self,
        class: ReadClass,
        offset: u64,
        stored: &mut [u8],
        is_intact: IsIntact,
    ) -> Result<()> {
        let Some(pooled) = self.served(class) else {
            return self.file.read_exact_at(class, offset, stored);
        };
        let (name, place) = (pooled.name(offset), (pooled.id, offset));
        let blocks = &pooled.blocks;
        match blocks.take_announced(&name, class, stored) {
            Some(AnnouncedFrom::Pool(_)) => return Ok(()),
            // The read has begun already.
            Some(AnnouncedFrom::File) => {
                self.file.read_exact_at(class, offset, stored)?;
                self.offer_if(is_intact(stored, place), class, offset, stored);
                return Ok(());
            }
            None => {}
        }
        if blocks.get(name, class, stored, |bytes| is_intact(bytes, place)) {
            return Ok(());
        }
        blocks.read_file(&*self.file, class, offset, stored)?;
        self.offer_if(is_intact(stored, place), class, offset, stored);
        Ok(())
    }

    fn offer_if(&self, intact: bool, class: ReadClass, offset: u64, stored: &[u8]) {
        if intact {
            self.offer(class, offset, stored);
        }
    }

    /// Fills `stored` with the bytes from `offset` on: those of several blocks, or of parts of
    /// blocks. Does not ask the pool. `under_way` says that the read was announced: then the time
    /// that is left of it says nothing about the file.
    ///
    /// # Errors
    /// `Io`.
    pub fn read_run(
        &self,
        class: ReadClass,
        offset: u64,
        stored: &mut [u8],
        under_way: bool,
    ) -> Result<()> {
        match self.served(class).filter(|_| !under_way) {
            Some(pooled) => pooled.blocks.read_file(&*self.file, class, offset, stored),
            None => self.file.read_exact_at(class, offset, stored),
        }
    }

    /// Offers a block that [`Self::read_run`] has read, and that its reader has checked.
    pub fn offer(&self, class: ReadClass, offset: u64, stored: &[u8]) {
        if let Some(pooled) = self.served(class) {
            let name = pooled.name(offset);
            pooled.blocks.pool().offer(&name, class, stored);
        }
    }

    /// Whether the pool is on and probably has the block at `offset`.
    pub fn is_in_pool(&self, offset: u64) -> bool {
        self.on()
            .is_some_and(|pooled| pooled.blocks.pool().probably_has(&pooled.name(offset)))
    }

    /// How a read of the block at `offset` from the pool would go, alone or together with others.
    pub fn outlook(&self, class: ReadClass, offset: u64, together: bool) -> PoolOutlook {
        let Some(pooled) = self.served(class) else {
            return PoolOutlook::Passes;
        };
        let pool = pooled.blocks.pool();
        pool.outlook(&pooled.name(offset), class, together)
    }

    /// Asks the pool for the blocks with these places in the file, at most 32. Calls `found` with
    /// the number and the bytes of each that it has.
    pub fn read_from_pool(
        &self,
        class: ReadClass,
        places: &[Range<u64>],
        is_intact: IsIntact,
        found: &mut dyn FnMut(usize, &[u8]),
    ) {
        let Some(pooled) = self.served(class) else {
            return;
        };
        let wanted: Vec<_> = places.iter().map(|place| pooled.wanted(place)).collect();
        let is_right = |number: usize, bytes: &[u8]| {
            let offset = places.get(number).map_or(0, |place| place.start);
            is_intact(bytes, (pooled.id, offset))
        };
        let blocks = &pooled.blocks;
        // A window of a scan is one read of the file. A single block may be the try of a window.
        // Other classes ask for blocks that the file would bring one by one.
        let is_window = class == ReadClass::Scan
            && (places.len() > 1
                || places
                    .iter()
                    .any(|place| self.outlook(class, place.start, true) == PoolOutlook::Asks));
        let begun_us = blocks.now_us();
        let mut came = 0;
        blocks.get_many(&wanted, class, &is_right, &mut |number, bytes| {
            came += 1;
            found(number, bytes);
        });
        if is_window && came > 0 {
            blocks.note_read(class, begun_us);
        }
    }

    /// Announces a read of the block with this place in the file by adding it to `reads`: a read of
    /// the pool if that would be asked for the block, of the file otherwise.
    pub fn prefetch(
        &self,
        class: ReadClass,
        place: &Range<u64>,
        is_intact: IsIntact,
        reads: &mut ReadBatch,
    ) {
        let outlook = self.outlook(class, place.start, true);
        if outlook == PoolOutlook::Passes {
            return self.prefetch_file(class, place, reads);
        }
        // Where asking does not pay, few blocks are asked for, so that a change shows. Nobody knows
        // which, so the file reads of all begin at once: none waits for a node.
        let is_under_way = outlook == PoolOutlook::Tries;
        if is_under_way {
            reads.add_file(&*self.file, place);
        }
        if let Some(pooled) = &self.pooled {
            let wanted = pooled.wanted(place);
            let check = (is_intact, (pooled.id, place.start));
            let file = (&self.file, is_under_way);
            reads.add_pooled(&pooled.blocks, file, wanted, check);
        }
    }

    /// As [`Self::prefetch`], of the file in any case.
    pub fn prefetch_file(&self, class: ReadClass, place: &Range<u64>, reads: &mut ReadBatch) {
        if let Some(pooled) = self.served(class) {
            pooled.blocks.announce_file(pooled.name(place.start));
        }
        reads.add_file(&*self.file, place);
    }

    /// Whether the pool is on.
    pub fn is_pool_on(&self) -> bool {
        self.on().is_some()
    }

    /// Puts a block into the pool that stands for blocks there. Returns false if the pool has no
    /// room for it now.
    pub fn put_into_pool(&self, offset: u64, stored: &[u8]) -> bool {
        self.on()
            .is_none_or(|pooled| pooled.blocks.pool().put(&pooled.name(offset), stored))
    }

    /// Deletes the block at `offset` from the pool, because nobody will read it again.
    pub fn delete_from_pool(&self, offset: u64) {
        if let Some(pooled) = self.on() {
            pooled.blocks.pool().delete(&pooled.name(offset));
        }
    }
}
