//! An environment made of two: one serves log segments, the other all other files.

use firn::base::Result;
use firn::env::{AppendFile, DiskRoom, Env, FileUsage, LogFile, ReadFile, SpanFile};
use std::path::Path;
use std::sync::Arc;

/// Sends calls for log segments to `log`, all others to `rest`. Both must give access to the same
/// files, because a rename or a link may lead from one environment to the other. For example, `log`
/// is an environment and `rest` wraps it to inject faults.
pub struct SplitEnv {
    /// Serves files named `*.wal`, and `*.wal.tmp` before they have their names.
    pub log: Arc<dyn Env>,
    /// Serves all other files, directories, the clock and randomness.
    pub rest: Arc<dyn Env>,
}

impl SplitEnv {
    fn of(&self, path: &Path) -> &dyn Env {
        let name = path.file_name().and_then(|name| name.to_str());
        let is_log = |name: &str| name.ends_with(".wal") || name.ends_with(".wal.tmp");
        match name.is_some_and(is_log) {
            true => &*self.log,
            false => &*self.rest,
        }
    }
}

impl Env for SplitEnv {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.rest.create_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.rest.list_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.rest.sync_dir(path)
    }
    fn keep_dir_open(&self, path: &Path) -> Result<()> {
        self.rest.keep_dir_open(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        self.of(path).create(path)
    }
    fn allocate(&self, path: &Path, bytes: u64) -> Result<bool> {
        self.of(path).allocate(path, bytes)
    }
    fn create_from_allocated(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>> {
        self.of(path).create_from_allocated(aside, path)
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.of(path).open(path)
    }
    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>> {
        self.of(path).open_log(path, create, direct)
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.of(from).link(from, to)
    }
    fn links(&self, path: &Path) -> Result<u64> {
        self.of(path).links(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.rest.remove_dir(path)
    }
    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>> {
        self.of(path).open_spans(path, create)
    }
    fn usage(&self, path: &Path) -> Result<FileUsage> {
        self.of(path).usage(path)
    }
    fn disk_room(&self, path: &Path) -> Result<Option<DiskRoom>> {
        self.of(path).disk_room(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.of(from).rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.of(path).remove(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.of(path).exists(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.rest.lock(path)
    }
    fn wall_micros(&self) -> u64 {
        self.rest.wall_micros()
    }
    fn monotonic_micros(&self) -> u64 {
        self.rest.monotonic_micros()
    }
    fn random(&self, bytes: &mut [u8]) -> Result<()> {
        self.rest.random(bytes)
    }
}
