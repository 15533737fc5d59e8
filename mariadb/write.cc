/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Writes, and the AUTO_INCREMENT column. The core gets record buffers unchanged and makes the index
  entries from them.
*/

#include "ha_firn.h"
#include "errors.h"
#include "foreign_keys.h"

namespace {

/*
  SET unique_checks=0: the client guarantees that secondary unique keys are unique.
  SET foreign_key_checks=0: foreign keys are neither checked nor followed.
*/
uint32_t relaxed_checks(THD* thd) {
  const bool unique = thd_test_options(thd, OPTION_RELAXED_UNIQUE_CHECKS);
  return (unique ? uint32_t(FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK) : 0) |
         (firn::checks_foreign_keys(thd) ? 0 : uint32_t(FIRN_WRITE_NO_FOREIGN_KEYS));
}

}  // namespace

int ha_firn::write_row(const uchar* buf) {
  /* The server writes the first row of a temporary sequence without a lock of the table. */
  if (unlikely(is_sequence())) {
    if (int error = begin_own()) return error;
  } else {
    if (m_session->aborted()) return HA_ERR_ROLLBACK;
    if (int error = may_write()) return error;
  }
  if (table->next_number_field && buf == table->record[0])
    if (int error = update_auto_increment()) return error;
  if (int error = compute_indexed_columns(buf)) return error;
  uint32_t duplicate = 0;
  const uint32_t flags = (m_bulk ? m_bulk_flags : m_write_flags) | relaxed_checks(ha_thd());
  const auto insert = m_bulk ? firn_bulk_insert : firn_insert;
  const firn_status status = insert(core_session(), m_share->core(), buf, flags, &duplicate, m_row_id);
  if (status == FIRN_DUPLICATE) note_duplicate(duplicate);
  if (unlikely(m_own != nullptr)) return commit_own(firn_error(status));
  if (status != FIRN_OK) return firn_error(status);
  m_row_id_is_of_cursor = false;
  if (table->found_next_number_field) raise_auto_increment(table->found_next_number_field, buf);
  return 0;
}

/*
  Whether a geometry column loses its geometry: without strict mode, the server stores an empty
  value in place of NULL where NULL is not allowed. InnoDB refuses it in updates, and not in new
  rows.
*/
bool ha_firn::loses_geometry(const uchar* old_row, const uchar* new_row) const {
  for (uint i = 0; i < table_share->blob_fields; i++) {
    const Field* field = table->field[table_share->blob_field[i]];
    if (field->type() != MYSQL_TYPE_GEOMETRY) continue;
    const auto is_empty = [field](const uchar* row) {
      const auto* value = static_cast<const Field_blob*>(field);
      return !field->is_null_in_record(row) && value->get_length(field->ptr_in_record(row)) == 0;
    };
    if (is_empty(new_row) && !is_empty(old_row)) return true;
  }
  return false;
}

int ha_firn::update_row(const uchar* old_row, const uchar* new_row) {
  if (m_session->aborted()) return HA_ERR_ROLLBACK;
  if (int error = may_write()) return error;
  if (loses_geometry(old_row, new_row)) {
    my_error(ER_CANT_CREATE_GEOMETRY_OBJECT, MYF(0));
    return HA_ERR_NULL_IN_SPATIAL;
  }
  if (int error = compute_indexed_columns(new_row)) return error;
  uint32_t duplicate = 0;
  const uint32_t flags = m_write_flags | relaxed_checks(m_session->thd());
  const firn_status status =
      firn_update(core_session(), m_share->core(), old_row, new_row, current_row_id(), flags, &duplicate);
  if (status == FIRN_DUPLICATE) note_duplicate(duplicate);
  if (unlikely(m_own != nullptr)) return commit_own(firn_error(status));
  if (status != FIRN_OK) return firn_error(status);
  const Field* number = table->found_next_number_field;
  if (number && bitmap_is_set(table->write_set, number->field_index)) raise_auto_increment(number, new_row);
  return 0;
}

int ha_firn::delete_row(const uchar* buf) {
  if (m_session->aborted()) return HA_ERR_ROLLBACK;
  if (int error = may_write()) return error;
  const uint32_t flags = relaxed_checks(m_session->thd());
  return firn_error(firn_delete(core_session(), m_share->core(), buf, current_row_id(), flags));
}

/* The value in `record`, given or generated, is taken: the next generated value is greater. */
void ha_firn::raise_auto_increment(const Field* field, const uchar* record) {
  Field* number = const_cast<Field*>(field);
  const my_ptrdiff_t offset = record - table->record[0];
  if (offset) number->move_field_offset(offset);
  const longlong value = number->is_null() ? 0 : number->val_int();
  if (offset) number->move_field_offset(-offset);
  if (value > 0 || (value < 0 && (number->flags & UNSIGNED_FLAG)))
    firn_autoinc_raise(core_session(), m_share->core(), uint64_t(value));
}

/*
  Whether the statement may give its rows other generated values on a replica, which executes it
  alone. INSERT … VALUES tells how many values it wants and gets them in one piece, and the binary
  log has the first one. A statement of unknown length gets them in several pieces, between which
  other sessions may take some; InnoDB locks the table for these.
*/
bool ha_firn::autoinc_lock_mode_stmt_unsafe() const {
  switch (thd_sql_command(ha_thd())) {
    case SQLCOM_INSERT_SELECT:
    case SQLCOM_REPLACE_SELECT:
    case SQLCOM_CREATE_TABLE:
    case SQLCOM_LOAD:
      return true;
    default:
      return false;
  }
}

void ha_firn::get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong* first,
                                 ulonglong* reserved) {
  /*
    UPDATE and DELETE FOR PORTION OF add rows one by one. The server asks for twice as many values
    each time, as for an INSERT … SELECT, but these statements add few rows, and the rest would be
    lost.
  */
  const int command = thd_sql_command(ha_thd());
  if (command == SQLCOM_UPDATE || command == SQLCOM_DELETE) wanted = 1;
  uint64_t start = 0, count = 0;
  const firn_status status =
      firn_autoinc_reserve(m_share->core(), offset, increment, MY_MAX(wanted, 1ULL), &start, &count);
  /* ULONGLONG_MAX tells the server that no value is left. */
  *first = status == FIRN_OK ? start : ULONGLONG_MAX;
  *reserved = status == FIRN_OK ? count : 0;
}

/*
  Other sessions may write to the open table, so values that were given out stay taken. `value` is 0
  for a truncated table, whose counter is new.
*/
int ha_firn::reset_auto_increment(ulonglong value) {
  const uint64_t next = firn_autoinc_next_value(m_share->core());
  return firn::to_server_error(firn_autoinc_set(m_share->core(), MY_MAX(value, 1ULL), next - 1));
}
