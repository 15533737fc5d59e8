//! Options of a database, with their defaults. Sizes are in bytes.

use super::events::{Listener, Silent};
use super::value::ENTRY_BYTES_MAX;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

/// What a commit waits for; the meanings of `innodb_flush_log_at_trx_commit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FlushMode {
    /// 0: nothing; log written and synced once a second.
    Lazy = 0,
    /// 1: the log is on the device.
    Sync = 1,
    /// 2: the log is with the operating system; synced once a second.
    Write = 2,
}

/// Options that may change while the database is open.
#[derive(Debug)]
pub struct LiveOptions {
    flush_mode: AtomicU8,
    /// Freeze the active memtable at this size.
    pub memtable_size: AtomicU64,
    /// Freeze it at this size already: the memory limit's word, not an option.
    pub memtable_cap: AtomicU64,
    /// Memory for caches, memtables, indexes and write sets together; 0 lets each part have its
    /// own size. Under a limit the sizes of the caches follow from it.
    pub memory_limit: AtomicU64,
    /// A transaction's write set may take this much memory; what is more goes to files.
    pub txn_memory_limit: AtomicU64,
    /// Bytes a second that flushes and compactions may read and write together; 0 for no limit.
    pub background_io_rate: AtomicU64,
    /// Values of so many bytes and more go to blob files.
    pub blob_threshold: AtomicU64,
    /// Longer entries are refused: [`ENTRY_BYTES_MAX`]. Smaller values serve tests.
    pub entry_bytes_max: AtomicU64,
    /// Freeze the active memtable when its entries refer to so many bytes of blobs: what they replace is
    /// seen to be garbage only after a flush and compactions. Follows the blobs that live; not an option.
    pub blob_freeze_at: AtomicU64,
    /// While the log is archived, a segment is closed when it has been in use for so many microseconds.
    pub log_archive_timeout_us: AtomicU64,
}

/// More memory would make fewer sorted runs of a load, and nothing faster.
const LOAD_MEMORY_MAX: u64 = 64 << 20;
/// Each index takes some KiB.
const LOAD_MEMORY_MIN: u64 = 64 << 10;

impl LiveOptions {
    /// The flush mode.
    pub fn flush_mode(&self) -> FlushMode {
        match self.flush_mode.load(Ordering::Relaxed) {
            0 => FlushMode::Lazy,
            2 => FlushMode::Write,
            _ => FlushMode::Sync,
        }
    }

    /// Where the active memtable freezes.
    pub fn freeze_at(&self) -> u64 {
        let cap = self.memtable_cap.load(Ordering::Relaxed);
        self.memtable_size.load(Ordering::Relaxed).min(cap)
    }

    /// Memory that a load may take for entries on their way into files: what a transaction may, within
    /// bounds.
    pub fn load_memory(&self) -> u64 {
        let limit = self.txn_memory_limit.load(Ordering::Relaxed);
        limit.clamp(LOAD_MEMORY_MIN, LOAD_MEMORY_MAX)
    }

    /// Changes the flush mode for the commits that follow.
    pub fn set_flush_mode(&self, mode: FlushMode) {
        self.flush_mode.store(mode as u8, Ordering::Relaxed);
    }
}

/// Measured; see `docs/benchmarks.md`.
const BLOB_THRESHOLD: u64 = 4 << 10;

impl Default for LiveOptions {
    fn default() -> Self {
        Self {
            flush_mode: AtomicU8::new(FlushMode::Sync as u8),
            memtable_size: AtomicU64::new(64 << 20),
            memtable_cap: AtomicU64::new(u64::MAX),
            memory_limit: AtomicU64::new(0),
            txn_memory_limit: AtomicU64::new(64 << 20),
            background_io_rate: AtomicU64::new(0),
            blob_threshold: AtomicU64::new(BLOB_THRESHOLD),
            entry_bytes_max: AtomicU64::new(ENTRY_BYTES_MAX),
            blob_freeze_at: AtomicU64::new(u64::MAX),
            log_archive_timeout_us: AtomicU64::new(60_000_000),
        }
    }
}

/// Options of a database.
#[derive(Clone)]
pub struct Options {
    /// Options that may change while open.
    pub live: Arc<LiveOptions>,
    /// Block cache capacity, decoded bytes. Without effect under a memory limit.
    pub block_cache_size: u64,
    /// Row cache capacity, bytes; 0 for none. Without effect under a memory limit.
    pub row_cache_size: u64,
    /// WAL segment size; a multiple of 4096.
    pub wal_segment_size: u64,
    /// WAL syncs that may be in flight at once.
    pub wal_syncs_in_flight: usize,
    /// Uncompressed block size the SST writer aims at.
    pub block_size: usize,
    /// SST size the flush and compaction splitters aim at.
    pub target_file_size: u64,
    /// Size of a blob file at the most; smaller while there are few bytes in all.
    pub blob_file_size: u64,
    /// Bytes of blobs below which no memtable is flushed for their sake, and no file compacted.
    pub blob_garbage_min: u64,
    /// L0 runs over one key that start a compaction.
    pub l0_compaction_runs: usize,
    /// L0 runs over one key that stop writers.
    pub l0_stop_runs: usize,
    /// Frozen memtables that stop writers.
    pub frozen_memtables_max: usize,
    /// Size of the first non-empty level under L0, at least.
    pub base_level_size: u64,
    /// Background threads for compaction; 0 leaves all background work to explicit calls.
    pub background_jobs: usize,
    /// Whether compactions copy blocks that nothing changes as they are stored. `false` serves
    /// comparisons only.
    pub block_reuse: bool,
    /// Row locks of a transaction that have an entry each in the lock table; beyond them they merge
    /// into sorted sets. Small values, 0 for each lock at once, serve tests.
    pub lock_merge_rows: usize,
    /// Open the log with direct I/O where the file system has it.
    pub wal_direct_io: bool,
    /// Read table files past the page cache where the file system can: the caches here are all the
    /// memory there is then.
    pub direct_reads: bool,
    /// Archive the log in this directory, which must exist.
    pub log_archive_dir: Option<PathBuf>,
    /// Receives messages.
    pub listener: Listener,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            live: Arc::new(LiveOptions::default()),
            block_cache_size: 128 << 20,
            row_cache_size: 32 << 20,
            wal_segment_size: 16 << 20,
            wal_syncs_in_flight: 4,
            block_size: 8 << 10,
            target_file_size: 32 << 20,
            blob_file_size: 256 << 20,
            blob_garbage_min: 32 << 20,
            l0_compaction_runs: 4,
            l0_stop_runs: 36,
            frozen_memtables_max: 4,
            base_level_size: 128 << 20,
            background_jobs: 1,
            block_reuse: true,
            lock_merge_rows: 4096,
            wal_direct_io: true,
            direct_reads: false,
            log_archive_dir: None,
            listener: Arc::new(Silent),
        }
    }
}
