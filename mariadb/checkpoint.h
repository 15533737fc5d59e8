/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* Check function of the variable firn_create_checkpoint; it makes the checkpoint. */
int create_checkpoint(THD* thd, st_mysql_sys_var* variable, void* save, st_mysql_value* value);

/*
  While a backup runs, a checkpoint flushes no memtables. It matches the binary log only if no
  commit comes between the two, so it is made during BACKUP STAGE BLOCK_COMMIT, where commits wait;
  the start of the backup has flushed instead.
*/
void checkpoints_follow_flush(bool flushed);

}  // namespace firn
