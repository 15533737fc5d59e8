//! An SST in the store, as the engine reads it.

use crate::errors;
use crate::lazy_cache::LazyCache;
use crate::pieces::Pieces;
use firn::base::{Error, ErrorKind, Result, read_meter};
use firn::env::{PrefetchBatch, ReadClass, ReadCounters, ReadFile};
use firn_objects::{
    CHUNK_BYTES, CachedFile, CachedRead, Clock, ErrorKind as StoreKind, FileTraits, ObjectStore,
    REQUEST_BYTES_MAX, Scan,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

/// Scans of a file that are known at most. One that is forgotten reads ahead again from its third
/// read on.
const SCANS_MAX: usize = 8;

/// The reads of all files, by class.
#[derive(Default)]
pub struct RemoteReads {
    /// Those that the file cache has served.
    pub cached: ReadCounters,
    /// Those that have waited for the store.
    pub fetched: ReadCounters,
}

/// The state that all files share.
#[derive(Clone)]
pub struct Shared {
    /// How errors call the store.
    pub store_name: Arc<str>,
    pub store: Arc<dyn ObjectStore>,
    pub clock: Arc<dyn Clock>,
    pub cache: Arc<LazyCache>,
    pub pieces: Arc<Pieces>,
    pub reads: Arc<RemoteReads>,
}

/// See the module. Who reads it decides where the bytes come from: queries go through the file
/// cache, if there is one; compactions, loads, checks and copies read pieces past it.
pub struct RemoteFile {
    /// How errors call the file.
    name: String,
    /// The name of the object, and its size.
    object: String,
    traits: FileTraits,
    /// The file in the cache, once there is a cache.
    cached: OnceLock<CachedFile>,
    shared: Shared,
    /// The store did not have the object at the last read: what the cache has is all there is.
    is_absent: AtomicBool,
    /// Scans under way, with the offset at which each goes on.
    scans: Mutex<VecDeque<(u64, Scan)>>,
    /// Where the last reads past the cache have ended.
    ends: Mutex<VecDeque<u64>>,
}

impl RemoteFile {
    pub fn new(name: String, object: String, traits: FileTraits, shared: Shared) -> Self {
        Self {
            name,
            object,
            traits,
            cached: OnceLock::new(),
            shared,
            is_absent: AtomicBool::new(false),
            scans: Mutex::default(),
            ends: Mutex::default(),
        }
    }

    /// The file in the cache. A file without a place there is read from the store.
    fn cached(&self) -> Option<&CachedFile> {
        if let Some(cached) = self.cached.get() {
            return Some(cached);
        }
        let cached = self.shared.cache.get()?.file(&self.object, self.traits);
        cached.ok().map(|cached| self.cached.get_or_init(|| cached))
    }

    /// Whether a read of somebody who reads once begins where another one has ended, or is large:
    /// then he reads the file in order. Notes where it ends.
    fn goes_on(&self, offset: u64, len: u64) -> bool {
        let mut ends = self.ends.lock();
        let at = ends.iter().position(|end| *end == offset);
        ends.push_back(offset + len);
        match at {
            Some(at) => drop(ends.remove(at)),
            None if ends.len() > SCANS_MAX => drop(ends.pop_front()),
            None => {}
        }
        at.is_some() || offset == 0 || len >= CHUNK_BYTES / 2
    }

    /// Reads as the scan does that has come to `offset`, or as a new one.
    fn scan(&self, cached: &CachedFile, offset: u64, len: u64) -> firn_objects::Result<CachedRead> {
        let mut scan = {
            let mut scans = self.scans.lock();
            let at = scans.iter().position(|(next, _)| *next == offset);
            at.and_then(|at| scans.remove(at))
                .map_or_else(|| cached.scan(), |(_, scan)| scan)
        };
        let end = offset + len;
        let read = scan.read(offset..end, &|_| true)?;
        if end < self.traits.bytes {
            let mut scans = self.scans.lock();
            scans.push_back((end, scan));
            if scans.len() > SCANS_MAX {
                scans.pop_front();
            }
        }
        Ok(read)
    }

    /// Reads into `buf`, and says which counters the read belongs to, with how many bytes. One that
    /// memory has served belongs to none.
    fn read(
        &self,
        class: ReadClass,
        offset: u64,
        buf: &mut [u8],
    ) -> firn_objects::Result<Option<(&ReadCounters, u64)>> {
        let shared = &self.shared;
        let len = buf.len() as u64;
        let cached = match class.is_of_query() {
            true => self.cached(),
            false => None,
        };
        let Some(cached) = cached else {
            let object = (self.object.as_str(), self.traits.bytes);
            let ahead = match self.goes_on(offset, len) {
                true => REQUEST_BYTES_MAX,
                false => CHUNK_BYTES,
            };
            let fetched = { &shared.pieces }.read(&*shared.store, object, offset, buf, ahead)?;
            return Ok((fetched > 0).then_some((&shared.reads.fetched, fetched)));
        };
        let read = match class {
            ReadClass::Scan => self.scan(cached, offset, len)?,
            _ => cached.read(offset..offset + len, &|_| true)?,
        };
        buf.copy_from_slice(&read.bytes);
        let counters = match read.is_fetched {
            true => &shared.reads.fetched,
            false => &shared.reads.cached,
        };
        Ok(Some((counters, len)))
    }
}

impl ReadFile for RemoteFile {
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (len, size) = (buf.len() as u64, self.traits.bytes);
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let what = format!("{}: no {len} bytes at {offset}", self.name);
            return Err(Error::new(ErrorKind::Io { os_errno: 0 }, what));
        }
        let clock = &self.shared.clock;
        let begun_us = clock.now_us();
        let read = self.read(class, offset, buf);
        let us = clock.now_us().saturating_sub(begun_us);
        let is_absent = |e: &firn_objects::Error| e.kind() == StoreKind::Absent;
        let is_absent = read.as_ref().is_err_and(is_absent);
        self.is_absent.store(is_absent, Ordering::Relaxed);
        let counted = match &read {
            Ok(counted) => *counted,
            // It has waited all the same.
            Err(_) => Some((&self.shared.reads.fetched, len)),
        };
        if let Some((counters, bytes)) = counted {
            counters.count(class, bytes, us);
            read_meter::count_file_read(us);
        }
        let failed = |e| errors::of_read(&self.shared.store_name, &self.name, offset, &e);
        read.map(|_| ()).map_err(failed)
    }

    fn size(&self) -> Result<u64> {
        Ok(self.traits.bytes)
    }

    fn distrust(&self) -> bool {
        if self.is_absent.load(Ordering::Relaxed) {
            return false;
        }
        self.cached.get().into_iter().for_each(CachedFile::distrust);
        self.shared.pieces.forget(&self.object);
        true
    }

    fn prefetch(&self, offset: u64, len: u64, _: &mut PrefetchBatch) {
        if let Some(cached) = self.cached() {
            cached.will_read(offset..offset.saturating_add(len));
        }
    }
}
