//! The catalog: tables and indexes, kept as entries of the store itself.

mod catalog_state;
mod counters;
mod ddl_copies;
mod ddl_recovery;
mod ddl_session;
pub mod foreign_key;
mod foreign_key_ddl;
mod foreign_key_definition;
mod foreign_key_index;
mod foreign_key_references;
mod index_change;
mod index_key_layouts;
mod index_owners;
mod key_description;
mod metadata_locks;
mod object_image;
pub mod schema;
mod server_objects;
mod table_entry;
mod tables;
mod virtual_columns;

pub use crate::base::key::CATALOG_INDEX;
pub use catalog_state::CatalogState;
pub use counters::{Counter, Counters, INDEX_IDS, autoincrement_counter, hidden_row_counter};
pub use ddl_recovery::{DefinitionFiles, LeftoverFate};
pub use ddl_session::{DdlSession, TableRename};
pub use foreign_key::{ForeignKey, ForeignKeyColumn, ReferentialAction};
pub use foreign_key_definition::{ForeignKeyRequest, NewForeignKey};
pub use index_change::{IndexChange, IndexOrigin};
pub use key_description::KeyDescription;
pub use metadata_locks::MetadataLocks;
pub use object_image::{ObjectImage, ServerObjectKind};
pub use schema::{
    CollationSchema, Collations, ColumnSchema, Difference, IndexPart, IndexSchema, PartSchema,
    SchemaChange, TableLocking, TableSchema, VERSIONS_MAX,
};
pub use table_entry::{IndexEntry, TableEntry};
pub use tables::{Catalog, NewTable};
pub use virtual_columns::VirtualColumns;
