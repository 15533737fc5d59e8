//! The locks of the row that a cursor reads, and of its entry in a unique secondary index.

use super::read_mode::{LockWait, ReadMode};
use crate::base::{ErrorKind, Result};
use crate::txn::{Granted, LockMode, Savepoint, Transaction, WaitPolicy};

/// Semi-consistent reading: if another transaction has locked a row, a scan of the clustered index
/// shows the row as it was last committed. If that row matches, the caller asks for it again, by a
/// move or by the same seek, and this second read waits for the lock.
///
/// In state [`Self::Shown`], the next read waits for its lock and ends the state. So of two reads
/// in a row at least one locks its row, and the caller makes progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SemiConsistent {
    Off,
    /// Return rows that other transactions have locked, without waiting.
    Try,
    /// The last read returned a row that another transaction has locked, as it was last committed
    /// and without waiting. The next read must wait for the lock of its row.
    Shown,
}

/// The part of the transaction's lock of a key that a read has added. If the row does not match,
/// the read gives this part back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LockGain {
    /// The transaction had the lock before.
    Nothing,
    /// The lock was shared before, and is exclusive now.
    Exclusive,
    /// The transaction had no lock of the key before.
    Lock,
}

impl LockGain {
    fn of(granted: Granted) -> Self {
        match granted {
            Granted { newly: true, .. } => Self::Lock,
            Granted { upgraded: true, .. } => Self::Exclusive,
            _ => Self::Nothing,
        }
    }

    fn give_back(self, txn: &Transaction, key: &[u8]) {
        match self {
            Self::Nothing => {}
            Self::Exclusive => txn.share_lock(key),
            Self::Lock => txn.unlock(key),
        }
    }
}

/// Outcome of locking a row.
pub(super) enum LockOutcome {
    Yes,
    /// The row is locked by another transaction, and the caller skips it.
    Skip,
    /// The row is shown as it was last committed.
    Shown,
}

/// The lock mode of a cursor, and the state of its last lock.
pub(super) struct RowLock {
    mode: ReadMode,
    wait: LockWait,
    semi: SemiConsistent,
    /// Whether the read of the last row has noted the row for the validation, and the transaction
    /// had not noted it before.
    noted: bool,
    /// The part of the row's lock that the read of the last row has added.
    gained: LockGain,
    /// The last write of the transaction when `gained` was set. If it is not `Nothing`, the row was
    /// not written up to then.
    written_to: Savepoint,
    /// The values of the entry last read that a unique index declares unique, if reading the entry
    /// has locked them; otherwise empty.
    entry: Vec<u8>,
    /// Keys to whose locks the scan has added, and that the scan will meet again, because it went
    /// back. They are rows, or values of a unique index.
    ahead: Vec<(Vec<u8>, LockGain)>,
    /// Whether the lock of the last row or of its entry was granted after a wait, so that others
    /// may have committed ahead of the scan.
    waited: bool,
}

impl RowLock {
    pub(super) fn new() -> Self {
        Self {
            mode: ReadMode::Snapshot,
            wait: LockWait::Wait,
            semi: SemiConsistent::Off,
            noted: false,
            gained: LockGain::Nothing,
            written_to: Savepoint::default(),
            entry: Vec::new(),
            ahead: Vec::new(),
            waited: false,
        }
    }

    pub(super) fn set_mode(&mut self, mode: ReadMode, wait: LockWait) {
        self.mode = mode;
        self.wait = wait;
        self.semi = SemiConsistent::Off;
        self.forget();
    }

    /// Notes that the scan goes back and will meet again the row that it locked last. If the row
    /// does not match then, the lock may be released, as if that second read had taken it.
    pub(super) fn meet_again(&mut self, row_key: &[u8]) {
        if self.gained != LockGain::Nothing {
            self.ahead.push((row_key.to_vec(), self.gained));
        }
        if !self.entry.is_empty() {
            self.ahead
                .push((std::mem::take(&mut self.entry), LockGain::Lock));
        }
    }

