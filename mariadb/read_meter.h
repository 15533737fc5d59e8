/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  Adds the reads that the thread makes while the object lives to the statistics of a handler, if the
  server wants them: for ANALYZE, and for the slow log with log_slow_verbosity = engine. Otherwise
  it costs one comparison. In these statistics a page is a block, and an undo record is an old
  version or a tombstone that a read passed over.
*/
class ReadMeter {
 public:
  explicit ReadMeter(ha_handler_stats* stats) : stats_(likely(!stats) || !stats->active ? nullptr : stats) {
    if (unlikely(stats_ != nullptr)) before_ = firn_thread_reads();
  }
  ~ReadMeter() {
    if (likely(!stats_)) return;
    const firn_reads now = firn_thread_reads();
    stats_->pages_accessed += now.blocks - before_.blocks;
    stats_->pages_read_count += now.file_reads - before_.file_reads;
    stats_->pages_read_time +=
        ulonglong(double(now.file_read_us - before_.file_read_us) / 1e6 * timer_tracker_frequency());
    stats_->pages_prefetched += now.prefetched - before_.prefetched;
    stats_->undo_records_read += now.passed_over - before_.passed_over;
  }
  ReadMeter(const ReadMeter&) = delete;
  ReadMeter& operator=(const ReadMeter&) = delete;

 private:
  ha_handler_stats* const stats_;
  firn_reads before_;
};

}  // namespace firn
