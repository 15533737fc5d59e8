//! An SST in the store, as the engine reads it.

use crate::errors;
use crate::pieces::Pieces;
use firn::base::{Error, ErrorKind, Result};
use firn::env::{PrefetchBatch, ReadClass, ReadFile};
use firn_objects::{
    CHUNK_BYTES, CachedFile, ErrorKind as StoreKind, ObjectStore, REQUEST_BYTES_MAX, Scan,
};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Scans of a file that are known at most. One that is forgotten reads ahead again from its third
/// read on.
const SCANS_MAX: usize = 8;

/// See the module. Who reads it decides where the bytes come from: queries go through the file
/// cache; compactions, loads, checks and copies read pieces past it.
pub struct RemoteFile {
    /// How errors call the file.
    name: String,
    /// How errors call the store.
    store_name: Arc<str>,
    cached: CachedFile,
    store: Arc<dyn ObjectStore>,
    pieces: Arc<Pieces>,
    /// The store did not have the object at the last read: what the cache has is all there is.
    is_absent: AtomicBool,
    /// Scans under way, with the offset at which each goes on.
    scans: Mutex<VecDeque<(u64, Scan)>>,
    /// Where the last reads past the cache have ended.
    ends: Mutex<VecDeque<u64>>,
}

impl RemoteFile {
    pub fn new(
        name: String,
        store_name: Arc<str>,
        cached: CachedFile,
        store: Arc<dyn ObjectStore>,
        pieces: Arc<Pieces>,
    ) -> Self {
        Self {
            name,
            store_name,
            cached,
            store,
            pieces,
            is_absent: AtomicBool::new(false),
            scans: Mutex::default(),
            ends: Mutex::default(),
        }
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
    fn scan(&self, offset: u64, len: u64) -> firn_objects::Result<Vec<u8>> {
        let mut scan = {
            let mut scans = self.scans.lock();
            let at = scans.iter().position(|(next, _)| *next == offset);
            at.and_then(|at| scans.remove(at))
                .map_or_else(|| self.cached.scan(), |(_, scan)| scan)
        };
        let end = offset + len;
        let bytes = scan.read(offset..end, &|_| true)?;
        if end < self.cached.bytes() {
            let mut scans = self.scans.lock();
            scans.push_back((end, scan));
            if scans.len() > SCANS_MAX {
                scans.pop_front();
            }
        }
        Ok(bytes)
    }
}

impl ReadFile for RemoteFile {
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (len, size) = (buf.len() as u64, self.cached.bytes());
        if offset.checked_add(len).is_none_or(|end| end > size) {
            let what = format!("{}: no {len} bytes at {offset}", self.name);
            return Err(Error::new(ErrorKind::Io { os_errno: 0 }, what));
        }
        let read = match class {
            ReadClass::Scan => self.scan(offset, len).map(Some),
            _ if class.is_of_query() => {
                let range = offset..offset + len;
                self.cached.read(range, &|_| true).map(Some)
            }
            _ => {
                let object = (self.cached.name(), size);
                let ahead = match self.goes_on(offset, len) {
                    true => REQUEST_BYTES_MAX,
                    false => CHUNK_BYTES,
                };
                let read = self.pieces.read(&*self.store, object, offset, buf, ahead);
                read.map(|()| None)
            }
        };
        let is_absent = |e: &firn_objects::Error| e.kind() == StoreKind::Absent;
        let is_absent = read.as_ref().is_err_and(is_absent);
        self.is_absent.store(is_absent, Ordering::Relaxed);
        let failed = |e| errors::of_read(&self.store_name, &self.name, offset, &e);
        if let Some(bytes) = read.map_err(failed)? {
            buf.copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn size(&self) -> Result<u64> {
        Ok(self.cached.bytes())
    }

    fn distrust(&self) -> bool {
        if self.is_absent.load(Ordering::Relaxed) {
            return false;
        }
        self.cached.distrust();
        self.pieces.forget(self.cached.name());
        true
    }

    fn prefetch(&self, offset: u64, len: u64, _: &mut PrefetchBatch) {
        self.cached.will_read(offset..offset.saturating_add(len));
    }
}
