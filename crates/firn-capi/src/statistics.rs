//! Statistics, estimates and status reports.

use crate::cursor::FIRN_PRIMARY;
use crate::database::firn_db;
use crate::error::{firn_status, guard, guard_value};
use crate::session::firn_session;
use crate::table::firn_table;
use firn::table::{KeyImage, RangeEnd, TableStatistics};
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::Ordering;

/// Statistics of a table.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct firn_table_stats {
    /// Estimated number of committed rows.
    pub rows: u64,
    /// Rows that the session's open transaction has added, less those that it has deleted.
    pub own_rows: i64,
    /// Bytes of the clustered index in files and memtables, including values out of line.
    pub stored_bytes: u64,
    /// Bytes of the rows before compression, without values out of line.
    pub raw_bytes: u64,
    /// Bytes of the secondary indexes in files and memtables.
    pub index_stored_bytes: u64,
    /// Estimated bytes in files that old versions and deletions take, in all indexes.
    pub free_bytes: u64,
    /// Time of creation, in seconds since 1970.
    pub create_time_s: u64,
    /// Mean size of a row, bytes: columns in the row count uncompressed, and values out of line
    /// count as they are stored.
    pub average_row_length: u32,
}

impl firn_table_stats {
    fn of(stats: &TableStatistics) -> Self {
        let size = &stats.size;
        let average = (size.raw_bytes + size.blob_bytes) / size.rows.max(1);
        Self {
            rows: size.rows,
            own_rows: 0,
            stored_bytes: size.data_bytes + size.blob_bytes,
            raw_bytes: size.raw_bytes,
            index_stored_bytes: stats.index_bytes,
            free_bytes: stats.free_bytes,
            create_time_s: stats.created_micros / 1_000_000,
            average_row_length: u32::try_from(average).unwrap_or(u32::MAX),
        }
    }
}

/// Reads the statistics of a table. With `size_only` it leaves out what the optimizer does not need
/// in a statement: `index_stored_bytes`, `free_bytes` and `create_time_s` are 0. `session` may be
/// NULL; `own_rows` is 0 then.
///
/// # Safety
/// The table must be live, `out` must be writable, and no other thread may use the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_statistics(
    session: *const firn_session,
    table: *const firn_table,
    size_only: bool,
    out: *mut firn_table_stats,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let whole = unsafe { firn_table::whole(table) }?;
        let views = &whole.db().context().super_versions;
        let stats = match size_only {
            true => TableStatistics {
                size: whole.table.size(views),
                ..TableStatistics::default()
            },
            false => whole.table.statistics(views),
        };
        // SAFETY: the pointer is NULL or a live handle that this thread alone uses.
        let session = unsafe { session.as_ref() };
        let own = session.and_then(|session| session.open_transaction_of(whole));
        let found = firn_table_stats {
            own_rows: own.map_or(0, |own| whole.table.own_rows(own)),
            ..firn_table_stats::of(&stats)
        };
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe { out.write(found) };
        Ok(())
    })
}

const HA_READ_AFTER_KEY: u32 = 3;

