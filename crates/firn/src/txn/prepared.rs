//! Prepared transactions that may outlive their sessions: found by recovery, left by a session that
//! ended, or to be left by one.

use super::lock_table::LockOwner;
use super::transaction_context::TransactionContext;
use crate::base::row_count::RowCount;
use crate::base::{Error, ErrorKind, IndexId, Result};
use crate::binlog::ServerRun;
use crate::blob::TransactionBlobs;
use crate::wal::Lsn;
use crate::write::{Changes, CommitRecord, PreparedLogPin};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A prepared transaction that waits for its outcome.
pub struct PreparedTransaction {
    /// Its changes.
    pub changes: Changes,
    /// Its place in the log.
    pub prepared: PreparedLogPin,
    /// Who holds its locks.
    pub owner: Option<Arc<LockOwner>>,
    /// What it wrote out of line.
    pub blobs: TransactionBlobs,
    /// The run of the host's server that prepared it, if recovery found it and the log names the
    /// run.
    pub run: Option<Arc<ServerRun>>,
    /// By how many rows it changes tables; `None`: recovery does not know.
    pub rows: Vec<(Arc<RowCount>, Option<i64>)>,
}

/// All of them, by xid.
///
/// Tables that they have changed must stay as they are: a commit would write under ids that nothing
/// reads any more. Against a transaction in its session the server's own locks stand, but it
/// releases them before it tells the engine that the session ends. So a transaction that outlives
/// its session is noted from its prepare on, and is in one of the maps at least until its changes
/// are visible.
#[derive(Default)]
pub struct PreparedTransactions {
    by_xid: Mutex<BTreeMap<Vec<u8>, PreparedTransaction>>,
    /// Taken before `by_xid`.
    noted: Mutex<Noted>,
}

/// The indexes that transactions changed which are not in the map of those that wait.
#[derive(Default)]
struct Noted {
    in_sessions: BTreeMap<Vec<u8>, BTreeSet<IndexId>>,
    committing: BTreeMap<Vec<u8>, BTreeSet<IndexId>>,
}

impl PreparedTransactions {
    /// Adds one.
    pub fn insert(&self, xid: Vec<u8>, transaction: PreparedTransaction) {
        self.by_xid.lock().insert(xid, transaction);
    }

    /// Notes one that is still in its session and has changed `indexes`.
    pub(super) fn note(&self, xid: Vec<u8>, indexes: BTreeSet<IndexId>) {
        self.noted.lock().in_sessions.insert(xid, indexes);
    }

    /// It has its outcome, or was [inserted](Self::insert).
    pub(super) fn forget(&self, xid: &[u8]) {
        self.noted.lock().in_sessions.remove(xid);
    }

    /// Refuses to go on if one of them has changed an entry of one of `indexes`.
    ///
    /// # Errors
    /// `LockTimeout` if so, where other engines would wait for a lock; damage of a batch.
    pub fn refuse_if_changed(&self, indexes: &[IndexId]) -> Result<()> {
        let hit = |changed: &BTreeSet<IndexId>| indexes.iter().any(|id| changed.contains(id));
        // All at once: a transaction goes from one map to the next.
        let noted = self.noted.lock();
        let mut found = noted.in_sessions.values().any(hit) || noted.committing.values().any(hit);
        for transaction in self.by_xid.lock().values() {
            found = found || hit(&transaction.changes.indexes()?);
        }
        match found {
            false => Ok(()),
            true => Err(Error::new(
                ErrorKind::LockTimeout,
                "a prepared XA transaction has changed the table: commit it or roll it back",
            )),
        }
    }

    /// The xids that wait for their outcome.
    pub fn xids(&self) -> Vec<Vec<u8>> {
        self.by_xid.lock().keys().cloned().collect()
    }

    /// Those whose run of the host's server the log names.
    pub fn runs(&self) -> Vec<(Vec<u8>, Arc<ServerRun>)> {
        let all = self.by_xid.lock();
        let named = all
            .iter()
            .filter_map(|(xid, one)| Some((xid, one.run.as_ref()?)));
        named
            .map(|(xid, run)| (xid.clone(), Arc::clone(run)))
            .collect()
    }

    /// Ids of the files of all of them.
    pub fn files(&self) -> Vec<u64> {
        let all = self.by_xid.lock();
        let files = all.values().flat_map(|one| one.changes.files());
        files.map(|file| file.file_id).collect()
    }

    /// Commits the transaction. Returns whether `xid` was known.
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
