//! The stored form of rows: packed rows, their schema versions, and plans for decoding them.
//!
//! A stored row is a [`crate::base::Value`] of two parts. The head has the schema version, the null
//! bitmap, and the fixed columns in the form of the record buffer. The tail has the lengths of the
//! variable columns, then their bytes. [`split_tail`] separates these lengths from the bytes
//! without knowing the schema, and the value itself separates head and tail, so a block can store
//! heads, lengths and bytes in three sections. Example: `(7, NULL, 'ab')` of `(INT, INT NULL,
//! VARCHAR(9))`, schema version 1:
//!
//! ```text
//! head: 01 | 01 | 07 00 00 00  00 00 00 00      version, null bitmap, two integers
//! tail: 01 | 02 | 61 62                         bytes of lengths, length, bytes
//! ```
//!
//! [`RowFormat`] encodes rows with the newest [`RowLayout`]. It decodes rows of all schema versions
//! with a [`DecodePlan`], which is created once for each set of wanted columns.

mod column;
mod column_target;
mod decode_plan;
mod decode_program;
mod instant_default;
mod row_format;
mod row_layout;
mod row_version;

pub use crate::base::record_buffer::{NullBit, Pad};
pub use column::{Column, ColumnKind};
pub use decode_plan::DecodePlan;
pub use decode_program::OutOfLineColumn;
pub use instant_default::InstantDefault;
pub use row_format::RowFormat;
pub use row_layout::{RowLayout, split_tail};
pub use row_version::{RowVersion, StoredColumn};

use crate::base::Error;

/// An error for a damaged row. The reader of the file adds the file's name and the offset.
fn damaged(what: &str) -> Error {
    Error::corruption("", 0, format_args!("row: {what}"))
}

#[cfg(test)]
mod tests;
