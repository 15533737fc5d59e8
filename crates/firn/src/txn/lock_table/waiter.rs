//! One waiting request and its parker.

use super::{LockMode, LockOwner};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Duration;

/// Outcome of a waiting request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WaitOutcome {
    /// Nothing yet: it is in its row's queue.
    Waiting,
    Granted,
    /// Chosen as a deadlock's victim.
    Victim,
    /// Left by itself: time ran out, or the session was killed.
    Left,
}

/// A request in the queue of a row.
///
/// The outcome leaves `Waiting` once, under the lock of the row's shard and together with the
/// removal from the queue; then the sleeper is woken, once.
pub(super) struct LockWaiter {
    pub(super) owner: Arc<LockOwner>,
    pub(super) key: Arc<[u8]>,
    pub(super) mode: LockMode,
    /// The owner holds the row shared and asks for exclusive.
    pub(super) upgrade: bool,
    signal: Mutex<WaitState>,
    wake: Condvar,
}

struct WaitState {
    outcome: WaitOutcome,
    kicked: bool,
}

impl LockWaiter {
    pub(super) fn new(
        owner: &Arc<LockOwner>,
        key: &Arc<[u8]>,
        mode: LockMode,
        upgrade: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            owner: Arc::clone(owner),
            key: Arc::clone(key),
            mode,
            upgrade,
            signal: Mutex::new(WaitState {
                outcome: WaitOutcome::Waiting,
                kicked: false,
            }),
            wake: Condvar::new(),
        })
    }

    pub(super) fn outcome(&self) -> WaitOutcome {
        self.signal.lock().outcome
    }

    /// Decides. The caller holds the shard's lock and took the waiter out of the queue.
    pub(super) fn decide(&self, outcome: WaitOutcome) {
        let mut signal = self.signal.lock();
        debug_assert_eq!(signal.outcome, WaitOutcome::Waiting);
        signal.outcome = outcome;
    }

    /// Wakes the sleeper after a decision; best without the shard's lock.
    pub(super) fn notify(&self) {
        self.wake.notify_one();
    }

    /// Makes the sleeper look around.
    pub(super) fn kick(&self) {
        self.signal.lock().kicked = true;
        self.wake.notify_one();
    }

    /// Sleeps until a decision, a kick, or the end of `timeout`. The outcome may still be
    /// `Waiting` afterwards. (The condition variable has no spurious wake-ups, so the timeout
    /// starts over at most once.)
    pub(super) fn sleep(&self, timeout: Duration) -> WaitOutcome {
        let mut signal = self.signal.lock();
        while signal.outcome == WaitOutcome::Waiting && !signal.kicked {
            if self.wake.wait_for(&mut signal, timeout).timed_out() {
                break;
            }
        }
        signal.outcome
    }
}
