//! The database: opening, closing, options, and recovery of prepared transactions.

use crate::error::{CallOutcome, firn_status, guard, guard_value};
use crate::host_callbacks::{
    HostCollations, HostLog, HostMetadataLocks, HostVirtualColumns, HostWaits, firn_host,
};
use crate::new_pool::{PoolFiles, new_pool};
use crate::pointers::{borrow_bytes, boxed, c_str, name, path, unbox};
use crate::progress::{firn_progress, reporter};
use firn::backup::RemoteInCheckpoint;
use firn::base::Error;
use firn::base::allocator_stats::AllocatorStats;
use firn::base::event_listener::Severity;
use firn::base::options::Tier;
use firn::base::options::{CommitDurability, MutableOptions, Options};
use firn::db::{Attached, Db, ServerStart};
use firn::env::{DiskSpeed, Env, PosixEnv, SlowEnv};
use firn::store::RemoteFiles;
use firn::temporary::TemporaryTables;
use firn::write::OwnedBinlogPosition;
use firn_pool::parse_nodes;
use firn_tier::{ColdStore, open_cold_store};
use std::ffi::{c_char, c_void};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// An open database. A server opens one.
pub struct firn_db {
    db: Arc<Db>,
    temporary: TemporaryTables,
    cold: Option<Arc<ColdStore>>,
}

impl firn_db {
    /// A handle like that of `firn_open` for a database that was opened in Rust, for tests with
    /// their own environment. `firn_close` frees it.
    pub fn over(db: Arc<Db>) -> *mut Self {
        Self::with(db, None)
    }

    fn with(db: Arc<Db>, cold: Option<Arc<ColdStore>>) -> *mut Self {
        let temporary = TemporaryTables::new(Arc::clone(&db));
        boxed(Self {
            db,
            temporary,
            cold,
        })
    }

    /// # Safety
    /// `db` must be NULL or from `firn_open`, and must not be closed.
    pub(crate) unsafe fn get<'a>(db: *const firn_db) -> Result<&'a Arc<Db>, CallOutcome> {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        Ok(&unsafe { Self::whole(db) }?.db)
    }

    /// # Safety
    /// The requirements are those of [`Self::get`].
    pub(crate) unsafe fn temporary<'a>(
        db: *const firn_db,
    ) -> Result<&'a TemporaryTables, CallOutcome> {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        Ok(&unsafe { Self::whole(db) }?.temporary)
    }

    /// The object store, if there is one.
    ///
    /// # Safety
    /// The requirements are those of [`Self::get`].
    pub(crate) unsafe fn cold<'a>(
        db: *const firn_db,
    ) -> Result<Option<&'a Arc<ColdStore>>, CallOutcome> {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        Ok(unsafe { Self::whole(db) }?.cold.as_ref())
    }

    /// # Safety
    /// The requirements are those of [`Self::get`].
    unsafe fn whole<'a>(db: *const firn_db) -> Result<&'a Self, CallOutcome> {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { db.as_ref() }.ok_or_else(|| Error::invalid("no database").into())
    }
}

