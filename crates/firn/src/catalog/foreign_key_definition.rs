//! Checks new foreign keys, chooses their names, and makes the texts of errors.
//!
//! The rules, their order and the texts are InnoDB's, so that a client sees no difference. One rule
//! is stricter: equal values of the referencing and the referenced column must have equal bytes in
//! keys, so that the key of an entry in one table can be searched in the other table without the
//! server. InnoDB also accepts pairs such as BINARY and VARBINARY.

use super::catalog_state::CatalogState;
use super::ddl_copies::{Role, backup_of, base_table, is_replaced_by, role};
use super::ddl_session::TableRename;
use super::foreign_key::{ForeignKey, ForeignKeyColumn, ReferentialAction, database_of, is_copy};
use super::foreign_key_index::{IndexTrouble, leading_index, leading_index_but};
use super::schema::{TableLocking, TableSchema};
use super::table_entry::TableEntry;
use crate::base::{Error, ForeignKeyError, ForeignKeyViolation, Result};
use std::collections::BTreeSet;
use std::sync::Arc;

/// A foreign key as a statement defines it.
#[derive(Debug, Clone, Default)]
pub struct NewForeignKey {
    /// Name of the foreign key; `None` if the catalog chooses the name.
    pub name: Option<String>,
    /// The name or the columns of the foreign key, for messages.
    pub label: String,
    /// The columns.
    pub columns: Vec<ForeignKeyColumn>,
    /// The referenced table, `database/table`.
    pub parent: String,
    /// The referenced table as SQL names it, for messages.
    pub parent_label: String,
    /// The action that follows the deletion of a referenced row.
    pub on_delete: ReferentialAction,
    /// The action that follows when a referenced row gets another key.
    pub on_update: ReferentialAction,
    /// Whether the new table replaces another one that has the same foreign key. The foreign key is
    /// then taken over without checks, since it was checked when it was added to the old table.
    /// Only a copy may inherit foreign keys.
    pub inherited: bool,
    /// Whether a stored generated column is computed from one of the referencing columns.
    pub on_generated_base: bool,
}

/// The foreign keys of a statement.
#[derive(Debug, Clone, Default)]
pub struct ForeignKeyRequest {
    /// The foreign keys to add.
    pub added: Vec<NewForeignKey>,
    /// Names of the foreign keys to drop.
    pub dropped: Vec<String>,
    /// The statement in words, for messages: `Create ` or `Alter `.
    pub operation: &'static str,
    /// The table as SQL names it, for messages.
    pub table_label: String,
    /// The table's own name as SQL has it. Foreign key names that the catalog chooses begin with
    /// it.
    pub table_text: String,
    /// The table that the new table replaces, `database/table`. Foreign key names that the catalog
    /// chooses end with a number, and the new table goes on after the largest number of the
    /// replaced one.
    pub replaces: Option<String>,
    /// Whether the session checks foreign keys.
    pub checks: bool,
    /// Whether the session's SQL mode is strict.
    pub strict: bool,
}

const GENERATED: &str = "_ibfk_";

fn broken(violation: ForeignKeyViolation, table: &str, name: &str, text: String) -> Error {
    let error = ForeignKeyError {
        violation,
        table: table.to_owned(),
        name: name.to_owned(),
    };
    Error::foreign_key(error, text)
}

/// The largest number at the end of a foreign key name that the catalog has chosen for `entry`.
fn largest_number(entry: &TableEntry, table_text: &str) -> u64 {
    let prefix = format!("{table_text}{GENERATED}");
    let numbers = entry.foreign_keys.iter().filter_map(|key| {
        let number = key.name.strip_prefix(&prefix)?;
        (!number.starts_with('0')).then(|| number.parse().ok())?
    });
    numbers.max().unwrap_or(0)
}

impl CatalogState {
    /// The foreign keys of the new table `table`, by name.
    ///
    /// # Errors
    /// `ForeignKey`; the message is InnoDB's, or empty where InnoDB gives none.
    pub(super) fn foreign_keys_of(
        &self,
        table: &str,
        schema: &TableSchema,
        request: &ForeignKeyRequest,
    ) -> Result<Vec<ForeignKey>> {
        let before = request.replaces.as_ref();
        let before = before.and_then(|name| self.tables.get(name));
        let largest = before.map_or(0, |entry| largest_number(entry, &request.table_text));
        let mut keys = self.added_keys(table, schema, request, largest, Vec::new(), &[])?;
        if let Some(before) = before {
            take_present_names(&mut keys, before, &before.name);
        }
        Ok(keys)
    }

