/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/* The server's .frm and .par files, and the error log, for the end of interrupted DDL. */
extern const firn_definition_files definition_files;

/* Removes the files of copies in `schema` with partitions and no definition, or an empty one. */
void remove_stray_partitions(const char* schema);

}  // namespace firn