/// Estimates the rows in a range of an index, with those that the open transaction of `session` has
/// added, unless it is NULL. A NULL key leaves that end of the range open. The
/// flags are the server's: `HA_READ_AFTER_KEY` excludes the key itself at the lower end and
/// includes it at the upper end.
///
/// # Safety
/// The table must be live; the keys must have the lengths given; no other thread may use the
/// session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_records_in_range(
    session: *const firn_session,
    table: *const firn_table,
    index: u32,
    min_key: *const u8,
    min_len: u32,
    min_flag: u32,
    max_key: *const u8,
    max_len: u32,
    max_flag: u32,
) -> u64 {
    guard_value(1, || {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let (Ok(whole), Ok(table)) = (unsafe { firn_table::whole(table) }, unsafe {
            firn_table::get(table)
        }) else {
            return 1;
        };
        let end = |key: *const u8, len: u32, flag: u32| {
            (!key.is_null()).then(|| RangeEnd {
                // SAFETY: pointer and length describe memory that the host keeps unchanged during
                // the call.
                key: KeyImage::image(unsafe { std::slice::from_raw_parts(key, len as usize) }),
                after: flag == HA_READ_AFTER_KEY,
            })
        };
        let number = (index != FIRN_PRIMARY).then_some(index as usize);
        let (lower, upper) = (
            end(min_key, min_len, min_flag),
            end(max_key, max_len, max_flag),
        );
        let views = &whole.db().context().super_versions;
        // SAFETY: the pointer is NULL or a live handle that this thread alone uses.
        let session = unsafe { session.as_ref() };
        let own = session.and_then(|session| session.open_transaction_of(whole));
        // An estimate that fails must not stop the query: reading the rows reports the error.
        let own = own.map(|own| table.own_rows_in_range(own, number, lower, upper));
        let committed = table.estimate_range(views, number, lower, upper);
        (committed.unwrap_or(1) + own.and_then(Result::ok).unwrap_or(0)).max(1)
    })
}

/// Writes for n = 1, 2 and so on the mean number of rows that agree in the first n key parts of an
/// index, at most `parts` numbers. Only the key parts that the definition of the index names count.
/// Reads the properties of at most 64 files of the index. Only if these tell nothing (an older
/// version wrote them), or memtables have very many entries, it reads a few dozen blocks for each
/// key part.
///
/// # Safety
/// The table must be live, and `rows_per_key` must have room for `parts` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_index_statistics(
    table: *const firn_table,
    index: u32,
    rows_per_key: *mut f64,
    parts: u32,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let whole = unsafe { firn_table::whole(table) }?;
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let table = unsafe { firn_table::get(table) }?;
        let all = table.rows_per_key(&whole.db().context().super_versions, index as usize)?;
        for (i, rows) in all.iter().take(parts as usize).enumerate() {
            // SAFETY: the caller promises room for `parts` numbers, and `i` is less than `parts`.
            unsafe { rows_per_key.add(i).write(*rows) };
        }
        Ok(())
    })
}

