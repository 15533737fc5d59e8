//! Commits that nobody waits for, and the thread that writes the log for them.
//!
//! In a server with a pool of threads, a thread that sleeps until a commit is durable makes the
//! pool start another one, and both then compete for the processor. So such a commit leaves an
//! [`Acknowledgement`] in the queue of the committers and its thread goes on with another session.
//!
//! A commit is left in the queue only where its thread would sleep: the thread that ends the write
//! or the sync that is under way then finds it. Otherwise its thread leads or syncs itself. If the
//! first in the queue is a commit that nobody waits for, the log writer leads or syncs in its
//! place. The log writer also sends all acknowledgements: other threads that end a write may hold
//! locks of the engine, and an acknowledgement takes some of these. One wake-up of the log writer
//! serves a whole group.

use super::super::Lsn;
use super::super::acknowledgement::Acknowledgement;
use super::super::commit_waiter::{CommitWaiter, Committer};
use super::state::WalState;
use super::{Shared, Wal};
use crate::base::{Error, ErrorKind};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

impl Wal {
    /// If [`Self::sync_to`] would sleep, arranges that an acknowledgement is sent when all records
    /// up to `lsn` are durable or the log has failed, without a wait, and returns `true`. Otherwise
    /// the caller must call [`Self::sync_to`], also for a failed log.
    ///
    /// `acknowledgement` is called with the log's mutex held, so it must neither wait nor use the
    /// log. It may return `None`.
    pub fn acknowledge_later(
        &self,
        lsn: Lsn,
        acknowledgement: impl FnOnce() -> Option<Acknowledgement>,
    ) -> bool {
        let mut state = self.shared.state.lock();
        let refused = state.failed || state.closed || state.segment.is_none();
        if refused || !state.would_sleep(lsn) || !self.has_log_writer(&mut state) {
            return false;
        }
        let Some(acknowledgement) = acknowledgement() else {
            return false;
        };
        state.wants_durable = true;
        state.waiters.push(CommitWaiter {
            lsn,
            durable: true,
            committer: Committer::Absent(acknowledgement),
        });
        true
    }

    /// Starts the log writer, if it does not run yet.
    fn has_log_writer(&self, state: &mut WalState) -> bool {
        if state.log_writer.thread.is_none() && !state.stop_worker {
            let shared = Arc::clone(&self.shared);
            let builder = std::thread::Builder::new().name("firn-wal-writer".into());
            let run = move || {
                if catch_unwind(AssertUnwindSafe(|| shared.write_for_absent())).is_err() {
                    shared.log_writer_panicked();
                }
            };
            state.log_writer.thread = builder.spawn(run).ok();
        }
        state.log_writer.thread.is_some()
    }
}

impl WalState {
    /// Whether a committer that waits until the log is durable up to `lsn` neither is finished nor
    /// may lead or sync. Then a write or a sync is under way, or a thread was woken for one, whose
    /// end wakes those in the queue.
    fn would_sleep(&self, lsn: Lsn) -> bool {
        let leads = lsn > self.sealed && self.may_lead(1);
        let syncs = self.progress.needs_sync() && !self.syncing;
        !(self.reached(lsn, true) || leads || syncs)
    }

    /// The thread of the log writer, for the caller to join once `stop_worker` is set.
    pub(super) fn take_log_writer(&mut self) -> Option<JoinHandle<()>> {
        self.log_writer.thread.take()
    }
}

impl Shared {
    /// Answers all absent committers, now and later, that their outcome is unknown.
    fn log_writer_panicked(&self) {
        let panic = Error::new(ErrorKind::Poisoned, "the log writer panicked");
        let mut state = self.state.lock();
        self.fail(&mut state, panic);
        self.wake_committers(state);
        // Committers that fail from now on wait: a failed log takes no acknowledgements.
        let outbox = std::mem::take(&mut self.state.lock().log_writer.outbox);
        drop(outbox);
    }

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
