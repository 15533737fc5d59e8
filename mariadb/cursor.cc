/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  The handler's cursor. A statement aims it at an index and chooses the columns to decode; it is
  parked between statements.
*/

#include "ha_firn.h"
#include "errors.h"
#include "key.h"

#include <algorithm>

int ha_firn::aim(uint32_t index) {
  if (!m_session) return HA_ERR_WRONG_COMMAND;
  if (m_session->aborted()) return HA_ERR_ROLLBACK;
  if (unlikely(is_sequence()))
    if (int error = begin_own()) return error;
  const bool other_index = !m_cursor || index != m_cursor_index;
  if (other_index) {
    m_entries_lack_columns = entries_lack_columns(index);
    m_virtual_parts = (table->part_info || m_entries_lack_columns) && has_virtual_part(index);
  }
  firn_status status;
  if (!m_cursor)
    status = firn_cursor_open(core_session(), m_share->core(), index, m_intent.mode, m_intent.wait, &m_cursor);
  else
    status = firn_cursor_reset(m_cursor, core_session(), index, m_intent.mode, m_intent.wait);
  if (status != FIRN_OK) return firn_error(status);
  m_cursor_index = index;
  m_cursor_live = true;
  m_scan_parked = m_scan_started = m_bounded = m_at_point = false;
  if (other_index) m_columns_known = false;
  if (m_intent.semi_consistent) (void)firn_cursor_set_semi_consistent(m_cursor, true);
  if (int error = push_condition()) return error;
  return choose_columns();
}

/*
  Whether index entries alone give all columns that the server wants. The server asks for a key read
  only if the index holds these columns whole, with two exceptions:
  - It merges the scans of a table's partitions by all columns of the index, also by a column of
    which the entries hold only a prefix.
  - It needs the primary key of a row. Where that has a prefix of a column, the core reads the row.
*/
bool ha_firn::reads_entries_only() const { return m_keyread && !m_entries_lack_columns; }

/* For reads_entries_only(). */
bool ha_firn::entries_lack_columns(uint index) const {
  if (index >= table_share->keys) return false;
  const KEY* const key_info = table->key_info + index;
  const auto is_prefix = [](const KEY_PART_INFO& part) { return (part.key_part_flag & HA_PART_KEY_SEG) != 0; };
  const KEY_PART_INFO* const begin = key_info->key_part;
  const KEY_PART_INFO* const end = begin + key_info->user_defined_key_parts;
  if (table->part_info && std::any_of(begin, end, is_prefix)) return true;
  if (!has_primary_key()) return false;
  const KEY* const primary = table->key_info + table_share->primary_key;
  return std::any_of(primary->key_part, primary->key_part + primary->user_defined_key_parts,
                     [&](const KEY_PART_INFO& prefix) {
                       return is_prefix(prefix) && std::none_of(begin, end, [&](const KEY_PART_INFO& part) {
                                return part.fieldnr == prefix.fieldnr && !is_prefix(part);
                              });
                     });
}

namespace {

bool same_part(const firn_partial_column& a, const firn_partial_column& b) {
  return a.column == b.column && a.prefix == b.prefix && a.length == b.length;
}

}  // namespace

int ha_firn::choose_columns() {
  const bool keyread = reads_entries_only();
  /* A key read marks the columns of the index, and not those of which virtual ones are computed. */
  const bool whole = !keyread && (m_intent.whole_row || (m_keyread && m_virtual_parts));
  const uchar* wanted = reinterpret_cast<const uchar*>(table->read_set->bitmap);
  std::vector<firn_partial_column> parts;
  if (!keyread) choose_partial_columns(&parts);
  if (m_columns_known && m_columns_keyread == keyread && m_columns_whole == whole &&
      (whole || keyread || memcmp(m_columns, wanted, m_columns_bytes) == 0) &&
      std::equal(parts.begin(), parts.end(), m_parts.begin(), m_parts.end(), same_part))
    return 0;
  const firn_status status =
      firn_cursor_columns(m_cursor, whole || keyread ? nullptr : wanted, keyread, parts.data(), uint32_t(parts.size()));
  if (status != FIRN_OK) return firn_error(status);
  m_parts = std::move(parts);
  memcpy(m_columns, wanted, m_columns_bytes);
  m_columns_keyread = keyread;
  m_columns_whole = whole;
  m_columns_known = true;
  return 0;
}

/*
  The server has changed read_set. Between statements there is nothing to do, because aim() chooses
  the columns. If the choice fails here, the next call of choose_columns() repeats it. In rows that
  will be changed, the server must compute indexed virtual columns: the core finds their old index
  entries by these values.
*/
void ha_firn::column_bitmaps_signal() {
  /* create() asks the server which columns generated columns need, before the table is open. */
  if (!table) return;
  if (table->vfield && table->current_lock == F_WRLCK) {
    for (Field** field = table->vfield; *field; field++)
      if (!(*field)->stored_in_db() && ((*field)->flags & (PART_KEY_FLAG | PART_INDIRECT_KEY_FLAG)))
        table->mark_virtual_column_with_deps(*field);
  }
  if (m_cursor_live && inited != NONE && choose_columns()) m_columns_known = false;
}

