//! One transaction: snapshot, own writes, locks, and its end.
//!
//! A session keeps one `Transaction` and begins it again and again; nothing is allocated for a
//! transaction that only reads. Phases: idle → active → (prepared →) committed or rolled back →
//! idle.
//!
//! Isolation: at READ COMMITTED each statement reads at its own point; at REPEATABLE READ the first
//! consistent read fixes the snapshot. Writes and locking reads see the latest committed version:
//! lock, then refresh the view, then read again. A row that is changed although it is newer than
//! the snapshot is *hidden* from the snapshot's point of view: its entries in every index come from
//! the own write set from then on, so that the primary and every index tell the same story.

use super::lock_table::{Granted, LockMode, LockOwner, WaitPolicy};
use super::prepared::{PreparedTransaction, discard};
use super::row_count_deltas::RowCountDeltas;
use super::snapshots::Snapshot;
use super::transaction_context::TransactionContext;
use super::write_set::{Savepoint, SharedWriteSet, WriteSet, WriteSetIter};
use crate::base::blob_ref::BlobRef;
use crate::base::pause_points::{self, PausePoint};
use crate::base::row_count::RowCount;
use crate::base::{
    CounterValue, Error, ErrorKind, IndexId, InternalKey, Kind, Result, Seqno, Value,
};
use crate::blob::TransactionBlobs;
use crate::read::{self, ReadPoint};
use crate::wal::{BinlogPosition, Lsn};
use crate::write::{Batch, Changes, CommitRecord, PreparedLogPin, unknown_outcome};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Isolation levels; READ UNCOMMITTED reads as READ COMMITTED.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// A statement sees what was committed when it began.
    ReadCommitted,
    /// A transaction sees what was committed at its first read.
    RepeatableRead,
}

enum Phase {
    Idle,
    Active,
    Prepared {
        xid: Vec<u8>,
        changes: Changes,
        prepared: PreparedLogPin,
    },
    Committed {
        lsn: Lsn,
        in_binlog: bool,
    },
}

/// A session's transaction.
pub struct Transaction {
    cx: Arc<TransactionContext>,
    owner: Arc<LockOwner>,
    phase: Phase,
    isolation: Isolation,
    autocommit: bool,
    lock_timeout_us: u64,
    statement_id: u64,
    statement_mark: Savepoint,
    gate_passed: bool,
    snapshot: Option<Snapshot>,
    point: Option<ReadPoint>,
    writes: SharedWriteSet,
    /// The place after the last own write: as the set has it, without its lock.
    mark: Savepoint,
    /// Something was written since the set was last cleared.
    wrote: bool,
    hidden: BTreeMap<Box<[u8]>, Savepoint>,
    counters: Vec<(u64, CounterValue)>,
    changed_rows: u64,
    /// By how many rows it changes its tables.
    row_counts: RowCountDeltas,
    /// What it wrote out of line: held until a view shows it.
    blobs: TransactionBlobs,
    /// Its xid, if DDL must know that it is prepared.
    noted: Option<Vec<u8>>,
}

impl Transaction {
    /// An idle transaction whose locks belong to `owner`.
    pub fn new(cx: Arc<TransactionContext>, owner: Arc<LockOwner>) -> Self {
        let limit = cx.mutable.txn_memory_limit.load(Ordering::Relaxed);
        let writes = SharedWriteSet::new(limit, Some(Arc::clone(&cx.ingest)));
        let mark = {
            let mut writes = writes.lock();
            writes.count_in(&cx.write_sets);
            writes.heed(owner.interrupt_flag());
            writes.mark()
        };
        Self {
            cx,
            owner,
            phase: Phase::Idle,
            isolation: Isolation::RepeatableRead,
            autocommit: false,
            lock_timeout_us: 0,
            statement_id: 0,
            statement_mark: mark,
            gate_passed: false,
            snapshot: None,
            point: None,
            writes,
            mark,
            wrote: false,
            hidden: BTreeMap::new(),
            counters: Vec::new(),
            changed_rows: 0,
            row_counts: RowCountDeltas::default(),
            blobs: TransactionBlobs::new(),
            noted: None,
        }
    }

    /// What the transaction runs in.
    pub fn context(&self) -> &Arc<TransactionContext> {
        &self.cx
    }

    /// Whose locks it takes.
    pub fn owner(&self) -> &Arc<LockOwner> {
        &self.owner
    }

