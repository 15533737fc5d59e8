//! An environment that fails chosen calls and flips bits in bytes read.

mod files;

use super::{AppendFile, DiskRoom, Env, FileUsage, LogFile, ReadFile, SpanFile};
use crate::base::{Error, Result};
use files::{FaultAppend, FaultLog, FaultRead, FaultSpans};
use parking_lot::{Condvar, Mutex};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// A class of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum CallClass {
    /// Opening for reading, listing, and reading.
    Read = 0,
    /// All writes, durable or not, and calls that preallocate, punch holes or truncate.
    Write = 1,
    /// Syncs of a file or a directory, also the sync in a durable write and in a preallocation.
    Sync = 2,
    /// Calls that create or link a file, create a directory, or reserve space.
    Create = 3,
    /// Renaming.
    Rename = 4,
    /// Removing.
    Remove = 5,
    /// Calls that open a file or a directory, for whatever purpose, including the sync of a
    /// directory that is not [kept open](Env::keep_dir_open). Each such call belongs to two
    /// classes: this one, and the one of its purpose, such as [`Self::Read`]. A fault of this class
    /// is applied first; if the call fails by it, the call is not counted in the other class.
    Open = 6,
}

const CLASSES: usize = 7;

/// Time after which a hanging call panics, because the test has forgotten to release it.
const HANG_MAX: Duration = Duration::from_secs(120);

/// How a call fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(i32)]
pub enum Errno {
    /// Input/output error.
    Io = 5,
    /// Out of memory.
    NoMemory = 12,
    /// The system has no descriptor left.
    SystemTableFull = 23,
    /// The process has no descriptor left.
    ProcessTableFull = 24,
    /// No space left on device.
    NoSpace = 28,
    /// The call returns no error but panics, as a bug in the code around it would.
    Panic = 0,
}

/// Selects the calls that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fault {
    /// The class of the calls that fail.
    pub class: CallClass,
    /// Number of the first call that fails, counted from now on; the next call is 1.
    pub nth: u64,
    /// Whether all later calls of the class fail, too.
    pub sticky: bool,
    /// The error of these calls.
    pub errno: Errno,
}

/// Wraps an environment and fails chosen calls. Clones share counters and faults.
///
/// A failed write changes nothing. There is one exception, a durable write that fails by a fault of
/// class [`CallClass::Sync`]. If it writes whole blocks, they are written but not durable.
/// Otherwise it is durable although the call returns an error.
#[derive(Clone)]
pub struct FaultEnv {
    inner: Arc<dyn Env>,
    plan: Arc<Mutex<FaultPlan>>,
    answers: Arc<Condvar>,
}

#[derive(Default)]
struct FaultPlan {
    counts: [u64; CLASSES],
    faults: Vec<(u64, Fault)>,
    flips: Vec<Flip>,
    unreadable: Vec<String>,
    hung: Vec<PathBuf>,
    /// Number of calls that hang.
    hanging: usize,
    /// Directories that are kept open.
    dirs: Vec<PathBuf>,
}

struct Flip {
    name: String,
    bit: u64,
}

impl FaultEnv {
    /// Wraps `inner`; nothing fails yet.
    pub fn new(inner: Arc<dyn Env>) -> Self {
        Self {
            inner,
            plan: Arc::default(),
            answers: Arc::default(),
        }
    }

    /// Adds a fault.
    pub fn inject(&self, fault: Fault) {
        let mut plan = self.plan.lock();
        let at = plan.counts[fault.class as usize] + fault.nth;
        plan.faults.push((at, fault));
    }

    /// From now on reads of files named `name` (without directory) find bit number `bit` of the
    /// file flipped.
    pub fn flip_bit(&self, name: &str, bit: u64) {
        self.plan.lock().flips.push(Flip {
            name: name.to_owned(),
            bit,
        });
    }

    /// From now on reads of files named `name` (without directory) fail with [`Errno::Io`], as with
    /// a broken sector.
    pub fn fail_reads(&self, name: &str) {
        self.plan.lock().unreadable.push(name.to_owned());
    }

