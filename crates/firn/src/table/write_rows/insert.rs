//! Inserts a row into the clustered index and all secondary indexes.

use super::encode_entry::entry_key;
use super::unique_check::RowClaim;
use crate::base::key::INDEX_ID_LEN;
use crate::base::{InternalKey, Result, Value};
use crate::env::ReadClass;
use crate::table::foreign_keys::{CascadeLink, NewReferences};
use crate::table::row_scratch::RowScratch;
use crate::table::write_options::{WriteFlags, WriteOutcome};
use crate::table::{Table, TableIds};
use crate::txn::{LockMode, Transaction};

/// The key of a row to insert.
pub(super) struct NewRow<'a> {
    pub(super) row_key: &'a [u8],
    /// The id, if the key is hidden.
    pub(super) row_id: Option<u64>,
}

impl Table {
    /// Inserts the row in `record`.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    ///
    /// # Errors
    /// Those of lock waits, of reading, and of spilling to files.
    pub unsafe fn insert(
        &self,
        txn: &mut Transaction,
        record: &[u8],
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<WriteOutcome> {
        self.check_record(record)?;
        txn.before_write()?;
        let current = self.current();
        let flags = self.begin_write(txn, &current, flags);
        let row_id = self.next_row_id(&current);
        let mut row_key = Vec::with_capacity(32);
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe { current.clustered.row_key(record, row_id, &mut row_key) }?;
        let mark = txn.savepoint();
        scratch.claimed.clear();
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        let done =
            unsafe { self.insert_at(txn, &current, record, &row_key, row_id, flags, scratch) };
        if !matches!(done, Ok(WriteOutcome::Done { .. })) {
            txn.rollback_to(mark);
            scratch.claimed.give_back(txn, flags);
            return done;
        }
        scratch.claimed.keep(txn, flags);
        if let Some(id) = row_id {
            txn.raise_counter(current.hidden_counter(), id.into());
        }
        done
    }

    #[allow(clippy::too_many_arguments)] // One row and all that belongs to it.
    unsafe fn insert_at(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        record: &[u8],
        row_key: &[u8],
        row_id: Option<u64>,
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<WriteOutcome> {
        let link = CascadeLink::new(None, self.name(), false);
        let references = NewReferences { record, old: None };
        if current.has_foreign_keys(flags) {
            let primary = self.primary_number();
            self.check_references(txn, current, primary, row_key, references, &link)?;
        }
        // Write the row before its index entries: while a unique check waits, other transactions
        // must meet the row in the clustered index.
        let new = NewRow { row_key, row_id };
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        let put = |txn: &mut Transaction, scratch: &mut RowScratch| unsafe {
            self.put_row(txn, record, row_key, scratch)
        };
        if let Some(index) = self.insert_row(txn, &new, flags, scratch, put)? {
            return Ok(WriteOutcome::Duplicate { index });
        }
        for (number, index) in Self::secondaries(current) {
            // SAFETY: the caller promises that blob columns of `record` point to their bytes, and
            // the callee needs no more.
            let parts = unsafe { entry_key(index, record, row_key, &mut scratch.new_entry) }?;
            scratch.new_value.clear();
            // SAFETY: the caller promises that blob columns of `record` point to their bytes, and
            // the callee needs no more.
            unsafe { index.entry_value(record, &mut scratch.new_value) }?;
            if current.has_foreign_keys(flags) {
                let entry = &scratch.new_entry;
                self.check_references(txn, current, Some(number), entry, references, &link)?;
            }
            let claims = index.unique && !parts.has_null && !flags.skip_unique_secondary;
            let declared_len = claims.then_some(parts.declared_len);
            if !self.insert_entry(txn, declared_len, row_key, flags, scratch)? {
                return Ok(WriteOutcome::Duplicate { index: number });
            }
        }
        current.count_rows(txn, 1, false);
        Ok(WriteOutcome::Done { row_id })
    }

    /// Claims the key of a new row and writes the row with `put`, once no other transaction has
    /// locked the gap. Returns the index number if a row has the key.
    pub(super) fn insert_row(
        &self,
        txn: &mut Transaction,
        new: &NewRow<'_>,
        flags: WriteFlags,
        scratch: &mut RowScratch,
        mut put: impl FnMut(&mut Transaction, &mut RowScratch) -> Result<()>,
    ) -> Result<Option<usize>> {
        if flags.private {
            if new.row_id.is_none()
                && let Some(index) = self.claim_row_key(txn, new.row_key, flags)?.taken
            {
                return Ok(Some(index));
            }
            put(txn, scratch)?;
            return Ok(None);
        }
        if flags.validated {
            return self.insert_row_to_validate(txn, new, scratch, put);
        }
        loop {
            let claim = match new.row_id {
                // No other row has this new hidden id, so no check is needed. Lock the key
                // nevertheless: locking scans of others find it before the commit, and wait for
                // this lock.
                Some(_) => RowClaim {
                    newly: txn.lock(new.row_key, LockMode::Exclusive, None)?.newly,
                    taken: None,
                },
                None => self.claim_row_key(txn, new.row_key, flags)?,
            };
            if claim.taken.is_some() {
                return Ok(claim.taken);
            }
            if txn.insert_unless_locked(new.row_key, |txn| put(txn, scratch))? {
                if claim.newly {
                    scratch.claimed.add(new.row_key);
                }
                return Ok(None);
            }
            if claim.newly {
                txn.unlock(new.row_key);
            }
            txn.await_gap(new.row_key)?;
        }
    }

    /// As [`Self::insert_row`], in an optimistic table.
    fn insert_row_to_validate(
        &self,
        txn: &mut Transaction,
        new: &NewRow<'_>,
        scratch: &mut RowScratch,
        mut put: impl FnMut(&mut Transaction, &mut RowScratch) -> Result<()>,
    ) -> Result<Option<usize>> {
        let kind = |key: InternalKey<'_>, _: Value<'_>| key.kind;
        // Nobody else has a hidden id.
        if new.row_id.is_none()
            && let Some(kind) = txn.get(txn.pinned(), new.row_key, ReadClass::Point, kind)?
            && kind.is_put()
        {
            // Note the duplicate row for the validation. The statement fails or updates because of
            // this row, so the commit must find it unchanged.
            txn.note_read(new.row_key);
            return Ok(self.primary_number());
        }
        if txn.note_write(new.row_key) {
            scratch.claimed.add(new.row_key);
        }
        txn.insert_to_validate(new.row_key, |txn| put(txn, scratch))?;
        Ok(None)
    }

    /// Writes the new entry in `scratch` into a secondary index. First waits until no other
    /// transaction has a gap lock on the entry's place. If `declared_len` is set, it is the length
    /// of the declared columns, which must be unique. Returns false if another row has them.
    pub(super) fn insert_entry(
        &self,
        txn: &mut Transaction,
        declared_len: Option<usize>,
        row_key: &[u8],
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<bool> {
        let (entry, value) = (&scratch.new_entry, Value::whole(&scratch.new_value));
        if flags.validated {
            if let Some(len) = declared_len {
                let declared = &entry[..len];
                if let Some(other) = self.other_owner(txn, txn.pinned(), declared, row_key)? {
                    txn.note_read(&[&row_key[..INDEX_ID_LEN], &other[..]].concat());
                    return Ok(false);
                }
                if txn.note_unique(declared) {
                    scratch.claimed.add(declared);
                }
            }
            txn.insert_to_validate(entry, |txn| txn.put(entry, value))?;
            return Ok(true);
        }
        loop {
            let mut newly = false;
            if let Some(len) = declared_len {
                let claim = self.claim_unique(txn, entry, len, row_key, flags)?;
                if claim.is_taken {
                    return Ok(false);
                }
                newly = claim.newly;
            }
            if flags.private {
                txn.put(entry, value)?;
                return Ok(true);
            }
            if txn.insert_unless_locked(entry, |txn| txn.put(entry, value))? {
                if let (Some(len), true) = (declared_len, newly) {
                    scratch.claimed.add(&entry[..len]);
                }
                return Ok(true);
            }
            if let (Some(len), true) = (declared_len, newly) {
                txn.unlock(&entry[..len]);
            }
            txn.await_gap(entry)?;
        }
    }

    unsafe fn put_row(
        &self,
        txn: &mut Transaction,
        record: &[u8],
        row_key: &[u8],
        scratch: &mut RowScratch,
    ) -> Result<()> {
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe {
            let large = self.large_values(&txn.context().mutable, record, &[])?;
            let row = (&mut scratch.head, &mut scratch.tail);
            self.put_with_large(txn, record, row_key, &large, |_| None, row)
        }
    }
}
