//! Checks of referenced rows that are deleted or get another key, and the cascades that follow.

use super::cascade::{CascadeStep, DEPTH_MAX};
use super::column_values::{TextLimit, copy, differs, set_null};
use super::{CascadeLink, ChildIndex, ReferencingKey};
use crate::base::ForeignKeyViolation::{DuplicateInChild, RowIsReferenced, TooDeep};
use crate::base::blob_buf::BlobBuf;
use crate::base::key::{INDEX_ID_LEN, index_prefix};
use crate::base::key_range::{make_successor, prefix_successor};
use crate::base::pause_points::{self, PausePoint};
use crate::base::{Error, ErrorKind, ForeignKeyError, InternalIterator, Result};
use crate::catalog::foreign_key::is_copy;
use crate::catalog::{PartSchema, ReferentialAction};
use crate::env::ReadClass;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{ScanRange, scan_sources};
use crate::table::blob_columns::RowReader;
use crate::table::gap_bounds::after;
use crate::table::row_scratch::RowScratch;
use crate::table::write_options::{WriteFlags, WriteOutcome};
use crate::table::{Table, TableIds};
use crate::txn::{LockMode, Nearest, Transaction};
use std::sync::Arc;

/// Number of entries of referencing rows that are read at once. A cascade holds the keys of one
/// such batch in memory at each of its levels.
const BATCH: usize = 256;

/// The change of a referenced row.
#[derive(Clone, Copy)]
pub(in crate::table) struct RowChange<'a> {
    pub(in crate::table) old: &'a [u8],
    /// `None` if the row is deleted.
    pub(in crate::table) new: Option<&'a [u8]>,
    pub(in crate::table) flags: WriteFlags,
}

/// Returns the keys of at most `max` entries that begin with `prefix`, from the key `lower` on, as
/// the latest commit and the transaction's own writes show them.
fn entries(txn: &Transaction, prefix: &[u8], lower: &[u8], max: usize) -> Result<Vec<Vec<u8>>> {
    let range = ScanRange {
        lower: lower.to_vec(),
        upper: prefix_successor(prefix),
    };
    let latest = txn.latest_point();
    let upper = range.upper.as_deref();
    let own = || {
        let own = txn.own_writes_within(&range.lower, upper);
        Box::new(own) as Box<dyn InternalIterator + Send>
    };
    let own = txn.has_writes().then(own);
    let sources = scan_sources(&latest.super_version, &range, ReadClass::Range, own);
    let mut found = Vec::new();
    if sources.is_empty() {
        return Ok(found);
    }
    let mut entries = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(latest.seqno));
    entries.set_bounds(Some(&range.lower), upper);
    let mut more = entries.seek_ge(&range.lower)?;
    while more && found.len() < max {
        found.push(entries.user_key().to_vec());
        more = entries.next()?;
    }
    Ok(found)
}

/// The first entry from `lower` on that begins with `prefix`.
pub(super) fn first_entry(
    txn: &Transaction,
    prefix: &[u8],
    lower: &[u8],
) -> Result<Option<Vec<u8>>> {
    Ok(entries(txn, prefix, lower, 1)?.pop())
}

impl Table {
    /// Checks the foreign keys that refer to the index `number`, because the entry `entry` of that
    /// index is about to be deleted, and carries out their actions. The transaction has locked the
    /// row, and the declared columns of a unique index.
    ///
    /// # Errors
    /// `ForeignKey` if a referencing row forbids the change; those of lock waits and of writes.
    pub(in crate::table) fn check_referencing(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        number: Option<usize>,
        entry: &[u8],
        change: RowChange<'_>,
        link: &CascadeLink<'_>,
    ) -> Result<()> {
        let Some(keys) = &current.foreign_keys else {
            return Ok(());
        };
        keys.resolved()?;
        for key in keys
            .referencing
            .iter()
            .filter(|key| Some(key.index) == number)
        {
            let changes = |new| {
                let mut columns = key.columns.iter();
                columns.any(|&at| differs(&self.schema.columns[at], change.old, new))
            };
            if change.new.is_some_and(|new| !changes(new)) {
                continue;
            }
            // A cascade along this same foreign key is updating this row, as in a table whose
            // foreign key refers to its own columns. The cascade began at a row with the same
            // value, and visits all rows that refer to the value. So rows that still have it do not
            // forbid this update: the cascade changes them as well.
            if change.new.is_some() && link.follows(&key.name) {
                continue;
            }
            let Some(child) = &key.child else {
                return Err(key.name.error(RowIsReferenced));
            };
            let mut prefix = index_prefix(child.other.index.id()).to_vec();
            if child.map.map(&entry[INDEX_ID_LEN..], &mut prefix)? {
                self.admit(txn, key, child, change)?;
                self.follow(txn, key, child, &prefix, change, link)?;
            }
        }
        Ok(())
    }

