//! Iterators over several sources: concatenation, merge, visibility.

mod concat;
mod either;
mod merge;
mod mvcc;
mod tombstone_reports;

pub use concat::{ChildOpener, ConcatIter};
pub(crate) use either::iterator_of_variants;
pub use merge::MergeIter;
pub use mvcc::{Interrupt, MvccIter, ReadAt};
pub use tombstone_reports::TombstoneReports;

#[cfg(test)]
mod tests;
