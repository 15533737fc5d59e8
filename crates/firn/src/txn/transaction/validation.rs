//! Optimistic tables: a transaction notes what it reads for change and what it writes, and its
//! commit finds out whether another one was first.
//!
//! Rows are read at the read point of plain reads, and no row is locked. [`Transaction::validate`]
//! comes before the log gets the changes, in a commit of one phase and in a prepare:
//! 1. It locks all noted keys, in their order, without waiting. A key that another transaction has
//!    locked is one that this other one is about to commit: the validation fails.
//! 2. It lists the new keys ([`ActiveInserts`]) and looks for gap locks over them,
//!    which transactions that lock rows of the same table may have.
//! 3. At a read point that follows all locks, it looks for versions that are newer than the read.
//!
//! The locks are held until the commit is visible, so the next validation of one of the keys either
//! fails at the lock or finds the new version. `commit_prepared` has nothing left to check.
//!
//! - **Progress.** Validations never make all of each other fail at locks. Each locks its keys in
//!   order, so the key at which it fails is greater than all keys that it holds, and another one
//!   holds that key. So the validation that holds the greatest key has not failed at a lock.
//! - **No deadlock.** A validation never waits.
//! - **Old versions.** A compaction gives a version that all live snapshots see the seqno 0, and
//!   drops a deletion that all see. So the transaction keeps a snapshot from its first noted read
//!   on, also at READ COMMITTED: versions above it keep their seqnos, and deletions stay.
//!
//! Rejected: waiting for the transaction that has locked a key. If it commits, which is nearly
//! certain by then, the validation fails anyway; and the server forbids waits for locks in prepare
//! and commit, where other transactions already wait for this one. Rejected as well: comparing with
//! the write sets of recently committed transactions. They would have to be kept as long as an
//! older transaction runs, even those of transactions that lock their rows.

use super::*;
use crate::base::InternalIterator;
use crate::base::key::{index_id_of, index_prefix};
use crate::base::key_range::prefix_successor;
use crate::env::ReadClass;
use crate::iter::{MergeIter, MvccIter, ReadAt};
use crate::read::{ScanRange, ScanSource, scan_sources};
use crate::txn::active_inserts::ActiveInserts;
use crate::txn::validation_set::Dependency;

const CHANGED_FIRST: &str = "another transaction has changed the same row first";

/// Number of keys after which a validation checks again whether the session was killed.
const KEYS_UNASKED: u32 = 1024;

impl Transaction {
    /// Turns row locks in optimistic tables on or off for the transactions of this session. A
    /// session that applies another server's commits turns them on: it must wait for a lock where a
    /// client could roll back and begin anew.
    pub fn lock_optimistic_tables(&mut self, on: bool) {
        self.locks_optimistic = on;
    }

    /// Whether the transaction locks the rows of optimistic tables. It does at SERIALIZABLE,
    /// because ranges must stay as they were read, and only gap locks ensure that.
    #[inline]
    pub fn locks_optimistic_tables(&self) -> bool {
        self.locks_optimistic || self.isolation == Isolation::Serializable
    }

    /// Prepares for a statement that will note keys for the validation. Must be called before the
    /// statement reads, so that all its reads have one read point: a point that is pinned before
    /// the transaction has a snapshot cannot serve the validation.
    pub fn expect_validation(&mut self) {
        if self.point.is_none() {
            self.keep_for_validation();
        }
    }

    /// As [`Self::pin`], for reads whose rows are noted for the validation.
    pub fn pin_for_validation(&mut self) {
        if self.keep_for_validation() {
            // Drop a read point that was pinned before the snapshot was taken. Without a snapshot,
            // compactions may already have changed the seqnos of versions that are newer than the
            // read point, and the super version of the read point may lack commits below its seqno.
            self.point = None;
        }
        self.pin();
    }

    /// Takes a snapshot that makes compactions keep the versions which the validation must find.
    /// Does nothing if the transaction has a snapshot, or if its first read will take one. Returns
    /// whether it took one.
    fn keep_for_validation(&mut self) -> bool {
        let has_snapshot = self.snapshot.is_some() || self.oldest_read.is_some();
        if has_snapshot || self.isolation.repeats_reads() && !self.autocommit {
            return false;
        }
        let super_versions = &self.cx.super_versions;
        let oldest = self.cx.snapshots.acquire(|| super_versions.visible());
        self.entry.set_snapshot(oldest.seqno());
        self.oldest_read = Some(oldest);
        true
    }

    fn note(&mut self, key: &[u8], dependency: Dependency) -> bool {
        let since = self.pinned().seqno;
        self.validation.note(since, key, dependency)
    }

