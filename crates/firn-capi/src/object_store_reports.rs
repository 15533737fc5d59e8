//! Reports on the object store of cold files, for `information_schema`.

use crate::database::firn_db;
use crate::error::{firn_status, guard};
use crate::storage_reports::c_text;
use firn::store::RemoteFiles;
use firn_objects::{HealthState, RequestStats};
use firn_tier::Ownership;
use std::ffi::{c_char, c_void};
use std::ptr::null;

/// Requests of one kind to an object store.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct firn_request_info {
    /// Number of requests, failed ones and those that were tried again included.
    pub requests: u64,
    /// Those that have failed. That there is no such object is an answer.
    pub failed: u64,
    /// Bytes of objects that were read or stored.
    pub bytes: u64,
    /// Latency in microseconds that half of the requests did not exceed; at most a quarter too
    /// large, as the other percentiles. The latencies have no meaning without requests.
    pub latency_us_p50: u64,
    /// Latency in microseconds that 95 % of the requests did not exceed.
    pub latency_us_p95: u64,
    /// Latency in microseconds that 99 % of the requests did not exceed.
    pub latency_us_p99: u64,
    /// Latency of the slowest request in microseconds.
    pub latency_us_max: u64,
}

impl From<&RequestStats> for firn_request_info {
    fn from(stats: &RequestStats) -> Self {
        let within = |percent| stats.latencies.percentile_us(percent).unwrap_or(0);
        Self {
            requests: stats.requests,
            failed: stats.failed,
            bytes: stats.bytes,
            latency_us_p50: within(50),
            latency_us_p95: within(95),
            latency_us_p99: within(99),
            latency_us_max: stats.latencies.max_us(),
        }
    }
}

/// The object store of cold files, since the database was opened.
#[repr(C)]
pub struct firn_object_store_info {
    /// Its URL.
    pub url: *const c_char,
    /// How it does: 0 it answers, 1 it is slow, 2 it does not answer.
    pub state: u32,
    /// Whether this server may change it: 0 that is not known, since it has changed nothing yet, or
    /// was stopped for a while; 1 it may; 2 another copy of the database may.
    pub ownership: u32,
    /// For how long it has not answered, microseconds; 0 if it answers.
    pub out_us: u64,
    /// How often that has begun.
    pub outages: u64,
    /// Why there is no file cache, or the latest failure of a request, or NULL.
    pub last_error: *const c_char,
    /// Requests that read objects.
    pub gets: firn_request_info,
    /// Requests that store objects.
    pub puts: firn_request_info,
    /// Requests that list objects.
    pub lists: firn_request_info,
    /// Requests that delete objects.
    pub deletes: firn_request_info,
    /// Table files in the data directory.
    pub local_files: u64,
    /// Their bytes.
    pub local_bytes: u64,
    /// Table files in the store.
    pub remote_files: u64,
    /// Their bytes.
    pub remote_bytes: u64,
    /// Objects that are to be deleted, or are deleted and not forgotten yet.
    pub objects_to_delete: u64,
    /// The checkpoint for which no object is deleted, or NULL.
    pub objects_held_by: *const c_char,
    /// Files that were uploaded.
    pub uploaded_files: u64,
    /// Their bytes.
    pub uploaded_bytes: u64,
    /// Times that an upload began again.
    pub upload_retries: u64,
    /// Bytes in the file cache.
    pub cache_bytes: u64,
    /// Bytes that it may have.
    pub cache_limit_bytes: u64,
    /// Chunks that reads found in it.
    pub cache_hits: u64,
    /// Chunks that reads had to wait for.
    pub cache_misses: u64,
    /// Chunks that were read ahead.
    pub cache_read_ahead: u64,
    /// Chunks that were evicted.
    pub cache_evictions: u64,
    /// Chunks that were dropped because their bytes were damaged.
    pub cache_damaged: u64,
}

/// Calls `each` for the object store, if there is one. Asks nothing of the store.
///
/// # Safety
/// `db` must be open; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_object_stores(
    db: *const firn_db,
    each: unsafe extern "C" fn(context: *mut c_void, info: *const firn_object_store_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let (db, cold) = unsafe { (firn_db::get(db)?, firn_db::cold(db)?) };
        let Some(cold) = cold else {
            return Ok(());
        };
        let (stats, places) = (cold.stats(), db.places());
        let cache = stats.cache;
        let url = c_text(cold.name());
        let last_error = stats.cache_failure.or(stats.health.last_error);
        let last_error = last_error.as_deref().map(c_text);
        let held_by = db.objects_held_by();
        let held_by = held_by.map(|dir| c_text(&dir.to_string_lossy()));
        let info = firn_object_store_info {
            url: url.as_ptr(),
            state: match stats.health.state {
                HealthState::Up => 0,
                HealthState::Slow => 1,
                HealthState::Down => 2,
            },
            ownership: match stats.ownership {
                Ownership::Unknown => 0,
                Ownership::Ours => 1,
                Ownership::Others => 2,
            },
            out_us: stats.health.out_us,
            outages: stats.health.opened,
            last_error: last_error.as_ref().map_or(null(), |error| error.as_ptr()),
            gets: (&stats.gets).into(),
            puts: (&stats.puts).into(),
            lists: (&stats.lists).into(),
            deletes: (&stats.deletes).into(),
            local_files: places.local.files,
            local_bytes: places.local.bytes,
            remote_files: places.remote.files,
            remote_bytes: places.remote.bytes,
            objects_to_delete: places.objects_to_delete,
            objects_held_by: held_by.as_ref().map_or(null(), |dir| dir.as_ptr()),
            uploaded_files: stats.uploads.stored,
            uploaded_bytes: stats.uploads.stored_bytes,
            upload_retries: stats.uploads.retries,
            cache_bytes: cache.bytes,
            cache_limit_bytes: cache.bytes_max,
            cache_hits: cache.hits,
            cache_misses: cache.misses,
            cache_read_ahead: cache.read_ahead,
            cache_evictions: cache.evicted,
            cache_damaged: cache.damaged,
        };
        // SAFETY: the host keeps callback and context valid during the call.
        unsafe { each(context, &info) };
        Ok(())
    })
}
