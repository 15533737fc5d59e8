//! The key layouts of all indexes, as prefix extractors for the layers that write files and lock
//! keys.

use super::index_owners::IndexOwner;
use super::tables::Catalog;
use crate::base::prefix_extractor::{PrefixExtractor, PrefixExtractors};
use crate::base::{IndexId, Result};
use crate::catalog::TableEntry;
use crate::keycode::KeyPrefixExtractor;
use std::sync::Arc;

impl Catalog {
    /// The table that has `index`, and the index's number.
    pub(super) fn owner(&self, index: IndexId) -> Option<IndexOwner> {
        self.entries().read().owner(index).cloned()
    }

    /// The table that has `index`.
    pub fn table_of_index(&self, index: IndexId) -> Option<Arc<TableEntry>> {
        self.owner(index).map(|(table, _)| table)
    }

    /// As [`Self::owner`]; `None` for a hidden clustered index.
    fn declared_owner(&self, index: IndexId) -> Option<(Arc<TableEntry>, usize)> {
        let (table, number) = self.owner(index)?;
        Some((table, number?))
    }

    /// If `index` is a unique secondary index: an extractor that finds where the declared parts of
    /// an entry end, which are those that the definition of the index names; otherwise `None`.
    /// Transactions lock the declared parts of such an entry as they lock a key.
    ///
    /// # Errors
    /// Those of [`TableSchema::key_prefix_extractor`](super::TableSchema::key_prefix_extractor).
    pub fn unique_prefix_extractor(&self, index: IndexId) -> Result<Option<KeyPrefixExtractor>> {
        let owner = self.declared_owner(index).filter(|(table, number)| {
            index != table.clustered.id && table.schema.indexes[*number].unique
        });
        owner
            .map(|(table, number)| table.schema.key_prefix_extractor(number))
            .transpose()
    }
}

impl PrefixExtractors for Catalog {
    fn prefix_extractor(&self, index: IndexId) -> Option<Arc<dyn PrefixExtractor>> {
        let Some((table, number)) = self.declared_owner(index) else {
            return self.filling_prefix_extractor(index);
        };
        let ends = table.schema.key_prefix_extractor(number).ok()?;
        (ends.prefixes() > 0).then(|| Arc::new(ends) as Arc<dyn PrefixExtractor>)
    }
}