/// How to open a database. Sizes are in bytes; 0 stands for the default.
#[repr(C)]
pub struct firn_config {
    /// Directory of the database; created if missing.
    pub dir: *const c_char,
    /// Size of the block cache, which holds decoded blocks. It has no effect if there is a memory
    /// limit, which then determines the size.
    pub block_cache_size: u64,
    /// Size of the row cache; 0 for none. It has no effect if there is a memory limit, which then
    /// determines the size.
    pub row_cache_size: u64,
    /// Limit for the memory of the engine; 0 for no limit.
    pub memory_limit: u64,
    /// A memtable is flushed at this size.
    pub memtable_size: u64,
    /// Memory that a transaction's writes may take. Writes beyond it are spilled to files.
    pub txn_memory_limit: u64,
    /// Values at least this long go to blob files.
    pub blob_threshold: u64,
    /// Size of a log segment.
    pub wal_segment_size: u64,
    /// Durability that a commit waits for: 0 none, 1 the device, 2 the operating system.
    pub flush_log_at_trx_commit: u32,
    /// Background threads for compaction.
    pub background_jobs: u32,
    /// Bytes a second that background work reads and writes at most; 0 for no limit.
    pub background_io_rate: u64,
    /// Speed of the disk that files seem to lie on, for tests: `120us` for instance, or
    /// `500us,3000iops,125MBps`. NULL or empty for the speed of the real disk.
    pub debug_disk: *const c_char,
    /// Whether the memory pool is on.
    pub pool_enabled: bool,
    /// Nodes of the memory pool, as for `firn_set_pool_nodes`; NULL for none.
    pub pool_nodes: *const c_char,
    /// Name of this server among those that share the memory pool. It stays the same over restarts.
    pub pool_server: *const c_char,
    /// File with the key under which the memory pool's values are encrypted; NULL or empty for
    /// none.
    pub pool_key_file: *const c_char,
    /// File with the certificates of the authorities that sign those of nodes by TLS; NULL or empty
    /// for the system's.
    pub pool_tls_ca: *const c_char,
    /// File with the chain of certificates that such nodes are shown; NULL or empty for none.
    pub pool_tls_cert: *const c_char,
    /// File with its private key.
    pub pool_tls_key: *const c_char,
    /// Object store of cold files: `s3://bucket/prefix` or `file:///directory`; NULL or empty for
    /// none.
    pub storage_url: *const c_char,
    /// Where the files of the last level lie: 0 in the data directory, 1 in the object store if no
    /// query has read them for a while.
    pub tier: u32,
    /// Seconds without a read after which a file is cold.
    pub cold_after: u64,
    /// Bytes of the object store's files that are kept on the local disk.
    pub file_cache_size: u64,
    /// Directory of the log archive, which must exist; NULL or empty for no archive.
    pub log_archive_dir: *const c_char,
    /// Seconds after which a log segment in use is closed so that it can be archived. Without a log
    /// archive it has no effect.
    pub log_archive_timeout: u64,
    /// Open the log with direct I/O.
    pub direct_io: bool,
    /// Read table files with direct I/O, past the page cache.
    pub direct_reads: bool,
    /// True if the server is starting: it then calls `firn_recover` when all engines are open.
    /// False if the server is already running.
    pub server_asks: bool,
    /// True if the server commits or rolls back all prepared transactions, as the administrator has
    /// told it (`--tc-heuristic-recover`).
    pub server_decides_all: bool,
    /// Path of the index file of the server's binary log; NULL if the server keeps no binary log.
    pub binlog_index: *const c_char,
}

fn flush_mode(value: u32) -> Result<CommitDurability, Error> {
    match value {
        0 => Ok(CommitDurability::Lazy),
        1 => Ok(CommitDurability::Sync),
        2 => Ok(CommitDurability::Write),
        other => Err(Error::invalid(format_args!("flush mode {other}"))),
    }
}

/// The tier of this number; see `firn_config`.
fn tier_of(number: u64) -> Result<Tier, Error> {
    match number {
        0 => Ok(Tier::Local),
        1 => Ok(Tier::Cold),
        2 => Err(Error::unsupported("firn_tier=all is not supported yet")),
        other => Err(Error::invalid(format_args!("firn_tier {other}"))),
    }
}

fn no_store() -> Error {
    Error::invalid("firn_tier=cold needs an object store: firn_storage_url is empty")
}

const SECOND_US: u64 = 1_000_000;

/// The statistics of the allocator, if this crate brings it.
fn allocator() -> Option<Arc<dyn AllocatorStats>> {
    #[cfg(feature = "jemalloc")]
    return Some(Arc::new(crate::allocator::CoreAllocator));
    #[cfg(not(feature = "jemalloc"))]
    None
}

