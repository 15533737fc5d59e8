//! Merged locks: locks that have moved from the hash table to their owner's sorted sets.

use super::key_set::KeySet;
use super::lock_queue::LockQueue;
use super::{LockMode, LockOwner};
use parking_lot::RwLock;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Slots of the registry. An index uses the slot of its id modulo this number. At most 64, since
/// [`LockOwner`] has one bit for each.
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

    /// Releases the shared locks.
    pub(super) fn take_shared(&mut self) -> KeySet {
        std::mem::take(&mut self.shared)
    }

    /// Number of keys.
    pub(super) fn len(&self) -> u64 {
        self.shared.len() + self.exclusive.len()
    }

    /// Memory, in bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes() + self.exclusive.bytes()
    }

    pub(super) fn mode_of(&self, key: &[u8]) -> Option<LockMode> {
        let modes = [LockMode::Exclusive, LockMode::Shared];
        modes.into_iter().find(|m| self.set(*m).contains(key))
    }

    /// Adds `key`, whose lock the owner has in the hash table. The caller must hold the lock of the
    /// key's shard and must have called [`MergedLockRegistry::register`].
    pub(super) fn insert(&mut self, key: &[u8], mode: LockMode) {
        self.set_mut(mode).insert(key);
    }

    /// Removes `key` and returns its mode. The caller must hold the lock of the key's shard.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<LockMode> {
        let modes = [LockMode::Exclusive, LockMode::Shared];
        modes.into_iter().find(|m| self.set_mut(*m).remove(key))
    }
}

/// How merged locks hold a key.
#[derive(Default)]
pub(super) struct MergedHolders {
    /// Mode in which the requesting owner holds the key.
    pub(super) own: Option<LockMode>,
    /// Strongest mode in which another owner holds the key.
    pub(super) others: Option<LockMode>,
}

/// Lists the owners with merged locks. It has a fixed number of slots, and each index belongs to
/// one of them, perhaps together with other indexes.
///
/// If nobody has merged locks in the slot of an index, a request for a key of this index only loads
/// the slot's number of owners.
///
/// - **No lock is overlooked.** An owner registers before it moves its first lock of an index, and
///   moves each lock under the key's shard lock. A request reads the number under the same shard
///   lock. So a request either comes before the move and finds the lock in the hash table, or comes
///   after the move and sees the raised number. For this a relaxed load would do.
/// - **The holder's work is visible.** The number falls, with release order, after the owner has
///   released its merged locks, and is loaded with acquire order. So a request that reads 0 sees
///   everything that the owner did before, above all its commit.
/// - **No waiter is forgotten.** Requests wait for rows of the hash table only. A request that has
///   to wait first moves all merged locks of its key to the row, and a lock is not merged while its
///   row has a queue. An owner releases its merged locks before its rows.
///
/// Lock order: a slot's `owners` → an owner's merged locks.
#[derive(Default)]
pub(super) struct MergedLockRegistry {
    slots: Box<[RegistrySlot]>,
}

/// One slot. Aligned to a cache line, so that a change of one slot does not slow down readers of
/// another.
#[derive(Default)]
#[repr(align(64))]
struct RegistrySlot {
    /// Number of owners, read without the lock of `owners`.
    number: AtomicUsize,
    owners: RwLock<Vec<Arc<LockOwner>>>,
}

/// The number of the slot to which the index of `key` belongs.
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

    /// Adds `owner` to the owners in the slot of the index of `key`, unless it is among them. The
    /// caller must not hold a shard's lock.
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

    /// Releases all merged locks of `owner`. No request waits for them: one that has to wait moves
    /// the lock to the hash table first.
    pub(super) fn release_all(&self, owner: &Arc<LockOwner>) {
        let registered = owner.registered.load(Ordering::Relaxed);
        if registered == 0 {
            return;
        }
        // Drop the merged locks at the end of the function, when no mutex is held: freeing many
        // keys takes time.
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

    /// The modes in which `owner` and others hold `key` by merged locks. The caller must hold the
    /// lock of the key's shard.
    #[inline]
    pub(super) fn holders_of(&self, owner: &Arc<LockOwner>, key: &[u8]) -> MergedHolders {
        match self.slot(key) {
            None => MergedHolders::default(),
            Some(slot) => slot.holders_of(owner, key),
        }
    }

    /// Adds `key`, which no owner holds, to the merged locks of `owner` if the owner is registered
    /// in the key's slot and [`KeySet::append`] accepts it. Returns whether it did. The caller must
    /// hold the lock of the key's shard.
    #[inline]
    pub(super) fn append(&self, owner: &Arc<LockOwner>, key: &[u8], mode: LockMode) -> bool {
        let registered = owner.registered.load(Ordering::Relaxed);
        registered & 1 << slot_of(key) != 0 && owner.merged.lock().set_mut(mode).append(key)
    }

    /// Moves all merged locks of `key` to `row`, the row of `key` in the hash table, because a
    /// request is about to wait for it. The caller must hold the lock of the key's shard.
    pub(super) fn unmerge(&self, key: &Arc<[u8]>, row: &mut LockQueue) {
        let Some(slot) = self.slot(key) else {
            return;
        };
        for owner in slot.owners.read().iter() {
            // Hold the mutex of `merged` until the key is in `held`. `release_all`, which may run
            // at the same time, releases the locks in `merged` first and those in `held` last, so
            // it finds the key in one of the two.
            let mut merged = owner.merged.lock();
            if let Some(mode) = merged.remove(key) {
                row.add_holder(owner, mode);
                owner.held.lock().keys.push(Arc::clone(key));
            }
        }
    }

    /// All registered owners without duplicates, by id.
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
