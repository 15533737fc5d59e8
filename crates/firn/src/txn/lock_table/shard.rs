//! A shard of the lock table: the rows whose keys share some hash bits, under one mutex.

use super::lock_queue::{LockAttempt, LockQueue, VisitedRows};
use super::lock_request::{LockRequest, WaitOutcome};
use super::merged_locks::MergedLockRegistry;
use super::{LockMode, LockOwner, WaitReports};
use crate::base::checksum::xxh3;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Rows by user key. The owners' lists share the allocations of the keys.
#[derive(Default)]
pub(super) struct LockedRows {
    pub(super) map: HashMap<Arc<[u8]>, LockQueue, BuildHasherDefault<KeyHasher>>,
}

/// A lock granted at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct GrantedAtOnce {
    /// Whether the owner did not hold the key before.
    pub(super) newly: bool,
    /// Whether the owner held the key in shared mode before, and holds it exclusively now.
    pub(super) upgraded: bool,
    /// Number of rows of the hash table that the owner holds now, if this grant added one;
    /// otherwise 0. The caller merges the owner's locks if the number exceeds the merge threshold.
    /// Rows that the last merge had to leave in the hash table, because they have queues, do not
    /// count.
    pub(super) rows: usize,
    /// The owner upgraded its lock while requests of others waited for the row.
    pub(super) overtakes: bool,
}

impl GrantedAtOnce {
    /// The owner held the key before, in the mode that it asks for or a stronger one.
    fn before() -> Self {
        Self {
            newly: false,
            upgraded: false,
            rows: 0,
            overtakes: false,
        }
    }

    /// A grant to an owner that held the row shared and now holds it exclusive.
    fn upgraded(row: &LockQueue) -> Self {
        Self {
            upgraded: true,
            overtakes: row.queue().next().is_some(),
            ..Self::before()
        }
    }

    /// A grant of the row of `key` to `owner`, which did not hold it. Adds the key to the owner's
    /// held rows.
    fn row(owner: &Arc<LockOwner>, key: Arc<[u8]>) -> Self {
        let mut held = owner.held.lock();
        held.keys.push(key);
        Self {
            newly: true,
            upgraded: false,
            rows: held.keys.len() - held.stuck.min(held.keys.len()),
            overtakes: false,
        }
    }
}

/// Where a released lock was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Released {
    Nothing,
    Row,
    Merged,
}

/// Locks `key` if that needs no wait; `None` if the request has to wait.
fn attempt(
    rows: &mut LockedRows,
    registry: &MergedLockRegistry,
    owner: &Arc<LockOwner>,
    key: &[u8],
    mode: LockMode,
) -> Option<GrantedAtOnce> {
    let merged = registry.holders_of(owner, key);
    if merged.own >= Some(mode) {
        return Some(GrantedAtOnce::before());
    }
    let Some(row) = rows.map.get_mut(key) else {
        if merged.others.is_some_and(|held| held.conflicts(mode)) {
            return None;
        }
        if merged.own.is_some() {
            // The owner upgrades a merged shared lock of a key on which no other owner has a
            // conflicting lock.
            let mut own = owner.merged.lock();
            own.remove(key);
            own.insert(key, mode);
            return Some(GrantedAtOnce {
                upgraded: true,
                ..GrantedAtOnce::before()
            });
        }
        if registry.append(owner, key, mode) {
            return Some(GrantedAtOnce {
                newly: true,
                ..GrantedAtOnce::before()
            });
        }
        let key: Arc<[u8]> = Arc::from(key);
        rows.map
            .insert(Arc::clone(&key), LockQueue::new(owner, mode));
        return Some(GrantedAtOnce::row(owner, key));
    };
    let own = row.mode_of(owner);
    if merged.own.is_some() {
        // The owner has a shared lock among its merged locks and asks for an exclusive one, while
        // other owners hold shared locks of the row in the hash table. The request has to wait for
        // these holders.
        return None;
    }
    if own < Some(mode) && merged.others.is_some_and(|held| held.conflicts(mode)) {
        return None;
    }
    match row.attempt(owner, mode) {
        LockAttempt::Held => Some(GrantedAtOnce::before()),
        LockAttempt::Upgraded => Some(GrantedAtOnce::upgraded(row)),
        LockAttempt::Granted => {
            let (key, _) = rows.map.get_key_value(key).expect("just locked");
            Some(GrantedAtOnce::row(owner, Arc::clone(key)))
        }
        LockAttempt::Blocked { .. } => None,
    }
}

