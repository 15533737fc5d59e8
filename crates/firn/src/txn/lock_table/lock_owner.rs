//! The owner of locks: a transaction, as the lock table sees it.

use super::lock_request::LockRequest;
use super::merged_locks::MergedLocks;
use super::own_gaps::OwnGaps;
use crate::base::IndexId;
use crate::base::parker::Parker;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// A transaction, as the lock table sees it.
///
/// Only one thread at a time acquires and releases locks for an owner. Other threads move its locks
/// between `merged` and `held` when they have to wait for one of them, read its weight in a
/// deadlock search, and interrupt it. Lock order: `merged` → `held`. `waiting` and `parked` are
/// leaves. `gaps` comes before a slot of gap locks, and reports read it with the graph lock held.
/// `host` is held while a callback of the host runs ([`super::WaitObserver`]), and may be taken
/// with the graph lock, a shard, `gaps` or a slot of gap locks held: these callbacks do not come
/// back to the lock table, and the locks that they take in the host are never held by a thread that
/// calls the engine. No thread holds the `host` mutexes or the `gaps` of two owners.
pub struct LockOwner {
    id: u64,
    /// The host's number of the session, for reports; 0 for none.
    session: u64,
    interrupted: Arc<AtomicBool>,
    /// The parker in which the session sleeps at the stall gate; `None` while it does not sleep
    /// there. The owners that [`Self::helper`] makes for the session share it.
    parked: Arc<Mutex<Option<Arc<Parker>>>>,
    changed_rows: AtomicU64,
    /// The host's context; 0 once detached.
    host: Mutex<u64>,
    pub(super) held: Mutex<HeldLocks>,
    /// Locks that have left the hash table.
    pub(super) merged: Mutex<MergedLocks>,
    /// One bit for each slot of `MergedLockRegistry` that lists the owner. Only the thread that
    /// acquires and releases locks for the owner uses it.
    pub(super) registered: AtomicU64,
    /// Its gap locks.
    pub(super) gaps: Mutex<OwnGaps>,
    /// The request that waits.
    waiting: Mutex<Option<Arc<LockRequest>>>,
    /// The referenced table that DDL has closed and that the owner waits for until DDL opens it
    /// again; 0 for none. Only the owner's thread stores into it.
    awaits: AtomicU32,
    /// Whether it has asked for a shared lock.
    shares: AtomicBool,
}

/// The locks of an owner that are rows of the hash table.
#[derive(Default)]
pub(super) struct HeldLocks {
    /// The keys of the rows, each once, in the order in which their locks were granted or moved
    /// back from the merged locks.
    pub(super) keys: Vec<Arc<[u8]>>,
    /// Number of keys that could not become merged locks the last time, because requests wait for
    /// their rows. They do not count towards the number of keys at which locks are merged;
    /// otherwise each further lock would try to merge them again.
    pub(super) stuck: usize,
}

impl LockOwner {
    /// An owner without locks. `id` appears in reports and is unique among live transactions.
    /// `host` is the host's opaque context for [`super::WaitObserver`]; 0 for none.
    pub fn new(id: u64, host: u64) -> Arc<Self> {
        Self::of_session(id, host, 0)
    }

    /// As [`Self::new`], with the host's number of the session, which appears in reports.
    pub fn of_session(id: u64, host: u64, session: u64) -> Arc<Self> {
        Self::with_interrupt(id, host, session, Arc::default(), Arc::default())
    }

    /// An owner for work of the same session outside its transaction. It shares the interrupt flag,
    /// so work that polls the flag ends when the session is killed.
    pub fn helper(&self, id: u64) -> Arc<Self> {
        let parked = Arc::clone(&self.parked);
        Self::with_interrupt(id, 0, self.session, self.interrupt_flag(), parked)
    }

    fn with_interrupt(
        id: u64,
        host: u64,
        session: u64,
        interrupted: Arc<AtomicBool>,
        parked: Arc<Mutex<Option<Arc<Parker>>>>,
    ) -> Arc<Self> {
        Arc::new(Self {
            id,
            session,
            interrupted,
            parked,
            changed_rows: AtomicU64::new(0),
            host: Mutex::new(host),
            held: Mutex::default(),
            merged: Mutex::default(),
            registered: AtomicU64::new(0),
            gaps: Mutex::default(),
            waiting: Mutex::new(None),
            awaits: AtomicU32::new(0),
            shares: AtomicBool::new(false),
        })
    }

    /// Notes that the owner begins to wait until DDL opens the referenced table with clustered
    /// index `table`; `None` notes that the wait has ended.
    pub(in crate::txn) fn set_awaits(&self, table: Option<IndexId>) {
        self.awaits
            .store(table.unwrap_or_default(), Ordering::Release);
    }

    /// The referenced table for which the owner waits.
    pub(super) fn awaits(&self) -> Option<IndexId> {
        Some(self.awaits.load(Ordering::Acquire)).filter(|table| *table != 0)
    }

