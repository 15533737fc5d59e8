//! The value of a column in rows that were written before the column was added.
//!
//! `ALTER TABLE … ADD COLUMN` need not rewrite rows. The rows keep the schema version that they
//! were written with, and each decode of such a row writes the column's instant default to the
//! record buffer.

use super::column_target::ColumnTarget;
use super::{Column, ColumnKind, NullBit};
use crate::base::blob_buf::BlobBuf;
use crate::base::{Error, Result};

/// The value of a column in rows written before the column existed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum InstantDefault {
    /// The column exists since the first version of the table, so a row without it is damaged.
    #[default]
    Impossible,
    /// The column is NULL in older rows.
    Null,
    /// The column has these bytes in older rows: for a fixed column the form of the record buffer,
    /// otherwise the bytes of the value without length or padding.
    Bytes(Box<[u8]>),
}

/// A step of a decode program: writes the instant default of one column, or a part of it, into the
/// record buffer. The bytes are the same for all rows of a schema version.
#[derive(Debug, Clone)]
pub(super) enum InstantDefaultOp {
    Null(NullBit),
    Fixed {
        offset: u32,
        bytes: Box<[u8]>,
    },
    Var {
        target: ColumnTarget,
        bytes: Box<[u8]>,
    },
}

impl InstantDefaultOp {
    /// Adds the steps that write the default of `column`, which rows of the schema version lack.
    ///
    /// # Errors
    /// `Invalid` if the column has no default for such rows, or one of another length.
    pub(super) fn add(ops: &mut Vec<Self>, column: &Column, target: ColumnTarget) -> Result<()> {
        let op = match (&column.instant_default, column.null) {
            (InstantDefault::Null, Some(null)) => {
                // The server compares records byte by byte, also in columns that are NULL. So these
                // bytes must be the same in every record.
                let empty = vec![0; column.kind.record_len() as usize].into();
                ops.push(match column.kind {
                    ColumnKind::Fixed { .. } => Self::Fixed {
                        offset: column.offset,
                        bytes: empty,
                    },
                    _ => Self::Var {
                        target,
                        bytes: Box::default(),
                    },
                });
                Self::Null(null)
            }
            (InstantDefault::Bytes(bytes), _) if column.kind.is_fixed() => {
                if bytes.len() != column.kind.record_len() as usize {
                    return Err(Error::invalid("default of the wrong length"));
                }
                Self::Fixed {
                    offset: column.offset,
                    bytes: bytes.clone(),
                }
            }
            (InstantDefault::Bytes(bytes), _) => {
                if !column.kind.has_room(bytes.len()) {
                    return Err(Error::invalid("default longer than its column"));
                }
                Self::Var {
                    target,
                    bytes: bytes.clone(),
                }
            }
            _ => {
                return Err(Error::invalid(format_args!(
                    "column {} is unknown to older rows and has no default for them",
                    column.id
                )));
            }
        };
        ops.push(op);
        Ok(())
    }

    /// Checks that rows which lack `column` can be decoded.
    ///
    /// # Errors
    /// As [`Self::add`].
    pub(super) fn check(column: &Column) -> Result<()> {
        let target = ColumnTarget {
            offset: column.offset,
            kind: column.kind,
        };
        Self::add(&mut Vec::new(), column, target)
    }

    /// Writes this part of the default to `record`. `blobs` keeps the bytes that a BLOB column
    /// points to.
    pub(super) fn run(&self, record: &mut [u8], blobs: &mut BlobBuf) -> Result<()> {
        match self {
            Self::Null(null) => record[null.offset as usize] |= null.mask,
            Self::Fixed { offset, bytes } => {
                let at = *offset as usize;
                record[at..at + bytes.len()].copy_from_slice(bytes);
            }
            Self::Var { target, bytes } => {
                target.write(bytes, record, |bytes| blobs.put(bytes))?;
            }
        }
        Ok(())
    }
}
