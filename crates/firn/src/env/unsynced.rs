//! An environment whose syncs write nothing to the device, for files that nobody needs after a
//! crash.

use super::{
    AppendFile, DiskRoom, Env, FileUsage, LogFile, PrefetchMethod, PrefetchStats, ReadFile,
    SpanFile,
};
use crate::base::Result;
use std::path::Path;
use std::sync::Arc;

/// Wraps an environment and leaves out every sync of a file or a directory. Nothing that is written
/// through it is durable; readers see everything as before.
pub struct UnsyncedEnv(Arc<dyn Env>);

impl UnsyncedEnv {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Env>) -> Self {
        Self(inner)
    }
}

impl Env for UnsyncedEnv {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.0.create_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.0.list_dir(path)
    }
    fn sync_dir(&self, _: &Path) -> Result<()> {
        Ok(())
    }
    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        Ok(Box::new(UnsyncedAppend(self.0.create(path)?)))
    }
    fn allocate(&self, path: &Path, bytes: u64) -> Result<bool> {
        self.0.allocate(path, bytes)
    }
    fn create_from_allocated(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>> {
        let file = self.0.create_from_allocated(aside, path)?;
        Ok(Box::new(UnsyncedAppend(file)))
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.0.open(path)
    }
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.0.open_direct(path)
    }
    fn prefetch_method(&self) -> (PrefetchMethod, PrefetchStats) {
        self.0.prefetch_method()
    }
    /// A database without a log opens no segment.
    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>> {
        self.0.open_log(path, create, direct)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.link(from, to)
    }
    fn links(&self, path: &Path) -> Result<u64> {
        self.0.links(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.0.remove_dir(path)
    }
    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>> {
        Ok(Arc::new(UnsyncedSpans(self.0.open_spans(path, create)?)))
    }
    fn usage(&self, path: &Path) -> Result<FileUsage> {
        self.0.usage(path)
    }
    fn disk_room(&self, path: &Path) -> Result<Option<DiskRoom>> {
        self.0.disk_room(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.0.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.0.remove(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.0.exists(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.0.lock(path)
    }
    fn wall_micros(&self) -> u64 {
        self.0.wall_micros()
    }
    fn monotonic_micros(&self) -> u64 {
        self.0.monotonic_micros()
    }
    fn random(&self, bytes: &mut [u8]) -> Result<()> {
        self.0.random(bytes)
    }
}

struct UnsyncedAppend(Box<dyn AppendFile>);

impl AppendFile for UnsyncedAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.append(bytes)
    }
    fn flush(&mut self) -> Result<()> {
        self.0.flush()
    }
    /// Flush the buffer: readers must see the bytes as they would after a sync.
    fn sync(&mut self) -> Result<()> {
        self.0.flush()
    }
    fn allocate(&mut self, bytes: u64) -> Result<bool> {
        self.0.allocate(bytes)
    }
    fn len(&self) -> u64 {
        self.0.len()
    }
}

struct UnsyncedSpans(Arc<dyn SpanFile>);

impl SpanFile for UnsyncedSpans {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.0.write_at(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.0.punch(offset, len)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.0.set_len(len)
    }
}
