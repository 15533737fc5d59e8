//! The range of keys in which a locking scan has last found no uncommitted key of another
//! transaction.

use super::copy;
use crate::base::{IndexId, Result};
use crate::table::gap_bounds::{after, index_bounds};
use crate::txn::{Nearest, Transaction};

/// A locking scan looks for uncommitted keys of others in each gap that it passes. It looks further
/// than the gap and remembers the range in which there was none, so that the next steps need not
/// search the write set of each session that inserts.
///
/// The range is valid as long as the count of new keys has not changed. An insert writes and counts
/// its key before it looks for gap locks, and a scan locks a gap before it reads the count. So
/// either the scan sees the new count, or the insert sees the gap lock.
#[derive(Default)]
pub(super) struct VacantRange {
    index: IndexId,
    lower: Vec<u8>,
    upper: Vec<u8>,
    /// Number of new keys that all transactions had written when the search began
    /// ([`Transaction::inserts_written`]).
    written: u64,
}

impl VacantRange {
    /// Forgets the range that had no uncommitted key of another transaction. Must be called when a
    /// scan begins: if the last transaction of this session was prepared and has been detached from
    /// the session, its uncommitted keys are now those of another transaction.
    pub(super) fn forget(&mut self) {
        self.upper.clear();
    }

    fn covers(&self, index: IndexId, written: u64, lower: &[u8], upper: &[u8]) -> bool {
        !self.upper.is_empty()
            && self.index == index
            && self.written == written
            && self.lower[..] <= *lower
            && *upper <= self.upper[..]
    }

    fn set(&mut self, index: IndexId, written: u64, lower: &[u8], upper: &[u8]) {
        self.index = index;
        self.written = written;
        copy(&mut self.lower, lower);
        copy(&mut self.upper, upper);
    }

    /// The smallest uncommitted key of another transaction from `lower` to below `upper`.
    ///
    /// # Errors
    /// As [`Transaction::key_of_others`].
    pub(super) fn first_key(
        &mut self,
        txn: &Transaction,
        index: IndexId,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        // Read the number of new keys that all transactions have written before the search begins.
        // If another transaction writes a key during the search, the number changes, and the range
        // that is noted here does not count as vacant any more.
        let written = txn.inserts_written(index);
        if lower >= upper || !txn.others_insert(index) || self.covers(index, written, lower, upper)
        {
            return Ok(None);
        }
        let (_, end) = index_bounds(index);
        let key = txn.key_of_others(index, lower, &end, Nearest::Smallest)?;
        self.set(index, written, lower, key.as_deref().unwrap_or(&end));
        Ok(key.filter(|key| key[..] < *upper))
    }

    /// The largest uncommitted key of another transaction from `lower` to below `upper`.
    ///
    /// # Errors
    /// As [`Transaction::key_of_others`].
    pub(super) fn last_key(
        &mut self,
        txn: &Transaction,
        index: IndexId,
        lower: &[u8],
        upper: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let written = txn.inserts_written(index);
        if lower >= upper || !txn.others_insert(index) || self.covers(index, written, lower, upper)
        {
            return Ok(None);
        }
        let (begin, _) = index_bounds(index);
        let key = txn.key_of_others(index, &begin, upper, Nearest::Largest)?;
        let free = key.as_deref().map_or(begin, after);
        self.set(index, written, &free, upper);
        Ok(key.filter(|key| key[..] >= *lower))
    }
}
