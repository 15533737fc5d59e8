//! Files written outside of flush and compaction: spilled write sets, rows loaded in bulk.
//!
//! [`RunWriter`] turns a sorted stream into SSTs that no manifest names yet. They belong to whoever
//! made them until a record of the log, or an edit, names them.

mod beside;
mod entries;
mod files;
mod load;
mod merge;
mod output;
mod sorted_run;
mod sorter;
mod writer;

pub use entries::Entry;
pub use files::NewFiles;
pub use load::{Load, LoadLimits, Pacer, Progress};
pub use output::{Duplicate, Failure};
pub use sorter::Uniqueness;
pub use writer::{Density, RunWriter};

use crate::base::options::Options;
use crate::base::shape::KeyShapes;
use crate::base::{CounterValue, Result};
use crate::version::VersionSet;
use beside::Beside;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

/// Says whether a file of so many stored bytes that ends with the first user key ends before the second.
pub type Cutter = Box<dyn FnMut(&[u8], &[u8], u64) -> bool + Send>;

/// Makes the [`Cutter`] of a run of about so many stored bytes.
pub type Cutters = Box<dyn Fn(Density, u64) -> Cutter + Send + Sync>;

/// What loads need of the database around them.
pub trait LoadHost: Send + Sync {
    /// What a load may use.
    fn limits(&self) -> LoadLimits;

    /// Puts files into the tree, in one step with `counters` raised; durable on return. Nothing else in the tree
    /// may have a key between the smallest and the largest one of a file, now or until the end of the call. Their
    /// entries are visible to every snapshot.
    ///
    /// # Errors
    /// Those of an edit. The files are gone then, or go with the next open.
    fn install(&self, files: NewFiles, counters: Vec<(u64, CounterValue)>) -> Result<()>;
}

/// Where new files come from: what their writers share.
///
/// How a run is cut is decided by the layers that know how the tree wants its files; they hand in
/// [`Cutters`].
pub struct Ingest {
    versions: Arc<VersionSet>,
    options: Options,
    shapes: Arc<dyn KeyShapes>,
    cutters: Cutters,
    beside: Beside,
}

impl Ingest {
    /// Files of the tree of `versions`, with block sizes from `options`, and sketches for keys that
    /// `shapes` knows.
    pub fn new(
        versions: Arc<VersionSet>,
        options: Options,
        shapes: Arc<dyn KeyShapes>,
        cutters: Cutters,
    ) -> Arc<Self> {
        Arc::new(Self {
            versions,
            options,
            shapes,
            cutters,
            beside: Beside::default(),
        })
    }

    /// The tree, which hands out ids and knows where files lie.
    pub fn versions(&self) -> &Arc<VersionSet> {
        &self.versions
    }

    /// Whether to write in threads beside the one that brings the entries.
    pub fn has_threads(&self) -> bool {
        self.options.background_jobs > 0
    }

    /// Begins `work`, which must not panic, in a thread beside the caller's. What it holds is dropped before the result
    /// can be received.
    ///
    /// # Errors
    /// `work`, where the caller is to do it itself: there are no threads, or they are at other work.
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

    /// Makes a file durable that was written unsynced.
    ///
    /// # Errors
    /// Those of the file.
    pub fn sync_file(&self, file_id: u64) -> Result<()> {
        self.versions.source().store().sync(file_id)
    }

    /// No files.
    pub fn no_files(self: &Arc<Self>) -> NewFiles {
        NewFiles::new(Arc::clone(self))
    }

    /// A writer of one run. `expected`: stored bytes to come, as far as anybody knows; 0 if nobody does.
    pub fn writer(self: &Arc<Self>, density: Density, expected: u64) -> RunWriter {
        let cutter = (self.cutters)(density, expected);
        RunWriter::new(Arc::clone(self), density, cutter)
    }
}

#[cfg(test)]
mod tests;
