//! Writes rows: inserts, updates and deletes in the clustered and all secondary indexes.
//!
//! Order within a row: the clustered index, then the others, in ascending order; in each, locks and
//! unique check first, then the entry goes to the write set. A new key waits for gap locks of
//! others before it is written, without the lock of the key. If a row fails half way, its writes
//! are rolled back to a savepoint. Unique checks lock the declared columns of the key, so that two
//! transactions that insert the same value meet, whatever their primary keys. Maintenance of
//! non-unique indexes reads nothing.
//!
//! In an optimistic table nothing is locked: rows and unique keys are looked up at the statement's
//! read point, and noted for the validation of the commit.

use super::blob_columns::{LargeValue, same_bytes, unchanged};
use super::foreign_keys::{CascadeLink, CascadeStep, NewReferences, RowChange};
use super::index_info::IndexInfo;
use super::neighbours::Neighbours;
use super::{Table, TableIds, corrupt};
use crate::base::key::{INDEX_ID_LEN, UNCOMMITTED_BIT, index_id_of};
use crate::base::key_range::{make_successor, prefix_successor};
use crate::base::{Error, ErrorKind, IndexId, InternalIterator, InternalKey, Kind, Result, Value};
use crate::blob::TransactionBlobs;
use crate::ingest::LoadEntry;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{self, ReadPoint, ScanRange, ScanSource, scan_sources};
use crate::txn::{LockMode, Transaction, TransactionContext, WaitPolicy};

/// Options of an insert or update: how it treats duplicates and locks.
#[derive(Debug, Clone, Copy, Default)]
pub struct WriteFlags {
    /// Whether to lock a duplicate exclusively, because the statement is about to replace or update
    /// it.
    pub lock_duplicate_exclusive: bool,
    /// Whether no other session sees the table yet. Then writes take no row locks.
    pub private: bool,
    /// The caller guarantees that keys of unique secondary indexes are unique.
    pub skip_unique_secondary: bool,
    /// Whether the commit validates the write, which then locks nothing. [`Table`] sets the flag in
    /// its own copy.
    pub validated: bool,
    /// Foreign keys are neither checked nor followed.
    pub skip_foreign_keys: bool,
}

impl WriteFlags {
    /// Whether the write locks what it touches.
    fn locks(self) -> bool {
        !self.private && !self.validated
    }
}

/// Outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteOutcome {
    /// The row is in the write set.
    Done {
        /// Id of the row if its key is hidden.
        row_id: Option<u64>,
    },
    /// The new row equals the old one.
    Same,
    /// The index with this number has the key already.
    Duplicate {
        /// Number of the index.
        index: usize,
    },
}

/// Buffers that live as long as the session's use of the table, so that writing a row allocates
/// nothing.
#[derive(Default)]
pub struct RowScratch {
    head: Vec<u8>,
    tail: Vec<u8>,
    old_entry: Vec<u8>,
    new_entry: Vec<u8>,
    old_value: Vec<u8>,
    new_value: Vec<u8>,
    claimed: ClaimedKeys,
}

/// Keys that the write of a row has locked newly, or noted for the validation: keys of new rows,
/// and new and old values of unique indexes. If the row turns out to be a duplicate, they are given
/// back: in InnoDB the lock of a written row disappears with the row. If the row is written, the
/// locked keys are passed to the transaction, whose rollbacks give them back.
#[derive(Default)]
struct ClaimedKeys {
    keys: Vec<Vec<u8>>,
    /// Number of keys in use; the others are spare buffers.
    number: usize,
}

impl ClaimedKeys {
    fn add(&mut self, key: &[u8]) {
        if self.number == self.keys.len() {
            self.keys.push(Vec::new());
        }
        let buffer = &mut self.keys[self.number];
        buffer.clear();
        buffer.extend_from_slice(key);
        self.number += 1;
    }

    fn give_back(&mut self, txn: &mut Transaction, flags: WriteFlags) {
        for key in &self.keys[..std::mem::take(&mut self.number)] {
            match flags.validated {
                true => txn.forget_write(key),
                false => txn.unlock(key),
            }
        }
    }

    fn keep(&mut self, txn: &mut Transaction, flags: WriteFlags) {
        let keys = &self.keys[..std::mem::take(&mut self.number)];
        if flags.locks() {
            txn.keep_write_locks(keys.iter().map(|key| &key[..]));
        }
    }
}

/// An update of a row, as its secondary indexes need it: records and row keys.
#[derive(Clone, Copy)]
struct RowUpdate<'a> {
    old: (&'a [u8], &'a [u8]),
    new: (&'a [u8], &'a [u8]),
    /// Whether the row is newer than the snapshot. Then each index gets an entry of the
    /// transaction, even if it equals the stored one.
    newer: bool,
    flags: WriteFlags,
    link: &'a CascadeLink<'a>,
}

