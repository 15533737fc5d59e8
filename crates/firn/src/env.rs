//! Files, clock, randomness and file locks behind traits. `posix` is the real environment. `mem`
//! has its files in memory and loses unsynced bytes in a simulated crash. `fault` wraps an
//! environment and lets chosen calls fail. `slow` wraps one and lets calls take as long as on a
//! slow disk.

mod aligned;
mod counting;
mod direct;
pub mod fault;
pub mod mem;
pub mod posix;
mod prefetch;
mod read_class;
mod read_counters;
mod slow;
mod span_file;
mod unsynced;

use crate::base::Result;
use std::path::Path;
use std::sync::Arc;

pub use aligned::{AlignedBuf, BLOCK, SECTOR};
pub use counting::{CountingEnv, IoStats};
pub use fault::FaultEnv;
pub use mem::MemEnv;
pub use posix::{PosixEnv, descriptor_limit};
pub use prefetch::{PrefetchBatch, PrefetchMethod, PrefetchStats};
pub use read_class::ReadClass;
pub use read_counters::{ClassReads, ReadCounters};
pub use slow::{DiskSpeed, SlowEnv};
pub use unsynced::UnsyncedEnv;

/// Files, directories, clock and randomness.
///
/// Durability rules of all implementations: bytes of a file survive a power cut once its `sync` has
/// returned; the name of a created, renamed or removed file survives once `sync_dir` of its
/// directory has returned.
///
/// # Errors
/// Unless a method says otherwise: `NotFound` for a missing path, `NoSpace` if a call that takes
/// space finds none, `NoDescriptor` if a call that opens a file or a directory cannot, `Io` for
/// everything else.
#[allow(clippy::missing_errors_doc)] // Named once, above.
pub trait Env: Send + Sync + 'static {
    /// Creates a directory and its parents.
    fn create_dir_all(&self, path: &Path) -> Result<()>;
    /// The names of the entries of a directory, in no particular order.
    fn list_dir(&self, path: &Path) -> Result<Vec<String>>;
    /// Makes creations, renames and removals in a directory durable. If the directory cannot be
    /// opened (`NoDescriptor`), nothing was synced; the next call that succeeds makes all changes
    /// up to then durable.
    fn sync_dir(&self, path: &Path) -> Result<()>;
    /// Opens a directory once for all later calls of [`Self::sync_dir`] on it, so that those cannot
    /// fail for want of a descriptor. The directory stays open as long as the environment.
    fn keep_dir_open(&self, path: &Path) -> Result<()> {
        let _ = path;
        Ok(())
    }
    /// Creates a file for appending, or empties an existing one.
    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>>;
    /// Reserves disk space for the first `bytes` bytes of the file at `path`, even beyond its end.
    /// Does not change the length. Later writes in this range succeed even on a full disk. A
    /// missing file is created empty, and its name is not durable. Returns whether the file system
    /// supports this; if it does not, no file is created.
    ///
    /// # Errors
    /// [`crate::base::ErrorKind::NoSpace`]; a missing file is then not created.
    fn allocate(&self, path: &Path, bytes: u64) -> Result<bool>;
    /// As [`Self::create`] of `path`, but uses the disk space that [`Self::allocate`] has reserved
    /// in the file at `aside`: the call renames that file to `path`, and so replaces the file
    /// there. If the file at `aside` has content, the call empties it first. It has content if a
    /// power cut has undone an earlier call's rename but kept the bytes written since, or if the
    /// caller has renamed an unfinished file back to `aside`.
    fn create_from_allocated(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>>;
    /// Opens a file for positional reads.
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>>;
    /// Opens a file for reads that bypass the page cache. As [`Self::open`] where the file system
    /// cannot.
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.open(path)
    }
    /// The method by which announced reads ([`ReadFile::prefetch`]) of files from
    /// [`Self::open_direct`] are executed, and the counters of these reads.
    fn prefetch_method(&self) -> (PrefetchMethod, PrefetchStats) {
        (PrefetchMethod::OneByOne, PrefetchStats::default())
    }
    /// Opens a log segment for positional writes; creates it if `create`. `direct` asks for I/O
    /// that bypasses the page cache, where the file system supports it.
    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>>;
    /// Gives a file a second name in the same or another directory. From then on the bytes must not
    /// change under either name: a caller that wants to write in place checks [`Self::links`]
    /// first.
    ///
    /// # Errors
    /// [`crate::base::ErrorKind::Unsupported`] where the file system cannot link, as between
    /// devices; [`crate::base::ErrorKind::AlreadyExists`] if the new name is taken.
    fn link(&self, from: &Path, to: &Path) -> Result<()>;
    /// The number of names of a file.
    fn links(&self, path: &Path) -> Result<u64>;
    /// Removes an empty directory.
    fn remove_dir(&self, path: &Path) -> Result<()>;
    /// Opens a file that is written in spans, in any order. With `create`, creates the file, or
    /// empties an existing one.
    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>>;
    /// The length and disk space of a file. A missing file is [`crate::base::ErrorKind::NotFound`].
    fn usage(&self, path: &Path) -> Result<FileUsage>;
    /// The room of the file system that has `path`; `None` if there is no telling.
    fn disk_room(&self, path: &Path) -> Result<Option<DiskRoom>> {
        let _ = path;
        Ok(None)
    }
    /// Renames a file, which replaces an existing file at `to`; or renames a directory, for which
    /// `to` must not exist.
    fn rename(&self, from: &Path, to: &Path) -> Result<()>;
    /// Removes a file. A missing file is [`crate::base::ErrorKind::NotFound`].
    fn remove(&self, path: &Path) -> Result<()>;
    /// Whether the path exists.
    fn exists(&self, path: &Path) -> Result<bool>;
    /// Takes the exclusive lock of the file at `path` until the result is dropped. If another
    /// process has it, the error is [`crate::base::ErrorKind::Busy`].
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>>;
    /// Wall clock, microseconds since 1970.
    fn wall_micros(&self) -> u64;
    /// Monotonic clock, microseconds since an arbitrary start.
    fn monotonic_micros(&self) -> u64;
    /// Fills `bytes` with unpredictable random bytes; a simulation may return predictable ones.
    fn random(&self, bytes: &mut [u8]) -> Result<()>;
}

