//! Row locks: shared and exclusive, first in, first out, deadlocks found when a wait begins.

mod key_set;
mod lock_owner;
mod lock_queue;
mod merged_locks;
mod report;
mod shard;
mod waiter;

pub use lock_owner::LockOwner;
pub use report::{LockInfo, LockMemory, LockStats, WaitInfo};

use super::deadlock;
use crate::base::checksum::xxh3;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{Error, ErrorKind, Result};
use key_set::same_index;
use merged_locks::MergedLockRegistry;
use parking_lot::{Mutex, RwLock};
use shard::{Released, Shard};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use waiter::{LockWaiter, WaitOutcome};

const SHARDS: usize = 128;

/// Locks that stay in the hash table when the others are merged.
const KEPT_ROWS: usize = 16;

/// How a key is locked. Exclusive is more than shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Together with other shared locks.
    Shared,
    /// Alone.
    Exclusive,
}

impl LockMode {
    /// Whether two owners may not hold these modes at once.
    pub fn conflicts(self, other: Self) -> bool {
        self == Self::Exclusive || other == Self::Exclusive
    }

    /// The mode in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Exclusive => "exclusive",
        }
    }
}

/// How a request behaves if another owner's lock blocks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Wait, at most this long in microseconds; 0 does not wait. [`ErrorKind::LockTimeout`] then.
    Wait {
        /// Microseconds.
        timeout_micros: u64,
    },
    /// [`ErrorKind::LockNotAvailable`] at once.
    NoWait,
    /// [`ErrorKind::LockNotAvailable`] at once; the caller passes the row over.
    SkipLocked,
}

/// How a lock was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// The owner did not hold the key at all before. Only such a lock may be released if the row
    /// does not match; one that was held before, even in shared mode, must stay.
    pub newly: bool,
    /// It could not be had at once; what was read before may be stale.
    pub waited: bool,
}

/// Told of waits, for a host with an order of its own between transactions (parallel replication).
pub trait WaitObserver: Send + Sync {
    /// The transaction with context `waiter` is about to sleep until the one with context
    /// `blocker` gives up a lock or its place in a queue. Called on the waiter's thread, once per
    /// blocker, without any of the table's locks. `blocker` stays valid during the call, since
    /// [`LockOwner::detach_host`] waits for it; an owner without context is not reported. The call
    /// may interrupt the blocker.
    fn waits_for(&self, waiter: u64, blocker: u64);

    /// The transaction with context `waiter` goes to sleep, on this thread.
    fn sleeps(&self, _waiter: u64) {}

    /// It is awake again.
    fn wakes(&self, _waiter: u64) {}
}

/// Row locks of all transactions.
///
/// Steps of a request: try under the shard's lock → if blocked and it may wait, take the graph
/// lock, try again, join the row's queue → search for cycles → give up the graph lock → sleep on a
/// parker of its own → the releasing owner grants from the front of the queue and wakes exactly the
/// owners that it granted.
///
/// Deadlocks: every wait begins under the graph lock and searches for cycles through itself. That
/// is enough. A wait-for edge appears only (a) out of a request that begins to wait, (b) into an
/// upgrade that goes ahead of others, as it begins to wait: both searched then; or (c) into an
/// owner that is granted a lock, so does not wait, and which searches when it next begins to. And
/// requests never overtake, upgrades apart, so a grant from the queue puts nobody behind an owner
/// for whom it did not already wait.
///
/// A search reads the queues of rows one after the other, while locks are released and granted.
/// That is sound: a member of a cycle releases nothing. But a request that leaves a queue without
/// its lock (timeout, kill, victim) does so under the graph lock: a search follows only the nearest
/// request ahead, and would miss the ones before it if that request left in between.
///
/// The victim is the member with the least rows changed plus locks held, the requester on a tie.
/// One request may close several cycles; it searches until none is left. The victim keeps its
/// locks until its caller rolls it back.
///
/// Large statements: past a number of rows, the locks of an owner leave the hash table for sorted
/// sets of its own ([`key_set`]), and further ones in key order go straight there. They block other
/// owners as before, but have no queue: a request that must wait first moves the lock back to the
/// hash table. So waits, grants and deadlocks concern the hash table alone. A lock is in one of the
/// two at a time, and moves while its shard is locked; `MergedLockRegistry` tells requests which
/// owners have sorted sets.
///
/// Lock order: graph → shard → registry → merged locks of an owner → its rows, or a waiter. A
/// request that need not wait takes one shard, and the registry only beside a large statement.
///
/// Rejected: a condition variable per shard (wakes the herd), a detector thread (a deadlock then
/// lasts as long as its period), granting shared requests past a waiting exclusive one (starves
/// it, and adds edges no search has seen).
pub struct LockTable {
    shards: Box<[Shard]>,
    registry: MergedLockRegistry,
    /// Rows that one owner may hold before they are merged.
    merge_at: usize,
    /// Held while a wait begins.
    graph: Mutex<()>,
    last_deadlock: Mutex<Option<String>>,
    observer: RwLock<Option<Arc<dyn WaitObserver>>>,
    waits: AtomicU64,
    timeouts: AtomicU64,
    deadlocks: AtomicU64,
}

