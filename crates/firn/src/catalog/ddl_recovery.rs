//! The end of DDL that a crash has interrupted.
//!
//! After a crash the host repeats or undoes each interrupted statement by its own log of DDL, and
//! ignores errors of the engine while it does. So nothing that the host asks for then may fail for
//! a reason that the statement itself has already passed: see [`Catalog::begin_ddl_recovery`].
//!
//! Afterwards tables may be left that have the name of a copy (`#sql…`), because the host's log was
//! lost, or because one of its steps failed. Most of them are garbage, but one may be the only
//! table with these rows. The catalog therefore notes for which table a copy stands
//! ([`TableEntry::original`], `ddl_copies.rs`), and [`Catalog::end_ddl_recovery`] gives the name
//! back if no table has it. It drops nothing of which it cannot tell that it is garbage.

use super::ddl_copies::{Role, base_table, is_part, role};
use super::ddl_session::TableRename;
use super::foreign_key::{database_of, is_copy};
use super::table_entry::TableEntry;
use super::tables::Catalog;
use crate::base::Result;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The host's definition files: one for each table, and one for each copy. Names are those of
/// tables, `database/table`, never of partitions.
pub trait DefinitionFiles {
    /// The version in the definition file of `table`, empty if the file has none; `None` if there
    /// is no file.
    fn version(&self, table: &str) -> Option<Vec<u8>>;

    /// The tables of `database` that have a definition file, of any engine, in any order.
    fn list(&self, database: &str) -> Vec<String>;

    /// Whether the definition file of `table` is that of a table of this engine.
    fn is_own(&self, table: &str) -> bool;

    /// Sees to it, durably, that the definition file of `table` is the one that belongs to `entry`:
    /// it takes the file of `copy` if that fits, else it writes the image in `entry`. Other files
    /// of
    /// `copy` follow. Returns whether that is so; it is not if the file belongs to another engine's
    /// table.
    fn place(&self, table: &str, copy: &str, entry: &TableEntry) -> bool;

    /// Sees to it, durably, that `table` has its file of partitions: if it is missing, takes that
    /// of a copy with the same `partitions`.
    fn place_partitions(&self, table: &str, partitions: &[&str]);

    /// Removes the files of `copy`, if there are any.
    fn remove(&self, copy: &str);
}

/// The end of a table that has a copy's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftoverFate {
    /// It was garbage.
    Dropped,
    /// It is the only table with its rows, and has this name now.
    Restored(String),
    /// It stays as it is, for this reason.
    Kept(String),
}

type Tables = Vec<Arc<TableEntry>>;

const NAME_IS_UNKNOWN: &str = "an earlier version of the engine did not note for which table it stands; RENAME TABLE \
                               `#mysql50##sql…` gives it a name";

fn name_is_taken(name: &str) -> String {
    format!(
        "another table has the name {name}; drop or rename that one, and start the server again"
    )
}

impl Catalog {
    /// The host begins to repeat or undo the DDL that a crash has interrupted. Until
    /// [`Self::end_ddl_recovery`], drops and renames look at no foreign key: the statements were
    /// checked when they ran, with the settings of their sessions, which the host does not know any
    /// more. The log takes these changes on a full disk, too.
    pub fn begin_ddl_recovery(&self) {
        self.recovery().begin();
    }

    /// The host has repeated or undone what it knows of. Ends what is left over: a copy that is the
    /// only table with its rows gets its name back, other copies are dropped. Calls `report` for
    /// each of them.
    pub fn end_ddl_recovery(
        &self,
        files: &dyn DefinitionFiles,
        report: &mut dyn FnMut(&str, &LeftoverFate),
    ) {
        let failed = self.recovery().take_failed();
        let mut settlement = Settlement {
            catalog: self,
            files,
            report,
        };
        settlement.repeat(&failed);
        settlement.match_definitions();
        settlement.settle_alters();
        settlement.settle_others();
        settlement.match_partitions();
        self.recovery().end();
    }
}

struct Settlement<'a> {
    catalog: &'a Catalog,
    files: &'a dyn DefinitionFiles,
    report: &'a mut dyn FnMut(&str, &LeftoverFate),
}

