/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  Appends the foreign key `name` of the table `table` (a name of the core's catalog) as errors show
  it.
*/
void append_foreign_key(THD* thd, String* text, const char* table, const char* name);

/*
  The first function keeps the text of the latest foreign key error; the second one appends that
  text to `text`, which SHOW ENGINE FIRN STATUS shows.
*/
void keep_latest_foreign_key_error(THD* thd, const char* text);
void append_latest_foreign_key_error(String* text);

}  // namespace firn
