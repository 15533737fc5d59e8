//! Counts the requests that a store gets, with their latencies.

use crate::env::Clock;
use crate::error::{ErrorKind, Result};
use crate::latencies::Latencies;
use crate::store::{ObjectInfo, ObjectStore, Page, PartTag, PutNew, UploadId, UploadInfo};
use bytes::Bytes;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;

/// The kind of a request. Stores bill by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads an object, or a range of one, or asks for its size.
    Get,
    /// Stores an object, or a part of one; begins or ends an upload in parts.
    Put,
    /// Lists objects or uploads.
    List,
    /// Deletes an object, or throws an upload away.
    Delete,
}

/// The number of kinds.
const KINDS: usize = 4;

/// Figures of the requests of one kind.
#[derive(Clone, Debug, Default)]
pub struct RequestStats {
    /// Requests, failed ones included.
    pub requests: u64,
    /// Bytes of objects that the successful ones have read or stored.
    pub bytes: u64,
    /// Requests that have failed. That there is no such object is an answer.
    pub failed: u64,
    /// The time of all requests.
    pub latencies: Latencies,
}

/// The figures of a store.
#[derive(Debug, Default)]
pub struct RequestMeter([Mutex<RequestStats>; KINDS]);

impl RequestMeter {
    /// The requests of one kind so far.
    pub fn stats(&self, kind: RequestKind) -> RequestStats {
        self.0[kind as usize].lock().clone()
    }

    /// `done` has the number of bytes, or why the request has failed.
    fn note(
        &self,
        kind: RequestKind,
        requests: u64,
        us: u64,
        done: std::result::Result<u64, ErrorKind>,
    ) {
        let mut stats = self.0[kind as usize].lock();
        stats.requests += requests;
        for _ in 0..requests {
            stats.latencies.note(us);
        }
        match done {
            Ok(bytes) => stats.bytes += bytes,
            Err(ErrorKind::Absent) => {}
            Err(_) => stats.failed += 1,
        }
    }
}

/// A store whose requests are counted.
pub struct Metered {
    store: Arc<dyn ObjectStore>,
    clock: Arc<dyn Clock>,
    meter: Arc<RequestMeter>,
}

impl Metered {
    /// Counts the requests to `store` in `meter`.
    pub fn new(
        store: Arc<dyn ObjectStore>,
        clock: Arc<dyn Clock>,
        meter: Arc<RequestMeter>,
    ) -> Self {
        Self {
            store,
            clock,
            meter,
        }
    }

    fn count<T>(
        &self,
        kind: RequestKind,
        bytes: impl FnOnce(&T) -> u64,
        request: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        self.count_several(kind, 1, bytes, request)
    }

    fn count_several<T>(
        &self,
        kind: RequestKind,
        requests: u64,
        bytes: impl FnOnce(&T) -> u64,
        request: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let begun_us = self.clock.now_us();
        let done = request();
        let us = self.clock.now_us().saturating_sub(begun_us);
        let noted = match &done {
            Ok(answer) => Ok(bytes(answer)),
            Err(error) => Err(error.kind()),
        };
        self.meter.note(kind, requests, us, noted);
        done
    }
}

fn none<T>(_: &T) -> u64 {
    0
}

impl ObjectStore for Metered {
    fn put(&self, name: &str, bytes: Bytes) -> Result<()> {
        let len = bytes.len() as u64;
        self.count(RequestKind::Put, |()| len, || self.store.put(name, bytes))
    }

    fn put_new(&self, name: &str, bytes: Bytes) -> Result<PutNew> {
        let len = bytes.len() as u64;
        let stored = |new: &PutNew| if *new == PutNew::Created { len } else { 0 };
        self.count(RequestKind::Put, stored, || self.store.put_new(name, bytes))
    }

    fn get(&self, name: &str) -> Result<Bytes> {
        let len = |bytes: &Bytes| bytes.len() as u64;
        self.count(RequestKind::Get, len, || self.store.get(name))
    }

    fn get_range(&self, name: &str, range: Range<u64>) -> Result<Bytes> {
        let len = |bytes: &Bytes| bytes.len() as u64;
        self.count(RequestKind::Get, len, || self.store.get_range(name, range))
    }

    fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        let len = |all: &Vec<Bytes>| all.iter().map(|bytes| bytes.len() as u64).sum();
        let requests = ranges.len() as u64;
        self.count_several(RequestKind::Get, requests, len, || {
            self.store.get_ranges(name, ranges)
        })
    }

    fn head(&self, name: &str) -> Result<ObjectInfo> {
        self.count(RequestKind::Get, none, || self.store.head(name))
    }

    fn list_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<ObjectInfo>> {
        self.count(RequestKind::List, none, || {
            self.store.list_page(prefix, token)
        })
    }

    fn delete(&self, name: &str) -> Result<()> {
        self.count(RequestKind::Delete, none, || self.store.delete(name))
    }

    fn begin_upload(&self, name: &str) -> Result<UploadId> {
        self.count(RequestKind::Put, none, || self.store.begin_upload(name))
    }

    fn put_part(&self, name: &str, id: &UploadId, index: u32, bytes: Bytes) -> Result<PartTag> {
        let len = bytes.len() as u64;
        self.count(
            RequestKind::Put,
            |_| len,
            || self.store.put_part(name, id, index, bytes),
        )
    }

    fn complete_upload(&self, name: &str, id: &UploadId, parts: &[PartTag]) -> Result<()> {
        self.count(RequestKind::Put, none, || {
            self.store.complete_upload(name, id, parts)
        })
    }

    fn abort_upload(&self, name: &str, id: &UploadId) -> Result<()> {
        self.count(RequestKind::Delete, none, || {
            self.store.abort_upload(name, id)
        })
    }

    fn list_uploads_page(&self, prefix: &str, token: Option<&str>) -> Result<Page<UploadInfo>> {
        self.count(RequestKind::List, none, || {
            self.store.list_uploads_page(prefix, token)
        })
    }

    fn close(&self) {
        self.store.close();
    }
}

#[cfg(test)]
mod tests;