/// The key of a row to insert.
struct NewRow<'a> {
    row_key: &'a [u8],
    /// The id, if the key is hidden.
    row_id: Option<u64>,
}

/// The outcome of claiming a row key.
struct RowClaim {
    /// The lock was not held before.
    newly: bool,
    /// Number of the index if a row has the key.
    taken: Option<usize>,
}

/// The outcome of claiming the declared columns of a unique index.
struct UniqueClaim {
    /// The lock was not held before.
    newly: bool,
    /// Another row has them.
    is_taken: bool,
}

struct EntryParts {
    declared_len: usize,
    has_null: bool,
}

impl Table {
    /// Inserts the row in `record`.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes.
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
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
        unsafe { current.clustered.row_key(record, row_id, &mut row_key) }?;
        let mark = txn.savepoint();
        scratch.claimed.number = 0;
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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

    /// Decides whether the commit validates a write to this table, and pins the read point of such
    /// a write.
    fn begin_write(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        flags: WriteFlags,
    ) -> WriteFlags {
        let validated = current.optimistic && !flags.private && !txn.locks_optimistic_tables();
        if validated {
            txn.pin_for_validation();
        }
        WriteFlags { validated, ..flags }
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
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
        let put = |txn: &mut Transaction, scratch: &mut RowScratch| unsafe {
            self.put_row(txn, record, row_key, scratch)
        };
        if let Some(index) = self.insert_row(txn, &new, flags, scratch, put)? {
            return Ok(WriteOutcome::Duplicate { index });
        }
        for (number, index) in Self::secondaries(current) {
            // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
            let parts = unsafe { entry_key(index, record, row_key, &mut scratch.new_entry) }?;
            scratch.new_value.clear();
            // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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
        current.count_rows(txn, 1);
        Ok(WriteOutcome::Done { row_id })
    }

    /// Claims the key of a new row and writes the row with `put`, once no other transaction has
    /// locked the gap. Returns the index number if a row has the key.
    fn insert_row(
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
                // No other row has this new hidden id. Lock it for scans that lock gaps: they find
                // the key before the commit, and wait for its lock.
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
            && let Some(kind) = txn.get(txn.pinned(), new.row_key, kind)?
            && kind.is_put()
        {
            // Note the duplicate row for the validation: it decides what the statement does, so the
            // commit must find it unchanged.
            txn.note_read(new.row_key);
            return Ok(self.primary_number());
        }
        if txn.note_write(new.row_key) {
            scratch.claimed.add(new.row_key);
        }
        txn.insert_to_validate(new.row_key, |txn| put(txn, scratch))?;
        Ok(None)
    }

    /// Writes the new entry in `scratch` into a secondary index, once no other transaction has
    /// locked the gap. If `declared_len` is set, it is the length of the declared columns, which
    /// must be unique. Returns false if another row has them.
    fn insert_entry(
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

    /// Changes the row `old` into `new`. The caller has read `old` under an exclusive lock;
    /// `row_id` names it if its key is hidden.
    ///
    /// # Safety
    /// Blob columns of both records point to their bytes.
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
        // SAFETY: blob columns of the records point to their bytes: the same promise, passed on.
        unsafe { self.update_by(txn, old, new, row_id, flags, scratch, None) }
    }

    /// As [`Self::update`], by the statement or by a step of a cascade.
    ///
    /// # Safety
    /// As for [`Self::update`].
    #[allow(clippy::too_many_arguments)] // One row and all that belongs to it.
    pub(super) unsafe fn update_by(
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
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
        unsafe {
            current.clustered.row_key(old, row_id, &mut old_key)?;
            current.clustered.row_key(new, row_id, &mut new_key)?;
        }
        let mark = txn.savepoint();
        let keys = (&old_key[..], &new_key[..]);
        let link = CascadeLink::new(by, self.name(), false);
        scratch.claimed.number = 0;
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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
        // Large values were just compared.
        let large: Vec<u32> = new_large.iter().map(|value| value.column).collect();
        let layout = self.format().current();
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
        let same_row = same_large && unsafe { layout.is_same(old, new, &large) }?;
        if same_row && old_key == new_key {
            return Ok(WriteOutcome::Same);
        }
        claim_old_row(txn, old_key, flags)?;
        // A validated write has read the version that the snapshot shows, so it hides nothing.
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
            // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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
                // bytes.
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
            // SAFETY: the caller promises that blob columns of both records point to their bytes.
            let unique =
                unsafe { self.update_entry(txn, current, (number, index), &update, scratch) }?;
            if !unique {
                return Ok(WriteOutcome::Duplicate { index: number });
            }
        }
        if old_key == new_key {
            // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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

    /// Replaces the row's entry in a secondary index, if it changes. False: the index is unique,
    /// and another row has the new key.
    ///
    /// # Safety
    /// Blob columns of both records point to their bytes.
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
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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
            // As if the entry moved: a row that refers to itself neither keeps itself from changing
            // nor is the row that its new value refers to.
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

    /// Deletes the row in `record`, which the caller has read under an exclusive lock.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes.
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
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
        unsafe { self.delete_by(txn, record, row_id, flags, scratch, None) }
    }

    /// As [`Self::delete`], by the statement or by a step of a cascade.
    ///
    /// # Safety
    /// As for [`Self::delete`].
    pub(super) unsafe fn delete_by(
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
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
        unsafe { current.clustered.row_key(record, row_id, &mut row_key) }?;
        claim_old_row(txn, &row_key, flags)?;
        let mark = txn.savepoint();
        scratch.claimed.number = 0;
        let link = CascadeLink::new(by, self.name(), true);
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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

    /// Deletes the row first, so that a cascade that comes back to it finds it gone.
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
            // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
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
        current.count_rows(txn, -1);
        Ok(())
    }

    /// Locks the row key of a new row, and looks whether another row has it.
    fn claim_row_key(
        &self,
        txn: &mut Transaction,
        row_key: &[u8],
        flags: WriteFlags,
    ) -> Result<RowClaim> {
        let claim = claim_lock(txn, row_key, flags)?;
        let newly = claim.newly;
        let free = RowClaim { newly, taken: None };
        let latest = txn.latest_point();
        let found = txn.get(&latest, row_key, |key, _| (key.kind.is_put(), key.seqno))?;
        let snapshot = txn.snapshot_seqno();
        match found {
            Some((true, _)) => {
                keep_duplicate_lock(txn, row_key, &claim, flags)?;
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
    fn claim_unique(
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
        let index = index_id_of(declared).ok_or_else(|| corrupt(self, "a key without index"))?;
        if is_taken {
            // Lock a duplicate together with the gap before it, at READ COMMITTED as well.
            Neighbours::new().lock_gap_before(txn, index, declared)?;
            keep_duplicate_lock(txn, declared, &claim, flags)?;
            return Ok(UniqueClaim { newly, is_taken });
        }
        claim.make_exclusive(txn, declared)?;
        if !newly {
            lock_around_old_entry(txn, index, declared)?;
        }
        Ok(UniqueClaim { newly, is_taken })
    }

    /// The key, without index id, of a row other than `row_key` that has the declared columns at
    /// `point`.
    fn other_owner(
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
        let sources: Vec<ScanSource> = scan_sources(&point.super_version, &range, own);
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

    /// Locks the old value of a unique key: no other row can take the value until the transaction
    /// ends, and readers of its entry wait.
    fn lock_unique(
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
            // Note the old value too: the validation then conflicts with readers that have locked
            // only this value.
            true => txn.note_unique(declared),
            false => flags.locks() && txn.lock(declared, LockMode::Exclusive, None)?.newly,
        };
        if newly {
            claimed.add(declared);
        }
        Ok(())
    }

    /// If the row to change was committed after the transaction's snapshot, hides the version that
    /// the snapshot sees. Returns whether it was.
    fn hide_if_newer(&self, txn: &mut Transaction, row_key: &[u8]) -> Result<bool> {
        let Some(snapshot) = txn.snapshot_seqno() else {
            return Ok(false);
        };
        if txn.context().super_versions.visible() <= snapshot {
            return Ok(false);
        }
        if txn.hides(row_key)? {
            return Ok(true);
        }
        let latest = txn.latest_point();
        let committed = |key: InternalKey<'_>, _: Value<'_>| key.seqno;
        let seqno = read::get(&latest.super_version, row_key, latest.seqno, committed)?;
        let newer = seqno.is_some_and(|seqno| seqno > snapshot);
        if newer {
            txn.hide(row_key);
        }
        Ok(newer)
    }

    /// The entry of the row in `record`, in buffers of `scratch`, for a load; large values are
    /// written to `session`.
    ///
    /// # Safety
    /// Blob columns of `record` point to their bytes.
    pub(super) unsafe fn encode_row<'a>(
        &self,
        cx: &TransactionContext,
        session: &mut TransactionBlobs,
        record: &[u8],
        scratch: &'a mut RowScratch,
    ) -> Result<(Kind, Value<'a>)> {
        let (head, tail) = (&mut scratch.head, &mut scratch.tail);
        let write = |value: &LargeValue<'_>| cx.blobs.write(session, value.column, value.bytes);
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
        let kind = unsafe {
            let large = self.large_values(&cx.mutable, record, &[])?;
            self.encode_with_large(record, &large, write, head, tail)
        }?;
        Ok((kind, Value::split(head, tail)))
    }

    unsafe fn put_row(
        &self,
        txn: &mut Transaction,
        record: &[u8],
        row_key: &[u8],
        scratch: &mut RowScratch,
    ) -> Result<()> {
        // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
        unsafe {
            let large = self.large_values(&txn.context().mutable, record, &[])?;
            let row = (&mut scratch.head, &mut scratch.tail);
            self.put_with_large(txn, record, row_key, &large, |_| None, row)
        }
    }

    pub(super) fn check_record(&self, record: &[u8]) -> Result<()> {
        match record.len() >= self.record_len() {
            true => Ok(()),
            false => Err(Error::invalid("record buffer too short")),
        }
    }
}

/// Claims an existing row for the transaction before it changes the row: locks it, or notes it for
/// the validation.
fn claim_old_row(txn: &mut Transaction, row_key: &[u8], flags: WriteFlags) -> Result<()> {
    if flags.validated {
        txn.note_write(row_key);
    } else if !flags.private {
        txn.lock(row_key, LockMode::Exclusive, None)?;
    }
    Ok(())
}

fn is_newer(seqno: u64, snapshot: u64) -> bool {
    seqno & UNCOMMITTED_BIT == 0 && seqno > snapshot
}

/// Writes index id, declared parts and primary key suffix of a secondary entry to `out`.
unsafe fn entry_key(
    index: &IndexInfo,
    record: &[u8],
    row_key: &[u8],
    out: &mut Vec<u8>,
) -> Result<EntryParts> {
    out.clear();
    // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
    let has_null = unsafe { index.declared_key(record, out) }?;
    let declared_len = out.len();
    out.extend_from_slice(&row_key[INDEX_ID_LEN..]);
    Ok(EntryParts {
        declared_len,
        has_null,
    })
}

/// The row's entry in a secondary index, for a load.
///
/// # Safety
/// Blob columns of `record` point to their bytes.
pub(super) unsafe fn index_entry<'a>(
    index: &IndexInfo,
    record: &[u8],
    row_key: &[u8],
    flags: WriteFlags,
    scratch: &'a mut RowScratch,
) -> Result<LoadEntry<'a>> {
    // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
    let parts = unsafe { entry_key(index, record, row_key, &mut scratch.new_entry) }?;
    scratch.new_value.clear();
    // SAFETY: blob columns of the record point to their bytes: the same promise, passed on.
    unsafe { index.entry_value(record, &mut scratch.new_value) }?;
    let unique = index.unique && !parts.has_null && !flags.skip_unique_secondary;
    Ok(LoadEntry {
        user_key: &scratch.new_entry,
        unique_len: if unique { parts.declared_len } else { 0 },
        kind: Kind::Put,
        value: Value::whole(&scratch.new_value),
    })
}

/// The lock of a key that no row is supposed to have yet.
struct ClaimLock {
    /// The lock was not held before.
    newly: bool,
    /// It is exclusive.
    exclusive: bool,
}

/// Locks a key that no row is supposed to have yet. If other transactions hold the key, it takes
/// only a shared lock, as InnoDB does: the key may turn out to be a duplicate, on which others hold
/// shared locks. Inserts of one key that wait for the same transaction all go on when that ends. If
/// it rolls back, they deadlock when they [make the lock exclusive](ClaimLock::make_exclusive), and
/// one of them inserts.
fn claim_lock(txn: &Transaction, key: &[u8], flags: WriteFlags) -> Result<ClaimLock> {
    if flags.private {
        return Ok(ClaimLock {
            newly: false,
            exclusive: true,
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
    fn make_exclusive(&self, txn: &Transaction, key: &[u8]) -> Result<()> {
        if !self.exclusive {
            txn.lock(key, LockMode::Exclusive, None)?;
        }
        Ok(())
    }
}

/// Locks the gaps beside the declared columns of a unique index that the transaction gives to
/// another row: InnoDB finds the old entry, which is only marked as deleted, locks it as if it were
/// a duplicate, and goes on to the next one. It does so at every isolation level.
fn lock_around_old_entry(txn: &Transaction, index: IndexId, declared: &[u8]) -> Result<()> {
    let mut beyond = declared.to_vec();
    make_successor(&mut beyond);
    Neighbours::new().lock_gap_around(txn, index, declared, &beyond)
}

/// A duplicate stays locked after the error as InnoDB locks it: shared, or exclusive for a
/// statement that goes on to change it.
fn keep_duplicate_lock(
    txn: &Transaction,
    key: &[u8],
    claim: &ClaimLock,
    flags: WriteFlags,
) -> Result<()> {
    if claim.newly && claim.exclusive && !flags.lock_duplicate_exclusive {
        txn.unlock(key);
        match txn.lock(key, LockMode::Shared, Some(WaitPolicy::NoWait)) {
            Ok(_) => {}
            Err(e) if *e.kind() == ErrorKind::LockNotAvailable => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
