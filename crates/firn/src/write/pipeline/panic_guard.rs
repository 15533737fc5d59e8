//! A commit that panics on its way must not hold up those behind it.

use super::Pipeline;
use crate::base::health::Health;
use crate::base::{Error, ErrorKind, Seqno};
use crate::memtable::Memtable;
use crate::wal::Lsn;
use std::sync::Arc;

/// Poisons the engine when it is dropped by a panic. It is declared behind the guard of the
/// pipeline's mutex, so that it goes first: no other commit may take a seqno that the log has
/// already.
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

/// A commit between its seqno and its publication. If it is dropped before it [`ends`](Self::ends),
/// by a panic, the engine is poisoned and publication ends before it. It is declared before the
/// guard of the pipeline's mutex, which it locks then.
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

    /// The commit is to have this seqno.
    pub(super) fn takes(&mut self, seqno: Seqno) {
        self.seqno = Some(seqno);
    }

    /// Its record ends at `lsn`.
    pub(super) fn appended(&mut self, lsn: Lsn) {
        self.lsn = Some(lsn);
    }

    /// It inserts into `memtable`, which no flush may take before it has.
    pub(super) fn writes_to(&mut self, memtable: &Arc<Memtable>) {
        memtable.writers_begin();
        self.memtable = Some(Arc::clone(memtable));
    }

    /// It has inserted all it has.
    pub(super) fn wrote(&mut self) {
        if let Some(memtable) = self.memtable.take() {
            memtable.writers_end();
        }
    }

    /// It is published, or hidden for good.
    pub(super) fn ends(mut self) {
        self.seqno = None;
    }

    /// It is in the log and cannot be applied: nothing may be built on top of it.
    pub(super) fn fails(&self, cause: Error) {
        self.pipeline.health.poison(cause);
        self.hide();
    }

    fn hide(&self) {
        let Some(seqno) = self.seqno else { return };
        let pipeline = self.pipeline;
        // Without its own place the record, if there is one, is the last: nobody appends any more.
        let lsn = self.lsn.unwrap_or_else(|| pipeline.wal.appended_lsn() + 1);
        pipeline.hide_from(&mut pipeline.state.lock(), seqno, lsn);
        pipeline.contain_failure();
    }
}

impl Drop for CommitGuard<'_> {
    fn drop(&mut self) {
        // After an error of the append there is nothing to hide.
        if std::thread::panicking() && self.seqno.is_some() {
            poison(&self.pipeline.health);
            self.hide();
        }
        // Last: a flush that waits for it finds the engine poisoned.
        self.wrote();
    }
}
