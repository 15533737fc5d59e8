/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* Check function of the variable firn_create_checkpoint; it makes the checkpoint. */
int create_checkpoint(THD* thd, st_mysql_sys_var* variable, void* save, st_mysql_value* value);

/*
  Check function of the variable firn_backup_checkpoint. It arms a checkpoint: the next FLUSH ENGINE
  LOGS while commits wait for a backup makes it. That brings the checkpoint into the backup of
  another program, at the position that this program notes. It is disarmed when it is made, and when
  the session that armed it ends.
*/
int arm_checkpoint(THD* thd, st_mysql_sys_var* variable, void* save, st_mysql_value* value);

void disarm_checkpoint(const THD* owner);

bool checkpoint_is_armed();

/*
  Makes the armed checkpoint if there is one and commits wait. Returns true after it has reported an
  error, as the handlerton's flush_logs() does.
*/
bool make_armed_checkpoint();

/*
  While a backup runs, a checkpoint flushes no memtables. It matches the binary log only if no
  commit comes between the two, so it is made during BACKUP STAGE BLOCK_COMMIT, where commits wait;
  the start of the backup has flushed instead.
*/
void checkpoints_follow_flush(bool flushed);

}  // namespace firn
