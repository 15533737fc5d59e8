/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Checkpoints, and what the engine has to say about BACKUP STAGE.

  A checkpoint agrees with the binary log if no commit comes between the two: under BACKUP STAGE BLOCK_COMMIT. Commits
  wait meanwhile, so the memtables are flushed when the backup starts and not when the checkpoint is made.
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

/* What `SET GLOBAL firn_create_checkpoint` was given, or false with an error reported. */
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
  /* Files are written where the client says, as by SELECT ... INTO OUTFILE: the same is asked for. */
  if (check_global_access(thd, FILE_ACL, false)) return false;
  if (opt_secure_file_priv && !is_secure_file_path(&(*path)[0])) {
    my_error(ER_OPTION_PREVENTS_STATEMENT, MYF(0), "--secure-file-priv");
    return false;
  }
  return true;
}

}  // namespace

/* The check of the variable does the work: it may fail, and the server holds no lock of its own around it. */
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
  Commits carry their place in the binary log; changes of definitions are written to it after the engine has made them.
  What the log of the engine gets is the place before: the last commit's.
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
