//! Rows whose snapshot version a transaction hides from its own reads, because it has written a
//! version of its own.

use super::lock_table::KeySet;
use crate::base::memory_tracker::{MemoryCharge, MemoryTracker};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Largest number of keys that are kept one by one. If there are more, all of them move to the
/// sorted set.
const SINGLE_MAX: usize = 1024;

/// Memory of a key that is kept alone, without its bytes: its slot in the tree, which is half full,
/// and the header of its allocation.
const SINGLE_OVERHEAD: u64 = 48;

/// Keys of rows that were newer than the transaction's snapshot when it wrote them.
///
/// A rollback removes no key: a row is hidden if its key is here *and* the write set still has a
/// version of the row, which the caller checks. If the transaction writes the row again after a
/// rollback, the row is still newer than the snapshot, so it is right to hide it again.
///
/// A long transaction may hide millions of rows. All but the newest keys are a [`KeySet`]: keys
/// with consecutive numbers take nothing, others two to about ten bytes more than the suffix that
/// differs. They stay in memory when the write set spills: a key takes little beside its spilled
/// row, and each read through a secondary index looks up keys here. Their memory is counted with
/// that of the uncommitted changes.
pub(super) struct HiddenRows {
    single: BTreeSet<Box<[u8]>>,
    single_bytes: u64,
    many: KeySet,
    many_bytes: u64,
    charge: MemoryCharge,
}

impl HiddenRows {
    /// An empty set. The memory of keys that are added later counts in `tracker`.
    pub(super) fn new(tracker: &Arc<MemoryTracker>) -> Self {
        Self {
            single: BTreeSet::new(),
            single_bytes: 0,
            many: KeySet::default(),
            many_bytes: 0,
            charge: MemoryCharge::new(Arc::clone(tracker)),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.single.is_empty() && self.many.len() == 0
    }

    pub(super) fn contains(&self, row_key: &[u8]) -> bool {
        self.single.contains(row_key) || self.many.contains(row_key)
    }

    pub(super) fn add(&mut self, row_key: &[u8]) {
        if self.contains(row_key) {
            return;
        }
        self.single.insert(row_key.into());
        self.single_bytes += row_key.len() as u64 + SINGLE_OVERHEAD;
        if self.single.len() > SINGLE_MAX {
            for key in std::mem::take(&mut self.single) {
                self.many.insert(&key);
            }
            self.single_bytes = 0;
            self.many_bytes = self.many.bytes();
        }
        self.charge.set(self.bytes());
    }

    pub(super) fn clear(&mut self) {
        if !self.is_empty() {
            self.single.clear();
            self.single_bytes = 0;
            self.many = KeySet::default();
            self.many_bytes = 0;
            self.charge.set(0);
        }
    }

    /// Memory, in bytes.
    fn bytes(&self) -> u64 {
        self.single_bytes + self.many_bytes
    }
}

#[cfg(test)]
mod tests;
