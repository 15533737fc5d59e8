//! A directory as a store: one that servers share, or a disk for trials.
//!
//! An object is a file of its name. It is written under a temporary name and synced. Then `rename`
//! puts it in its place, or, for [`ObjectStore::put_new`], `link`, which fails if the name is
//! taken. So a reader, a crash and a racing writer see whole objects only.
//!
//! Temporary files, and directories with the parts of uploads, are in `.firn-uploads`. Their names
//! tell the object: `<number>-<name, with "," for "/">`. What a killed server leaves there is
//! listed among the uploads that have not ended, and swept with them.

mod walk;

use crate::env::{Clock, Files, LocalFile, Open};
use crate::error::{Error, ErrorKind, Result};
use crate::store::{
    ObjectInfo, ObjectStore, Page, PartTag, PutNew, UploadId, UploadInfo, check_len, check_name,
};
use bytes::Bytes;
use openssl::sha::{Sha256, sha256};
use parking_lot::Mutex;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The directory of what is not an object yet.
const UPLOADS: &str = ".firn-uploads";
/// The name, in the directory of an upload, of the object that is made of the parts.
const WHOLE: &str = "whole";

/// Objects as files of a directory.
pub struct DirStore {
    root: PathBuf,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    /// Directories whose names are durable, relative to the root.
    durable: Mutex<HashSet<String>>,
}

impl DirStore {
    /// The store in the directory `root`, which exists. It is on a file system with hard links.
    ///
    /// # Errors
    /// `Absent` if there is no directory.
    pub fn open(root: PathBuf, files: Arc<dyn Files>, clock: Arc<dyn Clock>) -> Result<Self> {
        let listed = files.list(&root);
        listed.map_err(|error| Error::from_io(&error, root.display()))?;
        Ok(Self {
            root,
            files,
            clock,
            durable: Mutex::default(),
        })
    }

    fn path(&self, name: &str) -> Result<PathBuf> {
        check_name(name)?;
        Ok(self.root.join(name))
    }

    /// A new path below `.firn-uploads` for the object, and the number in it.
    fn temporary(&self, name: &str) -> (PathBuf, String) {
        let id = format!("{:016x}", self.clock.random());
        (self.upload_path(name, &UploadId(id.clone())), id)
    }

    fn upload_path(&self, name: &str, id: &UploadId) -> PathBuf {
        let file = format!("{}-{}", id.0, name.replace('/', ","));
        self.root.join(UPLOADS).join(file)
    }

    /// Makes the directory of `name`, and those above it, durable.
    fn ensure_directory(&self, name: &str) -> io::Result<()> {
        let Some((directory, _)) = name.rsplit_once('/') else {
            return Ok(());
        };
        // Another server, or a thread, may have made it and not have synced it yet: that it exists
        // is not enough.
        if self.durable.lock().contains(directory) {
            return Ok(());
        }
        let mut parent = self.root.clone();
        for part in directory.split('/') {
            let path = parent.join(part);
            self.files.create_directory(&path)?;
            self.files.sync_directory(&parent)?;
            parent = path;
        }
        self.durable.lock().insert(directory.to_owned());
        Ok(())
    }

    /// Writes a temporary file and has `place` put it in its place.
    fn put_file(
        &self,
        name: &str,
        bytes: &[u8],
        place: impl Fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<()> {
        let target = self.path(name)?;
        let (temporary, _) = self.temporary(name);
        let written = self.write_synced(&temporary, bytes);
        let written = written.map_err(|error| not_put(&error, name));
        let placed = written.and_then(|()| self.placed(name, &temporary, &target, place));
        if placed.is_err() {
            // A rename has moved it, a link has not.
            let _ = self.files.remove(&temporary);
        }
        placed
    }

    fn write_synced(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let file = match self.files.open(path, Open::New) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.files.create_directory(&self.root.join(UPLOADS))?;
                self.files.open(path, Open::New)?
            }
            opened => opened?,
        };
        file.write_at(bytes, 0)?;
        file.sync()
    }

    fn placed(
        &self,
        name: &str,
        from: &Path,
        to: &Path,
        place: impl Fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<()> {
        let moved = self
            .ensure_directory(name)
            .and_then(|()| match place(from, to) {
                // Somebody has removed the directory since.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.durable.lock().clear();
                    self.ensure_directory(name)?;
                    place(from, to)
                }
                result => result,
            });
        moved.map_err(|error| not_put(&error, name))?;
        let directory = to.parent().unwrap_or(&self.root);
        self.files.sync_directory(directory).map_err(|error| {
            // The object is there for all to see, whatever the error says.
            let text = format!("{name}: its directory is not synced: {error}");
            Error::new(ErrorKind::Unreachable, text)
        })
    }

    fn open_object(&self, name: &str) -> Result<Arc<dyn LocalFile>> {
        let opened = self.files.open(&self.path(name)?, Open::Read);
        opened.map_err(|error| Error::from_io(&error, name))
    }

    /// Copies the parts to one file, and checks each.
    fn join_parts(&self, directory: &Path, parts: &[PartTag]) -> Result<PathBuf> {
        let in_directory = |error: io::Error| Error::from_io(&error, directory.display());
        let whole = directory.join(WHOLE);
        // One that an earlier try has left may be longer.
        let _ = self.files.remove(&whole);
        let into = self.files.open(&whole, Open::New).map_err(in_directory)?;
        let mut buffer = vec![0; 1 << 20];
        let mut end = 0;
        for (index, tag) in parts.iter().enumerate() {
            let path = directory.join(index.to_string());
            let part = self.files.open(&path, Open::Read).map_err(in_directory)?;
            let mut digest = Sha256::new();
            let mut at = 0;
            loop {
                let count = part.read_at(&mut buffer, at).map_err(in_directory)?;
                if count == 0 {
                    break;
                }
                digest.update(&buffer[..count]);
                into.write_at(&buffer[..count], end).map_err(in_directory)?;
                at += count as u64;
                end += count as u64;
            }
            if hex(&digest.finish()) != tag.0 {
                let text = format!("{}: the part is not what was sent", path.display());
                return Err(Error::new(ErrorKind::Damaged, text));
            }
        }
        into.sync().map_err(in_directory)?;
        Ok(whole)
    }
}

