//! All versions of a table's row format.

use super::decode_program::DecodeProgram;
use super::{DecodePlan, RowLayout};
use crate::base::{Error, Result};

/// The row format of a table. Rows are written with the newest layout and read with the layout they
/// were written with. Columns are matched by their ids.
#[derive(Debug, Clone)]
pub struct RowFormat {
    current: RowLayout,
    older: Vec<RowLayout>,
}

impl RowFormat {
    /// The format of a table with one version.
    pub fn single(current: RowLayout) -> Self {
        Self {
            current,
            older: Vec::new(),
        }
    }

    /// A format with older versions, in any order. The record offsets of older versions are
    /// ignored.
    ///
    /// # Errors
    /// `InvalidArgument` or `Unsupported` if two layouts share a version, or rows of an older one
    /// cannot be read as the current one: a fixed column of another length, a variable column that
    /// became fixed, a new column without a default.
    pub fn new(current: RowLayout, mut older: Vec<RowLayout>) -> Result<Self> {
        older.sort_by_key(|layout| std::cmp::Reverse(layout.version()));
        let mut last = current.version();
        for layout in &older {
            if layout.version() >= last {
                return Err(Error::invalid("row format versions out of order"));
            }
            last = layout.version();
        }
        let format = Self { current, older };
        format.make_plan(|_| true)?;
        Ok(format)
    }

    /// The layout that rows are written with.
    pub fn current(&self) -> &RowLayout {
        &self.current
    }

    /// Appends the row in `record` to `head` and `tail`.
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
        // SAFETY: this function shares the requirement on blob pointers with `RowLayout::encode`.
        unsafe { self.current.encode(record, head, tail) }
    }

    /// A plan for the columns whose bit is set in `wanted` (bit `i % 8` of byte `i / 8` for column
    /// `i`; missing bytes count as zero), or for all columns if `wanted` is `None`.
    #[allow(clippy::missing_panics_doc)] // No caller can cause it.
    pub fn plan(&self, wanted: Option<&[u8]>) -> DecodePlan {
        let is_wanted = |i: usize| {
            wanted.is_none_or(|bits| bits.get(i / 8).is_some_and(|byte| byte >> (i % 8) & 1 == 1))
        };
        self.make_plan(is_wanted)
            .expect("the format was checked for all columns when it was made")
    }

    fn make_plan(&self, wanted: impl Fn(usize) -> bool) -> Result<DecodePlan> {
        let programs = std::iter::once(&self.current)
            .chain(&self.older)
            .map(|layout| {
                let program = DecodeProgram::new(layout, &self.current, &wanted)?;
                Ok((layout.version(), program))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(DecodePlan::new(self.current.record_len(), programs))
    }
}
