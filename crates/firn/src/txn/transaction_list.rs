//! The open transactions, for reports.

use super::isolation::Isolation;
use super::lock_table::LockOwner;
use crate::base::{IndexId, Seqno, wall_clock};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// How far a transaction is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TransactionPhase {
    /// It may read and write.
    Active,
    /// The transaction's changes are in the log, and it waits for its outcome.
    Prepared,
    /// The transaction's changes are visible, and it waits until the log is durable.
    Committed,
}

impl TransactionPhase {
    /// The phase in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Prepared => "prepared",
            Self::Committed => "committed, waits for the log",
        }
    }
}

const IDLE: u8 = 0;
const ACTIVE: u8 = 1;
const PREPARED: u8 = 2;
const COMMITTED: u8 = 3;

/// An open transaction of a session.
#[derive(Debug, Clone)]
pub struct TransactionInfo {
    /// Owner of the transaction's locks; the owner's id names the transaction in reports.
    pub owner: Arc<LockOwner>,
    /// How far it is.
    pub phase: TransactionPhase,
    /// Its isolation level.
    pub isolation: Isolation,
    /// When it began, microseconds since 1970.
    pub begun_us: u64,
    /// The seqno of the transaction's snapshot, and when the snapshot was taken, in microseconds
    /// since 1970.
    pub snapshot: Option<(Seqno, u64)>,
    /// Memory of its own writes, bytes.
    pub write_bytes: u64,
}

/// All transactions of sessions, the idle ones included.
///
/// A transaction enters the list when its session is made and leaves it with the session, so that
/// the begin of a transaction only stores a few numbers in an entry of its own. A report reads
/// these numbers one by one, so they may be of different moments.
#[derive(Default)]
pub struct TransactionList {
    entries: Mutex<BTreeMap<u64, Arc<TransactionEntry>>>,
}

/// A transaction in the list. Only the thread of the transaction's session stores into it.
pub(super) struct TransactionEntry {
    owner: Arc<LockOwner>,
    /// The referenced tables that the transaction relies on, by their clustered indexes.
    relies_on: Mutex<Vec<IndexId>>,
    write_bytes: AtomicU64,
    phase: AtomicU8,
    isolation: AtomicU8,
    begun_us: AtomicU64,
    /// Seqno of the snapshot; valid if `snapshot_us` is not 0.
    snapshot: AtomicU64,
    snapshot_us: AtomicU64,
}

impl TransactionList {
    /// Adds the transaction whose locks `owner` has.
    pub(super) fn add(&self, owner: &Arc<LockOwner>) -> Arc<TransactionEntry> {
        let entry = Arc::new(TransactionEntry {
            owner: Arc::clone(owner),
            relies_on: Mutex::default(),
            write_bytes: AtomicU64::new(0),
            phase: AtomicU8::new(IDLE),
            isolation: AtomicU8::new(0),
            begun_us: AtomicU64::new(0),
            snapshot: AtomicU64::new(0),
            snapshot_us: AtomicU64::new(0),
        });
        let mut entries = self.entries.lock();
        entries.insert(owner.id(), Arc::clone(&entry));
        entry
    }

    pub(super) fn remove(&self, entry: &TransactionEntry) {
        self.entries.lock().remove(&entry.owner.id());
    }

    /// Describes the transactions that are not idle, in ascending order of the ids of their owners.
    pub fn open(&self) -> Vec<TransactionInfo> {
        let entries: Vec<_> = self.entries.lock().values().cloned().collect();
        entries.iter().filter_map(|entry| entry.info()).collect()
    }

    /// The owners of the transactions that rely on the referenced table with clustered index
    /// `table`.
    pub(super) fn relying_on(&self, table: IndexId) -> Vec<Arc<LockOwner>> {
        let entries = self.entries.lock();
        let relying = entries.values().filter(|entry| entry.relies_on(table));
        relying.map(|entry| Arc::clone(&entry.owner)).collect()
    }

    /// The oldest snapshot: when it was taken, microseconds since 1970, its seqno, and the owner.
    pub fn oldest_snapshot(&self) -> Option<(u64, Seqno, Arc<LockOwner>)> {
        let entries = self.entries.lock();
        let all = entries.values().filter_map(|entry| {
            let (seqno, since_us) = entry.snapshot()?;
            Some((since_us, seqno, &entry.owner))
        });
        let oldest = all.min_by_key(|(since_us, ..)| *since_us);
        oldest.map(|(since_us, seqno, owner)| (since_us, seqno, Arc::clone(owner)))
    }
}

impl TransactionEntry {
    /// Whether the transaction relies on the referenced table with clustered index `table`.
    pub(super) fn relies_on(&self, table: IndexId) -> bool {
        self.relies_on.lock().contains(&table)
    }

    pub(super) fn rely_on(&self, table: IndexId) {
        self.relies_on.lock().push(table);
    }

    /// Ends the reliance on all tables that [`Self::rely_on`] has noted, and calls `each` with the
    /// id of each table's clustered index. A transaction relies on a referenced table once it has
    /// checked a foreign key there: DDL that replaces the table's indexes waits for it.
    pub(super) fn rely_on_nothing(&self, each: impl FnMut(IndexId)) {
        self.relies_on.lock().drain(..).for_each(each);
    }

    pub(super) fn begin(&self, isolation: Isolation) {
        self.begun_us.store(wall_clock::now_us(), Ordering::Relaxed);
        self.set_isolation(isolation);
        self.phase.store(ACTIVE, Ordering::Release);
    }

    pub(super) fn set_isolation(&self, isolation: Isolation) {
        self.isolation.store(isolation as u8, Ordering::Relaxed);
    }

    pub(super) fn set_snapshot(&self, seqno: Seqno) {
        self.snapshot.store(seqno, Ordering::Relaxed);
        self.snapshot_us
            .store(wall_clock::now_us(), Ordering::Release);
    }

    pub(super) fn forget_snapshot(&self) {
        self.snapshot_us.store(0, Ordering::Relaxed);
    }

    /// Stores the memory that the transaction's writes take, for reports. A report does not ask the
    /// write set itself, whose mutex is held for as long as a large commit merges its spilled runs.
    pub(super) fn set_write_bytes(&self, bytes: u64) {
        self.write_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn prepared(&self) {
        self.phase.store(PREPARED, Ordering::Relaxed);
    }

    pub(super) fn committed(&self) {
        self.phase.store(COMMITTED, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.phase.store(IDLE, Ordering::Relaxed);
        self.forget_snapshot();
        self.set_write_bytes(0);
    }

    /// The seqno of the snapshot, and when it was taken, microseconds since 1970.
    fn snapshot(&self) -> Option<(Seqno, u64)> {
        let since_us = self.snapshot_us.load(Ordering::Acquire);
        let seqno = self.snapshot.load(Ordering::Relaxed);
        (since_us != 0).then_some((seqno, since_us))
    }

    fn info(&self) -> Option<TransactionInfo> {
        let phase = match self.phase.load(Ordering::Acquire) {
            ACTIVE => TransactionPhase::Active,
            PREPARED => TransactionPhase::Prepared,
            COMMITTED => TransactionPhase::Committed,
            _ => return None,
        };
        Some(TransactionInfo {
            owner: Arc::clone(&self.owner),
            phase,
            isolation: Isolation::from_number(self.isolation.load(Ordering::Relaxed)),
            begun_us: self.begun_us.load(Ordering::Relaxed),
            snapshot: self.snapshot(),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
        })
    }
}
