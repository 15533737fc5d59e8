//! Finds the table that an index belongs to.

use super::table_entry::TableEntry;
use crate::base::IndexId;
use std::collections::HashMap;
use std::sync::Arc;

/// The table of an index, and the index's number in it; no number for a hidden clustered index.
pub(super) type IndexOwner = (Arc<TableEntry>, Option<usize>);

/// The owner of each index. A change of the catalog updates only the indexes of the tables that it
/// changes.
#[derive(Debug, Clone, Default)]
pub(super) struct IndexOwners(HashMap<IndexId, IndexOwner>);

impl IndexOwners {
    /// Adds the indexes of `table`.
    pub(super) fn add(&mut self, table: &Arc<TableEntry>) {
        let clustered = (Arc::clone(table), None);
        self.0.insert(table.clustered.id, clustered);
        for (number, index) in table.indexes.iter().enumerate() {
            self.0.insert(index.id, (Arc::clone(table), Some(number)));
        }
    }

    /// Removes the indexes of `table`.
    pub(super) fn remove(&mut self, table: &Arc<TableEntry>) {
        for id in table.index_ids() {
            // Do not remove an index that belongs to another table entry by now, for example to the
            // entry with the table's new name.
            if self
                .0
                .get(&id)
                .is_some_and(|(owner, _)| Arc::ptr_eq(owner, table))
            {
                self.0.remove(&id);
            }
        }
    }

    /// The table that has `index`, and the index's number.
    pub(super) fn find(&self, index: IndexId) -> Option<&IndexOwner> {
        self.0.get(&index)
    }

    /// Whether the map has exactly the indexes of `tables`, each with its table.
    pub(super) fn are_of<'a>(&self, tables: impl Iterator<Item = &'a Arc<TableEntry>>) -> bool {
        let mut right = Self::default();
        tables.for_each(|table| right.add(table));
        let same = |(id, (table, number)): (&IndexId, &IndexOwner)| {
            let known = self.find(*id);
            known.is_some_and(|(t, n)| Arc::ptr_eq(t, table) && n == number)
        };
        right.0.len() == self.0.len() && right.0.iter().all(same)
    }
}