/// Counters since the database was opened, and current sizes in bytes.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct firn_counters {
    /// Bytes written to files, including the log.
    pub bytes_written: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Bytes written to the log.
    pub wal_bytes_written: u64,
    /// Syncs of the log.
    pub wal_syncs: u64,
    /// Blocks found in the block cache.
    pub block_cache_hits: u64,
    /// Blocks that were not in the block cache and were read from files.
    pub block_cache_misses: u64,
    /// Memory of the block cache.
    pub block_cache_bytes: u64,
    /// Point reads that found no version in the memtables, and found the row in the row cache.
    pub row_cache_hits: u64,
    /// Values written to blob files.
    pub blobs_written: u64,
    /// Bytes of the values written to blob files, as stored.
    pub blob_bytes_written: u64,
    /// Values read from blob files, whole or in part.
    pub blobs_read: u64,
    /// Bytes read from blob files, as stored.
    pub blob_bytes_read: u64,
    /// Bytes in blob files that rows refer to, old versions included.
    pub blob_bytes_live: u64,
    /// Bytes of blob files that were given back to the file system by punching holes.
    pub blob_bytes_punched: u64,
    /// Bytes of blobs that were moved to other blob files.
    pub blob_bytes_rewritten: u64,
    /// Point reads that found no version in the memtables, and did not find the row in the row
    /// cache.
    pub row_cache_misses: u64,
    /// Memory of the row cache.
    pub row_cache_bytes: u64,
    /// Memory that open files keep for their indexes and filters.
    pub pinned_bytes: u64,
    /// Memory of uncommitted changes.
    pub write_set_bytes: u64,
    /// Closed log segments that wait for the archive.
    pub log_archive_waiting: u64,
    /// Bytes of the closed log segments that wait for the archive.
    pub log_archive_waiting_bytes: u64,
    /// Log segments archived.
    pub log_archived: u64,
    /// Attempts to archive that failed.
    pub log_archive_failures: u64,
    /// Memory that the engine has in use, all that the memory limit covers.
    pub memory_bytes: u64,
    /// The part of `memory_bytes` that no component counts.
    pub uncounted_bytes: u64,
    /// Memory that the engine's allocator holds, unused pages included.
    pub resident_bytes: u64,
    /// Bytes written by flushes.
    pub flushed_bytes: u64,
    /// Bytes read by compactions.
    pub compacted_bytes_read: u64,
    /// Bytes written by compactions.
    pub compacted_bytes_written: u64,
    /// Bytes written by compactions that were copied in whole blocks, as they were stored.
    pub reused_bytes: u64,
    /// Memory of memtables.
    pub memtable_bytes: u64,
    /// Number of waits for row locks.
    pub lock_waits: u64,
    /// Deadlocks found.
    pub deadlocks: u64,
    /// Seqno of the last commit.
    pub last_seqno: u64,
    /// Commits delayed or stopped by write stalls.
    pub write_stalls: u64,
    /// Time that commits were delayed or stopped by write stalls, microseconds.
    pub write_stall_us: u64,
    /// Bytes of the disk reserve, which is kept for getting out of a full disk.
    pub reserve_bytes: u64,
    /// SSTs and blob files that are open for reading.
    pub open_files: u64,
    /// Times that an SST or blob file was opened for reading.
    pub opened_files: u64,
    /// Times that an SST or blob file was opened beyond the limit, because no other one could be
    /// closed.
    pub open_files_over_limit: u64,
    /// Times that an SST was opened without memory for its whole index.
    pub opened_without_index: u64,
    /// Times that the memory of an open SST was given back to make room for others.
    pub evicted_files: u64,
    /// Times that an SST was opened beyond the memory for open files, because all others were in
    /// use.
    pub pinned_over_limit: u64,
    /// Lock waits that ended because their time ran out.
    pub lock_timeouts: u64,
    /// Commits that failed because their validation found that another transaction had changed rows
    /// of optimistic tables on which they depend.
    pub optimistic_conflicts: u64,
    /// Number of commits since the oldest snapshot of a transaction was taken.
    pub history_length: u64,
    /// Time since the oldest snapshot of a transaction was taken, seconds.
    pub oldest_snapshot_age: u64,
    /// Condition of the database: 0 good; 1 the disk is full, but some writes still succeed; 2 the
    /// disk is full and every write fails; 3 writes are refused until a restart, because a write or
    /// a sync failed.
    pub condition: u64,
}

