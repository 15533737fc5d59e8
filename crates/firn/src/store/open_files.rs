//! The descriptors of data files that are open for reading, limited in number.
//!
//! A reader of a file holds a [`LazyFile`] as long as it likes. The lazy file opens the file at the
//! first read, and may be closed between two reads; the next read opens it again. So the number of
//! descriptors does not depend on the number of readers, and what a reader has decoded (index,
//! dictionaries) stays when its descriptor is closed: a descriptor costs one system call to get
//! back, the decoded form costs a read of up to a megabyte.
//!
//! The clock algorithm chooses the file to close: the oldest in the queue that was not read since
//! its last turn.
//!
//! Invariants:
//! - All readers of a file share one lazy file, so a file has at most one descriptor.
//! - A file that is removed while a reader has it is opened before, and stays open until its last
//!   reader has gone, as with an ordinary descriptor.
//! - If no descriptor can be closed, because all belong to reads in progress or to removed files,
//!   the file is opened anyway, and the excess is counted.
//!
//! Lock order: `LazyFile::opening`, then `OpenFiles::queue`. The search for a file to close takes
//! `opening` of another file only if it is free.
//!
//! Rejected: to keep a removed file's readers from reopening it by a count of users in the file
//! handle. Iterators, backups and blob collection hold readers without a handle.

use super::file_name::{FileId, FileKind};
use crate::base::{ErrorKind, Result};
use crate::env::{Env, PrefetchBatch, ReadClass, ReadFile, descriptor_limit};
use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// When the operating system refuses a descriptor, the number of open files divided by this number
/// is closed at once.
const CLOSED_SHARE: u64 = 8;

/// When the queue has more entries than twice the number of open files plus this number, the
/// entries of closed files are removed from it.
const DEAD_TURNS_MAX: u64 = 64;

/// The smallest limit: some files that belong together are read at the same time.
const OPEN_FILES_MIN: u64 = 16;

/// The limit on open files for the value `count` of the user's setting. The limit is at least
/// [`OPEN_FILES_MIN`]. For 0 it is half of the process's descriptors, because the server needs the
/// others for tables and connections.
pub fn open_files_limit(count: u64) -> u64 {
    let limit = match count {
        0 => descriptor_limit() / 2,
        count => count,
    };
    limit.max(OPEN_FILES_MIN)
}

/// Counters of [`OpenFiles`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct OpenFileStats {
    /// Files that are open now.
    pub open: u64,
    /// The limit.
    pub limit: u64,
    /// Files opened, since the database was opened. A file that was closed and opened again counts
    /// again.
    pub opens: u64,
    /// Files closed to make room for others.
    pub closes: u64,
    /// Number of times that a file was opened although the limit was reached, because no other file
    /// could be closed.
    pub over_limit: u64,
}

/// Names a file and the way in which it is read.
type Key = (FileKind, FileId, bool);

/// The open data files of a directory.
pub struct OpenFiles {
    limit: AtomicU64,
    open: Arc<AtomicU64>,
    opens: AtomicU64,
    closes: AtomicU64,
    over_limit: AtomicU64,
    /// All lazy files that a reader has, open or not.
    known: Mutex<HashMap<Key, Weak<LazyFile>>>,
    /// The open files, in the order of their turns.
    queue: Mutex<VecDeque<Weak<LazyFile>>>,
}

impl OpenFiles {
    /// Makes an instance without open files, which opens at most `limit` descriptors.
    pub fn new(limit: u64) -> Arc<Self> {
        Arc::new(Self {
            limit: AtomicU64::new(limit),
            open: Arc::default(),
            opens: AtomicU64::new(0),
            closes: AtomicU64::new(0),
            over_limit: AtomicU64::new(0),
            known: Mutex::default(),
            queue: Mutex::default(),
        })
    }

