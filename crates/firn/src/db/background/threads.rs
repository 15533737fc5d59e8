//! The background threads: flush, compaction, log, deletion of files, memory of open files, blob
//! collection, archive of the log; and, if the allocator has statistics, the memory limit.
//!
//! Each thread loops: do one piece of work, or wait for its signal with a timeout. Because of the
//! timeout, a lost signal only delays the work. After an error of a transient kind (a full disk)
//! the work is tried again after a pause. A flush or a compaction that fails is reported to the
//! stall gate, so that writers that wait for it fail with the error. A panic poisons the engine:
//! the thread ends, writes are refused, reads go on.
//!
//! Rejected: one pool for all kinds of work. A long unlink or a blob rewrite would then hold up a
//! flush that writers wait for.

use super::{BackgroundWork, CompactionStep, WorkSignals};
use crate::backup::Archiver;
use crate::base::event_listener::Severity;
use crate::base::{Error, ErrorKind, Result};
use crate::compaction::RestGoal;
use crate::db::{ARCHIVE_PATIENCE, DirectoryLock};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time without a commit after which the tree moves to its resting state, microseconds.
const IDLE_AFTER_MICROS: u64 = 2_000_000;

/// Pause after background work failed for a transient reason, such as a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Pause of the deletion thread between two steps, while obsolete files are left.
const DELETE_STEP: Duration = Duration::from_millis(50);

/// Pause between two searches for dropped indexes of which no entry is left, microseconds.
const FORGET_STEP_US: u64 = 1_000_000;

/// Pause between two looks at the allocator.
const MEMORY_STEP: Duration = Duration::from_millis(100);

/// Pause between two searches for garbage in blob files.
const BLOB_STEP: Duration = Duration::from_millis(200);

/// Pause between two searches for log segments to archive.
const ARCHIVE_STEP: Duration = Duration::from_millis(500);

/// Pause between two looks at the memory of open files, while nobody asks for one.
const PINS_STEP: Duration = Duration::from_millis(500);

/// Pause of the collection of blobs after the object store did not answer.
const BLOB_PAUSE: Duration = Duration::from_secs(60);

/// Pause between two searches for files to move to or from the object store.
const TIER_STEP: Duration = Duration::from_secs(1);

/// Pause after a file could not be moved.
const TIER_RETRY: Duration = Duration::from_secs(5);

/// Pause after the disk had no room for a file that comes back. Owners of stores beat in a step,
/// and at least each minute and a half.
const TIER_FULL: Duration = Duration::from_secs(10);

/// An idle database flushes its active memtable if that has at least this size, in percent of the
/// size of the tree.
const IDLE_FLUSH_SHARE: u64 = 1;

impl BackgroundWork {
    /// Whether nothing has been committed for [`IDLE_AFTER_MICROS`].
    fn is_idle(&self) -> bool {
        let now = self.env.monotonic_micros();
        let visible = self.super_versions.visible();
        let mut last = self.last_write.lock();
        if last.0 != visible {
            *last = (visible, now);
        }
        now - last.1 >= IDLE_AFTER_MICROS
    }

    fn wait(&self, wanted: impl Fn(&mut WorkSignals) -> bool, timeout: Duration) {
        let mut signals = self.signals.lock();
        if !self.stopping.load(Ordering::Acquire) && !wanted(&mut signals) {
            self.signal.wait_for(&mut signals, timeout);
            wanted(&mut signals);
        }
    }

