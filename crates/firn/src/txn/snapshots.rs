//! The snapshots that reads hold, as compaction must know them.

use crate::base::Seqno;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The live snapshots: seqnos with the number of their holders.
///
/// Reading the visible seqno and registering it is one step under the list's lock. Were it two, a
/// compaction in between would take the list without the new snapshot and drop a version that only
/// this snapshot sees.
///
/// Cloning gives another handle to the same list.
#[derive(Clone, Default)]
pub struct SnapshotList {
    counts: Arc<Mutex<BTreeMap<Seqno, u64>>>,
}

impl SnapshotList {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Registers the seqno that `read` returns, atomically with the call. `read` must not come
    /// back to this list.
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

    /// The live seqnos, ascending, each once.
    pub fn live(&self) -> Vec<Seqno> {
        self.counts.lock().keys().copied().collect()
    }

    /// The smallest live seqno.
    pub fn oldest(&self) -> Option<Seqno> {
        self.counts.lock().keys().next().copied()
    }

    /// Number of holders.
    pub fn holders(&self) -> u64 {
        self.counts.lock().values().sum()
    }
}

/// A registered seqno; leaves the list when dropped.
pub struct Snapshot {
    seqno: Seqno,
    list: SnapshotList,
}

impl Snapshot {
    /// Commits up to this one are visible.
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
