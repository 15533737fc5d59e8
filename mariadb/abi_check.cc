/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Compares the memory layout of the running server with the one that the plugin was compiled for.
  If they differ, the plugin refuses to be loaded.
*/

#include "abi_check.h"

#include "abi_check_internal.h"

#include <mysql_version.h>
#include "log.h"

struct st_mysql_storage_engine firn_storage_engine = {0};
struct st_mysql_information_schema firn_information_schema = {0};

/*
  The plugin of the binary log, an engine that is built into every server. The number behind its
  info is the one that the loader compares with. No option changes it, whereas --version changes
  server_version.
*/
extern struct st_maria_plugin builtin_maria_binlog_plugin[] __attribute__((weak));

namespace {

/* MYSQL_VERSION_ID of the running server (101119 for 10.11.19); 0 if it is unknown. */
int running_version() {
  const st_maria_plugin* engine = builtin_maria_binlog_plugin;
  if (!engine || engine->type != MYSQL_STORAGE_ENGINE_PLUGIN || !engine->info) return 0;
  return *static_cast<const int*>(engine->info) >> 8;
}

const char* first_difference() {
  if (const char* what = firn::abi_check::foreign_virtual_function()) return what;
  if (const char* what = firn::abi_check::foreign_session_member()) return what;
  return firn::abi_check::foreign_table_member();
}

void refuse(int running, const char* why, const char* what) {
  sql_print_error(
      "FIRN: this plugin was built for MariaDB %d.%d.%d and does not fit the running server %d.%d.%d: %s%s. It refuses "
      "to "
      "load; the data of FIRN tables stays as it is. Install a mariadb-plugin-firn that was built for this server, or "
      "build it here (make && make install), and restart the server.",
      MYSQL_VERSION_ID / 10000, MYSQL_VERSION_ID / 100 % 100, MYSQL_VERSION_ID % 100, running / 10000,
      running / 100 % 100, running % 100, why, what);
}

__attribute__((constructor)) void check_abi() {
  const int running = running_version();
  if (running / 100 != MYSQL_VERSION_ID / 100) return refuse(running, "its series is another one", "");
  if (const char* what = first_difference()) return refuse(running, "its memory layout differs at ", what);
  firn_storage_engine.interface_version = running << 8;
  firn_information_schema.interface_version = running << 8;
}

}  // namespace
