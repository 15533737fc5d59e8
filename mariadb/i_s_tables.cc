/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* information_schema.FIRN_TABLES and FIRN_LEVELS. */

#include "i_s.h"
#include "schema_table.h"

namespace firn {
namespace {

using Show::CEnd;
using Show::Column;
using Show::ULong;
using Show::ULonglong;
using Show::Varchar;

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
  rows->begin();
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
  rows->begin();
  rows->store(LevelsColumn::kLevel, level->level);
  rows->store(LevelsColumn::kRuns, level->runs);
  rows->store(LevelsColumn::kFiles, level->files);
  rows->store(LevelsColumn::kStoredBytes, level->stored_bytes);
  rows->store(LevelsColumn::kEntries, level->entries);
  rows->store(LevelsColumn::kDeletes, level->deletes);
  rows->store(LevelsColumn::kTargetBytes, level->target_bytes);
  rows->add();
}

int fill_tables(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_indexes(database, add_index, rows); });
}

int fill_levels(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_levels(database, add_level, rows); });
}

}  // namespace

int init_firn_tables(void* schema) { return init_schema_table(schema, tables_columns, fill_tables); }

int init_firn_levels(void* schema) { return init_schema_table(schema, levels_columns, fill_levels); }

}  // namespace firn
