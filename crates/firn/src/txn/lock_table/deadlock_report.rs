//! The last deadlocks, each with the locks and the statements of its transactions.

use super::lock_owner::LockOwner;
use super::lock_reports::lock_words;
use super::lock_request::LockRequest;
use super::{LockMode, WaitObserver};
use crate::base::wall_clock;
use parking_lot::{Mutex, RwLock};
use std::collections::VecDeque;
use std::sync::Arc;

/// Deadlocks that are kept for reports.
const KEPT: usize = 10;

/// A cycle of waits, in which each member waits for the next one, and the last one for the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deadlock {
    /// The number of this deadlock since the database was opened; the first one has number 1.
    pub number: u64,
    /// When it was found, microseconds since 1970.
    pub at_us: u64,
    /// The transactions; the first one has closed the cycle.
    pub members: Vec<DeadlockMember>,
    /// Position in `members` of the transaction that was rolled back.
    pub victim: usize,
}

/// A transaction in a deadlock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeadlockMember {
    /// Id of the lock owner.
    pub owner: u64,
    /// The host's number of the session; 0 for none.
    pub session: u64,
    /// Estimated cost of a rollback, by which the victim is chosen.
    pub weight: u64,
    /// The user key that the transaction wanted to lock.
    pub key: Vec<u8>,
    /// The mode that it wanted.
    pub mode: LockMode,
    /// Whether the transaction wanted to insert the key into a gap that the next member has locked.
    pub is_insert: bool,
    /// The SQL text that the transaction executed; `None` if the host could not give it without a
    /// wait.
    pub statement: Option<String>,
}

impl DeadlockMember {
    /// Describes the owner that waits with `waiter`. Does not wait for the mutex of the owner's
    /// host context, so the caller may hold the graph lock.
    pub(super) fn new(
        waiter: &LockRequest,
        weight: u64,
        observer: &Option<Arc<dyn WaitObserver>>,
    ) -> Self {
        let owner: &LockOwner = &waiter.owner;
        let mut statement = None;
        if let Some(observer) = observer {
            owner.try_with_host(|host| statement = observer.statement(host));
        }
        Self {
            owner: owner.id(),
            session: owner.session(),
            weight,
            key: waiter.key.to_vec(),
            mode: waiter.mode,
            is_insert: waiter.for_gap,
            statement,
        }
    }

    /// The lock that it wanted, in words.
    pub fn words(&self) -> &'static str {
        lock_words(self.is_insert, self.mode)
    }
}

type DeadlockListener = Box<dyn Fn(&Deadlock) + Send + Sync>;

/// The last deadlocks and their number.
#[derive(Default)]
pub(super) struct DeadlockLog {
    last: Mutex<LastDeadlocks>,
    listener: RwLock<Option<DeadlockListener>>,
}

#[derive(Default)]
struct LastDeadlocks {
    number: u64,
    /// Oldest first.
    kept: VecDeque<Arc<Deadlock>>,
}

impl DeadlockLog {
    pub(super) fn on_deadlock(&self, listener: DeadlockListener) {
        *self.listener.write() = Some(listener);
    }

    pub(super) fn add(&self, members: Vec<DeadlockMember>, victim: usize) -> Arc<Deadlock> {
        let mut last = self.last.lock();
        last.number += 1;
        let deadlock = Arc::new(Deadlock {
            number: last.number,
            at_us: wall_clock::now_us(),
            members,
            victim,
        });
        if last.kept.len() == KEPT {
            last.kept.pop_front();
        }
        last.kept.push_back(Arc::clone(&deadlock));
        deadlock
    }

    /// Passes deadlocks to the listener. The caller must hold none of the lock table's locks.
    pub(super) fn report(&self, deadlocks: &[Arc<Deadlock>]) {
        if deadlocks.is_empty() {
            return;
        }
        if let Some(listener) = &*self.listener.read() {
            deadlocks.iter().for_each(|deadlock| listener(deadlock));
        }
    }

    /// Number of deadlocks found so far.
    pub(super) fn number(&self) -> u64 {
        self.last.lock().number
    }

    /// The last ten, oldest first.
    pub(super) fn kept(&self) -> Vec<Arc<Deadlock>> {
        self.last.lock().kept.iter().cloned().collect()
    }
}