    fn flush_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            match self.flush_oldest() {
                Ok(true) => {}
                Ok(false) => {
                    self.wait(|s| std::mem::take(&mut s.flush), Duration::from_secs(1));
                    self.report_pressure();
                }
                // A stop has canceled it.
                Err(error) if *error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.failed_for_writers("flush", &error),
            }
        }
    }

    fn compaction_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let idle = self.is_idle();
            let done = self.when_idle_flush(idle).and_then(|()| {
                let rest = if idle {
                    RestGoal::WhereItPays
                } else {
                    RestGoal::No
                };
                self.compaction_step(rest)
            });
            match done {
                Ok(CompactionStep::Compacted) => {}
                Ok(CompactionStep::NothingDue) => {
                    self.wait(
                        |s| std::mem::take(&mut s.compact),
                        Duration::from_millis(500),
                    );
                }
                // Go on with other jobs, and do not report a failure to the stall gate.
                Ok(CompactionStep::MetDamage(_) | CompactionStep::GaveUp(_)) => {
                    self.wait(|_| false, RETRY_PAUSE);
                }
                Err(error) if *error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.failed_for_writers("compaction", &error),
            }
        }
    }

    /// A thread of its own deletes files, rewrites the manifest and forgets dropped indexes: all of
    /// it may take long, and must hold up neither flushes nor compactions.
    fn delete_loop(&self) {
        let mut forgotten_us = 0;
        while !self.stopping.load(Ordering::Acquire) {
            let doing = self
                .activities
                .begin("rewriting the manifest, if it is long");
            if let Err(error) = self.versions.rewrite_manifest() {
                self.failed("rewriting the manifest", &error);
            }
            doing.set("deleting obsolete files");
            if let Err(error) = self
                .versions
                .delete_paced(self.env.monotonic_micros(), &self.stopping)
            {
                self.failed("deleting files", &error);
            }
            let now_us = self.env.monotonic_micros();
            let due = now_us - forgotten_us >= FORGET_STEP_US;
            // On a full disk the room of the log is for commits that free space.
            if due && self.health.check().is_ok() && !self.health.is_full(None) {
                doing.set("forgetting dropped indexes");
                // A compaction thread does so, too, but only when no job is due, and every choice
                // of a job visits the dropped indexes that are known.
                if let Err(error) = self.forget_retired() {
                    self.failed("forgetting dropped indexes", &error);
                }
                forgotten_us = now_us;
            }
            drop(doing);
            let pause = match self.versions.obsolete() {
                (0, _) => Duration::from_millis(500),
                _ => DELETE_STEP,
            };
            self.wait(|_| false, pause);
        }
    }

    fn blob_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let doing = self.activities.begin("collecting the garbage of blobs");
            let collected = self.collect_blobs();
            drop(doing);
            match collected {
                Ok(true) => {}
                Ok(false) => self.wait(|_| false, BLOB_STEP),
                Err(error) if *error.kind() == ErrorKind::Interrupted => {}
                // The mover reports it.
                Err(error) if error.is_unreachable() => self.wait(|_| false, BLOB_PAUSE),
                Err(error) => {
                    if *error.kind() != ErrorKind::Poisoned {
                        let message = format!("collecting the garbage of blobs failed: {error}");
                        self.options.listener.log(Severity::Error, &message);
                    }
                    self.wait(|_| false, RETRY_PAUSE);
                }
            }
        }
    }

    /// A thread of its own moves files to the object store and back: a store that does not answer
    /// must hold up nothing else.
    fn tier_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            match self.tier_step() {
                Ok(true) => {}
                Ok(false) => self.wait(|_| false, TIER_STEP),
                Err(error) => {
                    self.tier_step_failed(&error);
                    let pause = match error.kind() {
                        ErrorKind::NoSpace => TIER_FULL,
                        _ => TIER_RETRY,
                    };
                    self.wait(|_| false, pause);
                }
            }
        }
    }

    /// If `idle`, flushes the memtables, unless there is only an active one that is tiny compared
    /// to the tree and refers to few blobs.
    fn when_idle_flush(&self, idle: bool) -> Result<()> {
        let super_version = self.super_versions.pin();
        let held = super_version.active.entries() > 0
            && (super_version.active.size_bytes() * 100
                >= super_version.version.size() * IDLE_FLUSH_SHARE
                || super_version.active.blob_bytes() * 100
                    > super_version.version.blob_uses().bytes());
        if idle && (held || !super_version.frozen.is_empty()) {
            self.flush_all()
        } else {
            Ok(())
        }
    }

    fn log_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            self.wait(|_| false, Duration::from_secs(1));
            let _doing = self.activities.begin("syncing the log");
            self.archiver.iter().for_each(Archiver::watch);
            self.recheck_full_disk();
            self.wal.ask_for_next_segment();
            self.watch_snapshots();
            if self.health.check().is_ok()
                && let Err(error) = self.bound_log()
            {
                // The next round of this loop tries again to log old prepare records anew. Until
                // then their log pins keep old segments, so the log is longer than it should be.
                self.options.listener.log(
                    Severity::Warning,
                    &format!("prepared transactions cannot be logged again: {error}"),
                );
            }
            if self.health.check().is_ok()
                && let Err(error) = self.pipeline.sync_all()
            {
                self.failed("log sync", &error);
            }
        }
    }

    /// Divides the memory limit anew as the memory changes that the engine does not count, and has
    /// the allocator give unused pages back. A thread of its own, because a flush or a compaction
    /// may take long, and takes memory meanwhile.
    fn memory_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            self.watch_memory();
            self.memory.allocator().pause(MEMORY_STEP);
        }
    }

    /// A thread of its own bounds the memory of open files: memory must not run out while other
    /// threads sync, delete or compact.
    fn pins_loop(&self) {
        let pins = self.memory.block_cache().pins();
        while !self.stopping.load(Ordering::Acquire) {
            pins.wait_for_excess(PINS_STEP);
            self.sweep_pins();
        }
    }

    fn archive_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let doing = self.activities.begin("archiving the log");
            // The archiver reports a failure; the next round retries.
            let _ = self.archive_log();
            drop(doing);
            self.wait(|_| false, ARCHIVE_STEP);
        }
    }

    /// Handles a failure of work for which no writer waits at the stall gate: logs it and pauses
    /// before the next try.
    fn failed(&self, what: &str, error: &Error) {
        self.contain(what, error);
        self.wait(|_| false, RETRY_PAUSE);
    }

    /// As [`Self::failed`], for work that the stall gate may wait for: the writers that wait there
    /// fail with the error.
    fn failed_for_writers(&self, what: &str, error: &Error) {
        self.contain(what, error);
        self.stall.set_failure(Some(error.clone()));
        self.wait(|_| false, RETRY_PAUSE);
    }

    fn contain(&self, what: &str, error: &Error) {
        if *error.kind() != ErrorKind::Poisoned {
            let message = format!("{what} failed: {error}");
            self.options.listener.log(Severity::Error, &message);
        }
        if *error.kind() == ErrorKind::NoSpace {
            // The disk is full: delete all obsolete files now instead of one after the other with
            // pauses. If that fails, the deletion thread tries again.
            let _ = self.versions.delete_obsolete();
        }
        self.pipeline.contain_failure();
    }
}

