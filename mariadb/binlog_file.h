/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  The server run, told from others by its binary log. Each run numbers its transactions anew, so the
  core must know which run has prepared a transaction: after a crash, a later run may ask for it,
  and that run does not know it (crates/firn/src/db/in_doubt.rs).

  A transaction that is prepared while a file is noted is in that file or in a later one of the run.
  The server asks for a checkpoint of the binary log for each file that it has left, and before
  RESET MASTER. It deletes no file before the engine has answered, so the note is renewed at that
  request.
*/
namespace binlog_file {

/* Fills in how the server treats prepared transactions when the engine opens. */
void describe_start(firn_config* config);

/*
  Call this when the server is about to change to another binary log file, or has just done so: the
  next note_if_changed() then looks up the current file. Callable from any thread and under any
  lock.
*/
void file_changed();

/*
  Tells the core the current binary log file if it has changed. A thread calls this before it
  prepares a transaction. If the file has not changed, the call costs two loads.
*/
void note_if_changed();

}  // namespace binlog_file
}  // namespace firn
