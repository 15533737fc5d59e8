/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Reads. A lookup of a whole unique key is a point read and positions no scan. If the server goes on
  from there (index_next, index_prev), the scan begins beyond that key. The core gets the end of a
  range as the scan's bound: it reads and locks no row beyond it, and the handler compares no keys.
*/

#include "ha_firn.h"
#include "key.h"
#include "read_meter.h"

int ha_firn::index_init(uint index, bool) { return aim(index); }

int ha_firn::index_end() {
  m_scan_parked = m_at_point = false;
  return 0;
}

/*
  Whether the lookup finds one row at most: it has all parts of a unique key, and none is NULL. A
  key image has a byte before each part that can be NULL. The server never extends a unique key by
  the primary key, so the image has no further parts. An index of hashes (long UNIQUE) is excluded:
  two values may have one hash.
*/
bool ha_firn::is_unique_lookup(const KEY* key_info, const uchar* key, key_part_map parts) const {
  const key_part_map all = (key_part_map(1) << key_info->user_defined_key_parts) - 1;
  if (!(key_info->flags & HA_NOSAME) || (parts & all) != all) return false;
  if (unlikely(key_info->algorithm == HA_KEY_ALG_LONG_HASH)) return false;
  if (likely(!(key_info->flags & HA_NULL_PART_KEY))) return true;
  for (uint part = 0; part < key_info->user_defined_key_parts; part++) {
    if (key_info->key_part[part].null_bit && *key) return false;
    key += key_info->key_part[part].store_length;
  }
  return true;
}

int ha_firn::index_read_map(uchar* buf, const uchar* key, key_part_map parts, enum ha_rkey_function flag) {
  firn::ReadMeter meter(handler_stats);
  if (int error = resume_scan()) return error;
  if (!m_in_read_range) clear_bound();
  m_at_point = false;
  m_row_id_is_of_cursor = true;
  if (!key) return read_status(firn_cursor_first(m_cursor, buf), buf);
  const KEY* key_info = table->key_info + active_index;
  if (flag == HA_READ_KEY_EXACT && is_unique_lookup(key_info, key, parts)) {
    const firn_status status = firn_cursor_get(m_cursor, key, key_info->key_length, buf);
    if (status == FIRN_OK) {
      memcpy(m_point_key, key, key_info->key_length);
      m_point_key_length = key_info->key_length;
      m_at_point = true;
    }
    return read_status(status, buf);
  }
  if (unlikely(checks_unique_key(key_info, parts, flag)))
    if (int error = lock_checked_key(key_info, key)) return error;
  const uint length = calculate_key_len(table, active_index, key, parts);
  return read_status(firn_cursor_seek(m_cursor, key, length, flag, buf), buf);
}

/*
  Whether this read is the server's check of a key that the engine cannot check: a long UNIQUE,
  whose index has hashes of the values, or a period WITHOUT OVERLAPS. The server makes the check
  before each write that changes the key, on this handler or on a clone of it. Hashes are read by
  nothing else. Statements that read a period's index by a range do that within
  read_range_first().
*/
bool ha_firn::checks_unique_key(const KEY* key_info, key_part_map parts, enum ha_rkey_function flag) const {
  if (likely(key_info->algorithm != HA_KEY_ALG_LONG_HASH && !key_info->without_overlaps)) return false;
  if (m_intent.mode != FIRN_READ_LOCK_EXCLUSIVE || !m_intent.whole_row) return false;
  if (key_info->algorithm == HA_KEY_ALG_LONG_HASH) return true;
  const key_part_map all_but_start = (key_part_map(1) << (key_info->user_defined_key_parts - 1)) - 1;
  return flag == HA_READ_AFTER_KEY && parts == all_but_start && !m_in_read_range;
}

/*
  Locks the value that the check is about: the hash, or the columns beside the period. The check of
  another transaction that writes the same value waits for the lock, so it finds the row of this one
  or knows that there is none. Gap locks would protect the value too, but two transactions that
  insert different values into one gap would deadlock.
*/
int ha_firn::lock_checked_key(const KEY* key_info, const uchar* key) {
  uint length = key_info->key_length;
  if (key_info->without_overlaps) {
    length = 0;
    for (uint part = 0; part + 2 < key_info->user_defined_key_parts; part++)
      length += key_info->key_part[part].store_length;
  }
  return read_status(firn_cursor_lock_key_prefix(m_cursor, key, length));
}

/* A point SELECT makes only this call, without an index_init() before it. */
int ha_firn::index_read_idx_map(uchar* buf, uint index, const uchar* key, key_part_map parts,
                                enum ha_rkey_function flag) {
  firn::ReadMeter meter(handler_stats);
  if (int error = aim(index)) return error;
  m_row_id_is_of_cursor = true;
  const KEY* key_info = table->key_info + index;
  if (flag == HA_READ_KEY_EXACT && key && is_unique_lookup(key_info, key, parts))
    return read_status(firn_cursor_get(m_cursor, key, key_info->key_length, buf), buf);
  const uint length = key ? calculate_key_len(table, index, key, parts) : 0;
  return read_status(firn_cursor_seek(m_cursor, key, length, flag, buf), buf);
}

