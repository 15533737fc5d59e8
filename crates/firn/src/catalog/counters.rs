//! Persisted counters: auto-increment values, hidden row ids, index ids.
//!
//! The value of a counter is persisted in the log record of each commit that used the counter, and
//! in the manifest edit of each flush. Recovery takes the largest persisted value, so it does not
//! matter in which order commits persist their values. A value that was given out but never
//! committed may be given out again after a crash, since no row has it. Setting a counter to a
//! smaller value begins a new generation, which is larger than all values of the generations before
//! ([`CounterValue`]).
//!
//! Each change of a counter, a reservation too, puts it on the list of changed counters. So a flush
//! does not look at the counters of all tables.

use crate::base::row_count::RowCount;
use crate::base::work_count;
use crate::base::{CounterChanges, CounterValue, IndexId};
use parking_lot::{Mutex, RwLock};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The number of the counter for index ids. The counter holds the last id given out.
pub const INDEX_IDS: u64 = 0;

/// The number of the counter for a table's AUTO_INCREMENT column. The counter holds the largest
/// value used.
pub fn autoincrement_counter(clustered: IndexId) -> u64 {
    u64::from(clustered) << 1
}

/// The number of the counter for a table's hidden row ids. The counter holds the largest id used.
pub fn hidden_row_counter(clustered: IndexId) -> u64 {
    u64::from(clustered) << 1 | 1
}

/// Numbers of counters that have changed or are gone.
#[derive(Debug, Default)]
struct ChangedList {
    changed: Vec<u64>,
    dropped: Vec<u64>,
}

/// One counter.
///
/// Every change puts the counter on the list of changed counters. Mostly it is there already, which
/// one load finds out. The change, this load, and the two steps of [`Counters::take_changed`] are
/// sequentially consistent. So either the change finds that the counter is not on the list, or
/// `take_changed` reads the changed value.
#[derive(Debug, Default)]
pub struct Counter {
    number: u64,
    generation: AtomicU64,
    value: AtomicU64,
    /// Whether the counter is on the list of changed counters.
    listed: AtomicBool,
    list: Arc<Mutex<ChangedList>>,
}

impl Counter {
    /// Takes `count` values. Returns the last of them.
    pub fn take(&self, count: u64) -> u64 {
        let last = self.value.fetch_add(count, Ordering::SeqCst) + count;
        self.note_change();
        last
    }

    /// Changes the value to the one that `next` returns for the old value, with a result for the
    /// caller. `next` may be called several times. If it returns `None`, the value stays.
    pub fn update<T>(&self, next: impl Fn(u64) -> Option<(u64, T)>) -> Option<T> {
        let mut last = self.value.load(Ordering::Relaxed);
        loop {
            let (new, result) = next(last)?;
            let (done, failed) = (Ordering::SeqCst, Ordering::Relaxed);
            match self.value.compare_exchange_weak(last, new, done, failed) {
                Ok(_) => {
                    self.note_change();
                    return Some(result);
                }
                Err(now) => last = now,
            }
        }
    }

    /// Generation and value. While another thread sets the counter, the result may be the old
    /// generation with the new value. That is harmless, because recovery prefers any value of the
    /// new generation to it. The result is never the new generation with the old value.
    pub fn read(&self) -> CounterValue {
        CounterValue {
            generation: self.generation.load(Ordering::Acquire),
            value: self.value.load(Ordering::Relaxed),
        }
    }

    /// Puts the counter on the list of changed counters. Call it after a change with
    /// `Ordering::SeqCst`.
    fn note_change(&self) {
        if !self.listed.load(Ordering::SeqCst) && !self.listed.swap(true, Ordering::SeqCst) {
            self.list.lock().changed.push(self.number);
        }
    }

    /// Notes that the counter is no longer on the list of changed counters. Returns its generation
    /// and value.
    fn unlist(&self) -> CounterValue {
        self.listed.swap(false, Ordering::SeqCst);
        CounterValue {
            generation: self.generation.load(Ordering::SeqCst),
            value: self.value.load(Ordering::SeqCst),
        }
    }

    /// Raises the value to at least `value`. Returns `value` with the current generation; the
    /// caller persists it.
    pub fn raise(&self, value: u64) -> CounterValue {
        self.value.fetch_max(value, Ordering::SeqCst);
        self.note_change();
        CounterValue {
            generation: self.generation.load(Ordering::Acquire),
            value,
        }
    }

    /// Begins a new generation with `value`. Requires that no other thread sets or raises the
    /// counter meanwhile.
    pub(super) fn set(&self, value: u64) -> CounterValue {
        let generation = self.generation.load(Ordering::Relaxed) + 1;
        self.value.store(value, Ordering::SeqCst);
        self.generation.store(generation, Ordering::SeqCst);
        self.note_change();
        CounterValue { generation, value }
    }
}

/// All counters of a database.
#[derive(Debug, Default)]
pub struct Counters {
    values: RwLock<BTreeMap<u64, Arc<Counter>>>,
    /// Locked for moments only, also under the lock of `values`.
    list: Arc<Mutex<ChangedList>>,
    /// Rows per clustered index; not persisted.
    rows: RwLock<HashMap<IndexId, Arc<RowCount>>>,
}

