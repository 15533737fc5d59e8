//! Guards of a commit's steps: a commit that panics must not block later ones for ever.

use super::Pipeline;
use crate::base::health::Health;
use crate::base::{Error, ErrorKind, Seqno};
use crate::memtable::Memtable;
use crate::wal::Lsn;
use std::sync::Arc;

/// Poisons the engine when it is dropped by a panic. It is declared after the guard of the
/// pipeline's mutex, so that it is dropped first: no other commit may take a seqno that is in the
/// log already.
pub(super) struct PoisonOnPanic<'a>(pub(super) &'a Health);

impl Drop for PoisonOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            poison(self.0);
        }
    }
}

fn poison(health: &Health) {
    let message = "bug: a commit panicked on its way";
    health.poison(Error::new(ErrorKind::ShutDown, message));
}

/// Watches a commit between its seqno and its publication. If a panic drops the guard before
/// [`ends`](Self::ends) is called, the guard poisons the engine, and no commit from this one on is
/// published. It is declared before the guard of the pipeline's mutex, because its drop locks that
/// mutex.
pub(super) struct CommitGuard<'a> {
    pipeline: &'a Pipeline,
    seqno: Option<Seqno>,
    lsn: Option<Lsn>,
    memtable: Option<Arc<Memtable>>,
}

impl<'a> CommitGuard<'a> {
    pub(super) fn new(pipeline: &'a Pipeline) -> Self {
        Self {
            pipeline,
            seqno: None,
            lsn: None,
            memtable: None,
        }
    }

    /// Notes that the commit gets this seqno.
    pub(super) fn takes(&mut self, seqno: Seqno) {
        self.seqno = Some(seqno);
    }

    /// Notes that the record of the commit ends at `lsn`.
    pub(super) fn appended(&mut self, lsn: Lsn) {
        self.lsn = Some(lsn);
    }

    /// Notes that the commit inserts into `memtable`, which must not be flushed before
    /// [`Self::wrote`].
    pub(super) fn writes_to(&mut self, memtable: &Arc<Memtable>) {
        memtable.writers_begin();
        self.memtable = Some(Arc::clone(memtable));
    }

    /// Notes that the commit has inserted all of its entries into the memtable.
    pub(super) fn wrote(&mut self) {
        if let Some(memtable) = self.memtable.take() {
            memtable.writers_end();
        }
    }

    /// Ends the watch: the commit is published, or hidden for good.
    pub(super) fn ends(mut self) {
        self.seqno = None;
    }

    /// Notes that the commit is in the log and cannot be applied: no later commit may become
    /// visible.
    pub(super) fn fails(&self, cause: Error) {
        self.pipeline.health.poison(cause);
        self.hide();
    }

    fn hide(&self) {
        let Some(seqno) = self.seqno else { return };
        let pipeline = self.pipeline;
        // If the append did not return, it is unknown where the commit's record ends. Take a
        // position behind all appended records: the records of other commits end before it, so
        // their waits do not fail because of this commit.
        let lsn = self.lsn.unwrap_or_else(|| pipeline.wal.appended_lsn() + 1);
        pipeline.hide_from(&mut pipeline.state.lock(), seqno, lsn);
        pipeline.contain_failure();
    }
}

impl Drop for CommitGuard<'_> {
    fn drop(&mut self) {
        // Hide only after a panic. An append that failed without a panic has left no log record, so
        // there is nothing to hide.
        if std::thread::panicking() && self.seqno.is_some() {
            poison(&self.pipeline.health);
            self.hide();
        }
        // Release the memtable last, so that a flush which waits for this writer finds the engine
        // poisoned.
        self.wrote();
    }
}
