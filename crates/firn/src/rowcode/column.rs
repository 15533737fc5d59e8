//! Columns of a table and their form in the record buffer.

use crate::base::record_buffer::{NullBit, Pad};
use crate::base::{Error, Result};

/// The form of a column in the record buffer, which determines its form in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// `len` bytes, stored unchanged.
    Fixed {
        /// Length in the record buffer, bytes.
        len: u32,
    },
    /// Text padded to `len` bytes. It is stored without the padding.
    Char {
        /// Length in the record buffer, bytes.
        len: u32,
        /// The padding.
        pad: Pad,
    },
    /// A little-endian length of 1 or 2 bytes, then up to `max` bytes.
    VarChar {
        /// Size of the length in the record buffer, bytes.
        len_bytes: u8,
        /// Largest length of a value, bytes.
        max: u32,
    },
    /// A little-endian length of 1 to 4 bytes, then a pointer to the bytes.
    Blob {
        /// Size of the length in the record buffer, bytes.
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

    /// Whether the row stores the column among the fixed ones.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed { .. })
    }

    /// Whether values vary in length up to a limit that neither row nor key records.
    pub fn is_open_ended(&self) -> bool {
        matches!(self, Self::VarChar { .. } | Self::Blob { .. })
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

/// The value of a column in rows written before the column existed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum InstantDefault {
    /// The column is as old as the table: a row without it is damaged.
    #[default]
    Impossible,
    /// NULL.
    Null,
    /// These bytes, in stored form: the record form of a fixed column, otherwise the bytes of the
    /// value without length or padding.
    Bytes(Box<[u8]>),
}

/// One column of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Id of the column in all versions of the table; never reused within the table.
    pub id: u32,
    /// Its form.
    pub kind: ColumnKind,
    /// Offset in the record buffer, bytes.
    pub offset: u32,
    /// Its NULL bit, if it may be NULL.
    pub null: Option<NullBit>,
    /// Whether rows hold it; virtual columns are not stored.
    pub stored: bool,
    /// Its value in older rows.
    pub instant_default: InstantDefault,
}
