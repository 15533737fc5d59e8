//! A bulk load takes entries of several indexes in any order and writes them, sorted, into files of
//! the last level.

use super::load_output::LoadFailure;
use super::sort_buffer::{LoadEntry, SortBuffer};
use super::sorter::{Sorter, Uniqueness};
use super::{NewFiles, RunFactory};
use crate::base::memory_tracker::{MemoryCharge, MemoryTracker};
use crate::base::{Error, ErrorKind, Result};
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// The load collects entries of an index in a list in memory. If they came in key order, the list
/// is passed to the load's thread, which writes files, once it has this many bytes, or a quarter of
/// the load's memory if that is less.
const STREAM_BYTES: u64 = 2 << 20;

/// Number of sorters of one load that merge their runs at the same time when the load ends.
const MERGES: usize = 2;

/// Interval at which a waiting caller checks for interrupts and reports progress.
const LOOK: Duration = Duration::from_millis(50);

/// A function that holds a load to the rate of background I/O: it waits as long as the given number
/// of bytes takes at that rate, or until the flag is set. An error ends the load.
pub type Pacer = Arc<dyn Fn(u64, &AtomicBool) -> Result<()> + Send + Sync>;

/// The resources that a load may use.
pub struct LoadLimits {
    /// Memory for entries that wait to be sorted or written, bytes.
    pub memory: u64,
    /// Tells other loads of that memory.
    pub allowance: MemoryCharge,
    /// Whether the load sorts and writes in a thread of its own.
    pub threads: bool,
    /// Keeps the load within the rate of background I/O.
    pub pacer: Pacer,
    /// Set once the session is killed: callers that add entries stop waiting.
    pub interrupted: Arc<AtomicBool>,
    /// Gauge that counts the memory.
    pub gauge: Arc<MemoryTracker>,
}

impl LoadLimits {
    /// Reduces the memory to that of one of `loads` loads that share it.
    pub fn share(&mut self, loads: u64) {
        self.memory /= loads.max(1);
        self.allowance.set(self.memory);
    }
}

/// Reports the progress of [`IndexLoad::finish`]: entries merged, entries to merge. An error ends
/// the load.
pub type LoadProgress<'a> = &'a mut dyn FnMut(u64, u64) -> Result<()>;

/// Turns entries of several indexes, one sorter each, into files of the last level.
///
/// Steps: call [`Self::add`] with entries in any order, then [`Self::finish`]. The resulting files
/// share no user key, and neither log nor manifest names them yet.
///
/// The caller's thread packs entries into lists. When the lists take half of the memory, the
/// largest one goes to the load's own thread, which sorts, compresses and writes it while the
/// caller continues. A list whose entries came in key order goes to that thread earlier, at
/// `STREAM_BYTES`. The other half of the memory holds the lists that wait for that thread. Without
/// threads the caller's thread sorts and writes a list when it would have passed it on.
///
/// At the end the sorters merge their runs, two sorters at a time, in the order of their numbers.
/// If several sorters find a duplicate, the load reports that of the sorter with the smallest
/// number.
///
/// Invariant: a load that is dropped unfinished leaves no file.
///
/// Rejected: one sorter for all indexes (an index whose entries come in order could then not be
/// written without sorting); lists of owned keys and values (an allocation per entry cost more than
/// sorting it).
pub struct IndexLoad {
    lists: Vec<SortBuffer>,
    /// Memory of the lists that the caller's thread still fills, bytes. `charge` counts the same
    /// amount in the memory tracker.
    held: u64,
    streams: Vec<bool>,
    memory: u64,
    allowance: MemoryCharge,
    charge: MemoryCharge,
    worker: Worker,
}

enum Worker {
    Inline(Box<Sorters>),
    Thread {
        shared: Arc<LoadShared>,
        thread: Option<JoinHandle<()>>,
    },
}

struct Sorters {
    sorters: Vec<Sorter>,
    pacer: Pacer,
    interrupted: Arc<AtomicBool>,
}

/// State shared by the caller's thread and the load's own.
struct LoadShared {
    queue: Mutex<LoadQueue>,
    changed: Condvar,
    interrupted: Arc<AtomicBool>,
    cancel: AtomicBool,
    merged: AtomicU64,
    to_merge: AtomicU64,
}

/// A list that the caller's thread has passed on to a sorter. Its memory stays charged until its
/// entries are in a file.
struct QueuedList {
    sorter: usize,
    list: SortBuffer,
    charge: MemoryCharge,
    /// Whether this is the last list for the sorter.
    last: bool,
}

