//! What files are told about the keys of indexes.

use super::tables::Catalog;
use crate::base::IndexId;
use crate::base::shape::{KeyShape, KeyShapes};
use crate::catalog::TableEntry;
use std::collections::HashMap;
use std::sync::Arc;

/// Which table has an index, and under which number, as of one generation of the catalog.
#[derive(Default)]
pub(super) struct Owners {
    /// `None` before the first use.
    generation: Option<u64>,
    tables: HashMap<IndexId, (Arc<TableEntry>, usize)>,
}

impl Owners {
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

impl KeyShapes for Catalog {
    fn shape(&self, index: IndexId) -> Option<Arc<dyn KeyShape>> {
        let (table, number) = {
            let mut owners = self.owners().lock();
            let generation = self.generation();
            if owners.generation != Some(generation) {
                *owners = Owners::of(self.list(""), generation);
            }
            match owners.tables.get(&index).cloned() {
                Some(owner) => owner,
                None => return self.filling_shape(index),
            }
        };
        let ends = table.schema.key_ends(number).ok()?;
        (ends.prefixes() > 0).then(|| Arc::new(ends) as Arc<dyn KeyShape>)
    }
}
