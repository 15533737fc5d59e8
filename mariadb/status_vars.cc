/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* SHOW STATUS LIKE 'Firn%': the status variables. */

#include "status_vars.h"

namespace firn {
namespace {

/*
  The counters of the core. show_counters() fills them under the lock that the server holds around
  SHOW STATUS.
*/
firn_counters counters;

/* The texts for firn_counters::condition, by its number. */
const char* const kConditions[] = {"good", "disk full", "read-only", "writes stopped"};
const char* condition = kConditions[0];

#define COUNTER(name, member) \
  { name, reinterpret_cast<char*>(&counters.member), SHOW_ULONGLONG }

struct st_mysql_show_var counter_variables[] = {COUNTER("blob_bytes_live", blob_bytes_live),
                                                COUNTER("blob_bytes_punched", blob_bytes_punched),
                                                COUNTER("blob_bytes_read", blob_bytes_read),
                                                COUNTER("blob_bytes_rewritten", blob_bytes_rewritten),
                                                COUNTER("blob_bytes_written", blob_bytes_written),
                                                COUNTER("blobs_read", blobs_read),
                                                COUNTER("blobs_written", blobs_written),
                                                COUNTER("block_cache_bytes", block_cache_bytes),
                                                COUNTER("block_cache_hits", block_cache_hits),
                                                COUNTER("block_cache_misses", block_cache_misses),
                                                COUNTER("bytes_read", bytes_read),
                                                COUNTER("bytes_written", bytes_written),
                                                COUNTER("commits", last_seqno),
                                                COUNTER("compacted_bytes_read", compacted_bytes_read),
                                                COUNTER("compacted_bytes_written", compacted_bytes_written),
                                                {"condition", reinterpret_cast<char*>(&condition), SHOW_CHAR_PTR},
                                                COUNTER("deadlocks", deadlocks),
                                                COUNTER("evicted_files", evicted_files),
                                                COUNTER("flushed_bytes", flushed_bytes),
                                                COUNTER("history_length", history_length),
                                                COUNTER("lock_timeouts", lock_timeouts),
                                                COUNTER("lock_waits", lock_waits),
                                                COUNTER("log_archive_failures", log_archive_failures),
                                                COUNTER("log_archive_waiting", log_archive_waiting),
                                                COUNTER("log_archive_waiting_bytes", log_archive_waiting_bytes),
                                                COUNTER("log_archived", log_archived),
                                                COUNTER("memory_bytes", memory_bytes),
                                                COUNTER("memtable_bytes", memtable_bytes),
                                                COUNTER("oldest_snapshot_age", oldest_snapshot_age),
                                                COUNTER("open_files", open_files),
                                                COUNTER("open_files_over_limit", open_files_over_limit),
                                                COUNTER("opened_files", opened_files),
                                                COUNTER("opened_without_index", opened_without_index),
                                                COUNTER("optimistic_conflicts", optimistic_conflicts),
                                                COUNTER("pinned_bytes", pinned_bytes),
                                                COUNTER("pinned_over_limit", pinned_over_limit),
                                                COUNTER("reserve_bytes", reserve_bytes),
                                                COUNTER("resident_bytes", resident_bytes),
                                                COUNTER("reused_bytes", reused_bytes),
                                                COUNTER("row_cache_bytes", row_cache_bytes),
                                                COUNTER("row_cache_hits", row_cache_hits),
                                                COUNTER("row_cache_misses", row_cache_misses),
                                                COUNTER("uncounted_bytes", uncounted_bytes),
                                                COUNTER("wal_bytes_written", wal_bytes_written),
                                                COUNTER("wal_syncs", wal_syncs),
                                                COUNTER("write_set_bytes", write_set_bytes),
                                                COUNTER("write_stall_us", write_stall_us),
                                                COUNTER("write_stalls", write_stalls),
                                                {nullptr, nullptr, SHOW_UNDEF}};

int show_counters(MYSQL_THD, struct st_mysql_show_var* variable, void*, struct system_status_var*, enum enum_var_type) {
  if (database) {
    firn_read_counters(database, &counters);
    condition = kConditions[counters.condition % array_elements(kConditions)];
  }
  variable->type = SHOW_ARRAY;
  variable->value = reinterpret_cast<char*>(counter_variables);
  return 0;
}

}  // namespace

struct st_mysql_show_var status_variables[] = {{"Firn", reinterpret_cast<char*>(&show_counters), SHOW_FUNC},
                                               {nullptr, nullptr, SHOW_UNDEF}};

}  // namespace firn
