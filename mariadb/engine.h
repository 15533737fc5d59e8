/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
  The common header of the handler: the server's headers in the order that they need, the core's C
  ABI, and the one open database. The handler translates between server and core. The core decides
  what a lock, a snapshot or an index is.
*/

#include <my_global.h>
#include "sql_class.h"
#include "handler.h"

#include "firn.h"

namespace firn {

/* Set by init() in plugin.cc. They do not change while a handler or a session exists. */
extern handlerton* hton;
extern firn_db* database;

/*
  A table's name in the core's catalog: "db/table", both parts encoded as in file names. The server
  names tables by path ("./db/table", "/data/db/table", "./db/t#P#p0"); the name is the last two
  components. The object points into the path, which must outlive it.
*/
class TableName {
 public:
  explicit TableName(const char* path);
  const char* c_str() const { return name_; }

 private:
  const char* name_;
};

/*
  Maximal length of a table name with the names of a partition and a subpartition behind it
  ("t#P#p0#SP#s0"), in characters.
*/
constexpr size_t kTableNameChars = 3 * NAME_CHAR_LEN + 16;
constexpr size_t kTableNameSize = kTableNameChars * SYSTEM_CHARSET_MBMAXLEN + 1;
constexpr size_t kSchemaNameSize = NAME_LEN + 1;

/*
  Splits a catalog name into schema and table and decodes both for display. `schema` has room for
  kSchemaNameSize bytes, `table` for kTableNameSize.
*/
void decode_table_name(const char* name, char* schema, char* table);

/* Whether Galera replicates what this session writes (wsrep_on). */
bool galera_is_on(THD* thd);

/*
  Whether the catalog name is one that the server gives to copies of tables in the middle of DDL
  ("#sql…").
*/
bool is_ddl_leftover(const char* name);

}  // namespace firn