    /// Begins a transaction if none is active, and a statement if `statement_id` is new.
    /// `autocommit` says that the statement is the whole transaction.
    pub fn begin_statement(
        &mut self,
        statement_id: u64,
        isolation: Isolation,
        lock_timeout_us: u64,
        autocommit: bool,
    ) {
        if matches!(self.phase, Phase::Idle) {
            self.phase = Phase::Active;
            self.isolation = isolation;
            self.statement_id = statement_id.wrapping_add(1);
        }
        self.lock_timeout_us = lock_timeout_us;
        if self.statement_id != statement_id {
            self.statement_id = statement_id;
            self.autocommit = autocommit;
            self.row_counts.end_statement(self.statement_mark);
            self.isolation = if self.snapshot.is_some() {
                self.isolation
            } else {
                isolation
            };
            self.statement_mark = self.mark;
            self.gate_passed = false;
            self.point = None;
        }
    }

    /// The statement ended well; its changes stay.
    pub fn end_statement(&mut self) {
        self.point = None;
        self.row_counts.end_statement(self.statement_mark);
        self.statement_mark = self.mark;
    }

    /// Takes the statement's changes back; its locks stay.
    pub fn rollback_statement(&mut self) {
        self.rollback_to(self.statement_mark);
        self.point = None;
    }

    /// A place to roll back to.
    pub fn savepoint(&self) -> Savepoint {
        self.mark
    }

    /// As [`Self::savepoint`], for one that outlives the statement.
    pub fn set_savepoint(&mut self) -> Savepoint {
        self.row_counts.set_savepoint(self.mark);
        self.mark
    }

    /// Forgets all writes after `mark`; locks stay.
    pub fn rollback_to(&mut self, mark: Savepoint) {
        if self.wrote {
            self.writes.lock().rollback_to(mark);
        }
        self.row_counts.rollback_to(mark, self.statement_mark);
        self.hidden.retain(|_, hidden_at| *hidden_at < mark);
        self.statement_mark = self.statement_mark.min(mark);
    }

    /// Whether a transaction is open.
    pub fn is_active(&self) -> bool {
        !matches!(self.phase, Phase::Idle)
    }

    /// Whether it has written.
    pub fn has_writes(&self) -> bool {
        self.wrote && !self.writes.lock().is_empty()
    }

    /// Whether it waits for its outcome.
    pub fn is_prepared(&self) -> bool {
        matches!(self.phase, Phase::Prepared { .. })
    }

    /// Fixes the snapshot now, for START TRANSACTION WITH CONSISTENT SNAPSHOT. At READ COMMITTED
    /// there is none to fix: the next statement reads at a point of its own.
    pub fn fix_snapshot(&mut self) {
        if self.isolation == Isolation::RepeatableRead {
            self.take_snapshot();
        }
    }

    fn take_snapshot(&mut self) {
        let super_versions = &self.cx.super_versions;
        self.snapshot
            .get_or_insert_with(|| self.cx.snapshots.acquire(|| super_versions.visible()));
        self.point = None;
    }

    /// Where the current statement's consistent reads read.
    pub fn read_point(&mut self) -> ReadPoint {
        self.pin();
        self.pinned().clone()
    }

    /// Pins what the current statement's consistent reads read, unless it is pinned.
    pub fn pin(&mut self) {
        if self.point.is_none() {
            self.point = Some(self.new_point());
        }
    }

    /// What [`Self::pin`] pinned. To look there costs no reference count, which is shared by all
    /// sessions.
    ///
    /// # Panics
    /// If nothing is pinned.
    pub fn pinned(&self) -> &ReadPoint {
        self.point.as_ref().expect("pinned before it is read")
    }

    fn new_point(&mut self) -> ReadPoint {
        if self.isolation == Isolation::RepeatableRead && !self.autocommit {
            self.take_snapshot();
        }
        match &self.snapshot {
            Some(snapshot) => {
                pause_points::at(PausePoint::SnapshotTaken);
                ReadPoint {
                    seqno: snapshot.seqno(),
                    super_version: self.cx.super_versions.pin(),
                }
            }
            None => self.cx.super_versions.latest(),
        }
    }

    /// Where locking reads read: everything committed by now.
    pub fn latest_point(&self) -> ReadPoint {
        self.cx.super_versions.latest()
    }

    /// The snapshot's seqno, if the transaction has fixed one.
    pub fn snapshot_seqno(&self) -> Option<Seqno> {
        self.snapshot.as_ref().map(Snapshot::seqno)
    }

    /// Takes a row lock; waits as `policy` says, `None` for the session's timeout.
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

