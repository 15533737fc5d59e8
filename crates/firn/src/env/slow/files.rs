//! The files of a `SlowEnv`.

use super::super::{AlignedBuf, AppendFile, LogFile, PrefetchBatch, ReadClass, ReadFile, SpanFile};
use super::SlowDevice;
use crate::base::Result;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An announced read of which some bytes were not taken is forgotten this long after its end.
const FORGOTTEN_NS: u64 = 1_000_000_000;

/// The page cache holds that many written bytes of a file. From there on a writer waits for the
/// disk, also if it never syncs the file.
const UNSYNCED_MAX: u64 = 64 << 20;
/// A writer waits for that many bytes at once.
const WRITEBACK: u64 = 1 << 20;

/// An announced read.
struct SlowPrefetch {
    bytes: Range<u64>,
    /// Number of announced bytes that nobody has taken yet.
    left: u64,
    end_ns: u64,
}

impl SlowPrefetch {
    fn covers(&self, bytes: &Range<u64>) -> bool {
        self.bytes.start <= bytes.start && bytes.end <= self.bytes.end
    }
}

/// The announced reads of a file.
pub(in super::super) struct AnnouncedReads {
    device: Arc<SlowDevice>,
    reads: Mutex<Vec<SlowPrefetch>>,
}

impl AnnouncedReads {
    /// Begins a read of a batch that is started; callers have announced `wanted` of its bytes. Does
    /// nothing if the bytes are announced already.
    pub(in super::super) fn begin(&self, bytes: &Range<u64>, wanted: u64) {
        let now = self.device.now_ns();
        let mut reads = self.reads.lock();
        reads.retain(|read| now < read.end_ns.saturating_add(FORGOTTEN_NS));
        if !reads.iter().any(|read| read.covers(bytes)) {
            reads.push(SlowPrefetch {
                bytes: bytes.clone(),
                left: wanted,
                end_ns: self.device.disk.operate(now, bytes.end - bytes.start),
            });
        }
    }

    /// The end of an announced read that covers the range; `None` if there is none.
    fn take(&self, offset: u64, len: u64) -> Option<u64> {
        let bytes = offset..offset.checked_add(len)?;
        let mut reads = self.reads.lock();
        let at = reads.iter().position(|read| read.covers(&bytes))?;
        let (end, left) = (reads[at].end_ns, reads[at].left);
        match left > len {
            true => reads[at].left -= len,
            false => drop(reads.swap_remove(at)),
        }
        Some(end)
    }
}

pub(super) struct SlowRead {
    file: Arc<dyn ReadFile>,
    device: Arc<SlowDevice>,
    announced: Arc<AnnouncedReads>,
}

impl SlowRead {
    pub(super) fn new(file: Arc<dyn ReadFile>, device: &Arc<SlowDevice>) -> Self {
        Self {
            file,
            device: Arc::clone(device),
            announced: Arc::new(AnnouncedReads {
                device: Arc::clone(device),
                reads: Mutex::default(),
            }),
        }
    }
}

impl ReadFile for SlowRead {
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (device, len) = (&self.device, buf.len() as u64);
        let mut read = || self.file.read_exact_at(class, offset, buf);
        match self.announced.take(offset, len) {
            Some(end) => {
                let done = read();
                device.wait(end);
                done
            }
            None => device.during(len, read),
        }
    }
    fn size(&self) -> Result<u64> {
        self.file.size()
    }
    fn prefetch(&self, offset: u64, len: u64, reads: &mut PrefetchBatch) {
        reads.push_slow(&self.announced, offset, len);
        self.file.prefetch(offset, len, reads);
    }
}

/// The bytes that were written to a file since its last sync.
struct Unsynced {
    device: Arc<SlowDevice>,
    bytes: AtomicU64,
}

impl Unsynced {
    fn new(device: &Arc<SlowDevice>) -> Self {
        Self {
            device: Arc::clone(device),
            bytes: AtomicU64::new(0),
        }
    }

    /// `bytes` bytes were written. Waits for the disk if there are too many.
    fn wrote(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        let cut = |all: u64| (all >= UNSYNCED_MAX + WRITEBACK).then_some(UNSYNCED_MAX);
        let before = self
            .bytes
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, cut);
        if let Ok(all) = before {
            self.device.during(all - UNSYNCED_MAX, || ());
        }
    }

    /// Calls `f`, which syncs the file.
    fn sync<T>(&self, f: impl FnOnce() -> T) -> T {
        let bytes = self.bytes.swap(0, Ordering::Relaxed);
        self.device.during(bytes, f)
    }
}

pub(super) struct SlowAppend {
    file: Box<dyn AppendFile>,
    unsynced: Unsynced,
}

impl SlowAppend {
    pub(super) fn new(file: Box<dyn AppendFile>, device: &Arc<SlowDevice>) -> Self {
        Self {
            file,
            unsynced: Unsynced::new(device),
        }
    }
}

impl AppendFile for SlowAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.append(bytes)?;
        self.unsynced.wrote(bytes.len() as u64);
        Ok(())
    }
    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
    fn sync(&mut self) -> Result<()> {
        self.unsynced.sync(|| self.file.sync())
    }
    fn allocate(&mut self, bytes: u64) -> Result<bool> {
        self.file.allocate(bytes)
    }
    fn len(&self) -> u64 {
        self.file.len()
    }
}

pub(super) struct SlowSpans {
    file: Arc<dyn SpanFile>,
    unsynced: Unsynced,
}

impl SlowSpans {
    pub(super) fn new(file: Arc<dyn SpanFile>, device: &Arc<SlowDevice>) -> Self {
        Self {
            file,
            unsynced: Unsynced::new(device),
        }
    }
}

impl SpanFile for SlowSpans {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_at(offset, bytes)?;
        self.unsynced.wrote(bytes.len() as u64);
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.unsynced.sync(|| self.file.sync())
    }
    fn punch(&self, offset: u64, len: u64) -> Result<bool> {
        self.file.punch(offset, len)
    }
    fn set_len(&self, len: u64) -> Result<()> {
        self.file.set_len(len)
    }
}

pub(super) struct SlowLog {
    file: Arc<dyn LogFile>,
    device: Arc<SlowDevice>,
    unsynced: Unsynced,
}

impl SlowLog {
    pub(super) fn new(file: Arc<dyn LogFile>, device: &Arc<SlowDevice>) -> Self {
        Self {
            file,
            device: Arc::clone(device),
            unsynced: Unsynced::new(device),
        }
    }

    fn written(&self, blocks: &AlignedBuf) -> u64 {
        blocks.padded_to(self.unit()).len() as u64
    }
}

impl LogFile for SlowLog {
    fn unit(&self) -> usize {
        self.file.unit()
    }
    fn preallocate(&self, len: u64) -> Result<()> {
        self.device.during(len, || self.file.preallocate(len))
    }
    fn reserve(&self, len: u64) -> Result<()> {
        self.device.during(0, || self.file.reserve(len))
    }
    fn write_durable_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        let write = || self.file.write_durable_at(offset, blocks);
        self.device.during(self.written(blocks), write)
    }
    fn write_at(&self, offset: u64, blocks: &AlignedBuf) -> Result<()> {
        self.file.write_at(offset, blocks)?;
        self.unsynced.wrote(self.written(blocks));
        Ok(())
    }
    fn sync(&self) -> Result<()> {
        self.unsynced.sync(|| self.file.sync())
    }
}
