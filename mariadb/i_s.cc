/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "i_s.h"
#include "engine.h"
#include "errors.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"
#include "table.h"

namespace firn {
namespace {

using Show::CEnd;
using Show::Column;
using Show::ULong;
using Show::ULonglong;
using Show::Varchar;

struct SchemaTable {
  THD* thd;
  TABLE* table;
  bool failed;

  void store(uint column, const char* text) { table->field[column]->store(text, strlen(text), system_charset_info); }
  void store(uint column, uint64_t number) { table->field[column]->store(longlong(number), true); }
  void add() { failed = failed || schema_table_store_record(thd, table); }
};

/* Columns of FIRN_TABLES, in the order of tables_columns. */
struct TablesColumn {
  enum : uint { kSchema, kTable, kIndex, kRows, kRawBytes, kStoredBytes, kBlobBytes, kCount };
};

ST_FIELD_INFO tables_columns[] = {Column("TABLE_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                  Column("TABLE_NAME", Varchar(kTableNameChars), NOT_NULL),
                                  Column("INDEX_NAME", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                  Column("ROWS", ULonglong(), NOT_NULL),
                                  Column("RAW_BYTES", ULonglong(), NOT_NULL),
                                  Column("STORED_BYTES", ULonglong(), NOT_NULL),
                                  Column("BLOB_BYTES", ULonglong(), NOT_NULL),
                                  CEnd()};
static_assert(array_elements(tables_columns) == TablesColumn::kCount + 1);

void add_index(void* context, const firn_index_info* index) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  char schema[kSchemaNameSize], table[kTableNameSize];
  decode_table_name(index->table_name, schema, table);
  restore_record(rows->table, s->default_values);
  rows->store(TablesColumn::kSchema, schema);
  rows->store(TablesColumn::kTable, table);
  rows->store(TablesColumn::kIndex, index->index_name);
  rows->store(TablesColumn::kRows, index->rows);
  rows->store(TablesColumn::kRawBytes, index->raw_bytes);
  rows->store(TablesColumn::kStoredBytes, index->stored_bytes);
  rows->store(TablesColumn::kBlobBytes, index->blob_bytes);
  rows->add();
}

/* Columns of FIRN_LEVELS, in the order of levels_columns. */
struct LevelsColumn {
  enum : uint { kLevel, kRuns, kFiles, kStoredBytes, kEntries, kDeletes, kTargetBytes, kCount };
};

ST_FIELD_INFO levels_columns[] = {Column("LEVEL", ULong(), NOT_NULL),
                                  Column("RUNS", ULonglong(), NOT_NULL),
                                  Column("FILES", ULonglong(), NOT_NULL),
                                  Column("STORED_BYTES", ULonglong(), NOT_NULL),
                                  Column("ENTRIES", ULonglong(), NOT_NULL),
                                  Column("DELETES", ULonglong(), NOT_NULL),
                                  Column("TARGET_BYTES", ULonglong(), NOT_NULL),
                                  CEnd()};
static_assert(array_elements(levels_columns) == LevelsColumn::kCount + 1);

void add_level(void* context, const firn_level_info* level) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  restore_record(rows->table, s->default_values);
  rows->store(LevelsColumn::kLevel, level->level);
  rows->store(LevelsColumn::kRuns, level->runs);
  rows->store(LevelsColumn::kFiles, level->files);
  rows->store(LevelsColumn::kStoredBytes, level->stored_bytes);
  rows->store(LevelsColumn::kEntries, level->entries);
  rows->store(LevelsColumn::kDeletes, level->deletes);
  rows->store(LevelsColumn::kTargetBytes, level->target_bytes);
  rows->add();
}

template <typename Each>
int fill(THD* thd, TABLE_LIST* tables, firn_status (*list)(const firn_db*, Each, void*), Each each) {
  /*
    As for InnoDB's views, which also name the tables of all users. check_global_access() sets the
    error.
  */
  if (check_global_access(thd, PROCESS_ACL)) return 0;
  if (!database) return 0;
  SchemaTable rows = {thd, tables->table, false};
  const firn_status status = list(database, each, &rows);
  if (status != FIRN_OK) {
    my_printf_error(ER_GET_ERRMSG, "FIRN: %s", MYF(0), firn_last_error());
    return 1;
  }
  return rows.failed;
}

int fill_tables(THD* thd, TABLE_LIST* tables, COND*) { return fill(thd, tables, firn_list_indexes, add_index); }

int fill_levels(THD* thd, TABLE_LIST* tables, COND*) { return fill(thd, tables, firn_list_levels, add_level); }

}  // namespace

int init_firn_tables(void* schema) {
  ST_SCHEMA_TABLE* view = static_cast<ST_SCHEMA_TABLE*>(schema);
  view->fields_info = tables_columns;
  view->fill_table = fill_tables;
  return 0;
}

int init_firn_levels(void* schema) {
  ST_SCHEMA_TABLE* view = static_cast<ST_SCHEMA_TABLE*>(schema);
  view->fields_info = levels_columns;
  view->fill_table = fill_levels;
  return 0;
}

}  // namespace firn
