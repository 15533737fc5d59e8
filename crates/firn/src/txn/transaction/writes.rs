//! Writes of a transaction: row locks, admission, and the write set.

use super::*;

impl Transaction {
    /// Takes a row lock; waits as `policy` says, `None` for the session's timeout.
    ///
    /// # Errors
    /// Those of [`LockTable::acquire`](crate::txn::LockTable::acquire): `LockTimeout`,
    /// `LockNotAvailable`, `Deadlock`, `Interrupted`.
    pub fn lock(&self, key: &[u8], mode: LockMode, policy: Option<WaitPolicy>) -> Result<Granted> {
        let default = WaitPolicy::Wait {
            timeout_micros: self.lock_timeout_us,
        };
        pause_points::at(PausePoint::LockWanted);
        let granted = self
            .cx
            .locks
            .acquire(&self.owner, key, mode, policy.unwrap_or(default));
        pause_points::at(PausePoint::LockGranted);
        granted
    }

    /// Gives one lock back early.
    pub fn unlock(&self, key: &[u8]) {
        self.cx.locks.release(&self.owner, key);
    }

    /// Waits at the stall gate, once a statement, before its first write.
    ///
    /// # Errors
    /// `Interrupted`; `NoSpace`, `Poisoned` or `ShutDown` if the work that the gate waits for has
    /// failed.
    pub fn before_write(&mut self) -> Result<()> {
        if !self.gate_passed {
            let owner = Arc::clone(&self.owner);
            self.cx
                .pipeline
                .pass_gate(&move || owner.is_interrupted())?;
            self.gate_passed = true;
        }
        Ok(())
    }

    /// As [`Self::before_write`], of a deletion: that goes on where the disk is full.
    ///
    /// # Errors
    /// As for [`Self::before_write`], but a full disk is none.
    pub fn before_delete(&mut self) -> Result<()> {
        if !self.gate_passed {
            let owner = Arc::clone(&self.owner);
            self.cx
                .pipeline
                .pass_gate_deleting(&move || owner.is_interrupted())?;
            // Further writes of the statement pass without asking.
            self.gate_passed = !self.cx.pipeline.is_disk_full();
        }
        Ok(())
    }

    /// Counts a row changed, which makes the transaction a worse victim of a deadlock.
    pub fn count_changed_row(&mut self) {
        self.changed_rows += 1;
        self.owner.set_changed_rows(self.changed_rows);
    }

    /// Counts `net` rows more in the table whose rows are in `clustered`, once the transaction
    /// commits.
    pub fn count_rows(&mut self, clustered: IndexId, rows: &Arc<RowCount>, net: i64) {
        self.row_counts.count(clustered, rows, net);
    }

    /// Adds a value to the own writes.
    ///
    /// # Errors
    /// `TooLarge`, and those of spilling; nothing is written then.
    pub fn put(&mut self, user_key: &[u8], value: Value<'_>) -> Result<()> {
        self.write(|writes| writes.put(user_key, value))
    }

    /// Writes a value of `column` out of line, for a row that goes to [`Self::put_with_blobs`].
    /// A rollback turns the value into garbage of its blob file.
    ///
    /// # Errors
    /// As for [`BlobStore::write`].
    pub fn write_blob(&mut self, column: u32, value: &[u8]) -> Result<BlobRef> {
        self.cx.blobs.write(&mut self.blobs, column, value)
    }

    /// Adds a value whose tail ends with references to blobs.
    ///
    /// # Errors
    /// Those of spilling to files: `NoSpace`, `Io`, `Interrupted`; `TooLarge` for an entry that no
    /// block can hold.
    pub fn put_with_blobs(&mut self, user_key: &[u8], value: Value<'_>) -> Result<()> {
        self.write(|writes| writes.write(user_key, Kind::PutBlobs, value))
    }

    /// Adds a deletion to the own writes.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete(&mut self, user_key: &[u8]) -> Result<()> {
        self.write(|writes| writes.delete(user_key))
    }

    pub(super) fn write(&mut self, write: impl FnOnce(&mut WriteSet) -> Result<()>) -> Result<()> {
        let mut writes = self.writes.lock();
        if !std::mem::replace(&mut self.wrote, true) {
            let mutable = &self.cx.mutable;
            writes.set_limits(
                mutable.txn_memory_limit.load(Ordering::Relaxed),
                mutable.entry_bytes_max.load(Ordering::Relaxed),
            );
        }
        let written = write(&mut writes);
        self.mark = writes.mark();
        written
    }

    /// Memory of the own writes, bytes.
    pub fn write_bytes(&self) -> u64 {
        self.writes.lock().bytes()
    }

    /// Ids of the files that it has spilled to and not committed.
    pub fn spilled_files(&self) -> Vec<u64> {
        let mut files = self.writes.lock().spilled_files();
        if let Phase::Prepared { changes, .. } = &self.phase {
            files.extend(changes.files().iter().map(|file| file.file_id));
        }
        files
    }

    /// Hides the snapshot's version of the row at `row_key` and its entries in every index.
    pub fn hide(&mut self, row_key: &[u8]) {
        self.hidden.entry(row_key.into()).or_insert(self.mark);
    }

    /// Persists that `counter` has got to `value` when the transaction commits.
    pub fn raise_counter(&mut self, counter: u64, value: CounterValue) {
        match self.counters.iter_mut().find(|(c, _)| *c == counter) {
            Some((_, max)) => *max = value.max(*max),
            None => self.counters.push((counter, value)),
        }
    }
}
