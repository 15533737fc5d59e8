/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* The engine's part in BACKUP STAGE. */

#include "backup_stage.h"
#include "checkpoint.h"
#include "sysvars.h"
#include "log.h"

namespace firn {
namespace {

void note_table(void* found, const char* name) {
  if (!is_ddl_leftover(name)) *static_cast<bool*>(found) = true;
}

bool has_tables() {
  bool found = false;
  return firn_list_table_names(database, "", note_table, &found) == FIRN_OK && found;
}

/* BACKUP STAGE START. */
void prepare_for_backup() {
  checkpoints_follow_flush(true);
  if (!database) return;
  if (sysvars::backup_client(current_thd) || checkpoint_is_armed()) {
    if (firn_flush(database) != FIRN_OK)
      sql_print_warning("FIRN: flush at the start of a backup failed: %s", firn_last_error());
  } else if (has_tables()) {
    sql_print_warning(
        "FIRN: a backup begins, and there are FIRN tables. mariadb-backup does not copy them: use 'firn backup'.");
  }
}

void end_backup() { checkpoints_follow_flush(false); }

}  // namespace

/*
  A commit records its own position in the binary log. A change of the catalog gets into the binary
  log only after the engine has made it, so the engine's log gets the position before: that of the
  last commit.
*/
void note_binlog_position() {
  if (!database || !sysvars::log_is_archived() || !mysql_bin_log.is_open()) return;
  char file[FN_REFLEN];
  mysql_mutex_lock(&LOCK_commit_ordered);
  strmake_buf(file, mysql_bin_log.last_commit_pos_file);
  const my_off_t position = mysql_bin_log.last_commit_pos_offset;
  mysql_mutex_unlock(&LOCK_commit_ordered);
  if (*file) firn_note_binlog_position(database, file + dirname_length(file), position);
}

void set_backup_callbacks(handlerton* hton) {
  hton->prepare_for_backup = prepare_for_backup;
  hton->end_backup = end_backup;
}

}  // namespace firn
