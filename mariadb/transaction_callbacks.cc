/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  The handlerton's callbacks for transactions: the server calls them to commit, roll back and
  prepare. session.cc has the work of one session.
*/

#include "transaction_callbacks.h"
#include "checkpoint.h"
#include "errors.h"
#include "binlog_file.h"
#include "session.h"
#include "xa.h"
#include "log.h"

namespace firn {
namespace {

int close_connection(handlerton*, THD* thd) {
  disarm_checkpoint(thd);
  Session::close(thd);
  return 0;
}

/* Runs in the killer's thread, which holds the lock that keeps the session alive. */
void kill_query(handlerton*, THD* thd, enum thd_kill_levels) {
  if (Session* session = Session::find(thd)) firn_kill(session->core());
}

int commit(handlerton*, THD* thd, bool all) {
  Session* session = Session::find(thd);
  return session ? session->commit(all) : 0;
}

int rollback(handlerton*, THD* thd, bool all) {
  Session* session = Session::find(thd);
  return session ? session->rollback(all) : 0;
}

int prepare(handlerton*, THD* thd, bool all) {
  Session* session = Session::find(thd);
  return session ? session->prepare(all) : 0;
}

/*
  Called under the server's LOCK_commit_ordered, perhaps in another thread than the transaction's.
  It must not do I/O and cannot report an error.
*/
void commit_ordered(handlerton*, THD* thd, bool) {
  if (Session* session = Session::find(thd)) session->commit_ordered();
}

/*
  Everything that commit_ordered() has done must be durable before the server deletes the binary
  log, from which it could be repeated. If that fails, the server gets no answer: it keeps the
  binary log, and recovery reads it.
*/
void commit_checkpoint_request(void* cookie) {
  binlog_file::file_changed();
  if (database && firn_sync_log(database) == FIRN_OK)
    commit_checkpoint_notify_ha(cookie);
  else
    sql_print_error("FIRN: binary log checkpoint failed, older binary logs stay needed: %s", firn_last_error());
}

bool flush_logs(handlerton*) {
  if (!database) return false;
  return firn_sync_log(database) != FIRN_OK || make_armed_checkpoint();
}

int savepoint_set(handlerton*, THD* thd, void* savepoint) {
  Session* session = Session::find(thd);
  if (!session || session->aborted()) return HA_ERR_NO_SAVEPOINT;
  uint64_t mark = 0;
  const firn_status status = firn_savepoint(session->core(), &mark);
  memcpy(savepoint, &mark, sizeof(mark));
  return session->to_server_error(status);
}

int savepoint_rollback(handlerton*, THD* thd, void* savepoint) {
  Session* session = Session::find(thd);
  if (!session || session->aborted()) return HA_ERR_NO_SAVEPOINT;
  uint64_t mark;
  memcpy(&mark, savepoint, sizeof(mark));
  return session->to_server_error(firn_rollback_to_savepoint(session->core(), mark));
}

/* A mark is a position in the write set, so there is nothing to free. */
int savepoint_release(handlerton*, THD*, void*) { return 0; }

/*
  The server asks before it rolls back to a savepoint. Row locks that were taken after the
  savepoint stay, so the metadata locks of their tables must stay too; the same holds for what an
  optimistic transaction validates at its commit. If there is neither, DDL that waits for a table
  that was only read since the savepoint may go on, as with InnoDB.
*/
bool savepoint_rollback_can_release_mdl(handlerton*, THD* thd) {
  const Session* session = Session::find(thd);
  return !session || !firn_depends_on_tables(session->core());
}

/* The server calls this function for each engine, whatever tables the session will use. */
int start_consistent_snapshot(handlerton*, THD* thd) {
  Session* session = Session::get(thd);
  return session ? session->begin_snapshot() : HA_ERR_OUT_OF_MEM;
}

}  // namespace

void set_transaction_callbacks(handlerton* hton) {
  hton->savepoint_offset = sizeof(uint64_t);
  hton->close_connection = close_connection;
  hton->kill_query = kill_query;
  hton->commit = commit;
  hton->rollback = rollback;
  hton->prepare = prepare;
  hton->commit_ordered = commit_ordered;
  hton->commit_checkpoint_request = commit_checkpoint_request;
  hton->recover = recover;
  hton->commit_by_xid = commit_by_xid;
  hton->rollback_by_xid = rollback_by_xid;
  hton->flush_logs = flush_logs;
  hton->savepoint_set = savepoint_set;
  hton->savepoint_rollback = savepoint_rollback;
  hton->savepoint_rollback_can_release_mdl = savepoint_rollback_can_release_mdl;
  hton->savepoint_release = savepoint_release;
  hton->start_consistent_snapshot = start_consistent_snapshot;
}

}  // namespace firn
