//! Waits for locks: from the queue through the search for deadlocks and the sleep to the outcome.

use super::deadlock_report::{Deadlock, DeadlockMember};
use super::lock_queue::VisitedRows;
use super::lock_request::{LockRequest, WaitOutcome};
use super::observer::{WaitReports, report_wait};
use super::{Granted, LockMode, LockOwner, LockTable};
use crate::base::pause_points::{self, PausePoint};
use crate::base::{Error, ErrorKind, IndexId, Result};
use crate::txn::deadlock;
use crate::wal::Acknowledgement;
use parking_lot::MutexGuard;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

impl LockTable {
    pub(super) fn wait(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        mode: LockMode,
        timeout: Duration,
    ) -> Result<Granted> {
        if owner.is_interrupted() {
            return Err(interrupted());
        }
        pause_points::at(PausePoint::LockRefused);
        let shard = self.shard(key);
        let reports = self.observer.wanted_reports(owner);
        let _reported = ReportedWait::begin(&self.reported_waits, reports);
        let graph = self.graph.lock();
        let waiter = match shard.attempt_or_enqueue(&self.registry, owner, key, mode, reports) {
            // Set `waited`, although this attempt did not sleep: another owner blocked the first
            // attempt and has released its lock since, perhaps by a commit that changed the row.
            Ok(locked) => {
                drop(graph);
                if locked.overtakes {
                    self.report_upgrade(owner, key);
                }
                return Ok(Granted {
                    newly: locked.newly,
                    upgraded: locked.upgraded,
                    waited: true,
                });
            }
            Err(waiter) => waiter,
        };
        self.sleep(graph, &waiter, timeout)?;
        if !waiter.upgrade {
            owner.held.lock().keys.push(Arc::clone(&waiter.key));
        }
        Ok(Granted {
            newly: !waiter.upgrade,
            upgraded: waiter.upgrade,
            waited: true,
        })
    }

    /// Searches for deadlocks, and sleeps until the request has been granted. The caller must have
    /// put the request into a queue while it held the graph lock.
    pub(super) fn sleep(
        &self,
        graph: MutexGuard<'_, ()>,
        waiter: &Arc<LockRequest>,
        timeout: Duration,
    ) -> Result<()> {
        let owner = &waiter.owner;
        owner.set_waiting(Some(Arc::clone(waiter)));
        let deadlocks = match self.detects_deadlocks.load(Ordering::Relaxed) {
            true => self.break_cycles(waiter),
            false => Vec::new(),
        };
        drop(graph);
        self.deadlocks.report(&deadlocks);
        self.waits.fetch_add(1, Ordering::Relaxed);
        if waiter.upgrade {
            // A request that upgrades a shared lock to an exclusive one goes before all other
            // requests in the queue, so these now wait for its owner, too. Tell this to the host
            // even if the upgrade has been granted by now: they then wait for the owner because it
            // holds the lock exclusively.
            self.report_upgrade(owner, &waiter.key);
        }
        if waiter.outcome() == WaitOutcome::Waiting {
            self.report_blockers(waiter);
        }
        // Check the interrupt flag: an interrupt that came before `set_waiting` found no waiter to
        // wake.
        if !owner.is_interrupted() {
            // This is the owner's thread, so the owner's context stays valid without its mutex.
            // That mutex must not be held during the calls: the host takes locks of its own, and
            // other threads call the lock table while they hold these.
            match (self.observer.get(), owner.host()) {
                (Some(observer), host) if host != 0 => {
                    waiter.sleep(observer.sleeps(host, timeout));
                    observer.wakes(host);
                }
                _ => _ = waiter.sleep(timeout),
            }
        }
        let outcome = match waiter.outcome() {
            WaitOutcome::Waiting => {
                let _graph = self.graph.lock();
                self.decide(waiter, WaitOutcome::Left)
            }
            decided => decided,
        };
        owner.set_waiting(None);
        match outcome {
            WaitOutcome::Granted => Ok(()),
            WaitOutcome::Victim => Err(Error::new(
                ErrorKind::Deadlock,
                "chosen as the victim; see the last deadlock in the engine's status",
            )),
            WaitOutcome::Left if owner.is_interrupted() => Err(interrupted()),
            WaitOutcome::Left => Err(self.timed_out()),
            WaitOutcome::Waiting => unreachable!("it left the queue"),
        }
    }

    /// Reports to the host that the session of `owner` goes to sleep at the stall gate if `begins`,
    /// otherwise that it has woken up. Must be called on the owner's thread.
    pub(in crate::txn) fn report_stall(&self, owner: &LockOwner, begins: bool) {
        match (self.observer.get(), owner.host()) {
            (Some(observer), host) if host != 0 && begins => observer.stalls(host),
            (Some(observer), host) if host != 0 => observer.resumes(host),
            _ => {}
        }
    }

