/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

#include <atomic>

namespace firn {

/*
  State that all handlers of one TABLE_SHARE (or of one partition) share: the table as the core
  opened it. The server owns the object and keeps it as long as the TABLE_SHARE. The core's table is
  open only while a handler is, so that nobody reads a truncated, altered or dropped table through
  an old definition.
*/
class Share : public Handler_share {
 public:
  /*
    Adds a handler; the first one opens the core's table. Returns 0 or an error of the server. The
    caller holds lock_shared_ha_data().
  */
  int acquire(const char* path, const TABLE* table);
  /*
    Removes a handler; the last one closes the core's table. The caller holds lock_shared_ha_data().
  */
  void release();

  firn_table* core() const { return core_; }
  /*
    Whether the table is optimistic: transactions lock nothing in it, and their commits validate
    what they depend on. This changes only while the table is closed.
  */
  bool is_optimistic() const { return optimistic_; }
  /* The table is a temporary one, which one session at a time uses. */
  bool is_temporary() const { return temporary_; }

  /*
    When the last statement that writes to the table began, as far as this object has seen it; 0 if
    it has seen none.
  */
  time_t updated() const { return updated_.load(std::memory_order_relaxed); }
  /*
    Stores each second once. Otherwise all sessions that write to the table would take the cache
    line from each other.
  */
  void written(time_t now) {
    if (updated_.load(std::memory_order_relaxed) != now) updated_.store(now, std::memory_order_relaxed);
  }

  /*
    Whether the caller must make the estimates of rows per key again: there are none, or the table
    has since grown or shrunk by more than a factor of two. Of several concurrent callers only one
    gets true.
  */
  bool claim_estimates(uint64_t rows);
  /* Gives the claim of `rows` back after a failure, so that a later caller makes the estimates. */
  void return_estimates(uint64_t rows);

 private:
  void warn_of_difference(const char* path) const;

  firn_table* core_ = nullptr;
  bool temporary_ = false;
  unsigned handlers_ = 0;
  bool optimistic_ = false;
  std::atomic<time_t> updated_{0};
  std::atomic<uint64_t> rows_at_estimates_{0};
};

}  // namespace firn