impl ObjectStore for DirStore {
    fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        self.put_file(name, &bytes, |from, to| self.files.rename(from, to))
    }

    fn put_new(&self, name: &str, bytes: Bytes) -> Result<PutNew> {
        let taken = Mutex::new(false);
        let placed = self.put_file(name, &bytes, |from, to| {
            match self.files.link(from, to) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => *taken.lock() = true,
                result => result?,
            }
            // That it stays behind is no failure: it is swept.
            let _ = self.files.remove(from);
            Ok(())
        });
        placed?;
        Ok(if taken.into_inner() {
            PutNew::Exists
        } else {
            PutNew::Created
        })
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        let file = self.open_object(name)?;
        let len = file.len().map_err(|error| Error::from_io(&error, name))?;
        read(name, &*file, 0..len)
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        read(name, &*self.open_object(name)?, range)
    }

    fn head(&self, name: &str) -> Result<ObjectInfo> {
        let info = self.files.info(&self.path(name)?);
        let info = info.map_err(|error| Error::from_io(&error, name))?;
        Ok(ObjectInfo {
            name: name.to_owned(),
            bytes: info.bytes,
            modified_s: info.modified_s,
        })
    }

    fn list_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<ObjectInfo>> {
        walk::page(&*self.files, &self.root, prefix, token.unwrap_or(""))
    }

    fn delete(&self, name: &str) -> Result<()> {
        let path = self.path(name)?;
        match self.files.remove(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(Error::from_io(&error, name));
            }
            // A try that could not be synced may have removed it.
            _ => {}
        }
        match self
            .files
            .sync_directory(path.parent().unwrap_or(&self.root))
        {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::from_io(&error, name))
            }
            _ => Ok(()),
        }
    }

    fn begin_upload(&self, name: &str) -> Result<UploadId> {
        check_name(name)?;
        let (path, id) = self.temporary(name);
        let uploads = self.root.join(UPLOADS);
        let made = self.files.create_directory(&uploads);
        let made = made.and_then(|()| self.files.create_directory(&path));
        made.map_err(|error| Error::from_io(&error, name))?;
        Ok(UploadId(id))
    }

    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Result<PartTag> {
        check_name(name)?;
        let path = self.upload_path(name, id).join(index.to_string());
        let written = self.files.open(&path, Open::Create).and_then(|file| {
            // Sent again, a part has the same size. It is synced as a part of the whole.
            file.write_at(&bytes, 0)
        });
        written.map_err(|error| Error::from_io(&error, name))?;
        Ok(PartTag(hex(&sha256(&bytes))))
    }

    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Result<()> {
        let target = self.path(name)?;
        let directory = self.upload_path(name, id);
        let whole = self.join_parts(&directory, parts)?;
        self.placed(name, &whole, &target, |from, to| {
            self.files.rename(from, to)
        })?;
        // The sweep removes files that stay behind.
        let _ = self.abort_upload(name, id);
        Ok(())
    }

    fn abort_upload(&self, name: &str, id: &UploadId) -> Result<()> {
        let path = self.upload_path(name, id);
        let removed = match self.files.list(&path) {
            Ok(entries) => {
                for entry in entries {
                    let removed = self.files.remove(&path.join(&entry.name));
                    removed.map_err(|error| Error::from_io(&error, name))?;
                }
                self.files.remove_directory(&path)
            }
            // The temporary file of a put.
            Err(_) => self.files.remove(&path),
        };
        match removed {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::from_io(&error, name))
            }
            _ => Ok(()),
        }
    }

    fn list_uploads_page(&self, prefix: &str, _token: Option<&str>) -> Result<Page<UploadInfo>> {
        let uploads = self.root.join(UPLOADS);
        let entries = match self.files.list(&uploads) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            entries => entries.map_err(|error| Error::from_io(&error, uploads.display()))?,
        };
        let mut items = Vec::new();
        for entry in entries {
            let Some((id, name)) = entry.name.split_once('-') else {
                continue;
            };
            let name = name.replace(',', "/");
            // One that has ended since is gone.
            if let Ok(info) = self.files.info(&uploads.join(&entry.name))
                && name.starts_with(prefix)
            {
                items.push(UploadInfo {
                    name,
                    id: UploadId(id.to_owned()),
                    started_s: info.modified_s,
                });
            }
        }
        Ok(Page { items, next: None })
    }
}

/// Why an object could not be put. That there is no directory does not mean that there is no
/// object: the file server may be away.
fn not_put(error: &io::Error, name: &str) -> Error {
    let error = Error::from_io(error, name);
    match error.kind() {
        ErrorKind::Absent => Error::new(ErrorKind::Unreachable, error.to_string()),
        _ => error,
    }
}

fn read(name: &str, file: &dyn LocalFile, range: Range<u64>) -> Result<Bytes> {
    let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
    let count = file.read_at(&mut bytes, range.start);
    let count = count.map_err(|error| Error::from_io(&error, name))?;
    bytes.truncate(count);
    check_len(name, &range, bytes.into())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
