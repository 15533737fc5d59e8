//! Changes the columns and indexes of a table. New indexes are filled first. Then one commit puts
//! them into the catalog, together with all other changes of the definition.
//!
//! The rows stay as they are: see [`SchemaChange`].
//!
//! From the beginning, the ids of indexes that are being filled are recorded as retired on disk,
//! but not in memory. So if the engine dies, the next start treats their entries as garbage. The
//! commit that puts the indexes into the catalog deletes these records.

use super::counters::autoincrement_counter;
use super::ddl_session::DdlSession;
use super::foreign_key_definition::ForeignKeyRequest;
use super::schema::{SchemaChange, TableSchema};
use super::table_entry::{IndexEntry, TableEntry};
use super::tables::{Catalog, SetCounter, put_entry, retired_key};
use crate::base::prefix_extractor::PrefixExtractor;
use crate::base::{Error, IndexId, Kind, Result, Seqno, Value};
use crate::keycode::KeyPrefixExtractor;
use crate::write::Batch;
use std::sync::Arc;

/// Origin of an index of a changed table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexOrigin {
    /// The index with this number in the old definition, unchanged.
    Old(usize),
    /// A new index, filled under this id from [`Catalog::reserve_indexes`].
    New(IndexId),
}

/// A table whose columns or indexes change.
pub struct IndexChange<'a> {
    /// The table's name.
    pub table: &'a str,
    /// The table's new definition, with the same primary key.
    pub schema: TableSchema,
    /// For each column of the new definition, its number in the old one; `None` for a new column.
    pub columns: Vec<Option<usize>>,
    /// Origins of the new definition's indexes, in order.
    pub indexes: Vec<IndexOrigin>,
    /// The new value of the table's AUTO_INCREMENT counter, or `None` to keep it. If a prepared
    /// transaction has changed the table, the counter may rise but not fall.
    pub autoincrement: Option<u64>,
    /// The foreign keys to add and to drop.
    pub foreign_keys: &'a ForeignKeyRequest,
}

impl Catalog {
    /// Takes ids for new indexes, which the caller is about to fill; `numbers` are the numbers of
    /// these indexes in `schema`. Durable on return. The caller must then pass the ids to
    /// [`Self::change_indexes`] or to [`Self::give_up_indexes`].
    ///
    /// # Errors
    /// `Unsupported` if the ids are used up; `InvalidArgument` if there is no such index; those of
    /// a commit (`NoSpace`, `Poisoned`, `ShutDown`, `Io`).
    pub fn reserve_indexes(&self, schema: &TableSchema, numbers: &[usize]) -> Result<Vec<IndexId>> {
        let _one = self.changing().lock();
        let ends = numbers
            .iter()
            .map(|number| schema.key_prefix_extractor(*number));
        let ends = ends.collect::<Result<Vec<_>>>()?;
        let ids = self.take_ids(numbers.len())?;
        let mut batch = Batch::new();
        for id in &ids {
            batch.add(&retired_key(*id), Kind::Put, Value::EMPTY);
        }
        self.write(&batch, "reserve indexes")?;
        let known = ids.iter().copied().zip(ends);
        self.filling().lock().extend(known);
        Ok(ids)
    }

    /// In one commit, changes the columns and indexes of tables, the parts of their definitions on
    /// which no stored bytes depend, and their AUTO_INCREMENT counters. Durable on return. `frm`
    /// and `version` are the server's new definition image and its version. An old index that is
    /// the [origin](IndexOrigin::Old) of no index in the new definition is retired.
    ///
    /// # Errors
    /// `NotFound` if there is no such table; `InvalidArgument` if a change does not fit its table;
    /// `LockTimeout` if indexes come or go, or rows get another form, and a prepared transaction
    /// has changed the table; those of a commit (`NoSpace`, `Poisoned`, `ShutDown`, `Io`).
    pub fn change_indexes(
        &self,
        changes: Vec<IndexChange<'_>>,
        frm: &[u8],
        version: &[u8],
        session: &DdlSession<'_>,
    ) -> Result<()> {
        let mut closed = Vec::new();
        let result = self.close_and_change(changes, frm, version, session, &mut closed);
        closed.iter().for_each(|id| self.referenced().open(*id));
        result
    }

    /// Checks that the foreign keys allow a change.
    ///
    /// # Errors
    /// `ForeignKey`; `NotFound` and `InvalidArgument` as [`Self::change_indexes`].
    pub fn check_index_change(&self, change: IndexChange<'_>, checks: bool) -> Result<()> {
        let old = self.get(change.table)?;
        let request = change.foreign_keys;
        let (mut entry, _) = changed(&old, change, &[], &[])?;
        self.change_foreign_keys(&old, &mut entry, request, checks)
    }

    fn change_foreign_keys(
        &self,
        old: &TableEntry,
        entry: &mut TableEntry,
        request: &ForeignKeyRequest,
        checks: bool,
    ) -> Result<()> {
        let known = self.entries().read();
        let has = |id| old.indexes.iter().any(|index| index.id == id);
        let numbers = entry.indexes.iter().enumerate();
        let fresh = numbers.filter(|(_, index)| !has(index.id));
        let fresh: Vec<usize> = fresh.map(|(number, _)| number).collect();
        let keys = known.changed_foreign_keys(old, &entry.schema, request, &fresh)?;
        entry.foreign_keys = keys;
        known.check_needed_columns(old, entry)?;
        if checks {
            known.check_needed_indexes(old, entry)?;
        }
        // If a foreign key refers to its own table, its referencing and its referenced columns are
        // columns of this table. The referencing columns have their new names already; give the
        // referenced columns their new names, too.
        let (name, new) = (entry.name.clone(), &entry.schema);
        for key in entry
            .foreign_keys
            .iter_mut()
            .filter(|key| key.parent == name)
        {
            for column in &mut key.columns {
                if let Some(renamed) = old.schema.column_in(&column.referenced, new) {
                    column.referenced.clone_from(&renamed.name);
                }
            }
        }
        Ok(())
    }

