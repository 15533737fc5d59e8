/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include <my_global.h>
#include "sql_class.h"
#include "table.h"

#include "firn.h"

namespace firn {

/*
  Callbacks that compute collation weights for the core. The handle of a collation is its
  CHARSET_INFO. The object is never freed.
*/
const firn_collator* collator();

/*
  Describes a collation for the core. Returns NULL, or a text that says why the core cannot order by
  it. The weights of a collation, level by level, compare as the server's own comparison does.
*/
const char* describe_collation(CHARSET_INFO* cs, firn_collation* out);

}  // namespace firn
