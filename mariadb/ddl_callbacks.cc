/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  The handlerton's callbacks for DDL: DROP DATABASE, and the recovery of DDL that a crash
  interrupted.
*/

#include "ddl_callbacks.h"
#include "backup_stage.h"
#include "ha_firn.h"
#include "errors.h"
#include "foreign_keys.h"
#include "log.h"

#include <new>
#include <string>
#include <vector>

namespace firn {

/*
  A .frm image has a list of (type, length, value) at byte 64, and the list's size at byte 4. The
  version is the entry of type 0. If a length byte is 0, the length follows in two bytes.
*/
LEX_CUSTRING version_of(const LEX_CUSTRING* frm) {
  constexpr size_t kHead = 64;
  const LEX_CUSTRING none = {nullptr, 0};
  if (!frm || frm->length < kHead || frm->length - kHead < uint2korr(frm->str + 4)) return none;
  const uchar* at = frm->str + kHead;
  const uchar* const end = at + uint2korr(frm->str + 4);
  while (end - at >= 3) {
    const uchar type = *at++;
    size_t length = *at++;
    if (length == 0) {
      if (end - at < 2) return none;
      length = uint2korr(at);
      at += 2;
    }
    if (size_t(end - at) < length) return none;
    if (type == EXTRA2_TABLEDEF_VERSION) return {at, length};
    at += length;
  }
  return none;
}

namespace {

using Names = std::vector<std::string>;

struct Collect {
  Names* names;
  bool (*wanted)(const char*);
  bool failed;
};

void collect(void* context, const char* name) {
  Collect* to = static_cast<Collect*>(context);
  if (to->failed || !to->wanted(name)) return;
  try {
    to->names->emplace_back(name);
  } catch (const std::bad_alloc&) {
    to->failed = true;
  }
}

bool any(const char*) { return true; }

/* Drops each table whose name begins with `prefix` and for which `wanted` is true. */
void drop_tables(const char* prefix, bool (*wanted)(const char*), const char* why) {
  Names names;
  Collect to = {&names, wanted, false};
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
  drop_tables(prefix, any, "its database was dropped");
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
    Collect to = {&names, any, false};
    char prefix[FN_REFLEN];
    strxnmov(prefix, sizeof(prefix) - 1, TableName(path).c_str(), "#P#", NullS);
    if (firn_list_table_names(database, prefix, collect, &to) == FIRN_OK && !names.empty())
      status = firn_table_version(database, names[0].c_str(), stored, sizeof(stored), &length);
  }
  if (status != FIRN_OK) return 1;
  return length != version->length || length > sizeof(stored) || memcmp(stored, version->str, length) != 0;
}

/*
  The server has repeated or undone all DDL that a crash interrupted, so copies that still exist
  belong to no statement.
*/
int signal_ddl_recovery_done(handlerton*) {
  if (database) drop_tables("", is_ddl_leftover, "left over from interrupted DDL");
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