    /// Notes that the scan has locked `key`, a row or the values of a unique index, before it reads
    /// the entry, and that the transaction had not locked `key` before. So the lock can be released
    /// if the row turns out not to match.
    pub(super) fn will_meet(&mut self, key: &[u8]) {
        self.ahead.push((key.to_vec(), LockGain::Lock));
    }

    /// The part of the lock of `key` that the scan has added, now or when it met the key before
    /// ([`Self::will_meet`], [`Self::meet_again`]). Removes the key from `ahead`. Nothing if the
    /// statement has written the row meanwhile, by a trigger or a cascade: then the locks of the
    /// row and of its entry must stay.
    fn gain(
        &mut self,
        txn: &Transaction,
        granted: Granted,
        key: &[u8],
        row_key: &[u8],
    ) -> Result<LockGain> {
        let gained = LockGain::of(granted);
        let Some(at) = self.ahead.iter().position(|(other, _)| other == key) else {
            return Ok(gained);
        };
        let (_, before) = self.ahead.swap_remove(at);
        Ok(match gained {
            LockGain::Lock => gained,
            _ if txn.has_written(row_key)? => LockGain::Nothing,
            _ => before,
        })
    }

    /// Whether the cursor's reads take shared locks.
    pub(super) fn is_shared(&self) -> bool {
        self.mode == ReadMode::Locking(LockMode::Shared)
    }

    /// Whether reads lock their rows.
    pub(super) fn is_on(&self) -> bool {
        matches!(self.mode, ReadMode::Locking(_))
    }

    /// Whether reads note their rows for the validation.
    pub(super) fn notes(&self) -> bool {
        matches!(self.mode, ReadMode::Validated(_))
    }

    /// Whether the statement may change the rows that it reads.
    pub(super) fn may_change_rows(&self) -> bool {
        self.mode != ReadMode::Snapshot
    }

    /// Notes the row at `row_key` for the validation.
    pub(super) fn note(&mut self, txn: &mut Transaction, row_key: &[u8]) {
        self.noted = match self.mode {
            ReadMode::Validated(LockMode::Exclusive) => txn.note_write(row_key),
            ReadMode::Validated(LockMode::Shared) => txn.note_read(row_key),
            _ => false,
        };
    }

    /// Removes the row last read from the validation set, if reading it has added it.
    pub(super) fn forget_note(&mut self, txn: &mut Transaction, row_key: &[u8]) {
        if self.notes() && std::mem::take(&mut self.noted) {
            match self.mode {
                ReadMode::Validated(LockMode::Exclusive) => txn.forget_write(row_key),
                _ => txn.forget_read(row_key),
            }
        }
    }

    pub(super) fn set_semi_consistent(&mut self, on: bool) {
        self.semi = match on {
            true => SemiConsistent::Try,
            false => SemiConsistent::Off,
        };
    }

    /// Whether the next row may be shown without its lock.
    pub(super) fn tries_semi_consistent(&self) -> bool {
        self.semi == SemiConsistent::Try
    }

    /// Whether the row last read was shown without its lock.
    pub(super) fn has_shown(&self) -> bool {
        self.semi == SemiConsistent::Shown
    }

    /// Ends the state [`SemiConsistent::Shown`], because the row is gone or does not match.
    pub(super) fn forget_shown(&mut self) {
        if self.has_shown() {
            self.semi = SemiConsistent::Try;
        }
    }

    pub(super) fn has_waited(&self) -> bool {
        self.waited
    }

    /// Forgets which locks the statement has taken, because the statement ends: the locks stay
    /// until the end of the transaction.
    pub(super) fn forget(&mut self) {
        self.forget_last();
        self.ahead.clear();
    }

    /// Forgets that the read of the last row took the locks of the row and its entry, because the
    /// cursor is about to lock another row. The locks stay.
    pub(super) fn forget_last(&mut self) {
        self.noted = false;
        self.gained = LockGain::Nothing;
        self.entry.clear();
        self.waited = false;
    }

    fn policy(&self) -> Option<WaitPolicy> {
        match self.wait {
            LockWait::Wait => None,
            LockWait::Fail => Some(WaitPolicy::NoWait),
            LockWait::Skip => Some(WaitPolicy::SkipLocked),
        }
    }

