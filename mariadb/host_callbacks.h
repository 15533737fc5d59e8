/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* What the core asks of the server: error log and lock wait reports. Valid for ever. */
const firn_host* host();

}  // namespace firn
