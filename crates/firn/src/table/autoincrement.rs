//! AUTO_INCREMENT: a statement reserves several values at a time, and only an ALTER can lower the
//! counter.

use super::Table;
use crate::base::Result;
use crate::catalog::autoincrement_counter;
use crate::txn::{Transaction, TransactionContext};

impl Table {
    /// Reserves `count` values of the series `offset + k · increment`. Returns the first one, or
    /// `None` if the series is used up.
    pub fn reserve_autoincrement(&self, offset: u64, increment: u64, count: u64) -> Option<u64> {
        let increment = increment.max(1);
        let current = self.current();
        current.autoincrement.update(|last| {
            let first = next_in_series(last, offset, increment)?;
            // Also reserve the values between the last one of these `count` values and the next
            // member of the series, as InnoDB does, so that a session with a smaller increment
            // continues behind them. Saturate, because the next member may lie beyond the largest
            // number.
            let taken = first.saturating_add(increment.saturating_mul(count.max(1)) - 1);
            Some((taken, first))
        })
    }

    /// Notes that a row with this value was written, so that values handed out later are larger,
    /// also after a restart.
    pub fn use_autoincrement(&self, txn: &mut Transaction, value: u64) {
        let current = self.current();
        let raised = current.autoincrement.raise(value);
        txn.raise_counter(autoincrement_counter(current.entry.clustered.id), raised);
    }

    /// The smallest value that the next row may get.
    pub fn next_autoincrement(&self) -> u64 {
        let used = self.current().autoincrement.read().value;
        used.saturating_add(1)
    }

    /// Refuses a table that a prepared transaction has changed.
    ///
    /// # Errors
    /// `LockTimeout` if a prepared transaction has changed the table; `Corruption` if the changes
    /// of one do not decode.
    pub fn refuse_prepared_changes(&self, cx: &TransactionContext) -> Result<()> {
        cx.prepared
            .refuse_if_changed(&self.current().entry.index_ids())
    }

    /// Makes `next` the next AUTO_INCREMENT value, unless rows have larger ones. The counter is
    /// durable on return. `largest` is the largest value in any visible row; the caller keeps
    /// writers away. A prepared transaction may have larger values: if one has changed the table,
    /// the counter is not lowered.
    ///
    /// # Errors
    /// Those of a commit.
    pub fn set_autoincrement(
        &self,
        next: u64,
        largest: u64,
        cx: &TransactionContext,
    ) -> Result<()> {
        let current = self.current();
        let counter = autoincrement_counter(current.entry.clustered.id);
        let value = last_used(next, largest);
        let back = value < current.autoincrement.read().value;
        match back && self.refuse_prepared_changes(cx).is_ok() {
            true => self.catalog.set_counter(counter, value),
            false => self.catalog.persist_counter(counter, value),
        }
    }
}

/// The counter value after which `next` is the next AUTO_INCREMENT value. A counter holds the last
/// value used, so the result is at least `largest`, the largest value in any row.
pub(super) fn last_used(next: u64, largest: u64) -> u64 {
    next.saturating_sub(1).max(largest)
}

/// The smallest member of the series above `last`; `None` if that exceeds the largest number. An
/// offset larger than the increment is ignored, as in the server.
fn next_in_series(last: u64, offset: u64, increment: u64) -> Option<u64> {
    let offset = if offset > increment { 1 } else { offset.max(1) };
    if last < offset {
        return Some(offset);
    }
    let steps = (last - offset) / increment + 1;
    steps.checked_mul(increment)?.checked_add(offset)
}

#[cfg(test)]
mod tests {
    use super::next_in_series;

    #[test]
    fn the_series_goes_on_above_the_last_value() {
        assert_eq!(next_in_series(0, 1, 1), Some(1));
        assert_eq!(next_in_series(7, 1, 1), Some(8));
        assert_eq!(next_in_series(0, 3, 10), Some(3));
        assert_eq!(next_in_series(3, 3, 10), Some(13));
        assert_eq!(next_in_series(12, 3, 10), Some(13));
        assert_eq!(next_in_series(5, 20, 10), Some(11));
        assert_eq!(next_in_series(u64::MAX, 1, 1), None);
    }
}
