//! Group commit: each committer sleeps, writes the log for all committers of the open group (it
//! leads), or syncs the files for all that wait.
//!
//! Each committer loops. It returns if its log position is written or durable, as it needs. It
//! leads if its records are in the open group, a write slot is free and enough other committers
//! wait. It syncs if its group is written but not durable and no other thread syncs. Otherwise it
//! sleeps on its parker. The thread that ends a write or a sync wakes the committers that are
//! finished, and in addition at most one to lead and one to sync. So no thread is woken that has
//! nothing to do.
//!
//! [`WalState::may_lead`] decides whether another write may begin, [`WalState::collect_woken`]
//! which waiter becomes the next leader.
//!
//! No I/O happens under the log's mutex: a leader first takes the open group out, and later records
//! go to a new open group.

use super::super::Lsn;
use super::super::commit_waiter::{
    CommitWaiter, Committer, NextThread, Parker, WakeList, WakeReason,
};
use super::sealed_group::SealedGroup;
use super::state::WalState;
use super::{FullDiskAccess, Shared};
use crate::base::event_listener::Severity;
use crate::base::{Error, ErrorKind, Result};
use parking_lot::MutexGuard;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Shared {
    /// Returns when all records up to `lsn` are durable. Without `durable`, returns as soon as they
    /// were handed to the operating system. The calling thread may write or sync groups itself.
    pub(super) fn wait_for(&self, lsn: Lsn, durable: bool) -> Result<()> {
        let mut state = self.state.lock();
        if lsn > state.appended {
            return Err(Error::invalid("a log position that was not appended yet"));
        }
        state.wants_durable = durable;
        if !durable && !state.reached(lsn, false) {
            drop(state);
            self.write_inline(lsn);
            state = self.state.lock();
        }
        self.wait(state, lsn, durable, durable)
    }

    /// Writes the open group, so that its buffer is empty again, or waits until another thread has
    /// written it.
    pub(super) fn flush_open(&self, state: MutexGuard<'_, WalState>) -> Result<()> {
        let (lsn, lead_durable) = (state.appended, state.wants_durable);
        self.wait(state, lsn, false, lead_durable)
    }

    fn wait<'a>(
        &'a self,
        mut state: MutexGuard<'a, WalState>,
        lsn: Lsn,
        durable: bool,
        lead_durable: bool,
    ) -> Result<()> {
        loop {
            if state.reached(lsn, durable) {
                return Ok(());
            }
            if state.failed {
                return Err(self.unknown_outcome());
            }
            if lsn > state.sealed && state.segment.is_none() {
                drop(state);
                self.find_segment(FullDiskAccess::Exits)?;
            } else if lsn > state.sealed && state.may_lead(1) {
                self.lead(state, lead_durable);
            } else if durable && state.progress.needs_sync() && !state.syncing {
                state.syncing = true;
                drop(state);
                self.sync();
            } else {
                match self.sleep(state, lsn, durable) {
                    WakeReason::Done => return Ok(()),
                    WakeReason::Failed => return Err(self.unknown_outcome()),
                    WakeReason::Sync => self.sync(),
                    WakeReason::Lead => {
                        state = self.state.lock();
                        state.called -= 1;
                        if lsn > state.sealed && !state.failed {
                            self.lead(state, lead_durable);
                        } else {
                            // Another thread has already written the group. Pass the write slot on
                            // to a committer of the open group.
                            self.wake_committers(state);
                        }
                    }
                }
            }
            state = self.state.lock();
        }
    }

    /// Prepares the next segment. If the log had no current segment, the prepared one becomes it
    /// and takes the open group.
    pub(super) fn find_segment(&self, access: FullDiskAccess) -> Result<()> {
        let room = self.state.lock().group_len(0) as u64;
        match self.prepare_next(room, access) {
            // Records that were already appended take precedence over room for outcomes that are
            // only expected.
            Err(full) if access == FullDiskAccess::Exits && *full.kind() == ErrorKind::NoSpace => {
                self.prepare(room, access, false)?
            }
            prepared => prepared?,
        };
        let mut state = self.state.lock();
        if state.segment.is_none() {
            let open = state.group_len(0);
            state.rotate(open);
        }
        Ok(())
    }

    fn sleep(&self, mut state: MutexGuard<'_, WalState>, lsn: Lsn, durable: bool) -> WakeReason {
        let parker = Parker::current();
        state.stats.waits += 1;
        state.waiters.push(CommitWaiter {
            lsn,
            durable,
            committer: Committer::Asleep(parker.clone()),
        });
        drop(state);
        parker.wait()
    }

    /// Takes the open group out and writes it. Makes it durable if `durable` is set, or if one of
    /// its committers waits for that.
    pub(super) fn lead(&self, mut state: MutexGuard<'_, WalState>, durable: bool) {
        let group = {
            let durable = durable || state.open_wanted_durable();
            state.seal(durable)
        };
        drop(state);
        self.write(group);
    }

    pub(super) fn write(&self, mut group: SealedGroup) {
        let result = self.segments.health.check().and_then(|()| group.write());
        let mut state = self.state.lock();
        match result {
            Ok(()) => state.written(group),
            Err(error) => self.fail(&mut state, error),
        }
        self.wake_committers(state);
    }

    /// Syncs the files of all groups that were written without a sync. The caller must have set
    /// `state.syncing`, so no other thread syncs.
    pub(super) fn sync(&self) {
        let (target, files) = {
            // Taking `turn` waits until no thread writes or rewrites a growing group. During a
            // rewrite, the written prefix ends before that group and before the groups that share
            // its entry in `progress`, so the sync would cover none of them.
            let _turn = self.turn.lock();
            let mut state = self.state.lock();
            state.end_growth();
            // Take the end of the written prefix and the files under one lock of the mutex: then
            // the files hold all groups of the prefix that are not synced.
            (
                state.progress.written(),
                std::mem::take(&mut state.unsynced),
            )
        };
        let health = &self.segments.health;
        let result = health
            .check()
            .and_then(|()| files.iter().try_for_each(|segment| segment.file.sync()));
        let mut state = self.state.lock();
        state.syncing = false;
        match result {
            Ok(()) => {
                state.stats.syncs += files.len() as u64;
                state.progress.synced(target);
            }
            Err(error) => self.fail(&mut state, error),
        }
        self.wake_committers(state);
    }

    /// Stores the end of the durable prefix for readers without the mutex. Wakes the committers
    /// whose wait is over, and those that must lead or sync.
    pub(super) fn wake_committers(&self, mut state: MutexGuard<'_, WalState>) {
        let mut woken = WakeList::new();
        state.collect_woken(&mut woken);
        self.durable
            .store(state.progress.durable().lsn, Ordering::Release);
        state.log_writer.outbox.append(&mut woken.absent);
        let log_writer = state.log_writer.has_work();
        let log_writer = log_writer.then(|| Arc::clone(&state.log_writer.work));
        drop(state);
        // Wake the log writer first: the device may be idle until it writes.
        if let Some(work) = log_writer {
            work.notify_one();
        }
        woken.wake();
    }

    pub(super) fn fail(&self, state: &mut WalState, error: Error) {
        state.failed = true;
        if self.segments.health.poison(error.clone()) {
            let message = format!("the log has failed, commits are refused until restart: {error}");
            self.listener.log(Severity::Error, &message);
        }
    }

    /// The error for a committer when the log has failed: its records may or may not survive the
    /// next start.
    pub(super) fn unknown_outcome(&self) -> Error {
        let cause = self.segments.health.cause().map(ToString::to_string);
        Error::new(
            ErrorKind::Poisoned,
            format!(
                "the outcome of this commit is unknown until restart: {}",
                cause.unwrap_or_default()
            ),
        )
    }

    /// Writes an empty group behind the last group, if the segment has room for it. Its header
    /// tells replay that all groups before it are durable.
    pub(super) fn write_end_mark(&self) -> Result<()> {
        let state = self.state.lock();
        if state.appended == 0 || !state.fits(state.group_len(0)) {
            return Ok(());
        }
        self.lead(state, true);
        self.segments.health.check()
    }
}

