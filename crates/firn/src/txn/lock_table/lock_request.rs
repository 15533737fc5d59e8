//! One waiting request, and its condition variable.

use super::{LockMode, LockOwner, WaitReports};
use crate::base::wall_clock;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// The outcome of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    /// There is no outcome yet: the request is in its row's queue, or the insert waits for gap
    /// locks.
    Waiting,
    Granted,
    /// Chosen as the victim of a deadlock.
    Victim,
    /// The request has left the queue without its lock: its timeout expired, or the session was
    /// killed.
    Left,
}

/// A request in the queue of a row, or an insert that waits for gap locks.
///
/// The outcome changes once, from `Waiting`, in the same critical section of the row's shard, or
/// of the slot of the gap locks, that removes the request from the queue. Then the sleeper is woken
/// once.
pub(super) struct LockRequest {
    pub(super) owner: Arc<LockOwner>,
    pub(super) key: Arc<[u8]>,
    pub(super) mode: LockMode,
    /// Whether the owner holds the row shared and requests it exclusive.
    pub(super) upgrade: bool,
    /// Whether this is an insert of the key that waits for gap locks of other owners, not for a
    /// row.
    pub(super) for_gap: bool,
    /// The blockers of which the host wants to hear.
    pub(super) reports: WaitReports,
    /// When the wait began, microseconds since 1970.
    pub(super) since_us: u64,
    signal: Mutex<WaitOutcome>,
    wake: Condvar,
}

impl LockRequest {
    /// A request for the row of `key`.
    pub(super) fn for_row(
        owner: &Arc<LockOwner>,
        key: &Arc<[u8]>,
        mode: LockMode,
        upgrade: bool,
        reports: WaitReports,
    ) -> Arc<Self> {
        Arc::new(Self {
            owner: Arc::clone(owner),
            key: Arc::clone(key),
            mode,
            upgrade,
            for_gap: false,
            reports,
            since_us: wall_clock::now_us(),
            signal: Mutex::new(WaitOutcome::Waiting),
            wake: Condvar::new(),
        })
    }

    /// An insert of `key` that waits for gap locks.
    pub(super) fn for_gap(owner: &Arc<LockOwner>, key: &[u8], reports: WaitReports) -> Arc<Self> {
        Arc::new(Self {
            owner: Arc::clone(owner),
            key: Arc::from(key),
            mode: LockMode::Exclusive,
            upgrade: false,
            for_gap: true,
            reports,
            since_us: wall_clock::now_us(),
            signal: Mutex::new(WaitOutcome::Waiting),
            wake: Condvar::new(),
        })
    }

    pub(super) fn outcome(&self) -> WaitOutcome {
        *self.signal.lock()
    }

    /// Sets the outcome. The caller must hold the shard's lock and must have removed the request
    /// from the queue.
    pub(super) fn decide(&self, outcome: WaitOutcome) {
        let mut signal = self.signal.lock();
        debug_assert_eq!(*signal, WaitOutcome::Waiting);
        *signal = outcome;
    }

    /// Wakes the sleeper after [`Self::decide`]. The caller must not hold the shard's lock, which
    /// the sleeper may take next.
    pub(super) fn notify(&self) {
        self.wake.notify_one();
    }

    /// Wakes the sleeper without an outcome, so that it sees that its owner is interrupted. The
    /// caller sets the owner's interrupt flag first.
    pub(super) fn kick(&self) {
        // The waiting thread reads the interrupt flag while it holds the mutex `signal`. So it
        // either sees the flag, or it has released the mutex by going to sleep, and the
        // notification below wakes it.
        drop(self.signal.lock());
        self.wake.notify_one();
    }

    /// Sleeps until there is an outcome, the owner is interrupted, or `timeout` is over. The
    /// outcome may still be `Waiting` afterwards.
    ///
    /// A call of [`Self::kick`] may come late: it was meant for an earlier request of the owner,
    /// which has ended, and the owner's interrupt flag is cleared again. The sleep then starts over
    /// with the whole timeout, since a return without an interrupt would count as a timeout.
    pub(super) fn sleep(&self, timeout: Duration) -> WaitOutcome {
        let mut signal = self.signal.lock();
        while *signal == WaitOutcome::Waiting && !self.owner.is_interrupted() {
            if self.wake.wait_for(&mut signal, timeout).timed_out() {
                break;
            }
        }
        *signal
    }
}
