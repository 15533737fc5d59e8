//! Plain columns and indexes of test tables. `examples/reads.rs` uses this file too.

use firn::catalog::{ColumnSchema, IndexPart, IndexSchema, NewTable, PartSchema, TableSchema};
use firn::db::Db;
use firn::rowcode::{Column, ColumnKind, InstantDefault};
use firn::table::Table;
use std::sync::Arc;

/// Opens the table `name`, and creates it if it does not exist.
pub fn open_or_create(db: &Db, name: &str, schema: TableSchema) -> Arc<Table> {
    if db.catalog().get(name).is_err() {
        let definition = NewTable {
            schema: schema.clone(),
            frm: b"",
            version: b"",
            created_micros: 0,
        };
        db.catalog().create(name, definition).unwrap();
    }
    Table::open(db.catalog(), name, schema, &[]).unwrap()
}

/// A column that is never NULL.
pub fn column(id: u32, name: &str, kind: ColumnKind, offset: usize) -> ColumnSchema {
    ColumnSchema {
        name: name.to_owned(),
        type_code: 0,
        chars: 0,
        interpretation: 0,
        column: Column {
            id,
            kind,
            offset: offset as u32,
            null: None,
            stored: true,
            instant_default: InstantDefault::Impossible,
        },
    }
}

/// An index over the INT column number `column`, counted from 0.
pub fn int_index(name: &str, unique: bool, column: u32) -> IndexSchema {
    IndexSchema {
        name: name.to_owned(),
        unique,
        parts: vec![IndexPart {
            column,
            kind: PartSchema::Int { signed: true },
            desc: false,
            prefix: None,
            image_len: 4,
        }],
    }
}
