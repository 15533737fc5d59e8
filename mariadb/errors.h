/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  Handler functions return this after they have reported an error to the client through my_error().
*/
constexpr int kErrorReported = HA_ERR_GENERIC;

/*
  The server's error number for a status of the core. Unlike to_server_error(), it gives no warning.
*/
int error_number(firn_status status);

/* Whether the status is a result that a statement expects, such as the end of a scan. */
bool is_result(firn_status status);

/* Whether the engine itself failed, and not the client's request: the error log reports it too. */
bool belongs_in_log(firn_status status);

/*
  Translates a status outside of a session (DDL): the client gets the core's text as a warning
  beside the error. Session::to_server_error() translates within one.
*/
int to_server_error(firn_status status);

}  // namespace firn