    /// The foreign keys of `old` after a change of its definition to `schema`.
    pub(super) fn changed_foreign_keys(
        &self,
        old: &TableEntry,
        schema: &TableSchema,
        request: &ForeignKeyRequest,
        fresh: &[usize],
    ) -> Result<Vec<ForeignKey>> {
        let is_dropped = |key: &ForeignKey| {
            let mut dropped = request.dropped.iter();
            dropped.any(|name| name.eq_ignore_ascii_case(&key.name))
        };
        let stays = old.foreign_keys.iter().filter(|key| !is_dropped(key));
        let stays = stays.map(|key| ForeignKey {
            columns: renamed_columns(&key.columns, &old.schema, schema, false),
            ..key.clone()
        });
        let largest = largest_number(old, &request.table_text);
        self.added_keys(&old.name, schema, request, largest, stays.collect(), fresh)
    }

    fn added_keys(
        &self,
        table: &str,
        schema: &TableSchema,
        request: &ForeignKeyRequest,
        largest: u64,
        mut keys: Vec<ForeignKey>,
        fresh: &[usize],
    ) -> Result<Vec<ForeignKey>> {
        if !is_copy(table) && request.added.iter().any(|new| new.inherited) {
            return Err(Error::invalid(format_args!(
                "table {table} replaces no table whose foreign keys it can inherit"
            )));
        }
        let mut number = largest;
        let stays = keys.len();
        for new in &request.added {
            // As InnoDB does, refuse a foreign key that has the name of an earlier one in the
            // request before looking for any other fault in it.
            let mut earlier = keys[stays..].iter().filter(|other| !other.inherited);
            if let Some(name) =
                earlier.find_map(|other| new.name.as_ref().filter(|name| **name == other.name))
            {
                return Err(broken(
                    ForeignKeyViolation::NameGivenTwice,
                    table,
                    name,
                    String::new(),
                ));
            }
            let definition = Definition {
                known: self,
                table,
                schema,
                request,
                new,
                fresh,
            };
            let mut key = definition.checked()?;
            key.name = new.name.clone().unwrap_or_else(|| {
                number += 1;
                format!("{}{GENERATED}{number}", request.table_text)
            });
            if let Some(at) = keys.iter().position(|other| other.name == key.name) {
                let violation = match at < stays || keys[at].inherited {
                    true => ForeignKeyViolation::NameIsTaken,
                    false => ForeignKeyViolation::NameGivenTwice,
                };
                return Err(broken(violation, table, &key.name, String::new()));
            }
            let dropped = request.dropped.iter();
            let taken = self.is_foreign_key(table, &key.name)
                && !dropped
                    .into_iter()
                    .any(|name| name.eq_ignore_ascii_case(&key.name));
            if !key.inherited && taken {
                let violation = ForeignKeyViolation::NameIsTaken;
                return Err(broken(violation, table, &key.name, String::new()));
            }
            keys.push(key);
        }
        keys.sort_by(|a, b| a.name.cmp(&b.name));
        self.refuse_optimistic(table, schema, &keys)?;
        Ok(keys)
    }

    /// Refuses a foreign key if one of its two tables is optimistic. Transactions in an optimistic
    /// table lock nothing, so a writer of a referencing row and a deleter of the referenced row
    /// would not wait for each other, and both could commit.
    fn refuse_optimistic(
        &self,
        table: &str,
        schema: &TableSchema,
        keys: &[ForeignKey],
    ) -> Result<()> {
        let refused = |name: &str| {
            let text = "optimistic tables have no foreign keys".to_owned();
            Err(broken(ForeignKeyViolation::Definition, table, name, text))
        };
        let is_optimistic = |schema: &TableSchema| schema.locking == TableLocking::Optimistic;
        for key in keys {
            let parent = match key.parent == table {
                true => None,
                false => self.table_or_swapped(&key.parent),
            };
            if is_optimistic(schema) || parent.is_some_and(|parent| is_optimistic(&parent.schema)) {
                return refused(&key.name);
            }
        }
        match self.referencing(table).into_iter().next() {
            Some((_, key)) if is_optimistic(schema) => refused(&key.name),
            _ => Ok(()),
        }
    }