fn options(
    config: &firn_config,
    log_archive_dir: Option<PathBuf>,
    host: &firn_host,
) -> Result<Options, Error> {
    let mutable = MutableOptions::default();
    mutable.set_commit_durability(flush_mode(config.flush_log_at_trx_commit)?);
    let defaults = Options::default();
    let or = |value: u64, default: u64| if value == 0 { default } else { value };
    let set = |cell: &std::sync::atomic::AtomicU64, value: u64| {
        cell.store(or(value, cell.load(Ordering::Relaxed)), Ordering::Relaxed);
    };
    mutable.set_tier(tier_of(u64::from(config.tier))?);
    mutable
        .cold_after_s
        .store(config.cold_after, Ordering::Relaxed);
    set(&mutable.memtable_size, config.memtable_size);
    set(&mutable.txn_memory_limit, config.txn_memory_limit);
    set(&mutable.blob_threshold, config.blob_threshold);
    mutable
        .memory_limit
        .store(config.memory_limit, Ordering::Relaxed);
    mutable
        .background_io_rate
        .store(config.background_io_rate, Ordering::Relaxed);
    set(
        &mutable.log_archive_timeout_us,
        config.log_archive_timeout.saturating_mul(SECOND_US),
    );
    Ok(Options {
        mutable: Arc::new(mutable),
        log_archive_dir,
        block_cache_size: or(config.block_cache_size, defaults.block_cache_size),
        row_cache_size: config.row_cache_size,
        wal_segment_size: or(config.wal_segment_size, defaults.wal_segment_size),
        background_jobs: (config.background_jobs as usize).max(1),
        wal_direct_io: config.direct_io,
        direct_reads: config.direct_reads,
        allocator: allocator(),
        listener: Arc::new(HostLog::new(host)),
        ..defaults
    })
}

/// The environment of the database: the operating system, slowed down to the speed `debug_disk` if
/// that is not empty.
fn environment(debug_disk: &str, options: &Options) -> Result<Arc<dyn Env>, Error> {
    let env = Arc::new(PosixEnv::new());
    if debug_disk.is_empty() {
        return Ok(env);
    }
    let speed: DiskSpeed = debug_disk.parse().map_err(|error: Error| {
        Error::invalid(format_args!("firn_debug_disk: {}", error.message()))
    })?;
    let message = format!(
        "firn_debug_disk is for tests: reads and syncs take as long as on a disk of {debug_disk}"
    );
    options.listener.log(Severity::Warning, &message);
    Ok(Arc::new(SlowEnv::new(env, speed)))
}

/// Opens the database in `config->dir` and recovers it. Commits or rolls back the transactions that
/// earlier server runs prepared, as the binary logs of those runs say. Leaves prepared the
/// transactions with a client's xid, and those whose outcome the server itself decides after
/// `firn_recover`.
///
/// # Safety
/// The pointers must be valid; the callbacks of `host` must stay valid until `firn_close`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_open(
    config: *const firn_config,
    host: *const firn_host,
    out: *mut *mut firn_db,
) -> firn_status {
    guard(|| {
        // SAFETY: the caller promises that both pointers are valid.
        let (config, host) = unsafe { (&*config, &*host) };
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        let dir = unsafe { name(config.dir) }?;
        let waits = Arc::new(HostWaits::new(host));
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        let archive = unsafe { c_str(config.log_archive_dir) }?.unwrap_or_default();
        let archive = (!archive.is_empty()).then(|| PathBuf::from(archive));
        let options = options(config, archive, host)?;
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        let env = environment(
            unsafe { c_str(config.debug_disk) }?.unwrap_or_default(),
            &options,
        )?;
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        let binlog_index = unsafe { path(config.binlog_index) };
        let start = ServerStart {
            asks: config.server_asks,
            server_decides_all: config.server_decides_all,
            binlog_index: binlog_index.map(PathBuf::from),
        };
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        let (nodes, server, files) = unsafe {
            let files = PoolFiles {
                key: path(config.pool_key_file),
                tls_ca: path(config.pool_tls_ca),
                tls_cert: path(config.pool_tls_cert),
                tls_key: path(config.pool_tls_key),
            };
            (
                c_str(config.pool_nodes)?.unwrap_or_default(),
                c_str(config.pool_server)?.unwrap_or_default(),
                files,
            )
        };
        let wrong = |message| Error::invalid(format_args!("firn_pool_nodes: {message}"));
        parse_nodes(nodes).map_err(wrong)?;
        let pool = new_pool(server, &files, &options.listener)?;
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        let url = unsafe { c_str(config.storage_url) }?.unwrap_or_default();
        let dir = Path::new(dir);
        let cold = match url {
            "" if options.mutable.tier() == Tier::Local => None,
            "" => return Err(no_store().into()),
            _ => Some(open_cold_store(url, config.file_cache_size, &env, dir)?),
        };
        let remote = cold.clone().map(|cold| cold as Arc<dyn RemoteFiles>);
        let attached = Attached {
            pool: Some(pool),
            remote,
        };
        let db = Db::open_with(env, dir, options, Some(waits), attached)?;
        db.start_pool(nodes, config.pool_enabled)?;
        db.catalog()
            .set_collations(Arc::new(HostCollations::new(host)));
        db.catalog()
            .set_metadata_locks(Arc::new(HostMetadataLocks::new(host)));
        db.catalog()
            .set_virtual_columns(Arc::new(HostVirtualColumns::new(host)));
        if let Err(error) = db.resolve_in_doubt(&start) {
            // Close the database to end its threads. Return the recovery's error, which says why
            // the database does not open, and not an error of this close.
            let _ = db.close();
            return Err(error.into());
        }
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe { out.write(firn_db::with(db, cold)) };
        Ok(())
    })
}

