//! Columns of a table and their form in the record buffer.

use super::InstantDefault;
use crate::base::record_buffer::{NullBit, Pad};
use crate::base::{Error, Result};

/// The form of a column in the record buffer. It determines the column's form in the stored row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// `len` bytes, which the row stores unchanged.
    Fixed {
        /// Length of the column in the record buffer, bytes.
        len: u32,
    },
    /// Text that the record buffer pads to `len` bytes. The row stores it without the padding.
    Char {
        /// Length of the column in the record buffer, bytes.
        len: u32,
        /// The character that pads the text.
        pad: Pad,
    },
    /// In the record buffer: a little-endian length of 1 or 2 bytes, then up to `max` bytes.
    VarChar {
        /// Number of bytes of the length in the record buffer.
        len_bytes: u8,
        /// Largest length of a value, bytes.
        max: u32,
    },
    /// In the record buffer: a little-endian length of 1 to 4 bytes, then a pointer to the value's
    /// bytes.
    Blob {
        /// Number of bytes of the length in the record buffer.
        len_bytes: u8,
    },
}

impl ColumnKind {
    /// Length of the column in the record buffer, bytes.
    pub fn record_len(&self) -> u32 {
        match *self {
            Self::Fixed { len } | Self::Char { len, .. } => len,
            Self::VarChar { len_bytes, max } => u32::from(len_bytes) + max,
            Self::Blob { len_bytes } => u32::from(len_bytes) + size_of::<*const u8>() as u32,
        }
    }

    /// Whether the row stores the column in the head, among the fixed columns.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed { .. })
    }

    /// Whether the length of a value varies, up to a limit that is stored neither in the row nor in
    /// the key.
    pub fn is_open_ended(&self) -> bool {
        matches!(self, Self::VarChar { .. } | Self::Blob { .. })
    }

    /// Whether a value of `len` bytes fits into a variable column of this kind.
    pub(super) fn has_room(&self, len: usize) -> bool {
        let len = len as u64;
        match *self {
            Self::Char { len: max, .. } | Self::VarChar { max, .. } => len <= u64::from(max),
            Self::Blob { len_bytes } => len >> (8 * u32::from(len_bytes)) == 0,
            Self::Fixed { .. } => false,
        }
    }

    pub(super) fn check(&self) -> Result<()> {
        let good = match *self {
            Self::Fixed { .. } => true,
            Self::Char { len, pad } => (len as usize).is_multiple_of(pad.as_bytes().len()),
            Self::VarChar { len_bytes, max } => {
                matches!(len_bytes, 1 | 2) && max < 1 << (8 * u32::from(len_bytes))
            }
            Self::Blob { len_bytes } => matches!(len_bytes, 1..=4),
        };
        if good {
            Ok(())
        } else {
            Err(Error::invalid(format_args!("column kind {self:?}")))
        }
    }
}

/// One column of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Id of the column in all versions of the table; never reused within the table.
    pub id: u32,
    /// The form of the column in record buffer and row.
    pub kind: ColumnKind,
    /// Offset of the column in the record buffer, bytes.
    pub offset: u32,
    /// Position of the column's NULL bit in the record buffer, if the column may be NULL.
    pub null: Option<NullBit>,
    /// Whether rows store the column; they do not store virtual columns.
    pub stored: bool,
    /// Value of the column in rows that were written before the column existed.
    pub instant_default: InstantDefault,
}