#[derive(Default)]
struct LoadQueue {
    lists: VecDeque<QueuedList>,
    /// Memory in bytes of the lists of entries that were passed to the load's thread and that it
    /// has not written to a file yet.
    in_flight: u64,
    closed: bool,
    outcome: Option<Result<NewFiles, LoadFailure>>,
}

fn canceled() -> Error {
    Error::new(ErrorKind::Interrupted, "the load was interrupted")
}

impl IndexLoad {
    /// A load with a sorter for each element of `sorters`.
    ///
    /// # Errors
    /// `Io` if the system cannot start a thread.
    pub fn new(
        ingest: &Arc<RunFactory>,
        sorters: &[Uniqueness],
        limits: LoadLimits,
    ) -> Result<Self> {
        let made = sorters.iter().enumerate();
        let made = made.map(|(i, uniqueness)| Sorter::new(ingest, i, *uniqueness, limits.memory));
        let work = Sorters {
            sorters: made.collect(),
            pacer: limits.pacer,
            interrupted: limits.interrupted,
        };
        let worker = match limits.threads {
            false => Worker::Inline(Box::new(work)),
            true => Worker::start(work)?,
        };
        Ok(Self {
            lists: sorters.iter().map(|_| SortBuffer::default()).collect(),
            held: 0,
            streams: sorters.iter().map(|u| *u != Uniqueness::Start).collect(),
            memory: limits.memory.max(1),
            allowance: limits.allowance,
            charge: MemoryCharge::new(limits.gauge),
            worker,
        })
    }

    /// Changes the memory for waiting entries, bytes.
    pub fn set_memory(&mut self, memory: u64) {
        self.memory = memory.max(1);
        self.allowance.set(memory);
    }

    /// Adds an entry to sorter number `sorter`.
    ///
    /// # Errors
    /// [`LoadFailure::Duplicate`], or an error: `Interrupted`, `Corruption`, `NoSpace`, `Io`;
    /// `ShutDown` if the load's thread panicked. With threads, the error may be that of an entry
    /// added earlier.
    pub fn add(&mut self, sorter: usize, entry: LoadEntry<'_>) -> Result<(), LoadFailure> {
        let list = &mut self.lists[sorter];
        let before = list.memory();
        let in_order = list.push(entry);
        let now = list.memory();
        if now != before {
            self.held += now - before;
            self.charge.set(self.held);
        }
        self.streams[sorter] &= in_order;
        if self.streams[sorter] && now >= STREAM_BYTES.min(self.memory / 4) {
            return self.hand_over(sorter, false);
        }
        while self.held > self.memory / 2 {
            let largest = (0..self.lists.len()).max_by_key(|&i| self.lists[i].memory());
            self.hand_over(largest.unwrap_or(0), false)?;
        }
        Ok(())
    }

    fn hand_over(&mut self, sorter: usize, last: bool) -> Result<(), LoadFailure> {
        let list = std::mem::take(&mut self.lists[sorter]);
        let charge = self.charge.split_off(list.memory());
        self.held -= list.memory();
        self.charge.set(self.held);
        let handed = QueuedList {
            sorter,
            list,
            charge,
            last,
        };
        self.worker.take(handed, self.memory / 2)
    }

    /// Merges the remaining runs and returns the files, complete and synced. Their names are not
    /// durable yet ([`NewFiles::sync`]).
    ///
    /// # Errors
    /// As [`Self::add`]; `InvalidArgument` if the same entry was added twice to an index that is
    /// not unique; the error that `progress` returns.
    pub fn finish(mut self, progress: LoadProgress<'_>) -> Result<NewFiles, LoadFailure> {
        for sorter in 0..self.lists.len() {
            self.hand_over(sorter, true)?;
        }
        match &mut self.worker {
            Worker::Inline(work) => {
                let sorters = std::mem::take(&mut work.sorters);
                let work = Sorters {
                    sorters,
                    pacer: Arc::clone(&work.pacer),
                    interrupted: Arc::clone(&work.interrupted),
                };
                work.finish_inline(progress)
            }
            Worker::Thread { shared, .. } => shared.wait_for_end(progress),
        }
    }
}

impl Worker {
    fn start(work: Sorters) -> Result<Self> {
        let shared = Arc::new(LoadShared {
            queue: Mutex::default(),
            changed: Condvar::new(),
            interrupted: Arc::clone(&work.interrupted),
            cancel: AtomicBool::new(false),
            merged: AtomicU64::new(0),
            to_merge: AtomicU64::new(0),
        });
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("firn-load".to_owned())
            .spawn(move || theirs.run(work))
            .map_err(|e| Error::io(&e, "start a thread for a load"))?;
        Ok(Self::Thread {
            shared,
            thread: Some(thread),
        })
    }

