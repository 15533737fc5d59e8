//! The plain columns and indexes of test tables. `examples/reads.rs` has them, too.

use firn::catalog::{ColumnSchema, IndexPart, IndexSchema, PartSchema};
use firn::rowcode::{Column, ColumnKind, Missing};

/// A column that is never NULL.
pub fn column(id: u32, name: &str, kind: ColumnKind, offset: usize) -> ColumnSchema {
    ColumnSchema {
        name: name.to_owned(),
        type_code: 0,
        chars: 0,
        column: Column {
            id,
            kind,
            offset: offset as u32,
            null: None,
            stored: true,
            missing: Missing::Impossible,
        },
    }
}

/// An index over the INT column at place `column`.
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
