//! The lock of the row that a cursor reads.

use super::mode::{LockWait, ReadMode};
use crate::base::{ErrorKind, Result};
use crate::txn::{Transaction, WaitPolicy};

/// Semi-consistent reading: a scan of the rows themselves shows a row that another transaction has
/// locked as it was last committed. If that row matches, the caller asks for it again, by a move or by
/// the same seek, and then the read waits.
///
/// Whatever is read after [`Self::Shown`] waits for its lock, and every lock that is granted ends that
/// state. So two reads in a row never leave the caller with an unlocked row, and it makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SemiConsistent {
    Off,
    /// Show locked rows.
    Try,
    /// The row last read was shown without its lock: the next read waits.
    Shown,
}

/// What became of a row's lock.
pub(super) enum Locked {
    Yes,
    /// The row is left out.
    Skip,
    /// The row is shown as it was last committed.
    Shown,
}

/// How a cursor locks rows, and what it did with the last one.
pub(super) struct RowLock {
    mode: ReadMode,
    wait: LockWait,
    semi: SemiConsistent,
    /// The last lock was not held before.
    newly: bool,
    /// The last lock was waited for: others may have committed in front of the scan meanwhile.
    waited: bool,
}

impl RowLock {
    pub(super) fn new() -> Self {
        Self {
            mode: ReadMode::Snapshot,
            wait: LockWait::Wait,
            semi: SemiConsistent::Off,
            newly: false,
            waited: false,
        }
    }

    pub(super) fn set_mode(&mut self, mode: ReadMode, wait: LockWait) {
        self.mode = mode;
        self.wait = wait;
        self.semi = SemiConsistent::Off;
        self.forget();
    }

    pub(super) fn is_on(&self) -> bool {
        self.mode != ReadMode::Snapshot
    }

    pub(super) fn set_semi_consistent(&mut self, on: bool) {
        self.semi = match on {
            true => SemiConsistent::Try,
            false => SemiConsistent::Off,
        };
    }

    /// Whether the row last read was shown without its lock.
    pub(super) fn has_shown(&self) -> bool {
        self.semi == SemiConsistent::Shown
    }

    /// The row that was shown is gone, or is not wanted.
    pub(super) fn forget_shown(&mut self) {
        if self.has_shown() {
            self.semi = SemiConsistent::Try;
        }
    }

    pub(super) fn has_waited(&self) -> bool {
        self.waited
    }

    /// The statement is over: its locks are the transaction's.
    pub(super) fn forget(&mut self) {
        self.newly = false;
        self.waited = false;
    }

    /// Locks the row. `may_show`: semi-consistent reading may show it without, which a scan of the rows
    /// themselves may. A scan of a secondary index waits as a lookup does: that is how far InnoDB goes,
    /// and what a whole unique key names is wanted.
    pub(super) fn take(
        &mut self,
        txn: &Transaction,
        row_key: &[u8],
        may_show: bool,
    ) -> Result<Locked> {
        self.forget();
        let ReadMode::Locking(mode) = self.mode else {
            return Ok(Locked::Yes);
        };
        let show = may_show && self.semi == SemiConsistent::Try;
        self.forget_shown();
        let policy = match self.wait {
            LockWait::Wait if show => Some(WaitPolicy::NoWait),
            LockWait::Wait => None,
            LockWait::Fail => Some(WaitPolicy::NoWait),
            LockWait::Skip => Some(WaitPolicy::SkipLocked),
        };
        match txn.lock(row_key, mode, policy) {
            Ok(granted) => {
                self.newly = granted.newly;
                self.waited = granted.waited;
                Ok(Locked::Yes)
            }
            Err(e) if *e.kind() != ErrorKind::LockNotAvailable => Err(e),
            Err(_) if show => {
                self.semi = SemiConsistent::Shown;
                Ok(Locked::Shown)
            }
            Err(_) if self.wait == LockWait::Skip => Ok(Locked::Skip),
            Err(e) => Err(e),
        }
    }

    /// Gives the lock of the row last read back, if reading it took the lock.
    pub(super) fn give_back(&mut self, txn: &Transaction, row_key: &[u8]) {
        self.forget_shown();
        if std::mem::take(&mut self.newly) {
            txn.unlock(row_key);
        }
    }
}
