//! The list of live snapshots, which tells compaction which versions it must keep.

use crate::base::Seqno;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The live snapshots: each seqno with the number of its holders.
///
/// [`Self::acquire`] reads the visible seqno and registers it in one step, under the list's lock.
/// If these were two steps, a compaction between them would read the list without the new snapshot
/// and drop a version that only this snapshot sees.
///
/// A clone is another handle to the same list.
#[derive(Clone, Default)]
pub struct SnapshotList {
    counts: Arc<Mutex<BTreeMap<Seqno, u64>>>,
}

impl SnapshotList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the seqno that `read` returns. `read` runs under the list's lock, so it must not
    /// use this list.
    pub fn acquire(&self, read: impl FnOnce() -> Seqno) -> Snapshot {
        let mut counts = self.counts.lock();
        let seqno = read();
        *counts.entry(seqno).or_insert(0) += 1;
        drop(counts);
        Snapshot {
            seqno,
            list: self.clone(),
        }
    }

    /// The live seqnos, ascending, without duplicates.
    pub fn live(&self) -> Vec<Seqno> {
        self.counts.lock().keys().copied().collect()
    }

    /// The smallest live seqno.
    pub fn oldest(&self) -> Option<Seqno> {
        self.counts.lock().keys().next().copied()
    }

    /// Number of snapshots that are held.
    pub fn holders(&self) -> u64 {
        self.counts.lock().values().sum()
    }
}

/// A registered seqno; unregisters itself when dropped.
pub struct Snapshot {
    seqno: Seqno,
    list: SnapshotList,
}

impl Snapshot {
    /// The snapshot sees commits with seqnos up to and including this one.
    pub fn seqno(&self) -> Seqno {
        self.seqno
    }
}

impl Clone for Snapshot {
    fn clone(&self) -> Self {
        let seqno = self.seqno;
        self.list.acquire(|| seqno)
    }
}

impl Drop for Snapshot {
    fn drop(&mut self) {
        let mut counts = self.list.counts.lock();
        let count = counts.get_mut(&self.seqno).expect("registered");
        *count -= 1;
        if *count == 0 {
            counts.remove(&self.seqno);
        }
    }
}

impl std::fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Snapshot({})", self.seqno)
    }
}

#[cfg(test)]
mod tests;
