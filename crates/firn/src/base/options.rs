//! Options of a database, with their defaults. Sizes are in bytes.

use super::allocator_stats::AllocatorStats;
use super::event_listener::{Listener, Silent};
use super::value::ENTRY_BYTES_MAX;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

/// How durable a commit is when it returns, with the values of `innodb_flush_log_at_trx_commit`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum CommitDurability {
    /// Value 0: the commit is not durable when it returns; the log is written and synced once a
    /// second.
    Lazy = 0,
    /// Value 1: the log records of the commit are on the device when it returns.
    Sync = 1,
    /// Value 2: the log records of the commit are with the operating system when it returns; the
    /// log is synced once a second.
    Write = 2,
}

/// Where the files of the last level lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Tier {
    /// All in the data directory. Those in the object store come back.
    Local = 0,
    /// Those that queries have not read for a while lie in the object store.
    Cold = 1,
}

/// Options that may change while the database is open. Sizes are in bytes.
#[derive(Debug)]
pub struct MutableOptions {
    flush_mode: AtomicU8,
    tier: AtomicU8,
    /// A file is cold if no query has read it for so many seconds.
    pub cold_after_s: AtomicU64,
    /// The active memtable freezes at this size (RocksDB: `write_buffer_size`).
    pub memtable_size: AtomicU64,
    /// Upper limit for the size at which the active memtable freezes, bytes. The engine derives it
    /// from [`Self::memory_limit`]; users cannot set it.
    pub memtable_cap: AtomicU64,
    /// Memory for caches, memtables, index partitions and write sets together; 0 for no limit.
    /// Under a limit the engine derives the sizes of both caches from it; without one, each has its
    /// own option.
    pub memory_limit: AtomicU64,
    /// Memory that a transaction's write set may take; the rest spills to files. The server sets it
    /// from `firn_txn_memory_limit`.
    pub txn_memory_limit: AtomicU64,
    /// Upper limit for the memory of each write set, bytes. The engine derives it from
    /// [`Self::memory_limit`] and the write sets and loads there are; users cannot set it. An
    /// ephemeral database shares it with its host database.
    pub write_set_cap: Arc<AtomicU64>,
    /// Bytes per second that flushes and compactions may read and write together; 0 for no limit.
    pub background_io_rate: AtomicU64,
    /// Values of at least this size go to blob files.
    pub blob_threshold: AtomicU64,
    /// Largest length of an entry, at most [`ENTRY_BYTES_MAX`]. Longer entries are refused. Tests
    /// set smaller values.
    pub entry_bytes_max: AtomicU64,
    /// Approximate limit for the log that a recovery would replay, in bytes of segment files
    /// (RocksDB: `max_total_wal_size`). A memtable freezes when the log written since its first
    /// entry is longer than half of this limit. If a prepared transaction keeps more than half of
    /// this limit of log from being released, its prepare record is written again at the end of the
    /// log, and the old segments are released.
    pub max_wal_size: AtomicU64,
    /// The active memtable freezes when its entries refer to this many bytes of blobs. An old blob
    /// becomes garbage only when a compaction meets the entry that replaces it, and entries in a
    /// memtable are not compacted. The engine sets this to a share of the live blob bytes; users
    /// cannot set it.
    pub blob_freeze_at: AtomicU64,
    /// If the log is archived, the current segment is closed when its first record is this old, in
    /// microseconds, so that it can be archived before it is full.
    pub log_archive_timeout_us: AtomicU64,
    /// Whether every deadlock is written to the host's log.
    pub print_all_deadlocks: AtomicBool,
    /// Largest number of SSTs and blob files that are open for reading (RocksDB: `max_open_files`).
    /// Files that are being read, and removed files that readers still use, may make the number
    /// larger.
    pub open_files: AtomicU64,
    /// A warning is logged when a transaction has kept its snapshot for so many seconds; 0 for
    /// none.
    pub snapshot_age_warning_s: AtomicU64,
}

/// Upper bound of the memory of a bulk load. With more memory a load writes fewer sorted runs, but
/// it is not faster.
const LOAD_MEMORY_MAX: u64 = 64 << 20;
/// The smallest size at which a memtable freezes.
pub const MEMTABLE_MIN: u64 = 64 << 10;
/// Lower bound of the memory of a bulk load: the sorter of each index needs some KiB.
const LOAD_MEMORY_MIN: u64 = 64 << 10;
/// A load keeps the memory with which it begins, so it gets only 1/3 of what a write set may grow
/// to while no other one exists: that is where a single write set stops growing.
const LOAD_CAP_SHARE: u64 = 3;
/// Other write sets do not reduce the memory of a load below this number of bytes, or it would
/// write and merge very many temporary files.
const LOAD_CAP_MIN: u64 = 1 << 20;

