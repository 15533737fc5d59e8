/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* The server's error numbers for the core's status codes. */

#include "errors.h"
#include "log.h"

namespace firn {

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
    case FIRN_FOREIGN_KEY:
      return HA_ERR_CANNOT_ADD_FOREIGN;
    case FIRN_HOST_FAILED:
      return kErrorReported;
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

bool is_result(firn_status status) {
  return status == FIRN_NO_ROW || status == FIRN_END || status == FIRN_DUPLICATE || status == FIRN_SAME_ROW;
}

bool belongs_in_log(firn_status status) {
  return status == FIRN_CORRUPTION || status == FIRN_INVALID || status == FIRN_PANIC;
}

int to_server_error(firn_status status) {
  if (status == FIRN_OK) return 0;
  const int error = error_number(status);
  if (is_result(status)) return error;
  const char* message = firn_last_error();
  if (belongs_in_log(status)) sql_print_error("FIRN: %s", message);
  THD* thd = current_thd;
  /* The server itself says that a statement was killed, or that it has examined enough rows. */
  const bool is_reported = error == HA_ERR_NO_SUCH_TABLE || status == FIRN_FOREIGN_KEY || status == FIRN_HOST_FAILED ||
                           status == FIRN_INTERRUPTED;
  if (thd && message[0] && !is_reported)
    push_warning_printf(thd, Sql_condition::WARN_LEVEL_WARN, ER_GET_ERRMSG, "FIRN: %s", message);
  return error;
}

}  // namespace firn