    fn take(&mut self, handed: QueuedList, room: u64) -> Result<(), LoadFailure> {
        match self {
            Self::Inline(work) => {
                let (pacer, interrupted) = (Arc::clone(&work.pacer), Arc::clone(&work.interrupted));
                work.take(handed, &mut |bytes| pacer(bytes, &interrupted))
            }
            Self::Thread { shared, .. } => shared.push(handed, room),
        }
    }
}

impl Sorters {
    fn take(
        &mut self,
        handed: QueuedList,
        pace: &mut dyn FnMut(u64) -> Result<()>,
    ) -> Result<(), LoadFailure> {
        let sorter = &mut self.sorters[handed.sorter];
        match handed.last {
            true => sorter.take_last(handed.list, handed.charge, pace),
            false => sorter.take(handed.list, pace),
        }
    }

    fn finish_inline(self, progress: LoadProgress<'_>) -> Result<NewFiles, LoadFailure> {
        let total = self.sorters.iter().map(Sorter::waiting).sum();
        let mut all = LoadFiles::default();
        let mut before = 0;
        for sorter in self.sorters {
            let waiting = sorter.waiting();
            let mut here = before;
            // The sorter calls `pace` first and then `merged`. So `pace` reports to `progress` the
            // number of entries that the previous call of `merged` has stored in `seen`.
            let seen = AtomicU64::new(before);
            let mut pace = |bytes| {
                progress(seen.load(Ordering::Relaxed), total)?;
                (self.pacer)(bytes, &self.interrupted)
            };
            let mut merged = |count| {
                here = before + count;
                seen.store(here, Ordering::Relaxed);
            };
            let finished = sorter.finish(&mut pace, &mut merged);
            all.add(finished)?;
            before += waiting;
        }
        all.finish()
    }

    /// Merges two sorters at a time.
    fn finish_in_threads(self, shared: &LoadShared) -> Result<NewFiles, LoadFailure> {
        let total: u64 = self.sorters.iter().map(Sorter::waiting).sum();
        shared.to_merge.store(total, Ordering::Relaxed);
        let count = self.sorters.len();
        let waiting: Mutex<VecDeque<(usize, Sorter)>> =
            Mutex::new(self.sorters.into_iter().enumerate().collect());
        // Smallest number of a sorter that has failed. Sorters with larger numbers do not start any
        // more, or stop: only the failure of the smallest number is reported.
        let failed = AtomicU64::new(u64::MAX);
        let done: Mutex<Vec<(usize, Finished)>> = Mutex::default();
        let pacer = &self.pacer;
        let work = || {
            loop {
                let Some((number, sorter)) = waiting.lock().pop_front() else {
                    return;
                };
                let outdated = || failed.load(Ordering::Relaxed) < number as u64;
                let mut pace = |bytes| {
                    if outdated() || shared.cancel.load(Ordering::Relaxed) {
                        return Err(canceled());
                    }
                    pacer(bytes, &shared.cancel)
                };
                let mut last = 0;
                let mut merged = |count| {
                    shared.merged.fetch_add(count - last, Ordering::Relaxed);
                    last = count;
                };
                let finished = match outdated() {
                    true => Err(canceled().into()),
                    false => guard(|| sorter.finish(&mut pace, &mut merged)),
                };
                if finished.is_err() {
                    failed.fetch_min(number as u64, Ordering::Relaxed);
                }
                done.lock().push((number, finished));
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..MERGES.min(count) {
                let builder = std::thread::Builder::new().name("firn-load".to_owned());
                // If a helper thread cannot be started, the present thread finishes all sorters.
                let _ = builder.spawn_scoped(scope, work);
            }
            work();
        });
        let mut done = done.into_inner();
        done.sort_by_key(|(number, _)| *number);
        let mut all = LoadFiles::default();
        for (_, finished) in done {
            all.add(finished)?;
        }
        all.finish()
    }
}

/// Result of a sorter: its files, and whether the same entry came twice in an index that is not
/// unique.
type Finished = Result<(NewFiles, bool), LoadFailure>;

#[derive(Default)]
struct LoadFiles {
    /// Files of the first sorter.
    files: Option<NewFiles>,
    others: Vec<NewFiles>,
    twice: bool,
}

