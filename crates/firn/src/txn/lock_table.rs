//! Row locks: shared and exclusive, granted first in, first out; gap locks, for which inserts wait.
//! Deadlocks are found when a wait begins.

mod deadlock_report;
mod gap_locks;
mod gap_ranges;
pub(in crate::txn) mod key_set;
mod lock_owner;
mod lock_queue;
mod lock_reports;
mod lock_request;
mod lock_wait;
mod merged_locks;
mod observer;
mod own_gaps;
mod shard;

pub use deadlock_report::{Deadlock, DeadlockMember};
pub use gap_locks::GapGrant;
pub(super) use key_set::KeySet;
pub use lock_owner::LockOwner;
pub use lock_reports::{LockInfo, LockMemory, LockStats, WaitInfo};
pub use observer::{WaitObserver, WaitReports};

use crate::base::checksum::xxh3;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{Error, ErrorKind, IndexId, Result};
use deadlock_report::DeadlockLog;
use gap_locks::GapLockTable;
use key_set::same_index;
use lock_request::LockRequest;
use lock_wait::interrupted;
use merged_locks::MergedLockRegistry;
use observer::ObserverCell;
use parking_lot::Mutex;
use shard::{Released, Shard};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

const SHARDS: usize = 128;

/// Number of an owner's newest locks that stay in the hash table when the others are merged.
const KEPT_ROWS: usize = 16;

/// How a key is locked. The order is that of strength: exclusive is greater than shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LockMode {
    /// Compatible with other shared locks.
    Shared,
    /// Compatible with no other lock.
    Exclusive,
}

impl LockMode {
    /// Whether two owners must not hold these modes on one key at once.
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

/// How a request reacts when another owner's lock blocks it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitPolicy {
    /// Waits, then fails with [`ErrorKind::LockTimeout`].
    Wait {
        /// Longest wait in microseconds; 0 does not wait.
        timeout_micros: u64,
    },
    /// Fails with [`ErrorKind::LockNotAvailable`] at once.
    NoWait,
    /// Fails with [`ErrorKind::LockNotAvailable`] at once; the caller skips the row.
    SkipLocked,
}

/// How a lock was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Granted {
    /// Whether the owner held no lock on the key before. If it held one, the caller must not
    /// release the lock when the row turns out not to match.
    pub newly: bool,
    /// Whether the owner held the key in shared mode before, and holds it exclusively now. If the
    /// row turns out not to match, the caller may [share](LockTable::share) the lock again.
    pub upgraded: bool,
    /// Whether another owner's lock blocked the request at first. Rows that the caller read before
    /// the request may be stale then.
    pub waited: bool,
}

