//! Which tables refer to which: the foreign keys of all tables, by the referenced table.
//!
//! A copying ALTER moves the old table to another name and the new one to the old name. In between
//! the name has no table, and other sessions may use the tables that refer to it or that it refers
//! to. So the old table stays known under its name until the new one has it: see
//! [`References::swapped_out`].

use super::foreign_key::database_of;
use super::table_entry::TableEntry;
use crate::base::IndexId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// For each referenced table, the foreign keys that refer to it. Maps the id of each foreign key,
/// `database/name`, to the name of the referencing table.
#[derive(Debug, Clone, Default)]
pub(super) struct References {
    by_parent: HashMap<String, BTreeMap<String, String>>,
    /// The copies whose foreign keys refer to a table, by the referenced table. Their foreign keys
    /// are not in `by_parent`, because nobody follows them before the copy has its final name.
    copies: HashMap<String, BTreeSet<String>>,
    /// The old tables that copying ALTERs are replacing, by the name that they had and that no
    /// table has now.
    swapped_out: BTreeMap<String, Arc<TableEntry>>,
}

/// The id of a foreign key of `table`.
pub(super) fn id_of(table: &str, name: &str) -> String {
    format!("{}/{name}", database_of(table))
}

impl References {
    /// Adds the foreign keys of `entry`.
    pub(super) fn add(&mut self, entry: &TableEntry) {
        for key in &entry.foreign_keys {
            let children = self.by_parent.entry(key.parent.clone()).or_default();
            children.insert(id_of(&entry.name, &key.name), entry.name.clone());
        }
    }

    /// Forgets the foreign keys of `entry`, except those whose ids belong to another table by now.
    /// That happens in a copying ALTER, which gives the name and the foreign keys to the new table
    /// before it drops the old one.
    pub(super) fn remove(&mut self, entry: &TableEntry) {
        for key in &entry.foreign_keys {
            if let Some(children) = self.by_parent.get_mut(&key.parent) {
                let id = id_of(&entry.name, &key.name);
                if children.get(&id) == Some(&entry.name) {
                    children.remove(&id);
                }
                if children.is_empty() {
                    self.by_parent.remove(&key.parent);
                }
            }
        }
    }

    /// Adds the foreign keys of a copy.
    pub(super) fn add_copy(&mut self, copy: &TableEntry) {
        for key in &copy.foreign_keys {
            let copies = self.copies.entry(key.parent.clone()).or_default();
            copies.insert(copy.name.clone());
        }
    }

    /// Forgets the foreign keys of a copy.
    pub(super) fn remove_copy(&mut self, copy: &TableEntry) {
        for key in &copy.foreign_keys {
            if let Some(copies) = self.copies.get_mut(&key.parent) {
                copies.remove(&copy.name);
                if copies.is_empty() {
                    self.copies.remove(&key.parent);
                }
            }
        }
    }

    /// The names of the copies whose foreign keys refer to `parent`.
    pub(super) fn copies_referencing(&self, parent: &str) -> impl Iterator<Item = &String> {
        self.copies.get(parent).into_iter().flatten()
    }

    /// Gives a table that is swapped out the foreign keys of `copy`, its entry under the name that
    /// it has meanwhile. Does nothing if `copy` is no such entry.
    pub(super) fn change_swapped(&mut self, copy: &TableEntry) {
        if copy.foreign_keys.is_empty() {
            return;
        }
        let changed = self.swapped_out.iter().find(|(_, old)| {
            old.clustered.id == copy.clustered.id && old.foreign_keys != copy.foreign_keys
        });
        let Some((name, old)) = changed.map(|(name, old)| (name.clone(), Arc::clone(old))) else {
            return;
        };
        let entry = TableEntry {
            foreign_keys: copy.foreign_keys.clone(),
            ..(*old).clone()
        };
        self.remove(&old);
        self.add(&entry);
        self.swapped_out.insert(name, Arc::new(entry));
    }

    /// Keeps `entry` known under `name`, which a copying ALTER is about to give to another table.
    pub(super) fn swap_out(&mut self, name: &str, entry: Arc<TableEntry>) {
        self.swapped_out.insert(name.to_owned(), entry);
    }

    /// The table that had `name` until a copying ALTER took the name away; `None` once another
    /// table has the name.
    pub(super) fn swapped_out(&self, name: &str) -> Option<&Arc<TableEntry>> {
        self.swapped_out.get(name)
    }

    /// Ends [`Self::swap_out`], because another table now gets `name`. Returns the old table.
    pub(super) fn end_swap(&mut self, name: &str) -> Option<Arc<TableEntry>> {
        self.swapped_out.remove(name)
    }

    /// Ends [`Self::swap_out`] of the table with the clustered index `clustered`, and forgets its
    /// foreign keys, because it is dropped before another table has taken its name.
    pub(super) fn drop_swapped(&mut self, clustered: IndexId) {
        let out = self.swapped_out.iter();
        let gone: Vec<String> = out
            .filter(|(_, old)| old.clustered.id == clustered)
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some(old) = self.swapped_out.remove(&name) {
                self.remove(&old);
            }
        }
    }

    /// The foreign keys that refer to `parent`: id, and name of the referencing table.
    pub(super) fn referencing(&self, parent: &str) -> impl Iterator<Item = (&String, &String)> {
        self.by_parent.get(parent).into_iter().flatten()
    }
}