/// The threads of a database.
pub(in crate::db) struct BackgroundThreads {
    work: Arc<BackgroundWork>,
    threads: Vec<JoinHandle<()>>,
    archive: Option<AbandonableThread>,
    tier: Option<AbandonableThread>,
}

/// A thread for which the database waits only a limited time when it closes, and which it then
/// abandons.
struct AbandonableThread {
    thread: JoinHandle<()>,
    /// Disconnects when the thread ends.
    ended: Receiver<()>,
}

impl AbandonableThread {
    /// The thread keeps `kept` until it ends.
    fn start(
        work: &Arc<BackgroundWork>,
        name: &str,
        body: fn(&BackgroundWork),
        kept: Option<DirectoryLock>,
    ) -> Result<Self> {
        let (alive, ended) = mpsc::channel();
        let thread = spawn(work, name, move |work| {
            let _alive: Sender<()> = alive;
            body(work);
            drop(kept);
        })?;
        Ok(Self { thread, ended })
    }

    /// Waits at most `patience` for the thread to end. Returns whether it has ended.
    fn join_within(self, patience: Duration) -> bool {
        let ended = self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected);
        if ended {
            // A thread that panicked has reported the panic and poisoned the engine.
            let _ = self.thread.join();
        }
        ended
    }
}

impl BackgroundThreads {
    /// Starts the threads of an open database, whose directory `lock` locks.
    ///
    /// # Errors
    /// `Io` if the system has no room for another thread. Those that have started are ended: with
    /// the lock of the directory gone, they would work on files that another open takes over.
    pub(in crate::db) fn start(work: &Arc<BackgroundWork>, lock: &DirectoryLock) -> Result<Self> {
        let mut started = Self {
            work: Arc::clone(work),
            threads: Vec::new(),
            archive: None,
            tier: None,
        };
        match started.start_all(lock) {
            Ok(()) => Ok(started),
            Err(e) => {
                started.stop(ARCHIVE_PATIENCE);
                Err(e)
            }
        }
    }

