//! Lists transactions with inserts that are not committed, so that a locking scan finds them.
//!
//! The list has a fixed number of *slots*. Each index belongs to one slot, which it may share with
//! other indexes; the slot lists the transactions with new keys in these indexes. Each slot has
//! several parts, so that sessions seldom contend for a mutex.

use super::lock_table::LockOwner;
use super::number_hasher::NumberHasher;
use super::write_set::SharedWriteSet;
use crate::base::key::{SEQNO_MAX, index_id_of};
use crate::base::{IndexId, InternalIterator, Result};
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Number of slots. An index uses the slot of its id modulo this number. At most 64, since a
/// transaction keeps one bit for each slot.
const SLOTS: usize = 64;

/// Number of parts of each slot. Transactions spread over the parts, so that sessions that insert
/// into one table seldom contend for a mutex.
const PARTS: usize = 8;

/// Transactions with uncommitted inserts, by the index of the new keys.
///
/// A new key is in its transaction's write set until the commit, so a scan does not meet it, as it
/// would meet a record in InnoDB's tree. A scan that locks gaps therefore locks its range first,
/// and then searches the write sets of the transactions listed here ([`super::LockTable::lock_gap`]
/// has the order). A transaction is listed before it writes its first new key of an index, and
/// until its commit is visible or its writes are forgotten.
#[derive(Default)]
pub struct ActiveInserts {
    parts: Box<[ActivePart]>,
}

/// One part of a slot, with some of the transactions that the slot lists. Aligned to a cache line,
/// so that two parts never share a cache line.
#[derive(Default)]
#[repr(align(64))]
struct ActivePart {
    /// Number of entries, read without the lock.
    number: AtomicUsize,
    /// Number of new keys that the transactions in this part of the slot have written so far. It
    /// never decreases.
    written: AtomicU64,
    /// Number of prepared transactions of this part whose sessions have ended so far. It is raised
    /// before such a session's write set is cleared.
    left: AtomicU64,
    /// The new keys of each transaction, by the address of its owner.
    inserters: Mutex<HashMap<usize, UncommittedKeys, BuildHasherDefault<NumberHasher>>>,
}

/// New keys of one transaction.
#[derive(Clone)]
enum UncommittedKeys {
    /// The transaction belongs to a session: its new keys are among these writes.
    Writes(SharedWriteSet),
    /// The transaction is prepared and has no session: its new keys are among these sorted keys.
    Prepared(Arc<[Box<[u8]>]>),
}

/// Selects the key that a search returns from a range with several keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Nearest {
    /// The smallest one.
    Smallest,
    /// The largest one.
    Largest,
}

impl UncommittedKeys {
    /// The smallest or largest key from `lower` to below `upper`.
    fn find(&self, lower: &[u8], upper: &[u8], nearest: Nearest) -> Result<Option<Vec<u8>>> {
        match self {
            Self::Writes(writes) => {
                while_it_stays(writes, || writes.find_key(lower, upper, nearest))
            }
            Self::Prepared(keys) => {
                let begin = keys.partition_point(|key| &key[..] < lower);
                let end = keys.partition_point(|key| &key[..] < upper);
                let within = keys.get(begin..end).unwrap_or_default();
                let key = match nearest {
                    Nearest::Smallest => within.first(),
                    Nearest::Largest => within.last(),
                };
                Ok(key.map(|key| key.to_vec()))
            }
        }
    }
}

fn address(owner: &Arc<LockOwner>) -> usize {
    Arc::as_ptr(owner).addr()
}

impl ActiveInserts {
    /// A list without transactions.
    pub fn new() -> Self {
        Self {
            parts: (0..SLOTS * PARTS).map(|_| ActivePart::default()).collect(),
        }
    }

    /// The bit that stands for the slot of `index` in a transaction's set of slots.
    pub(super) fn bit_of(index: IndexId) -> u64 {
        1 << (index as usize % SLOTS)
    }

