//! The row format of a table, with all its schema versions.

use super::instant_default::InstantDefaultOp;
use super::{Column, DecodePlan, RowLayout, RowVersion};
use crate::base::{Error, Result};
use std::sync::Arc;

/// The row format of a table. Rows are written with the newest layout, and read in the form of the
/// schema version that they were written with. Columns of different versions correspond if they
/// have the same id.
#[derive(Debug, Clone)]
pub struct RowFormat {
    current: Arc<RowLayout>,
    /// Newest first.
    older: Arc<[RowVersion]>,
}

impl RowFormat {
    /// The row format of a table with a single schema version.
    pub fn single(current: RowLayout) -> Self {
        Self {
            current: Arc::new(current),
            older: Arc::default(),
        }
    }

    /// The row format of a table with older schema versions, newest first.
    ///
    /// # Errors
    /// `InvalidArgument` or `Unsupported` if the versions are not in this order, if one has a
    /// number as high as that of `current` or two columns with one id, or if older rows cannot be
    /// read with the current layout: a fixed column has another length, a variable column became
    /// fixed or a fixed one variable, a column became NOT NULL, or a new column has no default.
    pub fn new(current: RowLayout, older: Arc<[RowVersion]>) -> Result<Self> {
        if !older.is_empty() {
            check_readable(&current, &older)?;
        }
        Ok(Self {
            current: Arc::new(current),
            older,
        })
    }

    /// The newest layout, with which rows are written.
    pub fn current(&self) -> &RowLayout {
        &self.current
    }

    /// Encodes the row in `record` and appends it to `head` and `tail`.
    ///
    /// # Safety
    /// As for [`RowLayout::encode`].
    ///
    /// # Errors
    /// As for [`RowLayout::encode`].
    pub unsafe fn encode(
        &self,
        record: &[u8],
        head: &mut Vec<u8>,
        tail: &mut Vec<u8>,
    ) -> Result<()> {
        // SAFETY: the caller of this function keeps the requirement of `RowLayout::encode`: in
        // `record`, the pointers of stored blob columns cover the lengths.
        unsafe { self.current.encode(record, head, tail) }
    }

    /// A plan that decodes the columns whose bit is set in `wanted`, or all columns if `wanted` is
    /// `None`. The bit of column `i` is bit `i % 8` of byte `i / 8`; missing bytes count as zero.
    pub fn plan(&self, wanted: Option<&[u8]>) -> DecodePlan {
        DecodePlan::new(&self.current, &self.older, wanted)
    }
}

/// Checks that rows of all `older` versions can be decoded into records of `current`. Tables are
/// opened often and may have many versions, so this makes no decode programs.
fn check_readable(current: &RowLayout, older: &[RowVersion]) -> Result<()> {
    let stored = current.columns().iter().filter(|column| column.stored);
    let mut columns: Vec<&Column> = stored.collect();
    columns.sort_unstable_by_key(|column| column.id);
    let mut last = current.version();
    // For each column, the number of the last version that was found to have it.
    let mut seen = vec![None; columns.len()];
    for version in older {
        if version.number >= last {
            return Err(Error::invalid("row format versions out of order"));
        }
        last = version.number;
        let mut ids: Vec<u32> = version.columns.iter().map(|column| column.id).collect();
        ids.sort_unstable();
        if ids.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::invalid("two columns with one id"));
        }
        for column in &version.columns {
            if let Ok(at) = columns.binary_search_by_key(&column.id, |of| of.id) {
                column.check_readable_as(columns[at])?;
                seen[at] = Some(version.number);
            }
        }
        for (column, seen) in columns.iter().zip(&seen) {
            if *seen != Some(version.number) {
                InstantDefaultOp::check(column)?;
            }
        }
    }
    Ok(())
}