    fn start_all(&mut self, lock: &DirectoryLock) -> Result<()> {
        let work = Arc::clone(&self.work);
        self.add("firn-flush", BackgroundWork::flush_loop)?;
        self.add("firn-log", BackgroundWork::log_loop)?;
        self.add("firn-delete", BackgroundWork::delete_loop)?;
        self.add("firn-blobs", BackgroundWork::blob_loop)?;
        if work.versions.source().store().remote().is_some() {
            let tier = BackgroundWork::tier_loop;
            let lock = Some(Arc::clone(lock));
            self.tier = Some(AbandonableThread::start(&work, "firn-tier", tier, lock)?);
        }
        if !work.options.ephemeral {
            self.add("firn-pins", BackgroundWork::pins_loop)?;
        }
        if work.memory.allocator().source().is_some() {
            self.add("firn-memory", BackgroundWork::memory_loop)?;
        }
        for _ in 0..work.options.background_jobs {
            self.add("firn-compact", BackgroundWork::compaction_loop)?;
        }
        if work.archiver.is_some() {
            let archive = BackgroundWork::archive_loop;
            let thread = AbandonableThread::start(&work, "firn-archive", archive, None)?;
            self.archive = Some(thread);
        }
        Ok(())
    }

    fn add(&mut self, name: &str, body: fn(&BackgroundWork)) -> Result<()> {
        self.threads.push(spawn(&self.work, name, body)?);
        Ok(())
    }

    /// Ends the threads. Abandons the archive thread and the one that moves files to and from the
    /// object store if they do not end within `patience`: they then do no further step.
    pub(in crate::db) fn stop(self, patience: Duration) {
        self.work.stopping.store(true, Ordering::Release);
        self.work.blobs.stop_collecting();
        self.work.stall.release();
        if let Some(remote) = self.work.versions.source().store().remote() {
            remote.stop();
        }
        {
            let _signals = self.work.signals.lock();
            self.work.signal.notify_all();
        }
        self.work.memory.block_cache().pins().ask_for_sweep();
        self.work.memory.allocator().stop();
        for thread in self.threads {
            // A thread that panicked has reported the panic and poisoned the engine.
            let _ = thread.join();
        }
        if let Some(thread) = self.archive {
            self.work.await_archive(thread, patience);
        }
        if let Some(thread) = self.tier
            && !thread.join_within(patience)
        {
            // Its call of a network file system may never return. It changes no file any more, and
            // keeps the lock of the directory.
            let message = "the object store does not answer, and the thread that moves files is left to itself: the \
                           data directory cannot be opened again before the store answers, or this process ends";
            self.work.options.listener.log(Severity::Error, message);
        }
    }
}

impl BackgroundWork {
    /// Archives the last segments of the closed log in a thread, and waits at most `patience` for
    /// that thread.
    pub(in crate::db) fn archive_rest_within(self: &Arc<Self>, patience: Duration) {
        match AbandonableThread::start(self, "firn-archive", Self::archive_rest, None) {
            Ok(thread) => self.await_archive(thread, patience),
            // Without a thread, the wait for the archive would have no bound.
            Err(_) => self.leave_archive("no thread can be started for the archive of the log"),
        }
    }

    fn await_archive(&self, thread: AbandonableThread, patience: Duration) {
        if !thread.join_within(patience) {
            self.leave_archive("the archive of the log does not answer and is left to itself");
        }
    }

    fn leave_archive(&self, reason: &str) {
        self.archiver.iter().for_each(Archiver::leave);
        let message = format!("{reason}; the end of the log is archived at the next start");
        self.options.listener.log(Severity::Error, &message);
    }
}

/// Spawns a thread. If it panics because of a bug, the engine refuses further writes.
///
/// # Errors
/// `Io` if the system has no room for another thread.
fn spawn(
    work: &Arc<BackgroundWork>,
    name: &str,
    body: impl FnOnce(&BackgroundWork) + Send + 'static,
) -> Result<JoinHandle<()>> {
    #[cfg(test)]
    tests::refuse_thread()?;
    let work = Arc::clone(work);
    let label = name.to_owned();
    let guarded = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&work))) {
            let words = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            let message = format!("bug: thread {label} panicked, writes stop: {words}");
            work.options.listener.log(Severity::Error, &message);
            work.health.poison(Error::new(ErrorKind::ShutDown, message));
            work.pipeline.contain_failure();
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(guarded)
        .map_err(|e| Error::io(&e, format_args!("start thread {name}")))
}

#[cfg(test)]
mod tests;
