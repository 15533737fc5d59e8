//! The end of a transaction: commit in one or two phases, rollback, and detaching a prepared
//! transaction from its session.
//!
//! A transaction that has used optimistic tables is validated first (`validation`), in a commit in
//! one phase and in a prepare.
//!
//! A commit in one phase passes the writes to the log and is visible when the pipeline has
//! published it. In two phases, `prepare` makes the changes durable under an xid, `commit_prepared`
//! publishes them without I/O, in the order of the binary log, and `commit` waits for the log.
//!
//! Invariants
//! - Locks are held until the commit is visible: a waiter that gets a lock finds the new row.
//! - Files of a write set belong to the log as soon as a record may name them. After a failure of
//!   the log, or a panic, such a record may have survived, so the files stay. After any other
//!   failure those of a spilled write set still belong to it, and those of a large one are removed.
//! - A prepared transaction never loses its changes: if its rollback cannot be logged, the next
//!   open of the database finds the transaction prepared.

use super::*;
use crate::txn::commit_wait::CommitWait;
use crate::txn::write_set::SealedWriteSet;
use crate::version::FileMeta;
use parking_lot::MutexGuard;

/// A commit allocates at most this many bytes at once for its batch; a larger batch grows by
/// doubling. The expected size may be far too large: it counts every version of a key, and the
/// batch has only one.
const BATCH_ROOM_MAX: usize = 64 << 10;

/// The sealed writes of a transaction while the record that names their files is appended. If the
/// append panics, the record may be in the log, so the files stay.
struct SealedWrites<'a> {
    writes: MutexGuard<'a, WriteSet>,
    sealed: Option<SealedWriteSet>,
}

impl<'a> SealedWrites<'a> {
    fn of(writes: &'a SharedWriteSet) -> Result<Self> {
        let mut writes = writes.lock();
        let sealed = Some(writes.seal()?);
        Ok(Self { writes, sealed })
    }

    fn files(&self) -> &[FileMeta] {
        self.sealed.as_ref().map_or(&[], SealedWriteSet::files)
    }

    /// Leaves the files to the log.
    fn release(&mut self) {
        if let Some(sealed) = self.sealed.take() {
            self.writes.release(sealed);
        }
    }
}

impl Drop for SealedWrites<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.release();
        }
    }
}

impl Transaction {
    /// Commits: makes the changes visible, releases the locks, and waits until the commit is as
    /// durable as the flush mode says.
    ///
    /// # Errors
    /// `Poisoned` and `ShutDown`: the log failed, and the outcome may be unknown until the database
    /// is reopened. After all other errors nothing is committed: `NoSpace`; `TooLarge`; `Io` or
    /// `Corruption` of spilled files or blobs; `Interrupted` while files are written or keys
    /// validated; `Unsupported` for a log record over 1 GiB, or if no seqno is left; `Deadlock` if
    /// another transaction was first in an optimistic table: this one must roll back.
    pub fn commit(&mut self) -> Result<()> {
        match self.commit_visibly()? {
            Some(lsn) => self.wait_durable(lsn),
            None => Ok(()),
        }
    }

    /// As [`Self::commit`]. But if the host holds its answer back, the call may return before the
    /// commit is durable; the host then hears of it by the [`Acknowledgement`] that
    /// [`WaitObserver::hold_answer`] has returned. The second phase of a commit in two phases
    /// always waits: the coordinator forgets the transaction afterwards.
    ///
    /// [`Acknowledgement`]: crate::wal::Acknowledgement
    /// [`WaitObserver::hold_answer`]: crate::txn::WaitObserver::hold_answer
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_for_answer(&mut self) -> Result<()> {
        let in_one_phase = matches!(self.phase, Phase::Active);
        let Some(lsn) = self.commit_visibly()? else {
            return Ok(());
        };
        let (pipeline, locks) = (&self.cx.pipeline, &self.cx.locks);
        let later = in_one_phase
            && !pipeline.is_durable(lsn)
            && locks.may_hold_answer(&self.owner)
            && pipeline.acknowledge_later(lsn, || locks.hold_answer(&self.owner));
        match later {
            true => Ok(()),
            false => self.wait_durable(lsn),
        }
    }

