//! An owner of locks: a transaction, as the lock table sees it.

use super::merged_locks::MergedLocks;
use super::waiter::LockWaiter;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// A transaction, as the lock table knows it. One per transaction; only its own thread acquires
/// and releases.
pub struct LockOwner {
    id: u64,
    interrupted: Arc<AtomicBool>,
    changed_rows: AtomicU64,
    /// 0 once detached.
    host: Mutex<u64>,
    pub(super) held: Mutex<HeldLocks>,
    /// Locks that have left the hash table.
    pub(super) merged: Mutex<MergedLocks>,
    /// The slots of the registry that name it, a bit each; only who acquires and releases looks.
    pub(super) registered: AtomicU64,
    waiting: Mutex<Option<Arc<LockWaiter>>>,
}

/// The locks of an owner that are rows of the hash table.
#[derive(Default)]
pub(super) struct HeldLocks {
    /// Each once, in the order granted.
    pub(super) keys: Vec<Arc<[u8]>>,
    /// Merge when there are more than the table's threshold and this many.
    pub(super) stuck: usize,
}

impl LockOwner {
    /// An owner without locks. `id` is for reports and unique among live transactions; `host` is
    /// opaque, handed to [`super::WaitObserver`], 0 for none.
    pub fn new(id: u64, host: u64) -> Arc<Self> {
        Self::with_interrupt(id, host, Arc::default())
    }

    /// An owner for what the session of `self` does beside its transaction: a kill of the session
    /// is heard there, too, by those who ask now and then.
    pub fn helper(&self, id: u64) -> Arc<Self> {
        Self::with_interrupt(id, 0, self.interrupt_flag())
    }

    fn with_interrupt(id: u64, host: u64, interrupted: Arc<AtomicBool>) -> Arc<Self> {
        Arc::new(Self {
            id,
            interrupted,
            changed_rows: AtomicU64::new(0),
            host: Mutex::new(host),
            held: Mutex::default(),
            merged: Mutex::default(),
            registered: AtomicU64::new(0),
            waiting: Mutex::new(None),
        })
    }

    /// The id given at creation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The session was killed: a wait under way, and every later one until
    /// [`LockOwner::clear_interrupt`], ends with
    /// [`Interrupted`](crate::base::ErrorKind::Interrupted). From any thread.
    pub fn interrupt(&self) {
        // Before looking for a waiter; `LockTable` registers its waiter before it looks here.
        self.interrupted.store(true, Ordering::SeqCst);
        let waiter = self.waiting();
        if let Some(waiter) = waiter {
            waiter.kick();
        }
    }

    /// Waits may happen again.
    pub fn clear_interrupt(&self) {
        self.interrupted.store(false, Ordering::SeqCst);
    }

    /// Whether [`LockOwner::interrupt`] was called and not cleared.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// The flag behind [`LockOwner::is_interrupted`], for threads that work for the session.
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    /// Sets how many rows the transaction changed so far: what a deadlock's victim would lose.
    pub fn set_changed_rows(&self, rows: u64) {
        self.changed_rows.store(rows, Ordering::Relaxed);
    }

    /// Number of keys locked.
    pub fn locks_held(&self) -> usize {
        // Together: others move locks from the one to the other.
        let merged = self.merged.lock();
        merged.len() as usize + self.held.lock().keys.len()
    }

    /// Cost of a rollback: rows changed plus locks held.
    pub(super) fn weight(&self) -> u64 {
        let rows = self.changed_rows.load(Ordering::Relaxed);
        rows.saturating_add(self.locks_held() as u64)
    }

    /// The host's context, unless detached. The context stays valid while `f` runs: detaching
    /// waits for it.
    pub fn with_host(&self, f: impl FnOnce(u64)) {
        let host = self.host.lock();
        if *host != 0 {
            f(*host);
        }
    }

    /// The host's context is about to go away; nobody is given it after this returns.
    pub fn detach_host(&self) {
        *self.host.lock() = 0;
    }

    pub(super) fn waiting(&self) -> Option<Arc<LockWaiter>> {
        self.waiting.lock().clone()
    }

    pub(super) fn set_waiting(&self, waiter: Option<Arc<LockWaiter>>) {
        *self.waiting.lock() = waiter;
    }
}

impl std::fmt::Debug for LockOwner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LockOwner")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
