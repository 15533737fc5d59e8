//! Deletes a row and its index entries.

use super::claim_locks::claim_old_row;
use super::encode_entry::entry_key;
use crate::base::Result;
use crate::table::foreign_keys::{CascadeLink, CascadeStep, RowChange};
use crate::table::row_scratch::RowScratch;
use crate::table::write_options::WriteFlags;
use crate::table::{Table, TableIds};
use crate::txn::Transaction;

impl Table {
    /// Deletes the row in `record`, which the caller must have read under an exclusive lock.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    ///
    /// # Errors
    /// As for [`Self::insert`].
    pub unsafe fn delete(
        &self,
        txn: &mut Transaction,
        record: &[u8],
        row_id: Option<u64>,
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<()> {
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe { self.delete_by(txn, record, row_id, flags, scratch, None) }
    }

    /// As [`Self::delete`]; `by` is the step of the cascade that deletes the row, or `None` if the
    /// statement itself does.
    ///
    /// # Safety
    /// As for [`Self::delete`].
    pub(in crate::table) unsafe fn delete_by(
        &self,
        txn: &mut Transaction,
        record: &[u8],
        row_id: Option<u64>,
        flags: WriteFlags,
        scratch: &mut RowScratch,
        by: Option<CascadeStep<'_>>,
    ) -> Result<()> {
        self.check_record(record)?;
        txn.before_delete()?;
        let current = self.current();
        let flags = self.begin_write(txn, &current, flags);
        let mut row_key = Vec::with_capacity(32);
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe { current.clustered.row_key(record, row_id, &mut row_key) }?;
        claim_old_row(txn, &row_key, flags)?;
        let mark = txn.savepoint();
        scratch.claimed.clear();
        let link = CascadeLink::new(by, self.name(), true);
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        let done =
            unsafe { self.delete_at(txn, &current, record, &row_key, flags, scratch, &link) };
        if done.is_err() {
            txn.rollback_to(mark);
            scratch.claimed.give_back(txn, flags);
        } else {
            scratch.claimed.keep(txn, flags);
        }
        done
    }

    /// Deletes the row before its index entries, so that a cascade that comes back to the row finds
    /// it gone.
    #[allow(clippy::too_many_arguments)] // One row and all that belongs to it.
    unsafe fn delete_at(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        record: &[u8],
        row_key: &[u8],
        flags: WriteFlags,
        scratch: &mut RowScratch,
        link: &CascadeLink<'_>,
    ) -> Result<()> {
        let follows = current.has_foreign_keys(flags);
        let change = RowChange {
            old: record,
            new: None,
            flags,
        };
        if !flags.validated {
            self.hide_if_newer(txn, row_key)?;
        }
        txn.delete(row_key)?;
        if follows {
            let primary = self.primary_number();
            self.check_referencing(txn, current, primary, row_key, change, link)?;
        }
        for (number, index) in Self::secondaries(current) {
            // SAFETY: the caller promises that blob columns of `record` point to their bytes, and
            // the callee needs no more.
            let parts = unsafe { entry_key(index, record, row_key, &mut scratch.old_entry) }?;
            if index.unique {
                let declared = &scratch.old_entry[..parts.declared_len];
                let claimed = &mut scratch.claimed;
                self.lock_unique(txn, declared, parts.has_null, flags, claimed)?;
            }
            txn.delete(&scratch.old_entry)?;
            if follows {
                let entry = &scratch.old_entry;
                self.check_referencing(txn, current, Some(number), entry, change, link)?;
            }
        }
        current.count_rows(txn, -1, link.is_cascade());
        Ok(())
    }
}
