//! Files that somebody has made and nobody has named.

use super::Ingest;
use crate::base::Result;
use crate::version::{FileMeta, FileSource};
use std::sync::Arc;

/// Complete files that neither log nor manifest names. They are removed when this is dropped, many bytes of
/// them a little at a time, as the pace of deletions allows; [`Self::keep`] hands them over.
pub struct NewFiles {
    ingest: Arc<Ingest>,
    files: Vec<FileMeta>,
}

impl NewFiles {
    pub(super) fn new(ingest: Arc<Ingest>) -> Self {
        Self {
            ingest,
            files: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, file: FileMeta) {
        self.files.push(file);
    }

    /// The files, ascending by key, without a common user key. Their seqnos are those stored.
    pub fn files(&self) -> &[FileMeta] {
        &self.files
    }

    /// Where they are read.
    pub(super) fn source(&self) -> &Arc<FileSource> {
        self.ingest.versions.source()
    }

    /// Makes their names durable. To be called before a record names them.
    pub fn sync(&self) -> Result<()> {
        self.ingest.versions.source().store().sync_dir()
    }

    /// Takes some of the files out, to be owned by themselves.
    pub fn split_off(&mut self, take: impl Fn(&FileMeta) -> bool) -> NewFiles {
        let (taken, left) = std::mem::take(&mut self.files).into_iter().partition(take);
        self.files = left;
        NewFiles {
            ingest: Arc::clone(&self.ingest),
            files: taken,
        }
    }

    /// Adds files, which have no user key in common with those here.
    pub fn append(&mut self, mut other: NewFiles) {
        self.files.append(&mut other.files);
        self.files.sort_by(|a, b| a.smallest.cmp(&b.smallest));
    }

    /// Hands the files over to the caller, who has had them named.
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