void ha_firn::park() {
  if (!m_cursor_live) return;
  firn_cursor_park(m_cursor);
  m_cursor_live = false;
  m_scan_parked = inited != NONE;
}

int ha_firn::resume_scan() {
  if (m_cursor_live) return 0;
  if (!m_scan_parked || !m_session) return HA_ERR_WRONG_COMMAND;
  if (m_session->aborted()) return HA_ERR_ROLLBACK;
  if (m_at_point) {
    /*
      The last lookup was a point read, which positions no scan. The scan begins beyond m_point_key.
    */
    if (int error = aim(m_cursor_index)) return error;
    m_at_point = true;
    return 0;
  }
  const firn_status status = firn_cursor_resume(m_cursor, core_session(), m_intent.mode, m_intent.wait);
  if (status != FIRN_OK) return firn_error(status);
  m_cursor_live = true;
  m_scan_parked = false;
  if (int error = push_condition()) return error;
  return choose_columns();
}

/*
  The core evaluates the condition on entries of a secondary index, before it reads their rows. A
  read that locks gets no condition: which rows and gaps it locks must not depend on the plan. On a
  replica the server may drop the condition of a temporary table in the middle of a statement, see
  reset().
*/
Item* ha_firn::idx_cond_push(uint index, Item* condition) {
  if (!m_locked || m_intent.locks() || index == table_share->primary_key || table->part_info || m_share->is_temporary())
    return condition;
  pushed_idx_cond = condition;
  pushed_idx_cond_keyno = index;
  return nullptr;
}

int ha_firn::push_condition() {
  if (likely(!pushed_idx_cond || pushed_idx_cond_keyno != m_cursor_index)) return 0;
  return read_status(firn_cursor_condition(m_cursor, entry_verdict, this));
}

/*
  The server would also compare the entry with the end of the range. The core has done that, and the
  record has no columns of which the index holds only a prefix.
*/
int ha_firn::entry_verdict(void* handler, uchar* record) {
  ha_firn* self = static_cast<ha_firn*>(handler);
  TABLE* table = self->table;
  if (unlikely(!self->pushed_idx_cond || self->pushed_idx_cond_keyno != self->m_cursor_index))
    return FIRN_ENTRY_MATCHES;
  /*
    The check of the server ignores soft kills, as those of LIMIT ROWS EXAMINED. The server would
    not see them before the scan finds a row.
  */
  if (unlikely(thd_kill_level(table->in_use) != THD_IS_NOT_KILLED)) return FIRN_ENTRY_INTERRUPTED;
  /* The condition reads the columns where the table's fields point to. */
  const bool elsewhere = record != table->record[0];
  if (unlikely(elsewhere)) table->move_fields(table->field, record, table->record[0]);
  key_range* const end = self->end_range;
  self->end_range = nullptr;
  const check_result_t checked = handler_index_cond_check(self);
  self->end_range = end;
  if (unlikely(elsewhere)) table->move_fields(table->field, table->record[0], record);
  switch (checked) {
    case CHECK_POS:
      return FIRN_ENTRY_MATCHES;
    case CHECK_NEG:
      return FIRN_ENTRY_PASSES;
    default:
      return FIRN_ENTRY_INTERRUPTED;
  }
}

void ha_firn::clear_bound() {
  if (!m_bounded) return;
  (void)firn_cursor_end_range(m_cursor, nullptr, 0, 0);
  m_bounded = false;
}

const uchar* ha_firn::current_row_id() {
  if (!has_primary_key() && m_row_id_is_of_cursor && m_cursor_live) {
    if (firn_cursor_ref(m_cursor, m_row_id) == FIRN_OK) m_row_id_is_of_cursor = false;
  }
  return has_primary_key() ? nullptr : m_row_id;
}

/*
  Fills the unused bytes of the position with zeros, because the server also compares positions as
  bytes (duplicate weedout).
*/
void ha_firn::position(const uchar* record) {
  if (has_primary_key()) {
    KEY* key_info = table->key_info + table_share->primary_key;
    key_copy(ref, record, key_info, key_info->key_length, true);
  } else {
    memcpy(ref, current_row_id(), sizeof(m_row_id));
  }
}

/* Positions order as the primary key does, because index merge relies on it. */
int ha_firn::cmp_ref(const uchar* left, const uchar* right) {
  if (!has_primary_key()) return memcmp(left, right, sizeof(m_row_id));
  const KEY* key_info = table->key_info + table_share->primary_key;
  const KEY_PART_INFO* part = key_info->key_part;
  const KEY_PART_INFO* const end = part + key_info->user_defined_key_parts;
  for (; part != end; part++) {
    /* Primary key parts cannot be NULL. */
    const int order = part->field->key_cmp(left, right);
    if (order) return part->key_part_flag & HA_REVERSE_SORT ? -order : order;
    left += part->store_length;
    right += part->store_length;
  }
  return 0;
}