    /// Makes sure that no DDL changes the referencing table while the statement uses it: checks
    /// that the session of the statement has locked the metadata of that table.
    ///
    /// The session has no such lock if another session has added the foreign key since the
    /// statement began. DDL on the referencing table would not wait for this transaction then, and
    /// its new indexes would lack what the transaction is about to write.
    ///
    /// # Errors
    /// `TableDefChanged`.
    fn admit(
        &self,
        txn: &mut Transaction,
        key: &ReferencingKey,
        child: &ChildIndex,
        change: RowChange<'_>,
    ) -> Result<()> {
        let (table, id) = (&key.name.table, child.other.clustered);
        let writes = key.action(change).changes_rows();
        if *table == self.name || txn.statement_tables().allows(id, writes) {
            return Ok(());
        }
        // Statements have no metadata lock of the copy that an ALTER makes, since they do not know
        // its name; the host has locked the table that the copy will replace. A check may read the
        // copy without a lock. But only the session of the ALTER may write it: a cascade must
        // change the old table, and fails if it leads to the copy.
        let is_read_copy = is_copy(table) && !writes;
        if !is_read_copy
            && !self
                .catalog
                .is_metadata_locked(txn.owner().host(), table, writes)
        {
            let message = format!("a foreign key of {table} is newer than the statement");
            return Err(Error::new(ErrorKind::TableDefChanged, message));
        }
        txn.statement_tables().allow(id, writes);
        Ok(())
    }

    /// Applies a foreign key to all rows of the referencing table that have the value.
    ///
    /// At REPEATABLE READ and above, the transaction first locks the range of entries with the
    /// value, so that no other row gets the value meanwhile. It does not lock the gaps beside the
    /// value: to find where they end, it would have to walk over the tombstones of all values that
    /// were deleted before this one.
    ///
    /// It searches the uncommitted keys of others before the committed rows: the rows of a
    /// transaction become visible before it leaves the list of uncommitted inserts, so one of the
    /// two searches finds them. It waits for the outcome of others only after it has visited the
    /// committed rows, one of which may forbid the change at once.
    fn follow(
        &self,
        txn: &mut Transaction,
        key: &ReferencingKey,
        child: &ChildIndex,
        prefix: &[u8],
        change: RowChange<'_>,
        link: &CascadeLink<'_>,
    ) -> Result<()> {
        pause_points::at(PausePoint::ReferencesSought);
        let index = child.other.index.id();
        let mut end = prefix.to_vec();
        make_successor(&mut end);
        if txn.locks_gaps() {
            txn.lock_gap(prefix, &end);
        }
        loop {
            // Another transaction may have inserted this key without a lock of the referenced
            // value, for example if it does not check foreign keys.
            let uncommitted = txn.key_of_others(index, prefix, &end, Nearest::Smallest)?;
            self.visit_committed(txn, key, child, prefix, change, link)?;
            let Some(entry) = uncommitted else {
                return Ok(());
            };
            let row_key = child.other.row_key(&entry)?;
            let granted = txn.lock(&row_key, LockMode::Shared, None)?;
            if granted.newly && first_entry(txn, prefix, &entry)?.is_none_or(|first| first != entry)
            {
                txn.unlock(&row_key);
            }
        }
    }

    fn visit_committed(
        &self,
        txn: &mut Transaction,
        key: &ReferencingKey,
        child: &ChildIndex,
        prefix: &[u8],
        change: RowChange<'_>,
        link: &CascadeLink<'_>,
    ) -> Result<()> {
        let mut from = prefix.to_vec();
        loop {
            let found = entries(txn, prefix, &from, BATCH)?;
            for entry in &found {
                self.visit(txn, key, child, entry, change, link)?;
            }
            match found.last() {
                Some(last) if found.len() == BATCH => from = after(last),
                _ => return Ok(()),
            }
        }
    }

