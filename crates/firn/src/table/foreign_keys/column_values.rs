//! Values of the columns of foreign keys in record buffers.

use crate::base::record_buffer::take_len;
use crate::catalog::ColumnSchema;
use crate::keycode::Collator;
use crate::rowcode::ColumnKind;

/// The bytes of a column; `None` if it is NULL. CHAR comes without padding. A blob, which no
/// foreign key has, is empty.
fn value<'a>(column: &ColumnSchema, record: &'a [u8]) -> Option<&'a [u8]> {
    let of = &column.column;
    if of.null.is_some_and(|null| null.is_set(record)) {
        return None;
    }
    let at = of.offset as usize;
    let field = &record[at..at + of.kind.record_len() as usize];
    Some(match of.kind {
        ColumnKind::Fixed { .. } => field,
        ColumnKind::Char { pad, .. } => &field[..pad.stripped_len(field)],
        ColumnKind::VarChar { len_bytes, .. } => {
            let (len, bytes) = take_len(field, len_bytes);
            &bytes[..len.min(bytes.len())]
        }
        ColumnKind::Blob { .. } => &[],
    })
}

/// Whether a column has different bytes in the two records. Values that are equal by the column's
/// collation may still differ.
pub(super) fn differs(column: &ColumnSchema, old: &[u8], new: &[u8]) -> bool {
    value(column, old) != value(column, new)
}

/// Whether a column is NULL.
pub(super) fn is_null(column: &ColumnSchema, record: &[u8]) -> bool {
    value(column, record).is_none()
}

/// Makes a column NULL. Returns false if the column is NOT NULL.
pub(super) fn set_null(column: &ColumnSchema, record: &mut [u8]) -> bool {
    let of = &column.column;
    let Some(null) = of.null else {
        return false;
    };
    null.set(record, true);
    let at = of.offset as usize;
    record[at..at + of.kind.record_len() as usize].fill(0);
    true
}

/// The room of a text column.
pub(super) struct TextLimit<'a> {
    /// The most characters; 0 for no text.
    pub(super) chars: u32,
    pub(super) collator: Option<&'a dyn Collator>,
}

impl TextLimit<'_> {
    fn allows(&self, text: &[u8]) -> bool {
        match self.collator {
            Some(collator) if self.chars > 0 => collator.chars(text) <= self.chars as usize,
            _ => true,
        }
    }
}

/// Gives the column `to` the value that `from` has in `source`. Returns false if the value does not
/// fit into the column.
pub(super) fn copy(
    from: &ColumnSchema,
    source: &[u8],
    to: &ColumnSchema,
    limit: &TextLimit<'_>,
    record: &mut [u8],
) -> bool {
    let Some(value) = value(from, source) else {
        return set_null(to, record);
    };
    let of = &to.column;
    let at = of.offset as usize;
    let field = &mut record[at..at + of.kind.record_len() as usize];
    let fits = match of.kind {
        ColumnKind::Fixed { len } => len as usize == value.len(),
        ColumnKind::Char { len, .. } => value.len() <= len as usize && limit.allows(value),
        ColumnKind::VarChar { max, .. } => value.len() <= max as usize && limit.allows(value),
        ColumnKind::Blob { .. } => false,
    };
    if !fits {
        return false;
    }
    match of.kind {
        ColumnKind::Char { pad, .. } => {
            let (text, rest) = field.split_at_mut(value.len());
            text.copy_from_slice(value);
            pad.fill(rest);
        }
        ColumnKind::VarChar { len_bytes, .. } => {
            let (len, text) = field.split_at_mut(usize::from(len_bytes));
            len.copy_from_slice(&value.len().to_le_bytes()[..usize::from(len_bytes)]);
            text[..value.len()].copy_from_slice(value);
        }
        ColumnKind::Fixed { .. } | ColumnKind::Blob { .. } => field.copy_from_slice(value),
    }
    if let Some(null) = of.null {
        null.set(record, false);
    }
    true
}
