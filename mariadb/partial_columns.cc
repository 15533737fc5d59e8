/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Chooses the columns of which a statement needs only the length, or the beginning, or nothing, so
  that less is read of the values in blob files.

  An UPDATE or DELETE needs nothing of a BLOB that it neither reads nor writes. Both records of
  update_row() then point to zeros of the value's length, and the core leaves the stored value as it
  is.

  For a SELECT the needs come from its text (select_parser.h). The text of the connection is certain
  to be the running statement only if the server parsed it for this execution; its LEX is then the
  one that is a member of THD. Prepared statements, and all statements of procedures, functions,
  triggers and events, have another LEX and read whole values: they may have been parsed in another
  sql_mode, or read the table behind a view that the text names.
*/

#include "ha_firn.h"
#include "select_parser.h"

#include <new>

/* The server exports it to engines. */
extern "C" unsigned long long thd_query_id(const MYSQL_THD thd);

namespace {

/*
  The LEX of a prepared or stored statement is an allocation of its own, so it is never inside a
  THD.
*/
bool was_parsed_for_this_execution(const THD* thd) {
  const char* const begin = reinterpret_cast<const char*>(thd);
  const char* const lex = reinterpret_cast<const char*>(thd->lex);
  return lex >= begin && lex + sizeof(LEX) <= begin + sizeof(THD);
}

/*
  Whether bytes below 0x80 are ASCII characters, unless they are part of a multi-byte character.
  Outside of quotes the parser accepts no other bytes. Inside of quotes, single-byte characters may
  be anything, and multi-byte characters must not contain a quote, which
  has_no_ascii_within_characters() ensures.
*/
bool is_ascii_based(const CHARSET_INFO* charset) {
  return charset->mbminlen == 1 && !(charset->state & MY_CS_NONASCII);
}

bool has_no_ascii_within_characters(const CHARSET_INFO* charset) {
  return charset->mbmaxlen == 1 || (charset->state & MY_CS_UNICODE);
}

/* Whether values of the column may be in blob files, and are the same there and in the record. */
bool is_large(const Field* field) {
  const bool blob = field->type() == MYSQL_TYPE_BLOB;
  const bool varchar = field->type() == MYSQL_TYPE_VARCHAR && field->field_length > 255;
  return (blob || varchar) && !field->compression_method();
}

std::string_view view(const char* text, size_t length) {
  return text ? std::string_view(text, length) : std::string_view();
}

}  // namespace

/* For open(): tables without such a column, which most are, need no choice in any statement. */
bool ha_firn::has_large_column() const {
  for (uint i = 0; i < table_share->fields; i++)
    if (is_large(table->field[i])) return true;
  return false;
}

bool ha_firn::wants_large_column() const {
  for (uint i = 0; i < table_share->fields; i++)
    if (bitmap_is_set(table->read_set, i) && is_large(table->field[i])) return true;
  return false;
}

/*
  Whether columns may be left unread. They may not if the record can become a new row, as in tables
  with system versioning, with a period of which a part is changed, or with partitions that rows may
  leave. Virtual columns and constraints may be computed from any column.
*/
bool ha_firn::may_leave_unread() const {
  const int command = thd_sql_command(ha_thd());
  const bool changes = command == SQLCOM_UPDATE || command == SQLCOM_UPDATE_MULTI || command == SQLCOM_DELETE ||
                       command == SQLCOM_DELETE_MULTI;
  return m_intent.whole_row && changes && !table->vfield && !table->check_constraints && !table->part_info &&
         !table->versioned() && !table_share->period.name;
}

void ha_firn::choose_unread(std::vector<firn_partial_column>* parts) const {
  if (!may_leave_unread()) return;
  for (uint i = 0; i < table_share->fields; i++) {
    const Field* field = table->field[i];
    const bool used = bitmap_is_set(table->read_set, i) || bitmap_is_set(table->write_set, i) ||
                      (field->flags & (PART_KEY_FLAG | PART_INDIRECT_KEY_FLAG));
    if (!used && is_large(field) && field->type() == MYSQL_TYPE_BLOB) parts->push_back({i, 0, true});
  }
}

/*
  Tables with virtual columns are excluded, because these are computed from columns that the text
  does not name.
*/
bool ha_firn::may_read_partial_columns() const {
  THD* thd = ha_thd();
  return !m_intent.locks() && m_intent.plain && !m_intent.whole_row && !table->vfield && !table->part_info &&
         thd_sql_command(thd) == SQLCOM_SELECT && was_parsed_for_this_execution(thd) &&
         !(thd->variables.sql_mode & MODE_ORACLE) && is_ascii_based(thd->charset()) && wants_large_column();
}

/*
  The columns that the text of the running statement uses in part. A statement may aim the cursor
  for each row of another table, so the text is parsed once. The statement's number stands for its
  text: the server numbers each statement that it parses for the LEX of THD, each one of a packet
  too, and statements with another LEX never come here (was_parsed_for_this_execution).
*/
const std::vector<firn_partial_column>& ha_firn::parts_in_text() {
  THD* thd = ha_thd();
  const uint64_t query = thd_query_id(thd);
  if (m_text_query == query) return m_text_parts;
  m_text_parts.clear();
  m_text_query = query;
  const LEX_STRING* query_string = thd_query_string(thd);
  const std::string_view text = view(query_string->str, query_string->length);
  if (!firn::may_use_parts(text)) return m_text_parts;
  char schema[firn::kSchemaNameSize], name[firn::kTableNameSize];
  firn::decode_table_name(firn::TableName(m_path).c_str(), schema, name);
  const LEX_CSTRING* current = thd_current_db(thd);
  try {
    firn::SelectedTable selected = {view(current->str, current->length), schema, name, {}};
    selected.columns.resize(table_share->fields);
    for (uint i = 0; i < table_share->fields; i++)
      selected.columns[i].name = view(table->field[i]->field_name.str, table->field[i]->field_name.length);
    const bool safe = has_no_ascii_within_characters(thd->charset());
    if (!firn::parse_select(text, safe, &selected)) return m_text_parts;
    for (uint i = 0; i < table_share->fields; i++) {
      const firn::ColumnNeed& need = selected.columns[i];
      const Field* field = table->field[i];
      if (!need.in_part() || !is_large(field)) continue;
      /* One character more, because the last one may be cut. */
      const uint64_t prefix = need.chars ? (need.chars + 1) * field->charset()->mbmaxlen : 0;
      m_text_parts.push_back({i, prefix, need.length});
    }
  } catch (const std::bad_alloc&) {
    m_text_parts.clear();
  }
  return m_text_parts;
}

void ha_firn::choose_partial_columns(std::vector<firn_partial_column>* parts) {
  if (!m_has_large_columns) return;
  try {
    choose_unread(parts);
    if (!may_read_partial_columns()) return;
    const std::vector<firn_partial_column>& in_text = parts_in_text();
    parts->insert(parts->end(), in_text.begin(), in_text.end());
  } catch (const std::bad_alloc&) {
    parts->clear();
  }
}
