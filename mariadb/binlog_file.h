/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  The run of the server, told from others by its binary log. The server numbers its transactions anew with each start,
  so the core has to know whose transactions are prepared: after a crash it may be asked for them by a later run, which
  knows nothing of them (crates/firn/src/db/in_doubt.rs).

  A transaction that is prepared while a file is named is in that file or in a later one of the run. The name is renewed
  when the server asks for a checkpoint of the binary log: it does so for each file that it has left, and before RESET
  MASTER, and lets go of no file before the answer.
*/
namespace binlog_file {

/* What the server does with prepared transactions when the engine opens. */
void describe_start(firn_config* config);

/* The server goes on to another file, or has done so. From any thread, whatever it holds. */
void file_changed();

/* Before a transaction is prepared, by its thread: costs two loads unless the file has changed. */
void note_if_changed();

}  // namespace binlog_file
}  // namespace firn
