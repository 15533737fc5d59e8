/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* SHOW STATUS LIKE 'Firn%': one function that reads all counters of the core at once. */
extern struct st_mysql_show_var status_variables[];

}  // namespace firn
