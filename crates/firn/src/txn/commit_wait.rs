//! A session that waits until its commit is durable.

use super::TransactionContext;
use super::lock_table::{LockOwner, LockTable};
use crate::base::options::CommitDurability;

/// Tells the host that the session of an owner waits for the device, as long as it exists. A thread
/// pool lets another session run meanwhile, so that more commits share a sync.
pub(super) struct CommitWait<'a> {
    owner: &'a LockOwner,
    locks: &'a LockTable,
}

impl<'a> CommitWait<'a> {
    /// `None` in flush modes in which a commit does not wait for the device. Must be called on the
    /// owner's thread.
    pub(super) fn begin(cx: &'a TransactionContext, owner: &'a LockOwner) -> Option<Self> {
        if cx.mutable.commit_durability() != CommitDurability::Sync {
            return None;
        }
        let locks = &cx.locks;
        locks.report_commit_wait(owner, true);
        Some(Self { owner, locks })
    }
}

impl Drop for CommitWait<'_> {
    fn drop(&mut self) {
        self.locks.report_commit_wait(self.owner, false);
    }
}
