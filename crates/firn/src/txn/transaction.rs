//! One transaction: its snapshot, its write set, its row locks, commit and rollback.
//!
//! A session keeps one [`Transaction`] and begins it again and again; a transaction that only reads
//! allocates nothing. Phases: idle → active → (prepared →) committed or rolled back → idle.
//!
//! Isolation: at READ COMMITTED each statement takes a read point of its own; at REPEATABLE READ
//! the first consistent read fixes the snapshot. Writes and locking reads see the latest committed
//! version: they take the row lock and then read at the newest read point. If the transaction
//! changes a row that is newer than its snapshot, it puts all index entries of the row into its
//! write set and *hides* the snapshot's version of the row and its entries. So the primary and
//! every index show this transaction the same version.
//!
//! In optimistic tables, writes and locking reads see what plain reads see, and lock nothing: the
//! commit finds out whether another transaction was first (`validation`).
//!
//! The write set has a mutex, because open cursors share it. It is held for one operation, and
//! never while the transaction waits for a row lock or appends a batch to the log.

mod commit_rollback;
mod gap_locking;
mod private_inserts;
mod reads;
mod validation;
mod writes;

use super::commit_by_xid::discard;
use super::found_parents::FoundParents;
use super::gate_wait::GateWait;
use super::hidden_rows::HiddenRows;
use super::isolation::Isolation;
use super::lock_table::{Granted, LockMode, LockOwner, WaitPolicy};
use super::prepared_transactions::PreparedTransaction;
use super::row_count_deltas::RowCountDeltas;
use super::savepoint_locks::WriteLocks;
use super::snapshots::Snapshot;
use super::statement_tables::StatementTables;
use super::transaction_context::TransactionContext;
use super::transaction_list::TransactionEntry;
use super::validation_set::ValidationSet;
use super::write_set::{Savepoint, SharedWriteSet, WriteSet, WriteSetIter};
use crate::base::blob_ref::BlobRef;
use crate::base::memory_tracker::MemoryCharge;
use crate::base::pause_points::{self, PausePoint};
use crate::base::row_count::RowCount;
use crate::base::{
    CounterValue, Error, ErrorKind, IndexId, InternalKey, Kind, Result, Seqno, Value,
};
use crate::blob::TransactionBlobs;
use crate::env::ReadClass;
use crate::read::{self, ReadPoint};
use crate::wal::{BinlogPosition, Lsn};
use crate::write::{Batch, Changes, CommitRecord, GateCharge, PreparedLogPin, unknown_outcome};
use private_inserts::PrivateInserts;
use std::sync::Arc;
use std::sync::atomic::Ordering;

enum Phase {
    Idle,
    Active,
    Prepared {
        xid: Vec<u8>,
        changes: Arc<Changes>,
        /// Counts the memory of `changes`, which is taken in addition to that of the write set.
        memory: MemoryCharge,
        prepared: PreparedLogPin,
    },
    /// The changes are visible; [`Transaction::commit`] has yet to wait until they are durable.
    Committed {
        lsn: Lsn,
        /// Whether the commit is in the server's binary log. If a crash takes the commit back,
        /// recovery then finds it in the binary log and commits the transaction again.
        in_binlog: bool,
    },
}

/// A session's transaction.
pub struct Transaction {
    cx: Arc<TransactionContext>,
    owner: Arc<LockOwner>,
    /// Its entry in [`TransactionContext::transactions`].
    entry: Arc<TransactionEntry>,
    phase: Phase,
    isolation: Isolation,
    autocommit: bool,
    lock_timeout_us: u64,
    statement_id: u64,
    /// Mark of the write set when the statement began.
    statement_mark: Savepoint,
    /// Whether the statement has passed the write stall gate.
    gate_passed: bool,
    /// The charge of the gate for the transaction's statements.
    gate_charge: GateCharge,
    /// Bytes for which the stall gate charges the commit of the transaction.
    committed_bytes: u64,
    /// The snapshot of the transaction. It is set only at REPEATABLE READ.
    snapshot: Option<Snapshot>,
    /// Read point of the current statement.
    point: Option<ReadPoint>,
    /// A snapshot that makes compactions keep the old versions and deletions which the validation
    /// will look at. It is taken before the first read that the validation checks, unless
    /// `snapshot` is set or about to be.
    oldest_read: Option<Snapshot>,
    /// The keys of optimistic tables on which the transaction depends.
    validation: ValidationSet,
    /// Whether the session locks the rows of optimistic tables.
    locks_optimistic: bool,
    writes: SharedWriteSet,
    private_inserts: PrivateInserts,
    /// Copy of [`WriteSet::mark`](super::WriteSet::mark), which can be read without the write set's
    /// mutex.
    mark: Savepoint,
    /// Whether the transaction has tried to write since the write set was last cleared.
    wrote: bool,
    /// The slots of [`super::ActiveInserts`] that list the transaction.
    inserting: u64,
    /// Tables that the statement reaches by foreign keys.
    tables: StatementTables,
    /// Referenced values that the transaction has found.
    found_parents: FoundParents,
    hidden: HiddenRows,
    /// Locks that writes have taken, and that a rollback of these writes releases.
    write_locks: WriteLocks,
    /// Counters and the maxima that the commit persists.
    counters: Vec<(u64, CounterValue)>,
    changed_rows: u64,
    row_counts: RowCountDeltas,
    /// Keeps the blobs that the transaction wrote from being removed as garbage. Until its changes
    /// are visible, nothing else refers to these blobs.
    blobs: TransactionBlobs,
    /// The xid under which [`PreparedTransactions`](super::PreparedTransactions) has noted this
    /// transaction, which is prepared; `None` if it has not noted the transaction.
    noted: Option<Vec<u8>>,
}

