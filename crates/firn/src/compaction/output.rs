//! Writes a sorted stream of entries into files.

use super::cache_handover::{CacheHandover, FromCache};
use super::rate_limiter::RateLimiter;
use super::splitter::Splitter;
use crate::base::options::Options;
use crate::base::prefix_extractor::PrefixExtractors;
use crate::base::{InternalKey, Result, Value};
use crate::sst::{Density, SstOptions, SstWriter, StoredBlock};
use crate::version::{FileMeta, LAST_LEVEL, VersionSet};
use std::sync::Arc;

/// The engine parts that flushes and compactions use.
#[derive(Clone, Copy)]
pub struct JobContext<'a> {
    /// Allocates file ids and gives access to the file store.
    pub versions: &'a VersionSet,
    /// Block and file sizes.
    pub options: &'a Options,
    /// Records which output entries came from cached blocks.
    pub handover: &'a CacheHandover,
    /// Limits the rate of background reads and writes.
    pub limiter: &'a RateLimiter,
    /// Tells where the parts of a key end, for the sketches in the files.
    pub prefix_extractors: &'a Arc<dyn PrefixExtractors>,
    /// The disk is full: the flush writes a single file, into the space reserved for that case.
    pub in_reserve: bool,
}

/// The output files that one job is writing.
///
/// Invariant: dropping it removes every file that it created and [`Self::finish`] did not hand out,
/// so a failed job leaves nothing behind. The next open removes the leftovers of a crash.
pub(super) struct Outputs<'a> {
    ctx: JobContext<'a>,
    splitter: Splitter,
    at_rest: bool,
    writer: Option<SstWriter>,
    last_key: Vec<u8>,
    superseded: u64,
    from_cache: FromCache,
    /// Ids of all files created and not yet handed out.
    created: Vec<u64>,
    done: Vec<FileMeta>,
    written: u64,
}

impl<'a> Outputs<'a> {
    pub(super) fn new(ctx: JobContext<'a>, output_level: u8, splitter: Splitter) -> Self {
        Self {
            ctx,
            splitter,
            at_rest: usize::from(output_level) == LAST_LEVEL,
            writer: None,
            last_key: Vec::new(),
            superseded: 0,
            from_cache: FromCache::default(),
            created: Vec::new(),
            done: Vec::new(),
            written: 0,
        }
    }

    /// Adds the next entry in internal order. `cached`: the entry was read from a cached block.
    pub(super) fn add(
        &mut self,
        key: InternalKey<'_>,
        value: Value<'_>,
        cached: bool,
    ) -> Result<()> {
        if let Some(writer) = &self.writer {
            if self.last_key == key.user_key {
                self.superseded += 1;
            } else if self.splitter.should_split(
                &self.last_key,
                key.user_key,
                writer.estimated_size(),
            ) {
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
        self.from_cache.note(cached);
        self.writer.as_mut().expect("just created").add(key, value)
    }

    /// Whether `file` has the layout of the output files, so that its blocks can be copied.
    pub(super) fn is_like(&self, file: &FileMeta) -> bool {
        file.at_rest == self.at_rest
    }

    /// Whether a file might end between these keys.
    pub(super) fn parts(&self, first: &[u8], last: &[u8]) -> bool {
        self.splitter.parts(first, last)
    }

    /// Copies a block whose first user key is `first`. The block lies above all entries added so
    /// far and holds each user key once. `ahead` is the argument of [`SstWriter::takes`]. Returns
    /// the block's last user key, or `None` if its entries must be added one by one.
    pub(super) fn copy(
        &mut self,
        first: &[u8],
        block: &StoredBlock<'_>,
        ahead: u64,
        cached: bool,
    ) -> Result<Option<&[u8]>> {
        if let Some(writer) = &self.writer {
            if !writer.takes(block, ahead) {
                return Ok(None);
            }
            let size = writer.estimated_size();
            if self.splitter.should_split(&self.last_key, first, size) {
                self.close()?;
            }
        }
        if self.writer.is_none() {
            self.writer = Some(self.create()?);
        }
        let writer = self.writer.as_mut().expect("just created");
        // Ask again: a new file carries no dictionary yet, so its answer may differ.
        if !writer.takes(block, ahead) {
            return Ok(None);
        }
        self.last_key = writer.copy(block)?;
        self.from_cache
            .note_copy(block.entries(), cached.then(|| block.key()));
        Ok(Some(&self.last_key))
    }

    /// Finishes the last file. Returns the metadata of all files, which are synced, and the sum of
    /// their stored bytes.
    pub(super) fn finish(mut self) -> Result<(Vec<FileMeta>, u64)> {
        self.close()?;
        self.created.clear();
        Ok((std::mem::take(&mut self.done), self.written))
    }

    fn create(&mut self) -> Result<SstWriter> {
        let store = self.ctx.versions.source().store();
        let id = self.ctx.versions.new_file_id();
        let file = match self.ctx.in_reserve && self.created.is_empty() {
            true => store.create_in_reserve(id)?,
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
        Ok(SstWriter::new(file, id, options, now).with_prefix_extractors(prefix_extractors))
    }

    fn close(&mut self) -> Result<()> {
        let Some(writer) = self.writer.take() else {
            return Ok(());
        };
        let superseded = std::mem::take(&mut self.superseded);
        let meta = FileMeta::from_summary(writer.finish()?, superseded, self.at_rest);
        let from_cache = std::mem::take(&mut self.from_cache);
        self.ctx.handover.output(meta.file_id, from_cache);
        self.written += meta.size;
        self.done.push(meta);
        Ok(())
    }
}

impl Drop for Outputs<'_> {
    fn drop(&mut self) {
        self.writer = None;
        for id in self.created.drain(..) {
            // The next open removes a file whose removal fails here.
            let _ = self.ctx.versions.source().store().remove(id);
        }
    }
}
