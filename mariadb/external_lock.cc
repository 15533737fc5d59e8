/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Translates the server's table locks to row locks. The engine has no table locks: metadata locks
  keep DDL away, row locks do the rest. The server passes the type of table lock to store_lock(),
  and tells external_lock() whether the statement reads or writes the table. The types mean what
  they mean to InnoDB.
*/

#include "ha_firn.h"
#include "errors.h"
#include "log.h"

/* Functions that the server exports to engines and no header declares. */
extern "C" int thd_binlog_format(const THD* thd);
extern "C" bool thd_binlog_filter_ok(const THD* thd);
extern "C" bool thd_sqlcom_can_generate_row_events(const THD* thd);

namespace {

/* Statements that only copy or inspect a table, which metadata locks protect from changes. */
bool reads_without_row_locks(int command) {
  switch (command) {
    case SQLCOM_ALTER_TABLE:
    case SQLCOM_CREATE_INDEX:
    case SQLCOM_DROP_INDEX:
    case SQLCOM_OPTIMIZE:
    case SQLCOM_ANALYZE:
    case SQLCOM_CHECK:
    case SQLCOM_CHECKSUM:
    case SQLCOM_CREATE_SEQUENCE:
    case SQLCOM_HA_OPEN:
    case SQLCOM_HA_READ:
      return true;
    default:
      return false;
  }
}

/*
  Statements that may copy the table, or replace it by another one. Metadata locks keep sessions
  away, but a transaction in doubt has no session and thus no metadata lock: its commit would change
  the table that is left behind. So these statements are refused if such a transaction has changed
  the table, and they are refused before they copy anything. Partitions are dropped and renamed only
  after the server has put the new definition in place; a refusal at that point would leave the
  change half done.
*/
bool changes_tables(int command) {
  return command == SQLCOM_ALTER_TABLE || command == SQLCOM_CREATE_INDEX || command == SQLCOM_DROP_INDEX;
}

/* Statements whose plain SELECT part reads a snapshot at READ COMMITTED and below. */
bool selects_from_snapshot_at_read_committed(int command) {
  return command == SQLCOM_INSERT_SELECT || command == SQLCOM_REPLACE_SELECT || command == SQLCOM_UPDATE ||
         command == SQLCOM_CREATE_TABLE;
}

/*
  Whether the statement would be logged as text although the isolation level forbids it. The server
  checks that itself, but not for temporary tables; InnoDB refuses the statement for them as well.
*/
bool is_logged_as_forbidden_text(THD* thd) {
  return thd_tx_isolation(thd) <= ISO_READ_COMMITTED && thd_binlog_format(thd) == BINLOG_FORMAT_STMT &&
         thd_binlog_filter_ok(thd) && thd_sqlcom_can_generate_row_events(thd);
}

}  // namespace

THR_LOCK_DATA** ha_firn::store_lock(THD*, THR_LOCK_DATA** to, enum thr_lock_type lock_type) {
  if (lock_type != TL_IGNORE) m_lock_type = lock_type;
  return to;
}

/* Refuses statements that the engine cannot execute correctly, before they read or write. */
int ha_firn::refuse_unsupported(THD* thd, bool write) {
  if (write && firn::galera_is_on(thd)) {
    my_error(ER_NOT_SUPPORTED_YET, MYF(0), "Galera replication (wsrep_on) of engine FIRN");
    return firn::kErrorReported;
  }
  if (write && m_share->is_temporary() && is_logged_as_forbidden_text(thd)) {
    my_error(ER_BINLOG_STMT_MODE_AND_ROW_ENGINE, MYF(0),
             " FIRN logs rows when the isolation level is READ COMMITTED or READ UNCOMMITTED.");
    return firn::kErrorReported;
  }
  return 0;
}

/*
  How a statement reads a table that it locks, by the rules of InnoDB's store_lock() and
  external_lock(). Tables that its triggers and functions use are locked with it: for them the
  command is the outer one.
*/
firn_read_mode ha_firn::locked_mode(THD* thd, thr_lock_type lock_type, bool write) const {
  const int command = thd_sql_command(thd);
  const bool read_committed = thd_tx_isolation(thd) <= ISO_READ_COMMITTED;
  /*
    A SELECT that is a transaction of its own needs no locks to be serializable: it only reads, and
    all from one snapshot.
  */
  const bool locks_select = thd_tx_isolation(thd) == ISO_SERIALIZABLE && m_session->in_multi_statement_transaction();

  if (write) return FIRN_READ_LOCK_EXCLUSIVE;
  if (reads_without_row_locks(command) && !(command == SQLCOM_CHECKSUM && locks_select)) return FIRN_READ_SNAPSHOT;
  if (lock_type == TL_READ_WITH_SHARED_LOCKS || lock_type == TL_READ_SKIP_LOCKED) return FIRN_READ_LOCK_SHARED;
  /*
    TL_READ_NO_INSERT: the binary log gets the text of a statement that changes rows. A replica
    reads the newest rows when it runs the text, so this server must read and lock them, too.
  */
  if (command == SQLCOM_SELECT && lock_type != TL_READ_NO_INSERT && !locks_select) return FIRN_READ_SNAPSHOT;
  if (read_committed && (lock_type == TL_READ || lock_type == TL_READ_NO_INSERT) &&
      selects_from_snapshot_at_read_committed(command))
    return FIRN_READ_SNAPSHOT;
  return FIRN_READ_LOCK_SHARED;
}

