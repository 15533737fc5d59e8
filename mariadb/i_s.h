/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

namespace firn {

/*
  Init functions of the plugins of information_schema. Those in i_s_tables.cc: FIRN_TABLES,
  FIRN_LEVELS.
*/
int init_firn_tables(void* schema);
int init_firn_levels(void* schema);
/* Those in i_s_transactions.cc: FIRN_TRX, FIRN_LOCKS, FIRN_LOCK_WAITS, FIRN_DEADLOCKS. */
int init_firn_trx(void* schema);
int init_firn_locks(void* schema);
int init_firn_lock_waits(void* schema);
int init_firn_deadlocks(void* schema);

/* The one in i_s_pool.cc: FIRN_POOL. */
int init_firn_pool(void* schema);
/* The one in i_s_object_store.cc: FIRN_OBJECT_STORE. */
int init_firn_object_store(void* schema);

/* Those in i_s_storage.cc. */
int init_firn_indexes(void* schema);
int init_firn_files(void* schema);
int init_firn_compactions(void* schema);
int init_firn_io(void* schema);
int init_firn_stalls(void* schema);
int init_firn_memory(void* schema);

}  // namespace firn
