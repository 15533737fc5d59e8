/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "host_callbacks.h"
#include "log.h"

#include <mysql/service_thd_wait.h>
#include <mysql/service_wsrep.h>

/* The server exports these to engines; no header declares them. */
extern "C" {
void thd_rpl_deadlock_check(MYSQL_THD thd, MYSQL_THD other);
int thd_need_wait_reports(const MYSQL_THD thd);
}

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
  Parallel replication: a transaction that must commit later must not block one that commits
  earlier. The server may decide to kill the blocker, which reaches the engine as kill_query().
*/
void lock_wait(void* waiter, void* blocker) {
  THD* thd = static_cast<THD*>(waiter);
  if (blocker && thd_need_wait_reports(thd)) thd_rpl_deadlock_check(thd, static_cast<THD*>(blocker));
}

/* Lets the thread pool start another thread while this one waits. */
void thread_wait(void* host, int begin) {
  THD* thd = static_cast<THD*>(host);
  if (begin)
    thd_wait_begin(thd, THD_WAIT_ROW_LOCK);
  else
    thd_wait_end(thd);
}

firn_host make() {
  firn_host host = {};
  host.log = log;
  host.lock_wait = lock_wait;
  host.thread_wait = thread_wait;
  return host;
}

}  // namespace

bool galera_is_on(THD* thd) { return wsrep_service->wsrep_on_func(thd); }

const firn_host* host() {
  static const firn_host table = make();
  return &table;
}

}  // namespace firn
