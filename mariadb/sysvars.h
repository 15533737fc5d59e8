/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn::sysvars {

/* The plugin's system variables, NULL-terminated. */
extern struct st_mysql_sys_var* all[];

/* How long this session waits for a row lock, in seconds. */
unsigned long lock_wait_timeout(THD* thd);
/* Whether the session makes a backup that includes FIRN tables (firn_backup_client). */
bool backup_client(THD* thd);
/* Whether its checkpoints name files of the object store (firn_checkpoint_names_objects). */
bool checkpoint_names_objects(THD* thd);
/* Whether the log archive is on (firn_log_archive_dir). */
bool log_is_archived();
/* A lock wait timeout rolls back the transaction, not only the statement. */
extern char rollback_on_timeout;
/* Bytes of uncommitted changes that a transaction may hold in memory before it spills. */
extern unsigned long long txn_memory_limit;

/* The options that the core is opened with. Its pointers are valid while the plugin is loaded. */
firn_config config();
/* Passes the other options to the core, once it is open. */
void set_core_options();

}  // namespace firn::sysvars
