/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* Drops the table at `path`. Returns 0 or an error of the server. */
int drop_table(const char* path);

/* Sets the handlerton's callbacks for whole databases and for the recovery of interrupted DDL. */
void set_ddl_callbacks(handlerton* hton);

/* The version of the table definition in a .frm image; empty if it has none. */
LEX_CUSTRING version_of(const LEX_CUSTRING* frm);

/*
  Names a kind of key that the server itself checks, by a read before the write. Without gap locks
  two sessions would both find no row. NULL if the table has no such key.
*/
const char* key_without_guard(const TABLE* form);

}  // namespace firn
