//! An environment with the speed of a slow disk, to test and measure with.
//!
//! ```text
//! read:  read in fact → ask the model when a read that began then ends → wait for that moment
//! write: nothing, the page cache takes it; the sync pays for all bytes since the last one, and
//!        the writer for those that are too many for the page cache
//! ```
//!
//! A long operation takes its bytes piece by piece, so that a small one which begins meanwhile is
//! soon served, as by a disk with a queue for each client.
//!
//! A prefetched read ends a latency after its batch was started, however it is executed: whoever
//! takes the bytes earlier waits for the rest of it.
//!
//! Every read is one of the disk. The model has no page cache, so that a test needs no memory
//! pressure to be slow.
//!
//! Rejected: dm-delay, nbd and ublk (not in every kernel, and for root only); FUSE (reads would
//! take another path); block cgroups (they limit rates and add no latency).
#![allow(clippy::disallowed_methods)] // It sleeps, as the device would.

mod disk;
mod files;

use super::{
    AppendFile, DiskRoom, Env, FileUsage, LogFile, PrefetchMethod, PrefetchStats, ReadFile,
    SpanFile,
};
use crate::base::Result;
use disk::Disk;
pub use disk::DiskSpeed;
pub(super) use files::AnnouncedReads;
use files::{SlowAppend, SlowLog, SlowRead, SlowSpans};
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The last microseconds of a wait are spent polling: a thread wakes up to that much late.
const POLLED_US: u64 = 50;

/// Wraps an environment and delays its reads and syncs as a disk of limited speed would.
pub struct SlowEnv {
    device: Arc<SlowDevice>,
}

/// The disk, and the environment that has its files and its clock.
struct SlowDevice {
    inner: Arc<dyn Env>,
    disk: Disk,
}

impl SlowDevice {
    /// The time, rounded up: the clock has whole microseconds, and no operation may take less than
    /// the latency.
    fn now_ns(&self) -> u64 {
        (self.inner.monotonic_micros() + 1) * 1000
    }

    /// Waits for an operation that ends at `end_ns`.
    fn wait(&self, end_ns: u64) {
        let end = end_ns.div_ceil(1000);
        loop {
            let left = end.saturating_sub(self.inner.monotonic_micros());
            if left == 0 {
                return;
            }
            match left.checked_sub(POLLED_US) {
                Some(us) if us > 0 => {
                    wake_in_time();
                    std::thread::sleep(Duration::from_micros(us));
                }
                _ => std::hint::spin_loop(),
            }
        }
    }

    /// Calls `f` as an operation on `bytes` bytes, which takes as long as on the disk.
    fn during<T>(&self, bytes: u64, f: impl FnOnce() -> T) -> T {
        let mut admitted = self.now_ns();
        let pieces = self.disk.pieces(admitted, bytes);
        let done = f();
        for piece in pieces {
            self.wait(piece);
            admitted = piece;
        }
        self.wait(self.disk.end(admitted));
        done
    }
}

/// Lets the sleeps of this thread end in time. By default the kernel may let each of them last 50
/// µs longer, to wake several threads at once.
fn wake_in_time() {
    thread_local! {
        static SET: () = {
            // Ignore an error: the waits are less exact then.
            let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        };
    }
    SET.with(|()| ());
}

impl SlowEnv {
    /// Gives the files of `inner` the speed of a disk.
    pub fn new(inner: Arc<dyn Env>, speed: DiskSpeed) -> Self {
        Self {
            device: Arc::new(SlowDevice {
                inner,
                disk: Disk::new(speed),
            }),
        }
    }

    fn inner(&self) -> &dyn Env {
        &*self.device.inner
    }

    fn append(&self, file: Box<dyn AppendFile>) -> Box<dyn AppendFile> {
        Box::new(SlowAppend::new(file, &self.device))
    }

    fn read(&self, file: Arc<dyn ReadFile>) -> Arc<dyn ReadFile> {
        Arc::new(SlowRead::new(file, &self.device))
    }
}

impl Env for SlowEnv {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.inner().create_dir_all(path)
    }
    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.inner().list_dir(path)
    }
    fn sync_dir(&self, path: &Path) -> Result<()> {
        self.device.during(0, || self.inner().sync_dir(path))
    }
    fn keep_dir_open(&self, path: &Path) -> Result<()> {
        self.inner().keep_dir_open(path)
    }
    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        Ok(self.append(self.inner().create(path)?))
    }
    fn allocate(&self, path: &Path, bytes: u64) -> Result<bool> {
        self.inner().allocate(path, bytes)
    }
    fn create_from_allocated(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>> {
        Ok(self.append(self.inner().create_from_allocated(aside, path)?))
    }
    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        Ok(self.read(self.inner().open(path)?))
    }
    fn open_direct(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        Ok(self.read(self.inner().open_direct(path)?))
    }
    fn prefetch_method(&self) -> (PrefetchMethod, PrefetchStats) {
        self.inner().prefetch_method()
    }
    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>> {
        let file = self.inner().open_log(path, create, direct)?;
        Ok(Arc::new(SlowLog::new(file, &self.device)))
    }
    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner().link(from, to)
    }
    fn links(&self, path: &Path) -> Result<u64> {
        self.inner().links(path)
    }
    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.inner().remove_dir(path)
    }
    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>> {
        let file = self.inner().open_spans(path, create)?;
        Ok(Arc::new(SlowSpans::new(file, &self.device)))
    }
    fn usage(&self, path: &Path) -> Result<FileUsage> {
        self.inner().usage(path)
    }
    fn disk_room(&self, path: &Path) -> Result<Option<DiskRoom>> {
        self.inner().disk_room(path)
    }
    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner().rename(from, to)
    }
    fn remove(&self, path: &Path) -> Result<()> {
        self.inner().remove(path)
    }
    fn exists(&self, path: &Path) -> Result<bool> {
        self.inner().exists(path)
    }
    fn lock(&self, path: &Path) -> Result<Box<dyn Send + Sync>> {
        self.inner().lock(path)
    }
    fn wall_micros(&self) -> u64 {
        self.inner().wall_micros()
    }
    fn monotonic_micros(&self) -> u64 {
        self.inner().monotonic_micros()
    }
    fn random(&self, bytes: &mut [u8]) -> Result<()> {
        self.inner().random(bytes)
    }
}

#[cfg(test)]
mod tests;
