//! Files that do something in the middle of somebody else's work, or fail.

use crate::env::{Entry, FileInfo, Files, LocalFile, Open};
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

type Hook = Mutex<Option<Box<dyn FnOnce() + Send>>>;

/// Files with hooks before the next read and the next removal, and with failures.
pub struct HookedFiles {
    files: Arc<dyn Files>,
    hooks: Arc<Hooks>,
}

#[derive(Default)]
struct Hooks {
    before_read: Hook,
    before_remove: Hook,
    directory_sync: Mutex<Option<io::ErrorKind>>,
    punch: Mutex<Option<io::ErrorKind>>,
}

impl HookedFiles {
    /// The same files.
    pub fn new(files: Arc<dyn Files>) -> Self {
        Self {
            files,
            hooks: Arc::default(),
        }
    }

    /// Has `hook` run before the next read of a file, once.
    pub fn before_next_read(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hooks.before_read.lock() = Some(Box::new(hook));
    }

    /// Has `hook` run before the next removal of a file, once.
    pub fn before_next_remove(&self, hook: impl FnOnce() + Send + 'static) {
        *self.hooks.before_remove.lock() = Some(Box::new(hook));
    }

    /// The next directory is not synced.
    pub fn fail_next_directory_sync(&self, kind: io::ErrorKind) {
        *self.hooks.directory_sync.lock() = Some(kind);
    }

    /// No hole is punched, until this is called with none.
    pub fn fail_punches(&self, kind: Option<io::ErrorKind>) {
        *self.hooks.punch.lock() = kind;
    }
}

fn run(hook: &Hook) {
    let hook = hook.lock().take();
    if let Some(hook) = hook {
        hook();
    }
}

struct HookedFile {
    file: Arc<dyn LocalFile>,
    hooks: Arc<Hooks>,
}

impl Files for HookedFiles {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn LocalFile>> {
        Ok(Arc::new(HookedFile {
            file: self.files.open(path, how)?,
            hooks: self.hooks.clone(),
        }))
    }
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.rename(from, to)
    }
    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.files.link(from, to)
    }
    fn remove(&self, path: &Path) -> io::Result<()> {
        run(&self.hooks.before_remove);
        self.files.remove(path)
    }
    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        self.files.remove_directory(path)
    }
    fn create_directory(&self, path: &Path) -> io::Result<()> {
        self.files.create_directory(path)
    }
    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        match self.hooks.directory_sync.lock().take() {
            Some(kind) => Err(kind.into()),
            None => self.files.sync_directory(path),
        }
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
        run(&self.hooks.before_read);
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
        match *self.hooks.punch.lock() {
            Some(kind) => Err(kind.into()),
            None => self.file.punch_hole(range),
        }
    }
    fn data_ranges(&self) -> io::Result<Vec<Range<u64>>> {
        self.file.data_ranges()
    }
}
