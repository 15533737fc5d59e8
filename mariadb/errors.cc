/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "errors.h"
#include "session.h"
#include "sysvars.h"
#include "log.h"

namespace firn {
namespace {

/* The error number alone, without the effects of to_server_error(). */
int error_number(firn_status status) {
  switch (status) {
    case FIRN_OK:
      return 0;
    case FIRN_NO_ROW:
      return HA_ERR_KEY_NOT_FOUND;
    case FIRN_END:
      return HA_ERR_END_OF_FILE;
    case FIRN_DUPLICATE:
      return HA_ERR_FOUND_DUPP_KEY;
    case FIRN_SAME_ROW:
      return HA_ERR_RECORD_IS_THE_SAME;
    case FIRN_LOCK_TIMEOUT:
    case FIRN_LOCK_NOT_AVAILABLE:
      return HA_ERR_LOCK_WAIT_TIMEOUT;
    case FIRN_DEADLOCK:
      return HA_ERR_LOCK_DEADLOCK;
    case FIRN_INTERRUPTED:
      return HA_ERR_ABORTED_BY_USER;
    case FIRN_TABLE_DEF_CHANGED:
      return HA_ERR_TABLE_DEF_CHANGED;
    case FIRN_NO_TABLE:
      return HA_ERR_NO_SUCH_TABLE;
    case FIRN_TABLE_EXISTS:
      return HA_ERR_TABLE_EXIST;
    case FIRN_AUTOINC_EXHAUSTED:
      return HA_ERR_AUTOINC_ERANGE;
    case FIRN_TOO_LARGE:
      return HA_ERR_TO_BIG_ROW;
    case FIRN_CORRUPTION:
      return HA_ERR_CRASHED;
    case FIRN_NO_SPACE:
      return HA_ERR_DISK_FULL;
    case FIRN_UNSUPPORTED:
      return HA_ERR_UNSUPPORTED;
    case FIRN_DEFINITION_DIFFERS:
    case FIRN_IO:
    case FIRN_POISONED:
    case FIRN_INVALID:
    case FIRN_BUSY:
    case FIRN_SHUTDOWN:
    case FIRN_PANIC:
      break;
  }
  return HA_ERR_INTERNAL_ERROR;
}

/* Whether the engine itself failed, and not the client's request: the error log reports it too. */
bool belongs_in_log(firn_status status) {
  return status == FIRN_CORRUPTION || status == FIRN_INVALID || status == FIRN_PANIC;
}

}  // namespace

int to_server_error(firn_status status, Session* session) {
  if (status == FIRN_OK) return 0;
  if (status == FIRN_NO_ROW || status == FIRN_END || status == FIRN_DUPLICATE || status == FIRN_SAME_ROW)
    return error_number(status);
  if (!session) return to_server_error(status);

  session->keep_message(firn_last_error());
  if (belongs_in_log(status)) sql_print_error("FIRN: %s", session->message());

  int error = error_number(status);
  switch (status) {
    case FIRN_DEADLOCK:
      session->abort_transaction();
      break;
    case FIRN_LOCK_TIMEOUT:
    case FIRN_LOCK_NOT_AVAILABLE:
      if (sysvars::rollback_on_timeout)
        session->abort_transaction();
      else
        session->thd()->mark_transaction_to_rollback(false);
      break;
    case FIRN_INTERRUPTED:
      /*
        The server reports HA_ERR_ABORTED_BY_USER as a kill, so the session must have been killed.
      */
      if (thd_kill_level(session->thd()) == THD_IS_NOT_KILLED) error = HA_ERR_LOCK_WAIT_TIMEOUT;
      session->thd()->mark_transaction_to_rollback(false);
      break;
    case FIRN_TOO_LARGE:
      /* Reports the core's text: the server's own says that BLOBs do not count. */
      my_printf_error(ER_TOO_BIG_ROWSIZE, "FIRN: %s", MYF(0), session->message());
      return kErrorReported;
    default:
      break;
  }
  return error;
}

int to_server_error(firn_status status) {
  if (status == FIRN_OK) return 0;
  const int error = error_number(status);
  const char* message = firn_last_error();
  if (belongs_in_log(status)) sql_print_error("FIRN: %s", message);
  THD* thd = current_thd;
  if (thd && message[0] && error != HA_ERR_NO_SUCH_TABLE)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "FIRN: %s", message);
  return error;
}

}  // namespace firn
