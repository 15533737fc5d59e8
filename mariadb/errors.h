/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

class Session;

/* Handler functions return this when they have told the client themselves, through my_error(). */
constexpr int kErrorReported = HA_ERR_GENERIC;

/*
  The server's error number for a status of the core. Where the status ends the statement or the transaction (lock wait
  timeout, deadlock), the server is told so here, and a deadlock's victim is rolled back at once: its locks must not
  wait for the client. The core's words are kept in the session for print_error(); `session` may be NULL where there is
  none.
*/
int to_server_error(firn_status status, Session* session);

/* The same where no session takes part (DDL): the core's words go to the client as a warning beside the error. */
int to_server_error(firn_status status);

}  // namespace firn
