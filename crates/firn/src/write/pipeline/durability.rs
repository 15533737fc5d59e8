//! Waits for durable commits, and hides commits that a failed log has lost.

use super::{Pipeline, PipelineState};
use crate::base::options::CommitDurability;
use crate::base::{Error, ErrorKind, Result, Seqno};
use crate::wal::{Acknowledgement, Lsn};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl Pipeline {
    /// Whether a failure has stopped all writes. It is then unknown whether the log contains the
    /// last appended records.
    pub fn is_poisoned(&self) -> bool {
        self.health.cause().is_some()
    }

    /// Whether the last attempt of the log or of background work to write found the disk full.
    pub fn is_disk_full(&self) -> bool {
        self.health.is_full(None)
    }

    /// Whether the log up to `lsn` is on the device.
    pub fn is_durable(&self, lsn: Lsn) -> bool {
        lsn <= self.wal.durable_lsn()
    }

    /// Waits until the log up to `lsn`, the end of a commit's record, is as durable as the flush
    /// mode promises.
    ///
    /// # Errors
    /// `Poisoned` if the log has failed, or if another failure hid the commit before it was
    /// durable: a commit that readers do not see must not be acknowledged.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        let waited = match self.mutable.commit_durability() {
            CommitDurability::Sync => self.wal.sync_to(lsn),
            CommitDurability::Write => self.wal.write_to(lsn),
            CommitDurability::Lazy => Ok(()),
        };
        waited.inspect_err(|_| self.contain_failure())?;
        // The log has made this commit as durable as promised. But if some other write or sync
        // failed before that, [`Self::contain_failure`] may have hidden the commit from readers. It
        // hides only commits that are not durable at that moment.
        if self.is_poisoned()
            && self
                .state
                .lock()
                .hidden_from
                .is_some_and(|from| from <= lsn)
        {
            return self.health.check();
        }
        Ok(())
    }

    /// If [`Self::wait_durable`] would sleep, arranges that an acknowledgement is sent when the
    /// commit is durable, or with `false` in place of an error, and returns `true`. Otherwise the
    /// caller must wait. `acknowledgement` must neither wait nor call the engine.
    pub fn acknowledge_later(
        self: &Arc<Self>,
        lsn: Lsn,
        acknowledgement: impl FnOnce() -> Option<Acknowledgement>,
    ) -> bool {
        if self.mutable.commit_durability() != CommitDurability::Sync {
            return false;
        }
        self.wal.acknowledge_later(lsn, || {
            let acknowledgement = acknowledgement()?;
            // The log must not keep the pipeline alive, which keeps the log.
            let pipeline = Arc::downgrade(self);
            Some(Acknowledgement::new(move |durable| {
                let pipeline = pipeline.upgrade();
                let durable = pipeline.is_some_and(|one| one.may_acknowledge(durable));
                acknowledgement.send(durable);
            }))
        })
    }

    /// Whether a commit may be acknowledged; `durable` says whether the log has made it durable.
    /// Called on the log writer.
    fn may_acknowledge(&self, durable: bool) -> bool {
        if !durable {
            self.contain_failure();
        }
        // After a failure, only the mutex would tell whether this commit is hidden, and its holder
        // may wait for the log writer. Without a failure so far, it will not be hidden: it is
        // durable already.
        durable && !self.is_poisoned()
    }

    /// Makes everything appended so far durable, whatever the flush mode.
    ///
    /// # Errors
    /// Those of the log: `Io`, `NoSpace`, `Poisoned`.
    pub fn sync_all(&self) -> Result<()> {
        self.sync_to(self.wal.appended_lsn())
    }

    /// Makes the log up to `lsn` durable, whatever the flush mode.
    ///
    /// # Errors
    /// Those of the log: `Io`, `NoSpace`, `Poisoned`.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        self.wal
            .sync_to(lsn)
            .inspect_err(|_| self.contain_failure())
    }

    /// Hides commits that the failed log has lost: visibility falls back to the last durable
    /// commit. Durable commits that are not applied yet still become visible.
    pub fn contain_failure(&self) {
        if self.health.cause().is_none() {
            return;
        }
        let mut state = self.state.lock();
        if state.poisoned {
            return;
        }
        state.poisoned = true;
        let durable = self.wal.durable_lsn();
        if let Some(&(lsn, seqno)) = state.undurable.iter().find(|(lsn, _)| *lsn > durable) {
            self.hide_from(&mut state, seqno, lsn);
        }
        self.stall.release();
    }

    /// Hides all commits from `seqno` on, whose records end at `lsn` or later, for ever.
    pub(super) fn hide_from(&self, state: &mut PipelineState, seqno: Seqno, lsn: Lsn) {
        if seqno < state.lost_from {
            state.lost_from = seqno;
            let cap = (seqno - 1).min(self.visible.load(Ordering::Acquire));
            self.visible.store(cap, Ordering::Release);
        }
        let from = state.hidden_from.map_or(lsn, |from| from.min(lsn));
        state.hidden_from = Some(from);
        for waiter in state.queue.iter().filter_map(|one| one.waiter.as_ref()) {
            waiter.unpark();
        }
    }
}

/// The error of a commit whose log bytes may or may not survive.
pub fn unknown_outcome(cause: &Error) -> Error {
    Error::new(
        ErrorKind::Poisoned,
        format!("the outcome of this commit is unknown until the server restarts: {cause}"),
    )
}
