//! The memory of all write sets and bulk loads, and the share that each may take.

use crate::base::memory_tracker::{MemoryCharge, MemoryTracker};
use crate::base::options::MutableOptions;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// All write sets and loads together should take at most 1/4 of the limit.
const SHARE: u64 = 4;
/// A write set may take twice as much as all of them leave of their share, so a single one takes
/// two thirds of it, and many get less each.
const GREED: u64 = 2;
/// A write set may always take 1/256 of the limit, or `LEAST` if that is more: spilled runs must
/// not become tiny.
const LEAST_SHARE: u64 = 256;
const LEAST: u64 = 128 << 10;

/// The memory of write sets and loads of a database and its ephemeral databases.
///
/// A write set asks for its cap at each write, so it may grow while others shrink. A load keeps the
/// memory with which it begins. So the caps reckon with the *allowances* of the loads, not with the
/// memory that these have in use yet; the caches reckon with the memory in use.
///
/// Lock: `beginning` is held while a load takes its allowance, so that loads that begin at the same
/// time see each other. The observer of the allowances is called with it, and must begin no load.
#[derive(Default)]
pub(in crate::db) struct WriteSetMemory {
    sets: Arc<MemoryTracker>,
    loads: Arc<MemoryTracker>,
    allowances: Arc<MemoryTracker>,
    beginning: Mutex<()>,
}

impl WriteSetMemory {
    /// The tracker of write sets.
    pub(in crate::db) fn sets(&self) -> &Arc<MemoryTracker> {
        &self.sets
    }

    /// The tracker of the memory that loads have in use.
    pub(super) fn loads(&self) -> &Arc<MemoryTracker> {
        &self.loads
    }

    /// Memory in use, bytes.
    pub(super) fn in_use(&self) -> u64 {
        self.sets.sum() + self.loads.sum()
    }

    /// Memory that each write set may take under the memory limit `limit`, bytes; `u64::MAX`
    /// without a limit.
    pub(super) fn cap(&self, limit: u64) -> u64 {
        let taken = self.sets.sum() + self.allowances.sum().max(self.loads.sum());
        match limit {
            0 => u64::MAX,
            limit => cap(limit, taken),
        }
    }

    /// The memory with which a load begins, bytes, and its allowance, which the load keeps until
    /// its end.
    pub(super) fn begin_load(&self, options: &MutableOptions) -> (u64, MemoryCharge) {
        let mut allowance = MemoryCharge::new(Arc::clone(&self.allowances));
        let _beginning = self.beginning.lock();
        let limit = options.memory_limit.load(Ordering::Relaxed);
        let memory = options.load_memory(self.cap(limit));
        allowance.set(memory);
        (memory, allowance)
    }

    /// Has `observer` called when the sum of a tracker crosses a multiple of `every` bytes.
    pub(super) fn observe(&self, every: u64, observer: impl Fn() + Clone + Send + Sync + 'static) {
        for tracker in [&self.sets, &self.loads, &self.allowances] {
            tracker.observe(every, observer.clone());
        }
    }
}

/// Memory that each write set may take, if all of them and the loads take `taken` bytes.
fn cap(limit: u64, taken: u64) -> u64 {
    let left = (limit / SHARE).saturating_sub(taken);
    let least = (limit / LEAST_SHARE).max(LEAST);
    (left * GREED).max(least)
}

#[cfg(test)]
mod tests;
