//! Gap locks that a transaction's reads take, and inserts, which wait for gap locks of other
//! transactions.

use super::*;
use crate::base::InternalIterator;
use crate::base::key::index_id_of;
use crate::txn::active_inserts::{ActiveInserts, Nearest};
use crate::txn::lock_table::GapGrant;

impl Transaction {
    /// Whether locking reads also lock the gaps between rows, as they do from REPEATABLE READ on.
    pub fn locks_gaps(&self) -> bool {
        self.isolation.repeats_reads()
    }

    /// Locks the keys from `lower` to below `upper` against inserts by other transactions. These
    /// may have inserted keys there before and not committed them: see [`Self::key_of_others`].
    pub fn lock_gap(&self, lower: &[u8], upper: &[u8]) -> GapGrant {
        pause_points::at(PausePoint::GapWanted);
        let grant = self.cx.locks.lock_gap(&self.owner, lower, upper);
        pause_points::at(PausePoint::GapLocked);
        grant
    }

    /// Gives back a part of a range. The grant of the range must have been [`GapGrant::Newly`];
    /// otherwise this would also release what the transaction had locked before.
    pub fn unlock_gap(&self, lower: &[u8], upper: &[u8]) {
        self.cx.locks.unlock_gap(&self.owner, lower, upper);
    }

    /// Whether another transaction has uncommitted inserts that may be in `index`.
    pub fn others_insert(&self, index: IndexId) -> bool {
        let own = self.inserting & ActiveInserts::bit_of(index) != 0;
        self.cx.inserts.number(index) > usize::from(own)
    }

    /// Number of new keys that transactions have written in the slot of `index` so far: see
    /// [`ActiveInserts::written`].
    pub fn inserts_written(&self, index: IndexId) -> u64 {
        self.cx.inserts.written(index)
    }

    /// The smallest or largest key of `index` from `lower` to below `upper` that another
    /// transaction has written and not committed.
    ///
    /// # Errors
    /// Those of reading spilled files: `Corruption`, `Unsupported`, `Io`.
    pub fn key_of_others(
        &self,
        index: IndexId,
        lower: &[u8],
        upper: &[u8],
        nearest: Nearest,
    ) -> Result<Option<Vec<u8>>> {
        if lower >= upper || !self.others_insert(index) {
            return Ok(None);
        }
        let inserts = &self.cx.inserts;
        inserts.key_of_others(index, &self.owner, (lower, upper), nearest)
    }

    /// Writes an entry under a key that is new in its index, with `put`, unless another transaction
    /// has locked the gap. Returns whether the entry is written. If not, the caller gives back the
    /// lock of the key and calls [`Self::await_gap`].
    ///
    /// # Errors
    /// Those of `put`.
    pub fn insert_unless_locked(
        &mut self,
        user_key: &[u8],
        put: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<bool> {
        if self.cx.locks.is_gap_locked(&self.owner, user_key) {
            return Ok(false);
        }
        let index = index_id_of(user_key).ok_or_else(|| Error::invalid("a key without index"))?;
        let bit = ActiveInserts::bit_of(index);
        if self.inserting & bit == 0 {
            self.inserting |= bit;
            self.cx.inserts.add(index, &self.owner, &self.writes);
        }
        pause_points::at(PausePoint::InsertAllowed);
        let mark = self.mark;
        put(self)?;
        self.cx.inserts.count_written(index, &self.owner);
        pause_points::at(PausePoint::Inserted);
        if !self.cx.locks.is_gap_locked(&self.owner, user_key) {
            return Ok(true);
        }
        // Roll back this entry alone: entries of the same row in other indexes stay, and so do the
        // changes of the statement's row counts.
        self.roll_back_writes(mark);
        Ok(false)
    }

    /// Waits until no other transaction locks the gap of `user_key`.
    ///
    /// # Errors
    /// As [`Self::lock`].
    pub fn await_gap(&self, user_key: &[u8]) -> Result<()> {
        let timeout_us = self.lock_timeout_us;
        self.cx.locks.await_gap(&self.owner, user_key, timeout_us)
    }

    /// Copies the written keys out of the session's write set, which the session's next transaction
    /// will use, and lists the copy. Returns the bits of the slots that list it.
    pub(super) fn leave_inserts(&mut self) -> u64 {
        let bits = std::mem::take(&mut self.inserting);
        if bits == 0 {
            return 0;
        }
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        let mut writes = self.own_writes();
        let mut more = writes.seek_to_first();
        // If a spilled file is damaged, the loop ends early and reports nothing: the commit reads
        // the file again and fails with the same error.
        while let Ok(true) = more {
            let key = writes.key().user_key;
            if keys.last().is_none_or(|last| &last[..] != key) {
                keys.push(key.into());
            }
            more = writes.next();
        }
        self.cx.inserts.leave_session(bits, &self.owner, keys);
        bits
    }

    /// Removes the transaction from the list of those with uncommitted inserts.
    pub(super) fn forget_inserts(&mut self) {
        let bits = std::mem::take(&mut self.inserting);
        self.cx.inserts.remove(bits, &self.owner);
    }
}
