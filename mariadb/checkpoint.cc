/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "checkpoint.h"
#include "sql_parse.h"

#include <atomic>
#include <string>

namespace firn {
namespace {

std::atomic<bool> flushed_before{false};

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

void checkpoints_follow_flush(bool flushed) { flushed_before = flushed; }

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
    const bool flush = !flushed_before;
    if (firn_checkpoint(database, path.c_str(), flush) == FIRN_OK) return 0;
    my_printf_error(ER_GET_ERRMSG, "FIRN: no checkpoint: %s", MYF(0), firn_last_error());
  } catch (const std::bad_alloc&) {
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
  }
  return 1;
}

}  // namespace firn
