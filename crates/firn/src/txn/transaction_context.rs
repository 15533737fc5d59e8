//! The parts of a database that transactions work with.

use super::active_inserts::ActiveInserts;
use super::lock_table::LockTable;
use super::prepared_transactions::PreparedTransactions;
use super::referenced_tables::ReferencedTables;
use super::snapshots::SnapshotList;
use super::transaction_list::TransactionList;
use crate::base::memory_tracker::MemoryTracker;
use crate::base::options::MutableOptions;
use crate::blob::BlobStore;
use crate::ingest::{LoadHost, RunFactory};
use crate::iter::TombstoneReports;
use crate::read::SuperVersions;
use crate::write::Pipeline;
use std::sync::Arc;

/// The parts of a database that its transactions work with. All transactions of a database share
/// one context.
pub struct TransactionContext {
    /// Pins the super versions that reads use.
    pub super_versions: Arc<SuperVersions>,
    /// Writes commits to the WAL and the memtable, and publishes them.
    pub pipeline: Arc<Pipeline>,
    /// Row locks.
    pub locks: LockTable,
    /// The open transactions, for reports.
    pub transactions: Arc<TransactionList>,
    /// Transactions with uncommitted inserts, for scans that lock gaps.
    pub inserts: ActiveInserts,
    /// Referenced tables of foreign keys that transactions rely on.
    pub referenced: Arc<ReferencedTables>,
    /// Live snapshots; compaction keeps the versions that they see.
    pub snapshots: Arc<SnapshotList>,
    /// Options that may change while the database is open.
    pub mutable: Arc<MutableOptions>,
    /// Sum of the memory of all write sets, bytes.
    pub write_sets: Arc<MemoryTracker>,
    /// Prepared transactions that no session owns.
    pub prepared: Arc<PreparedTransactions>,
    /// Key ranges in which scans skipped too many tombstones; compactions rewrite them first.
    pub tombstone_reports: Arc<TombstoneReports>,
    /// Creates SSTs for spills and bulk loads.
    pub ingest: Arc<RunFactory>,
    /// Installs the SSTs of bulk loads.
    pub loads: Arc<dyn LoadHost>,
    /// Stores large values in blob files.
    pub blobs: Arc<BlobStore>,
}
