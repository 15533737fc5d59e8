//! Key layouts of indexes, for the layers that write files and lock keys.

use super::tables::Catalog;
use crate::base::prefix_extractor::{PrefixExtractor, PrefixExtractors};
use crate::base::{IndexId, Result};
use crate::catalog::TableEntry;
use crate::keycode::KeyPrefixExtractor;
use std::collections::HashMap;
use std::sync::Arc;

/// The table of each index and the index's number in it, as of one generation of the catalog.
#[derive(Default)]
pub(super) struct IndexOwners {
    /// `None` before the first use.
    generation: Option<u64>,
    tables: HashMap<IndexId, (Arc<TableEntry>, usize)>,
}

impl IndexOwners {
    fn of(tables: Vec<Arc<TableEntry>>, generation: u64) -> Self {
        let mut owners = HashMap::new();
        for table in tables {
            for (number, index) in table.indexes.iter().enumerate() {
                owners.insert(index.id, (Arc::clone(&table), number));
            }
        }
        Self {
            generation: Some(generation),
            tables: owners,
        }
    }
}

impl Catalog {
    /// The table that has `index`, and the index's number; `None` for a hidden clustered index.
    fn owner(&self, index: IndexId) -> Option<(Arc<TableEntry>, usize)> {
        let mut owners = self.owners().lock();
        let generation = self.generation();
        if owners.generation != Some(generation) {
            *owners = IndexOwners::of(self.list(""), generation);
        }
        owners.tables.get(&index).cloned()
    }

    /// Finds the end of the declared parts in entries of `index`, if it is a unique secondary
    /// index: these prefixes are locked as keys of their own.
    ///
    /// # Errors
    /// Those of [`TableSchema::key_prefix_extractor`](super::TableSchema::key_ends).
    pub fn unique_prefix_extractor(&self, index: IndexId) -> Result<Option<KeyPrefixExtractor>> {
        let owner = self.owner(index).filter(|(table, number)| {
            index != table.clustered.id && table.schema.indexes[*number].unique
        });
        owner
            .map(|(table, number)| table.schema.key_prefix_extractor(number))
            .transpose()
    }
}

impl PrefixExtractors for Catalog {
    fn prefix_extractor(&self, index: IndexId) -> Option<Arc<dyn PrefixExtractor>> {
        let Some((table, number)) = self.owner(index) else {
            return self.filling_prefix_extractor(index);
        };
        let ends = table.schema.key_prefix_extractor(number).ok()?;
        (ends.prefixes() > 0).then(|| Arc::new(ends) as Arc<dyn PrefixExtractor>)
    }
}
