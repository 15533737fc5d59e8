/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* FIRN_POOL. */

#include "i_s.h"
#include "schema_table.h"

namespace firn {
namespace {

using Show::CEnd;
using Show::Column;
using Show::ULonglong;
using Show::Varchar;

/* Columns of FIRN_POOL, in the order of pool_columns. */
struct PoolColumn {
  enum : uint {
    kNode,
    kWeight,
    kState,
    kBreakerOpened,
    kConnectError,
    kUsed,
    kLimit,
    kItems,
    kEvictions,
    kLatency,
    kP50,
    kP99,
    kGets,
    kHits,
    kHitBytes,
    kMisses,
    kLate,
    kBroken,
    kWrong,
    kPuts,
    kPutBytes,
    kDroppedPuts,
    kClassHitPercents, /* One for each class. */
    kCount = kClassHitPercents + FIRN_POOL_CLASSES
  };
};

ST_FIELD_INFO pool_columns[] = {Column("NODE", Varchar(256), NOT_NULL),
                                Column("WEIGHT", ULonglong(), NOT_NULL),
                                Column("STATE", Varchar(16), NOT_NULL),
                                Column("BREAKER_OPENED", ULonglong(), NOT_NULL),
                                Column("CONNECT_ERROR", Varchar(256), NULLABLE),
                                Column("USED_BYTES", ULonglong(), NOT_NULL),
                                Column("LIMIT_BYTES", ULonglong(), NOT_NULL),
                                Column("ITEMS", ULonglong(), NOT_NULL),
                                Column("EVICTIONS", ULonglong(), NOT_NULL),
                                Column("LATENCY_US", ULonglong(), NOT_NULL),
                                Column("LATENCY_US_P50", ULonglong(), NULLABLE),
                                Column("LATENCY_US_P99", ULonglong(), NULLABLE),
                                Column("GETS", ULonglong(), NOT_NULL),
                                Column("HITS", ULonglong(), NOT_NULL),
                                Column("HIT_BYTES", ULonglong(), NOT_NULL),
                                Column("MISSES", ULonglong(), NOT_NULL),
                                Column("LATE", ULonglong(), NOT_NULL),
                                Column("BROKEN", ULonglong(), NOT_NULL),
                                Column("WRONG", ULonglong(), NOT_NULL),
                                Column("PUTS", ULonglong(), NOT_NULL),
                                Column("PUT_BYTES", ULonglong(), NOT_NULL),
                                Column("DROPPED_PUTS", ULonglong(), NOT_NULL),
                                Column("INDEX_HIT_PERCENT", ULonglong(), NULLABLE),
                                Column("POINT_HIT_PERCENT", ULonglong(), NULLABLE),
                                Column("SHORT_RANGE_HIT_PERCENT", ULonglong(), NULLABLE),
                                Column("BATCHED_KEYS_HIT_PERCENT", ULonglong(), NULLABLE),
                                Column("SCAN_HIT_PERCENT", ULonglong(), NULLABLE),
                                Column("BLOB_HIT_PERCENT", ULonglong(), NULLABLE),
                                CEnd()};
static_assert(array_elements(pool_columns) == PoolColumn::kCount + 1);

const char* state_of(const firn_pool_node_info* node) {
  if (!node->enabled) return "OFF";
  return node->breaker_open ? "UNREACHABLE" : "ON";
}

void add_node(void* context, const firn_pool_node_info* node) {
  SchemaTable* rows = static_cast<SchemaTable*>(context);
  rows->begin();
  rows->store(PoolColumn::kNode, node->address);
  rows->store(PoolColumn::kWeight, node->weight);
  rows->store(PoolColumn::kState, state_of(node));
  rows->store(PoolColumn::kBreakerOpened, node->breaker_opened);
  if (node->connect_error[0]) rows->store(PoolColumn::kConnectError, node->connect_error);
  rows->store(PoolColumn::kUsed, node->used_bytes);
  rows->store(PoolColumn::kLimit, node->limit_bytes);
  rows->store(PoolColumn::kItems, node->items);
  rows->store(PoolColumn::kEvictions, node->evictions);
  rows->store(PoolColumn::kLatency, node->latency_us);
  if (node->latency_us_p50) {
    rows->store_nullable(PoolColumn::kP50, node->latency_us_p50);
    rows->store_nullable(PoolColumn::kP99, node->latency_us_p99);
  }
  rows->store(PoolColumn::kGets, node->gets);
  rows->store(PoolColumn::kHits, node->hits);
  rows->store(PoolColumn::kHitBytes, node->hit_bytes);
  rows->store(PoolColumn::kMisses, node->misses);
  rows->store(PoolColumn::kLate, node->late);
  rows->store(PoolColumn::kBroken, node->broken);
  rows->store(PoolColumn::kWrong, node->wrong);
  rows->store(PoolColumn::kPuts, node->puts);
  rows->store(PoolColumn::kPutBytes, node->put_bytes);
  rows->store(PoolColumn::kDroppedPuts, node->dropped_puts);
  for (uint i = 0; i < FIRN_POOL_CLASSES; i++) {
    const firn_pool_class_info& of = node->classes[i];
    if (of.gets) rows->store_nullable(PoolColumn::kClassHitPercents + i, of.hits * 100 / of.gets);
  }
  rows->add();
}

int fill_pool(THD* thd, TABLE_LIST* tables, COND*) {
  return fill_schema_table(thd, tables, [](void* rows) { return firn_list_pool_nodes(database, add_node, rows); });
}

}  // namespace

int init_firn_pool(void* schema) { return init_schema_table(schema, pool_columns, fill_pool); }

}  // namespace firn
