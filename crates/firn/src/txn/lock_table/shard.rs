//! A part of the lock table under one mutex.

use super::row::{Attempt, Row};
use super::waiter::{Outcome, Waiter};
use super::{LockMode, LockOwner};
use crate::base::checksum::xxh3;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// Rows by user key. Owners share the keys' allocations.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) map: HashMap<Arc<[u8]>, Row, BuildHasherDefault<KeyHasher>>,
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Shard {
    pub(super) rows: Mutex<Rows>,
}

/// Hashes a key in one go; the length that a slice hashes first adds nothing.
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

/// Capacity that a map keeps however few rows it has.
const CAPACITY_KEPT: usize = 256;

impl Rows {
    /// Grants what the row's queue can have after a change, and removes the row if it is free.
    fn settle(&mut self, key: &[u8], woken: &mut Vec<Arc<Waiter>>) {
        let row = self.map.get_mut(key).expect("changed just now");
        row.grant(woken);
        if row.is_free() {
            self.map.remove(key);
            // A transaction with a million locks must not leave its memory behind.
            if self.map.capacity() > CAPACITY_KEPT && self.map.len() < self.map.capacity() / 8 {
                let keep = (2 * self.map.len()).max(CAPACITY_KEPT / 2);
                self.map.shrink_to(keep);
            }
        }
    }
}

impl Shard {
    /// Locks if it can be had at once: whether newly. `None` if it has to wait.
    pub(super) fn attempt(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        mode: LockMode,
    ) -> Option<bool> {
        self.attempt_in(&mut self.rows.lock(), owner, key, mode)
            .ok()
    }

    /// As [`Shard::attempt`], but joins the queue if it has to wait.
    pub(super) fn attempt_or_enqueue(
        &self,
        owner: &Arc<LockOwner>,
        key: &[u8],
        mode: LockMode,
    ) -> Result<bool, Arc<Waiter>> {
        let mut rows = self.rows.lock();
        self.attempt_in(&mut rows, owner, key, mode)
            .map_err(|upgrade| {
                let (key, _) = rows.map.get_key_value(key).expect("it blocks");
                let waiter = Waiter::new(owner, &Arc::clone(key), mode, upgrade);
                let row = rows.map.get_mut(&waiter.key).expect("it blocks");
                row.enqueue(&waiter);
                waiter
            })
    }

    /// Whether locked newly; or, as an error, whether the wait would be for an upgrade.
    fn attempt_in(
        &self,
        rows: &mut Rows,
        owner: &Arc<LockOwner>,
        key: &[u8],
        mode: LockMode,
    ) -> Result<bool, bool> {
        let Some(row) = rows.map.get_mut(key) else {
            let key: Arc<[u8]> = Arc::from(key);
            rows.map.insert(Arc::clone(&key), Row::new(owner, mode));
            owner.held.lock().push(key);
            return Ok(true);
        };
        match row.attempt(owner, mode) {
            Attempt::Held | Attempt::Upgraded => Ok(false),
            Attempt::Granted => {
                let (key, _) = rows.map.get_key_value(key).expect("just locked");
                owner.held.lock().push(Arc::clone(key));
                Ok(true)
            }
            Attempt::Blocked { upgrade } => Err(upgrade),
        }
    }

    /// Takes the hold of `owner` away and grants what comes next. Returns whether there was one.
    pub(super) fn release(&self, owner: &Arc<LockOwner>, key: &[u8]) -> bool {
        let mut woken = Vec::new();
        {
            let mut rows = self.rows.lock();
            let row = rows.map.get_mut(key);
            if !row.is_some_and(|row| row.remove_holder(owner)) {
                return false;
            }
            rows.settle(key, &mut woken);
        }
        woken.iter().for_each(|waiter| waiter.notify());
        true
    }

    /// If `waiter` still waits: takes it out of the queue with `outcome`, wakes it, and grants what
    /// comes next. Returns its outcome. The caller holds the graph lock.
    pub(super) fn decide(&self, waiter: &Arc<Waiter>, outcome: Outcome) -> Outcome {
        let mut woken = Vec::new();
        {
            let mut rows = self.rows.lock();
            let decided = waiter.outcome();
            if decided != Outcome::Waiting {
                return decided;
            }
            let row = rows.map.get_mut(&waiter.key).expect("it has a queue");
            row.remove_waiter(waiter);
            waiter.decide(outcome);
            rows.settle(&waiter.key, &mut woken);
        }
        waiter.notify();
        woken.iter().for_each(|waiter| waiter.notify());
        outcome
    }

    /// Everyone `waiter` waits for; nobody once it does not wait.
    pub(super) fn blockers(&self, waiter: &Arc<Waiter>) -> Vec<Arc<LockOwner>> {
        self.row_of(waiter, |row| row.blockers(waiter))
    }

    /// Enough of [`Shard::blockers`] to reach all of them.
    pub(super) fn nearest_blockers(&self, waiter: &Arc<Waiter>) -> Vec<Arc<LockOwner>> {
        self.row_of(waiter, |row| row.nearest_blockers(waiter))
    }

    fn row_of(
        &self,
        waiter: &Arc<Waiter>,
        f: impl FnOnce(&Row) -> Vec<Arc<LockOwner>>,
    ) -> Vec<Arc<LockOwner>> {
        let rows = self.rows.lock();
        match waiter.outcome() {
            Outcome::Waiting => f(rows.map.get(&waiter.key).expect("it has a queue")),
            _ => Vec::new(),
        }
    }
}
