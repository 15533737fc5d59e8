/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* Check function of the variable firn_create_checkpoint; it makes the checkpoint. */
int create_checkpoint(THD* thd, st_mysql_sys_var* variable, void* save, st_mysql_value* value);

/*
  Check function of the variable firn_backup_checkpoint. It arms a checkpoint: the next FLUSH ENGINE
  LOGS while commits wait for a backup makes it. So the checkpoint has the same position in the
  binary log as the backup that another program, such as mariadb-backup, makes at this time. The
  checkpoint is disarmed when it is made, and when the session that armed it ends.
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
  With `flushed`, which a backup sets at its start, a checkpoint flushes no memtables. The backup
  makes its checkpoint during BACKUP STAGE BLOCK_COMMIT, because no commit may come between the
  checkpoint and the position in the binary log that the backup notes. All commits wait meanwhile,
  so a flush would take too long there; the backup flushes at its start instead. It sets `flushed`
  to false at its end.
*/
void checkpoints_follow_flush(bool flushed);

}  // namespace firn