    /// Notes that the owner asks for a shared lock.
    pub(super) fn note_share(&self) {
        if !self.shares() {
            self.shares.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that the owner holds no lock.
    pub(super) fn forget_shares(&self) {
        if self.shares() {
            self.shares.store(false, Ordering::Relaxed);
        }
    }

    /// Whether the owner may hold shared locks. If not, the caller need not look for a shared lock
    /// of the owner on a certain key.
    pub(super) fn shares(&self) -> bool {
        self.shares.load(Ordering::Relaxed)
    }

    /// The id given at creation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The host's number of the session; 0 for none.
    pub fn session(&self) -> u64 {
        self.session
    }

    /// Interrupts the owner, since its session was killed: the current wait, and every later one
    /// until [`LockOwner::clear_interrupt`], ends with
    /// [`Interrupted`](crate::base::ErrorKind::Interrupted). Any thread may call it.
    pub fn interrupt(&self) {
        // Set the flag before looking for a waiter: the lock table registers the waiter before it
        // checks the flag, so one of the two sees the other.
        self.interrupted.store(true, Ordering::SeqCst);
        let waiter = self.waiting();
        if let Some(waiter) = waiter {
            waiter.kick();
        }
        // The same holds for the stall gate.
        let parker = self.parked.lock().clone();
        if let Some(parker) = parker {
            parker.unpark();
        }
    }

    /// The session is about to sleep in `parker`, where [`Self::interrupt`] wakes it; `None` when
    /// it does not sleep any more. The caller checks [`Self::is_interrupted`] before it sleeps.
    pub(in crate::txn) fn set_parked(&self, parker: Option<Arc<Parker>>) {
        *self.parked.lock() = parker;
    }

    /// Ends the effect of [`LockOwner::interrupt`].
    pub fn clear_interrupt(&self) {
        // Load before storing: each statement clears the flag, which is almost never set. A store
        // would take the cache line from other processors and drain this processor's store buffer.
        if self.is_interrupted() {
            self.interrupted.store(false, Ordering::SeqCst);
        }
    }

    /// Whether [`LockOwner::interrupt`] was called and not cleared.
    pub fn is_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// The flag that [`LockOwner::is_interrupted`] reads, for threads that work for the session.
    pub fn interrupt_flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.interrupted)
    }

    /// Sets the number of rows that the transaction has changed so far. The deadlock search prefers
    /// victims with few changed rows.
    pub fn set_changed_rows(&self, rows: u64) {
        self.changed_rows.store(rows, Ordering::Relaxed);
    }

    /// Number of changed rows, as [`LockOwner::set_changed_rows`] has set it.
    pub fn changed_rows(&self) -> u64 {
        self.changed_rows.load(Ordering::Relaxed)
    }

    /// Number of keys locked.
    pub fn locks_held(&self) -> usize {
        // Hold both mutexes together: other threads move locks from `merged` to `held`, and a lock
        // that moves must count once.
        let merged = self.merged.lock();
        merged.len() as usize + self.held.lock().keys.len()
    }

    /// Number of ranges locked against inserts. Ranges that adjoin count once.
    pub fn gaps_held(&self) -> usize {
        self.gaps.lock().ranges.len()
    }

    /// Estimated cost of a rollback: number of changed rows plus number of held row locks and gap
    /// locks.
    pub fn weight(&self) -> u64 {
        let rows = self.changed_rows();
        rows.saturating_add((self.locks_held() + self.gaps_held()) as u64)
    }

    /// The host's context; 0 if there is none. On the owner's own thread it stays valid. On another
    /// thread it stays valid only while the owner waits, and while the caller holds a lock that
    /// keeps this wait from ending.
    pub(crate) fn host(&self) -> u64 {
        *self.host.lock()
    }

    /// Calls `f` with the host's context, if there is one. The context stays valid while `f` runs:
    /// [`Self::detach_host`] waits for the mutex that is held meanwhile.
    pub fn with_host(&self, f: impl FnOnce(u64)) {
        let host = self.host.lock();
        if *host != 0 {
            f(*host);
        }
    }

    /// Calls `f` with the host's context, if there is one and no other thread holds its mutex now.
    /// Does not wait for that mutex. The context stays valid while `f` runs.
    pub(super) fn try_with_host(&self, f: impl FnOnce(u64)) {
        if let Some(host) = self.host.try_lock()
            && *host != 0
        {
            f(*host);
        }
    }

    /// When the wait of the owner began, microseconds since 1970; `None` if it does not wait.
    pub fn waits_since_us(&self) -> Option<u64> {
        self.waiting().map(|waiter| waiter.since_us)
    }

    /// Forgets the host's context, which is about to become invalid. Waits for calls of
    /// [`Self::with_host`] that use it; later ones do not get it.
    pub fn detach_host(&self) {
        *self.host.lock() = 0;
    }

    pub(super) fn waiting(&self) -> Option<Arc<LockRequest>> {
        self.waiting.lock().clone()
    }

    pub(super) fn set_waiting(&self, waiter: Option<Arc<LockRequest>>) {
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
