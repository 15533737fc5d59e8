/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* The plugins of this library: the storage engine FIRN and its information_schema tables. */

#include "backup_stage.h"
#include "ddl_callbacks.h"
#include "engine_status.h"
#include "ha_firn.h"
#include "host_callbacks.h"
#include "i_s.h"
#include "abi_check.h"
#include "binlog_file.h"
#include "status_vars.h"
#include "sysvars.h"
#include "table_options.h"
#include "transaction_callbacks.h"
#include "log.h"
#include "mysqld.h"
#include "sql_show.h"

/*
  Exported by the server for engines that keep a directory beside the databases; no header declares
  it.
*/
void ignore_db_dirs_append(const char* name);

namespace firn {

handlerton* hton;
firn_db* database;

namespace {

handler* create_handler(handlerton* hton, TABLE_SHARE* share, MEM_ROOT* mem_root) {
  return new (mem_root) ha_firn(hton, share);
}

/* Whether `name` is in the server's list ignore_db_dirs ("a,b,c"). */
bool is_ignored_as_database(const char* name) {
  const size_t length = strlen(name);
  const char* at = opt_ignore_db_dirs;
  while (at && *at) {
    const char* end = strchrnul(at, ',');
    if (size_t(end - at) == length && strncmp(at, name, length) == 0) return true;
    at = *end ? end + 1 : end;
  }
  return false;
}

/*
  Adds `name` to the list. This is possible only while the server starts: later the list's text is
  not the allocator's memory any more, and the variable is in a write-protected page (10.11.19), so
  the server's own function for it would crash the server. If the plugin is installed into a running
  server, the client gets a note, and the next start adds the name.
*/
void ignore_as_database(const char* name) {
  if (is_ignored_as_database(name)) return;
  if (!mysqld_server_started) return ignore_db_dirs_append(name);
  if (THD* thd = current_thd)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_NOTE, ER_GET_ERRMSG,
                        "FIRN: the engine's directory %s is shown as a database until the next start of the server",
                        name);
}

/*
  The server takes each directory in its data directory for a database; the engine's own may be
  there.
*/
void hide_from_databases(const char* directory) {
  const char* home = mysql_real_data_home;
  const size_t home_length = strlen(home);
  if (strncmp(directory, home, home_length) == 0) directory += home_length;
  while (strncmp(directory, "./", 2) == 0) directory += 2;
  char name[FN_REFLEN];
  char* end = strmake(name, directory, sizeof(name) - 1);
  while (end > name && end[-1] == FN_LIBCHAR) *--end = 0;
  if (*name && !strchr(name, FN_LIBCHAR)) ignore_as_database(name);
}

int init(void* plugin) {
  hton = static_cast<handlerton*>(plugin);
  hton->create = create_handler;
  hton->flags = HTON_SUPPORTS_EXTENDED_KEYS | HTON_SUPPORTS_FOREIGN_KEYS | HTON_REQUIRES_CLOSE_AFTER_TRUNCATE |
                HTON_TRUNCATE_REQUIRES_EXCLUSIVE_USE;
  hton->show_status = show_status;
  hton->table_options = table_options;
  set_transaction_callbacks(hton);
  set_ddl_callbacks(hton);
  set_backup_callbacks(hton);

  firn_config config = sysvars::config();
  binlog_file::describe_start(&config);
  binlog_file::file_changed();
  hide_from_databases(config.dir);
  const firn_status status = firn_open(&config, host(), &database);
  if (status == FIRN_OK) {
    /* It ends with signal_ddl_recovery_done(), which the server calls for each engine. */
    (void)firn_begin_ddl_recovery(database);
    sysvars::set_core_options();
    return 0;
  }
  database = nullptr;
  sql_print_error("FIRN: cannot open '%s': %s", config.dir, firn_last_error());
  return 1;
}

/* Called after all connections are closed, at shutdown or UNINSTALL. */
int deinit(void*) {
  if (database && firn_close(database) != FIRN_OK) sql_print_error("FIRN: close failed: %s", firn_last_error());
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
     firn::init_firn_tables,
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
     firn::init_firn_levels,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_TRX",
     "the Firn authors",
     "Open transactions of the FIRN engine",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_trx,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_LOCKS",
     "the Firn authors",
     "Locks that transactions of the FIRN engine hold",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_locks,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_LOCK_WAITS",
     "the Firn authors",
     "Transactions of the FIRN engine that wait for a lock, and those that block them",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_lock_waits,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_DEADLOCKS",
     "the Firn authors",
     "The last ten deadlocks of the FIRN engine",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_deadlocks,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_INDEXES",
     "the Firn authors",
     "Entries, deletions and bytes of every index of FIRN tables",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_indexes,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_FILES",
     "the Firn authors",
     "Table files of the FIRN engine",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_files,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_COMPACTIONS",
     "the Firn authors",
     "The last flushes and compactions of the FIRN engine",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_compactions,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_STALLS",
     "the Firn authors",
     "Delays of writers of the FIRN engine, by reason",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_stalls,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_MEMORY",
     "the Firn authors",
     "Memory of the FIRN engine",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_memory,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},

    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_IO",
     "the Firn authors",
     "Reads of files of the FIRN engine, by purpose",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_io,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_POOL",
     "the Firn authors",
     "Nodes of the memory pool of the FIRN engine",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_pool,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA},
    {MYSQL_INFORMATION_SCHEMA_PLUGIN,
     &firn_information_schema,
     "FIRN_OBJECT_STORE",
     "the Firn authors",
     "The object store of cold files of the FIRN engine",
     PLUGIN_LICENSE_GPL,
     firn::init_firn_object_store,
     nullptr,
     firn::kVersion,
     nullptr,
     nullptr,
     "0.1",
     MariaDB_PLUGIN_MATURITY_GAMMA} maria_declare_plugin_end;
