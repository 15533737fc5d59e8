//! Which tables refer to which: the foreign keys of all tables, by the referenced table.
//!
//! A copying ALTER moves the old table to another name and the new one to the old name. In between
//! the name has no table, and other sessions may use the tables that refer to it or that it refers
//! to. So the old table stays known under its name until the new one has it: see
//! [`CatalogState::swapped_out`].

use super::catalog_state::CatalogState;
use super::foreign_key::{ForeignKey, database_of, is_copy};
use super::table_entry::TableEntry;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// For each referenced table: the names of referencing tables by the id of the foreign key,
/// `database/name`.
#[derive(Debug, Clone, Default)]
pub(super) struct References {
    by_parent: HashMap<String, BTreeMap<String, String>>,
    /// Tables whose name is free for a moment, by this name.
    swapped_out: BTreeMap<String, Arc<TableEntry>>,
}

/// The id of a foreign key of `table`.
pub(super) fn id_of(table: &str, name: &str) -> String {
    format!("{}/{name}", database_of(table))
}

impl References {
    fn add(&mut self, entry: &TableEntry) {
        for key in &entry.foreign_keys {
            let children = self.by_parent.entry(key.parent.clone()).or_default();
            children.insert(id_of(&entry.name, &key.name), entry.name.clone());
        }
    }

    /// Forgets the keys of `entry`, unless another table has taken over their names: a copying
    /// ALTER that renames installs the new table before it drops the old one.
    fn remove(&mut self, entry: &TableEntry) {
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
}

impl CatalogState {
    /// Adds a table, or replaces the one of its name.
    pub(super) fn put_table(&mut self, entry: Arc<TableEntry>) {
        let name = entry.name.clone();
        let old = self.insert_table(&entry);
        if is_copy(&name) {
            return;
        }
        let swapped = self.references.swapped_out.remove(&name);
        if let Some(old) = old.or(swapped) {
            self.references.remove(&old);
        }
        self.references.add(&entry);
    }

    /// Removes a table.
    pub(super) fn remove_table(&mut self, name: &str) {
        let Some(entry) = self.take_table(name) else {
            return;
        };
        if !is_copy(name) {
            self.references.remove(&entry);
            return;
        }
        // Forget the swapped out table if it is dropped before another table has taken its name.
        let clustered = entry.clustered.id;
        let out = &mut self.references.swapped_out;
        let gone: Vec<String> = out
            .iter()
            .filter(|(_, old)| old.clustered.id == clustered)
            .map(|(name, _)| name.clone())
            .collect();
        for name in gone {
            if let Some(old) = self.references.swapped_out.remove(&name) {
                self.references.remove(&old);
            }
        }
    }

    /// Removes the table from its name, which a copying ALTER is about to give to another table.
    pub(super) fn swap_out(&mut self, name: &str) {
        if let Some(entry) = self.take_table(name) {
            self.references.swapped_out.insert(name.to_owned(), entry);
        }
    }

    /// The table whose name is free for a moment, because a copying ALTER replaces it.
    pub fn swapped_out(&self, name: &str) -> Option<&Arc<TableEntry>> {
        self.references.swapped_out.get(name)
    }

    /// The table called `name`, also while a copying ALTER replaces it.
    pub fn table_or_swapped(&self, name: &str) -> Option<&Arc<TableEntry>> {
        self.tables.get(name).or_else(|| self.swapped_out(name))
    }

    /// Forgets which tables the foreign keys of a table refer to, because the table loses its name.
    pub(super) fn forget_references(&mut self, entry: &TableEntry) {
        self.references.remove(entry);
    }

    /// The foreign keys that refer to `parent`, by their ids, each with its table.
    pub fn referencing(&self, parent: &str) -> Vec<(Arc<TableEntry>, ForeignKey)> {
        let children = self.references.by_parent.get(parent);
        let all = children.into_iter().flatten().filter_map(|(id, child)| {
            let child = self.table_or_swapped(child)?;
            let mut keys = child.foreign_keys.iter();
            let key = keys.find(|key| key.parent == parent && id_of(&child.name, &key.name) == *id);
            Some((Arc::clone(child), key?.clone()))
        });
        all.collect()
    }

    /// Whether a foreign key of the database of `table` has `name`. Foreign keys that a copy of
    /// a table has inherited do not count.
    pub(super) fn is_foreign_key(&self, table: &str, name: &str) -> bool {
        let database = format!("{}/", database_of(table));
        let of_database = self
            .tables
            .range(database.clone()..)
            .take_while(|(table, _)| table.starts_with(&database));
        let mut keys = of_database.flat_map(|(_, entry)| &entry.foreign_keys);
        keys.any(|key| !key.inherited && key.name.eq_ignore_ascii_case(name))
    }
}
