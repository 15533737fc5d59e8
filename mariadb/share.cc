/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* The share of an open table: its handle in the core, which all handlers of the table use. */

#include "share.h"
#include "errors.h"
#include "table_definition.h"
#include "log.h"

#include <new>

namespace firn {

int Share::acquire(const char* path, const TABLE* table) {
  if (!core_) {
    if (!database) return HA_ERR_INITIALIZATION;
    try {
      TableDefinition definition(table);
      if (const char* what = definition.unsupported()) {
        my_error(ER_ILLEGAL_HA_CREATE_OPTION, MYF(0), hton_name(hton)->str, what);
        return kErrorReported;
      }
      const firn_status status = firn_table_open(database, TableName(path).c_str(), definition.get(), &core_);
      if (status == FIRN_DEFINITION_DIFFERS) {
        sql_print_error("FIRN: %s", firn_last_error());
        my_printf_error(ER_NOT_FORM_FILE, "FIRN: %s", MYF(0), firn_last_error());
        return kErrorReported;
      }
      if (status != FIRN_OK) return to_server_error(status);
      optimistic_ = firn_table_is_optimistic(core_);
      temporary_ = firn_table_is_temporary(core_);
      warn_of_difference(path);
    } catch (const std::bad_alloc&) {
      return HA_ERR_OUT_OF_MEM;
    }
  }
  handlers_++;
  return 0;
}

void Share::release() {
  if (--handlers_ == 0) {
    firn_table_close(core_);
    core_ = nullptr;
  }
}

/*
  Rows and keys are read and written as before. The next ALTER TABLE makes both definitions equal.
*/
void Share::warn_of_difference(const char* path) const {
  const char* difference = firn_table_warning(core_);
  if (!difference) return;
  const TableName name(path);
  constexpr const char* kText =
      "FIRN: table %s: the server's definition and the stored one differ, but not in what rows are stored by (%s); "
      "ALTER TABLE ... FORCE makes them the same";
  sql_print_warning(kText, name.c_str(), difference);
  if (THD* thd = current_thd)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, kText, name.c_str(), difference);
}

bool Share::claim_estimates(uint64_t rows) {
  uint64_t before = rows_at_estimates_.load(std::memory_order_relaxed);
  const bool fresh = before ? rows / 2 <= before && before / 2 <= rows : rows == 0;
  return !fresh && rows_at_estimates_.compare_exchange_strong(before, rows, std::memory_order_relaxed);
}

void Share::return_estimates(uint64_t rows) {
  rows_at_estimates_.compare_exchange_strong(rows, 0, std::memory_order_relaxed);
}

}  // namespace firn
