/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* Drops the table at `path`. Returns 0 or an error of the server. */
int drop_table(const char* path);

/* Sets the handlerton's callbacks for whole databases and for the recovery of interrupted DDL. */
void set_ddl_callbacks(handlerton* hton);

/*
  Whether the table has a key that the server itself checks, by a read before the write: UNIQUE over
  more bytes than a key takes, USING HASH, or a period WITHOUT OVERLAPS.
*/
bool has_key_checked_by_server(const TABLE* form);

}  // namespace firn
