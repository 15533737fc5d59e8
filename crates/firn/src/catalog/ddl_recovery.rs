//! Ends DDL statements that a crash has interrupted.
//!
//! After a crash the host repeats or undoes each interrupted statement with the help of its DDL
//! log, and ignores errors of the engine meanwhile. The statement has passed all checks already. So
//! the drops and renames of this phase must not fail by a check, for example that of foreign keys:
//! see [`Catalog::begin_ddl_recovery`].
//!
//! Afterwards some tables may still have the name of a copy (`#sql…`), because the host's DDL log
//! was lost, or because a step of the host failed. Most of these copies are garbage, but one may be
//! the only table with its rows. The catalog therefore records which table a copy replaces or was
//! before ([`TableEntry::original`], `ddl_copies.rs`). If no table has that name,
//! [`Catalog::end_ddl_recovery`] gives it to the copy. A copy is dropped only if it is certainly
//! garbage.

use super::ddl_copies::{Role, backup_of, base_table, is_part, role};
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
    /// The version of the definition that the server has written into the definition file of
    /// `table`; empty if the file has none, `None` if there is no file.
    fn version(&self, table: &str) -> Option<Vec<u8>>;

    /// The tables of `database` that have a definition file, of any engine, in any order.
    fn list(&self, database: &str) -> Vec<String>;

    /// Whether the definition file of `table` is that of a table of this engine.
    fn is_own(&self, table: &str) -> bool;

    /// Makes sure, durably, that `table` has the definition file that belongs to `entry`: moves the
    /// file of `copy` there if it has the version of `entry`, otherwise writes the image in
    /// `entry`. Moves the file of partitions, too. Returns false if this is impossible, or if
    /// `table` has the definition file of another engine's table.
    fn place(&self, table: &str, copy: &str, entry: &TableEntry) -> bool;

    /// Makes sure, durably, that `table` has its file of partitions. If it is missing, moves there
    /// the file of a copy that has the same `partitions`.
    fn place_partitions(&self, table: &str, partitions: &[&str]);

    /// Removes the files of `copy`, if there are any.
    fn remove(&self, copy: &str);
}

/// The fate of a table with the name of a copy after the recovery of DDL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LeftoverFate {
    /// The table was garbage and is dropped.
    Dropped,
    /// The table is the only one with its rows, and has this name now.
    Restored(String),
    /// The table keeps the name of a copy, for this reason.
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
    /// Call this before the host repeats or undoes the DDL that a crash has interrupted. Until
    /// [`Self::end_ddl_recovery`], drops and renames ignore foreign keys: the statements were
    /// checked when they ran, with the settings of their sessions, which the host no longer knows.
    /// These changes may also use the disk reserve, so that they succeed on a full disk.
    pub fn begin_ddl_recovery(&self) {
        self.recovery().begin();
    }

    /// Call this after the host has repeated or undone the statements in its DDL log. Settles the
    /// copies that are left: a copy that is the only table with its rows gets its name back,
    /// garbage is dropped, and a copy stays if neither is possible. Calls `report` for each of
    /// them.
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

    /// Drops copies. Removes their files first, so that no file is left without a table.
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

    /// Tries again the renames that failed while the host repeated or undid interrupted DDL. The
    /// host has renamed the definition files of these tables already, so the catalog must follow.
    fn repeat(&mut self, failed: &[(String, String)]) {
        for (from, to) in failed {
            if !is_copy(to) && self.exists(from) && !self.exists(to) {
                self.restore(from, to);
            }
        }
    }

    /// If the host's DDL log was lost, a statement may have changed a table's name without its
    /// definition file, or the file without the name. Makes them fit each other.
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

    /// Gives each partitioned table the file in which the server lists its partitions (`.par`):
    /// before the crash the host may have renamed all partitions, but not yet that file.
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

    /// Handles the definition file of `copy`. If a table has the version in the file, the change of
    /// that table is durable, but the host has not moved the file yet: gives the file to the table.
    /// If the file belongs to no table, removes it.
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

    /// The tables in `lost` have no definition file, because they were renamed and the host has not
    /// moved their files. Gives each the name of the file that has its version, if no table has
    /// that name.
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

    /// Ends copying ALTERs. A crash may have stopped one at any point. The first three columns say
    /// which tables exist under which name:
    ///
    /// | the table's name | `#sql-backup-…` | `#sql-alter-…` | end |
    /// |---|---|---|---|
    /// | old table | nothing | maybe a part of the new table | the new table is dropped |
    /// | nothing | old table | new table | the old table gets its name back |
    /// | some partitions of the new table | old table | the others | as in the line above |
    /// | new table | old table, marked as replaced | nothing | the old table is dropped |
    /// | nothing, or a part of the old table | nothing | new table | it gets the name |
    /// | some partitions of the new table | nothing | the others | they get their names, too |
    fn settle_alters(&mut self) {
        // By the name that the old table has meanwhile.
        let mut alters: BTreeMap<String, (Tables, Tables)> = BTreeMap::new();
        for copy in self.copies() {
            match role(&copy.name) {
                Role::New(mark) => {
                    let backup = backup_of(&copy, mark);
                    alters.entry(backup).or_default().0.push(copy);
                }
                Role::Old(_) => {
                    let backup = base_table(&copy.name).to_owned();
                    alters.entry(backup).or_default().1.push(copy);
                }
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

    /// Gives the old table of an ALTER its name back, unless the host has already put the
    /// definition of the new table in place.
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

    /// Ends a copying ALTER that a crash has interrupted. `new` are the tables that it has filled.
    /// No table has the name that an ALTER gives to the old table for a while, or that table is no
    /// longer needed.
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
                // The host may have removed the table's definition file, although a prepared
                // transaction keeps the table from being dropped.
                if is_over || version.is_none() {
                    self.files.place(table, table, entry);
                }
                return self.drop_all(new);
            }
            // The host has put the new definition in place, and was dropping the old table when the
            // crash came: it may have dropped some partitions already. Drop what is left.
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

    /// Undoes each interrupted EXCHANGE PARTITION, and drops copies of other statements.
    ///
    /// EXCHANGE PARTITION makes three renames: the table gets the name of a copy, the partition
    /// gets the table's name, and the copy gets the partition's name. If a crash came after the
    /// first, the table gets its name back; if after the second, the partition, too.
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