int ha_firn::index_read_last_map(uchar* buf, const uchar* key, key_part_map parts) {
  return index_read_map(buf, key, parts, HA_READ_PREFIX_LAST);
}

int ha_firn::index_next(uchar* buf) {
  firn::ReadMeter meter(handler_stats);
  if (unlikely(!m_cursor_live))
    if (int error = resume_scan()) return error;
  m_row_id_is_of_cursor = true;
  if (m_at_point) {
    m_at_point = false;
    const firn_status status = firn_cursor_seek(m_cursor, m_point_key, m_point_key_length, HA_READ_AFTER_KEY, buf);
    return read_status(status == FIRN_NO_ROW ? FIRN_END : status, buf);
  }
  return read_status(firn_cursor_next(m_cursor, buf), buf);
}

int ha_firn::index_prev(uchar* buf) {
  firn::ReadMeter meter(handler_stats);
  if (unlikely(!m_cursor_live))
    if (int error = resume_scan()) return error;
  m_row_id_is_of_cursor = true;
  if (m_at_point) {
    m_at_point = false;
    const firn_status status = firn_cursor_seek(m_cursor, m_point_key, m_point_key_length, HA_READ_BEFORE_KEY, buf);
    return read_status(status == FIRN_NO_ROW ? FIRN_END : status, buf);
  }
  return read_status(firn_cursor_prev(m_cursor, buf), buf);
}

int ha_firn::index_first(uchar* buf) {
  firn::ReadMeter meter(handler_stats);
  if (int error = resume_scan()) return error;
  if (!m_in_read_range) clear_bound();
  m_at_point = false;
  m_row_id_is_of_cursor = true;
  const firn_status status = firn_cursor_first(m_cursor, buf);
  return read_status(status == FIRN_NO_ROW ? FIRN_END : status, buf);
}

int ha_firn::index_last(uchar* buf) {
  firn::ReadMeter meter(handler_stats);
  if (int error = resume_scan()) return error;
  clear_bound();
  m_at_point = false;
  m_row_id_is_of_cursor = true;
  const firn_status status = firn_cursor_last(m_cursor, buf);
  return read_status(status == FIRN_NO_ROW ? FIRN_END : status, buf);
}

int ha_firn::index_next_same(uchar* buf, const uchar* key, uint length) {
  firn::ReadMeter meter(handler_stats);
  if (unlikely(!m_cursor_live))
    if (int error = resume_scan()) return error;
  if (m_at_point) return HA_ERR_END_OF_FILE;
  m_row_id_is_of_cursor = true;
  return read_status(firn_cursor_next_same(m_cursor, key, length, buf), buf);
}

int ha_firn::read_range_first(const key_range* start, const key_range* end, bool equal, bool) {
  if (int error = resume_scan()) return error;
  eq_range = equal;
  set_end_range(end);
  range_key_part = table->key_info[active_index].key_part;
  clear_bound();
  if (end && !equal) {
    const firn_status status = firn_cursor_end_range(m_cursor, end->key, end->length, end->flag);
    if (status != FIRN_OK) return read_status(status);
    m_bounded = true;
  }
  m_in_read_range = true;
  const int error = start ? ha_index_read_map(table->record[0], start->key, start->keypart_map, start->flag)
                          : ha_index_first(table->record[0]);
  m_in_read_range = false;
  return error == HA_ERR_KEY_NOT_FOUND ? HA_ERR_END_OF_FILE : error;
}

/* Compares nothing: the core ends the scan at the bound, or where the key differs. */
int ha_firn::read_range_next() {
  return eq_range ? ha_index_next_same(table->record[0], end_range->key, end_range->length)
                  : ha_index_next(table->record[0]);
}

/*
  Rows that are read by position have been found to match before, so the statement must wait for
  their locks.
*/
int ha_firn::rnd_init(bool scan) {
  if (!scan) try_semi_consistent_read(false);
  return aim(clustered_index());
}

int ha_firn::rnd_end() {
  m_scan_parked = false;
  end_own();
  return 0;
}

int ha_firn::rnd_next(uchar* buf) {
  firn::ReadMeter meter(handler_stats);
  if (unlikely(!m_cursor_live))
    if (int error = resume_scan()) return error;
  m_row_id_is_of_cursor = true;
  firn_status status;
  if (m_scan_started) {
    status = firn_cursor_next(m_cursor, buf);
  } else {
    m_scan_started = true;
    status = firn_cursor_first(m_cursor, buf);
    if (status == FIRN_NO_ROW) status = FIRN_END;
  }
  return read_status(status);
}

int ha_firn::rnd_pos(uchar* buf, uchar* position) {
  firn::ReadMeter meter(handler_stats);
  if (unlikely(!m_cursor_live))
    if (int error = resume_scan()) return error;
  m_row_id_is_of_cursor = true;
  return read_status(firn_cursor_get_ref(m_cursor, position, ref_length, buf));
}
