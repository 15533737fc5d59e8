//! Reports on indexes, files, jobs, reads of files, delays and memory, for `information_schema`;
//! and the reads of a thread.

use crate::database::firn_db;
use crate::error::{firn_status, guard, guard_value};
use firn::base::read_meter::thread_reads;
use firn::version::FileLocation;
use std::ffi::{CString, c_char, c_void};
use std::ptr::null;

pub(crate) fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

/// Stored entries and bytes of one index.
#[repr(C)]
pub struct firn_index_detail {
    /// `database/table`.
    pub table_name: *const c_char,
    /// Name of the index.
    pub index_name: *const c_char,
    /// Its id.
    pub id: u64,
    /// Whether rows may not agree in all its parts.
    pub unique: bool,
    /// Whether it holds the rows.
    pub clustered: bool,
    /// Number of declared parts; 0 for a hidden key.
    pub parts: u64,
    /// Entries, deletions and old versions included.
    pub entries: u64,
    /// Deletions.
    pub deletes: u64,
    /// The part of the entries that is in memtables.
    pub entries_in_memory: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// Bytes in files.
    pub stored_bytes: u64,
}

/// Calls `each` for every index of every table.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_index_details(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_index_detail),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        for one in unsafe { firn_db::get(db) }?.index_details() {
            let (table, index) = (c_text(&one.table), c_text(&one.index));
            let info = firn_index_detail {
                table_name: table.as_ptr(),
                index_name: index.as_ptr(),
                id: one.id,
                unique: one.unique,
                clustered: one.clustered,
                parts: one.parts,
                entries: one.sums.entries,
                deletes: one.sums.deletes,
                entries_in_memory: one.entries_in_memory,
                raw_bytes: one.sums.raw_bytes,
                stored_bytes: one.sums.stored_bytes,
            };
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}

/// A table file.
#[repr(C)]
pub struct firn_file_info {
    /// Name in the directory of the database.
    pub name: *const c_char,
    /// Its level.
    pub level: u64,
    /// Position of its run in the level, 0 for the newest.
    pub run: u64,
    /// Stored bytes.
    pub size: u64,
    /// Entries, deletions and old versions included.
    pub entries: u64,
    /// Deletions.
    pub deletes: u64,
    /// Entries that a newer one of the same file hides.
    pub superseded: u64,
    /// Bytes before compression.
    pub raw_bytes: u64,
    /// Number of indexes with entries in the file.
    pub indexes: u64,
    /// Smallest seqno.
    pub min_seqno: u64,
    /// Largest seqno.
    pub max_seqno: u64,
    /// Smallest key in words.
    pub smallest: *const c_char,
    /// Largest key in words.
    pub largest: *const c_char,
    /// Whether it is in the object store.
    pub remote: bool,
}

/// Calls `each` for every table file.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_files(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_file_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        for one in unsafe { firn_db::get(db) }?.file_reports() {
            let name = c_text(&one.name);
            let (smallest, largest) = (c_text(&one.smallest), c_text(&one.largest));
            let info = firn_file_info {
                name: name.as_ptr(),
                level: u64::from(one.level),
                run: one.run,
                size: one.size,
                entries: one.entries,
                deletes: one.deletes,
                superseded: one.superseded,
                raw_bytes: one.raw_bytes,
                indexes: one.indexes,
                min_seqno: one.min_seqno,
                max_seqno: one.max_seqno,
                smallest: smallest.as_ptr(),
                largest: largest.as_ptr(),
                remote: one.location == FileLocation::ObjectStore,
            };
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}

/// A flush or compaction that has ended.
#[repr(C)]
pub struct firn_job_info {
    /// Number since the database was opened.
    pub number: u64,
    /// `flush`, `compact`, `move` or `drop`.
    pub kind: *const c_char,
    /// The reason for which it was picked; empty for a flush.
    pub reason: *const c_char,
    /// Newest level of its inputs; -1 for a memtable.
    pub from_level: i64,
    /// Level of its output.
    pub to_level: u64,
    /// Files read, moved or dropped.
    pub files_in: u64,
    /// Files written.
    pub files_out: u64,
    /// Stored bytes read.
    pub read_bytes: u64,
    /// Stored bytes written.
    pub written_bytes: u64,
    /// The part of them that was copied in whole blocks.
    pub reused_bytes: u64,
    /// Entries read.
    pub entries_in: u64,
    /// Entries written.
    pub entries_out: u64,
    /// When it began, microseconds since 1970.
    pub begun_us: u64,
    /// How long it took, microseconds.
    pub took_us: u64,
    /// The error with which it ended, or NULL.
    pub error: *const c_char,
}

/// Calls `each` for the last 200 flushes and compactions, oldest first.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_jobs(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_job_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        for one in unsafe { firn_db::get(db) }?.job_reports() {
            let (kind, reason) = (c_text(one.kind), c_text(one.reason));
            let error = one.error.as_deref().map(c_text);
            let info = firn_job_info {
                number: one.number,
                kind: kind.as_ptr(),
                reason: reason.as_ptr(),
                from_level: one.from_level.map_or(-1, i64::from),
                to_level: u64::from(one.to_level),
                files_in: one.files_in,
                files_out: one.files_out,
                read_bytes: one.stats.read_bytes,
                written_bytes: one.stats.written_bytes,
                reused_bytes: one.stats.reused_bytes,
                entries_in: one.stats.entries_in,
                entries_out: one.stats.entries_out,
                begun_us: one.begun_us,
                took_us: one.took_us,
                error: error.as_ref().map_or(null(), |error| error.as_ptr()),
            };
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}

