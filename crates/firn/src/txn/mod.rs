//! Transactions: snapshots, write sets, locks, deadlocks.

pub mod snapshots;
pub mod write_set;

pub use snapshots::{Snapshot, SnapshotList};
pub use write_set::{Mark, SharedWriteSet, WriteSet, WriteSetIter};
