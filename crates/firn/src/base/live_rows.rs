//! How many rows a table has, as its commits count them.

use std::sync::atomic::{AtomicI64, Ordering};

/// Not known yet.
const UNKNOWN: i64 = i64::MIN;

/// The rows of one table.
///
/// Each commit adds by how many rows it changed the number, which costs one atomic addition and is exact. The number
/// that these additions start from is not stored: it is zero for a new table, and estimated once for one that was there
/// when the database was opened.
///
/// Rejected: entries less deletions, from what files and memtables count (each update adds an entry, so rows that are
/// updated again and again seem to be thousands).
#[derive(Debug)]
pub struct LiveRows {
    base: AtomicI64,
    counted: AtomicI64,
}

impl Default for LiveRows {
    fn default() -> Self {
        Self {
            base: AtomicI64::new(UNKNOWN),
            counted: AtomicI64::new(0),
        }
    }
}

impl LiveRows {
    /// A commit has made the rows `net` more, or fewer.
    pub fn count(&self, net: i64) {
        self.counted.fetch_add(net, Ordering::Relaxed);
    }

    /// The sum of all that was counted, for [`Self::set`].
    pub fn counted(&self) -> i64 {
        self.counted.load(Ordering::Relaxed)
    }

    /// There were `rows` when `counted` was the sum.
    pub fn set(&self, rows: u64, counted: i64) {
        let rows = i64::try_from(rows).unwrap_or(i64::MAX);
        let base = rows.saturating_sub(counted).max(UNKNOWN + 1);
        if self.base.load(Ordering::Relaxed) != base {
            self.base.store(base, Ordering::Relaxed);
        }
    }

    /// Something was committed that nobody has counted.
    pub fn forget(&self) {
        self.base.store(UNKNOWN, Ordering::Relaxed);
    }

    /// The rows, if they are known.
    pub fn rows(&self) -> Option<u64> {
        let base = self.base.load(Ordering::Relaxed);
        let rows = base.saturating_add(self.counted());
        (base != UNKNOWN).then(|| u64::try_from(rows).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests;
