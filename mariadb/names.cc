/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "engine.h"
#include "sql_table.h"

namespace firn {

TableName::TableName(const char* path) : name_(path) {
  unsigned slashes = 0;
  for (const char* at = path + strlen(path); at-- > path;) {
    if (*at == '/' && ++slashes == 2) {
      name_ = at + 1;
      return;
    }
  }
}

void decode_table_name(const char* name, char* schema, char* table) {
  const char* slash = strchr(name, '/');
  const size_t length = slash ? size_t(slash - name) : 0;
  char encoded[FN_REFLEN];
  strmake(encoded, name, MY_MIN(length, sizeof(encoded) - 1));
  filename_to_tablename(encoded, schema, NAME_LEN + 1);
  filename_to_tablename(slash ? slash + 1 : name, table, NAME_LEN + 1);
}

bool is_ddl_leftover(const char* name) {
  const char* slash = strchr(name, '/');
  return slash && strncmp(slash + 1, tmp_file_prefix, tmp_file_prefix_length) == 0;
}

}  // namespace firn
