/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

void set_backup_callbacks(handlerton* hton);

/* Check function of the variable firn_create_checkpoint; it makes the checkpoint. */
int create_checkpoint(THD* thd, st_mysql_sys_var* variable, void* save, st_mysql_value* value);

/* Called before each change of the catalog: notes the last commit's binary log position. */
void note_binlog_position();

}  // namespace firn
