//! Prepared transactions without a session: found by recovery, or left by a session that ended.

use super::lock_table::{LockOwner, LockTable};
use crate::base::Result;
use crate::write::{Batch, Pipeline, Prepared, What};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A prepared transaction that waits for its outcome.
pub struct Recovered {
    /// Its changes.
    pub batch: Batch,
    /// Its place in the log.
    pub prepared: Prepared,
    /// Who holds its locks.
    pub owner: Option<Arc<LockOwner>>,
}

/// All of them, by xid.
#[derive(Default)]
pub struct PreparedTransactions {
    by_xid: Mutex<BTreeMap<Vec<u8>, Recovered>>,
}

impl PreparedTransactions {
    /// Adds one.
    pub fn insert(&self, xid: Vec<u8>, transaction: Recovered) {
        self.by_xid.lock().insert(xid, transaction);
    }

    /// The xids that wait for their outcome.
    pub fn xids(&self) -> Vec<Vec<u8>> {
        self.by_xid.lock().keys().cloned().collect()
    }

    /// Commits the transaction. Returns whether `xid` was known.
    pub fn commit(&self, xid: &[u8], pipeline: &Pipeline, locks: &LockTable) -> Result<bool> {
        let Some(transaction) = self.by_xid.lock().remove(xid) else {
            return Ok(false);
        };
        let what = What::Prepared {
            xid,
            prepared: transaction.prepared,
            binlog: None,
        };
        match pipeline.commit(what, &transaction.batch, &[]) {
            Ok(committed) => {
                release(&transaction, locks);
                pipeline.wait_durable(committed.lsn)?;
                Ok(true)
            }
            Err(error) => {
                self.insert(xid.to_vec(), transaction);
                Err(error)
            }
        }
    }

    /// Rolls the transaction back. Returns whether `xid` was known.
    pub fn rollback(&self, xid: &[u8], pipeline: &Pipeline, locks: &LockTable) -> Result<bool> {
        let Some(transaction) = self.by_xid.lock().remove(xid) else {
            return Ok(false);
        };
        match pipeline.rollback_prepared(xid, transaction.prepared) {
            Ok(lsn) => {
                release(&transaction, locks);
                pipeline.wait_durable(lsn)?;
                Ok(true)
            }
            Err(error) => {
                self.insert(xid.to_vec(), transaction);
                Err(error)
            }
        }
    }
}

fn release(transaction: &Recovered, locks: &LockTable) {
    if let Some(owner) = &transaction.owner {
        locks.release_all(owner);
    }
}
