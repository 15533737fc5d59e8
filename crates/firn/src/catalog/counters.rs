//! Counters that only grow: auto-increment values, hidden row ids, index ids.
//!
//! A counter is persisted as a maximum: by a log record with the commit that used it, and with the
//! manifest edit of each flush. Replay takes the maximum, so no order of commits moves it back.
//! A value that was reserved but never committed may be given out again after a crash: nothing
//! was ever stored under it.

use crate::base::IndexId;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The counter from which index ids are taken.
pub const INDEX_IDS: u64 = 0;

/// The counter of a table's AUTO_INCREMENT column: the largest value used.
pub fn autoincrement_counter(clustered: IndexId) -> u64 {
    u64::from(clustered) << 1
}

/// The counter of a table's hidden row ids: the largest id used.
pub fn hidden_row_counter(clustered: IndexId) -> u64 {
    u64::from(clustered) << 1 | 1
}

/// All counters of a database.
#[derive(Debug, Default)]
pub struct Counters {
    values: RwLock<BTreeMap<u64, Arc<AtomicU64>>>,
}

impl Counters {
    /// The cell of one counter, zero if it is new.
    pub fn cell(&self, counter: u64) -> Arc<AtomicU64> {
        if let Some(cell) = self.values.read().get(&counter) {
            return Arc::clone(cell);
        }
        Arc::clone(self.values.write().entry(counter).or_default())
    }

    /// Raises a counter to `value` at least.
    pub fn raise(&self, counter: u64, value: u64) {
        self.cell(counter).fetch_max(value, Ordering::Relaxed);
    }

    /// All values, for the manifest.
    pub fn snapshot(&self) -> Vec<(u64, u64)> {
        let values = self.values.read();
        values
            .iter()
            .map(|(&c, v)| (c, v.load(Ordering::Relaxed)))
            .collect()
    }
}
