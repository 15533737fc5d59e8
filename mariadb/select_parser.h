/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
  What a SELECT of one table needs of its columns, by its text: whole values, or only lengths and beginnings. For

    SELECT id, LENGTH(b), LEFT(b, 100) FROM t WHERE n = 5

  that is all of id and n, and the length and 100 characters of b.

  Certain, or nothing: the text is understood token by token, and one word, sign or function that is not known ends it.
  So no GROUP BY, HAVING, DISTINCT, UNION, join, derived table, subquery, view, variable or stored function passes, and
  what is known of a column needs no knowledge of what the server's optimizer does: there is no place in such a
  statement where the server would touch a value but the ones seen here.

  Rejected: the statement's items. LEX, SELECT_LEX, JOIN and the classes of Item change between patch levels (see
  abi_check.h), no exported accessor proves their members, and a column's item may be shared between a function and a
  GROUP BY that wants the value.
*/

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace firn {

/* What a statement needs of a column: nothing until it is seen. */
struct ColumnNeed {
  std::string_view name;
  bool whole = false;
  /* The length, or whether it is NULL. */
  bool length = false;
  /* Characters from its beginning. */
  uint64_t chars = 0;

  bool in_part() const { return !whole && (length || chars); }
};

struct SelectedTable {
  std::string_view current_schema;
  std::string_view schema;
  std::string_view name;
  std::vector<ColumnNeed> columns;
};

/*
  Reads `text`, which the server has accepted, in a sql_mode other than ORACLE. `multibyte_is_safe`: no character of its
  character set has a byte below 0x80 but those of ASCII. False if anything is uncertain; the needs say nothing then.
*/
bool parse_select(std::string_view text, bool multibyte_is_safe, SelectedTable* table);

}  // namespace firn
