//! Writes a sorted stream of entries into files.

use super::handover::{FromCache, Handover};
use super::limiter::IoLimiter;
use super::splitter::Splitter;
use crate::base::options::Options;
use crate::base::shape::KeyShapes;
use crate::base::{InternalKey, Result, Value};
use crate::sst::{SstOptions, SstWriter, StoredBlock};
use crate::version::{FileMeta, LAST_LEVEL, VersionSet};
use std::sync::Arc;

/// What flushes and jobs work with.
#[derive(Clone, Copy)]
pub struct JobContext<'a> {
    /// Hands out file ids, and knows where files are.
    pub versions: &'a VersionSet,
    /// Sizes.
    pub options: &'a Options,
    /// Learns what came from cached blocks.
    pub handover: &'a Handover,
    /// Holds up what reads and writes.
    pub limiter: &'a IoLimiter,
    /// Knows where the parts of keys end, for the sketches of files.
    pub shapes: &'a Arc<dyn KeyShapes>,
    /// The disk is full: there is one file at most, in the room that is kept for that.
    pub in_reserve: bool,
}

/// The files of one job, in the making.
///
/// Invariant: what it has created and not handed out in [`Self::finish`] it removes when dropped, so
/// that a job that fails leaves nothing behind. (What a crash leaves is removed by the next open.)
pub(super) struct Outputs<'a> {
    ctx: JobContext<'a>,
    splitter: Splitter,
    at_rest: bool,
    writer: Option<SstWriter>,
    last_key: Vec<u8>,
    superseded: u64,
    from_cache: FromCache,
    /// Every id created and not handed out.
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

    /// Adds the next entry in internal order. `cached`: it comes from a cached block.
    pub(super) fn add(
        &mut self,
        key: InternalKey<'_>,
        value: Value<'_>,
        cached: bool,
    ) -> Result<()> {
        if let Some(writer) = &self.writer {
            if self.last_key == key.user_key {
                self.superseded += 1;
            } else if self
                .splitter
                .cut(&self.last_key, key.user_key, writer.estimated_size())
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
        self.from_cache.note(cached);
        self.writer.as_mut().expect("just created").add(key, value)
    }

    /// Whether blocks of a file of this kind may be copied.
    pub(super) fn is_like(&self, file: &FileMeta) -> bool {
        file.at_rest == self.at_rest
    }

    /// Whether a file might end between these keys.
    pub(super) fn parts(&self, first: &[u8], last: &[u8]) -> bool {
        self.splitter.parts(first, last)
    }

    /// Copies a block that begins with user key `first`, above all added before, and of which no user
    /// key comes twice; `ahead` as in [`SstWriter::takes`]. Returns its last user key; `None` if its entries must be
    /// added one by one.
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
            if self.splitter.cut(&self.last_key, first, size) {
                self.close()?;
            }
        }
        if self.writer.is_none() {
            self.writer = Some(self.create()?);
        }
        let writer = self.writer.as_mut().expect("just created");
        // A new file has no dictionary yet.
        if !writer.takes(block, ahead) {
            return Ok(None);
        }
        self.last_key = writer.copy(block)?;
        self.from_cache
            .note_copy(block.entries(), cached.then(|| block.key()));
        Ok(Some(&self.last_key))
    }

    /// Ends the last file and hands out all of them, synced; also their stored bytes.
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
        let options = if self.at_rest {
            SstOptions::last_level(block_size)
        } else {
            SstOptions::upper_level(block_size)
        };
        let now = store.env().wall_micros();
        let shapes = Arc::clone(self.ctx.shapes);
        Ok(SstWriter::new(file, id, options, now).with_shapes(shapes))
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
            // What cannot be removed now is removed by the next open.
            let _ = self.ctx.versions.source().store().remove(id);
        }
    }
}
