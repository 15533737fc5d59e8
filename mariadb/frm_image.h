/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

/* What a .frm image, the server's table definition, says without being opened. */

#include "engine.h"

namespace firn {

/* The version of the table definition; empty if it has none. */
LEX_CUSTRING version_of(const LEX_CUSTRING* frm);

/* The engine of the partitions; empty if the table has none. */
LEX_CUSTRING engine_of_partitions(const LEX_CUSTRING* frm);

/* The engine; empty if the image is damaged or that of a view. */
LEX_CUSTRING engine_of(const LEX_CUSTRING* frm);

}  // namespace firn
