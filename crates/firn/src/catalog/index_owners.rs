//! Finds the table that an index belongs to.

use super::table_entry::TableEntry;
use crate::base::IndexId;
use std::collections::HashMap;
use std::sync::Arc;

/// The table of an index, and the index's number in it; no number for a hidden clustered index.
pub(super) type IndexOwner = (Arc<TableEntry>, Option<usize>);

/// The owner of each index, as of one generation of the catalog.
#[derive(Default)]
pub(super) struct IndexOwners {
    /// `None` before the first use.
    generation: Option<u64>,
    tables: HashMap<IndexId, IndexOwner>,
}

impl IndexOwners {
    /// The owner of `index`. `tables` returns the tables of `generation`; it is called only if the
    /// known owners are those of another generation.
    pub(super) fn find(
        &mut self,
        index: IndexId,
        generation: u64,
        tables: impl FnOnce() -> Vec<Arc<TableEntry>>,
    ) -> Option<IndexOwner> {
        if self.generation != Some(generation) {
            *self = Self::of(tables(), generation);
        }
        self.tables.get(&index).cloned()
    }

    fn of(tables: Vec<Arc<TableEntry>>, generation: u64) -> Self {
        let mut owners = HashMap::new();
        for table in tables {
            owners.insert(table.clustered.id, (Arc::clone(&table), None));
            for (number, index) in table.indexes.iter().enumerate() {
                owners.insert(index.id, (Arc::clone(&table), Some(number)));
            }
        }
        Self {
            generation: Some(generation),
            tables: owners,
        }
    }
}