    fn close_and_change(
        &self,
        changes: Vec<IndexChange<'_>>,
        frm: &[u8],
        version: &[u8],
        session: &DdlSession<'_>,
        closed: &mut Vec<IndexId>,
    ) -> Result<()> {
        for change in &changes {
            closed.push(self.close_indexes(change.table, session)?);
        }
        let _one = self.changing().lock();
        let mut batch = Batch::new();
        let mut entries = Vec::new();
        let mut gone = Vec::new();
        let mut counters = Vec::new();
        let mut following = Vec::new();
        for change in changes {
            let old = self.get(change.table)?;
            let value = change.autoincrement.map(|value| (Arc::clone(&old), value));
            counters.extend(value);
            let request = change.foreign_keys;
            let (mut entry, new) = changed(&old, change, frm, version)?;
            self.change_foreign_keys(&old, &mut entry, request, session.checks)?;
            following.extend(self.entries().read().follow_columns(&old, &entry.schema));
            let rewrites = old.schema.version != entry.schema.version;
            if old.index_ids().len() != entry.index_ids().len() || !new.is_empty() || rewrites {
                self.refuse_prepared_changes(&old)?;
            }
            for id in &new {
                batch.add(&retired_key(*id), Kind::Delete, Value::EMPTY);
            }
            let stays = entry.index_ids();
            let retired = old.index_ids().into_iter().filter(|id| !stays.contains(id));
            for id in retired {
                batch.add(&retired_key(id), Kind::Put, Value::EMPTY);
                gone.push(id);
            }
            put_entry(&mut batch, &entry, &new);
            entries.push((entry, new));
        }
        following
            .iter()
            .for_each(|child| put_entry(&mut batch, child, &[]));
        let seqno = self.write_index_change(&batch, &counters)?;
        let mut filling = self.filling().lock();
        entries.iter().flat_map(|(_, new)| new).for_each(|id| {
            filling.remove(id);
        });
        drop(filling);
        self.retire_known(&gone, seqno);
        for child in following {
            self.install(child, &[], seqno);
        }
        for (entry, new) in entries {
            self.install(entry, &new, seqno);
        }
        Ok(())
    }

    fn write_index_change(
        &self,
        batch: &Batch,
        autoincrements: &[(Arc<TableEntry>, u64)],
    ) -> Result<Seqno> {
        let (mut set, mut to_log) = (Vec::new(), Vec::new());
        for (table, value) in autoincrements {
            let counter = autoincrement_counter(table.clustered.id);
            let back = *value < self.counters().cell(counter).read().value;
            if back && self.refuse_prepared_changes(table).is_ok() {
                set.push(SetCounter::new(self.counters(), counter, *value));
            } else {
                to_log.push((counter, self.counters().raise(counter, *value)));
            }
        }
        to_log.extend(set.iter().map(SetCounter::to_log));
        let written = self.write_with_counters(batch, "change indexes", &to_log);
        written.inspect_err(|_| set.iter().for_each(SetCounter::undo))
    }

    /// Gives up new indexes that were being filled, because the change failed. Their entries are
    /// garbage from now on.
    pub fn give_up_indexes(&self, ids: &[IndexId]) {
        let mut filling = self.filling().lock();
        let ids: Vec<_> = ids
            .iter()
            .copied()
            .filter(|id| filling.remove(id).is_some())
            .collect();
        // No snapshot has ever read these indexes, so they count as retired for all snapshots.
        self.retire_known(&ids, 0);
    }

    /// The key layout of an index that is being filled.
    pub(super) fn filling_prefix_extractor(
        &self,
        index: IndexId,
    ) -> Option<Arc<dyn PrefixExtractor>> {
        let ends: KeyPrefixExtractor = self.filling().lock().get(&index).cloned()?;
        (ends.prefixes() > 0).then(|| Arc::new(ends) as Arc<dyn PrefixExtractor>)
    }
}

/// Applies `change` to `old`. Returns the changed entry and the ids of its new indexes.
fn changed(
    old: &TableEntry,
    change: IndexChange<'_>,
    frm: &[u8],
    version: &[u8],
) -> Result<(TableEntry, Vec<IndexId>)> {
    let from = change.indexes.iter().map(|origin| match origin {
        IndexOrigin::Old(number) => Some(*number),
        IndexOrigin::New(_) => None,
    });
    let planned = SchemaChange {
        schema: change.schema,
        columns: change.columns,
        indexes: from.collect(),
    };
    if let Some(trouble) = old.schema.change_trouble(&planned) {
        return Err(Error::invalid(format_args!(
            "table {}: {trouble}",
            old.name
        )));
    }
    let indexes = change.indexes.iter().map(|origin| match origin {
        IndexOrigin::Old(number) => old.indexes[*number],
        IndexOrigin::New(id) => IndexEntry {
            id: *id,
            created: Seqno::MAX,
        },
    });
    let new = change.indexes.iter().filter_map(|origin| match origin {
        IndexOrigin::Old(_) => None,
        IndexOrigin::New(id) => Some(*id),
    });
    let new = new.collect();
    let entry = TableEntry {
        schema: old.schema.changed_to(&planned)?,
        indexes: indexes.collect(),
        frm: frm.to_vec(),
        version: version.to_vec(),
        ..old.clone()
    };
    Ok((entry, new))
}