impl LoadFiles {
    /// Adds the result of the next sorter. If it is a `Duplicate`, moves the files of the first
    /// sorter into it, so that the caller can look the other row up.
    fn add(&mut self, finished: Finished) -> Result<(), LoadFailure> {
        match finished {
            Ok((files, twice)) => {
                self.twice |= twice;
                if self.files.is_some() {
                    self.others.push(files);
                } else {
                    self.files = Some(files);
                }
                Ok(())
            }
            Err(LoadFailure::Duplicate(mut duplicate)) => {
                duplicate.first = self.files.take();
                Err(LoadFailure::Duplicate(duplicate))
            }
            Err(failure) => Err(failure),
        }
    }

    fn finish(self) -> Result<NewFiles, LoadFailure> {
        match self.files {
            Some(_) if self.twice => {
                Err(Error::invalid("two rows of a load have the same entry in an index").into())
            }
            Some(mut files) => {
                self.others
                    .into_iter()
                    .for_each(|others| files.append(others));
                Ok(files)
            }
            None => Err(Error::invalid("a load without sorters").into()),
        }
    }
}

/// Runs `f` and turns a panic into a `ShutDown` error.
fn guard<T>(f: impl FnOnce() -> Result<T, LoadFailure>) -> Result<T, LoadFailure> {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<String>().map(String::as_str);
        let words = words.or_else(|| panic.downcast_ref::<&str>().copied());
        let words = words.unwrap_or("no message");
        let message = format!("bug: a load panicked: {words}");
        Err(Error::new(ErrorKind::ShutDown, message).into())
    })
}

impl LoadShared {
    /// Main function of the load's thread.
    fn run(&self, mut work: Sorters) {
        let outcome = guard(|| {
            while let Some(handed) = self.next() {
                let memory = handed.list.memory();
                let pacer = Arc::clone(&work.pacer);
                work.take(
                    handed,
                    &mut |bytes| match self.cancel.load(Ordering::Relaxed) {
                        true => Err(canceled()),
                        false => pacer(bytes, &self.cancel),
                    },
                )?;
                self.queue.lock().in_flight -= memory;
                self.changed.notify_all();
            }
            match self.cancel.load(Ordering::Relaxed) {
                true => Err(canceled().into()),
                false => work.finish_in_threads(self),
            }
        });
        let mut queue = self.queue.lock();
        queue.outcome = Some(outcome);
        queue.lists.clear();
        queue.in_flight = 0;
        self.changed.notify_all();
    }

    /// The next list; `None` once no more follows.
    fn next(&self) -> Option<QueuedList> {
        let mut queue = self.queue.lock();
        loop {
            if self.cancel.load(Ordering::Relaxed) {
                return None;
            }
            if let Some(handed) = queue.lists.pop_front() {
                return Some(handed);
            }
            if queue.closed {
                return None;
            }
            self.changed.wait(&mut queue);
        }
    }

    /// Waits until `handed` and the lists in flight take at most `room` bytes together, or until no
    /// list is in flight. Then queues `handed` for the load's thread.
    fn push(&self, handed: QueuedList, room: u64) -> Result<(), LoadFailure> {
        let memory = handed.list.memory();
        let mut queue = self.queue.lock();
        while queue.outcome.is_none() && queue.in_flight > 0 && queue.in_flight + memory > room {
            if self.interrupted.load(Ordering::Relaxed) {
                return Err(canceled().into());
            }
            self.changed.wait_for(&mut queue, LOOK);
        }
        if let Some(outcome) = queue.outcome.take() {
            queue.outcome = Some(Err(canceled().into()));
            return Err(outcome.err().unwrap_or_else(|| canceled().into()));
        }
        queue.in_flight += memory;
        queue.lists.push_back(handed);
        self.changed.notify_all();
        Ok(())
    }

    fn wait_for_end(&self, progress: LoadProgress<'_>) -> Result<NewFiles, LoadFailure> {
        let mut queue = self.queue.lock();
        queue.closed = true;
        self.changed.notify_all();
        loop {
            if let Some(outcome) = queue.outcome.take() {
                return outcome;
            }
            self.changed.wait_for(&mut queue, LOOK);
            if queue.outcome.is_none() {
                let merged = self.merged.load(Ordering::Relaxed);
                let total = self.to_merge.load(Ordering::Relaxed);
                progress(merged, total)?;
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        if let Self::Thread { shared, thread } = self {
            shared.cancel.store(true, Ordering::Relaxed);
            drop(shared.queue.lock());
            shared.changed.notify_all();
            if let Some(thread) = thread.take() {
                // The thread catches its own panics.
                let _ = thread.join();
            }
        }
    }
}

#[cfg(test)]
mod tests;
