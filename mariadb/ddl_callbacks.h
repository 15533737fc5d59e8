/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* Sets the handlerton's callbacks for whole databases and for the recovery of interrupted DDL. */
void set_ddl_callbacks(handlerton* hton);

/* The version that a .frm image carries; empty if there is none. */
LEX_CUSTRING version_of(const LEX_CUSTRING* frm);

/* Names a key that the server itself checks by reading first: without gap locks two sessions would both find nothing.
 * NULL if there is none. */
const char* key_without_guard(const TABLE* form);

}  // namespace firn
