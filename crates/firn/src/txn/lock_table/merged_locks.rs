//! Locks that have left the hash table for their owner's sorted sets.

use super::key_set::KeySet;
use super::lock_queue::LockQueue;
use super::{LockMode, LockOwner};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots of the registry; indexes share them by id.
const SLOTS: usize = 64;

/// The merged locks of one owner.
#[derive(Default)]
pub(super) struct MergedLocks {
    shared: KeySet,
    exclusive: KeySet,
}

impl MergedLocks {
    pub(super) fn set(&self, mode: LockMode) -> &KeySet {
        match mode {
            LockMode::Shared => &self.shared,
            LockMode::Exclusive => &self.exclusive,
        }
    }

    fn set_mut(&mut self, mode: LockMode) -> &mut KeySet {
        match mode {
            LockMode::Shared => &mut self.shared,
            LockMode::Exclusive => &mut self.exclusive,
        }
    }

    /// Number of keys.
    pub(super) fn len(&self) -> u64 {
        self.shared.len() + self.exclusive.len()
    }

    /// Memory, bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes() + self.exclusive.bytes()
    }

    pub(super) fn mode_of(&self, key: &[u8]) -> Option<LockMode> {
        let modes = [LockMode::Exclusive, LockMode::Shared];
        modes.into_iter().find(|m| self.set(*m).contains(key))
    }

    /// Adds `key`, which the owner has in the hash table. Call with the key's shard locked, after
    /// [`MergedLockRegistry::register`].
    pub(super) fn insert(&mut self, key: &[u8], mode: LockMode) {
        self.set_mut(mode).insert(key);
    }

    /// Takes `key` out. Call with the key's shard locked.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<LockMode> {
        let modes = [LockMode::Exclusive, LockMode::Shared];
        modes.into_iter().find(|m| self.set_mut(*m).remove(key))
    }
}

/// The owners that hold a key in their merged locks.
#[derive(Default)]
pub(super) struct MergedHolders {
    /// How the one who asks holds it.
    pub(super) own: Option<LockMode>,
    /// How others hold it; exclusive if one of them does.
    pub(super) others: Option<LockMode>,
}

/// Names the owners of merged locks, by the index of the key.
///
/// The ordinary request pays one load: that of the number of owners named for its index.
///
/// - No lock is overlooked: an owner names itself before it moves the first lock, and moves each
///   lock with the key's shard locked. A request looks with the same shard locked. So either it
///   comes first, and finds the lock in the hash table, or it comes after the move and sees the
///   number that was raised before. For this the load could be relaxed.
/// - The number falls, with release order, after the owner has given up its merged locks, and is
///   loaded with acquire order: who finds it 0 sees what the owner did before, its commit above
///   all.
/// - No waiter is forgotten: only a row of the hash table is ever waited for. A request that has to
///   wait brings all merged locks of its key back into the row first, and no lock of a row with a
///   queue is merged. An owner gives up its merged locks before its rows.
#[derive(Default)]
pub(super) struct MergedLockRegistry {
    slots: Box<[RegistrySlot]>,
}

/// On cache lines of its own.
#[derive(Default)]
#[repr(align(64))]
struct RegistrySlot {
    number: AtomicUsize,
    owners: RwLock<Vec<Arc<LockOwner>>>,
}

/// The slot of the index that `key` begins with.
fn slot_of(key: &[u8]) -> usize {
    let id = key.iter().take(4).fold(0u32, |n, b| n << 8 | u32::from(*b));
    id as usize % SLOTS
}

impl MergedLockRegistry {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| RegistrySlot::default()).collect(),
        }
    }

    fn slot(&self, key: &[u8]) -> Option<&RegistrySlot> {
        let slot = &self.slots[slot_of(key)];
        (slot.number.load(Ordering::Acquire) != 0).then_some(slot)
    }

    /// Names `owner` for the index of `key`. Without any shard locked.
    pub(super) fn register(&self, owner: &Arc<LockOwner>, key: &[u8]) {
        let at = slot_of(key);
        let registered = owner.registered.load(Ordering::Relaxed);
        if registered & 1 << at == 0 {
            owner
                .registered
                .store(registered | 1 << at, Ordering::Relaxed);
            let slot = &self.slots[at];
            slot.owners.write().push(Arc::clone(owner));
            slot.number.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Gives up all merged locks of `owner`. Nobody waits for them: who does has moved the lock to
    /// the hash table.
    pub(super) fn release_all(&self, owner: &Arc<LockOwner>) {
        let registered = owner.registered.load(Ordering::Relaxed);
        if registered == 0 {
            return;
        }
        // Freed at the end, when nobody has to wait for it.
        let _merged = std::mem::take(&mut *owner.merged.lock());
        owner.registered.store(0, Ordering::Relaxed);
        for (at, slot) in self.slots.iter().enumerate() {
            if registered & 1 << at != 0 {
                let mut owners = slot.owners.write();
                owners.retain(|other| !Arc::ptr_eq(other, owner));
                slot.number.fetch_sub(1, Ordering::Release);
            }
        }
    }

    /// The holders of `key`. Call with the key's shard locked.
    #[inline]
    pub(super) fn holders_of(&self, owner: &Arc<LockOwner>, key: &[u8]) -> MergedHolders {
        match self.slot(key) {
            None => MergedHolders::default(),
            Some(slot) => slot.holders_of(owner, key),
        }
    }

    /// Adds `key`, which nobody holds, to the merged locks of `owner` if that is cheap and there
    /// are such near it. Call with the key's shard locked.
    #[inline]
    pub(super) fn append(&self, owner: &Arc<LockOwner>, key: &[u8], mode: LockMode) -> bool {
        let registered = owner.registered.load(Ordering::Relaxed);
        registered & 1 << slot_of(key) != 0 && owner.merged.lock().set_mut(mode).append(key)
    }

    /// Moves all merged locks of `key` to its `row`, since somebody is about to wait. Call with the
    /// key's shard locked.
    pub(super) fn unmerge(&self, key: &Arc<[u8]>, row: &mut LockQueue) {
        let Some(slot) = self.slot(key) else {
            return;
        };
        for owner in slot.owners.read().iter() {
            // An owner that gives up everything lets go of its merged locks first: under one lock
            // the key is among those, or among the others by the time the owner looks there.
            let mut merged = owner.merged.lock();
            if let Some(mode) = merged.remove(key) {
                row.add_holder(owner, mode);
                owner.held.lock().keys.push(Arc::clone(key));
            }
        }
    }

    /// Owners named, each once, by id.
    pub(super) fn owners(&self) -> Vec<Arc<LockOwner>> {
        let mut all: Vec<_> = self
            .slots
            .iter()
            .flat_map(|slot| slot.owners.read().clone())
            .collect();
        all.sort_by_key(|owner| (owner.id(), Arc::as_ptr(owner).addr()));
        all.dedup_by(|a, b| Arc::ptr_eq(a, b));
        all
    }
}

impl RegistrySlot {
    #[cold]
    fn holders_of(&self, owner: &Arc<LockOwner>, key: &[u8]) -> MergedHolders {
        let mut seen = MergedHolders::default();
        for other in self.owners.read().iter() {
            let mode = other.merged.lock().mode_of(key);
            match Arc::ptr_eq(other, owner) {
                true => seen.own = mode,
                false => seen.others = seen.others.max(mode),
            }
        }
        seen
    }
}

#[cfg(test)]
mod tests;
