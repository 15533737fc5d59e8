//! How a cursor reads.

use crate::iter::{MergeIter, MvccIter};
use crate::read::ScanSource;
use crate::txn::LockMode;

/// How a cursor reads: from a snapshot, or the newest rows under locks, or from a snapshot with a
/// later validation. [`Table::read_mode`] chooses between the last two.
///
/// [`Table::read_mode`]: super::Table::read_mode
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadMode {
    /// The transaction's snapshot.
    Snapshot,
    /// The latest committed rows, each locked.
    Locking(LockMode),
    /// The cursor reads the rows that a plain read sees, and notes each for the validation of the
    /// commit. It never waits.
    Validated(LockMode),
}

/// The reaction of a locking read to a row that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockWait {
    /// Waits up to the session's timeout.
    Wait,
    /// Fails at once.
    Fail,
    /// Leaves the row out.
    Skip,
}

/// The entries that a cursor walks over.
pub(super) type Entries = MvccIter<MergeIter<ScanSource>>;
