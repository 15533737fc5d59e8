//! Clock, files and threads of the operating system.
#![allow(clippy::disallowed_methods)] // The one place that may use them.

use super::{Clock, Entry, FileInfo, Files, Job, Jobs, LocalFile, Open};
use parking_lot::{Condvar, Mutex};
use rustix::fs::{FallocateFlags, SeekFrom, fallocate, seek};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The clock of the machine.
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// It begins at zero now.
    pub fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now_us(&self) -> u64 {
        self.start.elapsed().as_micros() as u64
    }

    fn unix_s(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        since.map_or(0, |since| since.as_secs())
    }

    fn sleep_us(&self, us: u64) {
        thread::sleep(Duration::from_micros(us));
    }

    fn random(&self) -> u64 {
        let mut bytes = [0; 8];
        // Numbers of the clock do for jitter; names of temporary files are created exclusively.
        match rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty()) {
            Ok(8) => u64::from_ne_bytes(bytes),
            _ => crate::random::SplitMix64::new(self.now_us()).draw(),
        }
    }
}

/// Data of the database is not for everybody, as in the server's own directory.
const FILE_MODE: u32 = 0o660;
/// See [`FILE_MODE`].
const DIRECTORY_MODE: u32 = 0o770;

/// Files of the operating system.
pub struct SystemFiles;

impl Files for SystemFiles {
    fn open(&self, path: &Path, how: Open) -> io::Result<Arc<dyn LocalFile>> {
        let file = OpenOptions::new()
            .read(true)
            .write(how != Open::Read)
            .create(how == Open::Create)
            .create_new(how == Open::New)
            .truncate(false)
            .mode(FILE_MODE)
            .open(path)?;
        Ok(Arc::new(SystemFile(file)))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn link(&self, from: &Path, to: &Path) -> io::Result<()> {
        match fs::hard_link(from, to) {
            // A server of NFS may have made the link and lost the answer; the client's second try
            // then finds the name taken.
            Err(error) if fs::metadata(from).is_ok_and(|info| info.nlink() == 2) => {
                let same = fs::metadata(from)?.ino() == fs::metadata(to)?.ino();
                if same { Ok(()) } else { Err(error) }
            }
            result => result,
        }
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn remove_directory(&self, path: &Path) -> io::Result<()> {
        fs::remove_dir(path)
    }

    fn create_directory(&self, path: &Path) -> io::Result<()> {
        match fs::DirBuilder::new().mode(DIRECTORY_MODE).create(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
            result => result,
        }
    }

    fn sync_directory(&self, path: &Path) -> io::Result<()> {
        File::open(path)?.sync_all()
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(path)? {
            let entry = entry?;
            entries.push(Entry {
                name: entry.file_name().to_string_lossy().into_owned(),
                is_directory: entry.file_type()?.is_dir(),
            });
        }
        Ok(entries)
    }

    fn info(&self, path: &Path) -> io::Result<FileInfo> {
        let info = fs::metadata(path)?;
        Ok(FileInfo {
            bytes: info.len(),
            modified_s: info.mtime().max(0) as u64,
            inode: info.ino(),
        })
    }
}

struct SystemFile(File);

impl LocalFile for SystemFile {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < into.len() {
            match self.0.read_at(&mut into[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_all()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn set_len(&self, bytes: u64) -> io::Result<()> {
        self.0.set_len(bytes)
    }

    fn punch_hole(&self, range: Range<u64>) -> io::Result<()> {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        Ok(fallocate(
            &self.0,
            flags,
            range.start,
            range.end - range.start,
        )?)
    }

    fn data_ranges(&self) -> io::Result<Vec<Range<u64>>> {
        let end = self.len()?;
        let mut ranges = Vec::new();
        let mut at = 0;
        while at < end {
            let start = match seek(&self.0, SeekFrom::Data(at)) {
                Ok(start) => start,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            at = seek(&self.0, SeekFrom::Hole(start))?;
            ranges.push(start..at);
        }
        Ok(ranges)
    }
}

/// How long a drop of the threads waits for jobs under way.
const DROP_PATIENCE: Duration = Duration::from_secs(10);

/// A fixed number of threads, which end when this is dropped: after the jobs that they are in, and
/// without those that wait.
pub struct Threads {
    shared: Arc<ThreadsShared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct ThreadsShared {
    queue: Mutex<JobQueue>,
    added: Condvar,
    /// A thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct JobQueue {
    jobs: VecDeque<Job>,
    ends: bool,
    /// Number of threads that have ended.
    ended: usize,
}

impl Threads {
    /// Starts `count` threads.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(name: &str, count: usize) -> io::Result<Self> {
        let mut started = Self {
            shared: Arc::default(),
            threads: Vec::new(),
        };
        for _ in 0..count {
            let shared = started.shared.clone();
            let builder = thread::Builder::new().name(name.to_owned());
            started.threads.push(builder.spawn(move || shared.work())?);
        }
        Ok(started)
    }
}

impl ThreadsShared {
    fn work(&self) {
        let mut queue = self.queue.lock();
        while !queue.ends {
            let Some(job) = queue.jobs.pop_front() else {
                self.added.wait(&mut queue);
                continue;
            };
            drop(queue);
            // The panic has been printed. The job's own guards have told those who wait for it.
            let _ = catch_unwind(AssertUnwindSafe(job));
            queue = self.queue.lock();
        }
        queue.ended += 1;
        self.ended.notify_all();
    }
}

impl Jobs for Threads {
    fn submit(&self, job: Job) {
        let mut queue = self.shared.queue.lock();
        if !queue.ends {
            queue.jobs.push_back(job);
            self.shared.added.notify_one();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        let left = {
            let mut queue = self.shared.queue.lock();
            queue.ends = true;
            std::mem::take(&mut queue.jobs)
        };
        self.shared.added.notify_all();
        // Jobs may own what locks the queue when it is dropped.
        drop(left);
        // A job may own the last handle of the threads that it runs in.
        let own = thread::current().id();
        let is_own = |handle: &JoinHandle<()>| handle.thread().id() == own;
        let others = self.threads.iter().filter(|handle| !is_own(handle)).count();
        let run_on = |queue: &mut JobQueue| queue.ended < others;
        let waited = {
            let mut queue = self.shared.queue.lock();
            // A call of a network file system may never return. Its thread is left to itself.
            let ended = &self.shared.ended;
            ended.wait_while_for(&mut queue, run_on, DROP_PATIENCE)
        };
        for handle in self.threads.drain(..) {
            if !waited.timed_out() && !is_own(&handle) {
                let _ = handle.join();
            }
        }
    }
}
