/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Names of tables: from a path of the server to a name of the core's catalog, and to names for
  people.
*/

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

namespace {

/*
  Decodes one file name to at most `size` bytes. Each '#' is the server's own sign, because names
  have it encoded: "t#P#p0" is a partition, "#sql-alter-1-2" a copy. The names between the signs are
  decoded one by one, because the server's function accepts no '#' and complains in the error log.
*/
void decode(const char* name, size_t length, char* to, size_t size) {
  char* const end = to + size - 1;
  const char* const name_end = name + length;
  while (name < name_end && to < end) {
    if (*name == '#') {
      *to++ = *name++;
      continue;
    }
    char encoded[FN_REFLEN];
    size_t bytes = 0;
    while (name < name_end && *name != '#' && bytes + 1 < sizeof(encoded)) encoded[bytes++] = *name++;
    encoded[bytes] = 0;
    constexpr bool kQuiet = true;
    to += filename_to_tablename(encoded, to, size_t(end - to) + 1, kQuiet);
  }
  *to = 0;
}

}  // namespace

void decode_table_name(const char* name, char* schema, char* table) {
  const char* slash = strchr(name, '/');
  decode(name, slash ? size_t(slash - name) : 0, schema, kSchemaNameSize);
  const char* rest = slash ? slash + 1 : name;
  /* The server does not encode the names that it gives to copies. */
  if (is_ddl_leftover(name))
    strmake(table, rest, kTableNameSize - 1);
  else
    decode(rest, strlen(rest), table, kTableNameSize);
}

bool is_ddl_leftover(const char* name) {
  const char* slash = strchr(name, '/');
  return slash && strncmp(slash + 1, tmp_file_prefix, tmp_file_prefix_length) == 0;
}

}  // namespace firn
