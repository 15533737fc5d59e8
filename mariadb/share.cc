/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "share.h"
#include "errors.h"
#include "schema.h"

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
      if (status != FIRN_OK) return to_server_error(status);
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

bool Share::claim_estimates(uint64_t rows) {
  uint64_t before = rows_at_estimates_.load(std::memory_order_relaxed);
  const bool fresh = before ? rows / 2 <= before && before / 2 <= rows : rows == 0;
  return !fresh && rows_at_estimates_.compare_exchange_strong(before, rows, std::memory_order_relaxed);
}

}  // namespace firn
