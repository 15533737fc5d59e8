/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  The handlerton's callbacks for DDL: DROP DATABASE, and the recovery of DDL that a crash
  interrupted.
*/

#include "ddl_callbacks.h"
#include "backup_stage.h"
#include "definition_files.h"
#include "ha_firn.h"
#include "errors.h"
#include "foreign_keys.h"
#include "log.h"
#include "mysqld.h"

#include <new>
#include <string>
#include <vector>

namespace firn {

namespace {

using Names = std::vector<std::string>;

struct Collect {
  Names* names;
  bool failed;
};

void collect(void* context, const char* name) {
  Collect* to = static_cast<Collect*>(context);
  if (to->failed) return;
  try {
    to->names->emplace_back(name);
  } catch (const std::bad_alloc&) {
    to->failed = true;
  }
}

/* Drops each table whose name begins with `prefix`. */
void drop_tables(const char* prefix, const char* why) {
  Names names;
  Collect to = {&names, false};
  if (firn_list_table_names(database, prefix, collect, &to) != FIRN_OK || to.failed) {
    sql_print_error("FIRN: cannot list tables: %s", firn_last_error());
    return;
  }
  for (const std::string& name : names) {
    note_binlog_position();
    const firn_status status = firn_drop_table(database, nullptr, name.c_str(), false, false);
    if (status == FIRN_OK)
      sql_print_information("FIRN: dropped table '%s': %s", name.c_str(), why);
    else if (status != FIRN_NO_TABLE)
      sql_print_error("FIRN: cannot drop table '%s': %s", name.c_str(), firn_last_error());
  }
}

int drop_table(handlerton*, const char* path) { return firn::drop_table(path); }

/*
  The server has dropped the tables that it knows; the remaining ones have lost their .frm file.
  `path` is "./db/".
*/
void drop_database(handlerton*, char* path) {
  if (!database) return;
  char prefix[FN_REFLEN];
  size_t length = strlen(path);
  while (length && path[length - 1] == '/') length--;
  size_t start = length;
  while (start && path[start - 1] != '/') start--;
  if (start == length || length - start + 2 > sizeof(prefix)) return;
  memcpy(prefix, path + start, length - start);
  prefix[length - start] = '/';
  prefix[length - start + 1] = 0;
  drop_tables(prefix, "its database was dropped");
}

/*
  After a crash the DDL log asks whether the ALTER that made `version` was committed: 0 if it was.
*/
int check_version(handlerton*, const char* path, const LEX_CUSTRING* version, ulonglong) {
  uchar stored[64];
  size_t length = 0;
  if (!database) return 1;
  firn_status status = firn_table_version(database, TableName(path).c_str(), stored, sizeof(stored), &length);
  if (status == FIRN_NO_TABLE) {
    /* The partitions of a table are committed together, so one partition answers for all. */
    Names names;
    Collect to = {&names, false};
    char prefix[FN_REFLEN];
    strxnmov(prefix, sizeof(prefix) - 1, TableName(path).c_str(), "#P#", NullS);
    if (firn_list_table_names(database, prefix, collect, &to) == FIRN_OK && !names.empty())
      status = firn_table_version(database, names[0].c_str(), stored, sizeof(stored), &length);
  }
  if (status != FIRN_OK) return 1;
  return length != version->length || length > sizeof(stored) || memcmp(stored, version->str, length) != 0;
}

/*
  The server has repeated or undone all DDL of which its log tells, so tables that have a copy's
  name now belong to no statement. The core decides which of them are garbage.
*/
int signal_ddl_recovery_done(handlerton*) {
  if (!database) return 0;
  note_binlog_position();
  if (firn_end_ddl_recovery(database, &definition_files) != FIRN_OK)
    sql_print_error("FIRN: cannot end interrupted DDL: %s", firn_last_error());
  Names names;
  Collect to = {&names, false};
  if (mysqld_server_started || firn_list_table_names(database, "", collect, &to) != FIRN_OK) return 0;
  std::string last;
  for (const std::string& name : names) {
    const std::string schema = name.substr(0, name.find('/'));
    if (schema != last) remove_stray_partitions(schema.c_str());
    last = schema;
  }
  return 0;
}

}  // namespace

void set_ddl_callbacks(handlerton* hton) {
  hton->drop_table = drop_table;
  hton->drop_database = drop_database;
  hton->check_version = check_version;
  hton->signal_ddl_recovery_done = signal_ddl_recovery_done;
}

}  // namespace firn