impl Transaction {
    /// An idle transaction whose locks belong to `owner`.
    pub fn new(cx: Arc<TransactionContext>, owner: Arc<LockOwner>) -> Self {
        let limit = cx.mutable.write_set_limit();
        let writes = SharedWriteSet::new(limit, Some(Arc::clone(&cx.ingest)));
        let mark = {
            let mut writes = writes.lock();
            writes.count_in(&cx.write_sets);
            writes.heed(owner.interrupt_flag());
            writes.mark()
        };
        let entry = cx.transactions.add(&owner);
        let hidden = HiddenRows::new(&cx.write_sets);
        Self {
            cx,
            owner,
            entry,
            phase: Phase::Idle,
            isolation: Isolation::RepeatableRead,
            autocommit: false,
            lock_timeout_us: 0,
            statement_id: 0,
            statement_mark: mark,
            gate_passed: false,
            gate_charge: GateCharge::default(),
            committed_bytes: 0,
            snapshot: None,
            point: None,
            oldest_read: None,
            validation: ValidationSet::default(),
            locks_optimistic: false,
            writes,
            mark,
            wrote: false,
            private_inserts: PrivateInserts::default(),
            inserting: 0,
            tables: StatementTables::default(),
            found_parents: FoundParents::default(),
            hidden,
            write_locks: WriteLocks::default(),
            counters: Vec::new(),
            changed_rows: 0,
            row_counts: RowCountDeltas::default(),
            blobs: TransactionBlobs::new(),
            noted: None,
        }
    }

    /// The parts of the database that the transaction works with.
    pub fn context(&self) -> &Arc<TransactionContext> {
        &self.cx
    }

    /// The owner of the transaction's row locks.
    pub fn owner(&self) -> &Arc<LockOwner> {
        &self.owner
    }

    /// Begins a transaction if none is active, and a statement if `statement_id` is new.
    /// `autocommit` says that the transaction consists of this statement alone. `isolation` has no
    /// effect once the transaction has a snapshot.
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
            self.entry.begin(isolation);
            self.statement_id = statement_id.wrapping_add(1);
        }
        self.lock_timeout_us = lock_timeout_us;
        if self.statement_id != statement_id {
            self.statement_id = statement_id;
            self.autocommit = autocommit;
            self.row_counts.end_statement(self.statement_mark);
            self.write_locks.end_statement();
            if self.snapshot.is_none() && self.isolation != isolation {
                self.isolation = isolation;
                self.entry.set_isolation(isolation);
            }
            self.statement_mark = self.mark;
            self.gate_passed = false;
            self.point = None;
            self.tables.clear();
        }
    }

    /// The tables that the statement reaches by foreign keys.
    pub fn statement_tables(&mut self) -> &mut StatementTables {
        &mut self.tables
    }

    /// Ends a successful statement, whose changes stay.
    pub fn end_statement(&mut self) {
        self.point = None;
        self.tables.clear();
        self.row_counts.end_statement(self.statement_mark);
        self.write_locks.end_statement();
        self.statement_mark = self.mark;
    }

    /// Rolls back the statement's changes, and keeps or releases locks as [`Self::rollback_to`]
    /// does.
    pub fn rollback_statement(&mut self) {
        self.rollback_to(self.statement_mark);
        self.point = None;
    }

    /// The current position in the write set, to which [`Self::rollback_to`] can roll back within
    /// the same statement.
    pub fn savepoint(&self) -> Savepoint {
        self.mark
    }

    /// Sets a savepoint that outlives the statement. Must be called between statements.
    pub fn set_savepoint(&mut self) -> Savepoint {
        self.row_counts.set_savepoint(self.mark);
        self.write_locks.set_savepoint(self.mark);
        self.mark
    }

    /// Forgets all writes after `mark`. Locks are kept, except those of keys that only these writes
    /// have locked ([`Self::keep_write_locks`]).
    pub fn rollback_to(&mut self, mark: Savepoint) {
        self.roll_back_writes(mark);
        self.found_parents.clear();
        self.row_counts.rollback_to(mark, self.statement_mark);
        for group in self.write_locks.roll_back(mark).iter().rev() {
            group.for_each(|key| {
                self.cx.locks.release(&self.owner, key);
            });
        }
        self.statement_mark = self.statement_mark.min(mark);
    }

    /// Forgets all writes after `mark`, and nothing else.
    fn roll_back_writes(&mut self, mark: Savepoint) {
        if self.wrote {
            let mut writes = self.writes.lock();
            writes.rollback_to(mark);
            self.entry.set_write_bytes(writes.bytes());
        }
    }

    /// Whether a transaction is open.
    pub fn is_active(&self) -> bool {
        !matches!(self.phase, Phase::Idle)
    }

    /// Whether the transaction has written.
    pub fn has_writes(&self) -> bool {
        self.wrote && !self.writes.lock().is_empty()
    }

    /// Whether the transaction depends on tables by more than the rows that it has read: it has
    /// written, holds locks, or its commit will validate what it has read.
    pub fn depends_on_tables(&self) -> bool {
        self.has_writes()
            || self.owner.locks_held() + self.owner.gaps_held() > 0
            || !self.validation.is_empty()
    }

    /// Whether the transaction is prepared and waits for its outcome.
    pub fn is_prepared(&self) -> bool {
        matches!(self.phase, Phase::Prepared { .. })
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.finish();
        self.cx.transactions.remove(&self.entry);
    }
}
