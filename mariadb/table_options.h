/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

/*
  Values of the engine's attributes of CREATE TABLE, as the server parses them into
  TABLE_SHARE::option_struct. The name is the server's. All but the first are InnoDB's, and FIRN has
  none of the features behind them: they are declared so that the server accepts the definitions of
  InnoDB tables, and so that the engine sees what it is asked for.
*/
struct ha_table_option_struct {
  /* FIRN_LOCKING, a number of firn::TableLocking. */
  uint locking;
  bool page_compressed;
  ulonglong page_compression_level;
  /* Number in "DEFAULT,YES,NO". */
  uint encryption;
  ulonglong encryption_key_id;
};

namespace firn {

enum class TableLocking : uint { kPessimistic, kOptimistic };

/* HA_CREATE_USED_… of the server's options that have no effect. */
constexpr ulong kIgnoredOptions =
    HA_CREATE_USED_ROW_FORMAT | HA_CREATE_USED_KEY_BLOCK_SIZE | HA_CREATE_USED_STATS_PERSISTENT |
    HA_CREATE_USED_STATS_AUTO_RECALC | HA_CREATE_USED_STATS_SAMPLE_PAGES | HA_CREATE_USED_CONNECTION |
    HA_CREATE_USED_CHECKSUM | HA_CREATE_USED_PAGE_CHECKSUM | HA_CREATE_USED_DELAY_KEY_WRITE | HA_CREATE_USED_MIN_ROWS |
    HA_CREATE_USED_MAX_ROWS | HA_CREATE_USED_AVG_ROW_LENGTH | HA_CREATE_USED_PACK_KEYS | HA_CREATE_USED_INSERT_METHOD |
    HA_CREATE_USED_UNION | HA_CREATE_USED_PASSWORD | HA_CREATE_USED_TRANSACTIONAL;

/* For handlerton::table_options. */
extern ha_create_table_option table_options[];

/* Whether the options say FIRN_LOCKING=OPTIMISTIC. `options` may be NULL. */
inline bool is_optimistic(const ha_table_option_struct* options) {
  return options && options->locking == uint(TableLocking::kOptimistic);
}

/*
  The option of `form` that changes what the user may rely on and that the engine cannot honour;
  NULL if there is none. The caller refuses the table, on replicas as well.
*/
const char* unmet_option(const TABLE* form);

/*
  Gives a note for each option that has no effect, once in a statement. An ALTER TABLE without
  ENGINE is told about the options that it names itself, and not about those that the table had.
*/
void note_ignored_options(THD* thd, const TABLE* form, const HA_CREATE_INFO* info);

/*
  Treats DATA DIRECTORY and INDEX DIRECTORY: files belong to the database, not to a table. Reports
  an error in strict mode, else a warning. Replicas get the warning too, because they execute what
  the other server has accepted. Returns whether it has reported an error.
*/
bool refuse_directories(THD* thd, const HA_CREATE_INFO* info);

}  // namespace firn
