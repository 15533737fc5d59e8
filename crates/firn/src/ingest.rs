//! Files written outside of flush and compaction: spilled write sets, rows loaded in bulk.
//!
//! [`RunWriter`] turns a sorted stream into SSTs that no manifest names yet. They belong to their
//! creator until a log record or an edit names them.

mod helper_thread;
mod index_load;
mod load_output;
mod merge_lists;
mod new_files;
mod run_writer;
mod sort_buffer;
mod sorter;
mod temp_run;

pub use index_load::{IndexLoad, LoadLimits, LoadProgress, Pacer};
pub use load_output::{Duplicate, LoadFailure};
pub use new_files::NewFiles;
pub use run_writer::RunWriter;
pub use sort_buffer::LoadEntry;
pub use sorter::Uniqueness;

use crate::base::options::Options;
use crate::base::prefix_extractor::PrefixExtractors;
use crate::base::{CounterValue, Result};
use crate::sst::Density;
use crate::version::VersionSet;
use helper_thread::HelperThread;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Decides on file boundaries: (last user key of the file, next user key, stored bytes of the file)
/// → whether the file ends between the two keys.
pub type FileSplitter = Box<dyn FnMut(&[u8], &[u8], u64) -> bool + Send>;

/// Makes the [`FileSplitter`] of a run from its density and its expected stored bytes.
pub type FileSplitters = Box<dyn Fn(Density, u64) -> FileSplitter + Send + Sync>;

/// The services of the database that loads need.
pub trait LoadHost: Send + Sync {
    /// The resources that a load may use.
    fn limits(&self) -> LoadLimits;

    /// Adds files to the tree and raises `counters`, as one atomic edit; durable on return. Nothing
    /// else in the tree may have a key between the smallest and the largest key of a file, until
    /// the call returns. Every snapshot sees the entries.
    ///
    /// # Errors
    /// Those of an edit: `NoSpace`, `Poisoned`, `Io`. The files are removed then, at the latest by
    /// the next open.
    fn install(&self, files: NewFiles, counters: Vec<(u64, CounterValue)>) -> Result<()>;
}

/// The factory of new files; holds what their writers share.
///
/// The layers that know the shape of the tree decide how a run is cut: they pass in
/// [`FileSplitters`].
pub struct Ingest {
    versions: Arc<VersionSet>,
    options: Options,
    prefix_extractors: Arc<dyn PrefixExtractors>,
    cutters: FileSplitters,
    beside: HelperThread,
}

impl Ingest {
    /// A factory of files for the tree of `versions`, with block sizes from `options`, and with
    /// sketches of the keys that `prefix_extractors` knows.
    pub fn new(
        versions: Arc<VersionSet>,
        options: Options,
        prefix_extractors: Arc<dyn PrefixExtractors>,
        cutters: FileSplitters,
    ) -> Arc<Self> {
        Arc::new(Self {
            versions,
            options,
            prefix_extractors,
            cutters,
            beside: HelperThread::default(),
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
    /// Returns `work`, for the caller to run it itself, if there is no background thread or it is
    /// busy.
    pub fn beside<T, F>(&self, work: F) -> std::result::Result<Receiver<T>, F>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        match self.has_threads() {
            true => self.beside.begin(work),
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
        let file_splitter = (self.cutters)(density, expected);
        RunWriter::new(Arc::clone(self), density, file_splitter)
    }
}

#[cfg(test)]
mod tests;