    /// Calls on `dir`, which may be a file, and on paths in it hang until [`Self::answer`] or
    /// [`Self::clear`], as with a server that does not answer.
    pub fn hang(&self, dir: &Path) {
        self.plan.lock().hung.push(dir.to_owned());
    }

    /// Number of calls that hang now.
    pub fn hanging(&self) -> usize {
        self.plan.lock().hanging
    }

    /// Lets the calls go on that hang because of [`Self::hang`] with `dir`.
    pub fn answer(&self, dir: &Path) {
        self.plan.lock().hung.retain(|hung| hung != dir);
        self.answers.notify_all();
    }

    /// Removes all faults, flipped bits and broken sectors, and lets hanging calls go on.
    pub fn clear(&self) {
        let mut plan = self.plan.lock();
        plan.faults.clear();
        plan.flips.clear();
        plan.unreadable.clear();
        plan.hung.clear();
        self.answers.notify_all();
    }

    /// Number of calls of a class so far, failed ones included.
    pub fn count(&self, class: CallClass) -> u64 {
        self.plan.lock().counts[class as usize]
    }

    fn pass(&self, class: CallClass, what: &str, path: &Path) -> Result<()> {
        let mut plan = self.plan.lock();
        while plan.hung.iter().any(|dir| path.starts_with(dir)) {
            plan.hanging += 1;
            let late = self.answers.wait_for(&mut plan, HANG_MAX).timed_out();
            plan.hanging -= 1;
            assert!(!late, "{what} {}: nobody let it go on", path.display());
        }
        plan.counts[class as usize] += 1;
        let count = plan.counts[class as usize];
        let hit = |&&(at, fault): &&(u64, Fault)| {
            fault.class == class && (count == at || fault.sticky && count > at)
        };
        match plan.faults.iter().find(hit) {
            None => Ok(()),
            Some((_, fault)) if fault.errno == Errno::Panic => {
                drop(plan);
                panic!("{what} {} (injected)", path.display());
            }
            Some((_, fault)) => {
                let error = std::io::Error::from_raw_os_error(fault.errno as i32);
                let what = format_args!("{what} {} (injected)", path.display());
                Err(match class {
                    CallClass::Open => Error::open(&error, what),
                    _ => Error::io(&error, what),
                })
            }
        }
    }

    fn check_readable(&self, path: &Path) -> Result<()> {
        let name = path.file_name().unwrap_or_default();
        match self
            .plan
            .lock()
            .unreadable
            .iter()
            .any(|of| name == of.as_str())
        {
            true => {
                let error = std::io::Error::from_raw_os_error(Errno::Io as i32);
                Err(Error::io(
                    &error,
                    format_args!("read {} (injected)", path.display()),
                ))
            }
            false => Ok(()),
        }
    }

    fn flip(&self, path: &Path, offset: u64, buf: &mut [u8]) {
        let name = path.file_name().unwrap_or_default();
        for flip in self
            .plan
            .lock()
            .flips
            .iter()
            .filter(|f| name == f.name.as_str())
        {
            let byte = (flip.bit / 8).checked_sub(offset);
            if let Some(byte) = byte.and_then(|at| buf.get_mut(at as usize)) {
                *byte ^= 1 << (flip.bit % 8);
            }
        }
    }

    fn handle(&self, path: &Path) -> FaultyFile {
        FaultyFile {
            env: self.clone(),
            path: path.to_owned(),
        }
    }
}

/// The path of an open file, and the [`FaultEnv`] that decides which calls on that file fail.
struct FaultyFile {
    env: FaultEnv,
    path: PathBuf,
}

impl FaultyFile {
    fn pass(&self, class: CallClass, what: &str) -> Result<()> {
        self.env.pass(class, what, &self.path)
    }
}

impl Env for FaultEnv {
    fn create_dir_all(&self, path: &Path) -> Result<()> {
        self.pass(CallClass::Create, "create directory", path)?;
        self.inner.create_dir_all(path)
    }

