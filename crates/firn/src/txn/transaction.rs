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

mod ending;
mod reads;
mod writes;

use super::lock_table::{Granted, LockMode, LockOwner, WaitPolicy};
use super::prepared::PreparedTransaction;
use super::prepared_ending::discard;
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
    /// The values that it wrote out of line: their files are held until a view shows them.
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

    /// The shared parts of the engine that the transaction uses.
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
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.finish();
    }
}
