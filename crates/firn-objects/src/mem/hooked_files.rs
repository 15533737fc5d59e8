//! Files that do something in the middle of somebody else's work.

use crate::env::{Entry, FileInfo, Files, LocalFile, Open};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

/// Files with a hook before the next read.
pub struct HookedFiles {
    files: Arc<dyn Files>,
    before_read: Hook,
}

impl HookedFiles {
    /// The same files.
    pub fn new(files: Arc<dyn Files>) -> Self {
        Self {
            files,
            before_read: Hook::default(),
        }
    }

    /// Has `hook` run before the next read of a file, once.
    pub fn before_next_read(&self, hook: impl FnOnce() + Send + 'static) {
        *self.before_read.lock() = Some(Box::new(hook));
    }
}

struct HookedFile {
    file: Arc<dyn LocalFile>,
    before_read: Hook,
}

impl Files for HookedFiles {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn LocalFile>> {
        Ok(Arc::new(HookedFile {
            file: self.files.open(path, how)?,
            before_read: self.before_read.clone(),
        }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.files.remove_directory(path)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.files.create_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        self.files.sync_directory(path)
    }
    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.files.list(path)
    }
    fn info(&self, path: &Path) -> io::Result<FileInfo> {
        self.files.info(path)
    }
}

impl LocalFile for HookedFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let hook = self.before_read.lock().take();
        if let Some(hook) = hook {
            hook();
        }
        self.file.read_at(into, offset)
    }
    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(bytes, offset)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }
    fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        self.file.punch_hole(range)
    }
    fn data_ranges(&self) -> io::Result<Vec<Range<u64>>> {
        self.file.data_ranges()
    }
}
