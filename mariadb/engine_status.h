/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* SHOW ENGINE FIRN STATUS. */
bool show_status(handlerton* hton, THD* thd, stat_print_fn* print, enum ha_stat_type what);

}  // namespace firn
