//! Finds the entries next to a key of an index at the latest commit: the bounds of the gap around
//! the key.

use super::index_scan::{IndexScan, Resume};
use crate::base::key::index_prefix;
use crate::base::key_range::make_successor;
use crate::base::{IndexId, Result};
use crate::read::Freshness;
use crate::txn::{GapGrant, Nearest, Transaction};

/// The key after `key`.
pub(super) fn after(key: &[u8]) -> Vec<u8> {
    let mut next = Vec::with_capacity(key.len() + 1);
    next.extend_from_slice(key);
    next.push(0);
    next
}

/// The bounds of all keys of an index: the smallest possible key, and the first key beyond the
/// index.
pub(super) fn index_bounds(index: IndexId) -> (Vec<u8>, Vec<u8>) {
    let first = index_prefix(index).to_vec();
    let mut end = first.clone();
    make_successor(&mut end);
    (first, end)
}

/// Searches the entries next to a key. It keeps its sources open for the next search.
pub(super) struct Neighbours {
    scan: IndexScan,
}

impl Neighbours {
    pub(super) fn new() -> Self {
        Self {
            scan: IndexScan::new(),
        }
    }

    /// As [`Self::close`], and frees the memory of the sources.
    pub(super) fn park(&mut self) {
        self.scan.park();
    }

    pub(super) fn close(&mut self) {
        self.scan.close();
    }

    fn look(
        &mut self,
        txn: &Transaction,
        index: IndexId,
        at: Resume<'_>,
    ) -> Result<Option<Vec<u8>>> {
        let scan = &mut self.scan;
        scan.bound_to_index(index, &[]);
        scan.open(txn, index, txn.latest_point(), false, true);
        let found = scan.seek(at)?;
        Ok(found.then(|| scan.entries().user_key().to_vec()))
    }

    /// The lower end of the gap below `key`: the first key above the last entry that lies below
    /// `key`, or the first key of the index.
    pub(super) fn gap_below(
        &mut self,
        txn: &Transaction,
        index: IndexId,
        key: &[u8],
    ) -> Result<Vec<u8>> {
        let below = self.look(txn, index, Resume::Below(key))?;
        Ok(below.map_or_else(|| index_bounds(index).0, |entry| after(&entry)))
    }

    /// The upper end of the gap above `key`: the key of the first entry at or above `key`, or the
    /// end of the index.
    pub(super) fn gap_above(
        &mut self,
        txn: &Transaction,
        index: IndexId,
        key: &[u8],
    ) -> Result<Vec<u8>> {
        let above = self.look(txn, index, Resume::From(key))?;
        Ok(above.unwrap_or_else(|| index_bounds(index).1))
    }

    /// Whether no transaction has committed since the last search.
    pub(super) fn is_latest(&self, txn: &Transaction) -> bool {
        txn.context().super_versions.freshness(self.scan.point()) == Freshness::Latest
    }

    /// Locks the gap that contains the keys from `from` to below `to`. No other transaction has an
    /// entry in that range. Uncommitted keys of other transactions bound the gap just as committed
    /// entries do.
    pub(super) fn lock_gap_around(
        &mut self,
        txn: &Transaction,
        index: IndexId,
        from: &[u8],
        to: &[u8],
    ) -> Result<()> {
        loop {
            let lower = self.gap_below(txn, index, from)?;
            let upper = self.gap_above(txn, index, to)?;
            let grant = txn.lock_gap(&lower, &upper);
            if grant == GapGrant::Newly {
                if let Some(above) = txn.key_of_others(index, to, &upper, Nearest::Smallest)? {
                    txn.unlock_gap(&above, &upper);
                }
                if let Some(below) = txn.key_of_others(index, &lower, from, Nearest::Largest)? {
                    txn.unlock_gap(&lower, &after(&below));
                }
            }
            if grant == GapGrant::Before || self.is_latest(txn) {
                return Ok(());
            }
            let now = (
                self.gap_below(txn, index, from)?,
                self.gap_above(txn, index, to)?,
            );
            if now == (lower, upper) {
                return Ok(());
            }
        }
    }

    /// `declared` are the values of the declared parts of a unique index. Locks against inserts the
    /// range from the last entry below these values to the last possible key that begins with them:
    /// the gap before the values, and the values themselves.
    pub(super) fn lock_gap_before(
        &mut self,
        txn: &Transaction,
        index: IndexId,
        declared: &[u8],
    ) -> Result<()> {
        let lower = self.gap_below(txn, index, declared)?;
        let mut upper = declared.to_vec();
        make_successor(&mut upper);
        let grant = txn.lock_gap(&lower, &upper);
        if grant == GapGrant::Newly
            && let Some(below) = txn.key_of_others(index, &lower, declared, Nearest::Largest)?
        {
            txn.unlock_gap(&lower, &after(&below));
        }
        Ok(())
    }
}