impl MutableOptions {
    /// The current flush mode.
    pub fn commit_durability(&self) -> CommitDurability {
        match self.flush_mode.load(Ordering::Relaxed) {
            0 => CommitDurability::Lazy,
            2 => CommitDurability::Write,
            _ => CommitDurability::Sync,
        }
    }

    /// Where the files of the last level are to lie.
    pub fn tier(&self) -> Tier {
        match self.tier.load(Ordering::Relaxed) {
            0 => Tier::Local,
            _ => Tier::Cold,
        }
    }

    /// Changes where the files of the last level are to lie.
    pub fn set_tier(&self, tier: Tier) {
        self.tier.store(tier as u8, Ordering::Relaxed);
    }

    /// Size at which the active memtable freezes.
    pub fn freeze_at(&self) -> u64 {
        let cap = self.memtable_cap.load(Ordering::Relaxed);
        self.memtable_size.load(Ordering::Relaxed).min(cap)
    }

    /// The active memtable freezes when the log is longer than this, in bytes from the first
    /// segment that has an entry of the memtable.
    pub fn wal_freeze_at(&self) -> u64 {
        self.max_wal_size.load(Ordering::Relaxed) / 2
    }

    /// Memory that a write set may take before it spills.
    #[inline]
    pub fn write_set_limit(&self) -> u64 {
        let cap = self.write_set_cap.load(Ordering::Relaxed);
        self.txn_memory_limit.load(Ordering::Relaxed).min(cap)
    }

    /// Memory in which a bulk load may sort entries before it writes them to files: the memory
    /// limit of a transaction, or a share of `cap`, what a write set may take that begins now, but
    /// no less than `LOAD_MEMORY_MIN` and no more than `LOAD_MEMORY_MAX`.
    pub fn load_memory(&self, cap: u64) -> u64 {
        let cap = cap / LOAD_CAP_SHARE;
        let limit = self.txn_memory_limit.load(Ordering::Relaxed);
        limit
            .min(cap.max(LOAD_CAP_MIN))
            .clamp(LOAD_MEMORY_MIN, LOAD_MEMORY_MAX)
    }

    /// The options of an ephemeral database before it follows those of `host`, the database that
    /// it belongs to.
    pub fn of_guest(host: &Self) -> Self {
        Self {
            write_set_cap: Arc::clone(&host.write_set_cap),
            ..Self::default()
        }
    }