impl LockTable {
    /// A table without locks. `rows`: how many locks of one owner have a row of the table each
    /// before they are merged; 0 merges each at once.
    pub fn merging_at(rows: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            registry: MergedLockRegistry::new(),
            merge_at: rows,
            graph: Mutex::new(()),
            last_deadlock: Mutex::new(None),
            observer: RwLock::new(None),
            waits: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            deadlocks: AtomicU64::new(0),
        }
    }

    /// Sets who is told of waits that begin from now on.
    pub fn set_observer(&self, observer: Option<Arc<dyn WaitObserver>>) {
        *self.observer.write() = observer;
    }

    /// Locks `key`, or strengthens the lock that `owner` has on it.
    ///
    /// # Errors
    /// [`ErrorKind::LockTimeout`] or [`ErrorKind::LockNotAvailable`] as `policy` says;
    /// [`ErrorKind::Deadlock`], after which the transaction must roll back;
    /// [`ErrorKind::Interrupted`]. Locks that the owner held before stay held.
    pub fn acquire(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        mode: LockMode,
        policy: WaitPolicy,
    ) -> Result<Granted> {
        let shard = self.shard(key);
        if let Some(locked) = shard.attempt(&self.registry, owner, key, mode) {
            if locked.rows > self.merge_at {
                self.merge(owner);
            }
            return Ok(Granted {
                newly: locked.newly,
                waited: false,
            });
        }
        match policy {
            WaitPolicy::NoWait | WaitPolicy::SkipLocked => Err(Error::new(
                ErrorKind::LockNotAvailable,
                "another transaction holds the row",
            )),
            WaitPolicy::Wait { timeout_micros: 0 } => Err(self.timed_out()),
            WaitPolicy::Wait { timeout_micros } => {
                self.wait(owner, key, mode, Duration::from_micros(timeout_micros))
            }
        }
    }

    /// Locks `key` if that needs no wait. Returns whether `owner` holds it now. For recovery, which
    /// locks the keys of a prepared transaction in their order, however many: past the first few
    /// thousand each goes straight to the owner's sorted set.
    pub fn try_acquire(&self, owner: &Arc<LockOwner>, key: &[u8], mode: LockMode) -> bool {
        self.acquire(owner, key, mode, WaitPolicy::NoWait).is_ok()
    }

    /// Gives up the lock of `owner` on `key`. Returns whether there was one.
    ///
    /// # Panics
    /// If the shard and the owner's list of keys disagree, which is a bug.
    pub fn release(&self, owner: &Arc<LockOwner>, key: &[u8]) -> bool {
        match self.shard(key).release(owner, key) {
            Released::Nothing => return false,
            Released::Merged => return true,
            Released::Row => {}
        }
        let mut held = owner.held.lock();
        // As a rule the last one locked: a row that was read, locked, and found not to match.
        let at = held.keys.iter().rposition(|other| &other[..] == key);
        held.keys.remove(at.expect("held"));
        true
    }

    /// Moves the locks of `owner` from the hash table to its sorted sets, but for the last ones:
    /// they may be asked for again or given back soon.
    fn merge(&self, owner: &Arc<LockOwner>) {
        let keep = KEPT_ROWS.min(self.merge_at.saturating_sub(1));
        let mut keys: Vec<_> = {
            let mut held = owner.held.lock();
            let merged = held.keys.len().saturating_sub(keep);
            held.keys.drain(..merged).collect()
        };
        keys.sort_unstable();
        for group in keys.chunk_by(|one, other| same_index(one, other)) {
            self.registry.register(owner, &group[0]);
        }
        keys.retain(|key| !self.shard(key).merge(owner, key));
        let mut held = owner.held.lock();
        held.stuck = keys.len();
        held.keys.splice(..0, keys);
    }

    /// Gives up all locks of `owner`.
    pub fn release_all(&self, owner: &Arc<LockOwner>) {
        // In this order: see `MergedLockRegistry::unmerge`.
        self.registry.release_all(owner);
        let held = std::mem::take(&mut *owner.held.lock());
        for key in held.keys {
            let released = self.shard(&key).release(owner, &key);
            debug_assert_eq!(released, Released::Row);
        }
    }

    /// How `owner` holds `key`.
    pub fn holds(&self, owner: &Arc<LockOwner>, key: &[u8]) -> Option<LockMode> {
        let rows = self.shard(key).rows.lock();
        let row = rows.map.get(key);
        row.and_then(|row| row.mode_of(owner))
            .or_else(|| owner.merged.lock().mode_of(key))
    }

    /// Counts since the table was made.
    pub fn stats(&self) -> LockStats {
        LockStats {
            waits: self.waits.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            deadlocks: self.deadlocks.load(Ordering::Relaxed),
        }
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        // The shard's map uses the low bits of the same hash.
        &self.shards[(xxh3(key) >> 48) as usize % SHARDS]
    }

    fn wait(
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
        let graph = self.graph.lock();
        let waiter = match shard.attempt_or_enqueue(&self.registry, owner, key, mode) {
            // The holder released it since the first attempt, and may have committed.
            Ok(locked) => {
                return Ok(Granted {
                    newly: locked.newly,
                    waited: true,
                });
            }
            Err(waiter) => waiter,
        };
        owner.set_waiting(Some(Arc::clone(&waiter)));
        self.break_cycles(&waiter);
        drop(graph);
        self.waits.fetch_add(1, Ordering::Relaxed);
        if waiter.outcome() == WaitOutcome::Waiting {
            self.tell_observer(shard, &waiter);
        }
        // An interrupt from before the waiter was registered did not kick it.
        if !owner.is_interrupted() {
            let observer = self.observer.read().clone();
            let tell = |f: fn(&dyn WaitObserver, u64)| {
                if let Some(observer) = &observer {
                    owner.with_host(|host| f(&**observer, host));
                }
            };
            tell(|observer, host| observer.sleeps(host));
            waiter.sleep(timeout);
            tell(|observer, host| observer.wakes(host));
        }
        let outcome = match waiter.outcome() {
            WaitOutcome::Waiting => {
                let _graph = self.graph.lock();
                shard.decide(&waiter, WaitOutcome::Left)
            }
            decided => decided,
        };
        owner.set_waiting(None);
        match outcome {
            WaitOutcome::Granted => {
                if !waiter.upgrade {
                    owner.held.lock().keys.push(Arc::clone(&waiter.key));
                }
                Ok(Granted {
                    newly: !waiter.upgrade,
                    waited: true,
                })
            }
            WaitOutcome::Victim => Err(Error::new(
                ErrorKind::Deadlock,
                "chosen as the victim; see the last deadlock in the engine's status",
            )),
            WaitOutcome::Left if owner.is_interrupted() => Err(interrupted()),
            WaitOutcome::Left => Err(self.timed_out()),
            WaitOutcome::Waiting => unreachable!("it left the queue"),
        }
    }

    fn timed_out(&self) -> Error {
        self.timeouts.fetch_add(1, Ordering::Relaxed);
        Error::new(ErrorKind::LockTimeout, "waiting for a row lock")
    }

    /// Chooses victims until no cycle goes through `requester`. Under the graph lock.
    fn break_cycles(&self, requester: &Arc<LockWaiter>) {
        while requester.outcome() == WaitOutcome::Waiting {
            let cycle = deadlock::find_cycle(
                requester,
                |waiter| Arc::as_ptr(&waiter.owner).addr(),
                |waiter| self.waiters_ahead(waiter),
            );
            let Some(cycle) = cycle else {
                return;
            };
            let weights: Vec<u64> = cycle.iter().map(|w| w.owner.weight()).collect();
            let victim = deadlock::victim(&weights);
            self.deadlocks.fetch_add(1, Ordering::Relaxed);
            *self.last_deadlock.lock() = Some(report::describe(&cycle, victim));
            let waiter = &cycle[victim];
            self.shard(&waiter.key).decide(waiter, WaitOutcome::Victim);
        }
    }

    /// The waits of those whom `waiter` waits for; one that does not wait closes no cycle.
    fn waiters_ahead(&self, waiter: &Arc<LockWaiter>) -> Vec<Arc<LockWaiter>> {
        let blockers = self.shard(&waiter.key).nearest_blockers(waiter);
        let waiting = blockers.into_iter().filter_map(|owner| owner.waiting());
        waiting.collect()
    }

    fn tell_observer(&self, shard: &Shard, waiter: &Arc<LockWaiter>) {
        let observer = self.observer.read().clone();
        let Some(observer) = observer else {
            return;
        };
        // Its own context stays valid, this is its thread. Holding on to two could deadlock.
        let mut waiting = 0;
        waiter.owner.with_host(|host| waiting = host);
        for blocker in shard.blockers(waiter) {
            blocker.with_host(|blocking| observer.waits_for(waiting, blocking));
        }
    }
}

fn interrupted() -> Error {
    Error::new(ErrorKind::Interrupted, "while waiting for a row lock")
}

#[cfg(test)]
mod tests;