    /// Checks that the foreign keys that refer to `parent` fit its new definition.
    ///
    /// # Errors
    /// `ForeignKey`, if the session checks foreign keys.
    pub(super) fn check_referencing(
        &self,
        parent: &str,
        schema: &TableSchema,
        checks: bool,
    ) -> Result<()> {
        if !checks || is_copy(parent) {
            return Ok(());
        }
        for (child, key) in self.referencing(parent) {
            let child_schema = match child.name == parent {
                true => schema,
                false => &child.schema,
            };
            // Skip foreign keys for which the referencing table has no index any more, because it
            // was dropped while foreign key checks were off. They are not enforced, and a change of
            // the referenced table does not alter that.
            let is_usable = leading_index(child_schema, &key.column_names(), None).is_ok();
            if child.name != parent && is_usable {
                fits(&child.name, child_schema, &key, Some(schema))?;
            }
        }
        Ok(())
    }

    /// Checks the foreign keys of the table `entry`, which becomes `renamed`, and those that refer
    /// to its new name. If a copy gets another name than the table that it replaces, also checks
    /// those that refer to that table.
    pub(super) fn check_renamed(
        &self,
        entry: &TableEntry,
        renamed: &TableEntry,
        checks: bool,
    ) -> Result<()> {
        self.refuse_optimistic(&renamed.name, &renamed.schema, &renamed.foreign_keys)?;
        self.refuse_taken_names(entry, renamed)?;
        if !is_copy(&entry.name) {
            return self.check_referencing(&renamed.name, &renamed.schema, checks);
        }
        if !checks {
            return Ok(());
        }
        if let Some((replaced, _)) = self.replaced_by_another_name(entry, &renamed.name) {
            self.check_referencing(&replaced, &renamed.schema, checks)?;
        }
        for key in &renamed.foreign_keys {
            let parent = match key.parent == renamed.name {
                true => Some(&renamed.schema),
                false => self
                    .table_or_swapped(&key.parent)
                    .map(|parent| &parent.schema),
            };
            fits(&renamed.name, &renamed.schema, key, parent)?;
            refuse_not_null(renamed, key)?;
        }
        self.check_referencing(&renamed.name, &renamed.schema, checks)
    }

    /// If `copy` is the new table of an ALTER that also renames the table, and `to` is its new
    /// name: the name of the table that the ALTER replaces, and the entry of that table if it is
    /// there. The host gives the old table the name of a backup if foreign keys refer to it, but
    /// not in its recovery: then the copy tells which table it replaces.
    fn replaced_by_another_name(
        &self,
        copy: &TableEntry,
        to: &str,
    ) -> Option<(String, Option<Arc<TableEntry>>)> {
        let Role::New(mark) = role(&copy.name) else {
            return None;
        };
        let name = copy.original.clone()?;
        let backup = self.tables.get(&backup_of(copy, mark));
        let backup = backup.filter(|old| is_replaced_by(old, copy));
        let old = backup.or_else(|| self.tables.get(&name)).cloned();
        (!name.is_empty() && name != base_table(to)).then_some((name, old))
    }

    /// Refuses new ids of the foreign keys of `entry`, which becomes `renamed`, that foreign keys
    /// of other tables have.
    fn refuse_taken_names(&self, entry: &TableEntry, renamed: &TableEntry) -> Result<()> {
        let database = format!("{}/", database_of(&renamed.name));
        let replaced = self.replaced_by_another_name(entry, &renamed.name);
        let from = replaced.map_or_else(|| entry.name.clone(), |(name, _)| name);
        let mut before: Vec<&str> = Vec::new();
        if database_of(&from) == database_of(&renamed.name) {
            before.extend(entry.foreign_keys.iter().map(|key| key.name.as_str()));
        }
        let taken = |key: &str| {
            let violation = ForeignKeyViolation::NameIsTaken;
            Err(broken(violation, &renamed.name, key, String::new()))
        };
        // A generated name that follows the table may meet a name that the user has given.
        let mut own = BTreeSet::new();
        for key in &renamed.foreign_keys {
            if !own.insert(key.name.to_ascii_lowercase()) {
                return taken(&key.name);
            }
        }
        let new = renamed.foreign_keys.iter();
        for key in new.filter(|key| !before.contains(&key.name.as_str())) {
            let tables = self.tables.range(database.clone()..);
            let is_taken = tables
                .take_while(|(table, _)| table.starts_with(&database))
                .filter(|(table, _)| **table != entry.name)
                .flat_map(|(_, other)| &other.foreign_keys)
                .any(|other| !other.inherited && other.name.eq_ignore_ascii_case(&key.name));
            if is_taken {
                return taken(&key.name);
            }
        }
        Ok(())
    }

