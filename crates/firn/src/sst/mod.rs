//! Sorted string tables: immutable files of sorted entries.
//!
//! A file is a row of data blocks, then all a reader keeps in memory (filters, index, dictionary,
//! properties), then a footer of fixed size. `docs/formats/sst.md` has the bytes,
//! `docs/internals/sst.md` the reasons.
//!
//! Nothing read from a file is trusted: every block carries a checksum that includes its place, and
//! what the checksum lets through is bounds-checked. Damage is an error that names file and offset,
//! never a panic and never other data.

mod block;
mod codec;
mod damage;
mod dictionary;
mod exercise;
mod filter;
mod format;
mod frame;
mod index;
mod iter;
mod properties;
mod reader;
mod tune;
mod verify;
mod writer;

pub use block::Block;
pub use codec::Codec;
pub use exercise::exercise_decoders;
pub use format::FORMAT_VERSION;
pub use iter::SstIter;
pub use properties::{IndexStats, Properties};
pub use reader::{BlockInfo, SstReader};
pub use verify::VerifyReport;
pub use writer::{Layout, SstOptions, SstSummary, SstWriter};

/// The cache that the readers of a database share.
pub type SstBlockCache = crate::cache::BlockCache<Block>;

#[cfg(test)]
mod tests;
