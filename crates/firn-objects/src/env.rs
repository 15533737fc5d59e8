//! Clock, local files and threads behind traits, so that simulation can replace them. `system` has
//! the real twins; [`crate::mem`] has the simulated ones.

mod system;

use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

pub use system::{SystemClock, SystemFiles, Threads};

/// Time and randomness.
pub trait Clock: Send + Sync {
    /// Monotonic clock, microseconds since an arbitrary start.
    fn now_us(&self) -> u64;
    /// Seconds since 1970.
    fn unix_s(&self) -> u64;
    /// Waits.
    fn sleep_us(&self, us: u64);
    /// A random number.
    fn random(&self) -> u64;
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must exist; it is not written.
    Read,
    /// It must exist.
    Write,
    /// It is created if it is missing.
    Create,
    /// It must not exist.
    New,
}

/// An entry of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its name in the directory.
    pub name: String,
    /// Whether it is a directory itself.
    pub is_directory: bool,
}

/// Size, time and number of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its size, with its holes.
    pub bytes: u64,
    /// Last change, seconds since 1970.
    pub modified_s: u64,
    /// Its number in the file system, which a copy does not have.
    pub inode: u64,
}

/// Local files. What [`LocalFile::sync`] and [`Files::sync_directory`] have not made durable may be
/// gone after a crash, in whole or in part.
#[allow(clippy::missing_errors_doc)] // All: those of the operating system.
pub trait Files: Send + Sync {
    /// Opens a file.
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn LocalFile>>;
    /// Moves a file, in place of one that is there.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Gives a file a second name; `AlreadyExists` if that is taken.
    fn link(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Removes an empty directory.
    fn remove_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes a directory whose parent exists. It is no error if it exists.
    fn create_directory(&self, path: &Path) -> io::Result<()>;
    /// Makes the names in a directory durable.
    fn sync_directory(&self, path: &Path) -> io::Result<()>;
    /// The entries of a directory, in no order.
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>>;
    /// Size, time and number of a file.
    fn info(&self, path: &Path) -> io::Result<FileInfo>;
}

/// An open file.
#[allow(clippy::missing_errors_doc)] // All: those of the operating system.
#[allow(clippy::len_without_is_empty)] // It is the size of a file.
pub trait LocalFile: Send + Sync {
    /// Reads up to the end of the file, or until `into` is full.
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all bytes.
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes the content durable.
    fn sync(&self) -> io::Result<()>;
    /// Its size, with its holes.
    fn len(&self) -> io::Result<u64>;
    /// Changes its size.
    fn set_len(&self, bytes: u64) -> io::Result<()>;
    /// Gives back the room of a range, which reads as zeros from now on.
    fn punch_hole(&self, range: Range<u64>) -> io::Result<()>;
    /// The ranges that are no holes, in order.
    fn data_ranges(&self) -> io::Result<Vec<Range<u64>>>;
}

/// Work of a [`Jobs`].
pub type Job = Box<dyn FnOnce() + Send>;

/// Threads that work in the background.
pub trait Jobs: Send + Sync {
    /// Has the job done, after those submitted before. It is dropped if the threads are ending.
    fn submit(&self, job: Job);
}
