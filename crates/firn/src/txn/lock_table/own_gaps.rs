//! The ranges that one owner has locked.

/// The ranges of keys that one owner has locked, kept so that they can be released. The gap lock
/// table splits ranges where those of several owners overlap; the ranges here cover all pieces that
/// belong to this owner.
#[derive(Default)]
pub(super) struct OwnGaps {
    pub(super) ranges: Vec<(Box<[u8]>, Vec<u8>)>,
    /// One bit for each slot with a lock of the owner.
    pub(super) slots: u64,
}
