/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Answers to the optimizer and to SHOW TABLE STATUS. The core answers from counters in memory,
  except for the estimates of rows per key.
*/

#include "ha_firn.h"
#include "errors.h"

namespace {

/*
  The unit of the optimizer's costs: the bytes that it expects from one read. It is InnoDB's page
  size, so that plans agree.
*/
constexpr uint kCostBlock = 16384;

/*
  Rows that a filesort expects beyond twice the estimate. The estimate may miss rows of open
  transactions, and a bound that is far too low splits a sort into thousands of runs.
*/
constexpr ha_rows kSortMargin = 1000;

/* Adds the rows of the own transaction to the sizes of a table whose records have this length. */
void add_own_rows(firn_table_stats& core, ulong record_length) {
  if (core.average_row_length == 0) core.average_row_length = uint32_t(record_length);
  const int64_t rows = MY_MAX(int64_t(core.rows) + core.own_rows, int64_t(0));
  const double factor = core.rows ? double(rows) / double(core.rows) : 0;
  const uint64_t bytes = uint64_t(rows) * core.average_row_length;
  core.raw_bytes = factor ? uint64_t(double(core.raw_bytes) * factor) : bytes;
  core.stored_bytes = factor ? uint64_t(double(core.stored_bytes) * factor) : bytes;
  core.rows = uint64_t(rows);
}

}  // namespace

int ha_firn::info(uint flag) {
  if (flag & HA_STATUS_ERRKEY) errkey = m_session ? m_session->duplicate_index() : 0;
  if (flag & HA_STATUS_AUTO) stats.auto_increment_value = firn_autoinc_next_value(m_share->core());

  uint64_t rows = 0;
  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_TIME)) {
    /*
      The optimizer asks in every statement, with HA_STATUS_VARIABLE alone. It needs rows and bytes
      of the table; the other members of `stats` are for reports, which set more flags.
    */
    const bool size_only = !(flag & (HA_STATUS_CONST | HA_STATUS_TIME | HA_STATUS_VARIABLE_EXTRA));
    firn_table_stats core;
    const firn_session* session = m_session ? m_session->core() : nullptr;
    const firn_status status = firn_table_statistics(session, m_share->core(), size_only, &core);
    if (status != FIRN_OK) return firn_error(status);
    rows = core.rows;
    /*
      A transaction may fill a table and join it. The keys' statistics, which all sessions share, do
      not follow rows that are not committed.
    */
    if (core.own_rows) add_own_rows(core, table_share->reclength);
    stats.records = ha_rows(core.rows);
    /* The optimizer takes 0 rows for a fact, but the count is an estimate: it gets 1 instead. */
    if (stats.records == 0 && !(flag & (HA_STATUS_TIME | HA_STATUS_OPEN))) stats.records = 1;
    stats.data_file_length = core.stored_bytes;
    stats.mean_rec_length = core.average_row_length;
    m_rows_bytes = double(core.raw_bytes);
    if (!size_only) {
      stats.index_file_length = core.index_stored_bytes;
      stats.delete_length = core.free_bytes;
      stats.update_time = m_share->updated();
      stats.create_time = time_t(core.create_time_s);
    }
  }

  if (flag & HA_STATUS_CONST) {
    stats.block_size = kCostBlock;
    stats.mrr_length_per_rec = ref_length + sizeof(void*);
  }
  if ((flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST)) && m_share->claim_estimates(rows) && !estimate_rows_per_key())
    m_share->return_estimates(rows);
  return 0;
}

/*
  The numbers belong to the TABLE_SHARE, so all users of the table see them. Returns false if those
  of an index cannot be estimated; it then keeps what it had.
*/
bool ha_firn::estimate_rows_per_key() {
  bool complete = true;
  for (uint i = 0; i < table_share->keys; i++) {
    KEY* key_info = table->key_info + i;
    if (!key_info->rec_per_key) continue;
    double rows_per_key[MAX_REF_PARTS];
    const uint parts = key_info->user_defined_key_parts;
    if (firn_index_statistics(m_share->core(), i, rows_per_key, parts) != FIRN_OK) {
      complete = false;
      continue;
    }
    for (uint part = 0; part < key_info->ext_key_parts; part++)
      key_info->rec_per_key[part] = part < parts ? ulong(rows_per_key[part] + 0.5) : 1;
  }
  return complete;
}

ha_rows ha_firn::records_in_range(uint index, const key_range* min, const key_range* max, page_range*) {
  const firn_session* session = m_session ? m_session->core() : nullptr;
  const uint64_t rows = firn_records_in_range(
      session, m_share->core(), index, min ? min->key : nullptr, min ? min->length : 0, min ? uint32_t(min->flag) : 0,
      max ? max->key : nullptr, max ? max->length : 0, max ? uint32_t(max->flag) : 0);
  return ha_rows(MY_MAX(rows, uint64_t(1)));
}

/*
  The range optimizer ends after a kill without setting an error. mysql_delete() takes that for an
  impossible condition and answers OK with no rows. The error set here makes the statement fail.
*/
ha_rows ha_firn::multi_range_read_info_const(uint index, RANGE_SEQ_IF* ranges, void* init, uint count,
                                             uint* buffer_size, uint* mode, Cost_estimate* cost) {
  const ha_rows rows = handler::multi_range_read_info_const(index, ranges, init, count, buffer_size, mode, cost);
  if (thd_kill_level(ha_thd()) != THD_IS_NOT_KILLED) print_error(HA_ERR_ABORTED_BY_USER, MYF(0));
  return rows;
}

/* Counts decompressed bytes, because a scan works through these, however small the files are. */
double ha_firn::scan_time() { return m_rows_bytes / kCostBlock + 2; }

double ha_firn::read_time(uint index, uint ranges, ha_rows rows) {
  if (!is_clustering_key(index)) return handler::read_time(index, ranges, rows);
  /* Rows of a range of the primary key are adjacent: they cost their share of a scan. */
  const double all = rows2double(stats.records);
  const double scan = scan_time();
  if (rows2double(rows) >= all) return scan;
  return ranges + rows2double(rows) / all * scan;
}

/*
  A filesort sizes its buffer by this number; a number that is too low costs runs on disk, never a
  row. Without a bound, a sort of a small table takes the whole sort_buffer_size.
*/
ha_rows ha_firn::estimate_rows_upper_bound() { return 2 * stats.records + kSortMargin; }
