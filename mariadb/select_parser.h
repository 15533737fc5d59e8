/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/*
  Reads from the text of a SELECT on one table what the statement needs of each column: the whole
  value, or only its length or beginning. For

    SELECT id, LENGTH(b), LEFT(b, 100) FROM t WHERE n = 5

  it needs all of id and n, and of b the length and the first 100 characters.

  The answer is certain, or there is none. The parser goes token by token and gives up at the first
  word, sign or function that it does not know. So it refuses GROUP BY, HAVING, DISTINCT, UNION,
  joins, derived tables, subqueries, views, variables and stored functions. In a statement that
  passes, the server uses a value only where the text names its column, whatever plan the optimizer
  chooses.

  Rejected: reading the statement's items. LEX, SELECT_LEX, JOIN and the classes of Item change
  between patch levels (see abi_check.h), and no exported accessor proves their members. Besides, a
  column's item may be shared by a function and a GROUP BY that needs the value.
*/

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace firn {

/* The parts of a column that a statement needs; none until the parser finds a use. */
struct ColumnNeed {
  std::string_view name;
  bool whole = false;
  /* The length, or only whether the value is NULL. */
  bool length = false;
  /* This many characters from the beginning. */
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
  Whether `text` may use a column in part. If it has neither a parenthesis nor the letters "is", it
  calls no function and has no IS NULL, and parse_select() would find nothing.
*/
bool may_use_parts(std::string_view text);

/*
  Parses `text`, a statement that the server has accepted in a sql_mode other than ORACLE.
  `multibyte_is_safe`: in the text's character set, bytes below 0x80 are always ASCII characters,
  never parts of other characters. Returns false if anything is uncertain; `table->columns` is then
  meaningless.
*/
bool parse_select(std::string_view text, bool multibyte_is_safe, SelectedTable* table);

}  // namespace firn
