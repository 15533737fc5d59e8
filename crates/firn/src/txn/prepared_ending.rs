//! Ends prepared transactions that no session owns, by xid.

use super::prepared::{PreparedTransaction, PreparedTransactions};
use super::transaction_context::TransactionContext;
use crate::base::Result;
use crate::wal::Lsn;
use crate::write::{Changes, CommitRecord};

impl PreparedTransactions {
    /// Commits the transaction. Returns whether `xid` was known.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `Io`, `Poisoned`. The transaction stays prepared, unless the
    /// error is that of waiting for durability.
    pub fn commit(&self, xid: &[u8], cx: &TransactionContext) -> Result<bool> {
        let Some(transaction) = self.take_to_commit(xid)? else {
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
                self.noted.lock().committing.remove(xid);
                for (rows, net) in &transaction.rows {
                    match net {
                        Some(net) => rows.count(*net),
                        None => rows.forget(),
                    }
                }
                release(&transaction, cx);
                cx.pipeline.wait_durable(committed.lsn)?;
                Ok(true)
            }
            Err(error) => {
                self.insert(xid.to_vec(), transaction);
                self.noted.lock().committing.remove(xid);
                Err(error)
            }
        }
    }

    /// Takes the transaction out, to be committed. The indexes that it changed stay noted
    /// meanwhile.
    fn take_to_commit(&self, xid: &[u8]) -> Result<Option<PreparedTransaction>> {
        let mut noted = self.noted.lock();
        let mut by_xid = self.by_xid.lock();
        if let Some(transaction) = by_xid.get(xid) {
            let indexes = transaction.changes.indexes()?;
            noted.committing.insert(xid.to_vec(), indexes);
        }
        Ok(by_xid.remove(xid))
    }

    /// Rolls the transaction back. Returns whether `xid` was known.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `Io`, `Poisoned`. The transaction stays prepared, unless the
    /// rollback was already logged.
    pub fn rollback(&self, xid: &[u8], cx: &TransactionContext) -> Result<bool> {
        let Some(transaction) = self.by_xid.lock().remove(xid) else {
            return Ok(false);
        };
        match cx.pipeline.rollback_prepared(xid, transaction.prepared) {
            Ok(lsn) => {
                release(&transaction, cx);
                cx.blobs.release_after(lsn, transaction.blobs);
                discard(cx, &transaction.changes, lsn)?;
                cx.pipeline.wait_durable(lsn)?;
                Ok(true)
            }
            Err(error) => {
                self.insert(xid.to_vec(), transaction);
                Err(error)
            }
        }
    }
}

/// Removes the files of a prepared transaction whose rollback ends at `lsn` in the log. They stay
/// until that is durable, in every flush mode: a crash may bring the transaction back.
///
/// # Errors
/// Those of the log: the next open removes them.
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
        cx.locks.release_all(owner);
    }
}
