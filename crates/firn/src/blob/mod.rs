//! Values out of line: blob files, written by all, read with one I/O a value.
//!
//! ```text
//! statement: INSERT … 300 KiB → BlobStore::write: compress, reserve a span, write it; a BlobRef goes
//!                               into the row's trailer, and so into write set, log, memtable, SSTs
//! commit:    BlobSession::sync → the file is synced (one sync serves all that was written before it)
//!            then the log record that names the blob
//! read:      BlobStore::read   → one positional read, checked, decompressed into the reader's buffer;
//!            read_prefix         → the same of the chunks that the beginning needs
//! ```
//!
//! Which blobs live follows from what refers to them, and from nothing else (`db` collects). So
//! compactions of the tree move references and never bytes.

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
pub use live::{Span, holes};
pub use session::BlobSession;
pub use store::{BlobStats, BlobStore, Rewritten};

#[cfg(test)]
mod interleavings;
#[cfg(test)]
mod races;
