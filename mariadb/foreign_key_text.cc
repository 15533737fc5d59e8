/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* The text of a foreign key as SHOW CREATE TABLE and errors show it. */

#include "foreign_key_text.h"
#include "sql_show.h"

namespace firn {
namespace {

size_t database_length(const char* name) {
  const char* slash = strchr(name, '/');
  return slash ? size_t(slash - name) : 0;
}

bool is_same_database(const char* one, const char* other) {
  const size_t length = database_length(one);
  return length == database_length(other) && memcmp(one, other, length) == 0;
}

void append_action(String* text, const char* event, uint8_t action) {
  const char* name = nullptr;
  if (action == FIRN_ACTION_CASCADE) name = "CASCADE";
  if (action == FIRN_ACTION_SET_NULL) name = "SET NULL";
  if (action == FIRN_ACTION_NONE) name = "NO ACTION";
  if (!name) return;
  text->append(STRING_WITH_LEN(" ON "));
  text->append(event, strlen(event));
  text->append(' ');
  text->append(name, strlen(name));
}

void append_columns(THD* thd, String* text, const char* const* columns, uint32_t count) {
  text->append(STRING_WITH_LEN(" ("));
  for (uint32_t i = 0; i < count; i++) {
    if (i) text->append(STRING_WITH_LEN(", "));
    append_identifier(thd, text, columns[i], strlen(columns[i]));
  }
  text->append(')');
}

}  // namespace

std::string database_of(const char* name) { return std::string(name, database_length(name)); }

void append_table_name(THD* thd, String* text, const char* table, bool with_database) {
  char schema[kSchemaNameSize], name[kTableNameSize];
  decode_table_name(table, schema, name);
  if (with_database) {
    append_identifier(thd, text, schema, strlen(schema));
    text->append('.');
  }
  append_identifier(thd, text, name, strlen(name));
}

void append_foreign_key_definition(THD* thd, String* text, const firn_foreign_key_info* key) {
  text->append(STRING_WITH_LEN(" CONSTRAINT "));
  append_identifier(thd, text, key->name, strlen(key->name));
  text->append(STRING_WITH_LEN(" FOREIGN KEY"));
  append_columns(thd, text, key->columns, key->column_count);
  text->append(STRING_WITH_LEN(" REFERENCES "));
  append_table_name(thd, text, key->parent, !is_same_database(key->parent, key->table));
  append_columns(thd, text, key->parent_columns, key->column_count);
  append_action(text, "DELETE", key->on_delete);
  append_action(text, "UPDATE", key->on_update);
}

}  // namespace firn