/// Closes the database. On return, all commits are durable, and background threads have ended,
/// except for those that hang in a file operation of the log archive or of the object store: they
/// make no callback any more. The second one keeps the data directory locked until it ends.
/// The handle is freed even if an error is returned. This library must stay loaded: its code runs
/// in that thread, and at the end of each thread that has called it.
///
/// # Safety
/// `db` must be from `firn_open`. Neither `db` nor its sessions, tables and cursors may be used
/// afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_close(db: *mut firn_db) -> firn_status {
    guard(|| {
        // SAFETY: the handle came from `boxed`, and the host passes it here once, as its last use.
        let Some(db) = (unsafe { unbox(db) }) else {
            return Ok(());
        };
        db.temporary.close();
        Ok(db.db.close()?)
    })
}

/// Makes everything committed so far durable.
///
/// # Safety
/// `db` must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_sync_log(db: *const firn_db) -> firn_status {
    // SAFETY: the handle is live: the host frees a handle only after the last call with that
    // handle.
    guard(|| Ok(unsafe { firn_db::get(db) }?.sync_log()?))
}

/// How a checkpoint treats files of the object store.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum firn_remote_files {
    /// They are copied into the checkpoint, of which `progress` hears, in bytes.
    FIRN_REMOTE_COPIED = 0,
    /// They stay in the store, and as long as the checkpoint exists no object is deleted there. The
    /// caller copies the objects itself.
    FIRN_REMOTE_NAMED = 1,
    /// No checkpoint is made if there are any.
    FIRN_REMOTE_REFUSED = 2,
}

/// Makes a checkpoint of everything committed so far in `target`, a directory that must not exist.
/// With `flush` the memtables are flushed first. The checkpoint is durable on return.
///
/// # Safety
/// `db` must be open; `target` must be a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_checkpoint(
    db: *const firn_db,
    target: *const c_char,
    flush: bool,
    remote: firn_remote_files,
    progress: firn_progress,
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, target) = unsafe { (firn_db::get(db)?, name(target)?) };
        // SAFETY: the host keeps callback and context valid during the call.
        let mut report = unsafe { reporter(progress, context, "the statement was killed") };
        let remote = match remote {
            firn_remote_files::FIRN_REMOTE_COPIED => RemoteInCheckpoint::Copied(&mut report),
            firn_remote_files::FIRN_REMOTE_NAMED => RemoteInCheckpoint::Named,
            firn_remote_files::FIRN_REMOTE_REFUSED => RemoteInCheckpoint::Refused,
        };
        db.checkpoint_with(Path::new(target), flush, remote)?;
        Ok(())
    })
}

/// Notes that the server's binary log ends in `file` at `position`. The core stores this position
/// in its own log with the next change of the catalog, so that the log archive can be recovered to
/// a position in the binary log. Without a log archive the call does nothing.
///
/// # Safety
/// `db` must be open; `file` must be a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_note_binlog_position(
    db: *const firn_db,
    file: *const c_char,
    position: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, file) = unsafe { (firn_db::get(db)?, name(file)?) };
        db.note_binlog_position(OwnedBinlogPosition {
            name: file.as_bytes().to_vec(),
            pos: position,
        });
        Ok(())
    })
}