    /// Newest own version of `user_key`, else the newest at `point`; deletions are hits.
    pub fn get<R>(
        &self,
        point: &ReadPoint,
        user_key: &[u8],
        f: impl FnOnce(InternalKey<'_>, Value<'_>) -> R,
    ) -> Result<Option<R>> {
        if !self.wrote {
            return read::get(&point.super_version, user_key, point.seqno, f);
        }
        let mut f = Some(f);
        let own = {
            let writes = self.writes.lock();
            writes.get(user_key, |key, value| f.take().map(|f| f(key, value)))?
        };
        if let Some(result) = own.flatten() {
            return Ok(Some(result));
        }
        match f {
            Some(f) => read::get(&point.super_version, user_key, point.seqno, f),
            None => Ok(None),
        }
    }

    /// Whether it has written, or deleted, the key.
    ///
    /// # Errors
    /// Those of reading what was spilled.
    pub fn has_written(&self, user_key: &[u8]) -> Result<bool> {
        if !self.wrote {
            return Ok(false);
        }
        let found = self.writes.lock().get(user_key, |_, _| ())?;
        Ok(found.is_some())
    }

    /// As [`Self::get`] for each of `keys`, in any order; the blocks that several keys need are
    /// read at the same time. Results are in the order of the keys; `f` gets the number of the key
    /// too. An error is that of its key alone.
    pub fn multi_get<R>(
        &self,
        point: &ReadPoint,
        keys: &[&[u8]],
        mut f: impl FnMut(usize, InternalKey<'_>, Value<'_>) -> R,
    ) -> Vec<Result<Option<R>>> {
        let mut results: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
        read::in_batches(&point.super_version, keys, point.seqno, |i| {
            results[i] = self.get(point, keys[i], |key, value| f(i, key, value));
        });
        results
    }

    /// Own writes as a source for scans; it sees those that follow, too.
    pub fn own_writes(&self) -> WriteSetIter {
        self.writes.iter()
    }

    /// As [`Self::own_writes`], for scans from `lower` to below `upper`.
    pub fn own_writes_within(&self, lower: &[u8], upper: Option<&[u8]>) -> WriteSetIter {
        self.writes.iter_within(lower, upper)
    }

    /// Whether the own writes touch `index`.
    pub fn writes_touch(&self, index: IndexId) -> bool {
        self.wrote && self.writes.lock().touches(index)
    }

    /// Waits at the stall gate, once a statement, before its first write.
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
    pub fn before_delete(&mut self) -> Result<()> {
        if !self.gate_passed {
            let owner = Arc::clone(&self.owner);
            self.cx
                .pipeline
                .pass_gate_deleting(&move || owner.is_interrupted())?;
            // What else the statement writes passes by itself.
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
    /// What is written and then rolled back is garbage.
    ///
    /// # Errors
    /// As for [`BlobStore::write`].
    pub fn write_blob(&mut self, column: u32, value: &[u8]) -> Result<BlobRef> {
        self.cx.blobs.write(&mut self.blobs, column, value)
    }

    /// Adds a value whose tail ends with references to blobs.
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

    fn write(&mut self, write: impl FnOnce(&mut WriteSet) -> Result<()>) -> Result<()> {
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

    /// Whether any row is hidden.
    pub fn hides_any(&self) -> bool {
        !self.hidden.is_empty()
    }

    /// Whether the snapshot's version of this row is hidden.
    pub fn hides(&self, row_key: &[u8]) -> bool {
        self.hidden.contains_key(row_key)
    }

    /// Persists that `counter` has got to `value` when the transaction commits.
    pub fn raise_counter(&mut self, counter: u64, value: CounterValue) {
        match self.counters.iter_mut().find(|(c, _)| *c == counter) {
            Some((_, max)) => *max = value.max(*max),
            None => self.counters.push((counter, value)),
        }
    }

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
    pub fn commit_unsynced(&mut self) -> Result<()> {
        if matches!(self.phase, Phase::Active) && self.has_writes() {
            self.commit_active()?;
        }
        self.finish();
        Ok(())
    }

    /// Commits the own writes in one step. Returns the end of the record.
    fn commit_active(&mut self) -> Result<Option<Lsn>> {
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
    fn hand_over<T>(
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

    fn rows_when_committed(&mut self) -> Vec<(Arc<RowCount>, Option<i64>)> {
        let all = self.row_counts.take();
        all.map(|(rows, net)| (Arc::clone(rows), Some(net)))
            .collect()
    }

    fn finish(&mut self) {
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

impl Drop for Transaction {
    fn drop(&mut self) {
        self.finish();
    }
}
