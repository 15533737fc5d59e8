/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

class Session;

/*
  Handler functions return this after they have reported an error to the client through my_error().
*/
constexpr int kErrorReported = HA_ERR_GENERIC;

/*
  Translates a status of the core to the server's error number. If the status ends the statement or
  the transaction (lock wait timeout, deadlock), the function marks it for rollback. It rolls a
  deadlock's victim back at once, because its locks must not wait for the client. The session keeps
  the core's text for print_error(). `session` may be NULL.
*/
int to_server_error(firn_status status, Session* session);

/*
  The same without a session (DDL): the client gets the core's text as a warning beside the error.
*/
int to_server_error(firn_status status);

}  // namespace firn