/// Reads the counters.
///
/// # Safety
/// `db` must be open, and `out` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_read_counters(
    db: *const firn_db,
    out: *mut firn_counters,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let db = unsafe { firn_db::get(db) }?;
        let (c, memory, snapshot) = (db.counters(), db.memory(), db.snapshot_age());
        let blobs = db.blob_store().stats();
        let archive = db.archive_stats().unwrap_or_default();
        let (files, pins) = (db.open_file_stats(), db.pin_stats());
        let counters = firn_counters {
            bytes_written: c.bytes_written,
            bytes_read: c.bytes_read,
            wal_bytes_written: c.wal_bytes_written,
            wal_syncs: c.wal_syncs,
            block_cache_hits: c.block_cache_hits,
            block_cache_misses: c.block_cache_misses,
            block_cache_bytes: c.block_cache_bytes,
            row_cache_hits: c.row_cache_hits,
            blobs_written: blobs.written.load(Ordering::Relaxed),
            blob_bytes_written: blobs.written_bytes.load(Ordering::Relaxed),
            blobs_read: blobs.read.load(Ordering::Relaxed),
            blob_bytes_read: blobs.read_bytes.load(Ordering::Relaxed),
            blob_bytes_live: db.blob_bytes_live(),
            blob_bytes_punched: blobs.punched_bytes.load(Ordering::Relaxed),
            blob_bytes_rewritten: blobs.rewritten_bytes.load(Ordering::Relaxed),
            row_cache_misses: c.row_cache_misses,
            row_cache_bytes: c.row_cache_bytes,
            pinned_bytes: memory.pinned,
            write_set_bytes: memory.write_sets,
            log_archive_waiting: archive.waiting,
            log_archive_waiting_bytes: archive.waiting_bytes,
            log_archived: archive.archived,
            log_archive_failures: archive.failures,
            memory_bytes: memory.total(),
            uncounted_bytes: memory.uncounted,
            resident_bytes: memory.allocator.resident,
            flushed_bytes: c.flushed_bytes,
            compacted_bytes_read: c.compacted_bytes_read,
            compacted_bytes_written: c.compacted_bytes_written,
            reused_bytes: c.reused_bytes,
            memtable_bytes: c.memtable_bytes,
            lock_waits: c.lock_waits,
            deadlocks: c.deadlocks,
            last_seqno: c.last_seqno,
            write_stalls: c.write_stalls,
            write_stall_us: c.write_stall_us,
            reserve_bytes: db.reserve_bytes().0,
            open_files: files.open,
            opened_files: files.opens,
            open_files_over_limit: files.over_limit,
            opened_without_index: pins.charges,
            evicted_files: pins.evictions,
            pinned_over_limit: pins.over_limit,
            lock_timeouts: db.context().locks.stats().timeouts,
            optimistic_conflicts: db.context().locks.stats().conflicts,
            history_length: snapshot.commits,
            oldest_snapshot_age: snapshot.seconds,
            condition: db.condition() as u64,
        };
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe { out.write(counters) };
        Ok(())
    })
}

/// Passes the text of SHOW ENGINE FIRN STATUS to `emit`.
///
/// # Safety
/// `db` must be open; `emit` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_status_text(
    db: *const firn_db,
    emit: unsafe extern "C" fn(context: *mut c_void, text: *const c_char, len: usize),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let text = unsafe { firn_db::get(db) }?.status_text();
        // SAFETY: the host keeps callback and context valid during the call.
        unsafe { emit(context, text.as_ptr().cast(), text.len()) };
        Ok(())
    })
}

/// One index of a table, for `information_schema`.
#[repr(C)]
pub struct firn_index_info {
    /// `database/table`.
    pub table_name: *const c_char,
    /// Name of the index.
    pub index_name: *const c_char,
    /// Estimated number of rows.
    pub rows: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// Bytes in files.
    pub stored_bytes: u64,
    /// Bytes of values out of line in blob files.
    pub blob_bytes: u64,
}

/// Calls `each` for every index of every table.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_indexes(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_index_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the host keeps callback and context valid during the call.
        for index in unsafe { firn_db::get(db) }?.indexes() {
            let table = CString::new(index.table).unwrap_or_default();
            let name = CString::new(index.index).unwrap_or_default();
            let info = firn_index_info {
                table_name: table.as_ptr(),
                index_name: name.as_ptr(),
                rows: index.rows,
                raw_bytes: index.raw_bytes,
                stored_bytes: index.stored_bytes,
                blob_bytes: index.blob_bytes,
            };
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}

/// One level of the tree, for `information_schema`.
#[repr(C)]
pub struct firn_level_info {
    /// Number of the level; 0 has the newest entries.
    pub level: u32,
    /// Number of sorted runs.
    pub runs: u64,
    /// Number of files.
    pub files: u64,
    /// Bytes in files.
    pub stored_bytes: u64,
    /// Number of entries, including deletions and old versions.
    pub entries: u64,
    /// Number of deletions.
    pub deletes: u64,
    /// Size that the level should have, in bytes.
    pub target_bytes: u64,
}

/// Calls `each` for every level.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_levels(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_level_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the host keeps callback and context valid during the call.
        for level in unsafe { firn_db::get(db) }?.levels() {
            let info = firn_level_info {
                level: level.level,
                runs: level.runs,
                files: level.files,
                stored_bytes: level.stored_bytes,
                entries: level.entries,
                deletes: level.deletes,
                target_bytes: level.target_bytes,
            };
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}
