//! The file cache: chunks of remote files on local disks.
//!
//! An object has a sparse local file of its size. Chunks of 256 KiB are read into it when somebody
//! needs them, and holes are punched when they are evicted. Which chunks a file has is known in
//! memory only, and found anew at start from its holes: nothing is synced, no list is kept.
//!
//! So nothing in a local file is trusted. Each read is judged by the caller's closure, which checks
//! the checksums of the blocks it asked for. Bytes that fail are dropped and read from the store
//! again. A kill or a power cut at any point leaves chunks that are whole, or absent, or fail.
//!
//! A hit takes no lock of the cache: it reads the file between two looks at the chunk's state
//! ([`chunk`]). Evicting first changes the state and then punches the hole.

mod chunk;
mod fetch;
mod file;
mod flights;
mod handles;
mod limit;
mod read;
mod read_ahead;
mod recover;
mod s3_fifo;

use crate::budget::Budget;
use crate::env::{Files, Jobs};
use crate::error::Result;
use crate::store::{ObjectStore, check_name};
use chunk::ChunkFile;
use flights::Flights;
use handles::Handles;
use limit::Limit;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

pub use file::CachedFile;
pub use read::{CachedRead, Verify};
pub use read_ahead::Scan;

/// The unit of the cache.
pub const CHUNK_BYTES: u64 = 256 << 10;
/// The largest request.
pub const REQUEST_BYTES_MAX: u64 = 8 << 20;
/// The end of the names of local files. Other files of the directory are left alone.
const SUFFIX: &str = ".chunks";
/// Bytes that are on their way from the store at once.
const IN_FLIGHT_BYTES_MAX: u64 = 64 << 20;
/// How long a read waits for others before it may ask the store.
const IN_FLIGHT_PATIENCE: Duration = Duration::from_secs(30);
/// Ranges that are announced and not read yet. More are not read ahead: a store that is down would
/// let them pile up.
const ANNOUNCED_MAX: usize = 256;

/// The description of an object for the cache.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileTraits {
    /// The size of the object.
    pub bytes: u64,
    /// The size of its tail: index, filters, properties. It stays, once read.
    pub tail_bytes: u64,
    /// Whether the file is of a hot level; those leave last.
    pub is_hot: bool,
}

/// Figures of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// The limit.
    pub bytes_max: u64,
    /// Bytes of chunks that are there.
    pub bytes: u64,
    /// Those of pinned tails.
    pub pinned_bytes: u64,
    /// Chunks that reads found.
    pub hits: u64,
    /// Chunks that reads had to wait for.
    pub misses: u64,
    /// Chunks that were read ahead.
    pub read_ahead: u64,
    /// Requests for bytes of objects.
    pub requests: u64,
    /// The bytes of their answers.
    pub fetched_bytes: u64,
    /// Chunks that were evicted.
    pub evicted: u64,
    /// Chunks that were dropped because bytes of them had failed a check.
    pub damaged: u64,
    /// Chunks that could not be written to the local disk.
    pub not_written: u64,
}

/// The cache of one directory, which nobody else uses.
#[derive(Clone)]
pub struct FileCache(Arc<Shared>);

struct Shared {
    root: PathBuf,
    files: Arc<dyn Files>,
    store: Arc<dyn ObjectStore>,
    jobs: Arc<dyn Jobs>,
    by_name: Mutex<HashMap<String, Arc<ChunkFile>>>,
    next_id: AtomicU64,
    limit: Mutex<Limit>,
    flights: Flights,
    in_flight: Budget,
    /// Jobs of announced ranges hold it, too.
    announced: Arc<()>,
    handles: Handles,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    hits: AtomicU64,
    misses: AtomicU64,
    read_ahead: AtomicU64,
    requests: AtomicU64,
    fetched_bytes: AtomicU64,
    damaged: AtomicU64,
    not_written: AtomicU64,
}

fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Relaxed);
}

