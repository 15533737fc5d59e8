//! Checks of referencing rows: the referenced row exists, and stays while the transaction runs.

use super::child_rows::first_entry;
use super::column_values::{differs, is_null};
use super::{CascadeLink, Identity, OwnKey, Parent, ReferencedIndex};
use crate::base::ForeignKeyViolation::NoReferencedRow;
use crate::base::key::{INDEX_ID_LEN, UNCOMMITTED_BIT, index_prefix};
use crate::base::key_range::make_successor;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{InternalKey, Result, Value};
use crate::table::gap_bounds::Neighbours;
use crate::table::{Table, TableIds};
use crate::txn::{LockMode, Nearest, Transaction};

/// If a check finds that a copying ALTER is replacing the referenced table, it waits for the ALTER
/// and looks again, up to this number of times. After that the table counts as missing.
const LOOKS_MAX: usize = 8;

/// The new row whose references are checked.
#[derive(Clone, Copy)]
pub(in crate::table) struct NewReferences<'a> {
    pub(in crate::table) record: &'a [u8],
    /// For an update: the record before the update, and whether the update changes the key of the
    /// index entry.
    pub(in crate::table) old: Option<(&'a [u8], bool)>,
}

impl Table {
    /// Checks the foreign keys whose columns begin the index `number`, before the entry with the
    /// key `entry` is written. `None` stands for the clustered index if the primary key is hidden.
    ///
    /// # Errors
    /// `ForeignKey` if there is no referenced row; those of lock waits and of reading.
    pub(in crate::table) fn check_references(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        number: Option<usize>,
        entry: &[u8],
        row: NewReferences<'_>,
        link: &CascadeLink<'_>,
    ) -> Result<()> {
        let Some(keys) = &current.foreign_keys else {
            return Ok(());
        };
        keys.resolved()?;
        let clustered = number == self.primary_number();
        for own in &keys.own {
            let here = own.index == number || clustered && own.index.is_none();
            if !here || own.inherited || link.follows(&own.name) {
                continue;
            }
            if let Some((old, moves)) = row.old {
                let mut columns = own.columns.iter();
                let changes = columns.any(|&at| differs(&self.schema.columns[at], old, row.record));
                let checks = changes || moves && own.index.is_some();
                if !checks {
                    continue;
                }
            }
            if own.index.is_none() {
                let mut columns = own.columns.iter();
                if !columns.any(|&at| is_null(&self.schema.columns[at], row.record)) {
                    return Err(own.name.error(NoReferencedRow));
                }
                continue;
            }
            self.check_reference(txn, current, own, entry)?;
        }
        Ok(())
    }

    /// Whether an update from `old` to `new` changes the bytes of a foreign key column that the
    /// index `number` begins with. Foreign keys of this table count as well as those that refer to
    /// it. Text may change its bytes and still be equal by its collation, so the entry's key may be
    /// the same.
    pub(in crate::table) fn rewrites_foreign_key(
        &self,
        current: &TableIds,
        number: usize,
        old: &[u8],
        new: &[u8],
    ) -> bool {
        let Some(keys) = &current.foreign_keys else {
            return false;
        };
        let own = keys.own.iter().filter(|key| key.index == Some(number));
        let others = keys.referencing.iter().filter(|key| key.index == number);
        let own = own.flat_map(|key| &key.columns);
        let mut columns = own.chain(others.flat_map(|key| &key.columns));
        columns.any(|&at| differs(&self.schema.columns[at], old, new))
    }

    /// Checks one foreign key. `own` was resolved before the transaction began to rely on the
    /// referenced table's indexes; if the catalog has changed in between, the check resolves the
    /// foreign key again.
    fn check_reference(
        &self,
        txn: &mut Transaction,
        current: &TableIds,
        own: &OwnKey,
        entry: &[u8],
    ) -> Result<()> {
        if let Some(found) = self.try_reference(txn, current.generation, own, entry)? {
            return found
                .then_some(())
                .ok_or_else(|| own.name.error(NoReferencedRow));
        }
        for _ in 0..LOOKS_MAX {
            let now = self.current();
            let keys = now.foreign_keys.as_ref();
            keys.map_or(Ok(()), |keys| keys.resolved())?;
            let Some(own) = keys.and_then(|keys| keys.own.iter().find(|key| key.name == own.name))
            else {
                return Ok(());
            };
            if let Some(found) = self.try_reference(txn, now.generation, own, entry)? {
                return found
                    .then_some(())
                    .ok_or_else(|| own.name.error(NoReferencedRow));
            }
        }
        Err(own.name.error(NoReferencedRow))
    }

