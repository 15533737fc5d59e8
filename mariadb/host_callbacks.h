/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  The callbacks of the core into the server: error log, reports of lock waits, waits of threads. The
  object is never freed.
*/
const firn_host* host();

}  // namespace firn
