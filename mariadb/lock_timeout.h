/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  Time that the running statement waits for a row lock, microseconds: the session's variable, or the
  statement's NOWAIT (0) or WAIT n if that is shorter.
*/
uint64_t lock_timeout_us(THD* thd);

}  // namespace firn
