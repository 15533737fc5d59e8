/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "table_options.h"

namespace firn {

/* The names of TableLocking in their order; the first one is the default. */
ha_create_table_option table_options[] = {HA_TOPTION_ENUM("FIRN_LOCKING", locking, "PESSIMISTIC,OPTIMISTIC", 0),
                                          HA_TOPTION_END};

}  // namespace firn
