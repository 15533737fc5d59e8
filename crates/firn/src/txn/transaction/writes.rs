//! Writes of a transaction: row locks, the write stall gate, and the write set.

use super::*;

impl Transaction {
    /// Takes a row lock and waits as `policy` says; `None` waits for the session's timeout.
    ///
    /// # Errors
    /// `LockTimeout`, `LockNotAvailable`, `Interrupted`. `Deadlock`: the transaction must roll
    /// back.
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

    /// Whether the transaction holds the lock of `key` in shared mode only.
    pub fn only_shares(&self, key: &[u8]) -> bool {
        self.cx.locks.only_shares(&self.owner, key)
    }

    /// Releases one row lock before the end of the transaction. A lock under which
    /// [`Self::note_parent`] has noted a value must stay.
    pub fn unlock(&self, key: &[u8]) {
        self.cx.locks.release(&self.owner, key);
    }

    /// Makes the exclusive lock of `key` shared. At no time is the transaction without a lock, so
    /// no request that waits for an exclusive one comes in between.
    pub fn share_lock(&self, key: &[u8]) {
        self.cx.locks.share(&self.owner, key);
    }

    /// Notes that a row has the referenced value `key`, and that the transaction holds the lock of
    /// `key`.
    pub fn note_parent(&mut self, key: &[u8]) {
        self.found_parents.add(key);
    }

    /// Whether [`Self::note_parent`] has noted the value, and neither the row nor the lock can have
    /// gone since then. The transaction relies on the table then.
    pub fn has_found_parent(&self, key: &[u8]) -> bool {
        self.found_parents.contains(key)
    }

    /// Relies on the indexes of the referenced table with clustered index `table` until the end of
    /// the transaction: DDL that would replace them waits. Returns whether the transaction did not
    /// rely on it before. The caller then looks again whether the table has these indexes.
    ///
    /// # Errors
    /// `LockTimeout` and `Interrupted` while DDL changes the indexes.
    pub fn rely_on(&mut self, table: IndexId) -> Result<bool> {
        if self.entry.relies_on(table) {
            return Ok(false);
        }
        while !self.cx.referenced.enter(table) {
            self.await_referenced(table)?;
        }
        self.entry.rely_on(table);
        Ok(true)
    }

    /// Waits until no DDL changes the indexes of the referenced table with clustered index `table`.
    ///
    /// # Errors
    /// `LockTimeout`, `Interrupted`. `Deadlock` if the DDL waits for a transaction that waits for
    /// this one, which must roll back.
    pub fn await_referenced(&self, table: IndexId) -> Result<()> {
        let cx = &self.cx;
        let relying = |table| cx.transactions.relying_on(table);
        let in_deadlock = || cx.locks.is_waited_for_by_users(&self.owner, table, relying);
        self.owner.set_awaits(Some(table));
        let opened =
            cx.referenced
                .await_open(table, &self.owner, self.lock_timeout_us, in_deadlock);
        self.owner.set_awaits(None);
        opened
    }

    /// Ends what [`Self::rely_on`] has begun.
    pub(super) fn rely_on_nothing(&mut self) {
        self.entry
            .rely_on_nothing(|table| self.cx.referenced.leave(table));
    }

    /// Waits at the write stall gate. Each statement passes the gate once, before its first write.
    ///
    /// # Errors
    /// `Interrupted`; `LockTimeout` after the lock timeout; `NoSpace` on a full disk; the error of
    /// background work that fails again and again.
    pub fn before_write(&mut self) -> Result<()> {
        if !self.gate_passed {
            let charge = self.cx.pipeline.pass_gate(&self.gate_wait())?;
            self.gate_charge.add(charge);
            self.gate_passed = true;
        }
        Ok(())
    }

    /// As [`Self::before_write`], before a deletion. A full disk does not stop deletions, which
    /// free space.
    ///
    /// # Errors
    /// As [`Self::before_write`], without `NoSpace`.
    pub fn before_delete(&mut self) -> Result<()> {
        if !self.gate_passed {
            let charge = self.cx.pipeline.pass_gate_deleting(&self.gate_wait())?;
            self.gate_charge.add(charge);
            // On a full disk, the stall gate lets only deletions pass. So this pass does not count
            // for the whole statement: if the statement also inserts or updates, it must pass the
            // gate once more.
            self.gate_passed = !self.cx.pipeline.is_disk_full();
        }
        Ok(())
    }

