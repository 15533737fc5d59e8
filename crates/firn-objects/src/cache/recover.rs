//! Takes over the files that an earlier process has left in the directory.

use super::chunk::ChunkFile;
use super::{CHUNK_BYTES, FileTraits, SUFFIX, Shared};
use crate::env::{LocalFile, Open};
use crate::error::{Error, ErrorKind, Result};
use crate::store::check_name;
use std::sync::Arc;

/// A file for the test whether there are holes; no object has this name.
const PROBE: &str = ".probe";

impl Shared {
    fn failed(&self, error: &std::io::Error) -> Error {
        Error::from_io(error, format!("file cache {}", self.root.display()))
    }

    /// Refuses file systems without holes: evicting would free nothing. A full disk shows nothing.
    pub(super) fn check_holes(&self) -> Result<()> {
        let path = self.root.join(PROBE);
        let file = self
            .files
            .open(&path, Open::Create)
            .map_err(|error| self.failed(&error))?;
        let written = file.write_at(&[1; 4096], 0);
        let punched = file.punch_hole(0..4096);
        self.files
            .remove(&path)
            .map_err(|error| self.failed(&error))?;
        match (written, punched) {
            (Ok(()), Err(error)) => {
                let root = self.root.display();
                let text = format!("the file system of {root} has no holes in files: {error}");
                Err(Error::new(ErrorKind::Invalid, text))
            }
            _ => Ok(()),
        }
    }

    /// Finds chunks by the holes between them. Files that cannot be used are removed.
    pub(super) fn recover(&self) -> Result<()> {
        let entries = self
            .files
            .list(&self.root)
            .map_err(|error| self.failed(&error))?;
        for entry in entries.into_iter().filter(|entry| !entry.is_directory) {
            let Some(name) = entry.name.strip_suffix(SUFFIX) else {
                continue;
            };
            let name = name.replace(',', "/");
            if check_name(&name).is_ok() && self.recover_file(&name).is_none() {
                let removed = self.files.remove(&self.local_path(&name));
                removed.map_err(|error| self.failed(&error))?;
            }
        }
        Ok(())
    }

    /// None if there is nothing in the file, or it cannot be read.
    fn recover_file(&self, name: &str) -> Option<()> {
        let local = self.files.open(&self.local_path(name), Open::Write).ok()?;
        let traits = FileTraits {
            bytes: local.len().ok()?,
            ..FileTraits::default()
        };
        let file = self.new_file(name, traits);
        let mut is_used = false;
        let mut hole = 0;
        for data in local.data_ranges().ok()? {
            let first = data.start.div_ceil(CHUNK_BYTES);
            let end = if data.end >= file.bytes() {
                u64::from(file.chunk_count())
            } else {
                data.end / CHUNK_BYTES
            };
            // Pieces of chunks take room that nobody counts.
            self.give_back(&*local, &file, hole, first.min(end.max(hole)));
            for chunk in first..end {
                self.recover_chunk(&file, chunk as u32);
                is_used = true;
            }
            hole = end.max(hole);
        }
        self.give_back(&*local, &file, hole, u64::from(file.chunk_count()));
        if is_used {
            self.by_name.lock().insert(name.to_owned(), file);
        }
        is_used.then_some(())
    }

    fn recover_chunk(&self, file: &Arc<ChunkFile>, chunk: u32) {
        let mut limit = self.limit.lock();
        if file.begin_write(chunk) {
            // More than the limit is evicted once all files are known.
            limit.count(file, chunk);
            limit.insert(file, chunk);
        }
    }

    fn give_back(&self, local: &dyn LocalFile, file: &ChunkFile, first: u64, end: u64) {
        let range = first * CHUNK_BYTES..(end * CHUNK_BYTES).min(file.bytes());
        if !range.is_empty() {
            let _ = local.punch_hole(range);
        }
    }
}