    /// Notes that the transaction has read the row with this key at the pinned read point, or found
    /// that there is none. Returns whether the statement notes the key for the first time.
    ///
    /// # Panics
    /// If [`Self::pin_for_validation`] was not called in this statement. The same holds for the
    /// other functions that note keys.
    pub fn note_read(&mut self, row_key: &[u8]) -> bool {
        self.note(row_key, Dependency::Read)
    }

    /// Removes a row that [`Self::note_read`] has noted from the validation set, because the row
    /// does not match the condition of the statement.
    pub fn forget_read(&mut self, row_key: &[u8]) {
        self.validation.forget(row_key, Dependency::Read);
    }

    /// Notes that the transaction writes the row with this key. Returns whether the statement notes
    /// it for the first time.
    pub fn note_write(&mut self, row_key: &[u8]) -> bool {
        self.note(row_key, Dependency::Written)
    }

    /// Notes that the transaction gives a row these values of the declared columns of a unique
    /// index. Returns whether the statement notes them for the first time.
    pub fn note_unique(&mut self, declared: &[u8]) -> bool {
        self.note(declared, Dependency::Unique)
    }

    /// Forgets a key that [`Self::note_write`] or [`Self::note_unique`] has noted, because the row
    /// was a duplicate and is not written.
    pub fn forget_write(&mut self, key: &[u8]) {
        self.validation.forget(key, Dependency::Written);
        self.validation.forget(key, Dependency::Unique);
    }

    /// Fails if a committed index entry of `seqno` shows that another transaction has changed a row
    /// since this transaction wrote it. That is possible at READ COMMITTED, where later statements
    /// read at later points. The transaction cannot commit then, and the entry may not fit the
    /// transaction's own version of the row.
    ///
    /// # Errors
    /// `Deadlock`: the transaction must roll back. Those of reading spilled files: `Corruption`,
    /// `Unsupported`, `Io`.
    #[inline]
    pub fn heed_overtaking(&self, row_key: &[u8], seqno: Seqno) -> Result<()> {
        match self.validation.any_before(seqno) {
            true => self.heed_newer_entry(row_key, seqno),
            false => Ok(()),
        }
    }

    #[cold]
    fn heed_newer_entry(&self, row_key: &[u8], seqno: Seqno) -> Result<()> {
        if !self.has_written(row_key)? || !self.validation.was_written_before(row_key, seqno) {
            return Ok(());
        }
        self.cx.locks.count_conflict();
        Err(lost(CHANGED_FIRST))
    }

    /// Writes an entry under a key that is new in its index, with `put`. The validation checks
    /// later that no other transaction has locked the gap of the key.
    ///
    /// # Errors
    /// Those of `put`.
    pub fn insert_to_validate(
        &mut self,
        user_key: &[u8],
        put: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        let index = index_id_of(user_key).ok_or_else(|| Error::invalid("a key without index"))?;
        self.validation.note_insert(index);
        put(self)
    }

    /// Forgets the noted reads of a transaction without writes. Another engine has committed its
    /// part of the transaction already, so this engine's commit must not fail any more.
    pub fn forget_reads(&mut self) {
        if !self.has_writes() {
            self.validation.clear();
        }
    }

    /// Locks all that the transaction depends on, and checks that nobody has changed it since it
    /// was read. Does nothing if the transaction has noted nothing, or has been validated.
    ///
    /// # Errors
    /// `Deadlock`: another transaction was first, and this one must roll back. `Interrupted`; those
    /// of reading files: `Corruption`, `Unsupported`, `Io`.
    #[inline]
    pub(super) fn validate(&mut self) -> Result<()> {
        match self.validation.is_empty() {
            true => Ok(()),
            false => self.validate_keys(),
        }
    }

    #[cold]
    fn validate_keys(&mut self) -> Result<()> {
        let set = std::mem::take(&mut self.validation);
        let validated = self
            .lock_dependencies(&set)
            .and_then(|()| self.claim_new_keys(&set))
            .and_then(|()| self.check_dependencies(&set));
        if validated.is_err() {
            self.validation = set;
        }
        if validated
            .as_ref()
            .is_err_and(|error| *error.kind() == ErrorKind::Deadlock)
        {
            self.cx.locks.count_conflict();
        }
        validated
    }

    fn lock_dependencies(&self, set: &ValidationSet) -> Result<()> {
        let mut passed = 0_u32;
        set.for_each(|key, dependency, _| {
            self.heed_interrupt(&mut passed)?;
            match self.lock(key, dependency.mode(), Some(WaitPolicy::NoWait)) {
                Err(error) if *error.kind() == ErrorKind::LockNotAvailable => {
                    Err(lost("another transaction is about to commit the same row"))
                }
                granted => granted.map(|_| ()),
            }
        })
    }

