/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include <my_global.h>
#include "sql_class.h"
#include "table.h"

#include "firn.h"

#include <vector>

namespace firn {

/*
  A table's definition as the core takes it: where the record buffer holds each column, and how key
  parts compare. Names point into the TABLE, which must outlive the object. The constructor throws
  std::bad_alloc.
*/
class TableDefinition {
 public:
  explicit TableDefinition(const TABLE* table);
  TableDefinition(const TableDefinition&) = delete;
  TableDefinition& operator=(const TableDefinition&) = delete;

  /* Says which part of the table the core cannot store; NULL if it can store all of it. */
  const char* unsupported() const { return m_unsupported[0] ? m_unsupported : nullptr; }
  const firn_table_def* get() const { return &m_def; }

 private:
  bool add_column(const TABLE* table, const Field* field);
  bool add_index(const TABLE* table, const KEY* key);
  bool add_part(const TABLE* table, const KEY* key, const KEY_PART_INFO* key_part);
  bool refuse(const char* what, const char* name, const char* why);

  firn_table_def m_def = {};
  std::vector<firn_column> m_columns;
  std::vector<firn_index> m_indexes;
  /*
    Both are reserved and never reallocated: indexes point into m_parts, parts into m_collations.
  */
  std::vector<firn_key_part> m_parts;
  std::vector<firn_collation> m_collations;
  char m_unsupported[MYSQL_ERRMSG_SIZE] = "";
};

}  // namespace firn
