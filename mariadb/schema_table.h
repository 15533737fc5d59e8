/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"
#include "errors.h"
#include "sql_acl.h"
#include "sql_i_s.h"
#include "sql_show.h"
#include "table.h"
#include "tztime.h"

namespace firn {

/* A table of information_schema while it is filled with rows. */
struct SchemaTable {
  THD* thd;
  TABLE* table;
  bool failed;

  /* Begins a row whose columns have their defaults: those that may be NULL are NULL. */
  void begin() { restore_record(table, s->default_values); }
  void store(uint column, const char* text) {
    Field* field = table->field[column];
    field->set_notnull();
    field->store(text, strlen(text), system_charset_info);
  }
  void store(uint column, uint64_t number) { table->field[column]->store(longlong(number), true); }
  /* A number in a column that may be NULL. */
  void store_nullable(uint column, uint64_t number) {
    table->field[column]->set_notnull();
    store(column, number);
  }
  /* A moment in microseconds since 1970, in the session's time zone; 0 stays NULL. */
  void store_time(uint column, uint64_t at_us) {
    if (!at_us) return;
    MYSQL_TIME time;
    thd->variables.time_zone->gmt_sec_to_TIME(&time, my_time_t(at_us / 1000000));
    table->field[column]->set_notnull();
    table->field[column]->store_time(&time);
  }
  void add() { failed = failed || schema_table_store_record(thd, table); }
};

/*
  Fills a table with the rows that `list`, a function of the core, passes to its callback. Needs the
  PROCESS privilege, as InnoDB's tables do, because it names the tables of all users.
*/
template <typename List>
int fill_schema_table(THD* thd, TABLE_LIST* tables, List list) {
  /* check_global_access() sets the error. */
  if (check_global_access(thd, PROCESS_ACL)) return 0;
  if (!database) return 0;
  SchemaTable rows = {thd, tables->table, false};
  const firn_status status = list(&rows);
  if (status != FIRN_OK) {
    my_printf_error(ER_GET_ERRMSG, "FIRN: %s", MYF(0), firn_last_error());
    return 1;
  }
  return rows.failed;
}

inline int init_schema_table(void* schema, ST_FIELD_INFO* columns, int (*fill)(THD*, TABLE_LIST*, COND*)) {
  ST_SCHEMA_TABLE* table = static_cast<ST_SCHEMA_TABLE*>(schema);
  table->fields_info = columns;
  table->fill_table = fill;
  return 0;
}

}  // namespace firn