/// The reads of one class from one source.
#[repr(C)]
pub struct firn_io_info {
    /// Name of the class, which says what the reads were for.
    pub class_name: *const c_char,
    /// Name of the source.
    pub source: *const c_char,
    /// Number of reads.
    pub reads: u64,
    /// Bytes asked for.
    pub bytes: u64,
    /// Latency in microseconds that half of the reads did not exceed; at most a quarter too large,
    /// as the other percentiles. The latencies have no meaning without reads.
    pub latency_us_p50: u64,
    /// Latency in microseconds that 95 % of the reads did not exceed.
    pub latency_us_p95: u64,
    /// Latency in microseconds that 99 % of the reads did not exceed.
    pub latency_us_p99: u64,
    /// Latency of the slowest read in microseconds.
    pub latency_us_max: u64,
}

/// Calls `each` for every class of reads of files, of blocks that came from the memory pool
/// instead, and, with an object store, of reads of its files by the place that has served them.
/// Reads that a cache in memory served are not counted.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_io(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_io_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let (db, cold) = unsafe { (firn_db::get(db)?, firn_db::cold(db)?) };
        let files = db.file_reads().map(|reads| (c"file", reads));
        let pool = db.pool_reads().map(|reads| (c"pool", reads));
        let cold = cold.into_iter();
        let remote = cold.flat_map(|cold| {
            let cached = cold.cached_reads().map(|reads| (c"file cache", reads));
            cached.chain(cold.fetched_reads().map(|reads| (c"object store", reads)))
        });
        for (source, one) in files.chain(pool).chain(remote) {
            let class_name = c_text(one.class.name());
            let within = |percent| one.latency_us(percent).unwrap_or(0);
            let info = firn_io_info {
                class_name: class_name.as_ptr(),
                source: source.as_ptr(),
                reads: one.reads,
                bytes: one.bytes,
                latency_us_p50: within(50),
                latency_us_p95: within(95),
                latency_us_p99: within(99),
                latency_us_max: one.latency_us_max,
            };
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, &info) };
        }
        Ok(())
    })
}

/// A name with two numbers. It describes a reason for which writers are delayed (number and
/// duration of the delays), or a user of memory (its bytes and their limit).
#[repr(C)]
pub struct firn_named_pair {
    /// Name.
    pub name: *const c_char,
    /// Number of delays, or bytes.
    pub first: u64,
    /// Microseconds, or the limit in bytes; 0 for no limit.
    pub second: u64,
}

/// # Safety
/// `each` and `context` must be a valid callback and context of the host.
unsafe fn pass_pairs(
    pairs: &[(&str, u64, u64)],
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_named_pair),
    context: *mut c_void,
) {
    for (name, first, second) in pairs {
        let name = c_text(name);
        let info = firn_named_pair {
            name: name.as_ptr(),
            first: *first,
            second: *second,
        };
        // SAFETY: the host keeps callback and context valid during the call.
        unsafe { each(context, &info) };
    }
}

/// Calls `each` for every reason for which writers are delayed.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_stalls(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_named_pair),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let reports = unsafe { firn_db::get(db) }?.stall_reports();
        let pairs: Vec<_> = reports
            .iter()
            .map(|one| (one.reason, one.count, one.total_us))
            .collect();
        // SAFETY: the host keeps callback and context valid during the call.
        unsafe { pass_pairs(&pairs, each, context) };
        Ok(())
    })
}

/// Calls `each` for every user of memory, for `total`, and for the numbers of the allocator.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_memory(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_named_pair),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let db = unsafe { firn_db::get(db) }?;
        let (memory, locks) = (db.memory(), db.context().locks.memory());
        let allocator = memory.allocator;
        let pairs = [
            ("memtables", memory.memtables, 0),
            ("write sets", memory.write_sets, 0),
            ("sessions", memory.sessions, 0),
            ("indexes and filters", memory.pinned, 0),
            (
                "block cache",
                memory.block_cache,
                memory.block_cache_capacity,
            ),
            ("row cache", memory.row_cache, memory.row_cache_capacity),
            ("not counted", memory.uncounted, 0),
            (
                "of these, merged row locks",
                locks.merged_bytes + locks.gap_bytes,
                0,
            ),
            ("of these, ZSTD", allocator.outside, 0),
            ("of these, caches of threads", allocator.thread_caches, 0),
            ("total", memory.total(), memory.limit),
            ("allocator: allocated", allocator.allocated, 0),
            ("allocator: active", allocator.active, 0),
            ("allocator: metadata", allocator.metadata, 0),
            ("allocator: resident", allocator.resident, 0),
            ("allocator: retained", allocator.retained, 0),
        ];
        // SAFETY: the host keeps callback and context valid during the call.
        unsafe { pass_pairs(&pairs, each, context) };
        Ok(())
    })
}

/// Reads of one thread since it began.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct firn_reads {
    /// Blocks looked up, in the block cache or in a file.
    pub blocks: u64,
    /// Reads of files.
    pub file_reads: u64,
    /// Time of these reads, microseconds.
    pub file_read_us: u64,
    /// Reads of files that were requested ahead.
    pub prefetched: u64,
    /// Entries passed over: old versions, deletions, and entries that are too new.
    pub passed_over: u64,
}

/// Returns the counts of the reads that the calling thread has made since it began. The difference
/// of two such results counts the reads between the two calls.
#[unsafe(no_mangle)]
pub extern "C" fn firn_thread_reads() -> firn_reads {
    guard_value(firn_reads::default(), || {
        let reads = thread_reads();
        firn_reads {
            blocks: reads.blocks,
            file_reads: reads.file_reads,
            file_read_us: reads.file_read_us,
            prefetched: reads.prefetched,
            passed_over: reads.passed_over,
        }
    })
}
