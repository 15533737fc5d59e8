/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  The handler: flags, open and close, the end of statements, and messages of errors. Reads are in
  read.cc, writes in write.cc.
*/

#include "ha_firn.h"
#include "ddl_callbacks.h"
#include "errors.h"
#include "host_callbacks.h"
#include "table_options.h"
#include "foreign_key_errors.h"

#include <mysql/service_thd_error_context.h>

#include <new>

handler::Table_flags ha_firn::table_flags() const {
  constexpr handler::Table_flags flags =
      HA_REC_NOT_IN_SEQ | HA_NULL_IN_KEY | HA_CAN_INDEX_BLOBS | HA_CAN_VIRTUAL_COLUMNS | HA_CAN_SQL_HANDLER |
      HA_CAN_GEOMETRY | HA_TABLE_SCAN_ON_INDEX | HA_PRIMARY_KEY_IN_READ_INDEX | HA_PRIMARY_KEY_REQUIRED_FOR_POSITION |
      HA_PARTIAL_COLUMN_READ | HA_REQUIRES_KEY_COLUMNS_FOR_DELETE | HA_BINLOG_ROW_CAPABLE | HA_CAN_ONLINE_BACKUPS |
      HA_CONCURRENT_OPTIMIZE | HA_CAN_SKIP_LOCKED | HA_ONLINE_ANALYZE | HA_CAN_TABLES_WITHOUT_ROLLBACK;
  /*
    The binary log may not have statements as text at READ COMMITTED and below, or for optimistic
    tables: a statement locks no gaps there, so others may insert rows that it would change when the
    replica executes it.
  */
  THD* thd = ha_thd();
  const bool read_committed = thd && thd_tx_isolation(thd) <= ISO_READ_COMMITTED;
  const bool optimistic = table_share && firn::is_optimistic(table_share->option_struct);
  return read_committed || optimistic ? flags : flags | HA_BINLOG_STMT_CAPABLE;
}

/* The server calls this function before open(), when key parts are only half filled in. */
ulong ha_firn::index_flags(uint index, uint, bool) const {
  const ulong flags = HA_READ_NEXT | HA_READ_PREV | HA_READ_ORDER | HA_READ_RANGE | HA_KEYREAD_ONLY;
  return flags | (index == table_share->primary_key ? HA_CLUSTERED_INDEX : HA_DO_INDEX_COND_PUSHDOWN);
}

int ha_firn::open(const char* name, int, uint) {
  lock_shared_ha_data();
  m_share = static_cast<firn::Share*>(get_ha_share_ptr());
  if (!m_share) {
    m_share = new (std::nothrow) firn::Share;
    if (m_share) set_ha_share_ptr(m_share);
  }
  const int error = m_share ? m_share->acquire(name, table) : HA_ERR_OUT_OF_MEM;
  unlock_shared_ha_data();
  if (error) {
    m_share = nullptr;
    return error;
  }

  ref_length = has_primary_key() ? table->key_info[table_share->primary_key].key_length : sizeof(m_row_id);
  /*
    UPDATE must know that a table scan follows the primary key; it would otherwise meet rows again
    that it has moved.
  */
  key_used_on_scan = table_share->primary_key;
  m_columns_bytes = bitmap_buffer_size(table_share->fields);
  const size_t key_bytes = table_share->max_key_length + 1, name_bytes = strlen(name) + 1;
  m_columns =
      static_cast<uchar*>(my_malloc(PSI_NOT_INSTRUMENTED, m_columns_bytes + key_bytes + name_bytes, MYF(MY_WME)));
  if (!m_columns) {
    close();
    return HA_ERR_OUT_OF_MEM;
  }
  m_point_key = m_columns + m_columns_bytes;
  m_path = static_cast<const char*>(memcpy(m_point_key + key_bytes, name, name_bytes));
  m_has_large_columns = has_large_column();
  info(HA_STATUS_NO_LOCK | HA_STATUS_VARIABLE | HA_STATUS_CONST | HA_STATUS_OPEN);
  return 0;
}

int ha_firn::close() {
  free_own();
  if (m_cursor) firn_cursor_close(m_cursor);
  m_cursor = nullptr;
  m_cursor_live = false;
  my_free(m_columns);
  m_columns = m_point_key = nullptr;
  m_path = nullptr;
  if (m_share) {
    lock_shared_ha_data();
    m_share->release();
    unlock_shared_ha_data();
    m_share = nullptr;
  }
  return 0;
}

/*
  A clone lives for one statement: index merge reads each index through a clone. It locks the clone
  for reading even if the statement changes rows, so the clone takes over the original's intent.
*/
handler* ha_firn::clone(const char* name, MEM_ROOT* mem_root) {
  ha_firn* copy = static_cast<ha_firn*>(handler::clone(name, mem_root));
  if (copy) {
    copy->m_is_clone = true;
    copy->m_session = m_session;
    copy->m_intent = m_intent;
    copy->m_intent.semi_consistent = false;
  }
  return copy;
}

/*
  The end of a statement. The session may be gone when the table cache hands this handler out again.
*/
int ha_firn::reset() {
  park();
  /*
    On a replica the server resets temporary tables in the middle of a statement: when it closes a
    system table that it has read for the statement, it marks all temporary tables of the replica as
    free. A scan then goes on from its last key. The end of the lock is the end of the statement.
  */
  if (m_locked && m_share->is_temporary()) {
    m_statement_ends_at_unlock = true;
    return 0;
  }
  forget_statement();
  return 0;
}

