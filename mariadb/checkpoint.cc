/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  The variables firn_create_checkpoint and firn_backup_checkpoint: checkpoints of the engine for
  backups.
*/

#include "checkpoint.h"
#include "mdl.h"
#include "session.h"
#include "sql_parse.h"
#include "sysvars.h"

#include <atomic>
#include <mutex>
#include <string>

namespace firn {
namespace {

std::atomic<bool> flushed_before{false};

/* The checkpoint that the next backup is to make. The mutex is held while it is made. */
struct ArmedCheckpoint {
  std::mutex mutex;
  std::string path; /* Empty: none. */
  /* It names files of the object store; otherwise it is refused if there are any. */
  bool names_objects = false;
  /*
    The session that armed the checkpoint. Atomic, so that other sessions that end need not wait
    until the checkpoint is made.
  */
  std::atomic<const THD*> owner{nullptr};
};

ArmedCheckpoint armed;

/*
  Callback of mdl_iterate(): looks for the lock of BACKUP STAGE BLOCK_COMMIT. It asks for the name
  of the type, which a function of the server returns: the members of MDL_ticket may lie elsewhere
  in another patch level.
*/
int find_commit_blocker(MDL_ticket* ticket, void* found, bool granted) {
  static constexpr char kBlocksCommits[] = "MDL_BACKUP_WAIT_COMMIT";
  const LEX_STRING* name = ticket->get_type_name();
  if (granted && name->length == sizeof(kBlocksCommits) - 1 && !memcmp(name->str, kBlocksCommits, name->length))
    *static_cast<const MDL_ticket**>(found) = ticket;
  return 0;
}

/* The lock for which commits of all sessions wait, or null. */
const MDL_ticket* commit_blocker() {
  const MDL_ticket* found = nullptr;
  mdl_iterate(find_commit_blocker, &found);
  return found;
}

/*
  Reads the value that the client gives to `variable`: the directory of a checkpoint. Leaves `path`
  empty for an empty value. Returns false after it has reported an error.
*/
bool wanted_path(THD* thd, st_mysql_value* value, const char* variable, std::string* path) {
  char buffer[FN_REFLEN];
  int length = sizeof(buffer);
  const char* text = value->val_str(value, buffer, &length);
  if (!text || !length) return true;
  if (size_t(length) >= FN_REFLEN) {
    my_error(ER_PATH_LENGTH, MYF(0), variable);
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

/*
  How a checkpoint of this session treats files of the object store. `firn backup` copies them
  itself. While commits wait, also for another session, they are not copied: that may take hours.
*/
firn_remote_files remote_files(THD* thd) {
  if (sysvars::checkpoint_names_objects(thd)) return FIRN_REMOTE_NAMED;
  return commit_blocker() ? FIRN_REMOTE_REFUSED : FIRN_REMOTE_COPIED;
}

/* Callback of the core while it copies files of the object store. */
bool is_killed(void* thd, uint64_t, uint64_t) { return thd_kill_level(static_cast<THD*>(thd)) > THD_ABORT_SOFTLY; }

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
    if (!wanted_path(thd, value, "firn_create_checkpoint", &path)) return 1;
    if (path.empty()) return 0;
    const bool flush = !flushed_before;
    if (firn_checkpoint(database, path.c_str(), flush, remote_files(thd), is_killed, thd) == FIRN_OK) return 0;
    my_printf_error(ER_GET_ERRMSG, "FIRN: no checkpoint: %s", MYF(0), firn_last_error());
  } catch (const std::bad_alloc&) {
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
  }
  return 1;
}

int arm_checkpoint(THD* thd, st_mysql_sys_var*, void* save, st_mysql_value* value) {
  *static_cast<const char**>(save) = nullptr;
  try {
    std::string path;
    if (!wanted_path(thd, value, "firn_backup_checkpoint", &path)) return 1;
    /*
      Make sure that the engine knows the session. Otherwise the server would not call
      close_connection() at its end, and nothing would disarm the checkpoint.
    */
    if (!Session::get(thd)) {
      my_error(ER_OUT_OF_RESOURCES, MYF(0));
      return 1;
    }
    const std::lock_guard<std::mutex> lock(armed.mutex);
    if (!armed.path.empty() && armed.owner != thd) {
      my_printf_error(ER_GET_ERRMSG, "FIRN: the backup of another session has armed a checkpoint", MYF(0));
      return 1;
    }
    armed.path.swap(path);
    armed.names_objects = sysvars::checkpoint_names_objects(thd);
    armed.owner = thd;
    return 0;
  } catch (const std::bad_alloc&) {
    my_error(ER_OUT_OF_RESOURCES, MYF(0));
  }
  return 1;
}

void disarm_checkpoint(const THD* owner) {
  if (armed.owner != owner) return;
  const std::lock_guard<std::mutex> lock(armed.mutex);
  if (armed.owner != owner) return;
  armed.path.clear();
  armed.owner = nullptr;
}

bool checkpoint_is_armed() {
  const std::lock_guard<std::mutex> lock(armed.mutex);
  return !armed.path.empty();
}

/*
  The session that calls FLUSH ENGINE LOGS need not be the one that blocks commits: mariadb-backup
  uses one session for its backup stages and another one for everything else. It also flushes before
  it blocks commits; nothing happens then.
*/
bool make_armed_checkpoint() {
  /*
    Commits of several engines may also flush the logs. They return here and take no mutex, which
    all of them would share.
  */
  if (!armed.owner) return false;
  const std::lock_guard<std::mutex> lock(armed.mutex);
  if (armed.path.empty()) return false;
  const MDL_ticket* blocker = commit_blocker();
  if (!blocker) return false;
  const firn_remote_files remote = armed.names_objects ? FIRN_REMOTE_NAMED : FIRN_REMOTE_REFUSED;
  const bool made = firn_checkpoint(database, armed.path.c_str(), false, remote, is_killed, current_thd) == FIRN_OK;
  armed.path.clear();
  if (!made)
    my_printf_error(ER_GET_ERRMSG, "FIRN: no checkpoint: %s", MYF(0), firn_last_error());
  else if (commit_blocker() == blocker)
    return false;
  else
    my_printf_error(ER_GET_ERRMSG, "FIRN: commits went on while the checkpoint was made", MYF(0));
  return true;
}

}  // namespace firn
