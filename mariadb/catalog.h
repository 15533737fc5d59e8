/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* Sets the handlerton's callbacks for whole databases and for the recovery of interrupted DDL. */
void set_catalog_callbacks(handlerton* hton);

}  // namespace firn
