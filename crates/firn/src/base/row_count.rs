//! The number of rows of a table, maintained by its commits.

use std::sync::atomic::{AtomicI64, Ordering};

/// The base value while the number is not known.
const UNKNOWN: i64 = i64::MIN;

/// The number of rows of one table.
///
/// Each commit adds the difference it makes, which costs one atomic addition and is exact. The
/// starting number is not stored: it is zero for a new table, and estimated once for a table that
/// exists when the database is opened.
///
/// Rejected: puts minus deletes, as files and memtables count them. Each update adds a put, so rows
/// that are updated again and again would count thousands of times.
#[derive(Debug)]
pub struct RowCount {
    base: AtomicI64,
    counted: AtomicI64,
}

impl Default for RowCount {
    fn default() -> Self {
        Self {
            base: AtomicI64::new(UNKNOWN),
            counted: AtomicI64::new(0),
        }
    }
}

impl RowCount {
    /// Notes that a commit has changed the number of rows by `net`.
    pub fn count(&self, net: i64) {
        self.counted.fetch_add(net, Ordering::Relaxed);
    }

    /// By how much all commits counted so far have changed the number of rows. A caller reads this
    /// before it counts the rows, and passes it to [`Self::set`]: the number of rows then includes
    /// commits during the count.
    pub fn counted(&self) -> i64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// Sets the number of rows: the table had `rows` rows when [`Self::counted`] returned
    /// `counted`.
    pub fn set(&self, rows: u64, counted: i64) {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let base = rows.saturating_sub(counted).max(UNKNOWN + 1);
        if self.base.load(Ordering::Relaxed) != base {
            self.base.store(base, Ordering::Relaxed);
        }
    }

    /// Marks the number as unknown, after a commit that was not counted.
    pub fn forget(&self) {
        self.base.store(UNKNOWN, Ordering::Relaxed);
    }

    /// The number of rows; `None` if it is not known.
    pub fn rows(&self) -> Option<u64> {
        let base = self.base.load(Ordering::Relaxed);
        let rows = base.saturating_add(self.counted());
        (base != UNKNOWN).then(|| u64::try_from(rows).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