    /// Locks the declared columns of an entry of a unique secondary index. The caller locks the
    /// entry's row after that. A semi-consistent read may show a row without the row's lock, but
    /// never without this lock.
    pub(super) fn take_entry(
        &mut self,
        txn: &Transaction,
        declared: &[u8],
        row_key: &[u8],
    ) -> Result<LockOutcome> {
        let Some(granted) = self.wait_for(txn, declared)? else {
            return Ok(LockOutcome::Skip);
        };
        if self.gain(txn, granted, declared, row_key)? == LockGain::Lock {
            self.entry.extend_from_slice(declared);
        }
        self.waited = granted.waited;
        Ok(LockOutcome::Yes)
    }

    /// Locks the row. The caller must already have called [`Self::forget_last`] and, for an entry
    /// of a unique secondary index, [`Self::take_entry`]. Only a read of an entry of the
    /// `clustered` index may show the row without its lock, by semi-consistent reading: a scan of a
    /// secondary index and a lookup of a whole unique key wait, as in InnoDB.
    pub(super) fn take(
        &mut self,
        txn: &Transaction,
        row_key: &[u8],
        clustered: bool,
    ) -> Result<LockOutcome> {
        let ReadMode::Locking(mode) = self.mode else {
            return Ok(LockOutcome::Yes);
        };
        let show = clustered && self.semi == SemiConsistent::Try;
        self.forget_shown();
        let policy = match self.wait {
            LockWait::Wait if show => Some(WaitPolicy::NoWait),
            _ => self.policy(),
        };
        match txn.lock(row_key, mode, policy) {
            Ok(granted) => {
                self.gained = match self.gain(txn, granted, row_key, row_key)? {
                    // A scan of a secondary index leaves the row exclusive, as in InnoDB.
                    LockGain::Exclusive if !clustered => LockGain::Nothing,
                    gained => gained,
                };
                self.written_to = txn.savepoint();
                self.waited |= granted.waited;
                Ok(LockOutcome::Yes)
            }
            Err(e) if *e.kind() != ErrorKind::LockNotAvailable => Err(e),
            Err(_) if show => {
                self.semi = SemiConsistent::Shown;
                Ok(LockOutcome::Shown)
            }
            Err(_) if self.wait == LockWait::Skip => Ok(LockOutcome::Skip),
            Err(e) => Err(e),
        }
    }

    /// Locks `key`, a row key or the declared parts of an entry of a unique secondary index, for a
    /// row that the scan has not read yet or does not read. The cursor's [`LockWait`] applies as it
    /// does to rows that the cursor reads. `None` if others hold the lock and the cursor skips
    /// locked rows.
    pub(super) fn wait_for(&self, txn: &Transaction, key: &[u8]) -> Result<Option<Granted>> {
        let ReadMode::Locking(mode) = self.mode else {
            return Ok(None);
        };
        match txn.lock(key, mode, self.policy()) {
            Err(e) if self.wait == LockWait::Skip && *e.kind() == ErrorKind::LockNotAvailable => {
                Ok(None)
            }
            locked => locked.map(Some),
        }
    }

    /// Gives back what reading the last row has added to the locks of the row and of its entry. The
    /// locks stay as they are if the transaction has written the row since, by the cascade of a
    /// function in the condition for example, or if a damaged file leaves that open.
    pub(super) fn give_back(&mut self, txn: &Transaction, row_key: &[u8]) {
        self.forget_shown();
        let gained = match self.is_on() {
            true => std::mem::replace(&mut self.gained, LockGain::Nothing),
            false => LockGain::Nothing,
        };
        let entry = std::mem::take(&mut self.entry);
        if gained == LockGain::Nothing && entry.is_empty() {
            return;
        }
        // Without a write since the lock there is none of this row. Most rows end here: after many
        // writes the lookup costs more than the lock, and may read a file.
        let wrote_since = gained == LockGain::Nothing || txn.savepoint() != self.written_to;
        if wrote_since && txn.has_written(row_key).unwrap_or(true) {
            return;
        }
        gained.give_back(txn, row_key);
        if !entry.is_empty() {
            txn.unlock(&entry);
        }
    }
}
