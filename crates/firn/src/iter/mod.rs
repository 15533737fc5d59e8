//! Iterators over several sources: concatenation, merge, visibility.

mod concat;
mod merge;
mod mvcc;

pub use concat::{ChildOpener, ConcatIter};
pub use merge::MergeIter;
pub use mvcc::{Interrupt, MvccIter, ReadAt};

#[cfg(test)]
mod tests;