    /// Changes the foreign keys of `renamed`, a table whose entry was `entry`, to the new name.
    /// Returns the entries of the other tables that refer to it, with the new name in their foreign
    /// keys. Those that refer to the table that a copy replaces follow if the copy gets another
    /// name.
    pub(super) fn follow_rename(
        &self,
        entry: &TableEntry,
        renamed: &mut TableEntry,
        rename: &TableRename<'_>,
    ) -> Vec<TableEntry> {
        let to = renamed.name.clone();
        let replaced = self.replaced_by_another_name(entry, &to);
        if let Some((name, Some(old))) = &replaced {
            take_present_names(&mut renamed.foreign_keys, old, name);
        }
        let from = replaced
            .as_ref()
            .map_or(entry.name.as_str(), |(name, _)| name.as_str());
        let prefix = format!("{}{GENERATED}", rename.from_text);
        for key in &mut renamed.foreign_keys {
            key.inherited = false;
            if key.parent == from {
                key.parent.clone_from(&to);
            }
            if let Some(number) = key.name.strip_prefix(&prefix) {
                key.name = format!("{}{GENERATED}{number}", rename.to_text);
            }
        }
        renamed.foreign_keys.sort_by(|a, b| a.name.cmp(&b.name));
        if is_copy(from) {
            return Vec::new();
        }
        // The old table of the ALTER goes, or it gets its name back.
        let goes =
            |child: &TableEntry| is_copy(&child.name) && child.original.as_deref() == Some(from);
        let mut following: Vec<TableEntry> = Vec::new();
        for child in self.referring_tables(from) {
            if child.name == entry.name || goes(&child) {
                continue;
            }
            let mut child = (*child).clone();
            for key in child
                .foreign_keys
                .iter_mut()
                .filter(|key| key.parent == from)
            {
                key.parent.clone_from(&to);
            }
            following.push(child);
        }
        following
    }

    /// The entries of the other tables whose foreign keys refer to columns of `old` that `new`
    /// renames, changed so that they have the new column names.
    pub(super) fn follow_columns(&self, old: &TableEntry, new: &TableSchema) -> Vec<TableEntry> {
        let mut following: Vec<TableEntry> = Vec::new();
        for child in self.referring_tables(&old.name) {
            if child.name == old.name {
                continue;
            }
            let mut changed = (*child).clone();
            for key in &mut changed.foreign_keys {
                if key.parent == old.name {
                    key.columns = renamed_columns(&key.columns, &old.schema, new, true);
                }
            }
            if changed.foreign_keys != child.foreign_keys {
                following.push(changed);
            }
        }
        following
    }

    /// Checks that the change from `old` to `new` leaves each foreign key its columns, whether or
    /// not the session checks foreign keys: a foreign key of the table, or one that refers to the
    /// table.
    ///
    /// # Errors
    /// `ForeignKey`.
    pub(super) fn check_needed_columns(&self, old: &TableEntry, new: &TableEntry) -> Result<()> {
        let is_dropped = |name: &&str| {
            old.schema.find_column(name).is_some()
                && old.schema.column_in(name, &new.schema).is_none()
        };
        let needed = |column: &str, key: &ForeignKey| {
            let text = format!("column {column} is needed in foreign key {}", key.name);
            broken(ForeignKeyViolation::IndexIsNeeded, &old.name, column, text)
        };
        let has = |entry: &TableEntry, name: &str| {
            let mut keys = entry.foreign_keys.iter();
            keys.any(|key| key.name == name)
        };
        let stays = old.foreign_keys.iter().filter(|key| has(new, &key.name));
        for key in stays {
            if let Some(column) = key.column_names().into_iter().find(is_dropped) {
                return Err(needed(column, key));
            }
        }
        for (child, key) in self.referencing(&old.name) {
            if child.name == old.name && !has(new, &key.name) {
                continue;
            }
            if let Some(column) = key.parent_column_names().into_iter().find(is_dropped) {
                return Err(needed(column, &key));
            }
        }
        Ok(())
    }

