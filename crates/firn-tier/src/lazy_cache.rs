//! The file cache, which is opened when it is needed.

use firn_objects::{CacheStats, Clock, FileCache, Files, Jobs, ObjectStore};
use parking_lot::Mutex;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

/// The cache, which is opened when it is needed: the directory belongs to this process by then,
/// and a database with no file in the store needs no room for it.
pub struct LazyCache {
    /// `None` if there is no cache.
    dir: Option<PathBuf>,
    bytes: AtomicU64,
    files: Arc<dyn Files>,
    store: Arc<dyn ObjectStore>,
    jobs: Arc<dyn Jobs>,
    clock: Arc<dyn Clock>,
    opening: Mutex<Opening>,
    opened: OnceLock<FileCache>,
    /// It is not opened before this time, microseconds, because it could not be.
    retry_us: AtomicU64,
}

/// Why the cache could not be opened last.
#[derive(Default)]
struct Opening {
    failure: Option<String>,
}

/// Time between two tries to open a cache, microseconds.
const CACHE_RETRY_US: u64 = 60_000_000;

impl LazyCache {
    pub fn new(
        (dir, bytes): (Option<PathBuf>, u64),
        files: Arc<dyn Files>,
        store: Arc<dyn ObjectStore>,
        jobs: Arc<dyn Jobs>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            dir,
            bytes: AtomicU64::new(bytes),
            files,
            store,
            jobs,
            clock,
            opening: Mutex::default(),
            opened: OnceLock::new(),
            retry_us: AtomicU64::new(0),
        }
    }

    /// Changes how many bytes the cache may keep.
    pub fn set_bytes_max(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        if let Some(cache) = self.opened() {
            cache.set_bytes_max(bytes);
        }
    }

    /// The cache, if it is open.
    pub fn opened(&self) -> Option<&FileCache> {
        self.opened.get()
    }

    pub fn stats(&self) -> CacheStats {
        let unused = || CacheStats {
            bytes_max: self.bytes.load(Ordering::Relaxed),
            ..CacheStats::default()
        };
        self.opened.get().map_or_else(unused, FileCache::stats)
    }

    /// Why there is no cache, although there should be one.
    pub fn failure(&self) -> Option<String> {
        // One that is opened now may take its time.
        let opening = self.opening.try_lock();
        opening.and_then(|opening| opening.failure.clone())
    }

    /// The cache. Without it files are read from the store: the disk may be full, and room comes
    /// when files leave.
    pub fn get(&self) -> Option<&FileCache> {
        if let Some(cache) = self.opened.get() {
            return Some(cache);
        }
        let dir = self.dir.as_ref()?;
        if self.clock.now_us() < self.retry_us.load(Ordering::Relaxed) {
            return None;
        }
        let mut opening = self.opening.lock();
        if let Some(cache) = self.opened.get() {
            return Some(cache);
        }
        if self.clock.now_us() < self.retry_us.load(Ordering::Relaxed) {
            return None;
        }
        match self.open(dir) {
            Ok(opened) => {
                opening.failure = None;
                let cache = self.opened.get_or_init(|| opened);
                // The size may have changed meanwhile.
                cache.set_bytes_max(self.bytes.load(Ordering::Relaxed));
                Some(cache)
            }
            Err(failure) => {
                opening.failure = Some(format!("no file cache: {failure}"));
                let retry_us = self.clock.now_us() + CACHE_RETRY_US;
                self.retry_us.store(retry_us, Ordering::Relaxed);
                None
            }
        }
    }

    fn open(&self, dir: &Path) -> std::result::Result<FileCache, String> {
        let made = self.files.create_directory(dir);
        made.map_err(|error| format!("{}: {error}", dir.display()))?;
        let opened = FileCache::open(
            dir.to_owned(),
            self.bytes.load(Ordering::Relaxed),
            Arc::clone(&self.files),
            Arc::clone(&self.store),
            Arc::clone(&self.jobs),
        );
        opened.map_err(|error| error.to_string())
    }
}
