/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  The time that the running statement waits for a lock of a row or a gap, in microseconds: the
  session's variable, or the statement's NOWAIT (0) or WAIT n if that is shorter.
*/
uint64_t lock_timeout_us(THD* thd);

/*
  The timeout of a wait that begins now, in microseconds. It is `timeout_us`, the result of
  lock_timeout_us(), with one exception: tools for InnoDB set innodb_lock_wait_timeout in their
  session and expect every wait to end after it. So if the session has set innodb_lock_wait_timeout
  to another value than the global one, and has not set firn_lock_wait_timeout, the former is the
  timeout. The caller holds no mutex of the engine.
*/
uint64_t lock_timeout_of_wait_us(THD* thd, uint64_t timeout_us);

}  // namespace firn
