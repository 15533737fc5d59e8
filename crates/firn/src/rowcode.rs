//! Packed row format, schema versions, decode plans.
//!
//! A row is a [`crate::base::Value`] of two parts. `head`: schema version, null bitmap, fixed
//! columns in the form of the record buffer. `tail`: lengths of the variable columns, then their
//! bytes. All three parts are found without a schema ([`split_tail`]), so a block may store them
//! separately. Example: `(7, NULL, 'ab')` of `(INT, INT NULL, VARCHAR(9))`, version 1:
//!
//! ```text
//! head: 01 | 01 | 07 00 00 00  00 00 00 00      version, null bitmap, two integers
//! tail: 01 | 02 | 61 62                         bytes of lengths, length, bytes
//! ```
//!
//! [`RowFormat`] encodes with the newest [`RowLayout`] and decodes rows of every version with a
//! [`DecodePlan`], created once per set of wanted columns.

mod column;
mod decode_plan;
mod decode_program;
mod row_format;
mod row_layout;

pub use crate::base::record_buffer::{NullBit, Pad};
pub use column::{Column, ColumnKind, InstantDefault};
pub use decode_plan::DecodePlan;
pub use decode_program::OutOfLineColumn;
pub use row_format::RowFormat;
pub use row_layout::{RowLayout, split_tail};

use crate::base::Error;

/// An error for a damaged row. The reader of the file adds its name and the offset.
fn damaged(what: &str) -> Error {
    Error::corruption("", 0, format_args!("row: {what}"))
}

#[cfg(test)]
mod tests;
