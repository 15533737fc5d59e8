/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* Sets the handlerton's transaction callbacks. */
void set_transaction_callbacks(handlerton* hton);

}  // namespace firn
