//! The files of a `SlowEnv`.

use super::super::prefetch::GAP;
use super::super::{AlignedBuf, AppendFile, LogFile, PrefetchBatch, ReadClass, ReadFile, SpanFile};
use super::SlowDevice;
use crate::base::Result;
use parking_lot::Mutex;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// An announced read of which some bytes were not taken is forgotten this long after its end.
const FORGOTTEN_NS: u64 = 1_000_000_000;

/// An announced read.
struct SlowPrefetch {
    bytes: Range<u64>,
    /// Number of announced bytes that nobody has taken yet.
    left: u64,
    end_ns: u64,
}

pub(super) struct SlowRead {
    file: Arc<dyn ReadFile>,
    device: Arc<SlowDevice>,
    announced: Mutex<Vec<SlowPrefetch>>,
}

impl SlowRead {
    pub(super) fn new(file: Arc<dyn ReadFile>, device: &Arc<SlowDevice>) -> Self {
        Self {
            file,
            device: Arc::clone(device),
            announced: Mutex::default(),
        }
    }

    /// Begins an announced read. A range close behind one that is still being read prolongs that
    /// read, as in a [`PrefetchBatch`].
    fn announce(&self, offset: u64, len: u64) {
        let Some(end) = offset.checked_add(len).filter(|_| len > 0) else {
            return;
        };
        let (now, disk) = (self.device.now_ns(), &self.device.disk);
        let mut announced = self.announced.lock();
        announced.retain(|read| now < read.end_ns.saturating_add(FORGOTTEN_NS));
        let joins = |read: &&mut SlowPrefetch| {
            let bytes = &read.bytes;
            now < read.end_ns && bytes.start <= offset && offset <= bytes.end.saturating_add(GAP)
        };
        match announced.iter_mut().find(joins) {
            Some(read) => {
                let more = end.saturating_sub(read.bytes.end);
                read.end_ns = read.end_ns.max(disk.prolong(now, more));
                read.left += more.min(len);
                read.bytes.end = read.bytes.end.max(end);
            }
            None => announced.push(SlowPrefetch {
                bytes: offset..end,
                left: len,
                end_ns: disk.operate(now, len),
            }),
        }
    }

    /// The end of an announced read that covers the range; `None` if there is none.
    fn take(&self, offset: u64, len: u64) -> Option<u64> {
        let mut announced = self.announced.lock();
        let end = offset.checked_add(len)?;
        let covers = |read: &SlowPrefetch| read.bytes.start <= offset && end <= read.bytes.end;
        let at = announced.iter().position(covers)?;
        let (end, left) = (announced[at].end_ns, announced[at].left);
        match left > len {
            true => announced[at].left -= len,
            false => drop(announced.swap_remove(at)),
        }
        Some(end)
    }
}

impl ReadFile for SlowRead {
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        let (device, len) = (&self.device, buf.len() as u64);
        let announced = self.take(offset, len);
        let end = announced.unwrap_or_else(|| device.disk.operate(device.now_ns(), len));
        let done = self.file.read_exact_at(class, offset, buf);
        device.wait(end);
        done
    }
    fn size(&self) -> Result<u64> {
        self.file.size()
    }
    fn prefetch(&self, offset: u64, len: u64, reads: &mut PrefetchBatch) {
        self.announce(offset, len);
        self.file.prefetch(offset, len, reads);
    }
}

pub(super) struct SlowAppend {
    file: Box<dyn AppendFile>,
    device: Arc<SlowDevice>,
    unsynced: u64,
}

impl SlowAppend {
    pub(super) fn new(file: Box<dyn AppendFile>, device: &Arc<SlowDevice>) -> Self {
        Self {
            file,
            device: Arc::clone(device),
            unsynced: 0,
        }
    }
}

impl AppendFile for SlowAppend {
    fn append(&mut self, bytes: &[u8]) -> Result<()> {
        self.unsynced += bytes.len() as u64;
        self.file.append(bytes)
    }
    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
    fn sync(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.unsynced);
        self.device.during(bytes, || self.file.sync())
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
    device: Arc<SlowDevice>,
    unsynced: AtomicU64,
}

impl SlowSpans {
    pub(super) fn new(file: Arc<dyn SpanFile>, device: &Arc<SlowDevice>) -> Self {
        Self {
            file,
            device: Arc::clone(device),
            unsynced: AtomicU64::new(0),
        }
    }
}

impl SpanFile for SlowSpans {
    fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.unsynced
            .fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.file.write_at(offset, bytes)
    }
    fn sync(&self) -> Result<()> {
        let bytes = self.unsynced.swap(0, Ordering::Relaxed);
        self.device.during(bytes, || self.file.sync())
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
    unsynced: AtomicU64,
}

impl SlowLog {
    pub(super) fn new(file: Arc<dyn LogFile>, device: &Arc<SlowDevice>) -> Self {
        Self {
            file,
            device: Arc::clone(device),
            unsynced: AtomicU64::new(0),
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
        self.unsynced
            .fetch_add(self.written(blocks), Ordering::Relaxed);
        self.file.write_at(offset, blocks)
    }
    fn sync(&self) -> Result<()> {
        let bytes = self.unsynced.swap(0, Ordering::Relaxed);
        self.device.during(bytes, || self.file.sync())
    }
}
