//! The end of a transaction: commit in one or two phases, rollback, detaching of a prepared one.
//!
//! A commit in one phase hands the writes to the log and is visible when the pipeline has published
//! it. In two phases `prepare` makes the changes durable under an xid, `commit_prepared` publishes
//! them without I/O, in the order of the binary log, and `commit` waits for the log.
//!
//! Invariants
//! - Locks are held until the commit is visible: a waiter that gets one finds the new row.
//! - Files of a spilled set belong to the log as soon as a record may name them. After a failure of
//!   the log the record may have survived, so they stay; after any other failure they are the
//!   set's.
//! - A prepared transaction never loses its changes: if its rollback cannot be logged, it stays for
//!   the next start, which finds it prepared.

use super::*;

impl Transaction {
    /// Commits: visible, locks released, then as durable as the flush mode says.
    ///
    /// # Errors
    /// After an error of the log the outcome is unknown until the database is reopened. After
    /// others nothing is committed: those of writing what has spilled, a full disk, a kill of the
    /// session.
    pub fn commit(&mut self) -> Result<()> {
        let lsn = match &self.phase {
            Phase::Idle => return Ok(()),
            Phase::Active if !self.has_writes() => None,
            Phase::Active => self.commit_active()?,
            Phase::Prepared { .. } => {
                self.commit_prepared(None)?;
                match self.phase {
                    Phase::Committed { lsn, .. } => Some(lsn),
                    _ => None,
                }
            }
            // The binary log repeats a commit that is lost; nothing else does.
            Phase::Committed { lsn, in_binlog } => (!in_binlog).then_some(*lsn),
        };
        self.finish();
        match lsn {
            Some(lsn) => self
                .cx
                .pipeline
                .wait_durable(lsn)
                .map_err(|e| unknown_outcome(&e)),
            None => Ok(()),
        }
    }

    /// Commits what nobody else sees yet; durable with whatever is synced later.
    ///
    /// # Errors
    /// Those of the log: `NoSpace`, `Io`, `Poisoned`; the transaction is still active.
    pub fn commit_unsynced(&mut self) -> Result<()> {
        if matches!(self.phase, Phase::Active) && self.has_writes() {
            self.commit_active()?;
        }
        self.finish();
        Ok(())
    }

    /// Commits the own writes in one step. Returns the end of the record.
    pub(super) fn commit_active(&mut self) -> Result<Option<Lsn>> {
        let source = Arc::clone(self.cx.ingest.versions().source());
        let committed = self.hand_over(|cx, changes, counters| {
            cx.pipeline
                .commit_changes(CommitRecord::Batch, changes, &source, counters)
        })?;
        self.row_counts.commit();
        Ok(Some(committed.0.lsn))
    }

