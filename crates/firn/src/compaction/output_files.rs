//! Writes the sorted entries of a flush or a compaction into new SSTs.

use super::cache_handover::{CacheHandover, FromMemory};
use super::job_stats::JobStats;
use super::rate_limiter::RateLimiter;
use super::splitter::Splitter;
use crate::base::key::{CATALOG_INDEX, index_id_of};
use crate::base::options::Options;
use crate::base::prefix_extractor::PrefixExtractors;
use crate::base::{BlockResidence, InternalKey, Result, Value};
use crate::sst::{Density, RecipeOffers, SstOptions, SstWriter, StoredBlock};
use crate::version::{BLOB_FILES_MAX, FileMeta, LAST_LEVEL, VersionSet};
use std::sync::Arc;

/// The engine parts that flushes and compactions use.
#[derive(Clone, Copy)]
pub struct JobContext<'a> {
    /// Allocates file ids and gives access to the file store.
    pub versions: &'a VersionSet,
    /// Block and file sizes.
    pub options: &'a Options,
    /// Records which output entries came from blocks in the block cache or the memory pool.
    pub handover: &'a CacheHandover,
    /// Limits the rate of background reads and writes.
    pub limiter: &'a RateLimiter,
    /// Finds where the parts of a key end, for the sketches in the files.
    pub prefix_extractors: &'a Arc<dyn PrefixExtractors>,
    /// Whether the disk is full, so that this flush writes a single file, into the space of the
    /// disk reserve.
    pub in_reserve: bool,
}

/// The output files that one job is writing.
///
/// Invariant: dropping this value removes every file that it has created, unless [`Self::finish`]
/// has returned the file. So a failed job leaves no file behind. A file that cannot be removed now
/// becomes obsolete and is removed later. After a crash, the next open removes the leftovers.
pub(super) struct Outputs<'a> {
    ctx: JobContext<'a>,
    splitter: Splitter,
    at_rest: bool,
    /// Whether the catalog gets files of its own.
    parts_catalog: bool,
    offers: Arc<RecipeOffers>,
    writer: Option<SstWriter>,
    last_key: Vec<u8>,
    superseded: u64,
    from_memory: FromMemory,
    /// Ids of the files that were created and that [`Self::finish`] has not returned.
    created: Vec<u64>,
    /// The id of the created file that uses the space of the disk reserve; `None` if no file does.
    in_reserve: Option<u64>,
    done: Vec<FileMeta>,
    written: u64,
    /// Stored bytes and entries of all inputs of a job into the last level; 0 otherwise.
    input: (u64, u64),
    /// Entries of the inputs that were read so far.
    read: u64,
    recipes_tried: u64,
    recipes_inherited: u64,
}

impl<'a> Outputs<'a> {
    pub(super) fn new(ctx: JobContext<'a>, output_level: u8, splitter: Splitter) -> Self {
        let at_rest = usize::from(output_level) == LAST_LEVEL;
        Self {
            ctx,
            splitter,
            at_rest,
            parts_catalog: at_rest && ctx.versions.source().store().remote().is_some(),
            offers: Arc::default(),
            writer: None,
            last_key: Vec::new(),
            superseded: 0,
            from_memory: FromMemory::default(),
            created: Vec::new(),
            in_reserve: None,
            done: Vec::new(),
            written: 0,
            input: (0, 0),
            read: 0,
            recipes_tried: 0,
            recipes_inherited: 0,
        }
    }

    /// Lets the files inherit one of the recipes `offers`.
    pub(super) fn with_recipe_offers(mut self, offers: RecipeOffers) -> Self {
        self.offers = Arc::new(offers);
        self
    }

    /// Says that the inputs have this many stored bytes and entries, so that files of about equal
    /// size can be made of them. [`Self::has_read`] must follow.
    pub(super) fn with_input(mut self, bytes: u64, entries: u64) -> Self {
        self.input = (bytes, entries);
        self
    }

    /// Says that `entries` of the inputs' entries were read so far.
    pub(super) fn has_read(&mut self, entries: u64) {
        self.read = entries;
    }

    /// The bytes that are still to be written, as the bytes written so far foretell them.
    fn remaining(&self) -> Option<u64> {
        let (bytes, entries) = self.input;
        let left = entries.checked_sub(self.read).filter(|_| entries > 0)?;
        let share = |of: u64, part: u64, all: u64| {
            (u128::from(of) * u128::from(part) / u128::from(all.max(1))) as u64
        };
        Some(match self.written {
            0 => share(bytes, left, entries),
            written => share(written, left, self.read),
        })
    }

