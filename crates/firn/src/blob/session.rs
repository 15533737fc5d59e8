//! What one transaction has written.

use super::file::BlobFile;
use crate::base::Result;
use std::sync::Arc;

/// Blob files that a transaction writes to, or that a prepared one names: none of them is collected
/// while it is held. Dropped once its references are where a view finds them, or are given up.
#[derive(Default)]
pub struct BlobSession {
    held: Vec<(Arc<BlobFile>, u64)>,
}

impl BlobSession {
    /// Nothing held.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Holds `file`, whose active state the caller guards.
    pub(super) fn hold(&mut self, file: &Arc<BlobFile>) {
        if !self.held.iter().any(|(held, _)| Arc::ptr_eq(held, file)) {
            file.pin();
            self.held.push((Arc::clone(file), 0));
        }
    }

    /// A write to `file`, which is held, got this ticket.
    pub(super) fn wrote(&mut self, file: &Arc<BlobFile>, ticket: u64) {
        let held = self.held.iter_mut().find(|(f, _)| Arc::ptr_eq(f, file));
        if let Some((_, last)) = held {
            *last = ticket.max(*last);
        }
    }

    /// Makes everything written durable, and the names of the files. To be called before the log hears
    /// of it.
    ///
    /// # Errors
    /// Of the file system. What was written is lost to this transaction then, and to no other that is
    /// durable already.
    pub fn sync(&self) -> Result<()> {
        let mut files = self.held.iter();
        files.try_for_each(|(file, ticket)| file.sync_to(*ticket))
    }

    /// Takes over what `other` holds.
    pub fn append(&mut self, mut other: Self) {
        self.held.append(&mut other.held);
    }
}

impl Drop for BlobSession {
    fn drop(&mut self) {
        self.held.iter().for_each(|(file, _)| file.unpin());
    }
}
