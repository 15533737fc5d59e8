//! The factory of runs that are written outside of flush and compaction.

use super::helper_thread::HelperThread;
use super::{FileSplitters, NewFiles, RunWriter};
use crate::base::Result;
use crate::base::options::Options;
use crate::base::prefix_extractor::PrefixExtractors;
use crate::sst::Density;
use crate::version::VersionSet;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Makes the writers of new files and holds what these share.
///
/// The layers that know the shape of the tree decide how a run is cut: they pass in
/// [`FileSplitters`].
pub struct RunFactory {
    pub(super) versions: Arc<VersionSet>,
    pub(super) options: Options,
    pub(super) prefix_extractors: Arc<dyn PrefixExtractors>,
    file_splitters: FileSplitters,
    helper_thread: HelperThread,
}

impl RunFactory {
    /// A factory of files for the tree of `versions`, with block sizes from `options`, and with
    /// sketches of each index whose key parts `prefix_extractors` knows.
    pub fn new(
        versions: Arc<VersionSet>,
        options: Options,
        prefix_extractors: Arc<dyn PrefixExtractors>,
        file_splitters: FileSplitters,
    ) -> Arc<Self> {
        Arc::new(Self {
            versions,
            options,
            prefix_extractors,
            file_splitters,
            helper_thread: HelperThread::default(),
        })
    }

    /// The version set, which allocates file ids and has the file store.
    pub fn versions(&self) -> &Arc<VersionSet> {
        &self.versions
    }

    /// Whether runs may be written by other threads than the caller's.
    pub fn has_threads(&self) -> bool {
        self.options.background_jobs > 0
    }

    /// Starts `work`, which must not panic, in a background thread. The values that `work` owns are
    /// dropped before its result can be received.
    ///
    /// # Errors
    /// Returns `work` if there is no background thread or if that thread is busy: the caller then
    /// runs `work` itself.
    pub fn run_in_background<T, F>(&self, work: F) -> std::result::Result<Receiver<T>, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        match self.has_threads() {
            true => self.helper_thread.begin(work),
            false => Err(work),
        }
    }

    /// Syncs a file that was written unsynced.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`, `Io`.
    pub fn sync_file(&self, file_id: u64) -> Result<()> {
        self.versions.source().store().sync(file_id)
    }

    /// An empty set of files.
    pub fn no_files(self: &Arc<Self>) -> NewFiles {
        NewFiles::new(Arc::clone(self))
    }

    /// A writer of one run. `expected`: estimated stored bytes, 0 if unknown.
    pub fn writer(self: &Arc<Self>, density: Density, expected: u64) -> RunWriter {
        let file_splitter = (self.file_splitters)(density, expected);
        RunWriter::new(Arc::clone(self), density, file_splitter)
    }
}
