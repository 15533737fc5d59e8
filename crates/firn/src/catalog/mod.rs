//! The catalog: tables and indexes, kept as entries of the store itself.

mod counters;
mod table_entry;
mod key_description;
mod index_change;
mod server_objects;
pub mod schema;
mod prefix_extractors;
mod tables;

pub use counters::{Counter, Counters, INDEX_IDS, autoincrement_counter, hidden_row_counter};
pub use table_entry::{IndexEntry, TableEntry};
pub use index_change::{IndexChange, IndexOrigin};
pub use server_objects::{ObjectImage, ServerObjectKind};
pub use schema::{
    CollationSchema, ColumnSchema, Difference, IndexPart, IndexSchema, PartSchema, TableSchema,
};
pub use tables::{Catalog, NewTable, CatalogState};

/// The index that holds the catalog.
pub const CATALOG_INDEX: crate::base::IndexId = 0;
