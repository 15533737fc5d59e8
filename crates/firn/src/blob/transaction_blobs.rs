//! The blob files that one transaction uses.

use super::file::BlobFile;
use crate::base::Result;
use std::sync::Arc;

/// Holds the blob files that a transaction writes to, or that a prepared transaction refers to. A
/// held file is not collected. The value is dropped when the transaction's references are visible
/// in a super version, or when the transaction is rolled back.
#[derive(Default)]
pub struct TransactionBlobs {
    held: Vec<(Arc<BlobFile>, u64)>,
}

impl TransactionBlobs {
    /// Holds no file yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether no file is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds `file`. The caller has locked the store's `active` mutex. Otherwise another thread
    /// could seal the file before this transaction holds it, and the blob gc would take it for a
    /// file that it may collect.
    pub(super) fn hold(&mut self, file: &Arc<BlobFile>) {
        if !self.held.iter().any(|(held, _)| Arc::ptr_eq(held, file)) {
            file.pin();
            self.held.push((Arc::clone(file), 0));
        }
    }

    /// Records the `ticket` of a write to `file`, which is held.
    pub(super) fn wrote(&mut self, file: &Arc<BlobFile>, ticket: u64) {
        let held = self.held.iter_mut().find(|(f, _)| Arc::ptr_eq(f, file));
        if let Some((_, last)) = held {
            *last = ticket.max(*last);
        }
    }

    /// Makes the transaction's writes and the names of the written files durable. Call it before a
    /// log record refers to one of the transaction's blobs.
    ///
    /// # Errors
    /// `NoSpace` or `Io`: the transaction's blobs are lost, so it cannot commit. Blobs that were
    /// durable before are not affected.
    pub fn sync(&self) -> Result<()> {
        let mut files = self.held.iter();
        files.try_for_each(|(file, ticket)| file.sync_to(*ticket))
    }

    /// Takes over all holds of `other`.
    pub fn append(&mut self, mut other: Self) {
        self.held.append(&mut other.held);
    }
}

impl Drop for TransactionBlobs {
    fn drop(&mut self) {
        self.held.iter().for_each(|(file, _)| file.unpin());
    }
}
