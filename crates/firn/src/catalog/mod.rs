//! The catalog: tables and indexes, kept as entries of the store itself.

mod counters;
mod entry;
mod entry_text;
mod indexes;
mod objects;
pub mod schema;
mod shapes;
mod tables;

pub use counters::{Counter, Counters, INDEX_IDS, autoincrement_counter, hidden_row_counter};
pub use entry::{IndexEntry, TableEntry};
pub use indexes::{IndexChange, IndexOrigin};
pub use objects::{ObjectImage, ServerObjectKind};
pub use schema::{
    CollationSchema, ColumnSchema, Difference, IndexPart, IndexSchema, PartSchema, TableSchema,
};
pub use tables::{Catalog, NewTable, CatalogState};

/// The index that holds the catalog.
pub const CATALOG_INDEX: crate::base::IndexId = 0;