    fn list_dir(&self, path: &Path) -> Result<Vec<String>> {
        self.pass(CallClass::Open, "open", path)?;
        self.pass(CallClass::Read, "list", path)?;
        self.inner.list_dir(path)
    }

    fn sync_dir(&self, path: &Path) -> Result<()> {
        if !self.plan.lock().dirs.iter().any(|dir| dir == path) {
            self.pass(CallClass::Open, "open directory", path)?;
        }
        self.pass(CallClass::Sync, "sync directory", path)?;
        self.inner.sync_dir(path)
    }

    fn keep_dir_open(&self, path: &Path) -> Result<()> {
        self.pass(CallClass::Open, "open directory", path)?;
        self.inner.keep_dir_open(path)?;
        self.plan.lock().dirs.push(path.to_owned());
        Ok(())
    }

    fn create(&self, path: &Path) -> Result<Box<dyn AppendFile>> {
        self.pass(CallClass::Open, "open", path)?;
        self.pass(CallClass::Create, "create", path)?;
        let file = self.inner.create(path)?;
        Ok(Box::new(FaultAppend::new(self.handle(path), file)))
    }

    fn allocate(&self, path: &Path, bytes: u64) -> Result<bool> {
        self.pass(CallClass::Open, "open", path)?;
        self.pass(CallClass::Create, "set room aside for", path)?;
        self.inner.allocate(path, bytes)
    }

    fn create_from_allocated(&self, aside: &Path, path: &Path) -> Result<Box<dyn AppendFile>> {
        self.pass(CallClass::Open, "open", aside)?;
        self.pass(CallClass::Rename, "rename", aside)?;
        let file = self.inner.create_from_allocated(aside, path)?;
        Ok(Box::new(FaultAppend::new(self.handle(path), file)))
    }

    fn open(&self, path: &Path) -> Result<Arc<dyn ReadFile>> {
        self.pass(CallClass::Open, "open", path)?;
        self.pass(CallClass::Read, "open", path)?;
        let file = self.inner.open(path)?;
        Ok(Arc::new(FaultRead::new(self.handle(path), file)))
    }

    fn open_log(&self, path: &Path, create: bool, direct: bool) -> Result<Arc<dyn LogFile>> {
        self.pass(CallClass::Open, "open", path)?;
        if create {
            self.pass(CallClass::Create, "create", path)?;
        }
        let file = self.inner.open_log(path, create, direct)?;
        Ok(Arc::new(FaultLog::new(self.handle(path), file)))
    }

    fn link(&self, from: &Path, to: &Path) -> Result<()> {
        self.pass(CallClass::Create, "link", from)?;
        self.inner.link(from, to)
    }

    fn links(&self, path: &Path) -> Result<u64> {
        self.pass(CallClass::Read, "look up", path)?;
        self.inner.links(path)
    }

    fn remove_dir(&self, path: &Path) -> Result<()> {
        self.pass(CallClass::Remove, "remove", path)?;
        self.inner.remove_dir(path)
    }

    fn open_spans(&self, path: &Path, create: bool) -> Result<Arc<dyn SpanFile>> {
        self.pass(CallClass::Open, "open", path)?;
        if create {
            self.pass(CallClass::Create, "create", path)?;
        }
        let file = self.inner.open_spans(path, create)?;
        Ok(Arc::new(FaultSpans::new(self.handle(path), file)))
    }

    fn usage(&self, path: &Path) -> Result<FileUsage> {
        self.pass(CallClass::Read, "stat", path)?;
        self.inner.usage(path)
    }

    fn disk_room(&self, path: &Path) -> Result<Option<DiskRoom>> {
        self.pass(CallClass::Read, "stat", path)?;
        self.inner.disk_room(path)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.pass(CallClass::Rename, "rename", from)?;
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.pass(CallClass::Remove, "remove", path)?;
        self.inner.remove(path)
    }

    fn exists(&self, path: &Path) -> Result<bool> {
        self.pass(CallClass::Read, "look up", path)?;
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

#[cfg(test)]
mod tests;