    /// Applies a foreign key to one referencing row.
    fn visit(
        &self,
        txn: &mut Transaction,
        key: &ReferencingKey,
        child: &ChildIndex,
        entry: &[u8],
        change: RowChange<'_>,
        link: &CascadeLink<'_>,
    ) -> Result<()> {
        if txn.owner().is_interrupted() {
            return Err(Error::new(ErrorKind::Interrupted, "the session was killed"));
        }
        let stands = |txn: &Transaction| -> Result<bool> {
            Ok(txn.get_latest(entry, |key, _| key.kind.is_put())? == Some(true))
        };
        let row_key = child.other.row_key(entry)?;
        let action = key.action(change);
        if !action.changes_rows() {
            txn.lock(&row_key, LockMode::Shared, None)?;
            return match stands(txn)? {
                true => Err(key.name.error(RowIsReferenced)),
                false => Ok(()),
            };
        }
        let deletes = change.new.is_none() && action == ReferentialAction::Cascade;
        if !deletes && link.updates(&key.name.table) {
            // Refuse to update a table that the cascade has already updated: the cascade might go
            // on for ever, and would see the indexes of a half changed row.
            return Err(key.name.error(RowIsReferenced));
        }
        if link.depth() >= DEPTH_MAX {
            return Err(key.name.error(TooDeep));
        }
        txn.lock(&row_key, LockMode::Exclusive, None)?;
        if !stands(txn)? {
            return Ok(());
        }
        let table = self.open_child(txn, key, child)?;
        let mut record = vec![0; table.record_len()];
        let mut blobs = BlobBuf::new();
        if !table.read_row(txn, &row_key, &mut record, &mut blobs)? {
            // A change earlier in this cascade is deleting this row and has removed it already, so
            // there is nothing to do.
            return Ok(());
        }
        table.compute_virtual(txn, &mut record, &mut blobs)?;
        let row_id = match table.has_hidden_key() {
            true => row_key[INDEX_ID_LEN..]
                .try_into()
                .ok()
                .map(u64::from_be_bytes),
            false => None,
        };
        let flags = WriteFlags {
            lock_duplicate_exclusive: false,
            ..change.flags
        };
        let step = CascadeStep {
            from: link,
            key: &key.name,
        };
        let mut scratch = RowScratch::default();
        if deletes {
            // SAFETY: `read_row` and `compute_virtual` succeeded, so blob columns of `record` point
            // into `blobs`.
            return unsafe {
                table.delete_by(txn, &record, row_id, flags, &mut scratch, Some(step))
            };
        }
        let Some(mut changed) = self.changed(&table, key, child, &record, change) else {
            return Err(key.name.error(RowIsReferenced));
        };
        table.compute_virtual(txn, &mut changed, &mut blobs)?;
        // SAFETY: `read_row` and `compute_virtual` succeeded, so blob columns of `record` point
        // into `blobs`; so do those of `changed`: the stored ones are the same, because foreign
        // keys have no blobs.
        let written = unsafe {
            table.update_by(
                txn,
                &record,
                &changed,
                row_id,
                flags,
                &mut scratch,
                Some(step),
            )
        }?;
        match written {
            WriteOutcome::Duplicate { index } => {
                let error = ForeignKeyError {
                    violation: DuplicateInChild,
                    table: key.name.table.clone(),
                    name: table.schema.indexes[index].name.clone(),
                };
                Err(Error::foreign_key(
                    error,
                    "a cascade leads to a duplicate key",
                ))
            }
            _ => Ok(()),
        }
    }

    /// The referencing table by its stored definition, opened once for each statement.
    fn open_child(
        &self,
        txn: &mut Transaction,
        key: &ReferencingKey,
        child: &ChildIndex,
    ) -> Result<Arc<Self>> {
        let id = child.other.clustered;
        if let Some(table) = txn.statement_tables().opened(id) {
            return Ok(table);
        }
        let table = Self::open_stored(&self.catalog, &key.name.table)?;
        let kept: Arc<Self> = Arc::clone(&table);
        txn.statement_tables().keep(id, kept);
        Ok(table)
    }

    /// The referencing row after the change; `None` if the row cannot take the change: the new
    /// value does not fit, or the column is NOT NULL.
    fn changed(
        &self,
        table: &Table,
        key: &ReferencingKey,
        child: &ChildIndex,
        record: &[u8],
        change: RowChange<'_>,
    ) -> Option<Vec<u8>> {
        let mut changed = record.to_vec();
        let cascades = change
            .new
            .filter(|_| key.on_update == ReferentialAction::Cascade);
        let parts = &table.schema.entry_parts(child.number);
        for (at, &(column, chars)) in child.columns.iter().enumerate() {
            let to = &table.schema.columns[column];
            let done = match cascades {
                None => set_null(to, &mut changed),
                Some(new) => {
                    let from = &self.schema.columns[key.columns[at]];
                    let collator = match &parts[at].kind {
                        PartSchema::Text(collation) => collation.collator.as_deref(),
                        _ => None,
                    };
                    let limit = TextLimit { chars, collator };
                    !differs(from, change.old, new) || copy(from, new, to, &limit, &mut changed)
                }
            };
            if !done {
                return None;
            }
        }
        Some(changed)
    }

    /// Reads the row with the key `row_key`, which the transaction has locked, into `record`.
    /// Returns false if there is no such row.
    fn read_row(
        &self,
        txn: &Transaction,
        row_key: &[u8],
        record: &mut [u8],
        blobs: &mut BlobBuf,
    ) -> Result<bool> {
        let mut reader = RowReader::new(self.format(), ReadClass::Blob, None);
        let latest = txn.latest_point();
        let decoded = txn.get(&latest, row_key, ReadClass::Range, |key, value| {
            let is_put = key.kind.is_put();
            is_put.then(|| reader.decode(key.kind, value, record, blobs))
        })?;
        let Some(decoded) = decoded.flatten() else {
            return Ok(false);
        };
        let complete =
            decoded.and_then(|()| reader.complete(&latest.super_version.blobs, record, blobs));
        complete.map_err(|error| self.of_table(error))?;
        Ok(true)
    }
}

impl ReferencingKey {
    /// The action that follows a change of a referenced row.
    fn action(&self, change: RowChange<'_>) -> ReferentialAction {
        match change.new {
            None => self.on_delete,
            Some(_) => self.on_update,
        }
    }
}