    /// Changes the limit, and closes files until the new one is kept.
    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
        while self.open.load(Ordering::Relaxed) > limit && self.close_one() {}
    }

    /// The counters.
    pub fn stats(&self) -> OpenFileStats {
        OpenFileStats {
            open: self.open.load(Ordering::Relaxed),
            limit: self.limit.load(Ordering::Relaxed),
            opens: self.opens.load(Ordering::Relaxed),
            closes: self.closes.load(Ordering::Relaxed),
            over_limit: self.over_limit.load(Ordering::Relaxed),
        }
    }

    /// Opens the file at `path`, which has the kind and id of the key. `direct` says that reads
    /// bypass the page cache, `grows` that the file's size changes.
    pub(super) fn open(
        self: &Arc<Self>,
        env: &Arc<dyn Env>,
        (kind, id, direct): Key,
        path: PathBuf,
        grows: bool,
    ) -> Result<Arc<LazyFile>> {
        let key = (kind, id, direct);
        let mut known = self.known.lock();
        let slot = known.entry(key).or_default();
        let file = match slot.upgrade() {
            Some(file) => file,
            None => {
                let file = Arc::new(LazyFile {
                    env: Arc::clone(env),
                    open_files: Arc::clone(self),
                    key,
                    path,
                    size: (!grows).then(OnceLock::new),
                    opened: ArcSwapOption::empty(),
                    opening: Mutex::new(false),
                    used: AtomicBool::new(false),
                });
                *slot = Arc::downgrade(&file);
                file
            }
        };
        drop(known);
        file.opened()?;
        Ok(file)
    }

    /// Opens the file for its readers, if it has any, so that they can go on after its removal.
    ///
    /// # Errors
    /// Those of opening; the file must not be removed then.
    pub(super) fn keep_for_readers(&self, kind: FileKind, id: FileId) -> Result<()> {
        for direct in [false, true] {
            let file = self.known.lock().get(&(kind, id, direct)).cloned();
            if let Some(file) = file.and_then(|file| file.upgrade()) {
                file.keep_open()?;
                // A later open of the name finds no file.
                self.known.lock().remove(&(kind, id, direct));
            }
        }
        Ok(())
    }

    /// Closes files until one more fits within the limit.
    fn make_room(&self) {
        while self.open.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed) {
            if !self.close_one() {
                self.over_limit.fetch_add(1, Ordering::Relaxed);
                return;
            }
        }
    }

    /// Closes a share of the open files, after the operating system has refused a descriptor.
    /// Returns whether any was closed.
    fn close_share(&self) -> bool {
        let share = self.open.load(Ordering::Relaxed) / CLOSED_SHARE;
        (0..share.max(1)).filter(|_| self.close_one()).count() > 0
    }

    /// Closes one open file, which the clock algorithm chooses. Returns whether there was one to
    /// close.
    fn close_one(&self) -> bool {
        let mut queue = self.queue.lock();
        // The clock algorithm: a file that was read since its last turn is spared and goes to the
        // end of the queue. But at most as many files are spared as the queue had at the beginning,
        // so the second round closes a file even if all files are being read meanwhile.
        let mut spared = queue.len();
        for _ in 0..2 * queue.len() {
            let Some(next) = queue.pop_front() else {
                return false;
            };
            let Some(file) = next.upgrade() else {
                continue;
            };
            if spared > 0 && file.used.swap(false, Ordering::Relaxed) {
                spared -= 1;
                queue.push_back(next);
                continue;
            }
            spared = spared.saturating_sub(1);
            match file.close() {
                Closing::Closed => {
                    self.closes.fetch_add(1, Ordering::Relaxed);
                    return true;
                }
                Closing::Kept => {}
                Closing::Busy => queue.push_back(next),
            }
        }
        false
    }
}

/// The result of an attempt to close a file.
enum Closing {
    Closed,
    /// The file was removed, so its readers need the descriptor.
    Kept,
    /// Another thread opens or keeps the file at this moment.
    Busy,
}

/// A file that is opened when it is read; see the module's comment.
pub(super) struct LazyFile {
    env: Arc<dyn Env>,
    open_files: Arc<OpenFiles>,
    key: Key,
    path: PathBuf,
    /// The size, once known; `None` for a file that grows.
    size: Option<OnceLock<u64>>,
    opened: ArcSwapOption<Opened>,
    /// A thread must hold this mutex while it opens or closes the file, or marks it as one that
    /// must stay open. The value is that mark.
    opening: Mutex<bool>,
    /// Whether the file was read since it was opened, or since its last turn in the queue.
    used: AtomicBool,
}