/// A file that is written once, from start to end.
///
/// # Errors
/// `NoSpace` if a call that takes space finds none, `Io` for everything else.
#[allow(clippy::missing_errors_doc)] // Named once, above.
pub trait AppendFile: Send {
    /// Appends bytes. They may stay in a buffer until `flush` or `sync`.
    fn append(&mut self, bytes: &[u8]) -> Result<()>;
    /// Makes all appended bytes visible to readers of the file. A power cut may still lose them.
    fn flush(&mut self) -> Result<()>;
    /// Makes all appended bytes durable.
    fn sync(&mut self) -> Result<()>;
    /// Reserves disk space for the next `bytes` bytes, so that appending them does not fail on a
    /// full disk. Returns whether the file system supports this.
    fn allocate(&mut self, bytes: u64) -> Result<bool> {
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

/// A file that is read at offsets.
///
/// # Errors
/// `Io`.
#[allow(clippy::missing_errors_doc)] // Named once, above.
pub trait ReadFile: Send + Sync {
    /// Fills `buf` with the bytes from `offset` on, for the purpose `class`. A file that ends
    /// earlier is an `Io` error.
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()>;
    /// Size in bytes.
    fn size(&self) -> Result<u64>;
    /// Bytes of this file have failed their check. If they may have come from a local copy of a
    /// remote file, drops the copy and returns true: a repeated read asks the remote file.
    fn distrust(&self) -> bool {
        false
    }
    /// Announces a read of `len` bytes from `offset` on by adding it to `reads`. Once the caller
    /// has announced all reads, it starts them with [`PrefetchBatch::start`], which lets the
    /// operating system read ahead if the file is read through the page cache. An announcement
    /// never waits or fails, and it changes no result.
    fn prefetch(&self, offset: u64, len: u64, reads: &mut PrefetchBatch) {
        let _ = (offset, len, reads);
    }
}

/// The room of a file system, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DiskRoom {
    /// Room that this process may still fill.
    pub free: u64,
    /// The size of the file system.
    pub total: u64,
}

/// Length and disk space of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FileUsage {
    /// Length, bytes.
    pub len: u64,
    /// Allocated disk space without holes, bytes.
    pub allocated: u64,
}

/// A file that is written in spans. Each span is a range of bytes that the engine gives to one
/// caller, who writes it once; several callers may write at the same time.
///
/// # Errors
/// `NoSpace` if a call that takes space finds none, `Io` for everything else.
#[allow(clippy::missing_errors_doc)] // Named once, above.
pub trait SpanFile: Send + Sync {
    /// Writes at an offset. The bytes are durable after a `sync` that begins after this call has
    /// returned.
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Makes all finished writes and the length durable.
    fn sync(&self) -> Result<()>;
    /// Frees the disk space of a range of whole [`BLOCK`]s. From now on the range reads as zeros,
    /// but after a power cut it may have the old bytes again. Returns whether the file system
    /// supports this.
    fn punch(&self, offset: u64, len: u64) -> Result<bool>;
    /// Sets the length to `len` bytes. No span that was given to a caller may lie beyond `len`. A
    /// power cut before the next sync may restore the old length.
    fn set_len(&self, len: u64) -> Result<()>;
}

/// A log segment. It is written at offsets in whole units, and several threads may write at the
/// same time.
///
/// # Errors
/// `NoSpace` if a call that takes space finds none, `Io` for everything else.
#[allow(clippy::missing_errors_doc)] // Named once, above.
pub trait LogFile: Send + Sync {
    /// Size of a write unit, bytes: [`SECTOR`] if writes bypass the page cache and the device
    /// writes such sectors, up to [`BLOCK`] otherwise.
    fn unit(&self) -> usize;
    /// Writes zeros over the first `len` bytes and syncs, so that later writes change no file
    /// metadata.
    fn preallocate(&self, len: u64) -> Result<()>;
    /// Reserves disk space for the first `len` bytes and syncs the file. Bytes that the file has
    /// stay, those behind its end read as zeros, and later writes need no free space. But the first
    /// write to each new block changes file metadata, so syncing it takes longer than after
    /// [`Self::preallocate`].
    fn reserve(&self, len: u64) -> Result<()>;
    /// Writes whole units, the last one padded with zeros, at a multiple of the unit. Durable on
    /// return. If the file was opened with `direct`, the write bypasses the page cache. So
    /// [`Self::write_at`] must not have written to the same [`BLOCK`]s, because the page cache
    /// might write its older copy of a block later.
    fn write_durable_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()>;
    /// Writes whole units, durable after the next `sync`. Unsynced units may be written again. The
    /// write may go through the page cache, which writes whole [`BLOCK`]s, so
    /// [`Self::write_durable_at`] must not have written to the same blocks.
    fn write_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()>;
    /// Makes all finished `write_at` calls durable.
    fn sync(&self) -> Result<()>;
}

#[cfg(test)]
mod tests;
