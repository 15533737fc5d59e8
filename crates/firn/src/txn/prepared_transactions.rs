//! Prepared transactions without a session: recovery found them, or their session ended. The list
//! also notes prepared transactions that are still in a session, but may outlive it.

use super::lock_table::LockOwner;
use crate::base::memory_tracker::MemoryCharge;
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
    /// The changes that a commit publishes.
    pub changes: Arc<Changes>,
    /// Counts the memory of the changes.
    pub memory: MemoryCharge,
    /// Pins the WAL segment of its prepare record.
    pub prepared: PreparedLogPin,
    /// The owner of the transaction's row locks; `None` if it holds none.
    pub owner: Option<Arc<LockOwner>>,
    /// The slots of [`super::ActiveInserts`] in which the transaction is listed with its new keys,
    /// as one bit for each slot. The entries in the slots belong to `owner`.
    pub inserting: u64,
    /// Keeps the blobs that the transaction wrote from being removed as garbage.
    pub blobs: TransactionBlobs,
    /// The server run that prepared the transaction, if recovery found the transaction and the log
    /// names the run.
    pub run: Option<Arc<ServerRun>>,
    /// The row counts that a commit changes, each with its net change; `None` if recovery does not
    /// know the change.
    pub rows: Vec<(Arc<RowCount>, Option<i64>)>,
}

/// The prepared transactions that may outlive their sessions or have outlived them, by xid.
///
/// DDL must not replace or drop a table that a prepared transaction has changed: a later commit
/// would write under index ids that nothing reads any more. While the transaction is in its
/// session, the server's metadata locks prevent such DDL. But the server releases these locks
/// before it reports to the engine that the session ends. So a transaction that may outlive its
/// session is noted when it is prepared, and passes through three maps. It enters the next map
/// before it leaves the previous one, or under the same lock:
///
/// 1. `Noted::in_sessions`, while it is in its session;
/// 2. `by_xid`, while it waits for its outcome;
/// 3. `Noted::ending`, from the begin of its commit or rollback until the changes are visible, or
///    the rollback is in the log.
///
/// [`Self::refuse_if_changed`] looks into all of them. Recovery inserts into `by_xid` directly.
#[derive(Default)]
pub struct PreparedTransactions {
    pub(super) by_xid: Mutex<BTreeMap<Vec<u8>, PreparedTransaction>>,
    /// Lock order: before `by_xid`.
    pub(super) noted: Mutex<Noted>,
}

/// The changed indexes of each prepared transaction that is still in its session, or whose commit
/// or rollback has begun, by xid. The other prepared transactions are in
/// [`PreparedTransactions::by_xid`].
#[derive(Default)]
pub(super) struct Noted {
    in_sessions: BTreeMap<Vec<u8>, BTreeSet<IndexId>>,
    pub(super) ending: BTreeMap<Vec<u8>, BTreeSet<IndexId>>,
}

impl PreparedTransactions {
    /// Adds a transaction without a session, which waits for its outcome.
    pub fn insert(&self, xid: Vec<u8>, transaction: PreparedTransaction) {
        self.by_xid.lock().insert(xid, transaction);
    }

    /// Notes a transaction that is still in its session and has changed `indexes`.
    pub(super) fn note(&self, xid: Vec<u8>, indexes: BTreeSet<IndexId>) {
        self.noted.lock().in_sessions.insert(xid, indexes);
    }

    /// Undoes [`Self::note`], because the prepared transaction has got its outcome, or has left its
    /// session and was added with [`Self::insert`].
    pub(super) fn forget(&self, xid: &[u8]) {
        self.noted.lock().in_sessions.remove(xid);
    }

    /// Checks that no prepared transaction has changed an entry of one of `indexes`.
    ///
    /// # Errors `LockTimeout` if one has, because another storage engine would wait here for a lock
    /// that the prepared transaction holds. `Corruption` if the batch of a prepared transaction is
    /// damaged.
    pub fn refuse_if_changed(&self, indexes: &[IndexId]) -> Result<()> {
        let hit = |changed: &BTreeSet<IndexId>| indexes.iter().any(|id| changed.contains(id));
        // Hold the locks of `noted` and `by_xid` at the same time. Otherwise this search would miss
        // a transaction that moves from `by_xid` to `noted.ending` between the two locks.
        let noted = self.noted.lock();
        let mut found = noted.in_sessions.values().any(hit) || noted.ending.values().any(hit);
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

    /// The xids of the transactions that wait for their outcome.
    pub fn xids(&self) -> Vec<Vec<u8>> {
        self.by_xid.lock().keys().cloned().collect()
    }

    /// The xids whose server run ([`PreparedTransaction::run`]) is known, each with this run.
    pub fn runs(&self) -> Vec<(Vec<u8>, Arc<ServerRun>)> {
        let all = self.by_xid.lock();
        let named = all
            .iter()
            .filter_map(|(xid, one)| Some((xid, one.run.as_ref()?)));
        named
            .map(|(xid, run)| (xid.clone(), Arc::clone(run)))
            .collect()
    }

    /// Ids of the spilled files of all prepared transactions without a session.
    pub fn files(&self) -> Vec<u64> {
        let all = self.by_xid.lock();
        let files = all.values().flat_map(|one| one.changes.files());
        files.map(|file| file.file_id).collect()
    }
}
