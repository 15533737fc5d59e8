//! The outside world behind traits: files, clock, locks. `posix` is the real one, `mem` keeps only
//! synced bytes over a crash, `fault` fails chosen calls.

mod aligned;
mod announced;
mod counting;
mod direct;
pub mod fault;
pub mod mem;
pub mod posix;
mod spans;

use crate::base::Result;
use std::path::Path;
use std::sync::Arc;

pub use aligned::{AlignedBuf, BLOCK, SECTOR};
pub use announced::{AnnouncedStats, Announcement, BatchedReads};
pub use counting::{CountingEnv, IoCounters};
pub use fault::FaultEnv;
pub use mem::MemEnv;
pub use posix::PosixEnv;

/// Files, directories and the clock.
///
/// Durability rules that all implementations share: bytes of a file survive a power cut once its
/// `sync` has returned; the name of a new, renamed or removed file once `sync_dir` of its directory
/// has returned.
pub trait Env: Send + Sync + 'static {
    /// Creates a directory and its parents.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// Names of the entries of a directory, unordered.
    fn list_dir(&self, path: &Path) -> Result<Vec<String>>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Creates (or empties) a file for appending.
    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>>;
    /// Sets `bytes` of the disk aside for the file at `path`, from its beginning and beyond its end: its length stays,
    /// and what is written there later finds its room. An empty file is created if there is none; its name is not
    /// durable. Returns whether the file system can; where it cannot, no file is created.
    ///
    /// # Errors
    /// [`crate::base::ErrorKind::NoSpace`]: no file is created.
    fn set_aside(&self, path: &Path, bytes: u64) -> Result<bool>;
    /// As [`Self::create`] of `path`, in the room of the file at `aside`, which [`Self::set_aside`] has made: that
    /// file is renamed, replacing the target. A power cut may have taken an earlier such name and left the bytes: they go.
    fn create_from(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>>;
    /// Opens a file for positional reads.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>>;
    /// Opens for reading past the page cache, where the file system can; as [`Self::open`] elsewhere.
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.open(path)
    }
    /// How announced reads of files from [`Self::open_direct`] are read, and what became of them.
    fn batched_reads(&self) -> (BatchedReads, AnnouncedStats) {
        (BatchedReads::OneByOne, AnnouncedStats::default())
    }
    /// Opens a log segment for positional writes; creates it if `create`. `direct` asks for I/O
    /// past the page cache where the file system has it.
    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>>;
    /// Gives a file a second name in another directory, or the same. From then on neither name's holder
    /// may change the bytes: whoever would write to a file in place asks [`Self::links`] first.
    /// [`crate::base::ErrorKind::Unsupported`] where the file system cannot, as between devices;
    /// [`crate::base::ErrorKind::AlreadyExists`] if the new name is taken.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// Names that a file has.
    fn links(&self, path: &Path) -> Result<u64>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Opens a file whose spans are written once each, in any order; creates it if `create`.
    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>>;
    /// What a file takes. A missing file is [`crate::base::ErrorKind::NotFound`].
    fn usage(&self, path: &Path) -> Result<FileUsage>;
    /// Renames a file, replacing the target; or a directory, whose new name must not be taken.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. A missing file is [`crate::base::ErrorKind::NotFound`].
    fn remove(&self, path: &Path) -> Result<()>;
    /// Whether the path exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Takes the exclusive lock file at `path`; [`crate::base::ErrorKind::Busy`] if another process
    /// has it. Held until dropped.
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>>;
    /// Wall clock, microseconds since 1970.
    fn wall_micros(&self) -> u64;
    /// Monotonic clock, microseconds.
    fn monotonic_micros(&self) -> u64;
    /// Random bytes that nobody can foresee, but for a simulation.
    fn random(&self, bytes: &mut [u8]) -> Result<()>;
}

/// A file written once from start to end.
pub trait AppendFile: Send {
    /// Appends bytes; they may stay in a buffer until `sync`.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Shows all bytes to those who read the file; a power cut may still take them.
    fn flush(&mut self) -> Result<()>;
    /// Hands all bytes to the device.
    fn sync(&mut self) -> Result<()>;
    /// Sees to it that the next `bytes` to be appended find their room, also when the disk is full by then. Returns
    /// whether the file system can.
    fn set_aside(&mut self, bytes: u64) -> Result<bool> {
        let _ = bytes;
        Ok(false)
    }
    /// Bytes appended so far.
    fn len(&self) -> u64;
    /// Whether nothing was appended.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A file read at positions.
pub trait ReadFile: Send + Sync {
    /// Fills `buf` from `offset`. A file that ends before is an I/O error.
    fn read_exact_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Size in bytes.
    fn size(&self) -> Result<u64>;
    /// Says that `len` bytes from `offset` on are about to be read. Where the system reads ahead, it
    /// begins to read them; files read directly are put on `reads`, which the caller starts when all
    /// is said. Nobody waits. A hint: it never fails and changes no result.
    fn will_read(&self, offset: u64, len: u64, reads: &mut Announcement) {
        let _ = (offset, len, reads);
    }
}

/// What a file takes of the file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileUsage {
    /// Its length, bytes.
    pub len: u64,
    /// What it really takes, holes left out, bytes.
    pub allocated: u64,
}

/// A file of spans: each is written once, by whoever it was given to, several at the same time.
pub trait SpanFile: Send + Sync {
    /// Writes at a position; durable after the next `sync` that begins when this has returned.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Makes all finished writes durable, and the length that reading them needs.
    fn sync(&self) -> Result<()>;
    /// Gives the room of these bytes back, whole [`BLOCK`]s: they read as zeros from now on, and after
    /// a power cut perhaps. Whether the file system can.
    fn punch(&self, offset: u64, len: u64) -> Result<bool>;
    /// Makes the file `len` bytes long, behind which no span was given out. A power cut before the next
    /// sync may bring the old length back.
    fn set_len(&self, len: u64) -> Result<()>;
}

/// A log segment: written at positions in whole units, several writes in flight.
pub trait LogFile: Send + Sync {
    /// Bytes in multiples of which it is written: [`SECTOR`] where writes go past the page cache and
    /// the device has such sectors, else [`BLOCK`].
    fn unit(&self) -> usize;
    /// Writes zeros over the first `len` bytes and syncs, so that later writes change no metadata.
    fn preallocate(&self, len: u64) -> Result<()>;
    /// Sets the first `len` bytes aside and syncs the size: they read as zeros, and later writes find
    /// the room, but the first write of each block changes metadata, which makes a durable one slow.
    fn reserve(&self, len: u64) -> Result<()>;
    /// Writes whole units, padded with zeros, at a multiple of the unit; durable on return. The
    /// [`BLOCK`] around it must hold nothing that `write_at` wrote.
    fn write_durable_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()>;
    /// Writes whole units as above; durable after the next `sync`. What is not synced may be written
    /// again. It may go through the page cache, which writes whole [`BLOCK`]s: they must hold nothing
    /// that `write_durable_at` wrote.
    fn write_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()>;
    /// Makes all finished `write_at` calls durable.
    fn sync(&self) -> Result<()>;
}

#[cfg(test)]
mod tests;
