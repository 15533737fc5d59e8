//! Loads a table row by row, if each row must be accepted or refused at once. No other session sees
//! the table.
//!
//! Rows are committed in pieces, without row locks. A load that fails leaves the committed rows
//! behind as garbage, which is removed with the ids of the dropped table.

use super::Table;
use super::row_scratch::RowScratch;
use super::write_options::{WriteFlags, WriteOutcome};
use crate::base::Result;
use crate::txn::{Isolation, LockOwner, Transaction, TransactionContext};
use std::sync::Arc;

/// Approximate bytes of the rows in one commit. A commit takes fewer if the limit for a
/// transaction's memory, or for a batch, is small.
const PIECE_BYTES: u64 = 4 << 20;

/// A row-by-row load that has begun.
pub(super) struct RowLoad {
    table: Arc<Table>,
    transaction: Transaction,
    pieces: u64,
}

impl RowLoad {
    pub(super) fn new(
        table: Arc<Table>,
        cx: &Arc<TransactionContext>,
        owner: Arc<LockOwner>,
    ) -> Self {
        let transaction = Transaction::new(Arc::clone(cx), owner);
        Self {
            table,
            transaction,
            pieces: 0,
        }
    }

    /// Inserts a row.
    ///
    /// # Safety
    /// Blob columns of `record` must point to the bytes of their values.
    ///
    /// # Errors
    /// Those of [`Table::insert`].
    pub(super) unsafe fn insert(
        &mut self,
        record: &[u8],
        flags: WriteFlags,
        scratch: &mut RowScratch,
    ) -> Result<WriteOutcome> {
        // End the piece well before the transaction would spill, or its commit would write files.
        let context = self.transaction.context();
        let limit = context.mutable.write_set_limit();
        let limit = limit.min(context.pipeline.batch_bytes_max());
        if self.transaction.write_bytes() >= PIECE_BYTES.min(limit / 2) {
            self.commit_piece()?;
        }
        if !self.transaction.is_active() {
            self.transaction
                .begin_statement(self.pieces, Isolation::ReadCommitted, 0, true);
        }
        let flags = WriteFlags {
            private: true,
            ..flags
        };
        // SAFETY: the caller promises that blob columns of `record` point to their bytes, and the
        // callee needs no more.
        unsafe {
            self.table
                .insert(&mut self.transaction, record, flags, scratch)
        }
    }

    /// Remembers a used auto-increment value.
    pub(super) fn use_autoincrement(&mut self, value: u64) {
        self.table.use_autoincrement(&mut self.transaction, value);
    }

    /// Commits the last piece.
    pub(super) fn finish(&mut self) -> Result<()> {
        self.commit_piece()
    }

    fn commit_piece(&mut self) -> Result<()> {
        self.pieces += 1;
        self.transaction.commit_unsynced()
    }
}
