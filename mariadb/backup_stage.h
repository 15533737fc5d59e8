/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

void set_backup_callbacks(handlerton* hton);

/* Called before each change of the catalog: notes the last commit's binary log position. */
void note_binlog_position();

}  // namespace firn
