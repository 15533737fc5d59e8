//! Writes the value of a variable column to its field in the record buffer.

use super::{ColumnKind, damaged};
use crate::base::Result;

/// The place of a variable column in the record buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct ColumnTarget {
    pub(super) offset: u32,
    pub(super) kind: ColumnKind,
}

impl ColumnTarget {
    /// Writes `value` to its field in `record`. For a blob column, `keep` returns an address at
    /// which the bytes stay, and the field gets that address.
    #[inline]
    pub(super) fn write(
        &self,
        value: &[u8],
        record: &mut [u8],
        keep: impl FnOnce(&[u8]) -> *const u8,
    ) -> Result<()> {
        let at = self.offset as usize;
        let field = &mut record[at..at + self.kind.record_len() as usize];
        let len = value.len();
        match self.kind {
            ColumnKind::Char { pad, .. } => {
                let (text, room) = field
                    .split_at_mut_checked(len)
                    .ok_or_else(|| damaged("CHAR longer than its column"))?;
                text.copy_from_slice(value);
                pad.fill(room);
            }
            ColumnKind::VarChar { len_bytes, .. } => {
                let (length, room) = field.split_at_mut(usize::from(len_bytes));
                room.get_mut(..len)
                    .ok_or_else(|| damaged("VARCHAR longer than its column"))?
                    .copy_from_slice(value);
                length.copy_from_slice(&len.to_le_bytes()[..length.len()]);
            }
            ColumnKind::Blob { len_bytes } => {
                let (length, pointer) = field.split_at_mut(usize::from(len_bytes));
                if len as u64 >> (8 * u32::from(len_bytes)) != 0 {
                    return Err(damaged("blob longer than its column"));
                }
                length.copy_from_slice(&len.to_le_bytes()[..length.len()]);
                let address = keep(value) as usize;
                pointer.copy_from_slice(&address.to_ne_bytes());
            }
            ColumnKind::Fixed { .. } => {
                return Err(damaged("a fixed column among the variable ones"));
            }
        }
        Ok(())
    }
}
