/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* What the optimizer and SHOW TABLE STATUS ask. The core answers from counters in memory: no call here reads a file. */

#include "ha_firn.h"
#include "errors.h"

namespace {

/* The unit of the optimizer's costs: what it believes one read brings, in bytes. InnoDB's page, so that plans agree. */
constexpr uint kCostBlock = 16384;

}  // namespace

int ha_firn::info(uint flag) {
  if (flag & HA_STATUS_ERRKEY) errkey = m_duplicate_index;
  if (flag & HA_STATUS_AUTO) stats.auto_increment_value = firn_autoinc_next_value(m_share->core());

  if (flag & (HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_TIME)) {
    firn_table_stats core;
    const firn_status status = firn_table_statistics(m_share->core(), &core);
    if (status != FIRN_OK) return firn_error(status);
    stats.records = ha_rows(core.rows);
    /* Never 0 for the optimizer: the count is an estimate, and it would take 0 for a fact. */
    if (stats.records == 0 && !(flag & (HA_STATUS_TIME | HA_STATUS_OPEN))) stats.records = 1;
    stats.data_file_length = core.stored_bytes;
    stats.index_file_length = core.index_stored_bytes;
    stats.delete_length = 0;
    stats.mean_rec_length = core.average_row_length;
    stats.update_time = m_share->updated();
    stats.create_time = time_t(core.create_time_s);
    m_rows_bytes = double(core.raw_bytes);
  }

  if (flag & HA_STATUS_CONST) {
    stats.block_size = kCostBlock;
    stats.mrr_length_per_rec = ref_length + sizeof(void*);
    /* A whole unique key finds one row; for the rest the core looks at a few dozen places of the index. */
    for (uint i = 0; i < table_share->keys; i++) {
      KEY* key_info = table->key_info + i;
      if (!key_info->rec_per_key) continue;
      uint part = key_info->ext_key_parts;
      if ((key_info->flags & (HA_NOSAME | HA_NULL_PART_KEY)) == HA_NOSAME)
        part = key_info->user_defined_key_parts - 1;
      else if (key_info->ext_key_flags & HA_EXT_NOSAME)
        part--;
      for (uint whole = part; whole < key_info->ext_key_parts; whole++) key_info->rec_per_key[whole] = 1;
      double rows[MAX_REF_PARTS] = {};
      const uint declared = MY_MIN(part, key_info->user_defined_key_parts);
      if (declared && firn_index_statistics(m_share->core(), i, rows, declared) == FIRN_OK)
        for (uint one = 0; one < declared; one++) key_info->rec_per_key[one] = ulong(MY_MAX(rows[one], 1.0));
    }
  }
  return 0;
}

ha_rows ha_firn::records_in_range(uint index, const key_range* min, const key_range* max, page_range*) {
  const uint64_t rows = firn_records_in_range(m_share->core(), index, min ? min->key : nullptr, min ? min->length : 0,
                                              min ? uint32_t(min->flag) : 0, max ? max->key : nullptr,
                                              max ? max->length : 0, max ? uint32_t(max->flag) : 0);
  return ha_rows(MY_MAX(rows, uint64_t(1)));
}

/* Decompressed bytes: what a scan works through, whatever the files take on disk. */
double ha_firn::scan_time() { return m_rows_bytes / kCostBlock + 2; }

double ha_firn::read_time(uint index, uint ranges, ha_rows rows) {
  if (!is_clustering_key(index)) return handler::read_time(index, ranges, rows);
  /* Rows of a range of the primary key lie side by side: as expensive as their share of a scan. */
  const double all = rows2double(stats.records);
  const double scan = scan_time();
  if (rows2double(rows) >= all) return scan;
  return ranges + rows2double(rows) / all * scan;
}
