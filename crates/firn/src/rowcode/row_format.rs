//! The row format of a table, with all its schema versions.

use super::decode_program::DecodeProgram;
use super::{DecodePlan, RowLayout};
use crate::base::{Error, Result};

/// The row format of a table. Rows are written with the newest layout, and read with the layout
/// that they were written with. Columns of different layouts correspond if they have the same id.
#[derive(Debug, Clone)]
pub struct RowFormat {
    current: RowLayout,
    older: Vec<RowLayout>,
}

impl RowFormat {
    /// The row format of a table with a single schema version.
    pub fn single(current: RowLayout) -> Self {
        Self {
            current,
            older: Vec::new(),
        }
    }

    /// The row format of a table with older schema versions, given in any order. The record buffer
    /// offsets in older layouts are not used.
    ///
    /// # Errors
    /// `InvalidArgument` or `Unsupported` if two layouts have the same version, or one in `older`
    /// has a higher version than `current`, or if older rows cannot be read with the current
    /// layout: a fixed column has another length, a variable column became fixed, or a new column
    /// has no default.
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
