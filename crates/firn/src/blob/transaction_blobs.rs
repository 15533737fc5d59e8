//! Blob files in use by one transaction.

use super::file::BlobFile;
use crate::base::Result;
use std::sync::Arc;

/// The blob files that a transaction writes to, or that a prepared one refers to. A held file is
/// not collected. The session is dropped once the references are visible in a view, or given up.
#[derive(Default)]
pub struct TransactionBlobs {
    held: Vec<(Arc<BlobFile>, u64)>,
}

impl TransactionBlobs {
    /// A session that holds nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether the session holds nothing.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds `file`. The caller holds the store's `active` mutex, so that no other thread sees the
    /// file sealed and not held in between.
    pub(super) fn hold(&mut self, file: &Arc<BlobFile>) {
        if !self.held.iter().any(|(held, _)| Arc::ptr_eq(held, file)) {
            file.pin();
            self.held.push((Arc::clone(file), 0));
        }
    }

    /// Records the ticket of a write to a held `file`.
    pub(super) fn wrote(&mut self, file: &Arc<BlobFile>, ticket: u64) {
        let held = self.held.iter_mut().find(|(f, _)| Arc::ptr_eq(f, file));
        if let Some((_, last)) = held {
            *last = ticket.max(*last);
        }
    }

    /// Makes the session's writes and the names of its files durable. Call it before the log names
    /// a blob of the session.
    ///
    /// # Errors
    /// `NoSpace` or `Io`: the blobs of this transaction are lost, and it cannot commit. Blobs that
    /// were durable before are safe.
    pub fn sync(&self) -> Result<()> {
        let mut files = self.held.iter();
        files.try_for_each(|(file, ticket)| file.sync_to(*ticket))
    }

    /// Moves the holds of `other` into this session.
    pub fn append(&mut self, mut other: Self) {
        self.held.append(&mut other.held);
    }
}

impl Drop for TransactionBlobs {
    fn drop(&mut self) {
        self.held.iter().for_each(|(file, _)| file.unpin());
    }
}