    /// Checks that the change from `old` to `new` leaves each foreign key its index: a foreign key
    /// of the table, or one that refers to the table, for which `old` has an index must find one in
    /// `new`.
    ///
    /// # Errors
    /// `ForeignKey`; it names the index of `old` that a foreign key needs.
    pub(super) fn check_needed_indexes(&self, old: &TableEntry, new: &TableEntry) -> Result<()> {
        let needed = |number: usize| {
            let index = &old.schema.indexes[number].name;
            let text = format!("index {index} is needed in a foreign key");
            broken(ForeignKeyViolation::IndexIsNeeded, &old.name, index, text)
        };
        for (before, after) in old.foreign_keys.iter().filter_map(|key| {
            let mut after = new.foreign_keys.iter();
            Some((key, after.find(|after| after.name == key.name)?))
        }) {
            if let Ok(number) = leading_index(&old.schema, &before.column_names(), None)
                && leading_index(&new.schema, &after.column_names(), None).is_err()
            {
                return Err(needed(number));
            }
        }
        for (child, key) in self.referencing(&old.name) {
            let stays = |entry: &TableEntry| {
                entry
                    .foreign_keys
                    .iter()
                    .any(|other| other.name == key.name)
            };
            if child.name == old.name && !stays(new) {
                continue;
            }
            let Ok(own) = leading_index(&child.schema, &key.column_names(), None) else {
                continue;
            };
            let like = Some((&child.schema, own));
            let renamed = renamed_columns(&key.columns, &old.schema, &new.schema, true);
            let names: Vec<&str> = renamed.iter().map(|one| &*one.referenced).collect();
            if let Ok(number) = leading_index(&old.schema, &key.parent_column_names(), like)
                && leading_index(&new.schema, &names, like).is_err()
            {
                return Err(needed(number));
            }
        }
        Ok(())
    }
}

/// Gives the foreign keys among `keys` that are inherited from `old` the present names of the
/// referenced tables and columns. The host has read the foreign keys before it called, and other
/// sessions may have renamed those since then, but not `old` itself, whose name is `name`.
fn take_present_names(keys: &mut [ForeignKey], old: &TableEntry, name: &str) {
    for old in old.foreign_keys.iter().filter(|key| key.parent != name) {
        let mut inherited = keys.iter_mut().filter(|key| key.inherited);
        let Some(key) = inherited.find(|key| key.name == old.name) else {
            continue;
        };
        key.parent.clone_from(&old.parent);
        for (column, old) in key.columns.iter_mut().zip(&old.columns) {
            column.referenced.clone_from(&old.referenced);
        }
    }
}

/// The columns of a foreign key after ALTER has renamed columns of `old` to those of `new`. With
/// `referenced`, changes the names of the referenced columns, otherwise those of the referencing
/// columns. If a table refers to itself, both need a call.
fn renamed_columns(
    columns: &[ForeignKeyColumn],
    old: &TableSchema,
    new: &TableSchema,
    referenced: bool,
) -> Vec<ForeignKeyColumn> {
    let renamed = |name: &str| {
        let column = old.column_in(name, new);
        column.map_or_else(|| name.to_owned(), |column| column.name.clone())
    };
    let columns = columns.iter().map(|column| match referenced {
        true => ForeignKeyColumn {
            referenced: renamed(&column.referenced),
            ..column.clone()
        },
        false => ForeignKeyColumn {
            name: renamed(&column.name),
            ..column.clone()
        },
    });
    columns.collect()
}

/// Checks that the referencing table has an index that begins with the referencing columns, and the
/// referenced table one that begins with the referenced columns. If `parent` is `None`, the
/// referenced table does not exist, which is no error.
fn fits(
    table: &str,
    schema: &TableSchema,
    key: &ForeignKey,
    parent: Option<&TableSchema>,
) -> Result<()> {
    let bad = || {
        broken(
            ForeignKeyViolation::Definition,
            table,
            &key.name,
            String::new(),
        )
    };
    let own = leading_index(schema, &key.column_names(), None).map_err(|_| bad())?;
    if let Some(parent) = parent {
        let like = Some((schema, own));
        leading_index(parent, &key.parent_column_names(), like).map_err(|_| bad())?;
    }
    Ok(())
}

