/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

#include "lock_timeout.h"
#include "sysvars.h"

namespace firn {

/*
  SELECT … NOWAIT and WAIT n arrive as the statement's lock_wait_timeout: the
  parser sets it and InnoDB's variable, but no other engine's. So the shorter of the two timeouts
  counts.
*/
uint64_t lock_timeout_us(THD* thd) {
  const uint64_t own = sysvars::lock_wait_timeout(thd);
  const uint64_t statement = thd->variables.lock_wait_timeout;
  return MY_MIN(own, statement) * 1000000;
}

}  // namespace firn