/*
  How a statement reads a table that was locked before it, by the rules of InnoDB's start_stmt(). A
  plain SELECT reads a snapshot. All others, such as the condition of an IF or the value of a
  RETURN, read as the outer statement or LOCK TABLES has decided: a function in a SELECT takes no
  locks.
*/
firn_read_mode ha_firn::nested_mode(THD* thd, thr_lock_type lock_type, bool write) const {
  const int command = thd_sql_command(thd);
  if (write) return FIRN_READ_LOCK_EXCLUSIVE;
  if (reads_without_row_locks(command)) return FIRN_READ_SNAPSHOT;
  if (thd_tx_isolation(thd) != ISO_SERIALIZABLE && command == SQLCOM_SELECT && lock_type == TL_READ)
    return FIRN_READ_SNAPSHOT;
  return m_locked_mode;
}

ReadIntent ha_firn::read_intent(THD* thd, thr_lock_type lock_type, bool write, firn_read_mode mode) const {
  ReadIntent intent;
  /* Only its own session uses a temporary table, so nobody else changes its rows. */
  intent.mode = m_share->is_temporary() ? FIRN_READ_SNAPSHOT : mode;
  if (lock_type == TL_WRITE_SKIP_LOCKED || lock_type == TL_READ_SKIP_LOCKED)
    intent.wait = FIRN_SKIP_LOCKED;
  else
    intent.wait = m_session->no_wait() ? FIRN_NOWAIT : FIRN_WAIT;
  intent.plain = lock_type <= TL_READ;
  /* SELECT … FOR UPDATE locks like a write, but reads only the columns that it selects. */
  intent.whole_row = write && thd_sql_command(thd) != SQLCOM_SELECT;
  intent.gives_back = thd_tx_isolation(thd) <= ISO_READ_COMMITTED && intent.locks();
  return intent;
}

int ha_firn::begin(THD* thd, thr_lock_type lock_type, bool write, bool nested) {
  if (m_statement_ends_at_unlock) forget_statement();
  if (int error = refuse_unsupported(thd, write)) return error;
  m_session = firn::Session::get(thd);
  if (!m_session) return HA_ERR_OUT_OF_MEM;
  if (int error = m_session->begin_statement()) return error;
  if (changes_tables(thd_sql_command(thd)))
    if (int error = firn::to_server_error(firn_refuse_prepared_changes(m_share->core()))) return error;
  if (!nested) m_locked_mode = locked_mode(thd, lock_type, write);
  if (is_sequence())
    m_intent = ReadIntent();
  else if (!m_is_clone)
    m_intent = read_intent(thd, lock_type, write, nested ? nested_mode(thd, lock_type, write) : m_locked_mode);
  if (m_intent.locks() && m_share->is_optimistic()) (void)firn_table_expect_changes(m_share->core(), core_session());
  if (m_intent.whole_row) m_share->written(time(nullptr));
  m_locked = true;
  return 0;
}

int ha_firn::external_lock(THD* thd, int lock_type) {
  if (lock_type == F_UNLCK) {
    m_locked = false;
    park();
    if (m_statement_ends_at_unlock) forget_statement();
    abort_bulk();
    free_own();
    m_session = nullptr;
    return 0;
  }
  return begin(thd, m_lock_type, lock_type == F_WRLCK, false);
}

/*
  The server calls this function instead of external_lock() under LOCK TABLES, and for tables that
  it has locked ahead for triggers and functions.
*/
int ha_firn::start_stmt(THD* thd, thr_lock_type lock_type) {
  return begin(thd, lock_type, lock_type >= TL_FIRST_WRITE, true);
}

/*
  UPDATE asks for semi-consistent reading. As in InnoDB, that has an effect only if locks of rows
  that do not match are released.
*/
void ha_firn::try_semi_consistent_read(bool yes) {
  m_intent.semi_consistent = yes && m_intent.gives_back && m_intent.mode == FIRN_READ_LOCK_EXCLUSIVE;
  if (m_cursor && m_cursor_live) (void)firn_cursor_set_semi_consistent(m_cursor, m_intent.semi_consistent);
}

bool ha_firn::was_semi_consistent_read() {
  return m_intent.semi_consistent && m_cursor_live && firn_cursor_was_semi_consistent(m_cursor);
}

/*
  The server calls this function if the row last read does not match. At READ COMMITTED and below
  the lock of the row is released, if this read took it. In an optimistic table the row is forgotten
  at every isolation level: only rows that match are validated.
*/
void ha_firn::unlock_row() {
  if (!m_cursor_live) return;
  if (m_intent.gives_back) (void)firn_cursor_unlock_row(m_cursor);
  if (m_share->is_optimistic() && m_intent.locks()) (void)firn_cursor_forget_row(m_cursor);
}