/// Notes the server run that prepares transactions from now on: the run that writes `file` of its
/// binary log, or, with NULL, a run without a binary log. Call this before the first transaction is
/// prepared, and whenever the server has begun another file.
///
/// # Safety
/// `db` must be open; `file` must be NULL or a string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_note_server_run(
    db: *const firn_db,
    file: *const c_char,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, file) = unsafe { (firn_db::get(db)?, path(file)) };
        Ok(db.note_server_run(file)?)
    })
}

/// Freezes the memtable and writes all memtables to files.
///
/// # Safety
/// `db` must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_flush(db: *const firn_db) -> firn_status {
    // SAFETY: the handle is live: the host frees a handle only after the last call with that
    // handle.
    guard(|| Ok(unsafe { firn_db::get(db) }?.flush()?))
}

/// Options that may change while the database is open.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum firn_option {
    /// `flush_log_at_trx_commit`: 0, 1 or 2.
    FIRN_OPTION_FLUSH_MODE = 0,
    /// Block cache, bytes.
    FIRN_OPTION_BLOCK_CACHE_SIZE = 1,
    /// Memtable size, bytes.
    FIRN_OPTION_MEMTABLE_SIZE = 2,
    /// Memory of a transaction's writes, bytes.
    FIRN_OPTION_TXN_MEMORY_LIMIT = 3,
    /// Limit for the memory of the engine, bytes; 0 for no limit.
    FIRN_OPTION_MEMORY_LIMIT = 4,
    /// Row cache, bytes; 0 for none.
    FIRN_OPTION_ROW_CACHE_SIZE = 5,
    /// Bytes a second that background work reads and writes at most; 0 for no limit.
    FIRN_OPTION_BACKGROUND_IO_RATE = 6,
    /// Values at least this long go to blob files.
    FIRN_OPTION_BLOB_THRESHOLD = 7,
    /// Seconds after which a log segment in use is closed so that it can be archived.
    FIRN_OPTION_LOG_ARCHIVE_TIMEOUT = 8,
    /// Whether a transaction searches for deadlocks when it begins to wait for a lock: 0 or 1.
    FIRN_OPTION_DEADLOCK_DETECT = 9,
    /// Whether every deadlock is written to the error log: 0 or 1.
    FIRN_OPTION_PRINT_ALL_DEADLOCKS = 10,
    /// Age of a snapshot, in seconds, at which the error log gets a warning; 0 for none.
    FIRN_OPTION_SNAPSHOT_AGE_WARNING = 11,
    /// Bytes of log that a recovery has to replay at most, approximately.
    FIRN_OPTION_MAX_WAL_SIZE = 12,
    /// Number of SSTs and blob files that are open for reading at most; 0 for half of the process's
    /// limit on descriptors.
    FIRN_OPTION_OPEN_FILES = 13,
    /// Where the files of the last level lie: 0 in the data directory, 1 in the object store if no
    /// query has read them for a while.
    FIRN_OPTION_TIER = 14,
    /// Seconds without a read after which a file is cold.
    FIRN_OPTION_COLD_AFTER = 15,
    /// Bytes of the object store's files that are kept on the local disk.
    FIRN_OPTION_FILE_CACHE_SIZE = 16,
}

