//! The ranges that one owner has locked.

/// The ranges that one owner has locked, kept so that they can be released. Together they cover the
/// segments of the gap lock table that belong to the owner.
#[derive(Default)]
pub(super) struct OwnGaps {
    pub(super) ranges: Vec<(Box<[u8]>, Vec<u8>)>,
    /// One bit for each slot with a lock of the owner.
    pub(super) slots: u64,
}
