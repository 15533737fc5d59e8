//! Commits that nobody waits for, and the thread that writes the log for them.
//!
//! In a server with a pool of threads, a thread that sleeps until a commit is durable makes the
//! pool start another one, and both then compete for the processor. So such a commit leaves an
//! [`Acknowledgement`] in the queue of the committers and its thread goes on with another session.
//!
//! A commit is left in the queue only while a write or a sync of the log is under way: the thread
//! that ends it finds the commit. Otherwise the committer writes its group itself, as all do
//! without a pool, so that a lone session never waits for another thread. If the first in the queue
//! is a commit that nobody waits for, the log writer leads or syncs in its place. The log writer
//! also sends all acknowledgements: other threads that end a write may hold locks of the engine,
//! which what an acknowledgement calls takes, too. One wake-up of the log writer serves a whole
//! group.

use super::super::Lsn;
use super::super::acknowledgement::Acknowledgement;
use super::super::commit_waiter::{CommitWaiter, Committer};
use super::state::WalState;
use super::{Shared, Wal};
use parking_lot::Condvar;
use std::sync::Arc;
use std::thread::JoinHandle;

/// The work of the log writer.
#[derive(Debug, Default)]
pub(super) struct LogWriter {
    /// The thread, which starts with the first commit that nobody waits for.
    thread: Option<JoinHandle<()>>,
    /// Whether it must write the open group. A write slot is reserved for it.
    pub leads: bool,
    /// Whether it must sync the log files.
    pub syncs: bool,
    /// Acknowledgements that it must send, and whether their commits are durable.
    pub outbox: Vec<(Acknowledgement, bool)>,
    pub work: Arc<Condvar>,
}

impl LogWriter {
    /// Whether the thread has been given something to do.
    pub(super) fn has_work(&self) -> bool {
        self.leads || self.syncs || !self.outbox.is_empty()
    }
}

impl Wal {
    /// Arranges that an acknowledgement is sent when all records up to `lsn` are durable or the log
    /// has failed, without a wait. Returns whether it did: otherwise `acknowledgement` was not
    /// called, and the caller must wait with [`Self::sync_to`], as it must for a failed log.
    pub fn acknowledge_later(
        &self,
        lsn: Lsn,
        acknowledgement: impl FnOnce() -> Acknowledgement,
    ) -> bool {
        let mut state = self.shared.state.lock();
        let refused = state.failed || state.closed || state.segment.is_none();
        if refused || state.reached(lsn, true) || !state.is_busy() {
            return false;
        }
        if !self.has_log_writer(&mut state) {
            return false;
        }
        state.wants_durable = true;
        state.stats.waits += 1;
        state.waiters.push(CommitWaiter {
            lsn,
            durable: true,
            committer: Committer::Absent(acknowledgement()),
        });
        true
    }

    /// Starts the log writer, if it does not run yet.
    fn has_log_writer(&self, state: &mut WalState) -> bool {
        if state.log_writer.thread.is_none() && !state.stop_worker {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("firn-wal-writer".into());
            state.log_writer.thread = builder.spawn(move || shared.write_for_absent()).ok();
        }
        state.log_writer.thread.is_some()
    }
}

impl WalState {
    /// Whether a write or a sync is under way, or a thread was woken for one. Its end wakes those
    /// that wait in the queue.
    fn is_busy(&self) -> bool {
        self.progress.writing() + self.called > 0 || self.syncing
    }

    /// The thread of the log writer, for the caller to join once `stop_worker` is set.
    pub(super) fn take_log_writer(&mut self) -> Option<JoinHandle<()>> {
        self.log_writer.thread.take()
    }
}

impl Shared {
    /// The loop of the log writer.
    fn write_for_absent(&self) {
        let mut state = self.state.lock();
        loop {
            let outbox = std::mem::take(&mut state.log_writer.outbox);
            if !outbox.is_empty() {
                drop(state);
                for (acknowledgement, durable) in outbox {
                    acknowledgement.send(durable);
                }
            } else if std::mem::take(&mut state.log_writer.leads) {
                state.called -= 1;
                if state.appended > state.sealed && !state.failed {
                    self.lead(state, true);
                } else {
                    // Another thread has already written the group. Pass the write slot on.
                    self.wake_committers(state);
                }
            } else if std::mem::take(&mut state.log_writer.syncs) {
                drop(state);
                self.sync();
            } else if state.stop_worker {
                return;
            } else {
                let work = Arc::clone(&state.log_writer.work);
                work.wait(&mut state);
                continue;
            }
            state = self.state.lock();
        }
    }
}
