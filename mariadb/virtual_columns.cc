/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Virtual columns that the server leaves uncomputed in a record. Rows do not store them, and index
  entries are made of the values in the record, so the handler computes them with the server's
  functions.
*/

#include "ha_firn.h"

extern "C" bool thd_is_slave(const MYSQL_THD thd);

namespace {

bool is_virtual(const Field* field) { return field->vcol_info && !field->vcol_info->is_stored(); }

}  // namespace

bool ha_firn::has_virtual_part(uint index) const {
  if (!table->vfield || index >= table_share->keys) return false;
  const KEY* key_info = table->key_info + index;
  for (uint i = 0; i < key_info->user_defined_key_parts; i++)
    if (is_virtual(table->field[key_info->key_part[i].fieldnr - 1])) return true;
  return false;
}

/*
  Computes those of the virtual columns that `wanted` accepts in a record, which need not be one of
  the table's own. Returns whether the session has got an error. The server's function uses the
  bitmap TABLE::tmp_set, which may be the statement's read set.
*/
template <typename Wanted>
bool ha_firn::compute_virtual_columns(uchar* record, bool ignore_errors, Wanted wanted) {
  uchar columns[MAX_FIELDS / 8];
  memcpy(columns, table->tmp_set.bitmap, m_columns_bytes);
  table->move_fields(table->field, record, table->record[0]);
  MY_BITMAP* const read_set = tmp_use_all_columns(table, &table->read_set);
  MY_BITMAP* const write_set = tmp_use_all_columns(table, &table->write_set);
  bool failed = false;
  for (Field** field = table->vfield; *field && !failed; field++)
    if (is_virtual(*field) && wanted(*field)) failed = table->update_virtual_field(*field, ignore_errors);
  tmp_restore_column_map(&table->write_set, write_set);
  tmp_restore_column_map(&table->read_set, read_set);
  table->move_fields(table->field, table->record[0], record);
  memcpy(table->tmp_set.bitmap, columns, m_columns_bytes);
  return failed;
}

/*
  Computes the virtual parts of the index that was read. The server merges the rows of a table's
  partitions by the parts of the index, in records in which it computes nothing. With a key read it
  computes nothing in its own record either, because it expects the values of the index entry; but
  the row may have been read (reads_entries_only()). A prefix part has a Field of its own, so the
  columns are compared by their numbers.
*/
void ha_firn::compute_virtual_parts(uchar* record) {
  if (reads_entries_only() || (record == table->record[0] && !m_keyread)) return;
  const KEY* key_info = table->key_info + m_cursor_index;
  (void)compute_virtual_columns(record, true, [key_info](const Field* field) {
    for (uint i = 0; i < key_info->user_defined_key_parts; i++)
      if (key_info->key_part[i].fieldnr == field->field_index + 1) return true;
    return false;
  });
}

/*
  Computes the indexed virtual columns of a row that is about to be written, where the server may
  not have done so:
  - A replica computes those of which the row event has a value. The table may have others.
  - An UPDATE of several tables computes them before a BEFORE trigger changes the columns that they
    refer to.
*/
int ha_firn::compute_indexed_columns(const uchar* record) {
  if (likely(!table->vfield)) return 0;
  THD* thd = ha_thd();
  const int command = thd_sql_command(thd);
  const bool after_trigger = table->triggers && command == SQLCOM_UPDATE_MULTI;
  if (!after_trigger && !thd_is_slave(thd) && command != SQLCOM_BINLOG_BASE64_EVENT) return 0;
  const bool failed = compute_virtual_columns(const_cast<uchar*>(record), false, [](const Field* field) {
    return (field->flags & (PART_KEY_FLAG | PART_INDIRECT_KEY_FLAG)) != 0;
  });
  return failed ? HA_ERR_GENERIC : 0;
}
