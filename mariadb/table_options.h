/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

/*
  Values of the engine's options of CREATE TABLE, as the server parses them into
  TABLE_SHARE::option_struct. The name is the server's.
*/
struct ha_table_option_struct {
  /* FIRN_LOCKING, a number of firn::TableLocking. */
  uint locking;
};

namespace firn {

enum class TableLocking : uint { kPessimistic, kOptimistic };

/* For handlerton::table_options. */
extern ha_create_table_option table_options[];

/* Whether the options say FIRN_LOCKING=OPTIMISTIC. `options` may be NULL. */
inline bool is_optimistic(const ha_table_option_struct* options) {
  return options && options->locking == uint(TableLocking::kOptimistic);
}

}  // namespace firn