    /// Reports to the host that the session of `owner` waits for the device if `begins`, otherwise
    /// that this wait is over. Must be called on the owner's thread.
    pub(in crate::txn) fn report_commit_wait(&self, owner: &LockOwner, begins: bool) {
        match (self.observer.get(), owner.host()) {
            (Some(observer), host) if host != 0 && begins => observer.commit_waits(host),
            (Some(observer), host) if host != 0 => observer.commit_resumes(host),
            _ => {}
        }
    }

    /// Whether the host may hold back its answer to the session of `owner`. Must be called on the
    /// owner's thread.
    pub(in crate::txn) fn may_hold_answer(&self, owner: &LockOwner) -> bool {
        let (observer, host) = (self.observer.get(), owner.host());
        observer.is_some_and(|observer| host != 0 && observer.may_hold_answer(host))
    }

    /// Makes the host hold back its answer to the session of `owner` until the result is sent;
    /// `None` if it does not. Must be called on the owner's thread.
    pub(in crate::txn) fn hold_answer(&self, owner: &LockOwner) -> Option<Acknowledgement> {
        self.observer.get()?.hold_answer(owner.host())
    }

    pub(super) fn timed_out(&self) -> Error {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
        Error::new(ErrorKind::LockTimeout, "waiting for a row lock")
    }

    /// Chooses victims until no cycle goes through `requester`. Returns the deadlocks found. The
    /// caller must hold the graph lock.
    fn break_cycles(&self, requester: &Arc<LockRequest>) -> Vec<Arc<Deadlock>> {
        let mut found = Vec::new();
        while requester.outcome() == WaitOutcome::Waiting {
            let Some(cycle) = self.find_cycle(requester) else {
                break;
            };
            let weights: Vec<u64> = cycle.iter().map(|w| w.owner.weight()).collect();
            let victim = deadlock::victim(&weights, |one, other| {
                let (one, other) = (&cycle[one].owner, &cycle[other].owner);
                self.observer.preferred_victim(one, other)
            });
            // Describe the transactions of the cycle for the deadlock report now. Once the victim
            // is told, it wakes up and ends its statement, and the host cannot give its SQL text
            // any more.
            let observer = self.observer.get();
            let members = cycle.iter().zip(&weights);
            let members = members.map(|(w, weight)| DeadlockMember::new(w, *weight, &observer));
            found.push(self.deadlocks.add(members.collect(), victim));
            self.decide(&cycle[victim], WaitOutcome::Victim);
        }
        found
    }

    /// A cycle of requests through `requester`, each of which waits for the owner of the next one.
    /// The caller must hold the graph lock.
    pub(super) fn find_cycle(&self, requester: &Arc<LockRequest>) -> Option<Vec<Arc<LockRequest>>> {
        let mut visited = VisitedRows::default();
        deadlock::find_cycle(
            requester,
            |waiter| Arc::as_ptr(&waiter.owner).addr(),
            |waiter| self.waiters_ahead(waiter, &mut visited),
        )
    }

    /// Turns the search for deadlocks on or off. Without it, the requests of a cycle wait until one
    /// of them times out. Turning it on also searches the waits that have begun before.
    pub fn set_deadlock_detection(&self, on: bool) {
        let mut found = Vec::new();
        {
            let _graph = self.graph.lock();
            let before = self.detects_deadlocks.swap(on, Ordering::Relaxed);
            if on && !before {
                for waiter in self.all_waiters() {
                    found.append(&mut self.break_cycles(&waiter));
                }
            }
        }
        self.deadlocks.report(&found);
    }

    /// All requests that wait. The caller must hold the graph lock, so that no request begins to
    /// wait.
    pub(super) fn all_waiters(&self) -> Vec<Arc<LockRequest>> {
        let mut waiters = Vec::new();
        for shard in &self.shards {
            for row in shard.rows.lock().map.values() {
                waiters.extend(row.queue().cloned());
            }
        }
        let add = |waiter: &Arc<LockRequest>, _| waiters.push(Arc::clone(waiter));
        self.gaps.for_each_wait(add);
        waiters
    }

    /// Ends the wait of `waiter` with `outcome`, if it still waits. Returns the outcome that
    /// `waiter` has now. The caller must hold the graph lock.
    pub(super) fn decide(&self, waiter: &Arc<LockRequest>, outcome: WaitOutcome) -> WaitOutcome {
        match waiter.for_gap {
            true => self.gaps.decide(waiter, outcome),
            false => self.shard(&waiter.key).decide(waiter, outcome),
        }
    }

