/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* How long a statement waits for locks: firn_lock_wait_timeout, NOWAIT and WAIT n. */

#include "lock_timeout.h"
#include "sysvars.h"
#include "set_var.h"

namespace firn {

/*
  The parser stores SELECT … NOWAIT and WAIT n in the statement's lock_wait_timeout and in InnoDB's
  variable, but in no other engine's. So the timeout is the shorter one of lock_wait_timeout and
  FIRN's own variable.
*/
uint64_t lock_timeout_us(THD* thd) {
  const uint64_t own = sysvars::lock_wait_timeout(thd);
  const uint64_t statement = thd->variables.lock_wait_timeout;
  return MY_MIN(own, statement) * 1000000;
}

uint64_t lock_timeout_of_wait_us(THD* thd, uint64_t timeout_us) {
  if (sysvars::lock_wait_timeout(thd) != sysvars::lock_wait_timeout(nullptr)) return timeout_us;
  static const LEX_CSTRING name = {STRING_WITH_LEN("innodb_lock_wait_timeout")};
  sys_var* variable = find_sys_var(thd, name.str, name.length, true);
  if (!variable) return timeout_us;
  const LEX_CSTRING base = {nullptr, 0};
  bool is_null = false;
  const auto seconds = uint64_t(variable->val_int(&is_null, thd, OPT_SESSION, &base));
  if (seconds == uint64_t(variable->val_int(&is_null, thd, OPT_GLOBAL, &base))) return timeout_us;
  const uint64_t statement = thd->variables.lock_wait_timeout;
  return MY_MIN(seconds, statement) * 1000000;
}

}  // namespace firn