/// A descriptor. It counts as open until the last read that uses it has ended.
struct Opened {
    file: Arc<dyn ReadFile>,
    open: Arc<AtomicU64>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl LazyFile {
    /// The descriptor, which is opened if necessary, and marked as used.
    fn opened(self: &Arc<Self>) -> Result<Arc<Opened>> {
        if let Some(opened) = self.in_use() {
            return Ok(opened);
        }
        let mut kept = self.opening.lock();
        self.open_locked(&mut kept)
    }

    fn in_use(&self) -> Option<Arc<Opened>> {
        let opened = self.opened.load_full();
        // Mark the file as used only if it is not marked yet: a needless store would take the cache
        // line away from other processors that read the file.
        if opened.is_some() && !self.used.load(Ordering::Relaxed) {
            self.used.store(true, Ordering::Relaxed);
        }
        opened
    }

    /// As [`Self::opened`]; the caller must hold `opening`.
    fn open_locked(self: &Arc<Self>, _opening: &mut bool) -> Result<Arc<Opened>> {
        if let Some(opened) = self.in_use() {
            return Ok(opened);
        }
        let files = &self.open_files;
        files.make_room();
        let file = loop {
            match self.open_file() {
                Err(e) if *e.kind() == ErrorKind::NoDescriptor && files.close_share() => {}
                opened => break opened?,
            }
        };
        files.open.fetch_add(1, Ordering::Relaxed);
        files.opens.fetch_add(1, Ordering::Relaxed);
        let opened = Arc::new(Opened {
            file,
            open: Arc::clone(&files.open),
        });
        self.opened.store(Some(Arc::clone(&opened)));
        let mut queue = files.queue.lock();
        // Files whose last reader has gone leave their turns behind.
        if queue.len() as u64 > 2 * files.open.load(Ordering::Relaxed) + DEAD_TURNS_MAX {
            queue.retain(|turn| turn.strong_count() > 0);
        }
        queue.push_back(Arc::downgrade(self));
        drop(queue);
        Ok(opened)
    }

    fn open_file(&self) -> Result<Arc<dyn ReadFile>> {
        match self.key.2 {
            true => self.env.open_direct(&self.path),
            false => self.env.open(&self.path),
        }
    }

    fn keep_open(self: &Arc<Self>) -> Result<()> {
        let mut kept = self.opening.lock();
        self.open_locked(&mut kept)?;
        *kept = true;
        Ok(())
    }

    fn close(&self) -> Closing {
        match self.opening.try_lock() {
            None => Closing::Busy,
            Some(kept) if *kept => Closing::Kept,
            Some(_) => {
                self.opened.store(None);
                Closing::Closed
            }
        }
    }
}

impl Drop for LazyFile {
    fn drop(&mut self) {
        let mut known = self.open_files.known.lock();
        // This was the last reference to the lazy file. Forget the file, unless another reader has
        // opened it meanwhile and `known` has a new [`LazyFile`] under the same key.
        if known.get(&self.key).is_some_and(|w| w.strong_count() == 0) {
            known.remove(&self.key);
        }
    }
}

/// A reader's share of a lazy file.
pub(super) struct SharedFile(pub(super) Arc<LazyFile>);

impl ReadFile for SharedFile {
    fn read_exact_at(&self, class: ReadClass, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.0.opened()?.file.read_exact_at(class, offset, buf)
    }

    fn size(&self) -> Result<u64> {
        let Some(size) = &self.0.size else {
            return self.0.opened()?.file.size();
        };
        match size.get() {
            Some(size) => Ok(*size),
            None => {
                let found = self.0.opened()?.file.size()?;
                Ok(*size.get_or_init(|| found))
            }
        }
    }

    fn prefetch(&self, offset: u64, len: u64, reads: &mut PrefetchBatch) {
        // A prefetch is only a hint and must not wait for a descriptor. So do nothing if the file
        // is closed.
        if let Some(opened) = self.0.in_use() {
            opened.file.prefetch(offset, len, reads);
        }
    }
}

#[cfg(test)]
mod tests;
