//! Group commit: committers wait, lead a write, or sync.
//!
//! Each committer loops: it returns if its position is reached; it leads if its records are in the
//! open group, a write slot is free and enough others wait; it syncs if its group is written but
//! not durable and no other thread syncs; otherwise it sleeps on its parker. The thread that ends a
//! write or a sync wakes the satisfied waiters and at most one successor for each slot, so a
//! wake-up is never shared by more threads than can work.
//!
//! [`WalState::may_lead`] decides whether another write may begin, [`WalState::settle`] which
//! waiter becomes the next leader.
//!
//! No I/O happens under the log's mutex: a leader takes the open group out first, and the next
//! records go to a fresh one.

use super::super::Lsn;
use super::super::waiter::{CommitWaiter, Parker, WakeList, WakeReason};
use super::sealed_group::SealedGroup;
use super::state::WalState;
use super::{FullDiskAccess, Shared};
use crate::base::event_listener::Severity;
use crate::base::{Error, ErrorKind, Result};
use parking_lot::MutexGuard;
use std::sync::atomic::Ordering;

impl Shared {
    /// Returns when `lsn` is durable, or written if not `durable`; writes what is needed for it.
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

    /// Writes the open group to make room in the buffer.
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
                            // Another thread wrote the group: pass the slot on to a waiter that
                            // needs it.
                            self.settle(state);
                        }
                    }
                }
            }
            state = self.state.lock();
        }
    }

    /// Prepares the next segment. If there was no segment, the open group moves to it.
    pub(super) fn find_segment(&self, access: FullDiskAccess) -> Result<()> {
        let room = self.state.lock().group_len(0) as u64;
        match self.prepare_next(room, access) {
            // Records that are appended already take precedence over room for expected ones.
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
            parker: parker.clone(),
        });
        drop(state);
        parker.wait()
    }

    /// Takes the open group out and writes it.
    fn lead(&self, mut state: MutexGuard<'_, WalState>, durable: bool) {
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
        self.settle(state);
    }

    /// Syncs the files of all groups that were written without a sync. The caller has set
    /// `syncing`.
    fn sync(&self) {
        let (target, files) = {
            // Wait for a group that is growing: the sync would not cover it, nor adjacent ones.
            let _turn = self.turn.lock();
            let mut state = self.state.lock();
            state.end_growth();
            // Both under one lock: these are the files of all groups of this prefix.
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
        self.settle(state);
    }

    /// Publishes the durable prefix and wakes the waiters that are satisfied or must act.
    pub(super) fn settle(&self, mut state: MutexGuard<'_, WalState>) {
        let mut woken = WakeList::new();
        state.settle(&mut woken);
        self.durable
            .store(state.progress.durable().lsn, Ordering::Release);
        drop(state);
        woken.wake();
    }

    pub(super) fn fail(&self, state: &mut WalState, error: Error) {
        state.failed = true;
        if self.segments.health.poison(error.clone()) {
            let message = format!("the log has failed, commits are refused until restart: {error}");
            self.listener.log(Severity::Error, &message);
        }
    }

    /// The error for a committer whose records may or may not survive.
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

    /// Writes an empty group at the end of a durable log, if the segment has room for it.
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
    /// Whether the open group should be written now, if the waiters on the list and `more` wait for
    /// it: at once if no write is under way, otherwise if a slot is free and at least as many wait
    /// as writes are under way. Fewer waiters would make many small groups, each of which costs a
    /// write and its wake-ups. No timer is needed, since the end of each write asks again. A leader
    /// that was woken and has not begun counts as a write, but does not keep others from leading:
    /// on busy processors it may take long to run.
    pub(super) fn may_lead(&self, more: usize) -> bool {
        let busy = self.progress.writing() + self.called;
        let waiting = || self.waiters.iter().filter(|w| w.lsn > self.sealed).count();
        busy == 0 || busy < self.slots && waiting() + more >= busy
    }

    /// Whether a waiter behind the open group wants it durable.
    pub(super) fn open_wanted_durable(&self) -> bool {
        let sealed = self.sealed;
        self.waiters.iter().any(|w| w.durable && w.lsn > sealed)
    }

    /// Takes all waiters off the list that must wake up: the satisfied ones, or all if the log
    /// failed; one leader if a slot is free and a waiter needs the open group; one to sync if the
    /// durable prefix waits for a sync. Called after every change of these.
    pub(super) fn settle(&mut self, woken: &mut WakeList) {
        let mut at = 0;
        while at < self.waiters.len() {
            let CommitWaiter { lsn, durable, .. } = self.waiters[at];
            if self.reached(lsn, durable) {
                woken.push(self.waiters.swap_remove(at), WakeReason::Done);
            } else if self.failed {
                woken.push(self.waiters.swap_remove(at), WakeReason::Failed);
            } else {
                at += 1;
            }
        }
        if !self.syncing
            && self.progress.needs_sync()
            && let Some(at) = self.waiters.iter().position(|w| w.durable)
        {
            self.syncing = true;
            woken.push(self.waiters.swap_remove(at), WakeReason::Sync);
        }
        let sealed = self.sealed;
        if self.may_lead(0)
            && let Some(at) = self.waiters.iter().position(|w| w.lsn > sealed)
        {
            self.called += 1;
            woken.push(self.waiters.swap_remove(at), WakeReason::Lead);
        }
    }
}