/// One shard. Aligned to a cache line, so that threads that use different shards do not share one.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Shard {
    pub(super) rows: Mutex<LockedRows>,
}

/// Hashes the bytes of a key in one call. It ignores the length, which the standard library hashes
/// before the bytes of a slice: only keys of several fields need it, to keep their fields apart.
#[derive(Default)]
pub(super) struct KeyHasher(u64);

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3(bytes);
    }

    fn write_usize(&mut self, _: usize) {}

    fn finish(&self) -> u64 {
        self.0
    }
}

/// A map is not shrunk unless its capacity is larger than this.
const CAPACITY_KEPT: usize = 256;

impl LockedRows {
    /// After a change of the row of `key`: grants requests from its queue, adds them to `woken`,
    /// and removes the row if it is free.
    fn grant_waiting(&mut self, key: &[u8], woken: &mut Vec<Arc<LockRequest>>) {
        let row = self.map.get_mut(key).expect("changed just now");
        row.grant(woken);
        if row.is_free() {
            self.map.remove(key);
            // Shrink the map, to give back the memory that a transaction with a million locks
            // needed.
            if self.map.capacity() > CAPACITY_KEPT && self.map.len() < self.map.capacity() / 8 {
                let keep = (2 * self.map.len()).max(CAPACITY_KEPT / 2);
                self.map.shrink_to(keep);
            }
        }
    }
}

impl Shard {
    /// Locks `key` if that needs no wait; `None` if the request has to wait.
    pub(super) fn attempt(
        &self,
        registry: &MergedLockRegistry,
        owner: &Arc<LockOwner>,
        key: &[u8],
        mode: LockMode,
    ) -> Option<GrantedAtOnce> {
        attempt(&mut self.rows.lock(), registry, owner, key, mode)
    }

    /// As [`Shard::attempt`], but joins the queue if the request has to wait; `reports` tells of
    /// which blockers the host then wants to hear. The caller must hold the graph lock.
    pub(super) fn attempt_or_enqueue(
        &self,
        registry: &MergedLockRegistry,
        owner: &Arc<LockOwner>,
        key: &[u8],
        mode: LockMode,
        reports: WaitReports,
    ) -> Result<GrantedAtOnce, Arc<LockRequest>> {
        let mut rows = self.rows.lock();
        if let Some(locked) = attempt(&mut rows, registry, owner, key, mode) {
            return Ok(locked);
        }
        let key = match rows.map.get_key_value(key) {
            Some((key, _)) => Arc::clone(key),
            None => Arc::from(key),
        };
        let row = rows
            .map
            .entry(Arc::clone(&key))
            .or_insert_with(LockQueue::empty);
        registry.unmerge(&key, row);
        // Try again: since the first attempt, the owner that blocked it may have released its
        // merged locks, and then `unmerge` has found none to move into the row's queue.
        match row.attempt(owner, mode) {
            LockAttempt::Held => Ok(GrantedAtOnce::before()),
            LockAttempt::Upgraded => Ok(GrantedAtOnce::upgraded(row)),
            LockAttempt::Granted => Ok(GrantedAtOnce::row(owner, key)),
            LockAttempt::Blocked { upgrade } => {
                let waiter = LockRequest::for_row(owner, &key, mode, upgrade, reports);
                row.enqueue(&waiter);
                Err(waiter)
            }
        }
    }

    /// Moves the lock of `owner` on `key` to its merged locks, unless the row has a queue. Returns
    /// whether it did. The owner is registered in the key's slot.
    pub(super) fn merge(&self, owner: &Arc<LockOwner>, key: &[u8]) -> bool {
        let mut rows = self.rows.lock();
        let row = rows.map.get_mut(key).expect("it is held");
        if row.queue().next().is_some() {
            return false;
        }
        let mode = row.mode_of(owner).expect("it is held");
        owner.merged.lock().insert(key, mode);
        row.remove_holder(owner);
        rows.grant_waiting(key, &mut Vec::new());
        true
    }

