/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

namespace firn {

/* Init functions of the plugins information_schema.FIRN_TABLES and FIRN_LEVELS. */
int init_firn_tables(void* schema);
int init_firn_levels(void* schema);

}  // namespace firn
