//! Prepared transactions that may outlive their sessions: found by recovery, left by a session that
//! ended, or to be left by one.

use super::lock_table::LockOwner;
use crate::base::row_count::RowCount;
use crate::base::{Error, ErrorKind, IndexId, Result};
use crate::binlog::ServerRun;
use crate::blob::TransactionBlobs;
use crate::write::{Changes, PreparedLogPin};
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A prepared transaction that waits for its outcome.
pub struct PreparedTransaction {
    /// Its changes.
    pub changes: Changes,
    /// Its place in the log.
    pub prepared: PreparedLogPin,
    /// Owner of its locks.
    pub owner: Option<Arc<LockOwner>>,
    /// The values that it wrote out of line.
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
    pub(super) by_xid: Mutex<BTreeMap<Vec<u8>, PreparedTransaction>>,
    /// Taken before `by_xid`.
    pub(super) noted: Mutex<Noted>,
}

/// The indexes that transactions changed which are not in the map of those that wait.
#[derive(Default)]
pub(super) struct Noted {
    in_sessions: BTreeMap<Vec<u8>, BTreeSet<IndexId>>,
    pub(super) committing: BTreeMap<Vec<u8>, BTreeSet<IndexId>>,
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
}
