/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* The system variables: names, defaults, ranges, help texts and check functions. */

#include "sysvars.h"
#include "checkpoint.h"
#include "log.h"
#include "mysqld.h"
#include "sys_vars_shared.h"

#include <string>

namespace firn::sysvars {

char rollback_on_timeout;
unsigned long long txn_memory_limit;

namespace {

constexpr unsigned long long kMiB = 1ULL << 20;
constexpr unsigned long long kMaxSize = 1ULL << 46;
constexpr unsigned long long kMemoryLimitMin = 8 * kMiB;

char* data_dir;
unsigned long long memory_limit;
unsigned long long block_cache_size;
unsigned long long row_cache_size;
unsigned long long memtable_size;
unsigned long long wal_segment_size;
unsigned long long blob_threshold;
unsigned int flush_log_at_trx_commit;
unsigned int max_background_jobs;
char direct_io;
char direct_reads;
unsigned long long background_io_rate;
char* checkpoint;
char* armed_checkpoint;
char* log_archive_dir;
char* debug_disk;
char pool;
char* pool_nodes;
char* pool_key_file;
char* pool_tls_ca;
char* pool_tls_cert;
char* pool_tls_key;
char* storage_url;
unsigned long tier;
unsigned int cold_after;
unsigned long long file_cache_size;
unsigned int log_archive_timeout;
char deadlock_detect;
char print_all_deadlocks;
unsigned long long snapshot_age_warning;
unsigned long long max_wal_size;
unsigned long long open_files;

MYSQL_SYSVAR_STR(data_dir, data_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                 "Directory of the engine's files; a relative path starts at datadir.", nullptr, nullptr, "#firn");

/* Passes the value to the core first: the variable keeps its old value if the core refuses. */
template <typename Number, firn_option Option>
void update(THD*, st_mysql_sys_var*, void* variable, const void* save) {
  const Number value = *static_cast<const Number*>(save);
  if (firn_set_option(database, Option, value) == FIRN_OK)
    *static_cast<Number*>(variable) = value;
  else
    my_printf_error(ER_GET_ERRMSG, "FIRN: %s", MYF(0), firn_last_error());
}

/*
  A limit is 0 or at least the minimum. The server's variables cannot express such a range, and
  their rounding to whole MiB would turn a small limit into 0, which means none.
*/
unsigned long long possible_memory_limit(unsigned long long asked) {
  if (asked == 0) return 0;
  return MY_MIN(MY_MAX(asked, kMemoryLimitMin), kMaxSize) / kMiB * kMiB;
}

int check_memory_limit(THD* thd, st_mysql_sys_var*, void* save, st_mysql_value* value) {
  long long asked = 0;
  if (value->val_int(value, &asked)) return 1;
  const bool is_unsigned = value->is_unsigned(value) != 0;
  const bool negative = !is_unsigned && asked < 0;
  const unsigned long long possible = negative ? kMemoryLimitMin : possible_memory_limit(asked);
  *static_cast<unsigned long long*>(save) = possible;
  const bool adjusted = negative || possible != static_cast<unsigned long long>(asked);
  return throw_bounds_warning(thd, "firn_memory_limit", adjusted, is_unsigned, asked);
}

MYSQL_SYSVAR_ULONGLONG(memory_limit, memory_limit, PLUGIN_VAR_RQCMDARG,
                       "Memory of the engine, in bytes. The sizes of the caches follow from it, memtables are flushed "
                       "earlier, and large transactions write to files earlier. 0 = no limit, each part has its own "
                       "size; the least limit is 8 MiB.",
                       check_memory_limit, (update<unsigned long long, FIRN_OPTION_MEMORY_LIMIT>), 0, 0, kMaxSize, 1);

MYSQL_SYSVAR_ULONGLONG(row_cache_size, row_cache_size, PLUGIN_VAR_RQCMDARG,
                       "Memory for single rows that are read again and again, in bytes; 0 = none. Without effect "
                       "under firn_memory_limit.",
                       nullptr, (update<unsigned long long, FIRN_OPTION_ROW_CACHE_SIZE>), 32 * kMiB, 0, kMaxSize, kMiB);

MYSQL_SYSVAR_ULONGLONG(block_cache_size, block_cache_size, PLUGIN_VAR_RQCMDARG,
                       "Memory for decoded blocks of table files, in bytes. Without effect under firn_memory_limit.",
                       nullptr, (update<unsigned long long, FIRN_OPTION_BLOCK_CACHE_SIZE>), 128 * kMiB, 8 * kMiB,
                       kMaxSize, kMiB);

MYSQL_SYSVAR_ULONGLONG(
    memtable_size, memtable_size, PLUGIN_VAR_RQCMDARG,
    "Changes are collected in memory up to this many bytes and then written to a sorted file. A transaction "
    "with more changes than half of this, and than half of firn_wal_segment_size, writes files of its own.",
    nullptr, (update<unsigned long long, FIRN_OPTION_MEMTABLE_SIZE>), 64 * kMiB, kMiB, kMaxSize, kMiB);

MYSQL_SYSVAR_ULONGLONG(
    txn_memory_limit, txn_memory_limit, PLUGIN_VAR_RQCMDARG,
    "A transaction may hold this many bytes of uncommitted changes in memory; what it changes beyond that is "
    "written to files of its own, which the commit makes visible. The size of a transaction has no limit. Under "
    "firn_memory_limit it may be less.",
    nullptr, (update<unsigned long long, FIRN_OPTION_TXN_MEMORY_LIMIT>), 64 * kMiB, kMiB, kMaxSize, kMiB);

MYSQL_SYSVAR_ULONGLONG(
    blob_threshold, blob_threshold, PLUGIN_VAR_RQCMDARG,
    "Values of BLOB, TEXT, JSON and long VARCHAR columns of this many bytes and more are written to "
    "files of their own, beside the rows; values of 16 MiB and more always are. Holds for values written "
    "from now on.",
    nullptr, (update<unsigned long long, FIRN_OPTION_BLOB_THRESHOLD>), 4096, 256, 4ULL << 30, 1);

MYSQL_SYSVAR_ULONGLONG(wal_segment_size, wal_segment_size, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                       "Size of one file of the write-ahead log, in bytes.", nullptr, nullptr, 16 * kMiB, 4 * kMiB,
                       1024 * kMiB, kMiB);

MYSQL_SYSVAR_ULONGLONG(max_wal_size, max_wal_size, PLUGIN_VAR_RQCMDARG,
                       "The write-ahead log that a start after a crash would read is kept at about this many bytes: "
                       "changes in memory are written to sorted files once half of it has piled up behind them, and "
                       "transactions that stay prepared for long are logged again.",
                       nullptr, (update<unsigned long long, FIRN_OPTION_MAX_WAL_SIZE>), 1024 * kMiB, 16 * kMiB,
                       kMaxSize, kMiB);

MYSQL_SYSVAR_ULONGLONG(open_files, open_files, PLUGIN_VAR_RQCMDARG,
                       "At most so many sorted files and blob files are open for reading; others are closed and opened "
                       "again when they are read. 0 = half of the process's limit on open files (open_files_limit).",
                       nullptr, (update<unsigned long long, FIRN_OPTION_OPEN_FILES>), 0, 0, 1ULL << 30, 1);

MYSQL_SYSVAR_UINT(
    flush_log_at_trx_commit, flush_log_at_trx_commit, PLUGIN_VAR_RQCMDARG,
    "What a commit waits for: 1 = the log is on the device, 2 = the log is with the operating system and on "
    "the device within a second, 0 = nothing, both happen within a second. A crash of the server loses "
    "nothing at 1 and 2, a power cut nothing at 1.",
    nullptr, (update<unsigned int, FIRN_OPTION_FLUSH_MODE>), 1, 0, 2, 0);

MYSQL_THDVAR_ULONG(
    lock_wait_timeout, PLUGIN_VAR_RQCMDARG,
    "Seconds to wait for a row lock; then the statement fails with error 1205. A shorter lock_wait_timeout, "
    "as SELECT ... WAIT n sets it, counts instead.",
    nullptr, nullptr, 50, 0, 1024UL * 1024 * 1024, 0);

MYSQL_SYSVAR_BOOL(rollback_on_timeout, rollback_on_timeout, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                  "A lock wait timeout rolls back the whole transaction instead of the statement.", nullptr, nullptr,
                  false);

MYSQL_SYSVAR_BOOL(deadlock_detect, deadlock_detect, PLUGIN_VAR_OPCMDARG,
                  "Search for deadlocks when a lock wait begins, and roll back one of their transactions at once. Off: "
                  "the transactions of a deadlock wait until firn_lock_wait_timeout is over.",
                  nullptr, (update<char, FIRN_OPTION_DEADLOCK_DETECT>), true);

MYSQL_SYSVAR_BOOL(print_all_deadlocks, print_all_deadlocks, PLUGIN_VAR_OPCMDARG,
                  "Write every deadlock to the error log. The last ten are in information_schema.FIRN_DEADLOCKS.",
                  nullptr, (update<char, FIRN_OPTION_PRINT_ALL_DEADLOCKS>), false);

MYSQL_SYSVAR_ULONGLONG(snapshot_age_warning, snapshot_age_warning, PLUGIN_VAR_RQCMDARG,
                       "The error log gets a warning when a transaction has kept its snapshot for so many seconds, "
                       "since old versions of rows are kept for it; 0 = none.",
                       nullptr, (update<unsigned long long, FIRN_OPTION_SNAPSHOT_AGE_WARNING>), 3600, 0, 1ULL << 40, 1);

MYSQL_SYSVAR_UINT(max_background_jobs, max_background_jobs, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                  "Threads that compact table files in the background.", nullptr, nullptr, 2, 1, 64, 0);

MYSQL_SYSVAR_BOOL(direct_io, direct_io, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                  "Write the log past the page cache of the operating system, where the file system can and a commit "
                  "waits for the device.",
                  nullptr, nullptr, true);

MYSQL_SYSVAR_BOOL(direct_reads, direct_reads, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_READONLY,
                  "Read table files past the page cache of the operating system, where the file system can: the "
                  "engine's caches are all the memory there is for them.",
                  nullptr, nullptr, false);

MYSQL_SYSVAR_ULONGLONG(background_io_rate, background_io_rate, PLUGIN_VAR_RQCMDARG,
                       "Flushes and compactions read and write so many bytes a second at most, flushes first; 0 = no "
                       "limit.",
                       nullptr, (update<unsigned long long, FIRN_OPTION_BACKGROUND_IO_RATE>), 0, 0, kMaxSize, 1);

MYSQL_SYSVAR_STR(
    log_archive_dir, log_archive_dir, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "Directory, which must exist, that gets every segment of the write-ahead log when it is closed, and the "
    "files that it names: for 'firn restore --until-time'. Empty = none. Best on the file system of the "
    "data directory, where files are linked. While it cannot be written the log keeps its segments.",
    nullptr, nullptr, "");

MYSQL_SYSVAR_UINT(
    log_archive_timeout, log_archive_timeout, PLUGIN_VAR_RQCMDARG,
    "With firn_log_archive_dir: a segment of the log that anything was written to is closed, and archived, "
    "after so many seconds.",
    nullptr, (update<unsigned int, FIRN_OPTION_LOG_ARCHIVE_TIMEOUT>), 60, 1, 86400, 0);

MYSQL_SYSVAR_STR(debug_disk, debug_disk, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                 "For tests: reads and syncs of files take as long as on a disk of this speed, for instance '120us' "
                 "(latency of each operation) or '500us,3000iops,125MBps'. Empty = off.",
                 nullptr, nullptr, "");

/* The value of firn_pool_nodes: the variable points here once it was set. */
std::string pool_nodes_text;

/* Reports a list of nodes that the core has refused. */
void report_wrong_nodes() {
  my_printf_error(ER_WRONG_VALUE_FOR_VAR, "FIRN: firn_pool_nodes: %s", MYF(0), firn_last_error());
}

int check_pool_nodes(THD* thd, st_mysql_sys_var*, void* save, st_mysql_value* value) {
  char buffer[512];
  int length = sizeof(buffer);
  const char* text = value->val_str(value, buffer, &length);
  /* The text may lie in the buffer. */
  text = text ? thd_strmake(thd, text, size_t(length)) : "";
  if (!text) return 1;
  *static_cast<const char**>(save) = text;
  if (firn_check_pool_nodes(text) == FIRN_OK) return 0;
  report_wrong_nodes();
  return 1;
}

/* Called with LOCK_global_system_variables, as readers of the variable are. */
void update_pool_nodes(THD*, st_mysql_sys_var*, void* variable, const void* save) {
  const char* text = *static_cast<char* const*>(save);
  if (firn_set_pool_nodes(database, text) != FIRN_OK) return report_wrong_nodes();
  pool_nodes_text = text;
  *static_cast<const char**>(variable) = pool_nodes_text.c_str();
}

void update_pool(THD*, st_mysql_sys_var*, void* variable, const void* save) {
  const char on = *static_cast<const char*>(save);
  if (firn_set_pool_enabled(database, on != 0) == FIRN_OK)
    *static_cast<char*>(variable) = on;
  else
    my_printf_error(ER_GET_ERRMSG, "FIRN: %s", MYF(0), firn_last_error());
}

MYSQL_SYSVAR_BOOL(pool, pool, PLUGIN_VAR_OPCMDARG,
                  "Blocks of table files that the block cache does not have are looked up in the memory pool, the "
                  "memcached nodes of firn_pool_nodes, before they are read from the disk.",
                  nullptr, update_pool, false);

MYSQL_SYSVAR_STR(pool_nodes, pool_nodes, PLUGIN_VAR_RQCMDARG,
                 "The memcached nodes of the memory pool, apart by commas: host:port, [IPv6]:port, one of these "
                 "behind tls:, or unix:/path, each with *weight behind it if that is not 1. Empty = none.",
                 check_pool_nodes, update_pool_nodes, "");

MYSQL_SYSVAR_STR(pool_key_file, pool_key_file, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                 "File with the key under which blocks in the memory pool are encrypted: 64 hexadecimal digits, the "
                 "same on all servers that share the nodes. Only its owner may have access to it. Empty = none.",
                 nullptr, nullptr, "");

MYSQL_SYSVAR_STR(
    pool_tls_ca, pool_tls_ca, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "File (PEM) with the certificates of the authorities that sign those of the nodes behind tls:. Empty = "
    "those of the system.",
    nullptr, nullptr, "");

MYSQL_SYSVAR_STR(
    pool_tls_cert, pool_tls_cert, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "File (PEM) with the chain of certificates that nodes behind tls: are shown if they ask for it. Empty = "
    "none.",
    nullptr, nullptr, "");

MYSQL_SYSVAR_STR(pool_tls_key, pool_tls_key, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
                 "File (PEM) with the private key of firn_pool_tls_cert.", nullptr, nullptr, "");

MYSQL_SYSVAR_STR(
    storage_url, storage_url, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_READONLY,
    "Object store of files that nobody reads, see firn_tier: s3://bucket/prefix for an S3-compatible store, "
    "with ?endpoint=http://host:port for one that is not AWS, or file:///directory, which must exist. Empty = "
    "none.",
    nullptr, nullptr, "");

const char* tier_names[] = {"local", "cold", "all", nullptr};
TYPELIB tiers = {array_elements(tier_names) - 1, "", tier_names, nullptr};

/* A value that the core would refuse fails in the check, so that the statement fails. */
int check_tier(THD*, st_mysql_sys_var*, void* save, st_mysql_value* value) {
  char buffer[16];
  int length = sizeof(buffer);
  long long number = -1;
  if (value->value_type(value) == MYSQL_VALUE_TYPE_STRING) {
    const char* text = value->val_str(value, buffer, &length);
    if (text) number = find_type(text, &tiers, FIND_TYPE_BASIC) - 1;
  } else if (value->val_int(value, &number)) {
    number = -1;
  }
  const char* wrong = nullptr;
  if (number < 0 || number >= (long long)tiers.count)
    wrong = "firn_tier is local or cold";
  else if (number == 2)
    wrong = "firn_tier=all is not supported yet";
  else if (number == 1 && !(storage_url && *storage_url))
    wrong = "firn_tier=cold needs an object store: firn_storage_url is empty";
  if (wrong) {
    my_printf_error(ER_WRONG_VALUE_FOR_VAR, "FIRN: %s", MYF(0), wrong);
    return 1;
  }
  *static_cast<unsigned long*>(save) = (unsigned long)number;
  return 0;
}

MYSQL_SYSVAR_ENUM(
    tier, tier, PLUGIN_VAR_RQCMDARG,
    "Where the files of the last level lie: local = in the data directory; cold = those that no query has "
    "read for firn_cold_after seconds lie in the object store of firn_storage_url. A change moves files in "
    "the background. all is not supported yet.",
    check_tier, (update<unsigned long, FIRN_OPTION_TIER>), 0, &tiers);

MYSQL_SYSVAR_UINT(
    cold_after, cold_after, PLUGIN_VAR_RQCMDARG,
    "With firn_tier=cold: a file moves to the object store when no query has read it for so many seconds.", nullptr,
    (update<unsigned int, FIRN_OPTION_COLD_AFTER>), 3600, 0, 1U << 30, 1);

MYSQL_SYSVAR_ULONGLONG(
    file_cache_size, file_cache_size, PLUGIN_VAR_RQCMDARG,
    "Room on the disk of the data directory for parts of files of the object store that are read, in "
    "bytes.",
    nullptr, (update<unsigned long long, FIRN_OPTION_FILE_CACHE_SIZE>), 4096 * kMiB, 0, kMaxSize, kMiB);

/* The check function, create_checkpoint(), has made the checkpoint. */
void checkpoint_made(THD*, st_mysql_sys_var*, void*, const void*) {}

MYSQL_SYSVAR_STR(
    create_checkpoint, checkpoint, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT,
    "Setting it makes a checkpoint in the directory named, which must not exist: files are linked, so that "
    "it takes milliseconds and no room where the directory lies on the same file system. Needs the FILE "
    "privilege and obeys secure_file_priv.",
    create_checkpoint, checkpoint_made, "");

MYSQL_SYSVAR_STR(
    backup_checkpoint, armed_checkpoint, PLUGIN_VAR_RQCMDARG | PLUGIN_VAR_NOCMDOPT,
    "The next backup of the server, by mariadb-backup for instance, makes a checkpoint in the directory named: at "
    "its FLUSH ENGINE LOGS under BACKUP STAGE BLOCK_COMMIT. Ends with the session that sets it. Needs the FILE "
    "privilege and obeys secure_file_priv.",
    arm_checkpoint, checkpoint_made, "");

MYSQL_THDVAR_BOOL(
    backup_client, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_NOCMDOPT,
    "The session makes a backup and knows of FIRN tables: BACKUP STAGE START flushes their memtables, and "
    "does not warn that mariadb-backup leaves them out.",
    nullptr, nullptr, false);

MYSQL_THDVAR_BOOL(
    checkpoint_names_objects, PLUGIN_VAR_OPCMDARG | PLUGIN_VAR_NOCMDOPT,
    "For firn backup only, which copies files of the object store itself: checkpoints that the session makes "
    "name these files and do not have them, so such a checkpoint is no backup.",
    nullptr, nullptr, false);

}  // namespace

void set_core_options() {
  (void)firn_set_option(database, FIRN_OPTION_DEADLOCK_DETECT, deadlock_detect);
  (void)firn_set_option(database, FIRN_OPTION_PRINT_ALL_DEADLOCKS, print_all_deadlocks);
  (void)firn_set_option(database, FIRN_OPTION_SNAPSHOT_AGE_WARNING, snapshot_age_warning);
  (void)firn_set_option(database, FIRN_OPTION_MAX_WAL_SIZE, max_wal_size);
  (void)firn_set_option(database, FIRN_OPTION_OPEN_FILES, open_files);
}

bool log_is_archived() { return log_archive_dir && *log_archive_dir; }

bool backup_client(THD* thd) { return thd && THDVAR(thd, backup_client); }

bool checkpoint_names_objects(THD* thd) { return thd && THDVAR(thd, checkpoint_names_objects); }

unsigned long lock_wait_timeout(THD* thd) { return THDVAR(thd, lock_wait_timeout); }

firn_config config() {
  /* Values from start-up options have not passed check_memory_limit(). */
  const unsigned long long possible = possible_memory_limit(memory_limit);
  if (possible != memory_limit) {
    sql_print_warning("option 'firn-memory-limit': unsigned value %llu adjusted to %llu", memory_limit, possible);
    memory_limit = possible;
  }
  firn_config config = {};
  config.dir = data_dir;
  config.memory_limit = memory_limit;
  config.block_cache_size = block_cache_size;
  config.row_cache_size = row_cache_size;
  config.memtable_size = memtable_size;
  config.txn_memory_limit = txn_memory_limit;
  config.blob_threshold = blob_threshold;
  config.wal_segment_size = wal_segment_size;
  config.flush_log_at_trx_commit = flush_log_at_trx_commit;
  config.background_jobs = max_background_jobs;
  config.background_io_rate = background_io_rate;
  config.debug_disk = debug_disk;
  /* Other servers may have the same paths on other hosts. */
  static const std::string pool_server = std::string(glob_hostname) + ":" + std::to_string(mysqld_port) + ":" +
                                         mysqld_unix_port + ":" + mysql_real_data_home + ":" + data_dir;
  config.pool_enabled = pool != 0;
  config.pool_nodes = pool_nodes;
  config.pool_server = pool_server.c_str();
  config.pool_key_file = pool_key_file;
  config.pool_tls_ca = pool_tls_ca;
  config.pool_tls_cert = pool_tls_cert;
  config.pool_tls_key = pool_tls_key;
  config.storage_url = storage_url;
  config.tier = uint32_t(tier);
  config.cold_after = cold_after;
  config.file_cache_size = file_cache_size;
  config.log_archive_dir = log_archive_dir;
  config.log_archive_timeout = log_archive_timeout;
  config.direct_io = direct_io != 0;
  config.direct_reads = direct_reads != 0;
  return config;
}

struct st_mysql_sys_var* all[] = {MYSQL_SYSVAR(data_dir),
                                  MYSQL_SYSVAR(memory_limit),
                                  MYSQL_SYSVAR(block_cache_size),
                                  MYSQL_SYSVAR(row_cache_size),
                                  MYSQL_SYSVAR(memtable_size),
                                  MYSQL_SYSVAR(txn_memory_limit),
                                  MYSQL_SYSVAR(blob_threshold),
                                  MYSQL_SYSVAR(wal_segment_size),
                                  MYSQL_SYSVAR(max_wal_size),
                                  MYSQL_SYSVAR(open_files),
                                  MYSQL_SYSVAR(flush_log_at_trx_commit),
                                  MYSQL_SYSVAR(lock_wait_timeout),
                                  MYSQL_SYSVAR(rollback_on_timeout),
                                  MYSQL_SYSVAR(deadlock_detect),
                                  MYSQL_SYSVAR(print_all_deadlocks),
                                  MYSQL_SYSVAR(snapshot_age_warning),
                                  MYSQL_SYSVAR(max_background_jobs),
                                  MYSQL_SYSVAR(background_io_rate),
                                  MYSQL_SYSVAR(direct_io),
                                  MYSQL_SYSVAR(direct_reads),
                                  MYSQL_SYSVAR(create_checkpoint),
                                  MYSQL_SYSVAR(backup_checkpoint),
                                  MYSQL_SYSVAR(backup_client),
                                  MYSQL_SYSVAR(checkpoint_names_objects),
                                  MYSQL_SYSVAR(log_archive_dir),
                                  MYSQL_SYSVAR(log_archive_timeout),
                                  MYSQL_SYSVAR(debug_disk),
                                  MYSQL_SYSVAR(pool),
                                  MYSQL_SYSVAR(pool_nodes),
                                  MYSQL_SYSVAR(pool_key_file),
                                  MYSQL_SYSVAR(pool_tls_ca),
                                  MYSQL_SYSVAR(pool_tls_cert),
                                  MYSQL_SYSVAR(pool_tls_key),
                                  MYSQL_SYSVAR(storage_url),
                                  MYSQL_SYSVAR(tier),
                                  MYSQL_SYSVAR(cold_after),
                                  MYSQL_SYSVAR(file_cache_size),
                                  nullptr};

}  // namespace firn::sysvars
