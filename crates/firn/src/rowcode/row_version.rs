//! The stored form of the rows of one schema version.

use super::row_layout::{ColumnPosition, ColumnSlot, RowHead};
use super::{Column, ColumnKind};
use crate::base::{Error, Result};

/// A column as the rows of one schema version store it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredColumn {
    /// Id of the column.
    pub id: u32,
    /// Number of bytes in the head; `None` for a variable column, whose bytes are in the tail.
    pub fixed_len: Option<u32>,
    /// Whether the null bitmap has a bit for the column.
    pub nullable: bool,
}

impl StoredColumn {
    /// How rows store `column`; `None` if they do not.
    pub fn of(column: &Column) -> Option<Self> {
        column.stored.then(|| Self {
            id: column.id,
            fixed_len: match column.kind {
                ColumnKind::Fixed { len } => Some(len),
                _ => None,
            },
            nullable: column.null.is_some(),
        })
    }

    /// Checks that values of this stored form can be decoded into `column`.
    pub(super) fn check_readable_as(&self, column: &Column) -> Result<()> {
        let trouble = match column.kind {
            ColumnKind::Fixed { len } if self.fixed_len != Some(len) => "changed its form",
            ColumnKind::Fixed { .. } => "",
            _ if self.fixed_len.is_some() => "changed its form",
            _ => "",
        };
        let trouble = match trouble {
            "" if self.nullable && column.null.is_none() => "became NOT NULL",
            trouble => trouble,
        };
        match trouble {
            "" => Ok(()),
            trouble => Err(Error::unsupported(format_args!(
                "column {} {trouble}",
                self.id
            ))),
        }
    }
}

/// A schema version with the columns that its rows store, in the order in which they store them. It
/// is all that is needed to decode these rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowVersion {
    /// The schema version, which is at the beginning of each row.
    pub number: u32,
    /// The stored columns.
    pub columns: Vec<StoredColumn>,
}

/// Where the rows of a schema version have each column, for lookups by the column's id.
pub(super) struct VersionSlots {
    pub(super) head: RowHead,
    /// Sorted by id.
    by_id: Vec<(StoredColumn, ColumnSlot)>,
}

impl RowVersion {
    pub(super) fn slots(&self) -> VersionSlots {
        let (mut fixed_len, mut vars, mut nullable) = (0, 0, 0);
        let slots = self.columns.iter().map(|&column| {
            let place = match column.fixed_len {
                Some(len) => {
                    fixed_len += len;
                    ColumnPosition::Fixed(fixed_len - len)
                }
                None => {
                    vars += 1;
                    ColumnPosition::Var(vars - 1)
                }
            };
            let null = column.nullable.then(|| {
                nullable += 1;
                nullable - 1
            });
            (column, ColumnSlot { place, null })
        });
        let mut by_id: Vec<_> = slots.collect();
        by_id.sort_unstable_by_key(|(column, _)| column.id);
        VersionSlots {
            head: RowHead::new(self.number, nullable, fixed_len),
            by_id,
        }
    }
}

impl VersionSlots {
    /// Where the rows have `column`; `None` if they lack it.
    ///
    /// # Errors
    /// `Unsupported` if the stored form cannot be decoded into the column.
    pub(super) fn find(&self, column: &Column) -> Result<Option<ColumnSlot>> {
        let found = self.by_id.binary_search_by_key(&column.id, |(of, _)| of.id);
        let Ok(at) = found else {
            return Ok(None);
        };
        let (stored, slot) = self.by_id[at];
        stored.check_readable_as(column)?;
        Ok(Some(slot))
    }
}
