//! The threads that flush, compact, and sync the log once a second.

use super::{Signals, Work};
use crate::backup::Archiver;
use crate::base::events::Severity;
use crate::base::{Error, ErrorKind, Result};
use crate::compaction::Rest;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long nothing must have been written before the tree goes to its resting state.
const IDLE_AFTER_MICROS: u64 = 2_000_000;

/// Pause after background work failed for a passing reason, such as a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Pause between two looks at the files to be deleted, as long as there are some.
const DELETE_STEP: Duration = Duration::from_millis(50);

/// Pause between two looks at the garbage of blobs.
const BLOB_STEP: Duration = Duration::from_millis(200);

/// Pause between two looks at the segments to be archived.
const ARCHIVE_STEP: Duration = Duration::from_millis(500);

/// A memtable of less than this share of the tree, in percent, is no reason to write files.
const IDLE_FLUSH_SHARE: u64 = 1;

impl Work {
    /// Whether nothing was committed for a while.
    fn is_idle(&self) -> bool {
        let now = self.env.monotonic_micros();
        let visible = self.views.visible();
        let mut last = self.last_write.lock();
        if last.0 != visible {
            *last = (visible, now);
        }
        now - last.1 >= IDLE_AFTER_MICROS
    }

    fn wait(&self, wanted: impl Fn(&mut Signals) -> bool, timeout: Duration) {
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
                Err(error) => self.failed("flush", &error),
            }
        }
    }

    fn compaction_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let idle = self.is_idle();
            let done = self.when_idle_flush(idle).and_then(|()| {
                let rest = if idle { Rest::WhereItPays } else { Rest::No };
                self.compact_once(rest)
            });
            match done {
                Ok(true) => {}
                Ok(false) => {
                    self.wait(
                        |s| std::mem::take(&mut s.compact),
                        Duration::from_millis(500),
                    );
                }
                Err(error) if *error.kind() == ErrorKind::Interrupted => {}
                // Told and set aside already; nobody has to wait for it.
                Err(error) if error.is_corruption() && self.damage().is_some() => {
                    self.wait(|_| false, RETRY_PAUSE);
                }
                Err(error) => self.failed("compaction", &error),
            }
        }
    }

    /// Files are deleted by a thread of their own: an unlink may take long, and holds up neither
    /// flushes nor compactions.
    fn delete_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            if let Err(error) = self.versions.delete_paced(self.env.monotonic_micros()) {
                self.failed("deleting files", &error);
            }
            let pause = match self.versions.obsolete() {
                (0, _) => Duration::from_millis(500),
                _ => DELETE_STEP,
            };
            self.wait(|_| false, pause);
        }
    }

    fn blob_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            match self.collect_blobs() {
                Ok(true) => {}
                Ok(false) => self.wait(|_| false, BLOB_STEP),
                Err(error) if *error.kind() == ErrorKind::Interrupted => {}
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

    /// At rest the memtables hold next to nothing.
    fn when_idle_flush(&self, idle: bool) -> Result<()> {
        let view = self.views.pin();
        let held = view.active.entries() > 0
            && (view.active.size_bytes() * 100 >= view.version.size() * IDLE_FLUSH_SHARE
                || view.active.blob_bytes() * 100 > view.version.blob_uses().bytes());
        if idle && (held || !view.frozen.is_empty()) {
            self.flush_all()
        } else {
            Ok(())
        }
    }

    fn log_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            self.wait(|_| false, Duration::from_secs(1));
            self.archiver.iter().for_each(Archiver::watch);
            self.look_for_room();
            if self.health.check().is_ok()
                && let Err(error) = self.pipeline.sync_all()
            {
                self.failed("log sync", &error);
            }
        }
    }

    fn archive_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            // A failure is told by the archiver, and tried again.
            let _ = self.archive_log();
            self.wait(|_| false, ARCHIVE_STEP);
        }
    }

    fn failed(&self, what: &str, error: &Error) {
        if *error.kind() != ErrorKind::Poisoned {
            let message = format!("{what} failed: {error}");
            self.options.listener.log(Severity::Error, &message);
        }
        if *error.kind() == ErrorKind::NoSpace {
            // Room is wanted at once. What fails here is tried again by the thread that deletes.
            let _ = self.versions.delete_obsolete();
        }
        self.pipeline.contain_failure();
        self.stall.set_failure(Some(error.clone()));
        self.wait(|_| false, RETRY_PAUSE);
    }
}

/// The threads of a database.
pub(in crate::db) struct Background {
    work: Arc<Work>,
    threads: Vec<JoinHandle<()>>,
    archive: Option<Helper>,
}

/// A thread that is not waited for without end.
struct Helper {
    thread: JoinHandle<()>,
    /// Disconnected when it ends.
    ended: Receiver<()>,
}

impl Helper {
    fn start(work: &Arc<Work>, name: &str, body: fn(&Work)) -> Self {
        let (alive, ended) = mpsc::channel();
        let thread = spawn(work, name, move |work| {
            let _alive: Sender<()> = alive;
            body(work);
        });
        Self { thread, ended }
    }

    /// Waits until it ends. Returns whether it did.
    fn join_within(self, patience: Duration) -> bool {
        let ended = self.ended.recv_timeout(patience) == Err(RecvTimeoutError::Disconnected);
        if ended {
            // A thread that panicked has reported it and poisoned the engine.
            let _ = self.thread.join();
        }
        ended
    }
}

impl Background {
    pub(in crate::db) fn start(work: &Arc<Work>) -> Self {
        let mut threads = vec![
            spawn(work, "firn-flush", Work::flush_loop),
            spawn(work, "firn-log", Work::log_loop),
            spawn(work, "firn-delete", Work::delete_loop),
            spawn(work, "firn-blobs", Work::blob_loop),
        ];
        let archive = || Helper::start(work, "firn-archive", Work::archive_loop);
        for _ in 0..work.options.background_jobs {
            threads.push(spawn(work, "firn-compact", Work::compaction_loop));
        }
        Self {
            work: Arc::clone(work),
            threads,
            archive: work.archiver.is_some().then(archive),
        }
    }

    /// Ends the threads. That of the archive is left behind if it does not end in so long: it is told to do nothing more.
    pub(in crate::db) fn stop(self, patience: Duration) {
        self.work.stopping.store(true, Ordering::Release);
        self.work.stall.release();
        {
            let _signals = self.work.signals.lock();
            self.work.signal.notify_all();
        }
        for thread in self.threads {
            // A thread that panicked has reported it and poisoned the engine.
            let _ = thread.join();
        }
        if let Some(thread) = self.archive {
            self.work.await_archive(thread, patience);
        }
    }
}

impl Work {
    /// What the end of the log needs of the archive, for so long at most.
    pub(in crate::db) fn archive_rest_within(self: &Arc<Self>, patience: Duration) {
        let thread = Helper::start(self, "firn-archive", Self::archive_rest);
        self.await_archive(thread, patience);
    }

    fn await_archive(&self, thread: Helper, patience: Duration) {
        if !thread.join_within(patience) {
            self.archiver.iter().for_each(Archiver::leave);
            let message = "the archive of the log does not answer and is left to itself; the end of the log is archived at the \
                           next start";
            self.options.listener.log(Severity::Error, message);
        }
    }
}

/// A thread that stops the engine's writes when a bug panics it.
fn spawn(
    work: &Arc<Work>,
    name: &str,
    body: impl FnOnce(&Work) + Send + 'static,
) -> JoinHandle<()> {
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
        .expect("the system has room for a few threads at start")
}

#[cfg(test)]
mod tests;