    /// Locks the referenced row. Returns whether the foreign key is satisfied; `None` if DDL has
    /// changed the catalog since `generation`, or replaces the referenced table, so that the caller
    /// must resolve `own` again.
    fn try_reference(
        &self,
        txn: &mut Transaction,
        generation: u64,
        own: &OwnKey,
        entry: &[u8],
    ) -> Result<Option<bool>> {
        let parent = match &own.parent {
            Parent::Missing => {
                let fresh = self.catalog.generation() == generation;
                return Ok(fresh.then_some(own.has_null(entry)?));
            }
            Parent::Swapping(table) => {
                txn.await_referenced(*table)?;
                return Ok(None);
            }
            Parent::Found(parent) => parent,
        };
        let mut key = Vec::with_capacity(entry.len() + INDEX_ID_LEN);
        key.extend_from_slice(&index_prefix(parent.other.index.id()));
        if !parent.map.map(&entry[INDEX_ID_LEN..], &mut key)? {
            return Ok(Some(true));
        }
        if txn.has_found_parent(&key) {
            return Ok(Some(true));
        }
        if txn.rely_on(parent.other.clustered)? && self.catalog.generation() != generation {
            return Ok(None);
        }
        pause_points::at(PausePoint::ReferenceSought);
        let found = match parent.identity {
            Identity::Row | Identity::Unique => parent.lock_value(txn, &key)?,
            Identity::Prefix => parent.lock_any_row(txn, &key)?,
        };
        pause_points::at(PausePoint::ReferenceLocked);
        Ok(Some(found))
    }

    /// Checks the foreign keys of a row that a bulk load is about to take.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    ///
    /// # Errors
    /// Those of [`Table::insert`].
    pub unsafe fn check_loaded(&self, txn: &mut Transaction, record: &[u8]) -> Result<()> {
        let current = self.current();
        let Some(keys) = &current.foreign_keys else {
            return Ok(());
        };
        keys.resolved()?;
        for own in keys.own.iter().filter(|own| !own.inherited) {
            let Some(number) = own.index else {
                continue;
            };
            let mut entry = Vec::new();
            // SAFETY: the caller promises that blob columns of `record` point to their bytes.
            unsafe {
                current.indexes[number].declared_key(record, &mut entry)?;
                if Some(number) != self.primary_number() {
                    let mut row_key = Vec::new();
                    current.clustered.row_key(record, Some(0), &mut row_key)?;
                    entry.extend_from_slice(&row_key[INDEX_ID_LEN..]);
                }
            }
            self.check_reference(txn, &current, own, &entry)?;
        }
        Ok(())
    }

    /// Whether the table has a foreign key that is to be checked and refers to the table itself.
    pub fn refers_to_itself(&self) -> bool {
        let entry = self.entry();
        let mut keys = entry.foreign_keys.iter();
        keys.any(|key| !key.inherited && key.parent == entry.name)
    }

    /// Whether a foreign key refers to the table.
    pub fn is_referenced(&self) -> bool {
        let current = self.current();
        let keys = current.foreign_keys.as_ref();
        keys.is_some_and(|keys| keys.is_referenced())
    }
}

impl OwnKey {
    /// Whether a column is NULL in the key of the own index.
    fn has_null(&self, entry: &[u8]) -> Result<bool> {
        match &self.nulls {
            Some(codec) => codec.has_null(&entry[INDEX_ID_LEN..], self.columns.len()),
            None => Ok(false),
        }
    }
}

impl ReferencedIndex {
    /// Locks a value that identifies a row. Returns false if no row has the value. At REPEATABLE
    /// READ it then locks the gap at the value, as InnoDB does, and gives the lock of the value
    /// back.
    fn lock_value(&self, txn: &mut Transaction, key: &[u8]) -> Result<bool> {
        let newly = txn.lock(key, LockMode::Shared, None)?.newly;
        // `found`: whether a row has the value. `own`: whether this transaction has written that
        // row.
        let (found, own) = match self.identity {
            Identity::Row => {
                let version = |key: InternalKey<'_>, _: Value<'_>| {
                    (key.kind.is_put(), key.seqno & UNCOMMITTED_BIT != 0)
                };
                txn.get_latest(key, version)?.unwrap_or_default()
            }
            _ => (first_entry(txn, key, key)?.is_some(), false),
        };
        if !found {
            self.lock_missing(txn, key)?;
            if newly {
                txn.unlock(key);
            }
            return Ok(false);
        }
        // Note the value only if its lock is sure to stay: a lock that an earlier read has taken
        // may be given back when the row of that read does not match.
        if newly || own {
            txn.note_parent(key);
        }
        Ok(true)
    }

    /// Locks one of the referenced table's rows that have the value `prefix`, for a value that
    /// several rows may have because the referenced columns are not unique. Returns false if no row
    /// has the value.
    fn lock_any_row(&self, txn: &Transaction, prefix: &[u8]) -> Result<bool> {
        let index = self.other.index.id();
        let mut end = prefix.to_vec();
        make_successor(&mut end);
        loop {
            let found = match first_entry(txn, prefix, prefix)? {
                Some(entry) => Some(entry),
                // If no visible row has the value, wait for a row that another transaction has
                // inserted.
                None => txn.key_of_others(index, prefix, &end, Nearest::Smallest)?,
            };
            let Some(entry) = found else {
                self.lock_missing(txn, prefix)?;
                return Ok(false);
            };
            let row_key = self.other.row_key(&entry)?;
            let granted = txn.lock(&row_key, LockMode::Shared, None)?;
            if txn.get_latest(&entry, |key, _| key.kind.is_put())? == Some(true) {
                return Ok(true);
            }
            if granted.newly {
                txn.unlock(&row_key);
            }
        }
    }

    fn lock_missing(&self, txn: &Transaction, key: &[u8]) -> Result<()> {
        if !txn.locks_gaps() {
            return Ok(());
        }
        let mut beyond = key.to_vec();
        make_successor(&mut beyond);
        let index = self.other.index.id();
        Neighbours::new().lock_gap_around(txn, index, key, &beyond)
    }
}