    /// As [`Self::prepare`], for a transaction whose outcome another session may tell: DDL sees
    /// from here on which tables it has changed.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn prepare_to_stay(&mut self, xid: &[u8]) -> Result<()> {
        self.prepare(xid)?;
        if let Phase::Prepared { changes, .. } = &self.phase {
            self.cx.prepared.note(xid.to_vec(), changes.indexes()?);
            self.noted = Some(xid.to_vec());
        }
        Ok(())
    }

    /// First phase of a two-phase commit: the changes are durable under `xid`.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn prepare(&mut self, xid: &[u8]) -> Result<()> {
        if !matches!(self.phase, Phase::Active) || !self.has_writes() {
            return Ok(());
        }
        let (prepared, changes) = self.hand_over(|cx, changes, counters| {
            cx.pipeline.prepare_changes(xid, changes, counters)
        })?;
        self.phase = Phase::Prepared {
            xid: xid.to_vec(),
            changes,
            prepared,
        };
        Ok(())
    }

    /// Hands the own writes to `log`, which names them in the log: files are the log's from there
    /// on.
    pub(super) fn hand_over<T>(
        &mut self,
        log: impl FnOnce(&TransactionContext, &Changes, &[(u64, CounterValue)]) -> Result<T>,
    ) -> Result<(T, Changes)> {
        // In every flush mode: a record that survives must find its blobs.
        self.blobs.sync()?;
        let mut writes = self.writes.lock();
        if !writes.has_spilled() {
            let mut batch = Batch::new();
            writes.for_each_final(|key, kind, value| batch.add(key, kind, value));
            drop(writes);
            let changes = Changes::Batch(batch);
            let logged = log(&self.cx, &changes, &self.counters)?;
            return Ok((logged, changes));
        }
        let sealed = writes.seal()?;
        // Of what was spilled, all may have been taken back.
        let changes = match sealed.files() {
            [] => Changes::Batch(Batch::new()),
            files => Changes::Run(files.to_vec()),
        };
        let logged = log(&self.cx, &changes, &self.counters);
        // After a failure of the log the record may be there all the same.
        let unknown =
            |error: &Error| self.cx.pipeline.is_poisoned() || *error.kind() == ErrorKind::ShutDown;
        if logged.as_ref().err().is_none_or(unknown) {
            writes.release(sealed);
        }
        Ok((logged?, changes))
    }

    /// Second phase: assigns the seqno and makes the changes visible, without I/O. `binlog` is the
    /// name and position in the binary log.
    ///
    /// # Errors
    /// Those of the log: `Io`, `Poisoned`; the transaction is still prepared. One that is not
    /// prepared is left alone.
    pub fn commit_prepared(&mut self, binlog: Option<(&[u8], u64)>) -> Result<()> {
        let Phase::Prepared {
            xid,
            changes,
            prepared,
        } = &self.phase
        else {
            return Ok(());
        };
        let binlog = binlog.map(|(name, pos)| BinlogPosition { name, pos });
        // It repeats transactions by the server's numbers, and none that a client has named.
        let in_binlog = binlog.is_some() && self.noted.is_none();
        let what = CommitRecord::Prepared {
            xid,
            prepared: *prepared,
            binlog,
        };
        let source = self.cx.ingest.versions().source();
        let pipeline = &self.cx.pipeline;
        let committed = pipeline.commit_changes(what, changes, source, &[])?;
        self.phase = Phase::Committed {
            lsn: committed.lsn,
            in_binlog,
        };
        self.row_counts.commit();
        Ok(())
    }

    /// Gives up all changes and locks.
    ///
    /// # Errors
    /// Those of a log that has failed, if the transaction was prepared: the next start finds it
    /// prepared.
    pub fn rollback(&mut self) -> Result<()> {
        let Phase::Prepared {
            xid,
            changes,
            prepared,
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

    /// Leaves a prepared transaction to the next start, without its locks: the log has failed, and
    /// takes no outcome, nor anybody's changes. Others are rolled back.
    pub fn leave_prepared(&mut self) {
        if let Phase::Prepared {
            xid,
            changes,
            prepared,
        } = std::mem::replace(&mut self.phase, Phase::Idle)
        {
            let left = PreparedTransaction {
                changes,
                prepared,
                owner: None,
                blobs: std::mem::take(&mut self.blobs),
                run: None,
                rows: self.rows_when_committed(),
            };
            self.cx.prepared.insert(xid, left);
        }
        self.finish();
    }

    /// Hands a prepared transaction over to the database, where its outcome is asked for by xid;
    /// a session that ends between the phases does so. Its locks stay with it.
    pub fn detach(&mut self, fresh_owner: Arc<LockOwner>) {
        if let Phase::Prepared {
            xid,
            changes,
            prepared,
        } = std::mem::replace(&mut self.phase, Phase::Idle)
        {
            let owner = std::mem::replace(&mut self.owner, fresh_owner);
            let recovered = PreparedTransaction {
                changes,
                prepared,
                owner: Some(owner),
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
        if let Some(xid) = self.noted.take() {
            self.cx.prepared.forget(&xid);
        }
        self.cx.locks.release_all(&self.owner);
        self.owner.set_changed_rows(0);
        self.changed_rows = 0;
        self.row_counts.clear();
        self.snapshot = None;
        self.point = None;
        if std::mem::take(&mut self.wrote) {
            self.writes.lock().clear();
        }
        self.statement_mark = self.mark;
        self.hidden.clear();
        self.counters.clear();
        self.blobs = TransactionBlobs::new();
    }
}