    fn part(&self, slot: usize, owner: &Arc<LockOwner>) -> &ActivePart {
        // Choose the part by higher bits of the address: owners are aligned in memory, so the low
        // bits are the same for all of them.
        &self.parts[slot * PARTS + (address(owner) >> 7) % PARTS]
    }

    /// Adds the transaction of `owner`, whose writes are `writes`, to the list of the slot of
    /// `index`. The caller must do so only once for each slot.
    pub(super) fn add(&self, index: IndexId, owner: &Arc<LockOwner>, writes: &SharedWriteSet) {
        let part = self.part(index as usize % SLOTS, owner);
        let mut inserters = part.inserters.lock();
        inserters.insert(address(owner), UncommittedKeys::Writes(writes.clone()));
        part.number.fetch_add(1, Ordering::SeqCst);
    }

    /// Lists a prepared transaction without a session. Its new keys are among `keys`, which are
    /// sorted and may belong to several indexes. Returns the bits of its slots, for
    /// [`Self::remove`].
    pub fn add_prepared(&self, owner: &Arc<LockOwner>, keys: Vec<Box<[u8]>>) -> u64 {
        let mut bits = 0;
        for key in &keys {
            bits |= index_id_of(key).map_or(0, Self::bit_of);
        }
        let keys: Arc<[Box<[u8]>]> = keys.into();
        for slot in (0..SLOTS).filter(|slot| bits & 1 << slot != 0) {
            let part = self.part(slot, owner);
            let mut inserters = part.inserters.lock();
            inserters.insert(address(owner), UncommittedKeys::Prepared(Arc::clone(&keys)));
            part.number.fetch_add(1, Ordering::SeqCst);
        }
        bits
    }