impl Settlement<'_> {
    fn copies(&self) -> Tables {
        let mut all = self.catalog.list("");
        all.retain(|entry| is_copy(&entry.name));
        all
    }

    /// The table called `base`, or its partitions.
    fn at(&self, base: &str) -> Tables {
        let mut all = self.catalog.list(&format!("{base}#P#"));
        all.extend(self.catalog.get(base));
        all
    }

    fn exists(&self, name: &str) -> bool {
        self.catalog.get(name).is_ok()
    }

    fn rename(&self, from: &str, to: &str) -> Result<()> {
        let text = |name: &str| name.split('/').nth(1).unwrap_or_default().to_owned();
        let rename = TableRename {
            from_text: &text(from),
            to_text: &text(to),
            ..TableRename::default()
        };
        self.catalog.rename_referencing(from, to, &rename)
    }

    fn restore(&mut self, copy: &str, name: &str) {
        let fate = match self.rename(copy, name) {
            Ok(()) => LeftoverFate::Restored(name.to_owned()),
            Err(error) => LeftoverFate::Kept(error.to_string()),
        };
        (self.report)(copy, &fate);
    }

    /// Drops copies. Their files go first, so that no file is left without a table.
    fn drop_all(&mut self, copies: &[Arc<TableEntry>]) {
        for copy in copies {
            self.files.remove(base_table(&copy.name));
            self.drop_only(copy);
        }
    }

    /// Drops a table whose definition file stays.
    fn drop_only(&mut self, table: &TableEntry) {
        let fate = match self.catalog.drop_table(&table.name) {
            Ok(()) => LeftoverFate::Dropped,
            Err(error) => LeftoverFate::Kept(error.to_string()),
        };
        (self.report)(&table.name, &fate);
    }

    fn keep(&mut self, copies: &[Arc<TableEntry>], why: &str) {
        for copy in copies {
            (self.report)(&copy.name, &LeftoverFate::Kept(why.to_owned()));
        }
    }

    /// Repeats renames that have failed. The host has moved its definition file already.
    fn repeat(&mut self, failed: &[(String, String)]) {
        for (from, to) in failed {
            if !is_copy(to) && self.exists(from) && !self.exists(to) {
                self.restore(from, to);
            }
        }
    }

    /// Makes names and definition files fit each other where the host has changed only one of them,
    /// and its log was lost.
    fn match_definitions(&mut self) {
        let all = self.catalog.list("");
        let mut databases: BTreeMap<&str, Tables> = BTreeMap::new();
        for entry in &all {
            let of_database = databases.entry(database_of(&entry.name)).or_default();
            of_database.push(Arc::clone(entry));
        }
        let mut files = BTreeSet::new();
        for (database, tables) in &databases {
            let listed = self.files.list(database);
            for copy in listed.iter().filter(|name| is_copy(name)) {
                self.place_definition(copy, tables);
            }
            files.extend(listed);
        }
        let is_lost = |entry: &&Arc<TableEntry>| {
            !is_copy(&entry.name)
                && base_table(&entry.name) == entry.name
                && !entry.version.is_empty()
                && !files.contains(&entry.name)
        };
        let lost: Tables = all.iter().filter(is_lost).cloned().collect();
        if !lost.is_empty() {
            self.undo_renames(&lost, &files);
        }
    }

    /// Gives partitioned tables their files of partitions, where the host has renamed all
    /// partitions and not the file.
    fn match_partitions(&self) {
        let all = self.catalog.list("");
        let mut partitions: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for entry in all.iter().filter(|entry| !is_copy(&entry.name)) {
            if let Some((table, partition)) = entry.name.split_once("#P#") {
                partitions.entry(table).or_default().push(partition);
            }
        }
        for (table, partitions) in &partitions {
            self.files.place_partitions(table, partitions);
        }
    }

    /// Puts the definition file of a copy in place, if it is that of a table by now: the change of
    /// the table is durable, and the host has not moved the file yet. The version in the file is
    /// that of the table then. Removes the file if it belongs to no table.
    fn place_definition(&self, copy: &str, tables: &Tables) {
        if !matches!(role(copy), Role::New(_) | Role::Old(_)) || !self.files.is_own(copy) {
            return;
        }
        let version = self.files.version(copy).unwrap_or_default();
        let is_of = |entry: &&Arc<TableEntry>| {
            !is_copy(&entry.name) && entry.version == version && !version.is_empty()
        };
        let is_needed = match tables.iter().find(is_of) {
            Some(entry) => !self.files.place(base_table(&entry.name), copy, entry),
            None => !self.at(copy).is_empty(),
        };
        if !is_needed {
            self.files.remove(copy);
        }
    }

    /// Tables without a definition file (`lost`) were renamed, and the host has not moved their
    /// files. Gives them the names of the files that have their versions and no table.
    fn undo_renames(&mut self, lost: &Tables, files: &BTreeSet<String>) {
        let free = files
            .iter()
            .filter(|name| !is_copy(name) && self.at(name).is_empty());
        let versions = free.filter_map(|name| Some((self.files.version(name)?, name)));
        let names: BTreeMap<Vec<u8>, &String> = versions.collect();
        for entry in lost {
            if let Some(name) = names.get(&entry.version) {
                self.restore(&entry.name, name);
            }
        }
    }

    /// Ends copying ALTERs. A crash may have stopped one at any point:
    ///
    /// | table | old table | new table | end |
    /// |---|---|---|---|
    /// | there | | may be a part | the new one is dropped |
    /// | set aside | complete | complete | the old one gets its name back |
    /// | some partitions are new | complete | the other partitions | as before |
    /// | replaced | marked as replaced | | the old one is dropped |
    /// | dropped by the host, maybe in part | | complete | the new one gets the name |
    /// | some partitions are new | | the other partitions | they get their names, too |
    fn settle_alters(&mut self) {
        let mut alters: BTreeMap<(String, String), (Tables, Tables)> = BTreeMap::new();
        for copy in self.copies() {
            let key = |mark: &str| (database_of(&copy.name).to_owned(), mark.to_owned());
            match role(&copy.name) {
                Role::New(mark) => alters.entry(key(mark)).or_default().0.push(copy),
                Role::Old(mark) => alters.entry(key(mark)).or_default().1.push(copy),
                Role::Exchanged | Role::Other => {}
            }
        }
        for (new, old) in alters.into_values() {
            let originals: Option<Vec<&str>> =
                old.iter().map(|entry| entry.original.as_deref()).collect();
            match originals {
                Some(originals) if originals.is_empty() => self.settle_new(&new),
                Some(originals) if originals.iter().all(|name| name.is_empty()) => {
                    self.drop_all(&old);
                    self.settle_new(&new);
                }
                Some(originals) => self.undo_alter(&new, &old, &originals),
                None => {
                    self.keep(&old, NAME_IS_UNKNOWN);
                    self.keep(&new, NAME_IS_UNKNOWN);
                }
            }
        }
    }

    /// Gives the old table of an ALTER its name back, unless the host has decided for the new one.
    fn undo_alter(&mut self, new: &Tables, old: &Tables, originals: &[&str]) {
        let table = base_table(originals[0]);
        let first = new.first();
        let is_over = first.is_some_and(|first| {
            let version = self.files.version(table);
            version.is_some_and(|v| !v.is_empty() && v == first.version)
        });
        if is_over {
            // The host has put the new definition in place, and has recorded the ALTER as done.
            self.settle_new(new);
            if self.catalog.known().has_table(table) && new.iter().all(|e| !self.exists(&e.name)) {
                return self.drop_all(old);
            }
            return;
        }
        // Partitions of the new table may have their final names already.
        let is_new = |entry: &Arc<TableEntry>| new.iter().any(|new| is_part(entry, new));
        let (placed, others): (Tables, Tables) = self.at(table).into_iter().partition(is_new);
        let taken = others
            .iter()
            .any(|entry| originals.contains(&entry.name.as_str()));
        if taken || !self.files.place(table, base_table(&old[0].name), &old[0]) {
            let why = name_is_taken(table);
            self.keep(old, &why);
            self.keep(new, &why);
            return;
        }
        placed.iter().for_each(|entry| self.drop_only(entry));
        for (copy, original) in old.iter().zip(originals) {
            self.restore(&copy.name, original);
        }
        self.files.remove(base_table(&old[0].name));
        self.drop_all(new);
    }

    /// Ends an ALTER of which no old table is set aside.
    fn settle_new(&mut self, new: &Tables) {
        let Some(first) = new.first() else { return };
        let copy = base_table(&first.name);
        let Some(table) = first.original.as_deref().map(base_table) else {
            return self.drop_all(new);
        };
        // Partitions of the new table may have their final names already.
        let others = self.at(table).into_iter();
        let others: Tables = others.filter(|entry| !is_part(entry, first)).collect();
        if let Some(entry) = others.first() {
            let version = self.files.version(table);
            let is_over = version
                .as_ref()
                .is_some_and(|v| !v.is_empty() && *v == first.version);
            let is_free =
                |entry: &Arc<TableEntry>| self.catalog.refuse_prepared_changes(entry).is_ok();
            if !is_over || !others.iter().all(is_free) {
                // The host may have given up the table's definition file, although a prepared
                // transaction keeps the table.
                if is_over || version.is_none() {
                    self.files.place(table, table, entry);
                }
                return self.drop_all(new);
            }
            // The host has put the new definition in place, and has dropped a part of the old
            // table.
            others.iter().for_each(|entry| self.drop_only(entry));
        }
        if !self.files.place(table, copy, first) {
            return self.keep(new, &name_is_taken(table));
        }
        for entry in new {
            let partition = &entry.name[copy.len()..];
            self.restore(&entry.name, &format!("{table}{partition}"));
        }
        self.files.remove(copy);
    }

    /// Ends EXCHANGE PARTITION, and drops copies of other statements.
    ///
    /// The table is set aside, the partition becomes the table, and the table becomes the
    /// partition. After one step the table gets its name back, after two also the partition.
    fn settle_others(&mut self) {
        for copy in self.copies() {
            match role(&copy.name) {
                Role::New(_) | Role::Old(_) => {}
                Role::Other => self.drop_all(&[copy]),
                Role::Exchanged => self.undo_exchange(&copy),
            }
        }
    }

    fn undo_exchange(&mut self, copy: &Arc<TableEntry>) {
        let kept = std::slice::from_ref(copy);
        let Some(original) = copy.original.as_deref() else {
            return self.keep(kept, NAME_IS_UNKNOWN);
        };
        if let Ok(other) = self.catalog.get(original) {
            let Some(before) = other.original.as_deref().filter(|b| !self.exists(b)) else {
                return self.keep(kept, &name_is_taken(original));
            };
            if let Err(error) = self.rename(original, before) {
                return self.keep(kept, &error.to_string());
            }
        }
        self.restore(&copy.name, original);
    }
}
