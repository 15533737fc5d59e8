//! New files that nothing names yet.

use super::RunFactory;
use crate::base::Result;
use crate::version::{FileMeta, FileSource};
use std::sync::Arc;

/// Complete files that neither the log nor the manifest names. Dropping this value removes the
/// files. If they have more than a few megabytes, a background thread removes them later, because a
/// client may wait for the caller. [`Self::keep`] passes them to the caller instead.
pub struct NewFiles {
    ingest: Arc<RunFactory>,
    files: Vec<FileMeta>,
}

impl NewFiles {
    pub(super) fn new(ingest: Arc<RunFactory>) -> Self {
        Self {
            ingest,
            files: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, file: FileMeta) {
        self.files.push(file);
    }

    /// The files, ascending by key; no two share a user key. The seqnos in their metadata are those
    /// stored in the entries, not that of a commit.
    pub fn files(&self) -> &[FileMeta] {
        &self.files
    }

    /// The source that opens the files.
    pub(super) fn source(&self) -> &Arc<FileSource> {
        self.ingest.versions.source()
    }

    /// Makes the names of the files durable. Call it before a log record names them.
    ///
    /// # Errors
    /// `Io` from syncing the directory.
    pub fn sync(&self) -> Result<()> {
        self.ingest.versions.source().store().sync_dir()
    }

    /// Moves the files that `take` accepts into a separate set.
    pub fn split_off(&mut self, take: impl Fn(&FileMeta) -> bool) -> NewFiles {
        let (taken, left) = std::mem::take(&mut self.files).into_iter().partition(take);
        self.files = left;
        NewFiles {
            ingest: Arc::clone(&self.ingest),
            files: taken,
        }
    }

    /// Adds files that share no user key with those here.
    pub fn append(&mut self, mut other: NewFiles) {
        self.files.append(&mut other.files);
        self.files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    }

    /// Returns the files, which this value then no longer removes. Call it once a log record or an
    /// edit names them.
    pub fn keep(mut self) -> Vec<FileMeta> {
        std::mem::take(&mut self.files)
    }
}

impl Drop for NewFiles {
    fn drop(&mut self) {
        let files = self.files.iter();
        let files: Vec<_> = files.map(|file| (file.file_id, file.size)).collect();
        self.ingest.versions.give_up(&files);
    }
}