/// Refuses a foreign key with the action SET NULL if a referencing column is NOT NULL, which a
/// copying ALTER may have made it.
fn refuse_not_null(table: &TableEntry, key: &ForeignKey) -> Result<()> {
    let is_not_null = |name: &&str| {
        let column = table.schema.find_column(name);
        column.is_some_and(|column| table.schema.columns[column].column.null.is_none())
    };
    let sets_null = [key.on_delete, key.on_update].contains(&ReferentialAction::SetNull);
    if sets_null && key.column_names().iter().any(is_not_null) {
        let violation = ForeignKeyViolation::Definition;
        return Err(broken(violation, &table.name, &key.name, String::new()));
    }
    Ok(())
}

/// Whether the server's definition image is that of a table with system versioning: its second
/// section has a field for the period of the rows.
fn is_versioned(frm: &[u8]) -> bool {
    const HEAD: usize = 64;
    const PERIOD_FOR_SYSTEM_TIME: u8 = 4;
    let len = |at: usize| {
        let bytes = frm.get(at..at + 2)?;
        Some(usize::from(u16::from_le_bytes(bytes.try_into().ok()?)))
    };
    let end = HEAD + len(4).unwrap_or(0);
    let mut at = HEAD;
    while at + 1 < end.min(frm.len()) {
        let (tag, short) = (frm[at], usize::from(frm[at + 1]));
        at += 2;
        if tag == PERIOD_FOR_SYSTEM_TIME {
            return true;
        }
        at += match short {
            // A long field has its length in the next two bytes.
            0 => match len(at) {
                Some(long) => 2 + long,
                None => return false,
            },
            short => short,
        };
    }
    false
}

/// A new foreign key with the data against which its definition is checked.
struct Definition<'a> {
    known: &'a CatalogState,
    table: &'a str,
    schema: &'a TableSchema,
    request: &'a ForeignKeyRequest,
    new: &'a NewForeignKey,
    /// Numbers of the indexes that the same statement creates. The search for an index on the
    /// referencing columns tries them last, as in InnoDB, where new indexes follow all others. If
    /// the table refers to itself, they are not tried as the index on the referenced columns.
    fresh: &'a [usize],
}

