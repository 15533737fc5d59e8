//! Finds the table that an index belongs to.

use super::catalog_state::CatalogState;
use super::table_entry::TableEntry;
use crate::base::{IndexId, invariant};
use std::collections::HashMap;
use std::sync::Arc;

/// The table of an index, and the index's number in it; no number for a hidden clustered index.
pub(super) type IndexOwner = (Arc<TableEntry>, Option<usize>);

/// The owner of each index. A change of the catalog changes the entries of its own tables.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexOwners(HashMap<IndexId, IndexOwner>);

impl IndexOwners {
    fn add(&mut self, table: &Arc<TableEntry>) {
        let clustered = (Arc::clone(table), None);
        self.0.insert(table.clustered.id, clustered);
        for (number, index) in table.indexes.iter().enumerate() {
            self.0.insert(index.id, (Arc::clone(table), Some(number)));
        }
    }

    fn remove(&mut self, table: &Arc<TableEntry>) {
        for id in table.index_ids() {
            // Another table may have taken over the index already.
            if self
                .0
                .get(&id)
                .is_some_and(|(owner, _)| Arc::ptr_eq(owner, table))
            {
                self.0.remove(&id);
            }
        }
    }
}

impl CatalogState {
    /// Gives `entry` its name. Returns the table that had the name.
    pub(super) fn insert_table(&mut self, entry: &Arc<TableEntry>) -> Option<Arc<TableEntry>> {
        let old = self.tables.insert(entry.name.clone(), Arc::clone(entry));
        old.iter().for_each(|old| self.owners.remove(old));
        self.owners.add(entry);
        old
    }

    /// Takes the table called `name` out of the catalog.
    pub(super) fn take_table(&mut self, name: &str) -> Option<Arc<TableEntry>> {
        let taken = self.tables.remove(name);
        taken.iter().for_each(|entry| self.owners.remove(entry));
        taken
    }

    /// The table that has `index`, and the index's number.
    pub(super) fn owner(&self, index: IndexId) -> Option<&IndexOwner> {
        self.owners.0.get(&index)
    }

    /// Panics if costly checks are enabled and the owners are not those of the tables.
    pub(super) fn check_owners(&self) {
        if !invariant::enabled() {
            return;
        }
        let mut right = IndexOwners::default();
        self.tables.values().for_each(|table| right.add(table));
        let same = |(id, (table, number)): (&IndexId, &IndexOwner)| {
            let known = self.owner(*id);
            known.is_some_and(|(t, n)| Arc::ptr_eq(t, table) && n == number)
        };
        let all = right.0.len() == self.owners.0.len() && right.0.iter().all(same);
        assert!(all, "the owners of indexes are not those of the tables");
    }
}
