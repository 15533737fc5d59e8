/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

#include <string>

namespace firn {

/* The texts of foreign keys as SQL shows them, in SHOW CREATE TABLE and in errors. */

/* The database of the table `name` (a name of the core's catalog). */
std::string database_of(const char* name);

/* A table of the core's catalog as SQL names it, with its database. */
void append_table_name(THD* thd, String* text, const char* table, bool with_database = true);

/*
  The foreign key as in a CREATE TABLE, from CONSTRAINT on. The core calls it, so it must not throw.
*/
void append_foreign_key_definition(THD* thd, String* text, const firn_foreign_key_info* key);

}  // namespace firn