/// Row locks and gap locks of all transactions.
///
/// A request takes these steps:
/// 1. Try under the shard's lock.
/// 2. If it is blocked and may wait: take the graph lock, try again, join the row's queue.
/// 3. Search for cycles, then release the graph lock.
/// 4. Sleep on its own condition variable. The thread that releases a lock grants requests from the
///    front of the queue and wakes exactly those.
///
/// **Deadlocks.** Every wait begins under the graph lock with a search for cycles through its own
/// request. This finds every cycle, since a wait-for edge can appear only
/// - (a) from a request that begins to wait, which searches;
/// - (b) to an upgrade that joins a queue ahead of others: it begins to wait, so it searches;
/// - (c) to an owner that is granted a lock of a row or of a gap: it does not wait now, and it
///   searches when it next begins to.
///
/// Requests never overtake others, except upgrades. So a grant from the queue makes no request wait
/// for an owner for which it did not wait before.
///
/// A search looks at the rows one after the other, while other threads release and grant locks.
/// That is sound, since a member of a cycle releases nothing. But a request leaves a queue without
/// its lock (timeout, kill, victim) only under the graph lock: the search may go from a request to
/// the first one of the queue in the place of all that are ahead, and would lose this path if the
/// first one left in between. A search visits the holders of rows, never the requests of a queue
/// one by one ([`lock_queue`]).
///
/// The victim is the member of the cycle with the least changed rows plus held locks, on a tie the
/// requester. One request may close several cycles, so it searches until none is left. The victim
/// keeps its locks until its caller rolls it back.
///
/// **Large statements.** When an owner holds more than `merge_at` rows, most of its locks move from
/// the hash table to sorted sets of its own ([`key_set`]): they are *merged*. Further locks in key
/// order go straight to these sets. Merged locks block other owners as before, but have no queue: a
/// request that has to wait first moves all merged locks of its key back to the row. So waits,
/// grants and deadlock searches concern rows of the hash table only. A lock is in exactly one of
/// the two, and moves under its shard's lock; `MergedLockRegistry` says how requests find it.
///
/// **Gap locks** are ranges of keys ([`GapLockTable`]). They conflict with nothing but inserts of
/// new keys, and an insert that waits blocks nobody. So a gap lock is granted at once, and an
/// insert waits for owners alone, not in a queue.
///
/// **Prescribed order.** A host may have fixed the order in which transactions commit
/// ([`WaitObserver`]). The table reports every wait to the host, and asks it for the victim of a
/// deadlock. Between two transactions whose order is fixed, an insert does not wait for a gap lock,
/// since the lock could only order them once more.
///
/// Lock order: graph → shard → registry → merged locks of an owner → its held rows, a waiter, or an
/// owner's host. A request that need not wait takes its shard's lock and that of its own held rows;
/// registry and merged locks only while an owner is registered in the key's slot.
///
/// Rejected: a condition variable per shard (it wakes all waiters of the shard); a detector thread
/// (a deadlock then lasts as long as the thread's period); granting shared requests past a waiting
/// exclusive one (it starves, and edges appear that no search has seen).
pub struct LockTable {
    shards: Box<[Shard]>,
    registry: MergedLockRegistry,
    gaps: GapLockTable,
    /// An owner may hold this many rows in the hash table before they are merged.
    merge_at: usize,
    /// The graph lock: it keeps the wait-for graph from changing during a deadlock search. Held
    /// while a request begins to wait, and while a request leaves a lock queue without having got
    /// the row lock.
    graph: Mutex<()>,
    /// Whether a wait that begins searches for deadlocks. Read and changed under the graph lock.
    detects_deadlocks: AtomicBool,
    deadlocks: DeadlockLog,
    observer: Arc<ObserverCell>,
    /// Number of waits for rows of which the observer wants to hear.
    reported_waits: AtomicUsize,
    waits: AtomicU64,
    timeouts: AtomicU64,
    conflicts: AtomicU64,
}

impl LockTable {
    /// Makes a table without locks. An owner's locks are merged when it holds more than `rows` rows
    /// of the hash table; 0 merges each lock at once.
    pub fn merging_at(rows: usize) -> Self {
        let observer = Arc::<ObserverCell>::default();
        Self {
            shards: (0..SHARDS).map(|_| Shard::default()).collect(),
            registry: MergedLockRegistry::new(),
            gaps: GapLockTable::new(Arc::clone(&observer)),
            merge_at: rows,
            graph: Mutex::new(()),
            detects_deadlocks: AtomicBool::new(true),
            deadlocks: DeadlockLog::default(),
            observer,
            reported_waits: AtomicUsize::new(0),
            waits: AtomicU64::new(0),
            timeouts: AtomicU64::new(0),
            conflicts: AtomicU64::new(0),
        }
    }

    /// Sets a function that gets each deadlock when its victim has been chosen, on the thread that
    /// has found it, without any of the lock table's locks.
    pub fn on_deadlock(&self, report: impl Fn(&Deadlock) + Send + Sync + 'static) {
        self.deadlocks.on_deadlock(Box::new(report));
    }

