/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* FIRN_OBJECT_STORE. */

#include "i_s.h"
#include "schema_table.h"

namespace firn {
namespace {

using Show::CEnd;
using Show::Column;
using Show::ULonglong;
using Show::Varchar;

/* Columns of FIRN_OBJECT_STORE, in the order of store_columns. */
struct StoreColumn {
  enum : uint {
    kUrl,
    kState,
    kOutageSeconds,
    kOutages,
    kLastError,
    kOwner,
    kLocalFiles,
    kLocalBytes,
    kRemoteFiles,
    kRemoteBytes,
    kObjectsToDelete,
    kObjectsHeldBy,
    kUploadedFiles,
    kUploadedBytes,
    kUploadRetries,
    kCacheBytes,
    kCacheLimitBytes,
    kCacheHits,
    kCacheMisses,
    kCacheReadAhead,
    kCacheEvictions,
    kCacheDamaged,
    kGets,
    kGetBytes,
    kGetsFailed,
    kGetP50,
    kGetP95,
    kGetP99,
    kGetMax,
    kPuts,
    kPutBytes,
    kPutsFailed,
    kPutP50,
    kPutP95,
    kPutP99,
    kPutMax,
    kLists,
    kListsFailed,
    kDeletes,
    kDeletesFailed,
    kCount
  };
};

constexpr uint kErrorChars = 1024;
constexpr uint kPathChars = 1024;

ST_FIELD_INFO store_columns[] = {Column("URL", Varchar(1024), NOT_NULL),
                                 Column("STATE", Varchar(16), NOT_NULL),
                                 Column("OUTAGE_SECONDS", ULonglong(), NULLABLE),
                                 Column("OUTAGES", ULonglong(), NOT_NULL),
                                 Column("LAST_ERROR", Varchar(kErrorChars), NULLABLE),
                                 Column("OWNER", Varchar(16), NULLABLE),
                                 Column("LOCAL_FILES", ULonglong(), NOT_NULL),
                                 Column("LOCAL_BYTES", ULonglong(), NOT_NULL),
                                 Column("REMOTE_FILES", ULonglong(), NOT_NULL),
                                 Column("REMOTE_BYTES", ULonglong(), NOT_NULL),
                                 Column("OBJECTS_TO_DELETE", ULonglong(), NOT_NULL),
                                 Column("OBJECTS_HELD_BY", Varchar(kPathChars), NULLABLE),
                                 Column("UPLOADED_FILES", ULonglong(), NOT_NULL),
                                 Column("UPLOADED_BYTES", ULonglong(), NOT_NULL),
                                 Column("UPLOAD_RETRIES", ULonglong(), NOT_NULL),
                                 Column("CACHE_BYTES", ULonglong(), NOT_NULL),
                                 Column("CACHE_LIMIT_BYTES", ULonglong(), NOT_NULL),
                                 Column("CACHE_HITS", ULonglong(), NOT_NULL),
                                 Column("CACHE_MISSES", ULonglong(), NOT_NULL),
                                 Column("CACHE_READ_AHEAD", ULonglong(), NOT_NULL),
                                 Column("CACHE_EVICTIONS", ULonglong(), NOT_NULL),
                                 Column("CACHE_DAMAGED", ULonglong(), NOT_NULL),
                                 Column("GETS", ULonglong(), NOT_NULL),
                                 Column("GET_BYTES", ULonglong(), NOT_NULL),
                                 Column("GETS_FAILED", ULonglong(), NOT_NULL),
                                 Column("GET_LATENCY_US_P50", ULonglong(), NULLABLE),
                                 Column("GET_LATENCY_US_P95", ULonglong(), NULLABLE),
                                 Column("GET_LATENCY_US_P99", ULonglong(), NULLABLE),
                                 Column("GET_LATENCY_US_MAX", ULonglong(), NULLABLE),
                                 Column("PUTS", ULonglong(), NOT_NULL),
                                 Column("PUT_BYTES", ULonglong(), NOT_NULL),
                                 Column("PUTS_FAILED", ULonglong(), NOT_NULL),
                                 Column("PUT_LATENCY_US_P50", ULonglong(), NULLABLE),
                                 Column("PUT_LATENCY_US_P95", ULonglong(), NULLABLE),
                                 Column("PUT_LATENCY_US_P99", ULonglong(), NULLABLE),
                                 Column("PUT_LATENCY_US_MAX", ULonglong(), NULLABLE),
                                 Column("LISTS", ULonglong(), NOT_NULL),
                                 Column("LISTS_FAILED", ULonglong(), NOT_NULL),
                                 Column("DELETES", ULonglong(), NOT_NULL),
                                 Column("DELETES_FAILED", ULonglong(), NOT_NULL),
                                 CEnd()};
static_assert(array_elements(store_columns) == StoreColumn::kCount + 1);

/* The texts for firn_object_store_info::state, by its number. */
const char* const kStates[] = {"UP", "SLOW", "DOWN"};
constexpr uint kDown = 2;

/* The texts for firn_object_store_info::ownership, by its number. */
const char* const kOwners[] = {nullptr, "this server", "another copy"};

/* Stores the figures of requests into seven columns from the column `first` on. */
void store_requests(SchemaTable* rows, uint first, const firn_request_info& requests) {
  rows->store(first, requests.requests);
  rows->store(first + 1, requests.bytes);
  rows->store(first + 2, requests.failed);
  if (!requests.requests) return;
  rows->store_nullable(first + 3, requests.latency_us_p50);
  rows->store_nullable(first + 4, requests.latency_us_p95);
  rows->store_nullable(first + 5, requests.latency_us_p99);
  rows->store_nullable(first + 6, requests.latency_us_max);
}

void add_store(void* context, const firn_object_store_info* store) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  rows->begin();
  rows->store(StoreColumn::kUrl, store->url);
  rows->store(StoreColumn::kState, kStates[store->state % array_elements(kStates)]);
  if (store->state == kDown) rows->store_nullable(StoreColumn::kOutageSeconds, store->out_us / 1000000);
  rows->store(StoreColumn::kOutages, store->outages);
  if (store->last_error) rows->store(StoreColumn::kLastError, store->last_error);
  const char* owner = kOwners[store->ownership % array_elements(kOwners)];
  if (owner) rows->store(StoreColumn::kOwner, owner);
  rows->store(StoreColumn::kLocalFiles, store->local_files);
  rows->store(StoreColumn::kLocalBytes, store->local_bytes);
  rows->store(StoreColumn::kRemoteFiles, store->remote_files);
  rows->store(StoreColumn::kRemoteBytes, store->remote_bytes);
  rows->store(StoreColumn::kObjectsToDelete, store->objects_to_delete);
  if (store->objects_held_by) rows->store(StoreColumn::kObjectsHeldBy, store->objects_held_by);
  rows->store(StoreColumn::kUploadedFiles, store->uploaded_files);
  rows->store(StoreColumn::kUploadedBytes, store->uploaded_bytes);
  rows->store(StoreColumn::kUploadRetries, store->upload_retries);
  rows->store(StoreColumn::kCacheBytes, store->cache_bytes);
  rows->store(StoreColumn::kCacheLimitBytes, store->cache_limit_bytes);
  rows->store(StoreColumn::kCacheHits, store->cache_hits);
  rows->store(StoreColumn::kCacheMisses, store->cache_misses);
  rows->store(StoreColumn::kCacheReadAhead, store->cache_read_ahead);
  rows->store(StoreColumn::kCacheEvictions, store->cache_evictions);
  rows->store(StoreColumn::kCacheDamaged, store->cache_damaged);
  store_requests(rows, StoreColumn::kGets, store->gets);
  store_requests(rows, StoreColumn::kPuts, store->puts);
  rows->store(StoreColumn::kLists, store->lists.requests);
  rows->store(StoreColumn::kListsFailed, store->lists.failed);
  rows->store(StoreColumn::kDeletes, store->deletes.requests);
  rows->store(StoreColumn::kDeletesFailed, store->deletes.failed);
  rows->add();
}

int fill_object_store(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_object_stores(database, add_store, rows); });
}

}  // namespace

int init_firn_object_store(void* schema) { return init_schema_table(schema, store_columns, fill_object_store); }

}  // namespace firn
