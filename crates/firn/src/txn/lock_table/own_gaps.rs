//! The ranges that one owner has locked.

/// The ranges of one owner, for their release. Together they cover its segments.
#[derive(Default)]
pub(super) struct OwnGaps {
    pub(super) ranges: Vec<(Box<[u8]>, Vec<u8>)>,
    /// One bit for each slot with a lock of the owner.
    pub(super) slots: u64,
}