    /// Copies the options of `host`, the database that this ephemeral database belongs to. Under a
    /// memory limit, memtables of this database freeze at a quarter of the size at which those of
    /// the host database freeze at the latest.
    pub fn follow(&self, host: &Self) {
        let take = |cell: &AtomicU64, from: &AtomicU64| {
            cell.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        take(&self.memtable_size, &host.memtable_size);
        take(&self.memory_limit, &host.memory_limit);
        take(&self.txn_memory_limit, &host.txn_memory_limit);
        take(&self.background_io_rate, &host.background_io_rate);
        take(&self.blob_threshold, &host.blob_threshold);
        take(&self.entry_bytes_max, &host.entry_bytes_max);
        let cap = match host.memory_limit.load(Ordering::Relaxed) {
            0 => u64::MAX,
            _ => (host.memtable_cap.load(Ordering::Relaxed) / 4).max(MEMTABLE_MIN),
        };
        self.memtable_cap.store(cap, Ordering::Relaxed);
    }

    /// Changes the flush mode of later commits.
    pub fn set_commit_durability(&self, mode: CommitDurability) {
        self.flush_mode.store(mode as u8, Ordering::Relaxed);
    }
}

/// Default of [`MutableOptions::blob_threshold`]; `docs/benchmarks.md` has the measurement that led
/// to it.
const BLOB_THRESHOLD: u64 = 4 << 10;

impl Default for MutableOptions {
    fn default() -> Self {
        Self {
            flush_mode: AtomicU8::new(CommitDurability::Sync as u8),
            tier: AtomicU8::new(Tier::Local as u8),
            cold_after_s: AtomicU64::new(3600),
            memtable_size: AtomicU64::new(64 << 20),
            memtable_cap: AtomicU64::new(u64::MAX),
            memory_limit: AtomicU64::new(0),
            txn_memory_limit: AtomicU64::new(64 << 20),
            write_set_cap: Arc::new(AtomicU64::new(u64::MAX)),
            background_io_rate: AtomicU64::new(0),
            blob_threshold: AtomicU64::new(BLOB_THRESHOLD),
            entry_bytes_max: AtomicU64::new(ENTRY_BYTES_MAX),
            max_wal_size: AtomicU64::new(1 << 30),
            blob_freeze_at: AtomicU64::new(u64::MAX),
            log_archive_timeout_us: AtomicU64::new(60_000_000),
            print_all_deadlocks: AtomicBool::new(false),
            open_files: AtomicU64::new(u64::MAX),
            snapshot_age_warning_s: AtomicU64::new(3600),
        }
    }
}

/// Options of a database. Sizes are in bytes.
#[derive(Clone)]
pub struct Options {
    /// Options that may change while open.
    pub mutable: Arc<MutableOptions>,
    /// Capacity of the block cache, decoded bytes. Not used under a memory limit.
    pub block_cache_size: u64,
    /// Capacity of the row cache; 0 for none. Not used under a memory limit.
    pub row_cache_size: u64,
    /// Size of a WAL segment; a multiple of 4096.
    pub wal_segment_size: u64,
    /// WAL syncs that may be in flight at once.
    pub wal_syncs_in_flight: usize,
    /// Target size of an SST block before compression.
    pub block_size: usize,
    /// Target size of an SST, for flushes and compactions (RocksDB: `target_file_size_base`).
    pub target_file_size: u64,
    /// Largest size of a blob file. While few blob bytes have been written since the open, a blob
    /// file is sealed at a smaller size, because its garbage can be collected only once it is
    /// sealed.
    pub blob_file_size: u64,
    /// To find garbage blobs, the engine freezes a memtable early, but only if the memtable refers
    /// to at least this many bytes of blobs. It also compacts the levels above the last one, but
    /// only if the files of these levels together refer to at least this many.
    pub blob_garbage_min: u64,
    /// A compaction of L0 begins when this many of its runs overlap at one key (RocksDB:
    /// `level0_file_num_compaction_trigger`).
    pub l0_compaction_runs: usize,
    /// Writers stop when this many L0 runs overlap at one key (RocksDB:
    /// `level0_stop_writes_trigger`).
    pub l0_stop_runs: usize,
    /// Writers stop when this many frozen memtables wait for a flush (RocksDB:
    /// `max_write_buffer_number`).
    pub frozen_memtables_max: usize,
    /// Least target size of the first non-empty level below L0 (RocksDB:
    /// `max_bytes_for_level_base`).
    pub base_level_size: u64,
    /// Number of compaction threads. With 0 there are no background threads at all, and the caller
    /// must call flushes and compactions itself.
    pub background_jobs: usize,
    /// Whether compactions copy unchanged blocks as they are stored. Benchmarks set `false` to
    /// measure what that gains.
    pub block_reuse: bool,
    /// Number of row locks of a transaction that each have an entry of their own in the lock table.
    /// Further locks of the transaction are merged into sorted sets, which take less memory. Tests
    /// set small values; with 0 every lock is merged.
    pub lock_merge_rows: usize,
    /// Whether the log is opened with direct I/O, if the file system supports it.
    pub wal_direct_io: bool,
    /// Whether SSTs are read past the page cache, if the file system supports it. The engine's
    /// caches are then the only ones.
    pub direct_reads: bool,
    /// Whether the database lasts only as long as the process: it has no log, no disk reserve, and
    /// never syncs a file.
    pub ephemeral: bool,
    /// Directory in which the log is archived; it must exist.
    pub log_archive_dir: Option<PathBuf>,
    /// The memory allocator, from which the memory limit learns what the engine does not count;
    /// `None` if it has no statistics.
    pub allocator: Option<Arc<dyn AllocatorStats>>,
    /// Receives messages.
    pub listener: Listener,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mutable: Arc::new(MutableOptions::default()),
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
            ephemeral: false,
            log_archive_dir: None,
            allocator: None,
            listener: Arc::new(Silent),
        }
    }
}
