//! Blobs: long values that are stored outside of the rows, in blob files. All transactions write to
//! the same blob file, and a read of a value takes one I/O.
//!
//! ```text
//! statement: INSERT … 300 KiB → BlobStore::write: compress, reserve a span, write it; a BlobRef
//!                               goes into the row's trailer, so to write set, log, memtable, SSTs
//! commit:    TransactionBlobs::sync → sync the file (one sync serves all earlier writes),
//!            then append the log record that names the blob
//! read:      BlobStore::read   → one positional read, checked, decompressed into the reader's
//!                               buffer
//!            read_prefix         → the same, for the chunks that the prefix needs
//! ```
//!
//! A blob is live as long as an entry refers to it, and for no other reason; `db::background`
//! collects the garbage. Compactions of the tree move references, but never the bytes of blobs.

mod chunks;
mod file;
mod file_cache;
mod format;
mod holes;
mod pack;
mod pause_points;
mod pooled;
mod store;
mod transaction_blobs;
mod value_compression;
mod zero_fill;

pub use file::{BlobFile, BlobFileIds, LinkHold};
pub use format::{DATA_START, ScannedBlob, scan_blobs};
pub use holes::{BlobSpan, holes};
pub use store::{BlobStats, BlobStore, RewrittenBlobFile};
pub use transaction_blobs::TransactionBlobs;

#[cfg(test)]
mod race_tests;
#[cfg(test)]
mod tests;