    /// Releases the lock of `owner` on `key`, grants requests from the queue and wakes them.
    /// Returns where the lock was.
    pub(super) fn release(&self, owner: &Arc<LockOwner>, key: &[u8]) -> Released {
        let mut woken = Vec::new();
        {
            let mut rows = self.rows.lock();
            let row = rows.map.get_mut(key);
            if !row.is_some_and(|row| row.remove_holder(owner)) {
                return match owner.merged.lock().remove(key) {
                    Some(_) => Released::Merged,
                    None => Released::Nothing,
                };
            }
            rows.grant_waiting(key, &mut woken);
        }
        woken.iter().for_each(|waiter| waiter.notify());
        Released::Row
    }

    /// Makes the lock of `owner` on `key` shared, grants requests from the queue and wakes them. No
    /// search for a deadlock is needed: those that go on waiting wait for the same owners as
    /// before.
    pub(super) fn share(&self, owner: &Arc<LockOwner>, key: &[u8]) {
        let mut woken = Vec::new();
        {
            let mut rows = self.rows.lock();
            let row = rows.map.get_mut(key);
            if row.is_some_and(|row| row.share(owner)) {
                rows.grant_waiting(key, &mut woken);
            } else {
                let mut merged = owner.merged.lock();
                merged.remove(key).expect("it is held");
                merged.insert(key, LockMode::Shared);
            }
        }
        woken.iter().for_each(|waiter| waiter.notify());
    }

    /// Gives `waiter` the outcome `outcome`, if it still waits: removes it from the queue and wakes
    /// it, and grants and wakes the requests that it blocked. Returns the outcome that `waiter` has
    /// now. The caller must hold the graph lock.
    pub(super) fn decide(&self, waiter: &Arc<LockRequest>, outcome: WaitOutcome) -> WaitOutcome {
        let mut woken = Vec::new();
        {
            let mut rows = self.rows.lock();
            let decided = waiter.outcome();
            if decided != WaitOutcome::Waiting {
                return decided;
            }
            let row = rows.map.get_mut(&waiter.key).expect("it has a queue");
            row.remove_waiter(waiter);
            waiter.decide(outcome);
            rows.grant_waiting(&waiter.key, &mut woken);
        }
        waiter.notify();
        woken.iter().for_each(|waiter| waiter.notify());
        outcome
    }

    /// Calls `f` with the requests of other owners that wait for `key`. None of them stops waiting
    /// while `f` runs, because the shard is locked.
    pub(super) fn for_each_request_of_others(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        f: impl FnMut(&Arc<LockRequest>),
    ) {
        let rows = self.rows.lock();
        let queue = rows.map.get(key).into_iter().flat_map(LockQueue::queue);
        let others = queue.filter(|waiter| !Arc::ptr_eq(&waiter.owner, owner));
        others.for_each(f);
    }

    /// Calls `f` with the owners that `waiter` waits for and of which the host wants to hear; not
    /// at all if `waiter` does not wait any more. None of these owners releases its lock or leaves
    /// the queue while `f` runs.
    pub(super) fn for_each_reported(
        &self,
        waiter: &Arc<LockRequest>,
        f: impl FnMut(&Arc<LockOwner>),
    ) {
        match waiter.reports {
            WaitReports::None => {}
            WaitReports::Nearest => {
                self.row_of(waiter, |row| row.right_ahead(waiter).iter().for_each(f));
            }
            WaitReports::All => self.row_of(waiter, |row| row.blockers(waiter).iter().for_each(f)),
        }
    }

    /// The owners that a deadlock search must visit from `waiter`
    /// ([`LockQueue::nearest_blockers`]); none if it has visited the holders of that row already,
    /// or if `waiter` does not wait any more.
    pub(super) fn nearest_blockers(
        &self,
        waiter: &Arc<LockRequest>,
        visited: &mut VisitedRows,
    ) -> Vec<Arc<LockOwner>> {
        self.row_of(waiter, |row| match visited.has_holders_for(waiter) {
            true => Vec::new(),
            false => row.nearest_blockers(waiter),
        })
    }

    /// Calls `f` with the row of `waiter`, if it still waits.
    fn row_of<T: Default>(&self, waiter: &LockRequest, f: impl FnOnce(&LockQueue) -> T) -> T {
        let rows = self.rows.lock();
        match waiter.outcome() {
            WaitOutcome::Waiting => f(rows.map.get(&waiter.key).expect("it has a queue")),
            _ => T::default(),
        }
    }
}
