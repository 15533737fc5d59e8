/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* CHECK TABLE, ANALYZE TABLE and OPTIMIZE TABLE. */

#include "ha_firn.h"
#include "errors.h"
#include "host_callbacks.h"
#include "log.h"

namespace {

struct Problems {
  THD* thd;
  const char* table;
  unsigned found;
};

void report(void* context, const char* text) {
  Problems* problems = static_cast<Problems*>(context);
  problems->found++;
  push_warning_printf(problems->thd, Sql_condition::WARN_LEVEL_WARN, ER_NOT_KEYFILE, "FIRN: %s", text);
  sql_print_error("FIRN: CHECK TABLE %s: %s", problems->table, text);
}

}  // namespace

int ha_firn::check(THD* thd, HA_CHECK_OPT* options) {
  Problems problems = {thd, table_share->path.str, 0};
  uint64_t rows = 0;
  const firn_status status =
      firn_check_table(m_session->core(), m_share->core(), options->flags & T_EXTEND, report, &problems, &rows);
  if (problems.found || status == FIRN_CORRUPTION) return HA_ADMIN_CORRUPT;
  if (status == FIRN_OK) return HA_ADMIN_OK;
  const int error = firn_error(status);
  if (error != HA_ERR_ABORTED_BY_USER)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "FIRN: %s", m_session->message());
  return HA_ADMIN_FAILED;
}

/* The core keeps its counts up to date; only the estimates of rows per key are made again. */
int ha_firn::analyze(THD*, HA_CHECK_OPT*) {
  estimate_rows_per_key();
  return info(HA_STATUS_CONST | HA_STATUS_VARIABLE | HA_STATUS_TIME) ? HA_ADMIN_FAILED : HA_ADMIN_OK;
}

/* The server calls this function for each partition. Writes go on meanwhile. */
int ha_firn::optimize(THD* thd, HA_CHECK_OPT*) {
  thd_progress_init(thd, 1);
  const firn_status status = firn_optimize_table(m_share->core(), firn::report_progress, thd);
  thd_progress_end(thd);
  if (status == FIRN_OK) return HA_ADMIN_OK;
  const int error = firn_error(status);
  if (error == HA_ERR_ABORTED_BY_USER)
    print_error(error, MYF(0));
  else
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "FIRN: %s",
                        m_session ? m_session->message() : firn_last_error());
  return HA_ADMIN_FAILED;
}
