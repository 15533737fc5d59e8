//! Commits and rolls back prepared transactions that no session owns, by xid.

use super::prepared_transactions::{PreparedTransaction, PreparedTransactions};
use super::transaction_context::TransactionContext;
use crate::base::{ErrorKind, IndexId, Result};
use crate::wal::Lsn;
use crate::write::{Changes, CommitRecord, unknown_outcome};
use std::collections::BTreeSet;

impl PreparedTransactions {
    /// Commits the transaction `xid` and waits until the commit is as durable as the flush mode
    /// says. Returns whether `xid` was known.
    ///
    /// # Errors
    /// If the commit cannot be published, the transaction stays prepared: `Poisoned` and
    /// `ShutDown` of the log, `NoSpace` on a full disk, `Corruption` of its batch, `Unsupported` if
    /// no seqno is left.
    ///
    /// Two errors can occur after the commit was published. `Poisoned`: the log fails before the
    /// commit is durable, so its outcome is unknown until restart. `NoSpace`: the database was
    /// opened on a full disk, and the log cannot take the commit record yet.
    pub fn commit(&self, xid: &[u8], cx: &TransactionContext) -> Result<bool> {
        let indexes = |transaction: &PreparedTransaction| transaction.changes.indexes();
        let Some(transaction) = self.take_out(xid, indexes)? else {
            return Ok(false);
        };
        let what = CommitRecord::Prepared {
            xid,
            prepared: transaction.prepared,
            binlog: None,
        };
        let source = cx.ingest.versions().source();
        let changes = &transaction.changes;
        match cx.pipeline.commit_changes(what, changes, source, &[]) {
            Ok(committed) => {
                self.noted.lock().ending.remove(xid);
                for (rows, net) in &transaction.rows {
                    match net {
                        Some(net) => rows.count(*net),
                        None => rows.forget(),
                    }
                }
                release(&transaction, cx);
                match cx.pipeline.wait_durable(committed.lsn) {
                    // Return `NoSpace` as it is: the log has not failed, and writes the commit
                    // record once there is room.
                    Err(error) if *error.kind() == ErrorKind::NoSpace => Err(error),
                    Err(error) => Err(unknown_outcome(&error)),
                    Ok(()) => Ok(true),
                }
            }
            Err(error) => {
                self.insert(xid.to_vec(), transaction);
                self.noted.lock().ending.remove(xid);
                Err(error)
            }
        }
    }

    /// Removes the transaction from `by_xid` and notes its indexes in `Noted::ending`: DDL must not
    /// change its tables yet, since the transaction comes back into `by_xid` if its outcome cannot
    /// be logged.
    fn take_out(
        &self,
        xid: &[u8],
        indexes: impl FnOnce(&PreparedTransaction) -> Result<BTreeSet<IndexId>>,
    ) -> Result<Option<PreparedTransaction>> {
        let mut noted = self.noted.lock();
        let mut by_xid = self.by_xid.lock();
        if let Some(transaction) = by_xid.get(xid) {
            noted.ending.insert(xid.to_vec(), indexes(transaction)?);
        }
        Ok(by_xid.remove(xid))
    }

    /// Rolls the transaction `xid` back. Returns whether `xid` was known.
    ///
    /// # Errors
    /// If the rollback cannot be logged, the transaction stays prepared: `Poisoned` and `ShutDown`
    /// of the log, `NoSpace` on a full disk. `Poisoned` also means that the log failed after it
    /// took the rollback record and before that was durable: the next open may find the transaction
    /// prepared again.
    pub fn rollback(&self, xid: &[u8], cx: &TransactionContext) -> Result<bool> {
        // A damaged batch must not prevent the rollback. Which indexes it has changed cannot be
        // decoded, so `Noted::ending` gets none for it.
        let indexes = |one: &PreparedTransaction| Ok(one.changes.indexes().unwrap_or_default());
        let Some(transaction) = self.take_out(xid, indexes)? else {
            return Ok(false);
        };
        match cx.pipeline.rollback_prepared(xid, transaction.prepared) {
            Ok(lsn) => {
                self.noted.lock().ending.remove(xid);
                release(&transaction, cx);
                cx.blobs.release_after(lsn, transaction.blobs);
                discard(cx, &transaction.changes, lsn)?;
                cx.pipeline.wait_durable(lsn)?;
                Ok(true)
            }
            Err(error) => {
                self.insert(xid.to_vec(), transaction);
                self.noted.lock().ending.remove(xid);
                Err(error)
            }
        }
    }
}

/// Removes the files of a prepared transaction whose rollback record ends at `lsn` in the log.
/// Syncs the log first, in every flush mode: after a crash without that record in the log, recovery
/// finds the transaction prepared again and needs its files.
///
/// # Errors
/// `Poisoned` of the log. The files stay, and the next open removes those that the log does not
/// need.
pub(super) fn discard(cx: &TransactionContext, changes: &Changes, lsn: Lsn) -> Result<()> {
    if let Changes::Run(files) = changes {
        cx.pipeline.sync_to(lsn)?;
        let ids: Vec<u64> = files.iter().map(|file| file.file_id).collect();
        cx.ingest.versions().discard(&ids);
    }
    Ok(())
}

fn release(transaction: &PreparedTransaction, cx: &TransactionContext) {
    if let Some(owner) = &transaction.owner {
        cx.inserts.remove(transaction.inserting, owner);
        cx.locks.release_all(owner);
    }
}
