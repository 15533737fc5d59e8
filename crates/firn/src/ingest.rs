//! Files written outside of flush and compaction: spilled write sets, rows loaded in bulk.
//!
//! [`RunWriter`] turns a sorted stream into SSTs that no manifest names yet. They belong to their
//! creator until a log record or an edit names them.

mod helper_thread;
mod index_load;
mod load_output;
mod merge_lists;
mod new_files;
mod run_factory;
mod run_writer;
mod sort_buffer;
mod sorter;
mod temp_run;

pub use index_load::{IndexLoad, LoadLimits, LoadProgress, Pacer};
pub use load_output::{Duplicate, LoadFailure};
pub use new_files::NewFiles;
pub use run_factory::RunFactory;
pub use run_writer::RunWriter;
pub use sort_buffer::LoadEntry;
pub use sorter::Uniqueness;

use crate::base::{CounterValue, Result};
use crate::sst::Density;

/// Decides on file boundaries: (last user key of the file, next user key, stored bytes of the file)
/// → whether the file ends between the two keys.
pub type FileSplitter = Box<dyn FnMut(&[u8], &[u8], u64) -> bool + Send>;

/// Makes the [`FileSplitter`] of a run from its density and its expected stored bytes.
pub type FileSplitters = Box<dyn Fn(Density, u64) -> FileSplitter + Send + Sync>;

/// The services of the database that loads need.
pub trait LoadHost: Send + Sync {
    /// The resources that a load may use.
    fn limits(&self) -> LoadLimits;

    /// Adds files to the tree and raises `counters`, as one atomic edit; durable on return. The
    /// caller guarantees that until the call returns nothing else in the database has a key between
    /// the smallest and the largest key of any of the files. Every snapshot sees the entries, even
    /// one that was taken before.
    ///
    /// # Errors
    /// Those of an edit: `NoSpace`, `Poisoned`, `Io`. After an error, the files are removed, at the
    /// latest by the next open of the database.
    fn install(&self, files: NewFiles, counters: Vec<(u64, CounterValue)>) -> Result<()>;
}

#[cfg(test)]
mod tests;