    /// The requests of the owners that `waiter` waits for. Owners that do not wait are left out,
    /// since no cycle goes through them.
    fn waiters_ahead(
        &self,
        waiter: &Arc<LockRequest>,
        visited: &mut VisitedRows,
    ) -> Vec<Arc<LockRequest>> {
        let blockers = self.owners_ahead(waiter, visited);
        let waiting = blockers.into_iter().filter_map(|owner| owner.waiting());
        waiting.collect()
    }

    /// The owners that a deadlock search must visit next from `waiter`: those that it waits for,
    /// without the holders of rows in `visited`.
    fn owners_ahead(
        &self,
        waiter: &Arc<LockRequest>,
        visited: &mut VisitedRows,
    ) -> Vec<Arc<LockOwner>> {
        match waiter.for_gap {
            true => self.gaps.blockers(waiter),
            false => self.shard(&waiter.key).nearest_blockers(waiter, visited),
        }
    }

    /// Whether one of the owners that rely on `table` waits for `owner`, directly or by way of
    /// others. `owner` waits until DDL opens `table`, and the DDL waits for those that rely on it,
    /// so this is a deadlock. `relying` returns the owners that rely on a table. False if the
    /// search for deadlocks is turned off.
    pub(in crate::txn) fn is_waited_for_by_users(
        &self,
        owner: &Arc<LockOwner>,
        table: IndexId,
        relying: impl Fn(IndexId) -> Vec<Arc<LockOwner>>,
    ) -> bool {
        let mut left = relying(table);
        let mut visited = HashSet::new();
        let mut rows = VisitedRows::default();
        // Hold the graph lock, so that no request leaves a queue meanwhile: the search would lose
        // the path through it.
        let _graph = self.graph.lock();
        if !self.detects_deadlocks.load(Ordering::Relaxed) {
            return false;
        }
        while let Some(next) = left.pop() {
            if Arc::ptr_eq(&next, owner) {
                return true;
            }
            if !visited.insert(Arc::as_ptr(&next)) {
                continue;
            }
            if let Some(waiter) = next.waiting() {
                left.extend(self.owners_ahead(&waiter, &mut rows));
            }
            if let Some(table) = next.awaits() {
                left.extend(relying(table));
            }
        }
        false
    }

    /// Reports to the host the owners that `waiter`, a request that begins to wait, waits for, as
    /// far as it wants to hear of them.
    fn report_blockers(&self, waiter: &Arc<LockRequest>) {
        let Some(observer) = self.observer.get() else {
            return;
        };
        // Copy the host's context of the waiting session instead of holding its mutex: holding it
        // together with the mutex of a blocker's context could deadlock. The context stays valid
        // during this call, since this is the waiter's own thread.
        let waiting = waiter.owner.host();
        let report = |blocker: &Arc<LockOwner>| {
            blocker.with_host(|blocking| observer.waits_for(waiting, blocking));
        };
        match waiter.for_gap {
            true => self.gaps.for_each_reported(waiter, report),
            false => self.shard(&waiter.key).for_each_reported(waiter, report),
        }
    }

    /// Reports to the host that the waiting requests for `key` wait for `owner`, which upgrades its
    /// lock ahead of them, if it wants to hear of it. Shared requests may not have waited for
    /// `owner` before. The caller is the owner's thread.
    pub(super) fn report_upgrade(&self, owner: &Arc<LockOwner>, key: &[u8]) {
        if self.reported_waits.load(Ordering::SeqCst) == 0 {
            return;
        }
        if let Some(observer) = self.observer.get() {
            let blocking = owner.host();
            // To a host that wants to hear of the nearest blockers only, one wait for the owner is
            // enough.
            let mut told = false;
            let report = |waiter: &Arc<LockRequest>| {
                let wanted = match waiter.reports {
                    WaitReports::None => false,
                    WaitReports::Nearest => !told,
                    WaitReports::All => true,
                };
                if wanted {
                    told = true;
                    report_wait(&*observer, waiter, blocking);
                }
            };
            self.shard(key)
                .for_each_request_of_others(owner, key, report);
        }
    }
}

/// Counts a wait for a row of which the host wants to hear, as long as it exists: without any, an
/// upgrade need not look through the queue.
struct ReportedWait<'a>(&'a AtomicUsize);

impl<'a> ReportedWait<'a> {
    fn begin(waits: &'a AtomicUsize, reports: WaitReports) -> Option<Self> {
        if reports == WaitReports::None {
            return None;
        }
        waits.fetch_add(1, Ordering::SeqCst);
        Some(Self(waits))
    }
}

impl Drop for ReportedWait<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

pub(super) fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "while waiting for a row lock")
}
