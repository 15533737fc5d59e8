//! Writes one run.

use super::{FileSplitter, NewFiles, RunFactory};
use crate::base::{Error, InternalKey, Kind, Result, Value};
use crate::sst::{Density, SstOptions, SstWriter};
use crate::version::{BLOB_FILES_MAX, FileMeta};
use std::sync::Arc;

/// Writes sorted entries into SSTs that share no user key.
///
/// Steps: call [`Self::add`] with every entry, ascending by user key, each key once; then
/// [`Self::finish`]. The entries are stored with seqno 0. The commit that names the files gives
/// them its seqno ([`FileMeta::with_external_seqno`]). The [`FileSplitter`] decides where files
/// end.
///
/// Invariant: dropping the writer removes the files that it created and did not return. After an
/// error the writer must not be used again.
pub struct RunWriter {
    ingest: Arc<RunFactory>,
    density: Density,
    file_splitter: FileSplitter,
    /// Id and writer of the current file.
    open: Option<(u64, SstWriter)>,
    last_key: Vec<u8>,
    superseded: u64,
    done: NewFiles,
    bytes: u64,
    synced: bool,
    loaded: bool,
}

impl RunWriter {
    pub(super) fn new(
        ingest: Arc<RunFactory>,
        density: Density,
        file_splitter: FileSplitter,
    ) -> Self {
        Self {
            done: NewFiles::new(Arc::clone(&ingest)),
            ingest,
            density,
            file_splitter,
            open: None,
            last_key: Vec::new(),
            superseded: 0,
            bytes: 0,
            synced: true,
            loaded: false,
        }
    }

    /// Makes [`Self::finish`] leave the files unsynced. Before a log record names them, the caller
    /// must sync each ([`RunFactory::sync_file`]).
    #[must_use]
    pub fn unsynced(mut self) -> Self {
        self.synced = false;
        self
    }

    /// Marks the files as loaded ([`Properties::loaded`](crate::sst::Properties)).
    #[must_use]
    pub(super) fn for_load(mut self) -> Self {
        self.loaded = true;
        self
    }

    /// Adds an entry above all entries added so far.
    ///
    /// # Errors
    /// `InvalidArgument` if the key is not above the last one; `NoSpace`, `Io` from writing the
    /// files.
    pub fn add(&mut self, user_key: &[u8], kind: Kind, value: Value<'_>) -> Result<()> {
        if self.open.is_some() && self.last_key == user_key {
            return Err(Error::invalid("a user key twice in a run"));
        }
        self.add_version(InternalKey::new(user_key, 0, kind), value)
    }

    /// Adds an entry of a run that no commit has made visible, such as a spilled run. Entries come
    /// in internal order. The entry's seqno is stored, and a user key may have several versions.
    ///
    /// # Errors
    /// `NoSpace`, `Io` from writing the files.
    pub fn add_version(&mut self, key: InternalKey<'_>, value: Value<'_>) -> Result<()> {
        if let Some((_, writer)) = &self.open {
            if self.last_key == key.user_key {
                self.superseded += 1;
            } else {
                // End the file also when it refers to `BLOB_FILES_MAX` blob files. The rows of one
                // run may refer to very many, for example if a transaction updates rows all over a
                // table and copies their blob references.
                let full = writer.blob_files() >= BLOB_FILES_MAX;
                let size = writer.estimated_size();
                if full || (self.file_splitter)(&self.last_key, key.user_key, size) {
                    self.close()?;
                }
            }
        }
        if self.last_key != key.user_key {
            self.last_key.clear();
            self.last_key.extend_from_slice(key.user_key);
        }
        let writer = match &mut self.open {
            Some((_, writer)) => writer,
            None => self.create()?,
        };
        writer.add(key, value)
    }

    /// Stored bytes so far, an estimate.
    pub fn bytes(&self) -> u64 {
        let open = self.open.as_ref();
        self.bytes + open.map_or(0, |(_, writer)| writer.estimated_size())
    }

    /// Ends the run. Its files are synced, unless [`Self::unsynced`] was called; their names are
    /// not durable yet ([`NewFiles::sync`]).
    ///
    /// # Errors
    /// `NoSpace`, `Io` from writing the files.
    pub fn finish(mut self) -> Result<NewFiles> {
        self.close()?;
        let none = NewFiles::new(Arc::clone(&self.ingest));
        Ok(std::mem::replace(&mut self.done, none))
    }

    fn create(&mut self) -> Result<&mut SstWriter> {
        let versions = &self.ingest.versions;
        let store = versions.source().store();
        let id = versions.new_file_id();
        let block_size = self.ingest.options.block_size;
        let options = SstOptions::of(self.density, block_size);
        let now = store.env().wall_micros();
        let file = store.create(id)?;
        let mut writer = SstWriter::new(file, id, options, now)
            .with_prefix_extractors(Arc::clone(&self.ingest.prefix_extractors))
            .with_external_seqno();
        if self.loaded {
            writer = writer.with_loaded();
        }
        Ok(&mut self.open.insert((id, writer)).1)
    }

    fn close(&mut self) -> Result<()> {
        let Some((id, writer)) = self.open.take() else {
            return Ok(());
        };
        let superseded = std::mem::take(&mut self.superseded);
        let finished = match self.synced {
            true => writer.finish(),
            false => writer.finish_unsynced(),
        };
        let summary = finished.inspect_err(|_| self.ingest.versions.discard(&[id]))?;
        let at_rest = self.density == Density::Dense;
        self.bytes += summary.size;
        self.done
            .push(FileMeta::from_summary(summary, superseded, at_rest));
        Ok(())
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        if let Some((id, writer)) = self.open.take() {
            drop(writer);
            self.ingest.versions.discard(&[id]);
        }
    }
}