    /// The SQL text that the session of `owner` executes; `None` if the host cannot give it without
    /// a wait.
    pub fn statement_of(&self, owner: &LockOwner) -> Option<String> {
        let observer = self.observer.get()?;
        let mut text = None;
        owner.with_host(|host| text = observer.statement(host));
        text
    }

    /// Sets the observer of waits that begin from now on.
    pub fn set_observer(&self, observer: Option<Arc<dyn WaitObserver>>) {
        self.observer.set(observer);
    }

    /// Locks `key`, or upgrades the lock that `owner` has on it.
    ///
    /// # Errors
    /// [`ErrorKind::LockTimeout`] or [`ErrorKind::LockNotAvailable`], as `policy` says;
    /// [`ErrorKind::Interrupted`] if the owner is interrupted and would have to wait;
    /// [`ErrorKind::Deadlock`], after which the transaction must roll back. The owner keeps all
    /// locks that it held before.
    pub fn acquire(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        mode: LockMode,
        policy: WaitPolicy,
    ) -> Result<Granted> {
        if mode == LockMode::Shared {
            owner.note_share();
        }
        let shard = self.shard(key);
        if let Some(locked) = shard.attempt(&self.registry, owner, key, mode) {
            if locked.rows > self.merge_at {
                self.merge(owner);
            }
            if locked.overtakes {
                self.report_upgrade(owner, key);
            }
            return Ok(Granted {
                newly: locked.newly,
                upgraded: locked.upgraded,
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

    /// Locks `key` if that needs no wait. Returns whether `owner` holds it in this mode now. For
    /// recovery, which locks all keys of a prepared transaction in key order: after the first merge
    /// each key goes straight to the owner's sorted set.
    pub fn try_acquire(&self, owner: &Arc<LockOwner>, key: &[u8], mode: LockMode) -> bool {
        self.acquire(owner, key, mode, WaitPolicy::NoWait).is_ok()
    }

    /// Releases the lock of `owner` on `key`. Returns whether there was one.
    ///
    /// # Panics
    /// If another thread acquires or releases locks of `owner` at the same time.
    pub fn release(&self, owner: &Arc<LockOwner>, key: &[u8]) -> bool {
        match self.shard(key).release(owner, key) {
            Released::Nothing => return false,
            Released::Merged => return true,
            Released::Row => {}
        }
        let mut held = owner.held.lock();
        // Search backwards: the caller usually releases its newest lock, because the row has turned
        // out not to match.
        let at = held.keys.iter().rposition(|other| &other[..] == key);
        held.keys.remove(at.expect("held"));
        true
    }

    /// Makes the lock that `owner` has on `key` shared, and grants the shared requests that it has
    /// kept waiting.
    ///
    /// # Panics
    /// If `owner` does not hold `key`.
    pub fn share(&self, owner: &Arc<LockOwner>, key: &[u8]) {
        owner.note_share();
        self.shard(key).share(owner, key);
    }

    /// Moves the locks of `owner` from the hash table to its sorted sets, except the newest ones,
    /// which may be requested again or released soon.
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

    /// Locks the keys of one index from `lower` to below `upper` against inserts by other owners.
    /// Never waits. It does not find an uncommitted key that another owner inserted before this
    /// lock: the caller searches for such keys afterwards ([`GapLockTable`]).
    pub fn lock_gap(&self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) -> GapGrant {
        self.gaps.lock(owner, lower, upper)
    }

    /// Gives back a part of a range that [`Self::lock_gap`] has granted [newly](GapGrant::Newly).
    pub fn unlock_gap(&self, owner: &Arc<LockOwner>, lower: &[u8], upper: &[u8]) {
        self.gaps.unlock(owner, lower, upper);
    }

    /// Whether another owner has locked the gap in which `key` lies, so that an insert has to wait.
    #[inline]
    pub fn is_gap_locked(&self, owner: &Arc<LockOwner>, key: &[u8]) -> bool {
        self.gaps.is_locked_against(owner, key)
    }

    /// Waits until no other owner locks the gap in which `key` lies. An owner may lock the gap
    /// again before the caller has inserted.
    ///
    /// # Errors
    /// As [`Self::acquire`].
    pub fn await_gap(&self, owner: &Arc<LockOwner>, key: &[u8], timeout_micros: u64) -> Result<()> {
        if timeout_micros == 0 {
            return match self.gaps.is_locked_against(owner, key) {
                true => Err(self.timed_out()),
                false => Ok(()),
            };
        }
        if owner.is_interrupted() {
            return Err(interrupted());
        }
        pause_points::at(PausePoint::LockRefused);
        let graph = self.graph.lock();
        let Some(waiter) = self.gaps.enqueue(owner, key) else {
            return Ok(());
        };
        self.sleep(graph, &waiter, Duration::from_micros(timeout_micros))
    }

    /// Releases the gap locks and the shared locks of `owner`. To be called for a transaction that
    /// is prepared and may outlive its session: such a transaction reads no more, so its reads need
    /// no protection.
    pub fn release_reads(&self, owner: &Arc<LockOwner>) {
        self.gaps.release_all(owner);
        // The release of merged locks need not wake anybody: before a request waits for a merged
        // lock, the lock is moved back to the hash table.
        let _shared = owner.merged.lock().take_shared();
        let keys = owner.held.lock().keys.clone();
        // Release the newest locks first: `release` searches `held.keys` from its end.
        for key in keys.into_iter().rev() {
            if self.holds(owner, &key) == Some(LockMode::Shared) {
                self.release(owner, &key);
            }
        }
    }

    /// Releases all locks of `owner`.
    pub fn release_all(&self, owner: &Arc<LockOwner>) {
        owner.forget_shares();
        self.gaps.release_all(owner);
        // Release the merged locks before the locks in the hash table. Another thread may be moving
        // a merged lock of this owner to the hash table (`MergedLockRegistry::unmerge`), and in the
        // other order this call could miss a lock on its way.
        self.registry.release_all(owner);
        let held = std::mem::take(&mut *owner.held.lock());
        for key in held.keys {
            let released = self.shard(&key).release(owner, &key);
            debug_assert_eq!(released, Released::Row);
        }
    }

    /// The mode in which `owner` holds `key`; `None` if it does not.
    pub fn holds(&self, owner: &Arc<LockOwner>, key: &[u8]) -> Option<LockMode> {
        let rows = self.shard(key).rows.lock();
        let row = rows.map.get(key);
        row.and_then(|row| row.mode_of(owner))
            .or_else(|| owner.merged.lock().mode_of(key))
    }

    /// Whether `owner` holds `key` in shared mode only.
    pub fn only_shares(&self, owner: &Arc<LockOwner>, key: &[u8]) -> bool {
        owner.shares() && self.holds(owner, key) == Some(LockMode::Shared)
    }

    /// Counts since the table was created.
    pub fn stats(&self) -> LockStats {
        LockStats {
            waits: self.waits.load(Ordering::Relaxed),
            timeouts: self.timeouts.load(Ordering::Relaxed),
            deadlocks: self.deadlocks.number(),
            conflicts: self.conflicts.load(Ordering::Relaxed),
        }
    }

    /// Counts a transaction whose validation failed because another transaction was first.
    pub(in crate::txn) fn count_conflict(&self) {
        self.conflicts.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether an owner may have locked a gap of `index`. The new keys of the index must be listed
    /// in `ActiveInserts` before the call: then no scan misses them ([`GapLockTable`]).
    pub(in crate::txn) fn may_lock_gaps(&self, index: IndexId) -> bool {
        self.gaps.may_lock(index)
    }

    fn shard(&self, key: &[u8]) -> &Shard {
        // Select the shard by high bits of the hash, since the shard's map uses the low bits.
        &self.shards[(xxh3(key) >> 48) as usize % SHARDS]
    }
}

#[cfg(test)]
mod tests;
