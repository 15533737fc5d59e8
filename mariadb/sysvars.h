/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn::sysvars {

/* The plugin's system variables, NULL-terminated. */
extern struct st_mysql_sys_var* all[];

/* Seconds a row lock is waited for, in this session. */
unsigned long lock_wait_timeout(THD* thd);
/* The session makes a backup that covers the engine's tables. */
bool backup_client(THD* thd);
/* The log is archived. */
bool log_is_archived();
/* A lock wait timeout rolls the transaction back instead of the statement. */
extern char rollback_on_timeout;
/* Bytes; named in the error of a transaction that is over it. */
extern unsigned long long txn_memory_limit;

/* What the core is opened with. The pointer is valid while the plugin is loaded. */
firn_config config();

}  // namespace firn::sysvars