/// Changes an option; the new value is used from now on.
///
/// # Safety
/// `db` must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_set_option(
    db: *const firn_db,
    option: firn_option,
    value: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let firn_db { db, cold, .. } = unsafe { firn_db::whole(db) }?;
        let mutable = &db.options().mutable;
        match option {
            firn_option::FIRN_OPTION_FLUSH_MODE => {
                mutable
                    .set_commit_durability(flush_mode(u32::try_from(value).unwrap_or(u32::MAX))?);
            }
            firn_option::FIRN_OPTION_BLOCK_CACHE_SIZE => db.set_block_cache_size(value),
            firn_option::FIRN_OPTION_ROW_CACHE_SIZE => db.set_row_cache_size(value),
            firn_option::FIRN_OPTION_MEMORY_LIMIT => db.set_memory_limit(value),
            firn_option::FIRN_OPTION_BACKGROUND_IO_RATE => {
                mutable.background_io_rate.store(value, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_MEMTABLE_SIZE => {
                mutable.memtable_size.store(value, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_BLOB_THRESHOLD => {
                mutable.blob_threshold.store(value, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_LOG_ARCHIVE_TIMEOUT => {
                let timeout_us = value.saturating_mul(SECOND_US);
                mutable
                    .log_archive_timeout_us
                    .store(timeout_us, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_DEADLOCK_DETECT => {
                db.context().locks.set_deadlock_detection(value != 0);
            }
            firn_option::FIRN_OPTION_PRINT_ALL_DEADLOCKS => {
                mutable
                    .print_all_deadlocks
                    .store(value != 0, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_SNAPSHOT_AGE_WARNING => {
                mutable
                    .snapshot_age_warning_s
                    .store(value, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_TXN_MEMORY_LIMIT => {
                mutable.txn_memory_limit.store(value, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_MAX_WAL_SIZE => {
                mutable.max_wal_size.store(value, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_OPEN_FILES => db.set_open_files(value),
            firn_option::FIRN_OPTION_TIER => match tier_of(value)? {
                Tier::Cold if cold.is_none() => return Err(no_store().into()),
                tier => mutable.set_tier(tier),
            },
            firn_option::FIRN_OPTION_COLD_AFTER => {
                mutable.cold_after_s.store(value, Ordering::Relaxed);
            }
            firn_option::FIRN_OPTION_FILE_CACHE_SIZE => {
                if let Some(cold) = cold {
                    cold.set_cache_bytes(value);
                }
            }
        }
        Ok(())
    })
}

/// Bytes of a slot that `firn_recover` fills: a 32-bit length in native byte order, then the xid.
pub const FIRN_XID_SLOT: usize = 260;

/// Writes the xids of prepared transactions without a session into at most `cap` slots, skipping
/// the first `skip` xids. Returns the number of slots written.
///
/// # Safety
/// `db` must be open; `slots` must have room for `cap` slots.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_recover(
    db: *const firn_db,
    slots: *mut u8,
    cap: u32,
    skip: u32,
) -> u32 {
    guard_value(0, || {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let Ok(db) = (unsafe { firn_db::get(db) }) else {
            return 0;
        };
        let xids = db.prepared_xids();
        let mut written = 0;
        for xid in xids.iter().skip(skip as usize).take(cap as usize) {
            let mut slot = [0u8; FIRN_XID_SLOT];
            let Some(room) = slot[4..].get_mut(..xid.len()) else {
                continue;
            };
            room.copy_from_slice(xid);
            slot[..4].copy_from_slice(&(xid.len() as u32).to_ne_bytes());
            // SAFETY: the caller promises room for `cap` slots, and `written` is less than `cap`.
            unsafe {
                let target = slots.add(written as usize * FIRN_XID_SLOT);
                std::ptr::copy_nonoverlapping(slot.as_ptr(), target, FIRN_XID_SLOT);
            }
            written += 1;
        }
        written
    })
}

/// Commits a prepared transaction that no session owns. `FIRN_NO_ROW` if the xid is unknown.
///
/// # Safety
/// `db` must be open; `xid` must have `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_commit_xid(
    db: *const firn_db,
    xid: *const u8,
    len: usize,
) -> firn_status {
    // SAFETY: the handle is live: the host frees a handle only after the last call with that
    // handle; pointer and length describe memory that the host keeps unchanged during the call.
    guard(|| known(unsafe { firn_db::get(db) }?.commit_xid(unsafe { borrow_bytes(xid, len) })?))
}

/// Rolls back a prepared transaction that no session owns. `FIRN_NO_ROW` if the xid is unknown.
///
/// # Safety
/// `db` must be open; `xid` must have `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_rollback_xid(
    db: *const firn_db,
    xid: *const u8,
    len: usize,
) -> firn_status {
    // SAFETY: the handle is live: the host frees a handle only after the last call with that
    // handle; pointer and length describe memory that the host keeps unchanged during the call.
    guard(|| known(unsafe { firn_db::get(db) }?.rollback_xid(unsafe { borrow_bytes(xid, len) })?))
}

fn known(known: bool) -> Result<(), CallOutcome> {
    if known {
        Ok(())
    } else {
        Err(firn_status::FIRN_NO_ROW.into())
    }
}