    /// Replaces the write set of `owner`'s transaction by `keys`, a sorted copy of its keys,
    /// because the transaction's session ends. Later searches find the new keys there.
    pub(super) fn leave_session(&self, bits: u64, owner: &Arc<LockOwner>, keys: Vec<Box<[u8]>>) {
        let keys: Arc<[Box<[u8]>]> = keys.into();
        for slot in (0..SLOTS).filter(|slot| bits & 1 << slot != 0) {
            let mut inserters = self.part(slot, owner).inserters.lock();
            inserters.insert(address(owner), UncommittedKeys::Prepared(Arc::clone(&keys)));
            self.part(slot, owner).left.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Number of prepared transactions in the slot of `index` whose sessions have ended so far.
    fn left(&self, index: IndexId) -> u64 {
        let slot = index as usize % SLOTS;
        let parts = &self.parts[slot * PARTS..][..PARTS];
        let left = parts.iter().map(|part| part.left.load(Ordering::SeqCst));
        left.fold(0, u64::wrapping_add)
    }

    /// Repeats `search`, which looks into the write sets of sessions, until no prepared transaction
    /// has left its session meanwhile: its keys leave the write set then and are listed apart.
    fn while_none_leaves<T>(
        &self,
        index: IndexId,
        mut search: impl FnMut() -> Result<T>,
    ) -> Result<T> {
        loop {
            let before = self.left(index);
            let found = search()?;
            if self.left(index) == before {
                return Ok(found);
            }
        }
    }

    /// Removes the transaction of `owner` from the slots of `bits`.
    pub fn remove(&self, bits: u64, owner: &Arc<LockOwner>) {
        let mut left = bits;
        while left != 0 {
            let part = self.part(left.trailing_zeros() as usize, owner);
            left &= left - 1;
            part.inserters.lock().remove(&address(owner));
            part.number.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Number of transactions in the slot of `index`.
    pub(super) fn number(&self, index: IndexId) -> usize {
        let slot = index as usize % SLOTS;
        let parts = &self.parts[slot * PARTS..][..PARTS];
        let numbers = parts.iter().map(|part| part.number.load(Ordering::SeqCst));
        numbers.sum()
    }

    /// Counts a new key of `index` that the listed transaction of `owner` has just written.
    pub(super) fn count_written(&self, index: IndexId, owner: &Arc<LockOwner>) {
        let part = self.part(index as usize % SLOTS, owner);
        part.written.fetch_add(1, Ordering::SeqCst);
    }

    /// Number of new keys that have ever been written in the slot of `index`. If two calls return
    /// the same number, no transaction has written a new key in between.
    pub(super) fn written(&self, index: IndexId) -> u64 {
        let slot = index as usize % SLOTS;
        let parts = &self.parts[slot * PARTS..][..PARTS];
        // Each part of the slot counts the new keys written by some of the transactions. A count
        // only grows, so the sum of the counts stays the same only if no count has changed.
        let written = parts.iter().map(|part| part.written.load(Ordering::SeqCst));
        written.fold(0, u64::wrapping_add)
    }

    /// The uncommitted keys of all transactions but `owner`'s in the slot of `index`.
    fn others(&self, index: IndexId, owner: &Arc<LockOwner>) -> Vec<UncommittedKeys> {
        let slot = index as usize % SLOTS;
        let parts = &self.parts[slot * PARTS..][..PARTS];
        let mut others = Vec::new();
        for part in parts {
            if part.number.load(Ordering::SeqCst) > 0 {
                let inserters = part.inserters.lock();
                let found = inserters.iter().filter(|(at, _)| **at != address(owner));
                others.extend(found.map(|(_, keys)| keys.clone()));
            }
        }
        others
    }

    /// The smallest or largest key from `lower` to below `upper` that a transaction other than
    /// `owner`'s has written and not committed.
    ///
    /// # Errors
    /// Those of reading spilled files: `Corruption`, `Unsupported`, `Io`.
    pub(super) fn key_of_others(
        &self,
        index: IndexId,
        owner: &Arc<LockOwner>,
        (lower, upper): (&[u8], &[u8]),
        nearest: Nearest,
    ) -> Result<Option<Vec<u8>>> {
        self.while_none_leaves(index, || {
            let mut best: Option<Vec<u8>> = None;
            for keys in self.others(index, owner) {
                let (from, below) = match (&best, nearest) {
                    (None, _) => (lower, upper),
                    (Some(key), Nearest::Smallest) => (lower, &key[..]),
                    (Some(key), Nearest::Largest) => (&key[..], upper),
                };
                if let Some(key) = keys.find(from, below, nearest)? {
                    best = Some(key);
                }
            }
            Ok(best)
        })
    }
}

/// Searches the write set of another session with `search`. That session may spill its memory, or
/// merge or remove its spilled files meanwhile. Then the search has failed on a removed file, or
/// has missed the keys that left the memory after it had chosen its sources, so it is repeated.
/// Once a commit record names the files, a compaction may remove them, but only after the commit
/// became visible. Then the result is `None`, because the caller finds the keys among the committed
/// ones.
fn while_it_stays(
    writes: &SharedWriteSet,
    mut search: impl FnMut() -> Result<Option<Vec<u8>>>,
) -> Result<Option<Vec<u8>>> {
    loop {
        let before = writes.generation_after_change();
        let found = search();
        if writes.generation_after_change() != before {
            continue;
        }
        return match found {
            Err(_) if writes.is_released() => Ok(None),
            found => found,
        };
    }
}

impl SharedWriteSet {
    /// The smallest or largest written key from `lower` to below `upper`. Deletions count: a key
    /// that the transaction has inserted and deleted again blocks others until the transaction
    /// ends, as in InnoDB. A deleted key of a committed row blocks nobody, because it lies in no
    /// gap: a scan meets the row's committed entry there.
    fn find_key(&self, lower: &[u8], upper: &[u8], nearest: Nearest) -> Result<Option<Vec<u8>>> {
        if !self.lock().touches_range(lower, Some(upper)) {
            return Ok(None);
        }
        let mut iter = self.iter_within(lower, Some(upper));
        let found = match nearest {
            Nearest::Smallest => iter.seek(lower, SEQNO_MAX)? && iter.key().user_key < upper,
            Nearest::Largest => iter.seek_before(upper)? && iter.key().user_key >= lower,
        };
        Ok(found.then(|| iter.key().user_key.to_vec()))
    }
}

#[cfg(test)]
mod tests;