    fn gate_wait(&self) -> GateWait<'_> {
        GateWait {
            owner: &self.owner,
            locks: &self.cx.locks,
            timeout_us: self.lock_timeout_us,
        }
    }

    /// Counts one changed row. The deadlock search prefers victims with few changed rows.
    pub fn count_changed_row(&mut self) {
        self.changed_rows += 1;
        self.owner.set_changed_rows(self.changed_rows);
    }

    /// Adds `net` to the row count of the table with clustered index `clustered` when the
    /// transaction commits. `cascades` says that a cascade has changed the rows, in the middle of
    /// the change of the statement's own row.
    pub fn count_rows(
        &mut self,
        clustered: IndexId,
        rows: &Arc<RowCount>,
        net: i64,
        cascades: bool,
    ) {
        self.row_counts.count(clustered, rows, net, cascades);
    }

    /// Adds a value to the transaction's writes. After an error nothing is added.
    ///
    /// # Errors
    /// Those of [`WriteSet::put`].
    pub fn put(&mut self, user_key: &[u8], value: Value<'_>) -> Result<()> {
        self.write(|writes| writes.put(user_key, value))
    }

    /// Writes a value of `column` to a blob file. The caller puts the returned reference into a row
    /// and writes that row with [`Self::put_with_blobs`]. After a rollback the blob is garbage.
    ///
    /// # Errors
    /// `NoSpace` and `Io`: the value is not stored. `InvalidArgument` for a value of 4 GiB or more.
    /// `Unsupported` in a read-only store.
    pub fn write_blob(&mut self, column: u32, value: &[u8]) -> Result<BlobRef> {
        self.cx.blobs.write(&mut self.blobs, column, value)
    }

    /// Adds a row whose value ends with references to blobs.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn put_with_blobs(&mut self, user_key: &[u8], value: Value<'_>) -> Result<()> {
        self.write(|writes| writes.write(user_key, Kind::PutBlobs, value))
    }

    /// Adds a deletion to the transaction's writes.
    ///
    /// # Errors
    /// As [`Self::put`].
    pub fn delete(&mut self, user_key: &[u8]) -> Result<()> {
        self.found_parents.clear();
        self.write(|writes| writes.delete(user_key))
    }

    pub(super) fn write(&mut self, write: impl FnOnce(&mut WriteSet) -> Result<()>) -> Result<()> {
        let mut writes = self.writes.lock();
        self.wrote = true;
        // Ask for the limits at each write: the limit becomes smaller while other sets grow.
        let mutable = &self.cx.mutable;
        writes.set_limits(
            mutable.write_set_limit(),
            mutable.entry_bytes_max.load(Ordering::Relaxed),
        );
        let written = write(&mut writes);
        self.mark = writes.mark();
        self.entry.set_write_bytes(writes.bytes());
        written
    }

    /// Memory of the own writes, in bytes.
    pub fn write_bytes(&self) -> u64 {
        self.writes.lock().bytes()
    }

    /// Ids of the transaction's spilled files that are not committed, without those of a spill in
    /// progress.
    pub fn spilled_files(&self) -> Vec<u64> {
        let mut files = self.writes.lock().spilled_files();
        if let Phase::Prepared { changes, .. } = &self.phase {
            files.extend(changes.files().iter().map(|file| file.file_id));
        }
        files
    }

    /// Hides the snapshot's version of the row at `row_key` and its entries in every index, once
    /// the transaction writes the row, and as long as a rollback does not remove that write.
    pub fn hide(&mut self, row_key: &[u8]) {
        self.hidden.add(row_key);
    }

    /// Notes keys that a write of the running statement has locked and that the transaction had
    /// not locked before. If the write is rolled back and the transaction goes on, these locks go
    /// with it.
    pub fn keep_write_locks<'a>(&mut self, keys: impl IntoIterator<Item = &'a [u8]>) {
        if !self.autocommit {
            self.write_locks.add(keys, self.statement_mark);
        }
    }

    /// Persists `value` as a new maximum of `counter` when the transaction commits or prepares. In
    /// a transaction without writes it is not persisted.
    pub fn raise_counter(&mut self, counter: u64, value: CounterValue) {
        match self.counters.iter_mut().find(|(c, _)| *c == counter) {
            Some((_, max)) => *max = value.max(*max),
            None => self.counters.push((counter, value)),
        }
    }
}
