//! Locates files: names, creation, opening, removal.
//!
//! A file is named after its id, and no two files ever have the same id. So bytes that were read or
//! copied under an id, on this machine or on another, never belong to another file.
//!
//! Stored blocks may also be in the memory pool ([`BlockPool`]), which a [`BlockFile`] asks before
//! it reads its file.

mod announced_blocks;
mod block_file;
mod block_pool;
mod copy_remote;
mod disk_reserve;
mod file_name;
mod open_files;
mod pooled_blocks;
mod read_batch;
mod remote_files;
#[cfg(test)]
pub(crate) mod testing;

use crate::base::event_listener::{Listener, Severity};
use crate::base::health::Health;
use crate::base::{Error, ErrorKind, FailureClass, Result};
use crate::env::{AppendFile, Env, FileUsage, ReadFile, SpanFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub use block_file::BlockFile;
pub use block_pool::{BlockName, BlockPool, IsIntact, PoolOutlook, WantedBlock};
use copy_remote::RoomClaims;
pub use copy_remote::{ClaimedRoom, kept_free};
pub use disk_reserve::{DiskReserve, ReservePart};
pub use file_name::{FileId, FileKind, file_name, parse_file_name};
use open_files::SharedFile;
pub use open_files::{OpenFileStats, OpenFiles, open_files_limit};
pub use pooled_blocks::PooledBlocks;
pub use read_batch::ReadBatch;
pub use remote_files::{OWNER_FILE, RemoteFiles, RemoteSst};

/// The data files of one directory.
///
/// Invariants: An SST is written once, by its creator, and never changes. A blob file grows until
/// it is sealed, and afterwards only loses garbage. Creating a file does not make its name durable:
/// the caller syncs the directory ([`Self::sync_dir`]) before the manifest names the file.
///
/// Readers hold files as long as they like; [`OpenFiles`] bounds the descriptors.
#[derive(Clone)]
pub struct FileStore {
    env: Arc<dyn Env>,
    dir: PathBuf,
    direct_reads: bool,
    archived: bool,
    reserve: Option<Arc<DiskReserve>>,
    open_files: Arc<OpenFiles>,
    pool: Option<Arc<PooledBlocks>>,
    remote: Option<Arc<dyn RemoteFiles>>,
    read_clock_s: Arc<AtomicU64>,
    room_claims: Arc<RoomClaims>,
    on_failure: Option<(Arc<Health>, Listener)>,
}

/// Directory inside the database's directory: links to files that the log archive is about to take.
pub const PENDING: &str = "pending";

impl FileStore {
    /// The store in `dir`, which must exist.
    pub fn new(env: Arc<dyn Env>, dir: impl Into<PathBuf>) -> Self {
        Self {
            env,
            dir: dir.into(),
            direct_reads: false,
            archived: false,
            reserve: None,
            open_files: OpenFiles::new(u64::MAX),
            pool: None,
            remote: None,
            read_clock_s: Arc::default(),
            room_claims: Arc::default(),
            on_failure: None,
        }
    }

    /// Lets a failed [`Self::sync_dir`] poison `health`, and tell `listener`.
    pub fn with_health(self, health: Arc<Health>, listener: Listener) -> Self {
        Self {
            on_failure: Some((health, listener)),
            ..self
        }
    }

    /// Lets blocks come from the memory pool `pool`.
    pub fn with_pool(self, pool: Arc<PooledBlocks>) -> Self {
        Self {
            pool: Some(pool),
            ..self
        }
    }

    /// The memory pool, if there is one.
    pub fn pool(&self) -> Option<&Arc<PooledBlocks>> {
        self.pool.as_ref()
    }

    /// Lets SSTs be in the object store `remote`.
    pub fn with_remote(self, remote: Arc<dyn RemoteFiles>) -> Self {
        Self {
            remote: Some(remote),
            ..self
        }
    }

    /// The object store, if there is one.
    pub fn remote(&self) -> Option<&Arc<dyn RemoteFiles>> {
        self.remote.as_ref()
    }

    /// Lets at most `limit` SSTs and blob files be open for reading, as far as that is possible.
    pub fn with_open_files(self, limit: u64) -> Self {
        self.open_files.set_limit(limit);
        self
    }

    /// Makes this store share the limit on open files with `other`. A kind and id must not name a
    /// file in each of the two stores.
    pub fn with_open_files_of(self, other: &Self) -> Self {
        Self {
            open_files: Arc::clone(&other.open_files),
            ..self
        }
    }

    /// The SSTs and blob files that are open for reading.
    pub fn open_files(&self) -> &Arc<OpenFiles> {
        &self.open_files
    }

    /// Lets files be created in the space of `reserve`.
    pub fn with_reserve(self, reserve: Arc<DiskReserve>) -> Self {
        Self {
            reserve: Some(reserve),
            ..self
        }
    }

    /// The disk reserve, if there is one.
    pub fn reserve(&self) -> Option<&DiskReserve> {
        self.reserve.as_deref()
    }

    /// Sets whether files are read past the page cache.
    pub fn with_direct_reads(self, direct_reads: bool) -> Self {
        Self {
            direct_reads,
            ..self
        }
    }

    /// Sets whether the log is archived, so that [`Self::keep`] has an effect.
    pub fn with_archive(self, archived: bool) -> Self {
        Self { archived, ..self }
    }

    /// Whether the log is archived.
    pub fn is_archived(&self) -> bool {
        self.archived
    }

    /// Links these files into the directory [`PENDING`], so that their bytes stay until the log
    /// archive has copied them, even if the files are removed here. Must be called before a log
    /// record names them. Without an archive it does nothing.
    ///
    /// # Errors
    /// `NoSpace`, `Unsupported` (no links) and `Io`: no record may name the files then.
    pub fn keep(&self, kind: FileKind, ids: &[FileId]) -> Result<()> {
        if !self.archived || ids.is_empty() {
            return Ok(());
        }
        let pending = self.dir.join(PENDING);
        self.env.create_dir_all(&pending)?;
        for &id in ids {
            let name = file_name(kind, id);
            let (aside, to) = (pending.join(format!("{name}.new")), pending.join(&name));
            match self.env.remove(&aside) {
                Err(error) if *error.kind() != ErrorKind::NotFound => return Err(error),
                _ => {}
            }
            self.env.link(&self.path(kind, id), &aside)?;
            // A link with the final name `to` may exist already, for one of two reasons. It may be
            // a link to the same file: recovery writes a prepare record again, and keeps its files
            // again. Or it may be a link to another file, which was linked before a crash: if no
            // log record and no manifest had named that file, its id did not count as used, and the
            // next open gave it to a new file. In the second case `rename` replaces the old link.
            // In the first case `rename` does nothing, because the temporary name `aside` and the
            // final name `to` are links to one file, and `aside` must be removed.
            self.env.rename(&aside, &to)?;
            if self.env.exists(&aside)? {
                self.env.remove(&aside)?;
            }
        }
        self.env.sync_dir(&pending)
    }

    /// The environment of the files.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The path of a file with this kind and id.
    pub fn path(&self, kind: FileKind, id: FileId) -> PathBuf {
        self.dir.join(file_name(kind, id))
    }

    /// Creates an SST. Empties a leftover of a crash with the same name.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn create(&self, id: FileId) -> Result<Box<dyn AppendFile>> {
        self.env.create(&self.path(FileKind::Sst, id))
    }

    /// As [`Self::create`], in the space of the disk reserve if there is one.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn create_in_reserve(&self, id: FileId) -> Result<Box<dyn AppendFile>> {
        let path = self.path(FileKind::Sst, id);
        match self.reserve() {
            Some(reserve) => reserve.create(ReservePart::Table, &path),
            None => self.env.create(&path),
        }
    }

    /// Turns an SST from [`Self::create_in_reserve`], which nothing names, into the reserve again.
    /// Removes it if there is no reserve, or if the reserve was filled again meanwhile.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn give_back_to_reserve(&self, id: FileId) -> Result<()> {
        let path = self.path(FileKind::Sst, id);
        match self.reserve() {
            Some(reserve) if !reserve.has(ReservePart::Table) => {
                let bytes = self.env.usage(&path)?.allocated;
                reserve.give_back(ReservePart::Table, &path, bytes)
            }
            _ => self.remove(id),
        }
    }

    /// Opens an SST for reading.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn open(&self, id: FileId) -> Result<Arc<dyn ReadFile>> {
        self.open_shared(FileKind::Sst, id, self.direct_reads, false)
    }

    /// Opens an SST for reading by blocks. `checksum` is that of all its bytes, from the manifest.
    /// Reads of queries set `last_read_s`, if there is one, to the time of
    /// [`Self::set_read_clock`].
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn open_blocks(
        &self,
        id: FileId,
        checksum: u64,
        last_read_s: Option<&Arc<AtomicU64>>,
    ) -> Result<BlockFile> {
        let file = BlockFile::new(self.open(id)?, self.pool.as_ref(), (id, checksum));
        Ok(match last_read_s {
            Some(mark) => file.with_read_mark(Arc::clone(mark), Arc::clone(&self.read_clock_s)),
            None => file,
        })
    }

    /// A mark that notes the last read of a file, which counts as read now. `None` without an
    /// object store.
    pub fn new_read_mark(&self) -> Option<Arc<AtomicU64>> {
        self.remote.as_ref()?;
        Some(Arc::new(AtomicU64::new(self.read_clock_s())))
    }

    /// The clock by which reads of files are noted, seconds. It stands still between calls of
    /// [`Self::set_read_clock`], so that a read need not ask for the time.
    pub fn read_clock_s(&self) -> u64 {
        self.read_clock_s.load(Ordering::Relaxed)
    }

    /// Sets the clock by which reads of files are noted.
    pub fn set_read_clock(&self, now_s: u64) {
        self.read_clock_s.store(now_s, Ordering::Relaxed);
    }

    /// Opens an SST of the object store for reading by blocks. Asks nobody. What is opened keeps
    /// `life` as long as it is open.
    ///
    /// # Errors
    /// `Unsupported` without an object store.
    pub fn open_remote(&self, file: &RemoteSst, life: Arc<dyn Send + Sync>) -> Result<BlockFile> {
        let Some(remote) = &self.remote else {
            return Err(Error::unsupported(format!(
                "SST {} lies in an object store, and no store is configured (firn_storage_url)",
                file.id
            )));
        };
        let name = (file.id, file.checksum);
        let file = remote_files::kept_alive(remote.open(file)?, life);
        Ok(BlockFile::new(file, self.pool.as_ref(), name).remote())
    }

    /// Opens a file for reading, within the limit on open files.
    fn open_shared(
        &self,
        kind: FileKind,
        id: FileId,
        direct: bool,
        grows: bool,
    ) -> Result<Arc<dyn ReadFile>> {
        let (key, path) = ((kind, id, direct), self.path(kind, id));
        let file = self.open_files.open(&self.env, key, path, grows)?;
        Ok(Arc::new(SharedFile(file)))
    }

    /// Describes for reports the method by which several blocks are prefetched at the same time,
    /// with its counters.
    pub fn prefetch_method(&self) -> String {
        if !self.direct_reads {
            return "announced to the page cache".to_owned();
        }
        let (way, stats) = self.env.prefetch_method();
        format!(
            "{way}, {} submitted, {} asked for, {} dropped",
            stats.submitted, stats.taken, stats.unused
        )
    }

    /// Makes an SST durable that was written earlier, through any handle.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`, `Io`.
    pub fn sync(&self, id: FileId) -> Result<()> {
        let path = self.path(FileKind::Sst, id);
        self.env.open_spans(&path, false)?.sync()
    }

    /// Removes an SST. Readers that have it go on.
    ///
    /// # Errors
    /// `NotFound`, `NoDescriptor`, `Io`.
    pub fn remove(&self, id: FileId) -> Result<()> {
        self.open_files.keep_for_readers(FileKind::Sst, id)?;
        self.env.remove(&self.path(FileKind::Sst, id))
    }

    /// Creates a temporary file of a load.
    ///
    /// # Errors
    /// `NoSpace`, `Io`.
    pub fn create_sort(&self, id: FileId) -> Result<Box<dyn AppendFile>> {
        self.env.create(&self.path(FileKind::Sort, id))
    }

    /// Opens a temporary file of a load for reading, through the page cache: it was just written,
    /// and is read once.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn open_sort(&self, id: FileId) -> Result<Arc<dyn ReadFile>> {
        self.env.open(&self.path(FileKind::Sort, id))
    }

    /// Removes a temporary file of a load.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn remove_sort(&self, id: FileId) -> Result<()> {
        self.env.remove(&self.path(FileKind::Sort, id))
    }

    /// Ids of all SSTs in the directory, ascending.
    ///
    /// # Errors
    /// `NotFound` if the directory is missing; `Io`.
    pub fn list(&self) -> Result<Vec<FileId>> {
        self.list_of(FileKind::Sst)
    }

    /// Ids of all blob files in the directory, ascending.
    ///
    /// # Errors
    /// `NotFound` if the directory is missing; `Io`.
    pub fn list_blobs(&self) -> Result<Vec<FileId>> {
        self.list_of(FileKind::Blob)
    }

    /// Opens a blob file for writing; creates it if `create`.
    ///
    /// # Errors
    /// `NotFound`, `NoSpace`, `Io`.
    pub fn open_spans(&self, id: FileId, create: bool) -> Result<Arc<dyn SpanFile>> {
        self.env.open_spans(&self.path(FileKind::Blob, id), create)
    }

    /// Opens a blob file for reading. A growing file is always read through the page cache, which
    /// has its newest bytes.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn open_blob(&self, id: FileId, grows: bool) -> Result<Arc<dyn ReadFile>> {
        self.open_shared(FileKind::Blob, id, self.direct_reads && !grows, grows)
    }

    /// Length and allocated bytes of a blob file.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn blob_usage(&self, id: FileId) -> Result<FileUsage> {
        self.env.usage(&self.path(FileKind::Blob, id))
    }

    /// Number of names of a blob file.
    ///
    /// # Errors
    /// `NotFound`, `Io`.
    pub fn blob_links(&self, id: FileId) -> Result<u64> {
        self.env.links(&self.path(FileKind::Blob, id))
    }

    /// Removes a blob file. Readers that have opened it can still read it.
    ///
    /// # Errors
    /// `NotFound`, `NoDescriptor`, `Io`.
    pub fn remove_blob(&self, id: FileId) -> Result<()> {
        self.open_files.keep_for_readers(FileKind::Blob, id)?;
        self.env.remove(&self.path(FileKind::Blob, id))
    }

    fn list_of(&self, wanted: FileKind) -> Result<Vec<FileId>> {
        let mut ids: Vec<FileId> = self
            .env
            .list_dir(&self.dir)?
            .iter()
            .filter_map(|name| parse_file_name(name))
            .filter(|(kind, _)| *kind == wanted)
            .map(|(_, id)| id)
            .collect();
        ids.sort_unstable();
        Ok(ids)
    }

    /// Makes created and removed names in the directory durable. If this fails, a later sync of
    /// anybody may succeed though names are lost, so the engine is poisoned.
    ///
    /// # Errors
    /// `NoDescriptor` and `NoSpace`, which do not poison; `Io`.
    pub fn sync_dir(&self) -> Result<()> {
        self.env.sync_dir(&self.dir).inspect_err(|error| {
            if let Some((health, listener)) = &self.on_failure
                && error.class() == FailureClass::Poison
                && health.poison(error.clone())
            {
                let what = format!("names of files cannot be made durable: {error}; writes stop");
                listener.log(Severity::Error, &what);
            }
        })
    }
}

#[cfg(test)]
mod tests;
