//! Counts the bytes that pass through an environment.

use super::{
    AlignedBuf, AppendFile, DiskRoom, Env, FileUsage, LogFile, PrefetchBatch, PrefetchMethod,
    PrefetchStats, ReadClass, ReadCounters, ReadFile, SpanFile,
};
use crate::base::{Result, read_meter};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Totals of bytes and calls.
#[derive(Debug, Default)]
pub struct IoStats {
    /// Bytes written to files, the log's padding included.
    pub bytes_written: AtomicU64,
    /// Number of syncs of files and directories, durable log writes included.
    pub syncs: AtomicU64,
    file_reads: ReadCounters,
    pool_reads: ReadCounters,
    opens: AtomicU64,
    lists: AtomicU64,
    removals: AtomicU64,
}

impl IoStats {
    /// The reads of files.
    pub fn file_reads(&self) -> &ReadCounters {
        &self.file_reads
    }

    /// Blocks that came from the memory pool instead of a file.
    pub fn pool_reads(&self) -> &ReadCounters {
        &self.pool_reads
    }

    /// Number of files opened for reading.
    pub fn opens(&self) -> u64 {
        self.opens.load(Ordering::Relaxed)
    }

    /// Number of listings of directories.
    pub fn lists(&self) -> u64 {
        self.lists.load(Ordering::Relaxed)
    }

    /// Number of files removed.
    pub fn removals(&self) -> u64 {
        self.removals.load(Ordering::Relaxed)
    }

    fn written(&self, bytes: usize) {
        self.bytes_written
            .fetch_add(bytes as u64, Ordering::Relaxed);
    }

    fn synced(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }
}

/// Wraps an environment and counts its bytes, reads and syncs.
pub struct CountingEnv {
    inner: Arc<dyn Env>,
    counters: Arc<IoStats>,
}

impl CountingEnv {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Env>) -> Self {
        Self {
            inner,
            counters: Arc::default(),
        }
    }

    /// The counters.
    pub fn counters(&self) -> &Arc<IoStats> {
        &self.counters
    }
}

impl Env for CountingEnv {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.inner.create_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.counters.lists.fetch_add(1, Ordering::Relaxed);
        self.inner.list_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.counters.synced();
        self.inner.sync_dir(path)
    }
    fn keep_dir_open(&self, path: &Path) -> Result<()> {
        self.inner.keep_dir_open(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        let inner = self.inner.create(path)?;
        Ok(Box::new(CountingAppend {
            inner,
            counters: Arc::clone(&self.counters),
        }))
    }
    fn allocate(&self, path: &Path, bytes: u64) -> Result<bool> {
        self.inner.allocate(path, bytes)
    }
    fn create_from_allocated(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>> {
        let inner = self.inner.create_from_allocated(aside, path)?;
        Ok(Box::new(CountingAppend {
            inner,
            counters: Arc::clone(&self.counters),
        }))
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.counters.opens.fetch_add(1, Ordering::Relaxed);
        let inner = self.inner.open(path)?;
        Ok(Arc::new(CountingRead {
            inner,
            counters: Arc::clone(&self.counters),
            clock: Arc::clone(&self.inner),
        }))
    }
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.counters.opens.fetch_add(1, Ordering::Relaxed);
        let inner = self.inner.open_direct(path)?;
        Ok(Arc::new(CountingRead {
            inner,
            counters: Arc::clone(&self.counters),
            clock: Arc::clone(&self.inner),
        }))
    }
    fn prefetch_method(&self) -> (PrefetchMethod, PrefetchStats) {
        self.inner.prefetch_method()
    }
    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>> {
        let inner = self.inner.open_log(path, create, direct)?;
        Ok(Arc::new(CountingLog {
            inner,
            counters: Arc::clone(&self.counters),
        }))
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.link(from, to)
    }
    fn links(&self, path: &Path) -> Result<u64> {
        self.inner.links(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.inner.remove_dir(path)
    }
    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>> {
        let inner = self.inner.open_spans(path, create)?;
        Ok(Arc::new(CountingSpans {
            inner,
            counters: Arc::clone(&self.counters),
        }))
    }
    fn usage(&self, path: &Path) -> Result<FileUsage> {
        self.inner.usage(path)
    }
    fn disk_room(&self, path: &Path) -> Result<Option<DiskRoom>> {
        self.inner.disk_room(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.counters.removals.fetch_add(1, Ordering::Relaxed);
        self.inner.remove(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner.exists(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.inner.lock(path)
    }
    fn wall_micros(&self) -> u64 {
        self.inner.wall_micros()
    }
    fn monotonic_micros(&self) -> u64 {
        self.inner.monotonic_micros()
    }
    fn random(&self, bytes: &mut [u8]) -> Result<()> {
        self.inner.random(bytes)
    }
}

struct CountingAppend {
    inner: Box<dyn AppendFile>,
    counters: Arc<IoStats>,
}

impl AppendFile for CountingAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.counters.written(bytes.len());
        self.inner.append(bytes)
    }
    fn flush(&mut self) -> Result<()> {
        self.inner.flush()
    }
    fn sync(&mut self) -> Result<()> {
        self.counters.synced();
        self.inner.sync()
    }
    fn allocate(&mut self, bytes: u64) -> Result<bool> {
        self.inner.allocate(bytes)
    }
    fn len(&self) -> u64 {
        self.inner.len()
    }
}

struct CountingRead {
    inner: Arc<dyn ReadFile>,
    counters: Arc<IoStats>,
    clock: Arc<dyn Env>,
}

impl ReadFile for CountingRead {
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        let begun = self.clock.monotonic_micros();
        let done = self.inner.read_exact_at(class, offset, buf);
        let us = self.clock.monotonic_micros().saturating_sub(begun);
        self.counters.file_reads.count(class, buf.len() as u64, us);
        read_meter::count_file_read(us);
        done
    }
    fn size(&self) -> Result<u64> {
        self.inner.size()
    }
    fn prefetch(&self, offset: u64, len: u64, reads: &mut PrefetchBatch) {
        read_meter::count_prefetch();
        self.inner.prefetch(offset, len, reads);
    }
}

struct CountingLog {
    inner: Arc<dyn LogFile>,
    counters: Arc<IoStats>,
}

impl LogFile for CountingLog {
    fn unit(&self) -> usize {
        self.inner.unit()
    }
    fn preallocate(&self, len: u64) -> Result<()> {
        self.counters.written(len as usize);
        self.counters.synced();
        self.inner.preallocate(len)
    }
    fn reserve(&self, len: u64) -> Result<()> {
        self.counters.synced();
        self.inner.reserve(len)
    }
    fn write_durable_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        self.counters.written(blocks.padded_to(self.unit()).len());
        self.counters.synced();
        self.inner.write_durable_at(offset, blocks)
    }
    fn write_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        self.counters.written(blocks.padded_to(self.unit()).len());
        self.inner.write_at(offset, blocks)
    }
    fn sync(&self) -> Result<()> {
        self.counters.synced();
        self.inner.sync()
    }
}

struct CountingSpans {
    inner: Arc<dyn SpanFile>,
    counters: Arc<IoStats>,
}

impl SpanFile for CountingSpans {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.counters.written(bytes.len());
        self.inner.write_at(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        self.counters.synced();
        self.inner.sync()
    }
    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.inner.punch(offset, len)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.inner.set_len(len)
    }
}