    fn heed_interrupt(&self, passed: &mut u32) -> Result<()> {
        *passed = passed.wrapping_add(1);
        match passed.is_multiple_of(KEYS_UNASKED) && self.owner.is_interrupted() {
            true => Err(Error::new(
                ErrorKind::Interrupted,
                "while validating a commit",
            )),
            false => Ok(()),
        }
    }

    /// Lists the new keys, so that scans that lock gaps find them, and checks that no other
    /// transaction has locked a gap in which one of them lies. The caller must have locked the rows
    /// before: a scan that finds a new key waits for the lock of its row.
    fn claim_new_keys(&mut self, set: &ValidationSet) -> Result<()> {
        for index in set.inserted() {
            let bit = ActiveInserts::bit_of(index);
            if self.inserting & bit == 0 {
                self.inserting |= bit;
                self.cx.inserts.add(index, &self.owner, &self.writes);
            }
            self.cx.inserts.count_written(index, &self.owner);
        }
        for index in set.inserted() {
            if self.cx.locks.may_lock_gaps(index) {
                self.check_gaps(index)?;
            }
        }
        Ok(())
    }

    /// Checks that no other transaction has locked a gap in which a written key of the index lies.
    /// It also checks the written keys of existing rows. That never fails wrongly: the transaction
    /// has locked these rows, so another transaction cannot have locked a range that contains them.
    fn check_gaps(&self, index: IndexId) -> Result<()> {
        let lower = index_prefix(index);
        let upper = prefix_successor(&lower);
        let mut writes = self.own_writes_within(&lower, upper.as_deref());
        let mut passed = 0_u32;
        let mut more = writes.seek(&lower, crate::base::key::SEQNO_MAX)?;
        while more && writes.key().user_key.starts_with(&lower) {
            self.heed_interrupt(&mut passed)?;
            if self
                .cx
                .locks
                .is_gap_locked(&self.owner, writes.key().user_key)
            {
                return Err(lost(
                    "another transaction has locked a range with a new row",
                ));
            }
            more = writes.next()?;
        }
        Ok(())
    }

    fn check_dependencies(&self, set: &ValidationSet) -> Result<()> {
        // This read point is taken after the validation has locked all keys, so it shows the commit
        // of every transaction that held one of these locks before.
        let latest = self.latest_point();
        let mut passed = 0_u32;
        set.for_each(|key, dependency, since| {
            self.heed_interrupt(&mut passed)?;
            let stands = match dependency {
                Dependency::Read | Dependency::Written => !is_newer(&latest, key, since)?,
                Dependency::Unique => self.is_unique(&latest, key, since)?,
            };
            match stands {
                true => Ok(()),
                false => Err(lost(CHANGED_FIRST)),
            }
        })
    }

    /// Whether at most one row has the declared columns `declared` at `latest`, if the
    /// transaction's own writes count too. If nobody has committed such a row after `since`, the
    /// check by the statement that wrote the transaction's own row still holds.
    fn is_unique(&self, latest: &ReadPoint, declared: &[u8], since: Seqno) -> Result<bool> {
        let upper = prefix_successor(declared);
        let view = &latest.super_version;
        if let Some(upper) = &upper
            && !read::range_changed_since(view, declared, upper, since)
        {
            return Ok(true);
        }
        let range = ScanRange {
            lower: declared.to_vec(),
            upper,
        };
        let own = self.own_writes_within(&range.lower, range.upper.as_deref());
        let own = Box::new(own) as Box<dyn InternalIterator + Send>;
        let sources: Vec<ScanSource> = scan_sources(view, &range, ReadClass::Range, Some(own));
        let mut entries = MvccIter::new(MergeIter::new(sources), ReadAt::snapshot(latest.seqno));
        entries.set_bounds(Some(&range.lower), range.upper.as_deref());
        Ok(!(entries.seek_ge(declared)? && entries.next()?))
    }
}

/// Whether a commit after `since` has written or deleted the key, as far as `latest` shows.
fn is_newer(latest: &ReadPoint, key: &[u8], since: Seqno) -> Result<bool> {
    let view = &latest.super_version;
    if !read::changed_since(view, key, since, latest.seqno) {
        return Ok(false);
    }
    // `changed_since` does not search the files. If they may hold a commit after `since`, it
    // returns `true` for each key, changed or not. So read the newest version of the key to be
    // certain.
    let newest = read::get(view, key, latest.seqno, ReadClass::Point, |key, _| {
        key.seqno
    })?;
    Ok(newest.is_some_and(|newest| newest > since))
}

fn lost(message: &'static str) -> Error {
    Error::new(ErrorKind::Deadlock, message)
}