impl Counters {
    /// One counter; zero if it is new.
    pub fn cell(&self, counter: u64) -> Arc<Counter> {
        if let Some(cell) = self.values.read().get(&counter) {
            return Arc::clone(cell);
        }
        let mut values = self.values.write();
        let cell = values.entry(counter).or_insert_with(|| {
            Arc::new(Counter {
                number: counter,
                list: Arc::clone(&self.list),
                ..Counter::default()
            })
        });
        Arc::clone(cell)
    }

    /// As [`Counter::raise`], for the counter with the number `counter`.
    pub fn raise(&self, counter: u64, value: u64) -> CounterValue {
        self.cell(counter).raise(value)
    }

    /// Sets the counter to a value read from log or manifest, if that is larger than the present
    /// value. Call this before any thread raises the counter.
    pub fn learn(&self, counter: u64, known: CounterValue) {
        let cell = self.cell(counter);
        if known > cell.read() {
            cell.value.store(known.value, Ordering::SeqCst);
            cell.generation.store(known.generation, Ordering::SeqCst);
            cell.note_change();
        }
    }

    /// The row count of the table with clustered index `clustered`.
    pub fn rows(&self, clustered: IndexId) -> Arc<RowCount> {
        if let Some(rows) = self.rows.read().get(&clustered) {
            return Arc::clone(rows);
        }
        Arc::clone(self.rows.write().entry(clustered).or_default())
    }

    /// Removes the counters and the row count of a dropped table. Index ids are never reused, so
    /// nobody needs them again.
    pub(super) fn forget(&self, clustered: IndexId) {
        self.rows.write().remove(&clustered);
        let mut values = self.values.write();
        let counters = [
            autoincrement_counter(clustered),
            hidden_row_counter(clustered),
        ];
        for counter in counters {
            values.remove(&counter);
        }
        self.list.lock().dropped.extend(counters);
    }

    /// Removes the counters of dropped tables, which the log and the manifest may still name: those
    /// of every clustered index that was given out and is not in `clustered`. Keeps the counter of
    /// an index id that was not given out yet, since no table with it can have been dropped.
    pub(super) fn keep_only(&self, clustered: &HashSet<IndexId>) {
        let given = self.cell(INDEX_IDS).read().value;
        let mut values = self.values.write();
        let mut list = self.list.lock();
        values.retain(|&counter, _| {
            let gone = IndexId::try_from(counter >> 1)
                .is_ok_and(|index| u64::from(index) <= given && !clustered.contains(&index));
            let stays = counter == INDEX_IDS || !gone;
            if !stays {
                list.dropped.push(counter);
            }
            stays
        });
    }

    /// The counters that have changed since the last call, and those that were removed with their
    /// dropped tables.
    pub fn take_changed(&self) -> CounterChanges {
        let values = self.values.read();
        let ChangedList { changed, dropped } = std::mem::take(&mut *self.list.lock());
        work_count::tables_seen(changed.len() + dropped.len());
        let value = |counter: u64| {
            let cell = values.get(&counter)?;
            Some((counter, cell.unlist()))
        };
        CounterChanges {
            values: changed.into_iter().filter_map(value).collect(),
            dropped,
        }
    }

    /// All values, in the order of the counters.
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
    fn counters_of_dropped_tables_are_forgotten() {
        let counters = Counters::default();
        counters.raise(INDEX_IDS, 7);
        for table in [3, 5, 7, 9] {
            counters.raise(autoincrement_counter(table), 10);
            counters.raise(hidden_row_counter(table), 20);
        }
        counters.keep_only(&HashSet::from([3, 5]));
        counters.forget(3);
        let left = [
            (INDEX_IDS, 7),
            (autoincrement_counter(5), 10),
            (hidden_row_counter(5), 20),
            (autoincrement_counter(9), 10),
            (hidden_row_counter(9), 20),
        ];
        assert_eq!(counters.snapshot(), left.map(|(c, v)| (c, v.into())));
    }

    #[test]
    fn only_changed_counters_are_taken() {
        let counters = Counters::default();
        (0..100).for_each(|n| drop(counters.cell(n)));
        assert_eq!(counters.take_changed(), CounterChanges::default());
        counters.raise(5, 7);
        counters.raise(5, 9);
        assert_eq!(counters.cell(6).take(3), 3);
        assert_eq!(
            counters.cell(7).update(|last| Some((last + 20, last + 1))),
            Some(1)
        );
        assert_eq!(counters.cell(4).update(|_| None::<(u64, ())>), None);
        counters.learn(8, 3.into());
        counters.learn(8, 2.into());
        let set = counters.cell(9).set(4);
        let changed = counters.take_changed();
        let taken = [
            (5, 9.into()),
            (6, 3.into()),
            (7, 20.into()),
            (8, 3.into()),
            (9, set),
        ];
        assert_eq!(changed.values, taken);
        counters.raise(6, 2);
        assert_eq!(counters.take_changed().values, [(6, 3.into())]);
        counters.raise(autoincrement_counter(7), 1);
        counters.forget(7);
        let changed = counters.take_changed();
        assert_eq!((changed.values.len(), changed.dropped), (0, vec![14, 15]));
        counters.raise(INDEX_IDS, 30);
        counters.keep_only(&HashSet::from([3]));
        let dropped = counters.take_changed().dropped;
        assert_eq!(dropped.len(), 57, "those of tables 1 to 30 without table 3");
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
