//! A host that prescribes an order of transactions (parallel replication) observes lock waits.

use super::LockOwner;
use super::lock_request::LockRequest;
use crate::wal::Acknowledgement;
use parking_lot::RwLock;
use std::cmp;
use std::sync::Arc;
use std::time::Duration;

/// The blockers of a transaction of which the host wants to hear.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitReports {
    /// None.
    None,
    /// Those right ahead of it, a few dozen at most. It suffices that each transaction is reported
    /// once that others wait for, and that each that waits is reported.
    Nearest,
    /// Each one.
    All,
}

/// Receives reports of lock waits, for a host that prescribes an order of transactions.
///
/// A transaction that must commit later can hold a lock for which an earlier one waits. It keeps
/// the lock, since it waits for its turn to commit, and no deadlock search sees that wait: the host
/// must roll it back. So the host learns of every pair of waiter and blocker, whichever of the two
/// came first.
pub trait WaitObserver: Send + Sync {
    /// The blockers of the transaction with context `waiter` that are to be reported with
    /// [`Self::waits_for`]. Called on the waiter's thread when a wait begins, and from other
    /// threads with the lock table's locks held while it waits: it must neither wait nor call the
    /// engine. The answer does not change while the transaction waits.
    fn wanted_reports(&self, _waiter: u64) -> WaitReports {
        WaitReports::All
    }

    /// The transaction with context `waiter` waits until the one with context `blocker` releases a
    /// lock or leaves a queue. Called on the waiter's thread, once per blocker of which
    /// [`Self::wanted_reports`] wants to hear, before it sleeps; or on the thread of a blocker that
    /// gets in the way of a request that waits already (an upgrade, a gap lock). Both contexts are
    /// those of [`LockOwner::new`]; an owner without context is not reported. The other thread's
    /// context stays valid during the call, since [`LockOwner::detach_host`] waits for it.
    ///
    /// The host may interrupt the blocker after this call, so it must not hear of a blocker whose
    /// session has gone on to its next transaction. Therefore the caller holds the lock of the row
    /// or of the gap locks: the blocker cannot release what it holds, and the waiter cannot stop
    /// waiting. So the host must not call the engine here, and must take no lock that one of its
    /// threads holds while it calls the engine.
    fn waits_for(&self, waiter: u64, blocker: u64);

    /// Whether the host has fixed the order in which the transactions with these contexts commit.
    /// An insert of the one then does not wait for gap locks of the other. The order is fixed only
    /// for transactions of which the host wants [all reports](WaitReports::All). The answer does
    /// not change while both transactions run. Called from any thread with the lock table's locks
    /// held: it must neither wait nor call the engine.
    fn commits_in_fixed_order(&self, _one: u64, _other: u64) -> bool {
        false
    }

    /// Tells which of two members of a deadlock the host prefers as the victim: `Less` for the
    /// first, `Greater` for the second, `Equal` for none. Called from any thread with the lock
    /// table's locks held, while both wait: it must neither wait nor call the engine.
    fn preferred_victim(&self, _one: u64, _other: u64) -> cmp::Ordering {
        cmp::Ordering::Equal
    }

    /// The transaction with context `waiter` goes to sleep, for at most `timeout`. Returns the
    /// timeout that it shall use instead. Called on its thread.
    fn sleeps(&self, _waiter: u64, timeout: Duration) -> Duration {
        timeout
    }

    /// The transaction with context `waiter` woke up. Called on its thread.
    fn wakes(&self, _waiter: u64) {}

    /// The session with context `waiter` goes to sleep until flushes and compactions catch up.
    /// Called on its thread.
    fn stalls(&self, _waiter: u64) {}

    /// The sleep of the session with context `waiter` that [`Self::stalls`] has announced is over.
    /// Called on its thread.
    fn resumes(&self, _waiter: u64) {}

    /// The session with context `waiter` waits until a commit is durable. Called on its thread.
    fn commit_waits(&self, _waiter: u64) {}

    /// The wait of the session with context `waiter` that [`Self::commit_waits`] has announced is
    /// over. Called on its thread.
    fn commit_resumes(&self, _waiter: u64) {}

    /// Whether the host can hold back its answer to the session with context `waiter`, and does
    /// nothing else for the session before that answer: then the session's thread need not wait
    /// until its commit is durable. Called on its thread.
    fn may_hold_answer(&self, _waiter: u64) -> bool {
        false
    }

    /// Makes the host hold back its answer to the session with context `waiter` until the result is
    /// sent. Called on its thread with the log's mutex held: it must neither wait nor call the
    /// engine. The context must stay valid until the result was sent. If that is sent with `false`,
    /// the session must get no answer, because the outcome of its commit is unknown.
    fn hold_answer(&self, _waiter: u64) -> Option<Acknowledgement> {
        None
    }

    /// The SQL text that the session with context `host` executes; `None` if the host cannot give
    /// it without a wait. Called from any thread, also while the lock table's locks are held: it
    /// must neither wait for a lock nor call the engine.
    fn statement(&self, _host: u64) -> Option<String> {
        None
    }
}

/// The observer of a lock table, if it has one.
#[derive(Default)]
pub(super) struct ObserverCell(RwLock<Option<Arc<dyn WaitObserver>>>);

impl ObserverCell {
    pub(super) fn set(&self, observer: Option<Arc<dyn WaitObserver>>) {
        *self.0.write() = observer;
    }

    pub(super) fn get(&self) -> Option<Arc<dyn WaitObserver>> {
        self.0.read().clone()
    }

    /// The reports that the host wants about `waiter`. The caller runs on the thread of `waiter`,
    /// or holds the lock of the queue in which it waits: so its context stays valid.
    pub(super) fn wanted_reports(&self, waiter: &LockOwner) -> WaitReports {
        match (self.get(), waiter.host()) {
            (Some(observer), host) if host != 0 => observer.wanted_reports(host),
            _ => WaitReports::None,
        }
    }

    /// Tells whether the host has fixed the order in which `one` and another owner commit. The
    /// caller runs on the thread of `one`, or holds the lock of the queue in which `one` waits: so
    /// the context of `one` stays valid. Without parallel replication, the host is asked once, and
    /// not for each of the others.
    pub(super) fn fixed_order(&self, one: &LockOwner) -> impl Fn(&LockOwner) -> bool + use<> {
        let host = one.host();
        let observer = self
            .get()
            .filter(|observer| host != 0 && observer.wanted_reports(host) == WaitReports::All);
        move |other| {
            let mut fixed = false;
            if let Some(observer) = &observer {
                other.with_host(|other| fixed = observer.commits_in_fixed_order(host, other));
            }
            fixed
        }
    }

    /// As [`WaitObserver::preferred_victim`]. The caller holds the graph lock, and both owners
    /// wait, so neither's session can end.
    pub(super) fn preferred_victim(&self, one: &LockOwner, other: &LockOwner) -> cmp::Ordering {
        match (self.get(), one.host(), other.host()) {
            (Some(observer), one, other) if one != 0 && other != 0 => {
                observer.preferred_victim(one, other)
            }
            _ => cmp::Ordering::Equal,
        }
    }
}

/// Reports that `waiter` waits for the owner with context `blocking`, if both have a context. The
/// caller runs on the thread of that owner and holds the lock of the queue, so `waiter` still
/// waits.
pub(super) fn report_wait(observer: &dyn WaitObserver, waiter: &LockRequest, blocking: u64) {
    if blocking != 0 {
        let waiting = &waiter.owner;
        waiting.with_host(|waiting| observer.waits_for(waiting, blocking));
    }
}
