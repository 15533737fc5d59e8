/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  The callbacks of the core into the server: error log, reports of lock waits, waits of threads. The
  object is never freed.
*/
const firn_host* host();

/*
  Progress of a long call of the core, a `firn_progress`; `context` is the THD. The server begins
  and ends the stage. A kill ends the work.
*/
bool report_progress(void* context, uint64_t done, uint64_t total);

}  // namespace firn