impl WalState {
    /// Whether a committer should write the open group now. `more` counts committers of the open
    /// group that are not on the list of waiters.
    ///
    /// The answer is yes if no write is under way. It is also yes if a write slot is free and at
    /// least as many committers wait for the open group as for the writes under way. So each group
    /// is as large as all those before it that are not durable: a few committers overlap their
    /// writes, and many share them. With smaller groups, a busy machine spends on writes and
    /// wake-ups what it gains by the overlap. No timer is needed, since this question is asked
    /// again at the end of each write.
    ///
    /// A leader that was woken and has not begun counts as a write under way. It does not keep a
    /// running committer from leading, because on busy processors it may take long until the woken
    /// thread runs.
    pub(super) fn may_lead(&self, more: usize) -> bool {
        let busy = self.progress.writing() + self.called;
        // The leaders of the writes under way are not on the list.
        let enough = || {
            let waiting = self.waiters.beyond(self.sealed) + more;
            waiting >= self.waiters.up_to(self.sealed) + busy
        };
        busy == 0 || busy < self.slots && enough()
    }

    /// Whether a committer whose records are in the open group waits for it to be durable.
    pub(super) fn open_wanted_durable(&self) -> bool {
        self.waiters.is_durable_wanted_beyond(self.sealed)
    }

    /// Moves the committers that must wake up from the list of waiters to `woken`: those whose wait
    /// is over, or all if the log has failed. If the durable prefix waits for a sync, also moves
    /// one committer, which must sync. If [`Self::may_lead`] says so, also moves one committer,
    /// which must write the open group. If that committer is absent, the log writer gets the work
    /// instead. Called after every write and sync.
    pub(super) fn collect_woken(&mut self, woken: &mut WakeList) {
        let progress = &self.progress;
        let (durable, written) = (progress.durable().lsn, progress.written().lsn);
        self.waiters.wake_done(durable, written, woken);
        if self.failed {
            self.waiters.wake_failed(woken);
        }
        if !self.syncing
            && self.progress.needs_sync()
            && let Some(thread) = self.waiters.take_durable()
        {
            self.syncing = true;
            match thread {
                NextThread::Committer(waiter) => woken.push(waiter, WakeReason::Sync),
                NextThread::LogWriter => self.log_writer.syncs = true,
            }
        }
        if self.may_lead(0)
            && let Some(thread) = self.waiters.take_beyond(self.sealed)
        {
            match thread {
                NextThread::Committer(waiter) => woken.push(waiter, WakeReason::Lead),
                NextThread::LogWriter if self.log_writer.leads => return,
                NextThread::LogWriter => self.log_writer.leads = true,
            }
            self.called += 1;
        }
    }
}
