/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Functions of the server that the core calls: its error log, reports of lock waits, collations,
  virtual columns.
*/

#include "host_callbacks.h"
#include "collation.h"
#include "lock_timeout.h"
#include "log.h"
#include "mdl.h"

#include <mysql/service_thd_wait.h>
#include <mysql/service_wsrep.h>

#include <atomic>

/* Functions that the server exports to engines and no header declares. */
extern "C" {
void thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);
int thd_need_wait_reports(const MYSQL_THD thd);
int thd_need_ordering_with(const MYSQL_THD thd, const MYSQL_THD other);
int thd_deadlock_victim_preference(const MYSQL_THD thd, const MYSQL_THD other);
MYSQL_THD thd_increment_pending_ops(MYSQL_THD thd);
void thd_decrement_pending_ops(void* thd);
size_t thd_query_safe(MYSQL_THD thd, char* buffer, size_t size);
void* thd_mdl_context(MYSQL_THD thd);
}

TABLE* find_fk_open_table(THD* thd, const char* db, size_t db_len, const char* table, size_t table_len);

namespace firn {
namespace {

void log(int severity, const char* message) {
  switch (severity) {
    case 0:
      sql_print_information("FIRN: %s", message);
      break;
    case 1:
      sql_print_warning("FIRN: %s", message);
      break;
    default:
      sql_print_error("FIRN: %s", message);
      break;
  }
}

/*
  Which lock waits thd_rpl_deadlock_check() needs to know. A replica's applier: each blocker, since
  the server compares their order of commits. Otherwise, if there is a binary log: that the
  transaction waits at all, and that somebody waits for the one ahead of it, which then delays its
  group commit for no others (binlog_commit_wait_count).
*/
int lock_wait_reports(void* waiter) {
  THD* thd = static_cast<THD*>(waiter);
  if (!thd_need_wait_reports(thd)) return 0;
  return thd->rgi_slave ? 2 : 1;
}

/*
  Parallel replication: a transaction that must commit later must not block one that commits
  earlier. The server may decide to kill the blocker, which another thread does by kill_query(). On
  a primary the server notes in the binary log that the waiter has waited, and replicas apply its
  transaction after the ones before it.
*/
void lock_wait(void* waiter, void* blocker) {
  if (blocker) thd_rpl_deadlock_check(static_cast<THD*>(waiter), static_cast<THD*>(blocker));
}

/*
  Parallel replication: the replica commits both transactions in the order of the primary, where
  they were in one group commit and so did not wait for each other.
*/
bool order_is_fixed(void* one, void* other) {
  return !thd_need_ordering_with(static_cast<THD*>(one), static_cast<THD*>(other));
}

/*
  Parallel replication: the victim is the transaction that commits later, since it waits for the
  earlier one anyway.
*/
int preferred_victim(void* one, void* other) {
  return thd_deadlock_victim_preference(static_cast<THD*>(one), static_cast<THD*>(other));
}

/* When the lock wait of this thread began. */
thread_local ulonglong wait_begun_us = 0;

/* Lets the thread pool start another thread while this one waits. */
uint64_t wait_begins(void* host, uint64_t timeout_us) {
  THD* thd = static_cast<THD*>(host);
  timeout_us = lock_timeout_of_wait_us(thd, timeout_us);
  thd_wait_begin(thd, THD_WAIT_ROW_LOCK);
  wait_begun_us = microsecond_interval_timer();
  return timeout_us;
}

/* Adds the time of the wait to the statement's lock time, which the slow log shows as Lock_time. */
void wait_ends(void* host) {
  THD* thd = static_cast<THD*>(host);
  thd_wait_end(thd);
  thd_storage_lock_wait(thd, static_cast<long long>(microsecond_interval_timer() - wait_begun_us));
}

/* A write stall: the thread pool may start another thread, and SHOW PROCESSLIST tells why. */
thread_local const char* proc_info_before_stall = nullptr;

void stall_begins(void* host) {
  THD* thd = static_cast<THD*>(host);
  thd_wait_begin(thd, THD_WAIT_DISKIO);
  proc_info_before_stall = thd_proc_info(thd, "Waiting for flushes and compactions");
}

void stall_ends(void* host) {
  THD* thd = static_cast<THD*>(host);
  thd_proc_info(thd, proc_info_before_stall);
  thd_wait_end(thd);
}

/* A durable commit: the thread pool may start another thread, whose commit then shares the sync. */
void commit_wait_begins(void* host) { thd_wait_begin(static_cast<THD*>(host), THD_WAIT_GROUP_COMMIT); }

void commit_wait_ends(void* host) { thd_wait_end(static_cast<THD*>(host)); }

/*
  With the thread pool, a session whose commit is not durable yet is set aside: the server resumes
  it when the count of its pending operations is 0, and answers then. Its thread works for other
  sessions meanwhile. Elsewhere the session's own thread would wait for the count, which costs more
  than to wait for the log.

  Nothing else may follow the commit before the answer, because a crash could lose the commit and
  keep what follows, such as a change by another engine. Further statements of the packet or of a
  routine follow, which the status tells, and DDL follows an implicit commit. And there must be a
  connection that waits.
*/
bool may_hold_answer(void* host) {
  THD* thd = static_cast<THD*>(host);
  if (!thd->scheduler->thd_resume || !thd->net.vio || (thd->server_status & SERVER_MORE_RESULTS_EXISTS)) return false;
  switch (thd_sql_command(thd)) {
    case SQLCOM_COMMIT:
    case SQLCOM_INSERT:
    case SQLCOM_INSERT_SELECT:
    case SQLCOM_REPLACE:
    case SQLCOM_REPLACE_SELECT:
    case SQLCOM_UPDATE:
    case SQLCOM_UPDATE_MULTI:
    case SQLCOM_DELETE:
    case SQLCOM_DELETE_MULTI:
      return true;
    default:
      return false;
  }
}

bool hold_answer(void* host) { return thd_increment_pending_ops(static_cast<THD*>(host)); }

/*
  Makes a thread of the core known to the server: the thread pool reports its errors in a variable
  of the thread when it cannot start another one.
*/
class ServerThread {
 public:
  ServerThread() { my_thread_init(); }
  ~ServerThread() { my_thread_end(); }
  ServerThread(const ServerThread&) = delete;
  ServerThread& operator=(const ServerThread&) = delete;
};

/*
  The server knows no pending operation that fails. A client must not get the answer that its commit
  has succeeded, so the connection counts as broken: the server sends nothing more on it.
*/
void release_answer(void* host, bool durable) {
  thread_local const ServerThread server_thread;
  THD* thd = static_cast<THD*>(host);
  if (!durable) {
    thd->net.error = 2;
    /* The count may be read without its mutex. */
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  thd_decrement_pending_ops(thd);
}

/*
  The SQL text of any session. The server's function takes the lock of the text only if that is
  free.
*/
size_t statement(void* host, char* text, size_t size) { return thd_query_safe(static_cast<THD*>(host), text, size); }

const firn_collator* collation(uint32_t id, firn_collation* out) {
  CHARSET_INFO* cs = get_charset(id, MYF(0));
  return cs && !describe_collation(cs, out) ? collator() : nullptr;
}

bool holds_metadata_lock(void* host, const char* table_name, bool writes) {
  char schema[kSchemaNameSize], name[kTableNameSize];
  decode_table_name(table_name, schema, name);
  auto* locks = static_cast<MDL_context*>(thd_mdl_context(static_cast<THD*>(host)));
  return locks->is_lock_owner(MDL_key::TABLE, schema, name, writes ? MDL_SHARED_WRITE : MDL_SHARED_READ);
}

/*
  Finds the table among those that prelocking has opened for the statement's foreign keys. Nobody
  reads rows into its record.
*/
bool compute_virtual(void* host, const char* table_name, uint8_t* record, size_t record_len) {
  THD* thd = static_cast<THD*>(host);
  char schema[kSchemaNameSize], name[kTableNameSize];
  decode_table_name(table_name, schema, name);
  TABLE* table = find_fk_open_table(thd, schema, strlen(schema), name, strlen(name));
  if (!table || !table->vfield || table->s->reclength != record_len) {
    my_error(ER_TABLE_DEF_CHANGED, MYF(0));
    return false;
  }
  memcpy(table->record[0], record, record_len);
  MY_BITMAP* const read_set = tmp_use_all_columns(table, &table->read_set);
  MY_BITMAP* const write_set = tmp_use_all_columns(table, &table->write_set);
  bool computed = true;
  for (Field** field = table->vfield; computed && *field; field++) {
    if ((*field)->vcol_info->is_stored()) continue;
    if ((*field)->flags & (PART_KEY_FLAG | LONG_UNIQUE_HASH_FIELD))
      computed = !table->update_virtual_field(*field, false);
  }
  tmp_restore_column_map(&table->write_set, write_set);
  tmp_restore_column_map(&table->read_set, read_set);
  memcpy(record, table->record[0], record_len);
  return computed;
}

firn_host make() {
  firn_host host = {};
  host.log = log;
  host.lock_wait_reports = lock_wait_reports;
  host.lock_wait = lock_wait;
  host.order_is_fixed = order_is_fixed;
  host.preferred_victim = preferred_victim;
  host.wait_begins = wait_begins;
  host.wait_ends = wait_ends;
  host.stall_begins = stall_begins;
  host.stall_ends = stall_ends;
  host.commit_wait_begins = commit_wait_begins;
  host.commit_wait_ends = commit_wait_ends;
  host.may_hold_answer = may_hold_answer;
  host.hold_answer = hold_answer;
  host.release_answer = release_answer;
  host.statement = statement;
  host.collation = collation;
  host.holds_metadata_lock = holds_metadata_lock;
  host.compute_virtual = compute_virtual;
  return host;
}

}  // namespace

bool galera_is_on(THD* thd) { return wsrep_service->wsrep_on_func(thd); }

const firn_host* host() {
  static const firn_host table = make();
  return &table;
}

bool report_progress(void* context, uint64_t done, uint64_t total) {
  THD* thd = static_cast<THD*>(context);
  thd_progress_report(thd, done, MY_MAX(total, 1ULL));
  return thd_kill_level(thd) > THD_ABORT_SOFTLY;
}

}  // namespace firn
