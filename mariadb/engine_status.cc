/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  SHOW ENGINE FIRN STATUS: the core's text, and the latest foreign key error. The core makes its
  text in db/engine_status.rs and db/transaction_reports.rs.
*/

#include "engine_status.h"
#include "foreign_key_errors.h"

namespace firn {
namespace {

void append(void* text, const char* part, size_t length) { static_cast<String*>(text)->append(part, length); }

}  // namespace

bool show_status(handlerton*, THD* thd, stat_print_fn* print, enum ha_stat_type what) {
  if (what != HA_ENGINE_STATUS || !database) return false;
  String text;
  firn_status_text(database, append, &text);
  append_latest_foreign_key_error(&text);
  const LEX_CSTRING* engine = hton_name(hton);
  return print(thd, engine->str, engine->length, STRING_WITH_LEN(""), text.ptr(), text.length());
}

}  // namespace firn