    /// Adds the next entry. Entries come in the order of internal keys. `from` says where the block
    /// that has the entry was kept.
    pub(super) fn add(
        &mut self,
        key: InternalKey<'_>,
        value: Value<'_>,
        from: BlockResidence,
    ) -> Result<()> {
        if let Some(writer) = self.begun() {
            if self.last_key == key.user_key {
                self.superseded += 1;
            } else if self.leaves_catalog(&self.last_key, key.user_key)
                || self
                    .splitter
                    .should_split(&self.last_key, key.user_key, size_to_split(writer))
            {
                self.close()?;
            }
        }
        if self.writer.is_none() {
            self.writer = Some(self.create()?);
        }
        if self.last_key != key.user_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key.user_key);
        }
        self.from_memory.note(from);
        self.writer.as_mut().expect("just created").add(key, value)
    }

    /// Whether the blocks of `file` can be copied into the output files, because both have the
    /// layout of the last level or both that of the upper levels.
    pub(super) fn is_like(&self, file: &FileMeta) -> bool {
        file.at_rest == self.at_rest
    }

    /// Whether the splitter may want to end an output file between the user keys `first` and
    /// `last`. A data block whose first key and separator these are must then not be copied as a
    /// whole.
    pub(super) fn parts(&self, first: &[u8], last: &[u8]) -> bool {
        self.splitter.parts(first, last) || self.leaves_catalog(first, last)
    }

    /// Whether the catalog ends between these keys in files of the last level that may move to an
    /// object store. The file ends there, too: a start of the server needs the catalog, so files
    /// with a part of it never move.
    fn leaves_catalog(&self, first: &[u8], last: &[u8]) -> bool {
        let is_catalog = |key| index_id_of(key) == Some(CATALOG_INDEX);
        self.parts_catalog && is_catalog(first) && !is_catalog(last)
    }

    /// Copies a stored block. `first` is the block's first user key. All keys of the block must lie
    /// above the entries added so far, and each user key must occur once in it. `ahead` is the
    /// argument of [`SstWriter::takes`]; `from` says where the block was kept. Returns the
    /// block's last user key, or `None` if the block cannot be copied and its entries
    /// must be added one by one.
    pub(super) fn copy(
        &mut self,
        first: &[u8],
        block: &StoredBlock<'_>,
        ahead: u64,
        from: BlockResidence,
    ) -> Result<Option<&[u8]>> {
        if let Some(writer) = self.begun() {
            if !writer.takes(block, ahead) {
                return Ok(None);
            }
            let size = size_to_split(writer);
            if self.leaves_catalog(&self.last_key, first)
                || self.splitter.should_split(&self.last_key, first, size)
            {
                self.close()?;
            }
        }
        if self.writer.is_none() {
            self.writer = Some(self.create()?);
        }
        let writer = self.writer.as_mut().expect("just created");
        // Ask again whether the output file takes the block. The output file may be a new one by
        // now, which has no dictionary yet and so may refuse a block that the previous file would
        // have taken.
        if !writer.takes(block, ahead) {
            return Ok(None);
        }
        self.last_key = writer.copy(block)?;
        self.from_memory
            .note_copy(block.entries(), from, block.key());
        Ok(Some(&self.last_key))
    }

    /// Finishes the last file. Returns the metadata of all files and the sum of their sizes in
    /// bytes, and counts the origins of their recipes in `stats`. All files are synced.
    pub(super) fn finish(mut self, stats: &mut JobStats) -> Result<(Vec<FileMeta>, u64)> {
        self.close()?;
        stats.recipes_tried = self.recipes_tried;
        stats.recipes_inherited = self.recipes_inherited;
        self.created.clear();
        Ok((std::mem::take(&mut self.done), self.written))
    }

    /// The open file, unless it is empty. An empty one is left by a block that the new file did not
    /// take; it must not end there, even if a file must end before the key that comes next.
    fn begun(&self) -> Option<&SstWriter> {
        self.writer.as_ref().filter(|writer| writer.entries() > 0)
    }

    fn create(&mut self) -> Result<SstWriter> {
        if let Some(remaining) = self.remaining() {
            self.splitter.begin_file(remaining);
        }
        let store = self.ctx.versions.source().store();
        let id = self.ctx.versions.new_file_id();
        let file = match self.ctx.in_reserve && self.created.is_empty() {
            true => {
                let file = store.create_in_reserve(id)?;
                self.in_reserve = Some(id);
                file
            }
            false => store.create(id)?,
        };
        self.created.push(id);
        let block_size = self.ctx.options.block_size;
        let density = match self.at_rest {
            true => Density::Dense,
            false => Density::Light,
        };
        let options = SstOptions::of(density, block_size);
        let now = store.env().wall_micros();
        let prefix_extractors = Arc::clone(self.ctx.prefix_extractors);
        Ok(SstWriter::new(file, id, options, now)
            .with_prefix_extractors(prefix_extractors)
            .with_recipe_offers(Arc::clone(&self.offers)))
    }

    fn close(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let superseded = std::mem::take(&mut self.superseded);
        let summary = writer.finish()?;
        self.recipes_tried += u64::from(summary.recipe_tried);
        self.recipes_inherited += u64::from(summary.recipe_inherited);
        let meta = FileMeta::from_summary(summary, superseded, self.at_rest);
        let from_memory = std::mem::take(&mut self.from_memory);
        self.ctx.handover.output(meta.file_id, from_memory);
        self.written += meta.size;
        self.done.push(meta);
        Ok(())
    }
}

/// The size of an unfinished file by which the splitter decides whether it is full.
fn size_to_split(writer: &SstWriter) -> u64 {
    match writer.blob_files() < BLOB_FILES_MAX {
        true => writer.estimated_size(),
        false => u64::MAX,
    }
}

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        self.writer = None;
        let store = self.ctx.versions.source().store();
        for id in self.created.drain(..) {
            // Give the file back to the disk reserve instead of removing it, because another
            // program could take the space that a removal frees.
            let given_back = self.in_reserve == Some(id) && store.give_back_to_reserve(id).is_ok();
            if !given_back {
                self.ctx.versions.discard(&[id]);
            }
        }
    }
}

#[cfg(test)]
mod tests;
