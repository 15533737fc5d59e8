//! Where a file lives: names, creation, opening, removal.
//!
//! Files are named after their id, and an id is used once for ever: whatever was read of a file
//! stays true as long as anything refers to it, on this machine or on another.

mod name;
mod reserve;

use crate::base::{ErrorKind, Result};
use crate::env::{AppendFile, Env, FileUsage, ReadFile, SpanFile};
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use name::{FileId, FileKind, file_name, parse_file_name};
pub use reserve::{Part, Reserve};

/// The data files of one directory.
///
/// Invariant: a file is written once, by the one who created it, and never changed afterwards.
/// Creating does not make the name durable: the caller syncs the directory ([`Self::sync_dir`])
/// before it records the file in the manifest.
///
/// Rejected: a cache of open descriptors. A reader holds its file open as long as it lives, and the
/// readers are what the layers above cache.
#[derive(Clone)]
pub struct FileStore {
    env: Arc<dyn Env>,
    dir: PathBuf,
    direct_reads: bool,
    archived: bool,
    reserve: Option<Arc<Reserve>>,
}

/// Directory in that of the database: second names of files on their way to the archive of the log.
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
        }
    }

    /// Files may be made in the room of `reserve`.
    pub fn with_reserve(self, reserve: Arc<Reserve>) -> Self {
        Self {
            reserve: Some(reserve),
            ..self
        }
    }

    /// Room that is kept for a full disk, if there is any.
    pub fn reserve(&self) -> Option<&Reserve> {
        self.reserve.as_deref()
    }

    /// Whether files are read past the page cache.
    pub fn with_direct_reads(self, direct_reads: bool) -> Self {
        Self {
            direct_reads,
            ..self
        }
    }

    /// Whether the log is archived: then [`Self::keep`] has an effect.
    pub fn with_archive(self, archived: bool) -> Self {
        Self { archived, ..self }
    }

    /// Whether the log is archived.
    pub fn is_archived(&self) -> bool {
        self.archived
    }

    /// To be called before a record of the log names these files: they stay until the archive of the log has
    /// them, whatever becomes of their names here. Without an archive it does nothing.
    ///
    /// # Errors
    /// Of the file system: then no record may name them.
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
            // There may be one of that name: the same, of a prepare that a recovery writes again; or one that a crash
            // has left before anything named it, so that its id was given out again.
            self.env.rename(&aside, &to)?;
            if self.env.exists(&aside)? {
                self.env.remove(&aside)?;
            }
        }
        self.env.sync_dir(&pending)
    }

    /// The environment the files live in.
    pub fn env(&self) -> &Arc<dyn Env> {
        &self.env
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Where a file of this kind and id lies.
    pub fn path(&self, kind: FileKind, id: FileId) -> PathBuf {
        self.dir.join(file_name(kind, id))
    }

    /// Creates an SST. A leftover of a crash under the same name is emptied.
    pub fn create(&self, id: FileId) -> Result<Box<dyn AppendFile>> {
        self.env.create(&self.path(FileKind::Sst, id))
    }

    /// As [`Self::create`], in the room of the reserve, which must be there.
    ///
    /// # Errors
    /// Of the file system.
    pub fn create_in_reserve(&self, id: FileId) -> Result<Box<dyn AppendFile>> {
        let path = self.path(FileKind::Sst, id);
        match self.reserve() {
            Some(reserve) => reserve.create(Part::Table, &path),
            None => self.env.create(&path),
        }
    }

    /// Opens an SST for reading.
    pub fn open(&self, id: FileId) -> Result<Arc<dyn ReadFile>> {
        let path = self.path(FileKind::Sst, id);
        match self.direct_reads {
            true => self.env.open_direct(&path),
            false => self.env.open(&path),
        }
    }

    /// How blocks of several places are read at the same time, in a few words.
    pub fn batched_reads(&self) -> String {
        if !self.direct_reads {
            return "announced to the page cache".to_owned();
        }
        let (way, stats) = self.env.batched_reads();
        format!(
            "{way}, {} submitted, {} asked for, {} dropped",
            stats.submitted, stats.taken, stats.unused
        )
    }

    /// Makes an SST durable that was written before, under whatever handle.
    pub fn sync(&self, id: FileId) -> Result<()> {
        let path = self.path(FileKind::Sst, id);
        self.env.open_spans(&path, false)?.sync()
    }

    /// Removes an SST. A missing file is [`crate::base::ErrorKind::NotFound`].
    pub fn remove(&self, id: FileId) -> Result<()> {
        self.env.remove(&self.path(FileKind::Sst, id))
    }

    /// Creates a temporary file of a load.
    pub fn create_sort(&self, id: FileId) -> Result<Box<dyn AppendFile>> {
        self.env.create(&self.path(FileKind::Sort, id))
    }

    /// Opens such a file for reading, through the page cache: it was just written, and is read once.
    pub fn open_sort(&self, id: FileId) -> Result<Arc<dyn ReadFile>> {
        self.env.open(&self.path(FileKind::Sort, id))
    }

    /// Removes such a file.
    pub fn remove_sort(&self, id: FileId) -> Result<()> {
        self.env.remove(&self.path(FileKind::Sort, id))
    }

    /// Removes what loads left that a crash has ended.
    pub fn remove_left_sorts(&self) -> Result<()> {
        let names = self.env.list_dir(&self.dir)?;
        let parsed = names.iter().filter_map(|name| parse_file_name(name));
        for (_, id) in parsed.filter(|(kind, _)| *kind == FileKind::Sort) {
            self.remove_sort(id)?;
        }
        Ok(())
    }

    /// Ids of all SSTs in the directory, ascending. Other files are passed over.
    pub fn list(&self) -> Result<Vec<FileId>> {
        self.list_of(FileKind::Sst)
    }

    /// Ids of all blob files in the directory, ascending.
    pub fn list_blobs(&self) -> Result<Vec<FileId>> {
        self.list_of(FileKind::Blob)
    }

    /// Opens a blob file for writing, and creates it if `create`.
    pub fn open_spans(&self, id: FileId, create: bool) -> Result<Arc<dyn SpanFile>> {
        self.env.open_spans(&self.path(FileKind::Blob, id), create)
    }

    /// Opens a blob file for reading. One that still grows must not be read past the page cache, where
    /// its newest bytes are.
    pub fn open_blob(&self, id: FileId, grows: bool) -> Result<Arc<dyn ReadFile>> {
        let path = self.path(FileKind::Blob, id);
        match self.direct_reads && !grows {
            true => self.env.open_direct(&path),
            false => self.env.open(&path),
        }
    }

    /// What a blob file takes.
    pub fn blob_usage(&self, id: FileId) -> Result<FileUsage> {
        self.env.usage(&self.path(FileKind::Blob, id))
    }

    /// Names that a blob file has.
    pub fn blob_links(&self, id: FileId) -> Result<u64> {
        self.env.links(&self.path(FileKind::Blob, id))
    }

    /// Removes a blob file. A missing file is [`crate::base::ErrorKind::NotFound`].
    pub fn remove_blob(&self, id: FileId) -> Result<()> {
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

    /// Makes created and removed names durable.
    pub fn sync_dir(&self) -> Result<()> {
        self.env.sync_dir(&self.dir)
    }
}

#[cfg(test)]
mod tests;
