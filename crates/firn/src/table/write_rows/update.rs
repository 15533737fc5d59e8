//! Changes a row, and the index entries that change with it.

use super::claim_locks::{claim_old_row, lock_around_old_entry};
use super::encode_entry::entry_key;
use super::insert::NewRow;
use crate::base::{Result, Value};
use crate::table::blob_columns::{LargeValue, same_bytes, unchanged};
use crate::table::foreign_keys::{CascadeLink, CascadeStep, NewReferences, RowChange};
use crate::table::index_info::IndexInfo;
use crate::table::row_scratch::RowScratch;
use crate::table::write_options::{WriteFlags, WriteOutcome};
use crate::table::{Table, TableIds};
use crate::txn::Transaction;

/// An update of a row: the old and the new record, each with its row key.
#[derive(Clone, Copy)]
struct RowUpdate<'a> {
    old: (&'a [u8], &'a [u8]),
    new: (&'a [u8], &'a [u8]),
    /// Whether the row was committed after the transaction's snapshot. The transaction then hides
    /// the older version that its snapshot sees, and all index entries of the row, from its own
    /// reads. So each index needs an entry in the write set, even an unchanged one.
    newer: bool,
    flags: WriteFlags,
    link: &'a CascadeLink<'a>,
}

impl Table {
    /// Changes the row `old` into `new`. The caller must have read `old` under an exclusive lock.
    /// `row_id` is the hidden id of the row, in a table without a primary key.
    ///
    /// # Safety
    /// Blob columns of both records must point to the bytes of their values.
    ///
    /// # Errors
    /// As for [`Self::insert`].
    pub unsafe fn update(
        &self,
        txn: &mut Transaction,
        old: &[u8],
        new: &[u8],
        row_id: Option<u64>,
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<WriteOutcome> {
        // SAFETY: the caller promises that blob columns of both records point to their bytes, and
        // the callee needs no more.
        unsafe { self.update_by(txn, old, new, row_id, flags, scratch, None) }
    }

    /// As [`Self::update`]; `by` is the step of the cascade that changes the row, or `None` if the
    /// statement itself does.
    ///
    /// # Safety
    /// As for [`Self::update`].
    #[allow(clippy::too_many_arguments)] // One row and all that belongs to it.
    pub(in crate::table) unsafe fn update_by(
        &self,
        txn: &mut Transaction,
        old: &[u8],
        new: &[u8],
        row_id: Option<u64>,
        flags: WriteFlags,
        scratch: &mut RowScratch,
        by: Option<CascadeStep<'_>>,
    ) -> Result<WriteOutcome> {
        self.check_record(old)?;
        self.check_record(new)?;
        txn.before_write()?;
        let current = self.current();
        let flags = self.begin_write(txn, &current, flags);
        let mut old_key = Vec::with_capacity(32);
        let mut new_key = Vec::with_capacity(32);
        // SAFETY: the caller promises that blob columns of both records point to their bytes, and
        // the callee needs no more.
        unsafe {
            current.clustered.row_key(old, row_id, &mut old_key)?;
            current.clustered.row_key(new, row_id, &mut new_key)?;
        }
        let mark = txn.savepoint();
        let keys = (&old_key[..], &new_key[..]);
        let link = CascadeLink::new(by, self.name(), false);
        scratch.claimed.clear();
        // SAFETY: the caller promises that blob columns of both records point to their bytes, and
        // the callee needs no more.
        let done = unsafe { self.update_at(txn, &current, old, new, keys, flags, scratch, &link) };
        if matches!(done, Ok(WriteOutcome::Done { .. })) {
            scratch.claimed.keep(txn, flags);
        } else {
            txn.rollback_to(mark);
            scratch.claimed.give_back(txn, flags);
        }
        done
    }

    #[allow(clippy::too_many_arguments)] // One row and all that belongs to it.
    unsafe fn update_at(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        old: &[u8],
        new: &[u8],
        (old_key, new_key): (&[u8], &[u8]),
        flags: WriteFlags,
        scratch: &mut RowScratch,
        link: &CascadeLink<'_>,
    ) -> Result<WriteOutcome> {
        let live = &txn.context().mutable;
        // SAFETY: the caller promises that blob columns of both records point to their bytes, and
        // the callee needs no more.
        let (mut old_large, mut new_large, unread) = unsafe {
            (
                self.large_values(live, old, &[])?,
                self.large_values(live, new, &[])?,
                self.unread(old, new)?,
            )
        };
        let same_large = old_large.len() == new_large.len()
            && old_large
                .iter()
                .zip(&new_large)
                .all(|(a, b)| a.column == b.column && same_bytes(a.bytes, b.bytes));
        // The large values are equal: they were compared above.
        let large: Vec<u32> = new_large.iter().map(|value| value.column).collect();
        let layout = self.format().current();
        // SAFETY: the caller promises that blob columns of both records point to their bytes, and
        // the callee needs no more.
        let same_row = same_large && unsafe { layout.is_same(old, new, &large) }?;
        if same_row && old_key == new_key {
            return Ok(WriteOutcome::Same);
        }
        claim_old_row(txn, old_key, flags)?;
        // Without validation, the statement has read and locked the latest version of the row, and
        // an older one, which the snapshot still shows, must be hidden from the transaction's later
        // reads. A write that the commit validates has read the version at the snapshot itself, so
        // there is nothing to hide.
        let newer = !flags.validated && self.hide_if_newer(txn, old_key)?;
        // The row is locked, or no other session sees it, so the stored row is the one that `old`
        // was read from. A validated write reads at the point that `old` was read at.
        let in_both = |new: &LargeValue<'_>| old_large.iter().any(|old| old.column == new.column);
        let stored = match new_large.iter().any(in_both) || !unread.is_empty() {
            true if flags.validated => self.stored_refs(txn, txn.pinned(), old_key)?,
            true => self.stored_refs(txn, &txn.latest_point(), old_key)?,
            false => Vec::new(),
        };
        if !unread.is_empty() {
            let unread = unread.into_iter();
            let stay: Vec<u32> = unread
                .filter(|id| stored.iter().any(|blob| blob.column == *id))
                .collect();
            let live = &txn.context().mutable;
            // SAFETY: the caller promises that blob columns of both records point to their bytes,
            // and the callee needs no more.
            (old_large, new_large) = unsafe {
                (
                    self.large_values(live, old, &stay)?,
                    self.large_values(live, new, &stay)?,
                )
            };
        }
        let change = RowChange {
            old,
            new: Some(new),
            flags,
        };
        let follows = current.has_foreign_keys(flags);
        if old_key != new_key {
            txn.delete(old_key)?;
        }
        if follows {
            let primary = self.primary_number();
            self.check_referencing(txn, current, primary, old_key, change, link)?;
            let references = NewReferences {
                record: new,
                old: Some((old, old_key != new_key)),
            };
            self.check_references(txn, current, primary, new_key, references, link)?;
        }
        if old_key != new_key {
            let new_row = NewRow {
                row_key: new_key,
                row_id: None,
            };
            let put = |txn: &mut Transaction, scratch: &mut RowScratch| {
                let buffers = (&mut scratch.head, &mut scratch.tail);
                // SAFETY: the caller promises that blob columns of both records point to their
                // bytes, and the callee needs no more.
                unsafe {
                    self.put_with_large(
                        txn,
                        new,
                        new_key,
                        &new_large,
                        |new| unchanged(new, &old_large, &stored),
                        buffers,
                    )
                }
            };
            if let Some(index) = self.insert_row(txn, &new_row, flags, scratch, put)? {
                return Ok(WriteOutcome::Duplicate { index });
            }
        }
        let update = RowUpdate {
            old: (old, old_key),
            new: (new, new_key),
            newer,
            flags,
            link,
        };
        for (number, index) in Self::secondaries(current) {
            // SAFETY: the caller promises that blob columns of both records point to their bytes,
            // and the callee needs no more.
            let unique =
                unsafe { self.update_entry(txn, current, (number, index), &update, scratch) }?;
            if !unique {
                return Ok(WriteOutcome::Duplicate { index: number });
            }
        }
        if old_key == new_key {
            // SAFETY: the caller promises that blob columns of both records point to their bytes,
            // and the callee needs no more.
            unsafe {
                self.put_with_large(
                    txn,
                    new,
                    new_key,
                    &new_large,
                    |new| unchanged(new, &old_large, &stored),
                    (&mut scratch.head, &mut scratch.tail),
                )
            }?;
        }
        txn.count_changed_row();
        Ok(WriteOutcome::Done { row_id: None })
    }

    /// Replaces the row's entry in a secondary index, if it changes. Returns false if the index is
    /// unique and another row has the new key.
    ///
    /// # Safety
    /// Blob columns of both records must point to the bytes of their values.
    unsafe fn update_entry(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        (number, index): (usize, &IndexInfo),
        update: &RowUpdate<'_>,
        scratch: &mut RowScratch,
    ) -> Result<bool> {
        let RowUpdate {
            old: (old, old_key),
            new: (new, new_key),
            newer,
            flags,
            link,
        } = *update;
        scratch.old_value.clear();
        scratch.new_value.clear();
        // SAFETY: the caller promises that blob columns of both records point to their bytes, and
        // the callee needs no more.
        let (before, after) = unsafe {
            index.entry_value(old, &mut scratch.old_value)?;
            index.entry_value(new, &mut scratch.new_value)?;
            (
                entry_key(index, old, old_key, &mut scratch.old_entry)?,
                entry_key(index, new, new_key, &mut scratch.new_entry)?,
            )
        };
        let same_entry = scratch.old_entry == scratch.new_entry;
        let follows = current.has_foreign_keys(flags);
        let change = RowChange {
            old,
            new: Some(new),
            flags,
        };
        let references = NewReferences {
            record: new,
            old: Some((old, !same_entry)),
        };
        let rewrites =
            same_entry && follows && self.rewrites_foreign_key(current, number, old, new);
        if rewrites {
            // Delete the entry before the checks, as if it moved to another key. Otherwise a row
            // that refers to itself would forbid its own change, or would count as the row that its
            // new value refers to.
            txn.delete(&scratch.old_entry)?;
        }
        if same_entry && follows {
            let (gone, entry) = (&scratch.old_entry, &scratch.new_entry);
            self.check_referencing(txn, current, Some(number), gone, change, link)?;
            self.check_references(txn, current, Some(number), entry, references, link)?;
        }
        if same_entry && scratch.old_value == scratch.new_value && !newer && !rewrites {
            return Ok(true);
        }
        let old_declared = &scratch.old_entry[..before.declared_len];
        let moves = old_declared != &scratch.new_entry[..after.declared_len];
        let changes = !same_entry || scratch.old_value != scratch.new_value;
        if index.unique && changes {
            let claimed = &mut scratch.claimed;
            self.lock_unique(txn, old_declared, before.has_null, flags, claimed)?;
        }
        if same_entry {
            txn.put(&scratch.new_entry, Value::whole(&scratch.new_value))?;
            return Ok(true);
        }
        txn.delete(&scratch.old_entry)?;
        if index.unique && !moves && !before.has_null && flags.locks() {
            lock_around_old_entry(txn, index.id(), &scratch.old_entry[..before.declared_len])?;
        }
        if follows {
            let (gone, entry) = (&scratch.old_entry, &scratch.new_entry);
            self.check_referencing(txn, current, Some(number), gone, change, link)?;
            self.check_references(txn, current, Some(number), entry, references, link)?;
        }
        let claims = index.unique && moves && !after.has_null && !flags.skip_unique_secondary;
        let declared_len = claims.then_some(after.declared_len);
        self.insert_entry(txn, declared_len, old_key, flags, scratch)
    }
}
