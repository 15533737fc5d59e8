//! Locks the keys that a write of a row claims: the key of the row to change, new keys, and
//! duplicates that it finds.

use crate::base::key_range::make_successor;
use crate::base::{ErrorKind, IndexId, Result};
use crate::table::Table;
use crate::table::gap_bounds::Neighbours;
use crate::table::row_scratch::ClaimedKeys;
use crate::table::write_options::WriteFlags;
use crate::txn::{LockMode, Transaction, WaitPolicy};

/// Claims an existing row for the transaction before it changes the row: locks it, or notes it for
/// the validation.
pub(super) fn claim_old_row(
    txn: &mut Transaction,
    row_key: &[u8],
    flags: WriteFlags,
) -> Result<()> {
    if flags.validated {
        txn.note_write(row_key);
    } else if !flags.private {
        txn.lock(row_key, LockMode::Exclusive, None)?;
    }
    Ok(())
}

impl Table {
    /// Before a row loses its value in a unique index, locks this value. Until the transaction
    /// ends, no other row can get the value, and locking reads that find the old index entry wait.
    pub(super) fn lock_unique(
        &self,
        txn: &mut Transaction,
        declared: &[u8],
        has_null: bool,
        flags: WriteFlags,
        claimed: &mut ClaimedKeys,
    ) -> Result<()> {
        if has_null {
            return Ok(());
        }
        let newly = match flags.validated {
            // Note the old value of the unique key for the validation, too, and not only the row
            // key. A transaction that locks in optimistic tables may have read the row through a
            // covering entry of this index: it has locked only this value, not the row, and the
            // validation must conflict with it.
            true => txn.note_unique(declared),
            false => flags.locks() && txn.lock(declared, LockMode::Exclusive, None)?.newly,
        };
        if newly {
            claimed.add(declared);
        }
        Ok(())
    }
}

/// The lock of a key that no row is supposed to have yet.
pub(super) struct ClaimLock {
    /// Whether the transaction did not hold the lock before.
    pub(super) newly: bool,
    /// Whether the lock is exclusive.
    pub(super) exclusive: bool,
}

/// Locks a key that no row is supposed to have yet. If other transactions hold the key, it takes
/// only a shared lock, as InnoDB does: the key may turn out to be a duplicate, on which others hold
/// shared locks. If several inserts of one key wait for the same transaction, all of them get their
/// shared locks when it ends. If it rolls back, they deadlock when they [make the lock
/// exclusive](ClaimLock::make_exclusive); one of them survives and inserts.
pub(super) fn claim_lock(txn: &Transaction, key: &[u8], flags: WriteFlags) -> Result<ClaimLock> {
    if flags.private {
        return Ok(ClaimLock {
            newly: false,
            exclusive: true,
        });
    }
    // The transaction has locked the key shared before. Do not make that lock exclusive yet: if the
    // key is a duplicate, it would stay exclusive, because `keep_duplicate_lock` weakens only
    // locks that are new.
    if !flags.lock_duplicate_exclusive && txn.only_shares(key) {
        return Ok(ClaimLock {
            newly: false,
            exclusive: false,
        });
    }
    let policy = match flags.lock_duplicate_exclusive {
        true => None,
        false => Some(WaitPolicy::NoWait),
    };
    match txn.lock(key, LockMode::Exclusive, policy) {
        Ok(granted) => Ok(ClaimLock {
            newly: granted.newly,
            exclusive: true,
        }),
        Err(e) if policy.is_some() && *e.kind() == ErrorKind::LockNotAvailable => Ok(ClaimLock {
            newly: txn.lock(key, LockMode::Shared, None)?.newly,
            exclusive: false,
        }),
        Err(e) => Err(e),
    }
}

impl ClaimLock {
    /// Makes the lock exclusive, because no row has the key and the transaction is going to insert
    /// it.
    pub(super) fn make_exclusive(&self, txn: &Transaction, key: &[u8]) -> Result<()> {
        if !self.exclusive {
            txn.lock(key, LockMode::Exclusive, None)?;
        }
        Ok(())
    }
}

/// Locks the gaps on both sides of a value of a unique index, at every isolation level. The
/// transaction gives the value to a row after it has deleted another row with the value, or changes
/// the primary key of the row that has it. InnoDB then meets the old entry, which is only marked as
/// deleted, locks it as if it were a duplicate, and goes on to the next entry.
pub(super) fn lock_around_old_entry(
    txn: &Transaction,
    index: IndexId,
    declared: &[u8],
) -> Result<()> {
    let mut beyond = declared.to_vec();
    make_successor(&mut beyond);
    Neighbours::new().lock_gap_around(txn, index, declared, &beyond)
}

/// Leaves a duplicate locked after the error, in the mode of InnoDB: exclusive if the statement
/// goes on to change the duplicate row (REPLACE), otherwise shared.
pub(super) fn keep_duplicate_lock(
    txn: &Transaction,
    key: &[u8],
    claim: &ClaimLock,
    flags: WriteFlags,
) {
    if claim.newly && claim.exclusive && !flags.lock_duplicate_exclusive {
        txn.share_lock(key);
    }
}