impl FileCache {
    /// The cache in the directory `root`, which exists, with what an earlier one has left there.
    /// Reads ahead run as `jobs`. `store` tries its requests again.
    ///
    /// # Errors
    /// Of the local disk; `Invalid` if its files cannot have holes.
    pub fn open(
        root: PathBuf,
        bytes_max: u64,
        files: Arc<dyn Files>,
        store: Arc<dyn ObjectStore>,
        jobs: Arc<dyn Jobs>,
    ) -> Result<Self> {
        let cache = Self(Arc::new(Shared {
            root,
            files,
            store,
            jobs,
            by_name: Mutex::default(),
            next_id: AtomicU64::new(0),
            limit: Mutex::new(Limit::new(bytes_max)),
            flights: Flights::default(),
            in_flight: Budget::new(IN_FLIGHT_BYTES_MAX),
            announced: Arc::default(),
            handles: Handles::default(),
            counters: Counters::default(),
        }));
        cache.0.check_holes()?;
        cache.0.recover()?;
        cache.set_bytes_max(bytes_max);
        Ok(cache)
    }

    /// The object `name` through the cache. It is not asked for yet. An object never changes: two
    /// that have one name after each other have the same bytes.
    ///
    /// # Errors
    /// `Invalid` if that is no name.
    pub fn file(&self, name: &str, traits: FileTraits) -> Result<CachedFile> {
        check_name(name)?;
        let mut by_name = self.0.by_name.lock();
        if let Some(found) = by_name.get(name) {
            if found.bytes() == traits.bytes {
                found.set_traits(traits);
                return Ok(CachedFile::new(self.0.clone(), found.clone()));
            }
            // A file that an earlier process has not finished.
            let found = found.clone();
            by_name.remove(name);
            self.0.remove(&found);
        }
        let file = self.0.new_file(name, traits);
        by_name.insert(name.to_owned(), file.clone());
        Ok(CachedFile::new(self.0.clone(), file))
    }

    /// The object `name` is deleted: its chunks go.
    pub fn forget(&self, name: &str) {
        // A new file of the name waits: its local file has the same path.
        let mut by_name = self.0.by_name.lock();
        if let Some(file) = by_name.remove(name) {
            self.0.remove(&file);
        }
    }

    /// The names of the objects that the cache has files of: at start, those that an earlier one
    /// has left. The caller forgets those that the database does not name.
    pub fn names(&self) -> Vec<String> {
        self.0.by_name.lock().keys().cloned().collect()
    }

    /// Changes the limit. What is too much is evicted at once.
    pub fn set_bytes_max(&self, bytes_max: u64) {
        let evicted = {
            let mut limit = self.0.limit.lock();
            limit.set_bytes_max(bytes_max);
            limit.make_room(0)
        };
        self.0.punch(evicted);
    }

    /// Figures.
    pub fn stats(&self) -> CacheStats {
        let counters = &self.0.counters;
        let limit = self.0.limit.lock();
        CacheStats {
            bytes_max: limit.bytes_max(),
            bytes: limit.bytes(),
            pinned_bytes: limit.pinned_bytes(),
            evicted: limit.evicted(),
            hits: counters.hits.load(Relaxed),
            misses: counters.misses.load(Relaxed),
            read_ahead: counters.read_ahead.load(Relaxed),
            requests: counters.requests.load(Relaxed),
            fetched_bytes: counters.fetched_bytes.load(Relaxed),
            damaged: counters.damaged.load(Relaxed),
            not_written: counters.not_written.load(Relaxed),
        }
    }
}

impl Shared {
    fn new_file(&self, name: &str, traits: FileTraits) -> Arc<ChunkFile> {
        let id = self.next_id.fetch_add(1, Relaxed);
        Arc::new(ChunkFile::new(id, name, self.local_path(name), traits))
    }

    /// All local files are in one directory. No name of an object has a comma.
    fn local_path(&self, name: &str) -> PathBuf {
        self.root.join(name.replace('/', ",") + SUFFIX)
    }

    /// Removes a file that no new reader finds any more. Those that have it read the store.
    fn remove(&self, file: &ChunkFile) {
        self.limit.lock().remove_file(file);
        self.handles.close(file);
        // The next start finds the files that stay behind, and forgets them.
        let _ = self.files.remove(file.local_path());
    }
}

#[cfg(test)]
mod tests;