impl Definition<'_> {
    fn fails(&self, violation: ForeignKeyViolation, what: &str) -> Error {
        let (operation, table) = (self.request.operation, &self.request.table_label);
        let label = &self.new.label;
        let text = format!("{operation} table {table} {what}").replace("{}", label);
        let name = self.new.name.clone().unwrap_or_default();
        broken(violation, self.table, &name, text)
    }

    fn checked(&self) -> Result<ForeignKey> {
        let new = self.new;
        let mut key = ForeignKey {
            name: String::new(),
            columns: new.columns.clone(),
            parent: new.parent.clone(),
            on_delete: new.on_delete,
            on_update: new.on_update,
            inherited: new.inherited,
        };
        for column in &mut key.columns {
            let missing = ForeignKeyViolation::Definition;
            column.name = self.column(self.schema, &column.name, missing)?;
        }
        if new.inherited {
            return Ok(key);
        }
        let own = self.own_index(&key)?;
        // If the table is the copy of a copying ALTER and refers to the table that it replaces,
        // look for the index on the referenced columns in that old table, as InnoDB does.
        let is_self = new.parent == self.table;
        let stored: Option<Arc<TableEntry>> = match is_self {
            true => None,
            false => self.known.table_or_swapped(&new.parent).cloned(),
        };
        let parent = match (&stored, is_self) {
            // If the table refers to itself, look for the index in its new definition.
            (_, true) => Some(self.schema),
            (Some(entry), false) => Some(&entry.schema),
            (None, false) => None,
        };
        match parent {
            None if self.request.checks => {
                let parent = &new.parent_label;
                return Err(self.fails(
                    ForeignKeyViolation::NoReferencedTable,
                    &format!(
                        "with foreign key {{}} constraint failed. Referenced table {parent} not found in the data \
                         dictionary."
                    ),
                ));
            }
            None => {}
            Some(_)
                if stored
                    .as_ref()
                    .is_some_and(|entry| is_versioned(&entry.frm)) =>
            {
                let parent = &new.parent_label;
                return Err(self.fails(
                    ForeignKeyViolation::Definition,
                    &format!(
                        "with foreign key {{}} constraint failed. FIRN does not support references to {parent}, which \
                         has system versioning."
                    ),
                ));
            }
            Some(parent) => {
                for column in &mut key.columns {
                    let missing = ForeignKeyViolation::NoReferencedIndex;
                    column.referenced = self.column(parent, &column.referenced, missing)?;
                }
                let like = Some((self.schema, own));
                let fresh = if is_self { self.fresh } else { &[] };
                let names = key.parent_column_names();
                leading_index_but(parent, &names, like, fresh).map_err(|trouble| {
                    self.index_trouble(ForeignKeyViolation::NoReferencedIndex, &trouble)
                })?;
            }
        }
        self.check_actions(&key, parent)?;
        Ok(key)
    }

    /// The name of a column as the table has it.
    fn column(
        &self,
        schema: &TableSchema,
        name: &str,
        missing: ForeignKeyViolation,
    ) -> Result<String> {
        match schema.find_column(name) {
            Some(column) => Ok(schema.columns[column].name.clone()),
            None => Err(self.fails(
                missing,
                &format!("foreign key {{}} constraint failed. Column {name} was not found."),
            )),
        }
    }

    fn own_index(&self, key: &ForeignKey) -> Result<usize> {
        let names = key.column_names();
        let found = leading_index_but(self.schema, &names, None, self.fresh);
        found
            .or_else(|_| leading_index(self.schema, &names, None))
            .map_err(|trouble| self.index_trouble(ForeignKeyViolation::NoIndex, &trouble))
    }

    fn index_trouble(&self, violation: ForeignKeyViolation, trouble: &IndexTrouble) -> Error {
        let what = match trouble {
            IndexTrouble::Missing => "with foreign key {} constraint failed. There is no index in the referenced \
                                      table where the referenced columns appear as the first columns."
                .to_owned(),
            IndexTrouble::Prefix => "with foreign key {} constraint failed. There is only prefix index in the \
                                     referenced table where the referenced columns appear as the first columns."
                .to_owned(),
            IndexTrouble::Differs { at, column } => {
                let own = &self.new.columns[*at].name;
                format!(
                    "with foreign key {{}} constraint failed. Field type or character set for column '{own}' does \
                     not match referenced column '{column}'."
                )
            }
        };
        self.fails(violation, &what)
    }

    fn check_actions(&self, key: &ForeignKey, parent: Option<&TableSchema>) -> Result<()> {
        let actions = [key.on_delete, key.on_update];
        let is_nullable = |schema: &TableSchema, name: &str| {
            let column = schema.find_column(name);
            column.is_none_or(|column| schema.columns[column].column.null.is_some())
        };
        if actions.contains(&ReferentialAction::SetNull) {
            for column in &key.columns {
                if !is_nullable(self.schema, &column.name) {
                    let name = &column.name;
                    return Err(self.fails(
                        ForeignKeyViolation::NotNull,
                        &format!(
                            "with foreign key {{}} constraint failed. You have defined a SET NULL condition but column \
                             '{name}' is defined as NOT NULL."
                        ),
                    ));
                }
            }
        }
        if !actions.iter().any(|action| action.changes_rows()) {
            return Ok(());
        }
        // A row that a cascade deletes needs no new value.
        let updates = key.on_update.changes_rows() || key.on_delete == ReferentialAction::SetNull;
        if self.new.on_generated_base && updates {
            let table = self.table;
            let text = format!(
                "Create table '{table}' with foreign key constraint failed. Cannot add foreign key constraint placed \
                 on the base column of stored column. "
            );
            return Err(broken(ForeignKeyViolation::Definition, table, "", text));
        }
        let loses_null = |column: &ForeignKeyColumn| {
            parent.is_some_and(|parent| is_nullable(parent, &column.referenced))
                && !is_nullable(self.schema, &column.name)
        };
        let leaves_deletes = matches!(
            key.on_delete,
            ReferentialAction::Restrict | ReferentialAction::SetNull
        );
        if self.request.strict
            && leaves_deletes
            && key.on_update == ReferentialAction::Cascade
            && key.columns.iter().any(loses_null)
        {
            let violation = ForeignKeyViolation::Definition;
            return Err(broken(violation, self.table, "", String::new()));
        }
        Ok(())
    }
}
