/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* What the server loads: the storage engine FIRN and its information_schema tables. */

#include "backup.h"
#include "catalog.h"
#include "ha_firn.h"
#include "host.h"
#include "i_s.h"
#include "layout.h"
#include "server_run.h"
#include "status_vars.h"
#include "sysvars.h"
#include "transaction.h"
#include "log.h"

#include <dlfcn.h>

namespace firn {

handlerton* hton;
firn_db* database;

namespace {

handler* create_handler(handlerton* hton, TABLE_SHARE* share, MEM_ROOT* mem_root) {
  return new (mem_root) ha_firn(hton, share);
}

int init(void* plugin) {
  hton = static_cast<handlerton*>(plugin);
  hton->create = create_handler;
  hton->flags = HTON_SUPPORTS_EXTENDED_KEYS | HTON_TEMPORARY_NOT_SUPPORTED | HTON_REQUIRES_CLOSE_AFTER_TRUNCATE |
                HTON_TRUNCATE_REQUIRES_EXCLUSIVE_USE;
  hton->show_status = show_status;
  set_transaction_callbacks(hton);
  set_catalog_callbacks(hton);
  set_backup_callbacks(hton);

  firn_config config = sysvars::config();
  server_run::describe_start(&config);
  server_run::file_changed();
  const firn_status status = firn_open(&config, host(), &database);
  if (status == FIRN_OK) return 0;
  database = nullptr;
  sql_print_error("FIRN: cannot open '%s': %s", config.dir, firn_last_error());
  return 1;
}

/* Keeps this library where it is until the process ends: a thread that hangs in a system call returns to it. */
void stay_loaded() {
  Dl_info found;
  if (!dladdr(reinterpret_cast<void*>(&stay_loaded), &found)) return;
  dlopen(found.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

/* After every connection is closed, at shutdown or UNINSTALL. */
int deinit(void*) {
  bool thread_left = false;
  if (database && firn_close(database, &thread_left) != FIRN_OK)
    sql_print_error("FIRN: close failed: %s", firn_last_error());
  if (thread_left) stay_loaded();
  database = nullptr;
  return 0;
}

constexpr unsigned kVersion = 0x0001;

}  // namespace
}  // namespace firn

maria_declare_plugin(firn){MYSQL_STORAGE_ENGINE_PLUGIN,
                           &firn_storage_engine,
                           "FIRN",
                           "the Firn authors",
                           "Transactional storage engine: compressed, few bytes written, row locks, crash-safe",
                           PLUGIN_LICENSE_GPL,
                           firn::init,
                           firn::deinit,
                           firn::kVersion,
                           firn::status_variables,
                           firn::sysvars::all,
                           "0.1",
                           MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_TABLES",
     "the Firn authors",
     "Rows, raw and stored bytes of every index of FIRN tables",
     PLUGIN_LICENSE_GPL,
     firn::init_tables_view,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_LEVELS",
     "the Firn authors",
     "Runs, files and bytes of every level of the FIRN engine",
     PLUGIN_LICENSE_GPL,
     firn::init_levels_view,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA} maria_declare_plugin_end;
