/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include <my_global.h>
#include "sql_class.h"
#include "table.h"

#include "firn.h"

namespace firn {

/* Computes collation weights for the core; the handle of a collation is its CHARSET_INFO. Valid for ever. */
const firn_collator* collator();

/*
  Describes a collation for the core. Returns NULL, or, in words, why the core could not order text by it: only
  collations are taken whose weights, level by level, compare as the server's own comparison does.
*/
const char* describe_collation(CHARSET_INFO* cs, firn_collation* out);

}  // namespace firn