/*
  The table cache keeps thousands of handlers, so none of them keeps the memory of long values. As
  with InnoDB, the blobs that the record buffer points to are valid up to here. HANDLER keeps the
  value that it has read last.
*/
void ha_firn::forget_statement() {
  m_statement_ends_at_unlock = false;
  if (table_share->blob_fields && m_cursor) firn_cursor_trim(m_cursor);
  abort_bulk();
  m_session = nullptr;
  m_scan_parked = false;
  m_keyread = false;
  m_write_flags = 0;
}

/* Sorts and writes the rows of a bulk load, which may take as long as inserting them did. */
int ha_firn::end_bulk() {
  if (!m_bulk || !m_session) return 0;
  uint32_t duplicate = 0;
  const firn_status status =
      firn_bulk_end(m_session->core(), m_share->core(), firn::report_progress, m_session->thd(), &duplicate);
  if (status == FIRN_DUPLICATE) note_duplicate(duplicate);
  const int error = firn_error(status);
  /*
    When the server reorganizes partitions, it ignores the error that this function returns. So make
    the commit of the session fail.
  */
  if (error && strstr(m_path, "#P#")) m_session->fail_load();
  abort_bulk();
  return error;
}

void ha_firn::abort_bulk() {
  if (!m_bulk) return;
  m_bulk = false;
  m_bulk_flags = 0;
  if (m_session) (void)firn_bulk_abort(m_session->core(), m_share->core());
}

/*
  Keeps the index for the server's message. A bulk load finds a duplicate when its row is no longer
  in the record buffer, so the core writes it there again.
*/
void ha_firn::note_duplicate(uint32_t index) {
  m_session->note_duplicate(index);
  if (m_bulk && !(m_bulk_flags & FIRN_BULK_ONE_BY_ONE))
    (void)firn_bulk_duplicate(m_session->core(), m_share->core(), table->record[0]);
}

/*
  Whether rows may go into the table by a load, which shows them only at its end. They may not if
  the server itself checks a key, because its check must find the rows that it has just written. A
  load is of no use for a sequence, which has one row.
*/
bool ha_firn::may_load() const { return !is_sequence() && !firn::has_key_checked_by_server(table); }

int ha_firn::extra(enum ha_extra_function operation) {
  switch (operation) {
    case HA_EXTRA_KEYREAD:
      m_keyread = true;
      break;
    case HA_EXTRA_NO_KEYREAD:
      m_keyread = false;
      break;
    case HA_EXTRA_WRITE_CAN_REPLACE:
    case HA_EXTRA_INSERT_WITH_UPDATE:
      m_write_flags |= FIRN_WRITE_LOCK_DUPLICATE_X;
      break;
    case HA_EXTRA_WRITE_CANNOT_REPLACE:
    case HA_EXTRA_NO_IGNORE_DUP_KEY:
      m_write_flags &= ~uint32_t(FIRN_WRITE_LOCK_DUPLICATE_X);
      break;
    case HA_EXTRA_BEGIN_ALTER_IGNORE_COPY:
      if (!may_load()) break;
      m_bulk_flags = FIRN_BULK_ONE_BY_ONE;
      [[fallthrough]];
    case HA_EXTRA_BEGIN_COPY:
      /*
        Do not load a table with a foreign key to itself: a row may refer to an earlier one, which
        the check of the key would not find in the load.
      */
      m_bulk = may_load() && !firn_refers_to_itself(m_share->core());
      break;
    /*
      The server sends this at the end of every INSERT … SELECT, too, without HA_EXTRA_BEGIN_COPY
      before.
    */
    case HA_EXTRA_END_COPY:
      return end_bulk();
    case HA_EXTRA_ABORT_COPY:
      abort_bulk();
      break;
    default:
      break;
  }
  return 0;
}

int ha_firn::firn_error(firn_status status) {
  return m_session ? m_session->to_server_error(status) : firn::to_server_error(status);
}

void ha_firn::print_error(int error, myf flags) {
  THD* thd = ha_thd();
  const char* message = m_session ? m_session->message() : "";
  switch (error) {
    case firn::kErrorReported:
      if (thd_get_error_number(thd)) return;
      break;
    case HA_ERR_CRASHED:
      push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "FIRN: %s", message);
      break;
    default:
      break;
  }
  handler::print_error(error, flags);
}

bool ha_firn::get_error_message(int error, String* text) {
  if (error == HA_ERR_INTERNAL_ERROR && m_session && m_session->message()[0])
    text->copy(m_session->message(), uint32(strlen(m_session->message())), system_charset_info);
  const bool foreign_key =
      error == HA_ERR_ROW_IS_REFERENCED || error == HA_ERR_NO_REFERENCED_ROW || error == HA_ERR_FK_DEPTH_EXCEEDED;
  if (foreign_key && m_session && m_session->broken_table()[0]) {
    text->length(0);
    firn::append_foreign_key(ha_thd(), text, m_session->broken_table(), m_session->broken_key());
  }
  return false;
}
