/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* information_schema.FIRN_TRX, FIRN_LOCKS, FIRN_LOCK_WAITS and FIRN_DEADLOCKS. */

#include "i_s.h"
#include "schema_table.h"

namespace firn {
namespace {

using Show::CEnd;
using Show::Column;
using Show::Datetime;
using Show::ULonglong;
using Show::Varchar;

constexpr uint kStatementChars = 1024;
constexpr uint kKeyChars = 1024;

const char* isolation_name(firn_isolation isolation) {
  switch (isolation) {
    case FIRN_READ_UNCOMMITTED:
      return "READ UNCOMMITTED";
    case FIRN_READ_COMMITTED:
      return "READ COMMITTED";
    case FIRN_REPEATABLE_READ:
      return "REPEATABLE READ";
    case FIRN_SERIALIZABLE:
      return "SERIALIZABLE";
  }
  return "";
}

const char* state_name(firn_trx_state state) {
  switch (state) {
    case FIRN_TRX_RUNNING:
      return "RUNNING";
    case FIRN_TRX_LOCK_WAIT:
      return "LOCK WAIT";
    case FIRN_TRX_PREPARED:
      return "PREPARED";
    case FIRN_TRX_COMMITTING:
      return "COMMITTING";
  }
  return "";
}

/* The modes as information_schema.INNODB_LOCKS names them. */
const char* kind_name(firn_lock_kind kind) {
  switch (kind) {
    case FIRN_LOCK_SHARED:
      return "S";
    case FIRN_LOCK_EXCLUSIVE:
      return "X";
    case FIRN_LOCK_GAP:
      return "GAP";
    case FIRN_LOCK_INSERT_INTENTION:
      return "INSERT_INTENTION";
  }
  return "";
}

/* Columns of FIRN_TRX, in the order of trx_columns. */
struct TrxColumn {
  enum : uint {
    kId,
    kState,
    kStarted,
    kWaitStarted,
    kThreadId,
    kQuery,
    kIsolation,
    kRowsLocked,
    kGapsLocked,
    kRowsModified,
    kWeight,
    kWriteBytes,
    kSnapshotTaken,
    kSnapshotCommits,
    kCount
  };
};

ST_FIELD_INFO trx_columns[] = {Column("TRX_ID", ULonglong(), NOT_NULL),
                               Column("TRX_STATE", Varchar(16), NOT_NULL),
                               Column("TRX_STARTED", Datetime(0), NOT_NULL),
                               Column("TRX_WAIT_STARTED", Datetime(0), NULLABLE),
                               Column("TRX_MYSQL_THREAD_ID", ULonglong(), NOT_NULL),
                               Column("TRX_QUERY", Varchar(kStatementChars), NULLABLE),
                               Column("TRX_ISOLATION_LEVEL", Varchar(16), NOT_NULL),
                               Column("TRX_ROWS_LOCKED", ULonglong(), NOT_NULL),
                               Column("TRX_GAPS_LOCKED", ULonglong(), NOT_NULL),
                               Column("TRX_ROWS_MODIFIED", ULonglong(), NOT_NULL),
                               Column("TRX_WEIGHT", ULonglong(), NOT_NULL),
                               Column("TRX_WRITE_BYTES", ULonglong(), NOT_NULL),
                               Column("TRX_SNAPSHOT_TAKEN", Datetime(0), NULLABLE),
                               Column("TRX_SNAPSHOT_COMMITS", ULonglong(), NOT_NULL),
                               CEnd()};
static_assert(array_elements(trx_columns) == TrxColumn::kCount + 1);

void add_trx(void* context, const firn_trx_info* trx) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  rows->begin();
  rows->store(TrxColumn::kId, trx->id);
  rows->store(TrxColumn::kState, state_name(trx->state));
  rows->store_time(TrxColumn::kStarted, trx->begun_us);
  rows->store_time(TrxColumn::kWaitStarted, trx->wait_begun_us);
  rows->store(TrxColumn::kThreadId, trx->session);
  if (trx->statement) rows->store(TrxColumn::kQuery, trx->statement);
  rows->store(TrxColumn::kIsolation, isolation_name(trx->isolation));
  rows->store(TrxColumn::kRowsLocked, trx->rows_locked);
  rows->store(TrxColumn::kGapsLocked, trx->gaps_locked);
  rows->store(TrxColumn::kRowsModified, trx->rows_changed);
  rows->store(TrxColumn::kWeight, trx->weight);
  rows->store(TrxColumn::kWriteBytes, trx->write_bytes);
  rows->store_time(TrxColumn::kSnapshotTaken, trx->snapshot_us);
  rows->store(TrxColumn::kSnapshotCommits, trx->snapshot_commits);
  rows->add();
}

/* Columns of FIRN_LOCKS, in the order of locks_columns. */
struct LocksColumn {
  enum : uint { kTrxId, kThreadId, kMode, kSchema, kTable, kIndex, kRows, kData, kEnd, kCount };
};

ST_FIELD_INFO locks_columns[] = {Column("LOCK_TRX_ID", ULonglong(), NOT_NULL),
                                 Column("LOCK_MYSQL_THREAD_ID", ULonglong(), NOT_NULL),
                                 Column("LOCK_MODE", Varchar(16), NOT_NULL),
                                 Column("LOCK_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                 Column("LOCK_TABLE", Varchar(kTableNameChars), NOT_NULL),
                                 Column("LOCK_INDEX", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                 Column("LOCK_ROWS", ULonglong(), NOT_NULL),
                                 Column("LOCK_DATA", Varchar(kKeyChars), NOT_NULL),
                                 Column("LOCK_END", Varchar(kKeyChars), NULLABLE),
                                 CEnd()};
static_assert(array_elements(locks_columns) == LocksColumn::kCount + 1);

void add_lock(void* context, const firn_lock_info* lock) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  char schema[kSchemaNameSize], table[kTableNameSize];
  decode_table_name(lock->table_name, schema, table);
  rows->begin();
  rows->store(LocksColumn::kTrxId, lock->trx);
  rows->store(LocksColumn::kThreadId, lock->session);
  rows->store(LocksColumn::kMode, kind_name(lock->kind));
  rows->store(LocksColumn::kSchema, schema);
  rows->store(LocksColumn::kTable, table);
  rows->store(LocksColumn::kIndex, lock->index_name);
  rows->store(LocksColumn::kRows, lock->rows);
  rows->store(LocksColumn::kData, lock->key);
  if (lock->last_key) rows->store(LocksColumn::kEnd, lock->last_key);
  rows->add();
}

/* Columns of FIRN_LOCK_WAITS, in the order of waits_columns. */
struct WaitsColumn {
  enum : uint {
    kTrxId,
    kThreadId,
    kMode,
    kSchema,
    kTable,
    kIndex,
    kData,
    kStarted,
    kBlockingTrxId,
    kBlockingThreadId,
    kCount
  };
};

ST_FIELD_INFO waits_columns[] = {Column("REQUESTING_TRX_ID", ULonglong(), NOT_NULL),
                                 Column("REQUESTING_MYSQL_THREAD_ID", ULonglong(), NOT_NULL),
                                 Column("REQUESTED_LOCK_MODE", Varchar(16), NOT_NULL),
                                 Column("LOCK_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                 Column("LOCK_TABLE", Varchar(kTableNameChars), NOT_NULL),
                                 Column("LOCK_INDEX", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                 Column("LOCK_DATA", Varchar(kKeyChars), NOT_NULL),
                                 Column("WAIT_STARTED", Datetime(0), NOT_NULL),
                                 Column("BLOCKING_TRX_ID", ULonglong(), NOT_NULL),
                                 Column("BLOCKING_MYSQL_THREAD_ID", ULonglong(), NOT_NULL),
                                 CEnd()};
static_assert(array_elements(waits_columns) == WaitsColumn::kCount + 1);

void add_wait(void* context, const firn_lock_info* wait) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  char schema[kSchemaNameSize], table[kTableNameSize];
  decode_table_name(wait->table_name, schema, table);
  rows->begin();
  rows->store(WaitsColumn::kTrxId, wait->trx);
  rows->store(WaitsColumn::kThreadId, wait->session);
  rows->store(WaitsColumn::kMode, kind_name(wait->kind));
  rows->store(WaitsColumn::kSchema, schema);
  rows->store(WaitsColumn::kTable, table);
  rows->store(WaitsColumn::kIndex, wait->index_name);
  rows->store(WaitsColumn::kData, wait->key);
  rows->store_time(WaitsColumn::kStarted, wait->wait_begun_us);
  rows->store(WaitsColumn::kBlockingTrxId, wait->blocker);
  rows->store(WaitsColumn::kBlockingThreadId, wait->blocker_session);
  rows->add();
}

/* Columns of FIRN_DEADLOCKS, in the order of deadlocks_columns. */
struct DeadlocksColumn {
  enum : uint {
    kId,
    kTime,
    kTrxId,
    kThreadId,
    kVictim,
    kWeight,
    kMode,
    kSchema,
    kTable,
    kIndex,
    kData,
    kBlockingTrxId,
    kQuery,
    kCount
  };
};

ST_FIELD_INFO deadlocks_columns[] = {Column("DEADLOCK_ID", ULonglong(), NOT_NULL),
                                     Column("DEADLOCK_TIME", Datetime(0), NOT_NULL),
                                     Column("TRX_ID", ULonglong(), NOT_NULL),
                                     Column("TRX_MYSQL_THREAD_ID", ULonglong(), NOT_NULL),
                                     Column("IS_VICTIM", Varchar(3), NOT_NULL),
                                     Column("TRX_WEIGHT", ULonglong(), NOT_NULL),
                                     Column("REQUESTED_LOCK_MODE", Varchar(16), NOT_NULL),
                                     Column("LOCK_SCHEMA", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                     Column("LOCK_TABLE", Varchar(kTableNameChars), NOT_NULL),
                                     Column("LOCK_INDEX", Varchar(NAME_CHAR_LEN), NOT_NULL),
                                     Column("LOCK_DATA", Varchar(kKeyChars), NOT_NULL),
                                     Column("BLOCKING_TRX_ID", ULonglong(), NOT_NULL),
                                     Column("TRX_QUERY", Varchar(kStatementChars), NULLABLE),
                                     CEnd()};
static_assert(array_elements(deadlocks_columns) == DeadlocksColumn::kCount + 1);

void add_deadlock(void* context, const firn_deadlock_info* member) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  char schema[kSchemaNameSize], table[kTableNameSize];
  decode_table_name(member->table_name, schema, table);
  rows->begin();
  rows->store(DeadlocksColumn::kId, member->number);
  rows->store_time(DeadlocksColumn::kTime, member->at_us);
  rows->store(DeadlocksColumn::kTrxId, member->trx);
  rows->store(DeadlocksColumn::kThreadId, member->session);
  rows->store(DeadlocksColumn::kVictim, member->is_victim ? "YES" : "NO");
  rows->store(DeadlocksColumn::kWeight, member->weight);
  rows->store(DeadlocksColumn::kMode, kind_name(member->kind));
  rows->store(DeadlocksColumn::kSchema, schema);
  rows->store(DeadlocksColumn::kTable, table);
  rows->store(DeadlocksColumn::kIndex, member->index_name);
  rows->store(DeadlocksColumn::kData, member->key);
  rows->store(DeadlocksColumn::kBlockingTrxId, member->blocker);
  if (member->statement) rows->store(DeadlocksColumn::kQuery, member->statement);
  rows->add();
}

int fill_trx(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_transactions(database, add_trx, rows); });
}

int fill_locks(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_locks(database, false, add_lock, rows); });
}

int fill_lock_waits(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_locks(database, true, add_wait, rows); });
}

int fill_deadlocks(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_deadlocks(database, add_deadlock, rows); });
}

}  // namespace

int init_firn_trx(void* schema) { return init_schema_table(schema, trx_columns, fill_trx); }

int init_firn_locks(void* schema) { return init_schema_table(schema, locks_columns, fill_locks); }

int init_firn_lock_waits(void* schema) { return init_schema_table(schema, waits_columns, fill_lock_waits); }

int init_firn_deadlocks(void* schema) { return init_schema_table(schema, deadlocks_columns, fill_deadlocks); }

}  // namespace firn
