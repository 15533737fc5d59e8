//! Columns: what they are and where the record buffer has them.

use crate::base::record::{NullBit, Pad};
use crate::base::{Error, Result};

/// How the record buffer holds a column, and so how the row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnKind {
    /// `len` bytes, stored as they are.
    Fixed {
        /// Bytes in the record buffer.
        len: u32,
    },
    /// Text padded to `len` bytes; stored without the padding.
    Char {
        /// Bytes in the record buffer.
        len: u32,
        /// The padding.
        pad: Pad,
    },
    /// A little-endian length of 1 or 2 bytes, then up to `max` bytes.
    VarChar {
        /// Bytes of the length in the record buffer.
        len_bytes: u8,
        /// Most bytes of a value.
        max: u32,
    },
    /// A little-endian length of 1 to 4 bytes, then a pointer to the bytes.
    Blob {
        /// Bytes of the length in the record buffer.
        len_bytes: u8,
    },
}

impl ColumnKind {
    /// Bytes that the column takes in the record buffer.
    pub fn record_len(&self) -> u32 {
        match *self {
            Self::Fixed { len } | Self::Char { len, .. } => len,
            Self::VarChar { len_bytes, max } => u32::from(len_bytes) + max,
            Self::Blob { len_bytes } => u32::from(len_bytes) + size_of::<*const u8>() as u32,
        }
    }

    /// Whether the row keeps the column among the fixed ones.
    pub fn is_fixed(&self) -> bool {
        matches!(self, Self::Fixed { .. })
    }

    /// Whether values have lengths of their own up to a limit of which neither row nor key tells.
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

/// What rows written before the column existed have in it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Missing {
    /// The column is as old as the table: a row without it is damaged.
    #[default]
    Impossible,
    /// NULL.
    Null,
    /// These bytes, as the row would store them: the record form of a fixed column, otherwise the
    /// bytes of the value without length or padding.
    Bytes(Box<[u8]>),
}

/// One column of a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column {
    /// Identifies the column through all versions of the table; never reused within it.
    pub id: u32,
    /// Its form.
    pub kind: ColumnKind,
    /// Where it starts in the record buffer.
    pub offset: u32,
    /// Its NULL bit, if it may be NULL.
    pub null: Option<NullBit>,
    /// Whether rows hold it; virtual columns are not stored.
    pub stored: bool,
    /// What older rows have in it.
    pub missing: Missing,
}
