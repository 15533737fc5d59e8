//! Unique checks: locks the key of a new row, or its values in a unique index, and looks whether
//! another row has them.

use super::claim_locks::{claim_lock, keep_duplicate_lock, lock_around_old_entry};
use crate::base::key::{INDEX_ID_LEN, UNCOMMITTED_BIT, index_id_of};
use crate::base::key_range::prefix_successor;
use crate::base::{IndexId, InternalIterator, InternalKey, Result, Value};
use crate::env::ReadClass;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{ReadPoint, ScanRange, ScanSource, scan_sources};
use crate::table::gap_bounds::Neighbours;
use crate::table::write_options::WriteFlags;
use crate::table::{Table, corrupt};
use crate::txn::Transaction;

/// The outcome of claiming a row key.
pub(super) struct RowClaim {
    /// Whether the transaction did not hold the lock before.
    pub(super) newly: bool,
    /// If another row already has the row key: the number of the primary index, which the error for
    /// a duplicate key names. Otherwise `None`.
    pub(super) taken: Option<usize>,
}

/// The outcome of claiming the declared columns of a unique index.
pub(super) struct UniqueClaim {
    /// Whether the transaction did not hold the lock before.
    pub(super) newly: bool,
    /// Whether another row has the same values in these columns.
    pub(super) is_taken: bool,
}

impl Table {
    /// Locks the row key of a new row, and looks whether another row has it.
    pub(super) fn claim_row_key(
        &self,
        txn: &mut Transaction,
        row_key: &[u8],
        flags: WriteFlags,
    ) -> Result<RowClaim> {
        let claim = claim_lock(txn, row_key, flags)?;
        let newly = claim.newly;
        let free = RowClaim { newly, taken: None };
        let version = |key: InternalKey<'_>, _: Value<'_>| (key.kind.is_put(), key.seqno);
        let found = match flags.private {
            true => txn.get_before_private_insert(index_of(self, row_key)?, row_key, version),
            false => txn.get_latest(row_key, version),
        }?;
        let snapshot = txn.snapshot_seqno();
        match found {
            Some((true, _)) => {
                keep_duplicate_lock(txn, row_key, &claim, flags);
                Ok(RowClaim {
                    newly,
                    taken: self.primary_number(),
                })
            }
            Some((false, seqno)) => {
                claim.make_exclusive(txn, row_key)?;
                // The row was deleted since the snapshot: hide the version that the snapshot still
                // sees.
                if snapshot.is_some_and(|snapshot| is_newer(seqno, snapshot)) {
                    txn.hide(row_key);
                }
                Ok(free)
            }
            None => {
                claim.make_exclusive(txn, row_key)?;
                Ok(free)
            }
        }
    }

    /// Locks the declared columns of a unique entry, and looks whether another row has them.
    pub(super) fn claim_unique(
        &self,
        txn: &mut Transaction,
        entry: &[u8],
        declared_len: usize,
        row_key: &[u8],
        flags: WriteFlags,
    ) -> Result<UniqueClaim> {
        let declared = &entry[..declared_len];
        let claim = claim_lock(txn, declared, flags)?;
        let newly = claim.newly;
        let latest = txn.latest_point();
        let is_taken = self.other_owner(txn, &latest, declared, row_key)?.is_some();
        if flags.private {
            return Ok(UniqueClaim { newly, is_taken });
        }
        let index = index_of(self, declared)?;
        if is_taken {
            // Lock a duplicate together with the gap before it. InnoDB does so at READ COMMITTED,
            // too.
            Neighbours::new().lock_gap_before(txn, index, declared)?;
            keep_duplicate_lock(txn, declared, &claim, flags);
            return Ok(UniqueClaim { newly, is_taken });
        }
        claim.make_exclusive(txn, declared)?;
        if !newly {
            lock_around_old_entry(txn, index, declared)?;
        }
        Ok(UniqueClaim { newly, is_taken })
    }

    /// Looks at `point` for a row other than `row_key` whose entry in the unique index begins with
    /// `declared`. Returns the key of that row, without its index id.
    pub(super) fn other_owner(
        &self,
        txn: &Transaction,
        point: &ReadPoint,
        declared: &[u8],
        row_key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        let upper = prefix_successor(declared);
        let range = ScanRange {
            lower: declared.to_vec(),
            upper,
        };
        let upper = range.upper.as_deref();
        let own = || {
            let own = txn.own_writes_within(&range.lower, upper);
            Box::new(own) as Box<dyn InternalIterator + Send>
        };
        let own = txn.has_writes().then(own);
        let sources: Vec<ScanSource> =
            scan_sources(&point.super_version, &range, ReadClass::Range, own);
        if sources.is_empty() {
            return Ok(None);
        }
        let mut entries = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(point.seqno));
        entries.set_bounds(Some(&range.lower), range.upper.as_deref());
        let suffix = &row_key[INDEX_ID_LEN..];
        let mut found = entries.seek_ge(declared)?;
        while found {
            let rest = entries
                .user_key()
                .strip_prefix(declared)
                .ok_or_else(|| corrupt(self, "a unique entry left its range"))?;
            if rest != suffix {
                return Ok(Some(rest.to_vec()));
            }
            found = entries.next()?;
        }
        Ok(None)
    }
}

fn index_of(table: &Table, key: &[u8]) -> Result<IndexId> {
    index_id_of(key).ok_or_else(|| corrupt(table, "a key without index"))
}

fn is_newer(seqno: u64, snapshot: u64) -> bool {
    seqno & UNCOMMITTED_BIT == 0 && seqno > snapshot
}