    /// Makes the changes visible and releases the locks. Returns the log position that must be
    /// durable before the commit is acknowledged.
    fn commit_visibly(&mut self) -> Result<Option<Lsn>> {
        let lsn = match &self.phase {
            Phase::Idle => return Ok(None),
            Phase::Active if !self.has_writes() => {
                // If one statement is the whole transaction and has written nothing, it needs no
                // validation: all its reads had the same read point.
                if !self.autocommit {
                    self.validate()?;
                }
                None
            }
            Phase::Active => self.commit_active()?,
            Phase::Prepared { .. } => {
                self.commit_prepared(None)?;
                match self.phase {
                    Phase::Committed { lsn, .. } => Some(lsn),
                    _ => None,
                }
            }
            // If the commit record is lost, recovery commits the transaction again from the binary
            // log. A commit that is not in the binary log must wait until it is durable.
            Phase::Committed { lsn, in_binlog } => (!in_binlog).then_some(*lsn),
        };
        self.finish();
        Ok(lsn)
    }

    /// Waits until the log up to `lsn` is as durable as the flush mode says.
    fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        let pipeline = &self.cx.pipeline;
        let _wait = match pipeline.is_durable(lsn) {
            true => None,
            false => CommitWait::begin(&self.cx, &self.owner),
        };
        let waited = pipeline.wait_durable(lsn);
        waited.map_err(|e| unknown_outcome(&e))
    }

    /// Commits without waiting for durability: a later sync of the log makes the commit durable.
    /// For data of a table that no other session can see yet.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_unsynced(&mut self) -> Result<()> {
        if matches!(self.phase, Phase::Active) && self.has_writes() {
            self.commit_active()?;
        }
        self.finish();
        Ok(())
    }

    /// Commits the transaction's writes without a prepare. Returns the end of the commit record in
    /// the log.
    pub(super) fn commit_active(&mut self) -> Result<Option<Lsn>> {
        self.validate()?;
        let source = Arc::clone(self.cx.ingest.versions().source());
        let committed = self.hand_over(|cx, changes, counters| {
            cx.pipeline
                .commit_changes(CommitRecord::Batch, changes, &source, counters)
        })?;
        self.committed_bytes = committed.1.charged_bytes();
        self.row_counts.commit();
        Ok(Some(committed.0.lsn))
    }

    /// As [`Self::prepare`], for a transaction whose outcome another session may decide. From here
    /// on, DDL is refused for the tables that it has changed.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn prepare_to_stay(&mut self, xid: &[u8]) -> Result<()> {
        self.prepare(xid)?;
        if let Phase::Prepared { changes, .. } = &self.phase {
            self.cx.prepared.note(xid.to_vec(), changes.indexes()?);
            self.noted = Some(xid.to_vec());
        }
        // Release read locks, as InnoDB does: the transaction does not read any more.
        self.found_parents.clear();
        self.cx.locks.release_reads(&self.owner);
        // The transaction's new rows are listed as uncommitted. A deleter of the rows that they
        // refer to finds them there, and does not need the shared locks released above.
        self.rely_on_nothing();
        Ok(())
    }

    /// First phase of a two-phase commit: on return the changes are in the log under `xid`, as
    /// durable as the flush mode says. Does nothing for a transaction without writes.
    ///
    /// # Errors
    /// As [`Self::commit`]. The transaction stays active; but after `Poisoned` and `ShutDown`
    /// recovery may find it prepared.
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        if !matches!(self.phase, Phase::Active) {
            return Ok(());
        }
        self.validate()?;
        if !self.has_writes() {
            return Ok(());
        }
        let owner = Arc::clone(&self.owner);
        let (prepared, changes) = self.hand_over(|cx, changes, counters| {
            let _wait = CommitWait::begin(cx, &owner);
            cx.pipeline.prepare_changes(xid, changes, counters)
        })?;
        self.phase = Phase::Prepared {
            xid: xid.to_vec(),
            memory: changes.charge(&self.cx.write_sets),
            changes,
            prepared,
        };
        self.entry.prepared();
        Ok(())
    }

    /// Passes the transaction's writes to `log`, a function that appends a record of them to the
    /// log. Of spilled writes, and of more than the log takes in a batch, the record has the names
    /// of their files; once it is appended, the log owns the files.
    pub(super) fn hand_over<T>(
        &mut self,
        log: impl FnOnce(&TransactionContext, &Arc<Changes>, &[(u64, CounterValue)]) -> Result<T>,
    ) -> Result<(T, Arc<Changes>)> {
        // Sync the blobs in every flush mode: if the record survives a crash, its blobs must
        // survive too.
        self.blobs.sync()?;
        let batch_bytes_max = self.cx.pipeline.batch_bytes_max();
        let writes = self.writes.lock();
        if writes.has_spilled() {
            drop(writes);
            return self.hand_over_spilled(log);
        }
        if writes.batch_bytes() as u64 <= batch_bytes_max {
            return self.hand_over_batch(writes, log);
        }
        drop(writes);
        if let Some(files) = self.writes.write_if_large(batch_bytes_max)? {
            // From here on a panic leaves the files, because the record may be in the log.
            let changes = Arc::new(Changes::Run(files.keep()));
            let logged = log(&self.cx, &changes, &self.counters);
            if !self.log_may_name_files(&logged) {
                let files = changes.files().iter();
                let files: Vec<_> = files.map(|file| (file.file_id, file.size)).collect();
                self.cx.ingest.versions().give_up(&files);
            }
            return Ok((logged?, changes));
        }
        self.hand_over_batch(self.writes.lock(), log)
    }

    /// As [`Self::hand_over`], for a batch of the writes, which are in memory.
    fn hand_over_batch<T>(
        &self,
        writes: MutexGuard<'_, WriteSet>,
        log: impl FnOnce(&TransactionContext, &Arc<Changes>, &[(u64, CounterValue)]) -> Result<T>,
    ) -> Result<(T, Arc<Changes>)> {
        let mut batch = Batch::with_capacity(writes.batch_bytes().min(BATCH_ROOM_MAX));
        writes.for_each_final(|key, kind, value| batch.add(key, kind, value));
        drop(writes);
        let changes = Arc::new(Changes::Batch(batch));
        let logged = log(&self.cx, &changes, &self.counters)?;
        Ok((logged, changes))
    }

    /// As [`Self::hand_over`], for a write set that has spilled.
    fn hand_over_spilled<T>(
        &self,
        log: impl FnOnce(&TransactionContext, &Arc<Changes>, &[(u64, CounterValue)]) -> Result<T>,
    ) -> Result<(T, Arc<Changes>)> {
        let mut sealed = SealedWrites::of(&self.writes)?;
        // If all spilled writes were rolled back, the sealed write set has no file: log an empty
        // batch.
        let changes = match sealed.files() {
            [] => Changes::Batch(Batch::new()),
            files => Changes::Run(files.to_vec()),
        };
        let changes = Arc::new(changes);
        let logged = log(&self.cx, &changes, &self.counters);
        if self.log_may_name_files(&logged) {
            sealed.release();
        }
        Ok((logged?, changes))
    }

    /// Whether the files of a record must stay, after an append of the record with this result. If
    /// the log has failed, the record may still be in it after a crash.
    fn log_may_name_files<T>(&self, logged: &Result<T>) -> bool {
        let unknown =
            |error: &Error| self.cx.pipeline.is_poisoned() || *error.kind() == ErrorKind::ShutDown;
        logged.as_ref().err().is_none_or(unknown)
    }

    /// Second phase: assigns the seqno and makes the changes visible, without I/O. `binlog` is the
    /// file name and the position of the commit in the binary log. Does nothing if the transaction
    /// is not prepared.
    ///
    /// # Errors
    /// `Poisoned` and `ShutDown` of the log, `Unsupported` if no seqno is left. The transaction
    /// stays prepared.
    pub fn commit_prepared(&mut self, binlog: Option<(&[u8], u64)>) -> Result<()> {
        let Phase::Prepared {
            xid,
            changes,
            prepared,
            ..
        } = &self.phase
        else {
            return Ok(());
        };
        let binlog = binlog.map(|(name, pos)| BinlogPosition { name, pos });
        // Recovery commits a transaction from the binary log only if its xid was assigned by the
        // server, not by a client.
        let in_binlog = binlog.is_some() && self.noted.is_none();
        let what = CommitRecord::Prepared {
            xid,
            prepared: *prepared,
            binlog,
        };
        let source = self.cx.ingest.versions().source();
        let pipeline = &self.cx.pipeline;
        let committed = pipeline.commit_changes(what, changes, source, &[])?;
        self.committed_bytes = changes.charged_bytes();
        self.phase = Phase::Committed {
            lsn: committed.lsn,
            in_binlog,
        };
        self.entry.committed();
        self.row_counts.commit();
        Ok(())
    }

    /// Forgets all changes and releases the locks.
    ///
    /// # Errors
    /// `Poisoned` and `ShutDown` of the log, if the transaction was prepared: the next open may
    /// find it prepared again.
    pub fn rollback(&mut self) -> Result<()> {
        let Phase::Prepared {
            xid,
            changes,
            prepared,
            ..
        } = &self.phase
        else {
            self.finish();
            return Ok(());
        };
        let lsn = match self.cx.pipeline.rollback_prepared(xid, *prepared) {
            Ok(lsn) => lsn,
            Err(error) => {
                self.leave_prepared();
                return Err(error);
            }
        };
        let blobs = std::mem::take(&mut self.blobs);
        self.cx.blobs.release_after(lsn, blobs);
        let discarded = discard(&self.cx, changes, lsn);
        self.finish();
        discarded
    }

    /// Leaves a prepared transaction to the next open of the database, because the failed log
    /// cannot take its outcome. Releases its locks: nothing can be committed until then, so nobody
    /// can change its rows. An active transaction is rolled back.
    pub fn leave_prepared(&mut self) {
        if let Phase::Prepared {
            xid,
            changes,
            memory,
            prepared,
        } = std::mem::replace(&mut self.phase, Phase::Idle)
        {
            let left = PreparedTransaction {
                changes,
                memory,
                prepared,
                owner: None,
                inserting: 0,
                blobs: std::mem::take(&mut self.blobs),
                run: None,
                rows: self.rows_when_committed(),
            };
            self.cx.prepared.insert(xid, left);
        }
        self.finish();
    }

    /// Moves a prepared transaction with its locks to the database's [`PreparedTransaction`]s,
    /// where another session commits it or rolls it back by xid. This is for a session that ends
    /// between the two phases. `fresh_owner` owns the later locks of this session. An active
    /// transaction is rolled back.
    pub fn detach(&mut self, fresh_owner: Arc<LockOwner>) {
        if let Phase::Prepared {
            xid,
            changes,
            memory,
            prepared,
        } = std::mem::replace(&mut self.phase, Phase::Idle)
        {
            let inserting = self.leave_inserts();
            // `entry` lists the tables that the transaction relies on: give them up before `entry`
            // is replaced.
            self.rely_on_nothing();
            self.cx.transactions.remove(&self.entry);
            self.entry = self.cx.transactions.add(&fresh_owner);
            let owner = std::mem::replace(&mut self.owner, fresh_owner);
            let recovered = PreparedTransaction {
                changes,
                memory,
                prepared,
                owner: Some(owner),
                inserting,
                blobs: std::mem::take(&mut self.blobs),
                run: None,
                rows: self.rows_when_committed(),
            };
            self.cx.prepared.insert(xid, recovered);
        }
        self.finish();
    }

    pub(super) fn rows_when_committed(&mut self) -> Vec<(Arc<RowCount>, Option<i64>)> {
        let all = self.row_counts.take();
        all.map(|(rows, net)| (Arc::clone(rows), Some(net)))
            .collect()
    }

    pub(super) fn finish(&mut self) {
        self.phase = Phase::Idle;
        self.entry.end();
        let charge = std::mem::take(&mut self.gate_charge);
        let bytes = std::mem::take(&mut self.committed_bytes);
        self.cx.pipeline.settle(charge, bytes);
        if let Some(xid) = self.noted.take() {
            self.cx.prepared.forget(&xid);
        }
        // Forget the inserts after the changes are visible, and before the write set is cleared: a
        // scan that no longer finds the transaction among the active inserts must find its keys
        // committed.
        self.forget_inserts();
        self.cx.locks.release_all(&self.owner);
        self.rely_on_nothing();
        self.found_parents.clear();
        self.tables.clear();
        self.owner.set_changed_rows(0);
        self.changed_rows = 0;
        self.row_counts.clear();
        self.snapshot = None;
        self.point = None;
        self.oldest_read = None;
        self.validation.clear();
        if std::mem::take(&mut self.wrote) {
            self.writes.lock().clear();
        }
        self.private_inserts = PrivateInserts::default();
        self.statement_mark = self.mark;
        self.hidden.clear();
        self.write_locks.clear();
        self.counters.clear();
        self.blobs = TransactionBlobs::new();
    }
}
