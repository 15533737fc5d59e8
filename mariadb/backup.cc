/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Checkpoints, and the engine's part in BACKUP STAGE.

  A checkpoint matches the binary log if no commit comes between the two. BACKUP STAGE BLOCK_COMMIT
  ensures that. Commits wait during that stage, so the memtables are flushed when the backup starts
  and not when the checkpoint is made.
*/

#include "backup.h"
#include "sysvars.h"
#include "log.h"
#include "sql_parse.h"

#include <atomic>
#include <string>

namespace firn {
namespace {

std::atomic<bool> in_backup{false};

void note_table(void* found, const char* name) {
  if (!is_ddl_leftover(name)) *static_cast<bool*>(found) = true;
}

bool has_tables() {
  bool found = false;
  return firn_list_table_names(database, "", note_table, &found) == FIRN_OK && found;
}

/* BACKUP STAGE START. */
void prepare_for_backup() {
  in_backup = true;
  if (!database) return;
  if (sysvars::backup_client(current_thd)) {
    if (firn_flush(database) != FIRN_OK)
      sql_print_warning("FIRN: flush at the start of a backup failed: %s", firn_last_error());
  } else if (has_tables()) {
    sql_print_warning(
        "FIRN: a backup begins, and there are FIRN tables. mariadb-backup does not copy them: use 'firn backup'.");
  }
}

void end_backup() { in_backup = false; }

/*
  The value that SET GLOBAL firn_create_checkpoint got. Returns false after it has reported an
  error.
*/
bool wanted_path(THD* thd, st_mysql_value* value, std::string* path) {
  char buffer[FN_REFLEN];
  int length = sizeof(buffer);
  const char* text = value->val_str(value, buffer, &length);
  if (!text || !length) return true;
  if (size_t(length) >= FN_REFLEN) {
    my_error(ER_PATH_LENGTH, MYF(0), "firn_create_checkpoint");
    return false;
  }
  path->assign(text, size_t(length));
  /*
    The client chooses where the server writes files, so it needs the privileges of SELECT ... INTO
    OUTFILE.
  */
  if (check_global_access(thd, FILE_ACL, false)) return false;
  if (opt_secure_file_priv && !is_secure_file_path(&(*path)[0])) {
    my_error(ER_OPTION_PREVENTS_STATEMENT, MYF(0), "--secure-file-priv");
    return false;
  }
  return true;
}

}  // namespace

/*
  The variable's check function makes the checkpoint: a check may fail, and the server holds none of
  its locks around it.
*/
int create_checkpoint(THD* thd, st_mysql_sys_var*, void* save, st_mysql_value* value) {
  *static_cast<const char**>(save) = nullptr;
  try {
    std::string path;
    if (!wanted_path(thd, value, &path)) return 1;
    if (path.empty()) return 0;
    const bool flush = !in_backup;
    if (firn_checkpoint(database, path.c_str(), flush) == FIRN_OK) return 0;
    my_printf_error(ER_GET_ERRMSG, "FIRN: no checkpoint: %s", MYF(0), firn_last_error());
  } catch (const std::bad_alloc&) {
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
  }
  return 1;
}

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
