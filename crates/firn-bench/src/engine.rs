//! The interface of the engines that are measured, and the engines themselves.

mod firn;
#[cfg(feature = "rivals")]
mod fjall;
#[cfg(feature = "rivals")]
mod lmdb;
#[cfg(feature = "rivals")]
mod redb;
#[cfg(feature = "rivals")]
mod rocksdb;

use crate::data::{Key, VALUE_LEN};
use std::path::{Path, PathBuf};

/// Any error.
pub type Error = Box<dyn std::error::Error + Send + Sync>;

/// A result of the bench.
pub type Result<T> = std::result::Result<T, Error>;

/// A key and its value.
pub type Entry = (Key, [u8; VALUE_LEN]);

/// How to open an engine.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Directory of the engine's files.
    pub dir: PathBuf,
    /// Capacity of the block cache, bytes.
    pub cache: u64,
    /// Size of one memtable, bytes.
    pub memtable: u64,
    /// Whether a commit waits for the device. If not, it hands its log records to the operating
    /// system.
    pub durable: bool,
}

/// An open engine.
pub trait Engine: Sync {
    /// Opens a session for one thread.
    fn session(&self) -> Result<Box<dyn Session + '_>>;

    /// Flushes, and waits until the engine has done the background work that earlier writes made
    /// necessary.
    fn pay(&self) -> Result<()>;

    /// Compacts everything.
    fn compact(&self) -> Result<()>;

    /// Whether `file` belongs to the log. Files of the log do not count as space of the engine.
    fn is_log(&self, file: &Path) -> bool;

    /// Whether reads go past the page cache.
    fn reads_directly(&self) -> bool;

    /// A few words on the state of the engine. They are stored with the raw results.
    fn state(&self) -> String;

    /// Closes the engine.
    fn close(self: Box<Self>) -> Result<()>;
}

/// One thread's access to the engine. Each call is a transaction of its own.
pub trait Session {
    /// Commits `entries` together.
    fn put(&mut self, entries: &[Entry]) -> Result<()>;

    /// Copies the newest value of `key` into `out`. Returns whether the key has a value.
    fn get(&mut self, key: &Key, out: &mut Vec<u8>) -> Result<bool>;

    /// Reads up to `limit` entries in order, beginning at `from`. Returns their number.
    fn scan(
        &mut self,
        from: &Key,
        limit: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<usize>;
}

/// Engines that a run without `FULL=1` measures.
pub const COMMON: &[&str] = if cfg!(feature = "rivals") {
    &["firn", "rocksdb", "fjall"]
} else {
    &["firn"]
};

/// Engines that `FULL=1` adds.
pub const FURTHER: &[&str] = if cfg!(feature = "rivals") {
    &["redb", "lmdb"]
} else {
    &[]
};

/// Opens the engine called `name`, creating its database if it is missing.
pub fn open(name: &str, settings: &Settings) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(&settings.dir)?;
    match name {
        "firn" => Ok(Box::new(firn::open(settings)?)),
        #[cfg(feature = "rivals")]
        "rocksdb" => Ok(Box::new(rocksdb::open(settings)?)),
        #[cfg(feature = "rivals")]
        "fjall" => Ok(Box::new(fjall::open(settings)?)),
        #[cfg(feature = "rivals")]
        "redb" => Ok(Box::new(redb::open(settings)?)),
        #[cfg(feature = "rivals")]
        "lmdb" => Ok(Box::new(lmdb::open(settings)?)),
        other => Err(format!("no engine is called {other}").into()),
    }
}

/// The name of an engine as its authors write it.
pub fn title(name: &str) -> &str {
    match name {
        "firn" => "Firn",
        "rocksdb" => "RocksDB",
        "lmdb" => "LMDB",
        other => other,
    }
}

/// Number of entries in a commit of a load. Copy-on-write B-trees get large commits, because a load
/// in small commits would take hours.
pub fn load_batch(name: &str, wanted: usize) -> usize {
    match name {
        "redb" | "lmdb" => wanted.max(1000),
        _ => wanted,
    }
}
