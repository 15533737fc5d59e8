//! Counts the commits that may still insert.

use parking_lot::{Condvar, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts the commits that may still insert into a memtable. A freeze does not end the inserts of
/// commits that chose the memtable before. Each commit is counted when it gets its seqno; a flush
/// waits for zero.
#[derive(Default)]
pub(super) struct WriterRefs {
    active: AtomicU64,
    sleepers: AtomicU64,
    mutex: Mutex<()>,
    zero: Condvar,
}

impl WriterRefs {
    pub(super) fn begin(&self) {
        self.active.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        // SeqCst here and in `wait_zero`: either the last writer sees that a flush sleeps and wakes
        // it, or the flush sees zero and does not sleep. SeqCst includes Release, so the inserts
        // happen before the flush.
        let before = self.active.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "writers_end without writers_begin");
        if before == 1 && self.sleepers.load(Ordering::SeqCst) > 0 {
            let _guard = self.mutex.lock();
            self.zero.notify_all();
        }
    }

    pub(super) fn is_zero(&self) -> bool {
        self.active.load(Ordering::SeqCst) == 0
    }

    pub(super) fn wait_zero(&self) {
        if self.is_zero() {
            return;
        }
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let mut guard = self.mutex.lock();
        while !self.is_zero() {
            self.zero.wait(&mut guard);
        }
        drop(guard);
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}
