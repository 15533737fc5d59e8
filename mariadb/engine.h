/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
  What every file of the handler sees: the server's headers in the order they need, the core's C ABI, and the one open
  database. The handler translates between the two and decides nothing: what a lock, a snapshot or an index is, the core
  knows.
*/

#include <my_global.h>
#include "sql_class.h"
#include "handler.h"

#include "firn.h"

namespace firn {

/* Set by the plugin's init, never changed while a handler or a session exists. */
extern handlerton* hton;
extern firn_db* database;

/*
  A table's name in the core's catalog: "db/table", both as the server encodes them in file names. The server names
  tables by path ("./db/table", "/data/db/table", "./db/t#P#p0"); the last two components are the name.
*/
class TableName {
 public:
  explicit TableName(const char* path);
  const char* c_str() const { return name_; }

 private:
  const char* name_;
};

/* A table's name with those of a partition and a subpartition behind it ("t#P#p0#SP#s0"), in characters. */
constexpr size_t kTableNameChars = 3 * NAME_CHAR_LEN + 16;
constexpr size_t kTableNameSize = kTableNameChars * SYSTEM_CHARSET_MBMAXLEN + 1;
constexpr size_t kSchemaNameSize = NAME_LEN + 1;

/* Splits a catalog name into schema and table, decoded for people. Buffers have the sizes above. */
void decode_table_name(const char* name, char* schema, char* table);

/* Whether Galera would have to replicate what this session writes. */
bool galera_is_on(THD* thd);

/* Whether the catalog name is one the server gave to a copy of a table in the middle of DDL. */
bool is_ddl_leftover(const char* name);

}  // namespace firn
