/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  Notes the server's current binary log file in the core, which decides by it after a crash which
  prepared transactions have committed.
*/

#include "binlog_file.h"
#include "log.h"

#include <atomic>
#include <mutex>

namespace firn::binlog_file {
namespace {

/* Number of changes of the binary log file, and that number when the file was last noted. */
std::atomic<uint64_t> changes{1};
std::atomic<uint64_t> noted{0};
std::mutex noting;
/* The number of changes when a failure was last reported. Protected by `noting`. */
uint64_t reported = 0;

/* The server fills LOG_INFO, which may be larger in another patch level: `room` takes the rest. */
struct CurrentLog {
  LOG_INFO info;
  char room[1024];
};

/*
  Tells the core which binary log file is in use, or that there is none. Waits for a group commit
  that writes to the file. Returns the reason if that fails, and otherwise nullptr.
*/
const char* note_current() {
  const char* file = nullptr;
  CurrentLog current = {};
  if (opt_bin_log) {
    if (mysql_bin_log.get_current_log(&current.info) || !current.info.log_file_name[0]) return "no file is open";
    file = current.info.log_file_name;
  }
  return firn_note_server_run(database, file) == FIRN_OK ? nullptr : firn_last_error();
}

/*
  The path of the index file that the server opens. `log_bin_index`, which the server shows, is
  another path if the option names a file with an extension: the server replaces the extension in
  what it shows, but not in what it opens.
*/
const char* index_file() {
  static char path[FN_REFLEN];
  if (!opt_bin_log) return nullptr;
  if (!opt_binlog_index_name) return log_bin_index;
  return fn_format(path, opt_binlog_index_name, mysql_data_home, ".index", MYF(MY_UNPACK_FILENAME));
}

}  // namespace

void describe_start(firn_config* config) {
  config->server_asks = tc_log == nullptr;
  config->server_decides_all = tc_heuristic_recover != 0;
  config->binlog_index = index_file();
}

void file_changed() { changes.fetch_add(1, std::memory_order_release); }

void note_if_changed() {
  if (noted.load(std::memory_order_acquire) == changes.load(std::memory_order_acquire)) return;
  std::lock_guard<std::mutex> lock(noting);
  const uint64_t now = changes.load(std::memory_order_acquire);
  if (noted.load(std::memory_order_relaxed) == now) return;
  /* Try twice: RESET MASTER may have removed the file after the server named it the first time. */
  const char* failure = note_current();
  if (failure) failure = note_current();
  if (!failure) {
    noted.store(now, std::memory_order_release);
    return;
  }
  /*
    The next call tries again. Until one succeeds, the core may not know the server run of the
    transactions that are prepared meanwhile.
  */
  if (reported == now) return;
  reported = now;
  sql_print_warning(
      "FIRN: cannot read the binary log in use, which a start without the engine makes necessary later: %s", failure);
}

}  // namespace firn::binlog_file
