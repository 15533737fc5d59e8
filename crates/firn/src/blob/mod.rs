//! Out-of-line values: blob files, shared by all transactions, read with one I/O per value.
//!
//! ```text
//! statement: INSERT … 300 KiB → BlobStore::write: compress, reserve a span, write it; a BlobRef
//!                               goes into the row's trailer, so to write set, log, memtable, SSTs
//! commit:    BlobSession::sync → sync the file (one sync serves all earlier writes),
//!            then append the log record that names the blob
//! read:      BlobStore::read   → one positional read, checked, decompressed into the reader's
//!                               buffer
//!            read_prefix         → the same, for the chunks that the prefix needs
//! ```
//!
//! A blob is live as long as an entry refers to it; nothing else counts (`db` collects garbage). So
//! compactions of the tree move references and never blob bytes.

mod ahead;
mod chunks;
mod codec;
mod file;
mod format;
mod live;
mod opened;
mod session;
mod steps;
mod store;

pub use file::{BlobFile, BlobFileIds, LinkHold};
pub use format::{DATA_START, ScannedBlob, scan_blobs};
pub use live::{BlobSpan, holes};
pub use session::TransactionBlobs;
pub use store::{BlobStats, BlobStore, RewrittenBlobFile};

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod races;
