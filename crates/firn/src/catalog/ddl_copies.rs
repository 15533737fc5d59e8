//! Tables with a name that begins with `#sql`, which the host gives them in the middle of a DDL
//! statement. They are called copies: most are copies of another table.

use super::catalog_state::CatalogState;
use super::foreign_key::{database_of, is_copy};
use super::table_entry::TableEntry;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The statement in which the host gave a table the name of a copy, and the part that the table
/// plays in it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Role<'a> {
    /// The new table of a copying ALTER.
    New(&'a str),
    /// The old table of a copying ALTER.
    Old(&'a str),
    /// The table that EXCHANGE PARTITION is exchanging for a partition.
    Exchanged,
    /// The table belongs to a statement of another kind, neither a copying ALTER nor EXCHANGE
    /// PARTITION. After a crash it is garbage, because another table has the same rows.
    Other,
}

/// The role of the copy called `name`. The mark in [`Role::New`] and [`Role::Old`] is the end of
/// the name, and is the same for both tables of an ALTER.
pub(super) fn role(name: &str) -> Role<'_> {
    let table = base_table(name)
        .split_once('/')
        .map_or("", |(_, table)| table);
    if let Some(mark) = table.strip_prefix("#sql-alter-") {
        return Role::New(mark);
    }
    if let Some(mark) = table.strip_prefix("#sql-backup-") {
        return Role::Old(mark);
    }
    match table.starts_with("#sql-exchange-") {
        true => Role::Exchanged,
        false => Role::Other,
    }
}

/// The name of the old table of an ALTER after it has been renamed. `copy` is the new table of that
/// ALTER, and `mark` the mark of both. The ALTER may move the table to another database.
pub(super) fn backup_of(copy: &TableEntry, mark: &str) -> String {
    let replaced = copy.original.as_deref().unwrap_or(&copy.name);
    format!("{}/#sql-backup-{mark}", database_of(replaced))
}

/// Whether `backup`, which has the name [`backup_of`] gives, is the table that `copy` replaces, and
/// not one that an ALTER with the same mark left before an earlier restart.
pub(super) fn is_replaced_by(backup: &TableEntry, copy: &TableEntry) -> bool {
    let base = |entry: &TableEntry| entry.original.as_deref().map(base_table).map(str::to_owned);
    copy.original.is_none() || base(backup) == base(copy)
}

/// The name of the table of which `name` is a partition, or `name` itself if it is no partition.
pub(super) fn base_table(name: &str) -> &str {
    name.split_once("#P#").map_or(name, |(base, _)| base)
}

/// Whether a rename from `from` to `to` is one step of a statement with several renames. The host
/// may make such a rename to undo the statement, so it must succeed even on a full disk.
pub(super) fn is_step(from: &str, to: &str) -> bool {
    [from, to]
        .iter()
        .any(|name| is_copy(name) || name.contains("#TMP#") || name.contains("#REN#"))
}

/// Whether both entries are partitions of one table. They are if they have the same version,
/// because each definition of a table gets a version of its own.
pub(super) fn is_part(one: &TableEntry, other: &TableEntry) -> bool {
    !one.version.is_empty() && one.version == other.version
}

/// Whether the host is repeating or undoing DDL that a crash has interrupted, and which of its
/// renames have failed since it began.
#[derive(Default)]
pub(super) struct DdlRecovery {
    runs: AtomicBool,
    failed: Mutex<Vec<(String, String)>>,
}

impl DdlRecovery {
    pub(super) fn begin(&self) {
        self.runs.store(true, Ordering::Release);
    }

    pub(super) fn end(&self) {
        self.runs.store(false, Ordering::Release);
    }

    pub(super) fn runs(&self) -> bool {
        self.runs.load(Ordering::Acquire)
    }

    /// Records a rename that has failed during the recovery of DDL. The host ignores the error and
    /// goes on.
    pub(super) fn note_failed(&self, from: &str, to: &str) {
        if self.runs() && is_copy(from) {
            let mut failed = self.failed.lock();
            failed.push((from.to_owned(), to.to_owned()));
        }
    }

    /// Takes the renames that have failed: old and new name.
    pub(super) fn take_failed(&self) -> Vec<(String, String)> {
        std::mem::take(&mut *self.failed.lock())
    }
}

impl CatalogState {
    /// The table called `base`, or its partitions.
    fn at<'a>(&'a self, base: &str) -> impl Iterator<Item = &'a Arc<TableEntry>> + use<'a> {
        let partitions = format!("{base}#P#");
        let from = self.tables.range(partitions.clone()..);
        let from = from.take_while(move |(name, _)| name.starts_with(&partitions));
        self.tables
            .get(base)
            .into_iter()
            .chain(from.map(|(_, entry)| entry))
    }

    /// Whether there is a table with this name.
    pub(super) fn has_table(&self, table: &str) -> bool {
        self.at(table).next().is_some()
    }

    /// The name of a copy that may be the only table with its rows, because the table whose rows it
    /// has is missing or unknown. Such a copy exists between two steps of an ALTER or an EXCHANGE
    /// PARTITION.
    pub fn only_copy(&self) -> Option<&str> {
        let mut copies = self.tables.values().filter(|entry| is_copy(&entry.name));
        let is_only = |copy: &&Arc<TableEntry>| match (role(&copy.name), &copy.original) {
            (Role::Old(_) | Role::Exchanged, Some(original)) => !original.is_empty(),
            (Role::Old(_) | Role::Exchanged, None) => true,
            (Role::New(mark), Some(original)) => {
                let old = backup_of(copy, mark);
                let mut others = self.at(base_table(original));
                !self.has_table(&old) && others.all(|entry| is_part(entry, copy))
            }
            (Role::New(_) | Role::Other, _) => false,
        };
        copies.find(is_only).map(|entry| entry.name.as_str())
    }

    /// The other entries that change when `copy` gets its final name `to`. If `copy` is the last
    /// part of the new table of an ALTER, the entry of the old table is marked as garbage. If
    /// `copy` is the table of an EXCHANGE PARTITION, another table has its old name now; the entry
    /// of that table records under which name it stood before, and the record is removed.
    pub(super) fn end_of_copying(&self, copy: &TableEntry, to: &str) -> Vec<TableEntry> {
        let database = database_of(&copy.name);
        let with_original = |entry: &TableEntry, original: Option<String>| TableEntry {
            original,
            ..entry.clone()
        };
        match role(&copy.name) {
            Role::New(mark) => {
                let mut new = self.at(&format!("{database}/#sql-alter-{mark}"));
                if new.any(|entry| entry.name != copy.name) {
                    return Vec::new();
                }
                self.at(&backup_of(copy, mark))
                    .filter(|old| is_replaced_by(old, copy))
                    .map(|old| with_original(old, Some(String::new())))
                    .collect()
            }
            Role::Exchanged => {
                let table = copy.original.as_ref().and_then(|t| self.tables.get(t));
                let table = table.filter(|table| table.original.as_deref() == Some(to));
                table
                    .map(|table| with_original(table, None))
                    .into_iter()
                    .collect()
            }
            Role::Old(_) | Role::Other => Vec::new(),
        }
    }
}
