/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

#include <atomic>

namespace firn {

/*
  What all handlers of one TABLE_SHARE (of one partition) have in common: the table as the core opened it. The server
  owns the object and keeps it as long as the TABLE_SHARE; the core's table is open only while a handler is, so that a
  table that was truncated, altered or dropped is never seen through an old definition.
*/
class Share : public Handler_share {
 public:
  /* One more handler; the first one opens the core's table. The caller holds lock_shared_ha_data(). */
  int acquire(const char* path, const TABLE* table);
  /* One handler less; the last one closes the core's table. The caller holds lock_shared_ha_data(). */
  void release();

  firn_table* core() const { return core_; }

  /* When the table was last written to, as far as this server remembers; 0 if it does not. */
  time_t updated() const { return updated_.load(std::memory_order_relaxed); }
  void written(time_t now) { updated_.store(now, std::memory_order_relaxed); }

  /*
    Whether the estimates of rows per key were made for a table of another size (or never) and are the caller's to make
    again: of several callers one is told so.
  */
  bool claim_estimates(uint64_t rows);

 private:
  void warn_of_difference(const char* path) const;

  firn_table* core_ = nullptr;
  unsigned handlers_ = 0;
  std::atomic<time_t> updated_{0};
  std::atomic<uint64_t> rows_at_estimates_{0};
};

}  // namespace firn
