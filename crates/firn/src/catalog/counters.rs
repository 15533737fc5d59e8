//! Counters that grow: auto-increment values, hidden row ids, index ids.
//!
//! A counter is persisted by its value: with a log record of the commit that used it, and with the manifest edit of
//! each flush. The largest value holds, so no order of commits moves it back. One that was reserved but never committed
//! may be given out again after a crash: nothing was ever stored under it. To set a counter to a smaller value is to
//! begin a new generation, whose values are larger than all of those before ([`CounterValue`]).

use crate::base::live_rows::LiveRows;
use crate::base::{CounterValue, IndexId};
use parking_lot::RwLock;
use std::collections::{BTreeMap, HashMap};
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

/// One counter. Its value may be read and raised by itself.
#[derive(Debug, Default)]
pub struct Counter {
    generation: AtomicU64,
    value: AtomicU64,
}

impl Counter {
    /// The value, in the generation in force.
    pub fn value(&self) -> &AtomicU64 {
        &self.value
    }

    /// Generation and value. While the counter is set they are those before, those after, or the generation before with
    /// the value after, which says less than either: never a value from before in a generation after it.
    pub fn read(&self) -> CounterValue {
        CounterValue {
            generation: self.generation.load(Ordering::Acquire),
            value: self.value.load(Ordering::Relaxed),
        }
    }

    /// Raises the value to `value` at least. Returns the generation with `value`, to be persisted.
    pub fn raise(&self, value: u64) -> CounterValue {
        self.value.fetch_max(value, Ordering::Relaxed);
        CounterValue {
            generation: self.generation.load(Ordering::Acquire),
            value,
        }
    }

    /// Begins a new generation with `value`. One caller at a time, while nobody raises the counter.
    pub(super) fn set(&self, value: u64) -> CounterValue {
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        self.value.store(value, Ordering::Relaxed);
        self.generation.store(generation, Ordering::Release);
        CounterValue { generation, value }
    }
}

/// All counters of a database.
#[derive(Debug, Default)]
pub struct Counters {
    values: RwLock<BTreeMap<u64, Arc<Counter>>>,
    /// Not persisted.
    rows: RwLock<HashMap<IndexId, Arc<LiveRows>>>,
}

impl Counters {
    /// The cell of one counter, zero if it is new.
    pub fn cell(&self, counter: u64) -> Arc<Counter> {
        if let Some(cell) = self.values.read().get(&counter) {
            return Arc::clone(cell);
        }
        Arc::clone(self.values.write().entry(counter).or_default())
    }

    /// Raises a counter to `value` at least. Returns what is to be persisted.
    pub fn raise(&self, counter: u64, value: u64) -> CounterValue {
        self.cell(counter).raise(value)
    }

    /// Takes over what is known of a counter. Before anybody raises it.
    pub fn learn(&self, counter: u64, known: CounterValue) {
        let cell = self.cell(counter);
        if known > cell.read() {
            cell.value.store(known.value, Ordering::Relaxed);
            cell.generation.store(known.generation, Ordering::Release);
        }
    }

    /// The rows of the table whose rows are in `clustered`.
    pub fn rows(&self, clustered: IndexId) -> Arc<LiveRows> {
        if let Some(rows) = self.rows.read().get(&clustered) {
            return Arc::clone(rows);
        }
        Arc::clone(self.rows.write().entry(clustered).or_default())
    }

    /// Index ids are never used again.
    pub(super) fn forget_rows(&self, clustered: IndexId) {
        self.rows.write().remove(&clustered);
    }

    /// All values, for the manifest.
    pub fn snapshot(&self) -> Vec<(u64, CounterValue)> {
        let values = self.values.read();
        values.iter().map(|(&c, v)| (c, v.read())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_in_any_order_comes_to_the_largest_value_of_the_last_generation() {
        let known = [(0, 100), (1, 5), (1, 7), (0, 300), (2, 6), (1, 90)];
        let known = known.map(|(generation, value)| CounterValue { generation, value });
        for first in 0..known.len() {
            let counters = Counters::default();
            (0..known.len()).for_each(|i| counters.learn(9, known[(first + i) % known.len()]));
            assert_eq!(counters.snapshot(), [(9, known[4])]);
        }
    }

    #[test]
    fn a_counter_that_is_set_grows_from_there() {
        let counters = Counters::default();
        assert_eq!(counters.raise(4, 100), 100.into());
        let cell = counters.cell(4);
        let set = cell.set(7);
        assert_eq!((set.generation, set.value), (1, 7));
        assert!(set > 100.into());
        let raised = counters.raise(4, 9);
        assert!(raised > set);
        assert_eq!(counters.snapshot(), [(4, raised)]);
    }
}
