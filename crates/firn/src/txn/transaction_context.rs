//! The parts of a database that transactions work with.

use super::lock_table::LockTable;
use super::prepared::PreparedTransactions;
use super::snapshots::SnapshotList;
use crate::base::memory_tracker::MemoryTracker;
use crate::base::options::MutableOptions;
use crate::blob::BlobStore;
use crate::ingest::{Ingest, LoadHost};
use crate::iter::TombstoneReports;
use crate::read::SuperVersions;
use crate::write::Pipeline;
use std::sync::Arc;

/// The parts of a database that its transactions work with.
pub struct TransactionContext {
    /// Current super versions.
    pub super_versions: Arc<SuperVersions>,
    /// Where commits go.
    pub pipeline: Arc<Pipeline>,
    /// Row locks.
    pub locks: LockTable,
    /// Snapshots that compaction must keep.
    pub snapshots: Arc<SnapshotList>,
    /// Options that may change.
    pub mutable: Arc<MutableOptions>,
    /// Memory of all write sets.
    pub write_sets: Arc<MemoryTracker>,
    /// Prepared transactions that no session owns.
    pub prepared: Arc<PreparedTransactions>,
    /// Ranges in which scans skipped too much.
    pub tombstone_reports: Arc<TombstoneReports>,
    /// Where files outside of flush and compaction come from.
    pub ingest: Arc<Ingest>,
    /// Where loads are installed.
    pub loads: Arc<dyn LoadHost>,
    /// Values out of line.
    pub blobs: Arc<BlobStore>,
}
