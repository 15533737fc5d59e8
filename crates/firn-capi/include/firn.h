#ifndef FIRN_H
#define FIRN_H

// Made by cbindgen from crates/firn-capi; do not edit.

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

// Flag of `firn_bulk_insert`. All rows of a load must have the same flag. With it, each call
// reports whether its row is a duplicate, and the load goes on without that row. Otherwise a
// duplicate may be found only by a later call and ends the load; `firn_bulk_duplicate` then
// returns its row.
#define FIRN_BULK_ONE_BY_ONE 2

// Number that stands for the clustered index of a table whose primary key is hidden.
#define FIRN_PRIMARY UINT32_MAX

// Answers of a `firn_condition`.
#define FIRN_ENTRY_PASSES 0

// The row of the entry may match.
#define FIRN_ENTRY_MATCHES 1

// The session was killed.
#define FIRN_ENTRY_INTERRUPTED 2

// Bytes of a slot that `firn_recover` fills: a 32-bit length in native byte order, then the xid.
#define FIRN_XID_SLOT 260

// Fate of a table that interrupted DDL has left over: it was garbage, and was dropped.
#define FIRN_LEFTOVER_DROPPED 0

// Fate: the table is the only one with its rows, and got its own name back.
#define FIRN_LEFTOVER_RESTORED 1

// Fate: the table stays as it is.
#define FIRN_LEFTOVER_KEPT 2

// RESTRICT, or no action given: the change is refused.
#define FIRN_ACTION_RESTRICT 0

// NO ACTION: the change is refused.
#define FIRN_ACTION_NONE 1

// CASCADE.
#define FIRN_ACTION_CASCADE 2

// SET NULL.
#define FIRN_ACTION_SET_NULL 3

// Number of classes of reads that use the memory pool.
#define FIRN_POOL_CLASSES 6

// Flag: if the key exists already, lock the row that has it exclusively, because the caller is
// about to replace or update that row.
#define FIRN_WRITE_LOCK_DUPLICATE_X 1

// Flag: do not check keys of unique secondary indexes. The caller guarantees that they are unique.
#define FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK 4

// Flag: do not check foreign keys, and do not carry out their actions, such as cascades.
#define FIRN_WRITE_NO_FOREIGN_KEYS 8

// Stands for no position.
#define FIRN_NONE UINT32_MAX

// A column of fixed length: the record buffer holds the value's bytes as they are.
#define FIRN_COLUMN_FIXED 0

// Text padded to the length of the column.
#define FIRN_COLUMN_CHAR 1

// A VARCHAR: the record buffer holds a length of 1 or 2 bytes, then the bytes of the value.
#define FIRN_COLUMN_VARCHAR 2

// A BLOB or TEXT: the record buffer holds a length of 1 to 4 bytes, then a pointer to the bytes of
// the value.
#define FIRN_COLUMN_BLOB 3

// An integer with a sign, little-endian.
#define FIRN_PART_INT 0

// An integer without a sign, little-endian.
#define FIRN_PART_UINT 1

// FLOAT or DOUBLE.
#define FIRN_PART_FLOAT 2

// Bytes of a fixed length that sort like the values.
#define FIRN_PART_FIXED 3

// Binary strings of any length.
#define FIRN_PART_VARBYTES 4

// Text with a collation.
#define FIRN_PART_TEXT 5

// The text cannot be decoded from its weights.
#define FIRN_TEXT_LOST 0

// The weights are the bytes of the text.
#define FIRN_TEXT_BYTES 1

// The weights are the code points of UTF-8 text.
#define FIRN_TEXT_UTF8 2

// Most levels of a collation.
#define FIRN_LEVELS_MAX 6

// Result of a call. The numbers never change.
typedef enum firn_status {
  // Done.
  FIRN_OK = 0,
  // No row has the key.
  FIRN_NO_ROW = 1,
  // The scan is at its end.
  FIRN_END = 2,
  // A unique index has the key already.
  FIRN_DUPLICATE = 3,
  // The update changes nothing.
  FIRN_SAME_ROW = 4,
  // A row lock was not granted in time.
  FIRN_LOCK_TIMEOUT = 10,
  // Another transaction has locked the row, and the caller asked not to wait.
  FIRN_LOCK_NOT_AVAILABLE = 11,
  // This transaction was chosen to end a deadlock: roll it back.
  FIRN_DEADLOCK = 12,
  // The session was killed.
  FIRN_INTERRUPTED = 13,
  // The snapshot is older than the index.
  FIRN_TABLE_DEF_CHANGED = 15,
  // The stored definition has other bytes for rows or keys than the given definition.
  FIRN_DEFINITION_DIFFERS = 16,
  // A callback of the host failed, and has told the session why.
  FIRN_HOST_FAILED = 17,
  // No such table.
  FIRN_NO_TABLE = 20,
  // The table exists.
  FIRN_TABLE_EXISTS = 21,
  // A row or a definition breaks a rule of foreign keys: see `firn_last_foreign_key`.
  FIRN_FOREIGN_KEY = 24,
  // No auto-increment value is left.
  FIRN_AUTOINC_EXHAUSTED = 22,
  // A row or an entry of an index is longer than files can hold.
  FIRN_TOO_LARGE = 23,
  // Stored bytes are damaged.
  FIRN_CORRUPTION = 30,
  // The operating system refused an operation.
  FIRN_IO = 31,
  // The disk is full.
  FIRN_NO_SPACE = 32,
  // Writes are refused until a restart.
  FIRN_POISONED = 33,
  // The caller broke the contract of the call.
  FIRN_INVALID = 40,
  // The feature or the format version is not supported.
  FIRN_UNSUPPORTED = 41,
  // Another process uses the directory.
  FIRN_BUSY = 42,
  // The engine is closing.
  FIRN_SHUTDOWN = 43,
  // A bug: the call panicked.
  FIRN_PANIC = 44,
} firn_status;

// How a cursor reads.
typedef enum firn_read_mode {
  // The transaction's snapshot, without locks.
  FIRN_READ_SNAPSHOT = 0,
  // The latest committed rows, each locked shared. In an optimistic table this mode and the next
  // one read the transaction's snapshot and lock nothing; the commit validates the rows that
  // they return.
  FIRN_READ_LOCK_SHARED = 1,
  // The latest committed rows, each locked exclusively.
  FIRN_READ_LOCK_EXCLUSIVE = 2,
} firn_read_mode;

// Behaviour of a locking read at a row that another transaction has locked.
typedef enum firn_wait {
  // Waits as long as the session's timeout.
  FIRN_WAIT = 0,
  // Fails at once with `FIRN_LOCK_NOT_AVAILABLE`.
  FIRN_NOWAIT = 1,
  // Skips the row.
  FIRN_SKIP_LOCKED = 2,
} firn_wait;

// How a checkpoint treats files of the object store.
typedef enum firn_remote_files {
  // They are copied into the checkpoint, of which `progress` hears, in bytes.
  FIRN_REMOTE_COPIED = 0,
  // They stay in the store, and as long as the checkpoint exists no object is deleted there. The
  // caller copies the objects itself.
  FIRN_REMOTE_NAMED = 1,
  // No checkpoint is made if there are any.
  FIRN_REMOTE_REFUSED = 2,
} firn_remote_files;

// Options that may change while the database is open.
typedef enum firn_option {
  // `flush_log_at_trx_commit`: 0, 1 or 2.
  FIRN_OPTION_FLUSH_MODE = 0,
  // Block cache, bytes.
  FIRN_OPTION_BLOCK_CACHE_SIZE = 1,
  // Memtable size, bytes.
  FIRN_OPTION_MEMTABLE_SIZE = 2,
  // Memory of a transaction's writes, bytes.
  FIRN_OPTION_TXN_MEMORY_LIMIT = 3,
  // Limit for the memory of the engine, bytes; 0 for no limit.
  FIRN_OPTION_MEMORY_LIMIT = 4,
  // Row cache, bytes; 0 for none.
  FIRN_OPTION_ROW_CACHE_SIZE = 5,
  // Bytes a second that background work reads and writes at most; 0 for no limit.
  FIRN_OPTION_BACKGROUND_IO_RATE = 6,
  // Values at least this long go to blob files.
  FIRN_OPTION_BLOB_THRESHOLD = 7,
  // Seconds after which a log segment in use is closed so that it can be archived.
  FIRN_OPTION_LOG_ARCHIVE_TIMEOUT = 8,
  // Whether a transaction searches for deadlocks when it begins to wait for a lock: 0 or 1.
  FIRN_OPTION_DEADLOCK_DETECT = 9,
  // Whether every deadlock is written to the error log: 0 or 1.
  FIRN_OPTION_PRINT_ALL_DEADLOCKS = 10,
  // Age of a snapshot, in seconds, at which the error log gets a warning; 0 for none.
  FIRN_OPTION_SNAPSHOT_AGE_WARNING = 11,
  // Bytes of log that a recovery has to replay at most, approximately.
  FIRN_OPTION_MAX_WAL_SIZE = 12,
  // Number of SSTs and blob files that are open for reading at most; 0 for half of the process's
  // limit on descriptors.
  FIRN_OPTION_OPEN_FILES = 13,
  // Where the files of the last level lie: 0 in the data directory, 1 in the object store if no
  // query has read them for a while.
  FIRN_OPTION_TIER = 14,
  // Seconds without a read after which a file is cold.
  FIRN_OPTION_COLD_AFTER = 15,
  // Bytes of the object store's files that are kept on the local disk.
  FIRN_OPTION_FILE_CACHE_SIZE = 16,
} firn_option;

// The rule of foreign keys that was broken. The numbers never change.
typedef enum firn_violation {
  // Another row refers to the row that the statement deletes or changes.
  FIRN_ROW_IS_REFERENCED = 0,
  // No row has the referenced value.
  FIRN_NO_REFERENCED_ROW = 1,
  // A cascade passes through more foreign keys, one after the other, than is allowed.
  FIRN_CASCADE_TOO_DEEP = 2,
  // A cascade would make two rows equal in a unique index. [`firn_last_foreign_key`] returns the
  // name of that index in place of a foreign key's name.
  FIRN_DUPLICATE_IN_CHILD = 3,
  // Another table refers to the table to drop.
  FIRN_TABLE_IS_REFERENCED = 4,
  // Another foreign key of the database has the name.
  FIRN_FOREIGN_KEY_NAME_TAKEN = 5,
  // A foreign key needs the index that the statement drops. [`firn_last_foreign_key`] returns
  // the name of that index in place of a foreign key's name.
  FIRN_INDEX_IS_NEEDED = 6,
  // The table has no index for the foreign key.
  FIRN_NO_FOREIGN_KEY_INDEX = 7,
  // The referenced table has no index for the foreign key.
  FIRN_NO_REFERENCED_INDEX = 8,
  // The referenced table does not exist.
  FIRN_NO_REFERENCED_TABLE = 9,
  // SET NULL of a column that is NOT NULL.
  FIRN_FOREIGN_KEY_NOT_NULL = 10,
  // The definition is not allowed for another reason.
  FIRN_FOREIGN_KEY_DEFINITION = 11,
  // The statement gives two new foreign keys the name.
  FIRN_FOREIGN_KEY_NAME_GIVEN_TWICE = 12,
} firn_violation;

// Isolation levels.
typedef enum firn_isolation {
  // Reads as READ COMMITTED.
  FIRN_READ_UNCOMMITTED = 0,
  // Each statement sees the data committed before its first read.
  FIRN_READ_COMMITTED = 1,
  // The transaction sees the data committed before its first read.
  FIRN_REPEATABLE_READ = 2,
  // As `FIRN_REPEATABLE_READ`; the caller makes plain reads shared locking reads.
  FIRN_SERIALIZABLE = 3,
} firn_isolation;

// How far a transaction is.
typedef enum firn_trx_state {
  // It may read and write.
  FIRN_TRX_RUNNING = 0,
  // It waits for a lock.
  FIRN_TRX_LOCK_WAIT = 1,
  // Its changes are in the log, and it waits for its outcome.
  FIRN_TRX_PREPARED = 2,
  // Its changes are visible, and it waits for the log.
  FIRN_TRX_COMMITTING = 3,
} firn_trx_state;

// The kinds of locks.
typedef enum firn_lock_kind {
  // A key, shared.
  FIRN_LOCK_SHARED = 0,
  // A key, exclusive.
  FIRN_LOCK_EXCLUSIVE = 1,
  // A range of keys, against inserts.
  FIRN_LOCK_GAP = 2,
  // An insert that waits because other transactions have locked the gap of its key.
  FIRN_LOCK_INSERT_INTENTION = 3,
} firn_lock_kind;

// A position in one index of a table. It belongs to one thread at a time.
typedef struct firn_cursor firn_cursor;

// An open database. A server opens one.
typedef struct firn_db firn_db;

// A change of one table's columns and secondary indexes that has begun and is not committed.
typedef struct firn_index_change firn_index_change;

// A connection of the server and its transaction. It belongs to one thread at a time; only
// `firn_kill` may be called from any thread.
typedef struct firn_session firn_session;

// An opened table, which all sessions share.
typedef struct firn_table firn_table;

// Reports the progress of a long call: `done` of `total`, in any unit. If it returns true, the
// call ends with an error.
typedef bool (*firn_progress)(void *context, uint64_t done, uint64_t total);

// A condition over the columns of an index, whose values are in `record`. It returns a
// `FIRN_ENTRY_…`, and uses neither the cursor nor its session.
typedef int (*firn_condition)(void *context, uint8_t *record);

// The part of a column's value that the statement needs: its first `prefix` bytes. If the value
// lies out of line, the cursor reads only this part. With `length`, the value in the record has
// the length of the whole value, and zeros after the prefix.
typedef struct firn_partial_column {
  // Number of the column.
  uint32_t column;
  // Bytes that are needed from the beginning of the value.
  uint64_t prefix;
  // Whether the length of the whole value is needed.
  bool length;
} firn_partial_column;

// How to open a database. Sizes are in bytes; 0 stands for the default.
typedef struct firn_config {
  // Directory of the database; created if missing.
  const char *dir;
  // Size of the block cache, which holds decoded blocks. It has no effect if there is a memory
  // limit, which then determines the size.
  uint64_t block_cache_size;
  // Size of the row cache; 0 for none. It has no effect if there is a memory limit, which then
  // determines the size.
  uint64_t row_cache_size;
  // Limit for the memory of the engine; 0 for no limit.
  uint64_t memory_limit;
  // A memtable is flushed at this size.
  uint64_t memtable_size;
  // Memory that a transaction's writes may take. Writes beyond it are spilled to files.
  uint64_t txn_memory_limit;
  // Values at least this long go to blob files.
  uint64_t blob_threshold;
  // Size of a log segment.
  uint64_t wal_segment_size;
  // Durability that a commit waits for: 0 none, 1 the device, 2 the operating system.
  uint32_t flush_log_at_trx_commit;
  // Background threads for compaction.
  uint32_t background_jobs;
  // Bytes a second that background work reads and writes at most; 0 for no limit.
  uint64_t background_io_rate;
  // Speed of the disk that files seem to lie on, for tests: `120us` for instance, or
  // `500us,3000iops,125MBps`. NULL or empty for the speed of the real disk.
  const char *debug_disk;
  // Whether the memory pool is on.
  bool pool_enabled;
  // Nodes of the memory pool, as for `firn_set_pool_nodes`; NULL for none.
  const char *pool_nodes;
  // Name of this server among those that share the memory pool. It stays the same over restarts.
  const char *pool_server;
  // File with the key under which the memory pool's values are encrypted; NULL or empty for
  // none.
  const char *pool_key_file;
  // File with the certificates of the authorities that sign those of nodes by TLS; NULL or empty
  // for the system's.
  const char *pool_tls_ca;
  // File with the chain of certificates that such nodes are shown; NULL or empty for none.
  const char *pool_tls_cert;
  // File with its private key.
  const char *pool_tls_key;
  // Object store of cold files: `s3://bucket/prefix` or `file:///directory`; NULL or empty for
  // none.
  const char *storage_url;
  // Where the files of the last level lie: 0 in the data directory, 1 in the object store if no
  // query has read them for a while.
  uint32_t tier;
  // Seconds without a read after which a file is cold.
  uint64_t cold_after;
  // Bytes of the object store's files that are kept on the local disk.
  uint64_t file_cache_size;
  // Directory of the log archive, which must exist; NULL or empty for no archive.
  const char *log_archive_dir;
  // Seconds after which a log segment in use is closed so that it can be archived. Without a log
  // archive it has no effect.
  uint64_t log_archive_timeout;
  // Open the log with direct I/O.
  bool direct_io;
  // Read table files with direct I/O, past the page cache.
  bool direct_reads;
  // True if the server is starting: it then calls `firn_recover` when all engines are open.
  // False if the server is already running.
  bool server_asks;
  // True if the server commits or rolls back all prepared transactions, as the administrator has
  // told it (`--tc-heuristic-recover`).
  bool server_decides_all;
  // Path of the index file of the server's binary log; NULL if the server keeps no binary log.
  const char *binlog_index;
} firn_config;

// Callbacks that compute collation weights; called from any thread.
typedef struct firn_collator {
  // Writes the weights of the text on a level to `weights`, big-endian, without padding.
  // `filled` says that the text is the value of a CHAR column, with spaces up to the length of
  // the column. Sets `weighed` to the number of bytes of the text that these weights stand for;
  // it is less than `len` if the byte after them begins no character. Returns the number of
  // bytes written. A number above `capacity` means that nothing was written and a call with that
  // capacity must follow.
  size_t (*sort_key)(const void *handle,
                     uint32_t level,
                     bool filled,
                     const uint8_t *text,
                     size_t len,
                     uint8_t *weights,
                     size_t capacity,
                     size_t *weighed);
  // Number of bytes of the first `chars` characters of the text, or of all characters if it has
  // fewer.
  size_t (*prefix_len)(const void *handle, const uint8_t *text, size_t len, size_t chars);
  // Number of characters of the text.
  size_t (*chars)(const void *handle, const uint8_t *text, size_t len);
} firn_collator;

// One level of a collation.
typedef struct firn_level {
  // The level's number in calls of the callback.
  uint32_t number;
  // Weight of a space.
  uint32_t space;
  // Whether this level compares strings of different length without padding: a string is smaller
  // than a longer one that begins with it. Otherwise the shorter string compares as if spaces
  // followed.
  bool no_pad;
} firn_level;

// A collation.
typedef struct firn_collation {
  // The server's number for it.
  uint32_t id;
  // The server's name for it.
  const char *name;
  // Passed to the callbacks.
  const void *handle;
  // Its levels.
  struct firn_level levels[FIRN_LEVELS_MAX];
  // How many there are.
  uint32_t level_count;
  // Bytes of one weight: 1, 2 or 3.
  uint32_t weight_len;
  // `FIRN_TEXT_…`.
  uint32_t form;
  // Length of `simple`: 0, 128 or 256.
  uint32_t simple_len;
  // Weights of single bytes. The core weighs text that consists of bytes below `simple_len` with
  // this table, without a callback.
  uint8_t simple[256];
  // Whether CHAR is compared with its padding.
  bool char_filled;
  // Bytes of one space: 1, 2 or 4.
  uint8_t pad_len;
  // One space.
  uint8_t pad[4];
} firn_collation;

// Callbacks into the server. They may be called from any thread; any may be NULL.
typedef struct firn_host {
  // Writes a line to the error log; severity 0 note, 1 warning, 2 error.
  void (*log)(int severity, const char *message);
  // The blockers of which the server wants to hear by `lock_wait` when the session waits for a
  // lock: 0 none, 1 those right ahead of it, 2 all. If this is NULL, none. Called on the thread
  // of the session, and while it waits from other threads with locks of the core held, so the
  // callback must not wait.
  int (*lock_wait_reports)(void *waiter);
  // Tells the server that the session `waiter` waits for a lock that the session `blocker`
  // holds. The arguments are the `host` pointers of both sessions. The waiter's thread makes the
  // call when the wait begins; the blocker's thread makes it when the blocker gets the lock
  // while the waiter already waits. The thread holds locks of the core, so the callback must not
  // call the core.
  void (*lock_wait)(void *waiter, void *blocker);
  // Whether the order in which the transactions of two sessions commit is fixed. If so, an
  // insert of the one does not wait for gap locks of the other. Asked only if
  // `lock_wait_reports` is 2 for the first one. The core may hold its own locks during the call,
  // so the callback must not wait.
  bool (*order_is_fixed)(void *one, void *other);
  // Which of two sessions in a deadlock is preferred as the victim: below 0 the first, above 0
  // the second, 0 neither. The core may hold its own locks during the call, so the callback must
  // not wait.
  int (*preferred_victim)(void *one, void *other);
  // Tells the server that a lock wait begins. The calling thread is that of the waiting session,
  // and is going to sleep for at most `timeout_us` microseconds. Returns the timeout to use
  // instead, microseconds.
  uint64_t (*wait_begins)(void *host, uint64_t timeout_us);
  // Tells the server that a lock wait has ended. The calling thread is that of the session that
  // waited.
  void (*wait_ends)(void *host);
  // Tells the server that the calling thread, which is that of the session, is going to sleep
  // until flushes and compactions catch up with the writers.
  void (*stall_begins)(void *host);
  // Tells the server that the sleep announced by `stall_begins` is over.
  void (*stall_ends)(void *host);
  // Tells the server that the calling thread, which is that of the session, waits until a commit
  // is durable.
  void (*commit_wait_begins)(void *host);
  // Tells the server that the wait announced by `commit_wait_begins` is over.
  void (*commit_wait_ends)(void *host);
  // Whether the server can hold back its answer to the session, whose thread calls, and does
  // nothing else for it before that answer. Then a commit does not wait until it is durable.
  bool (*may_hold_answer)(void *host);
  // Makes the server hold back its answer to the session, whose thread calls, until
  // `release_answer` was called. Returns whether the server does so. `host` must stay valid
  // until then. The core holds locks of its own during the call, so the callback must not wait.
  bool (*hold_answer)(void *host);
  // Ends one `hold_answer` of the session. If `durable` is false, the server must not answer but
  // close the connection, because the outcome of the commit is unknown. Called on a thread of
  // the core.
  void (*release_answer)(void *host, bool durable);
  // Writes the SQL text that a session executes to `text`, at most `size` bytes. Returns the
  // length of the text; 0 if there is none, or if the callback would have to wait for it, which
  // it must not do.
  size_t (*statement)(void *host, char *text, size_t size);
  // Describes the collation with the server's number `id`. Returns the functions that compute
  // its weights; NULL if there is no such collation.
  const struct firn_collator *(*collation)(uint32_t id, struct firn_collation *out);
  // Whether a session has locked the metadata of a table (`database/table`) so that it may read
  // the table; with `writes`, so that it may write it, too. Called on the thread of the session.
  bool (*holds_metadata_lock)(void *host, const char *table_name, bool writes);
  // Computes the indexed virtual columns of a record of a table (`database/table`) in place, for
  // a row that a foreign key's action changes. Values of blobs stay valid until the next call.
  // Returns false after it has given the session an error. Called on the thread of the session.
  bool (*compute_virtual)(void *host, const char *table_name, uint8_t *record, size_t record_len);
} firn_host;

// A column of the record buffer.
typedef struct firn_column {
  // Its name, UTF-8.
  const char *name;
  // `FIRN_COLUMN_…`.
  uint32_t kind;
  // The server's number of its type.
  uint32_t type_code;
  // Where it starts in the record buffer.
  uint32_t offset;
  // Bytes of a fixed or CHAR column; the largest number of bytes of a VARCHAR value; 0 for a
  // blob.
  uint32_t len;
  // Bytes of the length of a VARCHAR or blob.
  uint32_t len_bytes;
  // Characters of a CHAR column.
  uint32_t chars;
  // Checksum of the attributes by which the server interprets the bytes of a value: sign,
  // decimals, character set, members. 0: unknown.
  uint32_t interpretation;
  // Byte of the record buffer with its NULL bit.
  uint32_t null_offset;
  // The NULL bit; 0 if it is NOT NULL.
  uint8_t null_mask;
  // False for virtual columns.
  bool stored;
  // Bytes of one space of a CHAR column: 1, 2 or 4.
  uint8_t pad_len;
  // One space of a CHAR column.
  uint8_t pad[4];
} firn_column;

// A part of an index.
typedef struct firn_key_part {
  // Position of the column.
  uint32_t column;
  // `FIRN_PART_…`.
  uint32_t kind;
  // For an index over a prefix of the column: the length of the prefix, in characters if the
  // column is text, otherwise in bytes; 0 for the whole column.
  uint32_t prefix;
  // Bytes of the value in a key image. The NULL byte and the length bytes in front of the value
  // do not count.
  uint32_t image_len;
  // Whether larger values come first.
  bool desc;
  // The collation of a text part.
  const struct firn_collation *collation;
} firn_key_part;

// An index.
typedef struct firn_index {
  // Its name, UTF-8.
  const char *name;
  // Its parts.
  const struct firn_key_part *parts;
  // How many.
  uint32_t part_count;
  // Whether two rows may not agree in all parts.
  bool unique;
} firn_index;

// The definition of a table.
typedef struct firn_table_def {
  // Bytes of the record buffer.
  uint32_t record_len;
  // Bytes of it that hold NULL bits.
  uint32_t null_bytes;
  // The columns.
  const struct firn_column *columns;
  // How many.
  uint32_t column_count;
  // The indexes.
  const struct firn_index *indexes;
  // How many.
  uint32_t index_count;
  // Position of the primary index; `FIRN_NONE` for a hidden primary key.
  uint32_t primary;
  // Position of the AUTO_INCREMENT column, or `FIRN_NONE`.
  uint32_t auto_increment;
  // Whether the table is optimistic: transactions lock nothing in it, and a commit fails with
  // `FIRN_DEADLOCK` if another transaction has changed rows on which it depends. The value in
  // the stored definition counts; the one given to `firn_table_open` is ignored.
  bool optimistic;
  // Computes collation weights; NULL if no part is text.
  const struct firn_collator *collator;
  // The record buffer of a row of default values, or NULL. A column that is NULL gets these
  // bytes in the record buffer, because the server compares records byte by byte.
  const uint8_t *default_record;
} firn_table_def;

// A foreign key to add.
typedef struct firn_new_foreign_key {
  // Its name; NULL to let the core choose one.
  const char *name;
  // Its name or columns, for messages.
  const char *label;
  // Names of its columns.
  const char *const *columns;
  // For each column: the largest number of characters that it takes; 0 if it is no text.
  const uint32_t *chars;
  // Names of the referenced columns.
  const char *const *parent_columns;
  // How many columns.
  uint32_t column_count;
  // The referenced table, `database/table`, encoded as in file names.
  const char *parent;
  // The referenced table as SQL names it, for messages.
  const char *parent_label;
  // `FIRN_ACTION_…`.
  uint8_t on_delete;
  // `FIRN_ACTION_…`.
  uint8_t on_update;
  // The table to replace has the same foreign key.
  bool inherited;
  // Whether a stored generated column is computed from one of the foreign key's columns.
  bool on_generated_base;
} firn_new_foreign_key;

// The foreign keys of a statement.
typedef struct firn_foreign_key_request {
  // The foreign keys to add.
  const struct firn_new_foreign_key *added;
  // Number of foreign keys to add.
  uint32_t added_count;
  // Names of the foreign keys to drop.
  const char *const *dropped;
  // Number of foreign keys to drop.
  uint32_t dropped_count;
  // The statement is an ALTER.
  bool alters;
  // The session checks foreign keys.
  bool checks;
  // The session's mode is strict.
  bool strict;
  // The table as SQL names it, for messages.
  const char *table_label;
  // The table's own name as SQL has it.
  const char *table_text;
  // The table that the new one replaces, `database/table`; NULL if it replaces none.
  const char *replaces;
} firn_foreign_key_request;

// The server's definition files. Names are those of tables, `database/table`, never of partitions.
// The functions must not call the core.
typedef struct firn_definition_files {
  // Passed to all functions.
  void *context;
  // Copies the version of the definition, which the server has written into the definition file
  // of a table, to `version`, at most `size` bytes. Returns its length in bytes, 0 if the file
  // has none; below 0 if there is no file.
  ptrdiff_t (*version)(void *context, const char *table_name, uint8_t *version, size_t size);
  // Calls `each` with the name of every table in `schema` that has a definition file, of any
  // engine.
  void (*list)(void *context,
               const char *schema,
               void (*each)(void *names, const char *name),
               void *names);
  // Whether the definition file of a table is that of a table of this engine.
  bool (*is_own)(void *context, const char *table_name);
  // Gives the table a durable definition file with the version `version`: the file of `copy` if
  // that has this version, otherwise a new file with the content `frm`. Returns false if this
  // fails, or if the table already has the file of another engine.
  bool (*place)(void *context,
                const char *table_name,
                const char *copy,
                const uint8_t *frm,
                size_t frm_len,
                const uint8_t *version,
                size_t version_len);
  // If the table lacks the file with the names of its partitions, gives it, durably, the file of
  // a copy that has the same partitions.
  void (*place_partitions)(void *context,
                           const char *table_name,
                           const char *const *partitions,
                           size_t count);
  // Removes the files of `copy`, if there are any.
  void (*remove)(void *context, const char *copy);
  // Reports the fate of the leftover table `copy`: `fate` is one of `FIRN_LEFTOVER_*`, `text` is
  // the name that the table has now, or the reason why it stays.
  void (*report)(void *context, const char *copy, uint8_t fate, const char *text);
} firn_definition_files;

// A foreign key. Strings are valid during the callback.
typedef struct firn_foreign_key_info {
  // The referencing table, `database/table`.
  const char *table;
  // Its name.
  const char *name;
  // The referenced table, `database/table`.
  const char *parent;
  // Name of the referenced index; NULL if there is none.
  const char *parent_index;
  // Names of the columns.
  const char *const *columns;
  // Names of the referenced columns.
  const char *const *parent_columns;
  // For each column: whether it may be NULL.
  const bool *nullable;
  // For each referenced column: whether it may be NULL.
  const bool *parent_nullable;
  // How many columns.
  uint32_t column_count;
  // `FIRN_ACTION_…`.
  uint8_t on_delete;
  // `FIRN_ACTION_…`.
  uint8_t on_update;
  // Whether a cascade may update the referenced columns, because a foreign key of the referenced
  // table contains them. If so, even a statement that only deletes rows may update a referenced
  // row, and `on_update` then changes the rows that refer to it.
  bool parent_follows;
} firn_foreign_key_info;

// Figures of the blocks of one class on a node of the memory pool.
typedef struct firn_pool_class_info {
  // Blocks that the node was asked for.
  uint64_t gets;
  // Blocks that it had.
  uint64_t hits;
} firn_pool_class_info;

// A node of the memory pool.
typedef struct firn_pool_node_info {
  // Address as in the list of nodes.
  const char *address;
  // Weight in the list.
  uint64_t weight;
  // Whether the pool is on.
  bool enabled;
  // Whether the node is not asked for now, because it does not answer.
  bool breaker_open;
  // How often that has begun.
  uint64_t breaker_opened;
  // Why the last connect has failed; empty if it has not.
  const char *connect_error;
  // Bytes that the node uses for values, when it was last asked.
  uint64_t used_bytes;
  // Bytes that it may use.
  uint64_t limit_bytes;
  // Values that it has, also of other servers.
  uint64_t items;
  // Values that it has evicted.
  uint64_t evictions;
  // Mean time of an answer, microseconds.
  uint64_t latency_us;
  // Time that half of the answers did not exceed, microseconds; at most twice too large. 0
  // without answers.
  uint64_t latency_us_p50;
  // Time that 99 % of the answers did not exceed, microseconds.
  uint64_t latency_us_p99;
  // Blocks that the node was asked for.
  uint64_t gets;
  // Blocks that it had.
  uint64_t hits;
  // Stored bytes of the hits.
  uint64_t hit_bytes;
  // Blocks that it did not have.
  uint64_t misses;
  // Blocks whose answer missed the deadline.
  uint64_t late;
  // Blocks whose connection broke.
  uint64_t broken;
  // Blocks that were not what was put, and were deleted.
  uint64_t wrong;
  // Blocks that were put.
  uint64_t puts;
  // Stored bytes of the puts.
  uint64_t put_bytes;
  // Puts that were given up.
  uint64_t dropped_puts;
  // By class: index, point, short range, batched keys, scan, blob chunk.
  struct firn_pool_class_info classes[FIRN_POOL_CLASSES];
} firn_pool_node_info;

// Requests of one kind to an object store.
typedef struct firn_request_info {
  // Number of requests, failed ones and those that were tried again included.
  uint64_t requests;
  // Those that have failed. That there is no such object is an answer.
  uint64_t failed;
  // Bytes of objects that were read or stored.
  uint64_t bytes;
  // Latency in microseconds that half of the requests did not exceed; at most a quarter too
  // large, as the other percentiles. The latencies have no meaning without requests.
  uint64_t latency_us_p50;
  // Latency in microseconds that 95 % of the requests did not exceed.
  uint64_t latency_us_p95;
  // Latency in microseconds that 99 % of the requests did not exceed.
  uint64_t latency_us_p99;
  // Latency of the slowest request in microseconds.
  uint64_t latency_us_max;
} firn_request_info;

// The object store of cold files, since the database was opened.
typedef struct firn_object_store_info {
  // Its URL.
  const char *url;
  // How it does: 0 it answers, 1 it is slow, 2 it does not answer.
  uint32_t state;
  // Whether this server may change it: 0 that is not known, since it has changed nothing yet, or
  // was stopped for a while; 1 it may; 2 another copy of the database may.
  uint32_t ownership;
  // For how long it has not answered, microseconds; 0 if it answers.
  uint64_t out_us;
  // How often that has begun.
  uint64_t outages;
  // Why there is no file cache, or the latest failure of a request, or NULL.
  const char *last_error;
  // Requests that read objects.
  struct firn_request_info gets;
  // Requests that store objects.
  struct firn_request_info puts;
  // Requests that list objects.
  struct firn_request_info lists;
  // Requests that delete objects.
  struct firn_request_info deletes;
  // Table files in the data directory.
  uint64_t local_files;
  // Their bytes.
  uint64_t local_bytes;
  // Table files in the store.
  uint64_t remote_files;
  // Their bytes.
  uint64_t remote_bytes;
  // Objects that are to be deleted, or are deleted and not forgotten yet.
  uint64_t objects_to_delete;
  // The checkpoint for which no object is deleted, or NULL.
  const char *objects_held_by;
  // Files that were uploaded.
  uint64_t uploaded_files;
  // Their bytes.
  uint64_t uploaded_bytes;
  // Times that an upload began again.
  uint64_t upload_retries;
  // Bytes in the file cache.
  uint64_t cache_bytes;
  // Bytes that it may have.
  uint64_t cache_limit_bytes;
  // Chunks that reads found in it.
  uint64_t cache_hits;
  // Chunks that reads had to wait for.
  uint64_t cache_misses;
  // Chunks that were read ahead.
  uint64_t cache_read_ahead;
  // Chunks that were evicted.
  uint64_t cache_evictions;
  // Chunks that were dropped because their bytes were damaged.
  uint64_t cache_damaged;
} firn_object_store_info;

// Statistics of a table.
typedef struct firn_table_stats {
  // Estimated number of committed rows.
  uint64_t rows;
  // Rows that the session's open transaction has added, less those that it has deleted.
  int64_t own_rows;
  // Bytes of the clustered index in files and memtables, including values out of line.
  uint64_t stored_bytes;
  // Bytes of the rows before compression, without values out of line.
  uint64_t raw_bytes;
  // Bytes of the secondary indexes in files and memtables.
  uint64_t index_stored_bytes;
  // Estimated bytes in files that old versions and deletions take, in all indexes.
  uint64_t free_bytes;
  // Time of creation, in seconds since 1970.
  uint64_t create_time_s;
  // Mean size of a row, bytes: columns in the row count uncompressed, and values out of line
  // count as they are stored.
  uint32_t average_row_length;
} firn_table_stats;

// Counters since the database was opened, and current sizes in bytes.
typedef struct firn_counters {
  // Bytes written to files, including the log.
  uint64_t bytes_written;
  // Bytes read from files.
  uint64_t bytes_read;
  // Bytes written to the log.
  uint64_t wal_bytes_written;
  // Syncs of the log.
  uint64_t wal_syncs;
  // Blocks found in the block cache.
  uint64_t block_cache_hits;
  // Blocks that were not in the block cache and were read from files.
  uint64_t block_cache_misses;
  // Memory of the block cache.
  uint64_t block_cache_bytes;
  // Point reads that found no version in the memtables, and found the row in the row cache.
  uint64_t row_cache_hits;
  // Values written to blob files.
  uint64_t blobs_written;
  // Bytes of the values written to blob files, as stored.
  uint64_t blob_bytes_written;
  // Values read from blob files, whole or in part.
  uint64_t blobs_read;
  // Bytes read from blob files, as stored.
  uint64_t blob_bytes_read;
  // Bytes in blob files that rows refer to, old versions included.
  uint64_t blob_bytes_live;
  // Bytes of blob files that were given back to the file system by punching holes.
  uint64_t blob_bytes_punched;
  // Bytes of blobs that were moved to other blob files.
  uint64_t blob_bytes_rewritten;
  // Point reads that found no version in the memtables, and did not find the row in the row
  // cache.
  uint64_t row_cache_misses;
  // Memory of the row cache.
  uint64_t row_cache_bytes;
  // Memory that open files keep for their indexes and filters.
  uint64_t pinned_bytes;
  // Memory of uncommitted changes.
  uint64_t write_set_bytes;
  // Closed log segments that wait for the archive.
  uint64_t log_archive_waiting;
  // Bytes of the closed log segments that wait for the archive.
  uint64_t log_archive_waiting_bytes;
  // Log segments archived.
  uint64_t log_archived;
  // Attempts to archive that failed.
  uint64_t log_archive_failures;
  // Memory that the engine has in use, all that the memory limit covers.
  uint64_t memory_bytes;
  // The part of `memory_bytes` that no component counts.
  uint64_t uncounted_bytes;
  // Memory that the engine's allocator holds, unused pages included.
  uint64_t resident_bytes;
  // Bytes written by flushes.
  uint64_t flushed_bytes;
  // Bytes read by compactions.
  uint64_t compacted_bytes_read;
  // Bytes written by compactions.
  uint64_t compacted_bytes_written;
  // Bytes written by compactions that were copied in whole blocks, as they were stored.
  uint64_t reused_bytes;
  // Memory of memtables.
  uint64_t memtable_bytes;
  // Number of waits for row locks.
  uint64_t lock_waits;
  // Deadlocks found.
  uint64_t deadlocks;
  // Seqno of the last commit.
  uint64_t last_seqno;
  // Commits delayed or stopped by write stalls.
  uint64_t write_stalls;
  // Time that commits were delayed or stopped by write stalls, microseconds.
  uint64_t write_stall_us;
  // Bytes of the disk reserve, which is kept for getting out of a full disk.
  uint64_t reserve_bytes;
  // SSTs and blob files that are open for reading.
  uint64_t open_files;
  // Times that an SST or blob file was opened for reading.
  uint64_t opened_files;
  // Times that an SST or blob file was opened beyond the limit, because no other one could be
  // closed.
  uint64_t open_files_over_limit;
  // Times that an SST was opened without memory for its whole index.
  uint64_t opened_without_index;
  // Times that the memory of an open SST was given back to make room for others.
  uint64_t evicted_files;
  // Times that an SST was opened beyond the memory for open files, because all others were in
  // use.
  uint64_t pinned_over_limit;
  // Lock waits that ended because their time ran out.
  uint64_t lock_timeouts;
  // Commits that failed because their validation found that another transaction had changed rows
  // of optimistic tables on which they depend.
  uint64_t optimistic_conflicts;
  // Number of commits since the oldest snapshot of a transaction was taken.
  uint64_t history_length;
  // Time since the oldest snapshot of a transaction was taken, seconds.
  uint64_t oldest_snapshot_age;
  // Condition of the database: 0 good; 1 the disk is full, but some writes still succeed; 2 the
  // disk is full and every write fails; 3 writes are refused until a restart, because a write or
  // a sync failed.
  uint64_t condition;
} firn_counters;

// One index of a table, for `information_schema`.
typedef struct firn_index_info {
  // `database/table`.
  const char *table_name;
  // Name of the index.
  const char *index_name;
  // Estimated number of rows.
  uint64_t rows;
  // Bytes before compression.
  uint64_t raw_bytes;
  // Bytes in files.
  uint64_t stored_bytes;
  // Bytes of values out of line in blob files.
  uint64_t blob_bytes;
} firn_index_info;

// One level of the tree, for `information_schema`.
typedef struct firn_level_info {
  // Number of the level; 0 has the newest entries.
  uint32_t level;
  // Number of sorted runs.
  uint64_t runs;
  // Number of files.
  uint64_t files;
  // Bytes in files.
  uint64_t stored_bytes;
  // Number of entries, including deletions and old versions.
  uint64_t entries;
  // Number of deletions.
  uint64_t deletes;
  // Size that the level should have, in bytes.
  uint64_t target_bytes;
} firn_level_info;

// Stored entries and bytes of one index.
typedef struct firn_index_detail {
  // `database/table`.
  const char *table_name;
  // Name of the index.
  const char *index_name;
  // Its id.
  uint64_t id;
  // Whether rows may not agree in all its parts.
  bool unique;
  // Whether it holds the rows.
  bool clustered;
  // Number of declared parts; 0 for a hidden key.
  uint64_t parts;
  // Entries, deletions and old versions included.
  uint64_t entries;
  // Deletions.
  uint64_t deletes;
  // The part of the entries that is in memtables.
  uint64_t entries_in_memory;
  // Bytes before compression.
  uint64_t raw_bytes;
  // Bytes in files.
  uint64_t stored_bytes;
} firn_index_detail;

// A table file.
typedef struct firn_file_info {
  // Name in the directory of the database.
  const char *name;
  // Its level.
  uint64_t level;
  // Position of its run in the level, 0 for the newest.
  uint64_t run;
  // Stored bytes.
  uint64_t size;
  // Entries, deletions and old versions included.
  uint64_t entries;
  // Deletions.
  uint64_t deletes;
  // Entries that a newer one of the same file hides.
  uint64_t superseded;
  // Bytes before compression.
  uint64_t raw_bytes;
  // Number of indexes with entries in the file.
  uint64_t indexes;
  // Smallest seqno.
  uint64_t min_seqno;
  // Largest seqno.
  uint64_t max_seqno;
  // Smallest key in words.
  const char *smallest;
  // Largest key in words.
  const char *largest;
  // Whether it is in the object store.
  bool remote;
} firn_file_info;

// A flush or compaction that has ended.
typedef struct firn_job_info {
  // Number since the database was opened.
  uint64_t number;
  // `flush`, `compact`, `move` or `drop`.
  const char *kind;
  // The reason for which it was picked; empty for a flush.
  const char *reason;
  // Newest level of its inputs; -1 for a memtable.
  int64_t from_level;
  // Level of its output.
  uint64_t to_level;
  // Files read, moved or dropped.
  uint64_t files_in;
  // Files written.
  uint64_t files_out;
  // Stored bytes read.
  uint64_t read_bytes;
  // Stored bytes written.
  uint64_t written_bytes;
  // The part of them that was copied in whole blocks.
  uint64_t reused_bytes;
  // Entries read.
  uint64_t entries_in;
  // Entries written.
  uint64_t entries_out;
  // When it began, microseconds since 1970.
  uint64_t begun_us;
  // How long it took, microseconds.
  uint64_t took_us;
  // The error with which it ended, or NULL.
  const char *error;
} firn_job_info;

// The reads of one class from one source.
typedef struct firn_io_info {
  // Name of the class, which says what the reads were for.
  const char *class_name;
  // Name of the source.
  const char *source;
  // Number of reads.
  uint64_t reads;
  // Bytes asked for.
  uint64_t bytes;
  // Latency in microseconds that half of the reads did not exceed; at most a quarter too large,
  // as the other percentiles. The latencies have no meaning without reads.
  uint64_t latency_us_p50;
  // Latency in microseconds that 95 % of the reads did not exceed.
  uint64_t latency_us_p95;
  // Latency in microseconds that 99 % of the reads did not exceed.
  uint64_t latency_us_p99;
  // Latency of the slowest read in microseconds.
  uint64_t latency_us_max;
} firn_io_info;

// A name with two numbers. It describes a reason for which writers are delayed (number and
// duration of the delays), or a user of memory (its bytes and their limit).
typedef struct firn_named_pair {
  // Name.
  const char *name;
  // Number of delays, or bytes.
  uint64_t first;
  // Microseconds, or the limit in bytes; 0 for no limit.
  uint64_t second;
} firn_named_pair;

// Reads of one thread since it began.
typedef struct firn_reads {
  // Blocks looked up, in the block cache or in a file.
  uint64_t blocks;
  // Reads of files.
  uint64_t file_reads;
  // Time of these reads, microseconds.
  uint64_t file_read_us;
  // Reads of files that were requested ahead.
  uint64_t prefetched;
  // Entries passed over: old versions, deletions, and entries that are too new.
  uint64_t passed_over;
} firn_reads;

// An open transaction of a session.
typedef struct firn_trx_info {
  // Names the transaction while it is open.
  uint64_t id;
  // The number of its session; 0 for none.
  uint64_t session;
  // How far it is.
  enum firn_trx_state state;
  // Its isolation level.
  enum firn_isolation isolation;
  // When it began, microseconds since 1970.
  uint64_t begun_us;
  // When the transaction's lock wait began, microseconds since 1970; 0 if it does not wait.
  uint64_t wait_begun_us;
  // Keys locked.
  uint64_t rows_locked;
  // Ranges locked against inserts.
  uint64_t gaps_locked;
  // Rows changed.
  uint64_t rows_changed;
  // Estimated cost of rolling the transaction back. Of the transactions in a deadlock, the one
  // with the smallest weight becomes the victim, unless the server prefers another one.
  uint64_t weight;
  // Memory of its own writes, bytes.
  uint64_t write_bytes;
  // When the transaction took its snapshot, microseconds since 1970; 0 if it keeps none.
  uint64_t snapshot_us;
  // Number of commits since the transaction took its snapshot.
  uint64_t snapshot_commits;
  // The SQL text that the transaction's session executes; NULL if there is none.
  const char *statement;
} firn_trx_info;

// A lock that a transaction holds, or that it waits for.
typedef struct firn_lock_info {
  // The transaction, as [`firn_trx_info::id`] names it.
  uint64_t trx;
  // Number of its session; 0 if it has none or is not known.
  uint64_t session;
  // Kind of the lock.
  enum firn_lock_kind kind;
  // Whether the transaction has the lock; otherwise it waits for it.
  bool granted;
  // Number of keys locked; 0 for a gap.
  uint64_t rows;
  // `database/table`.
  const char *table_name;
  // Name of the index; empty for a hidden primary key.
  const char *index_name;
  // The key, or the first of several, in words.
  const char *key;
  // The last of several keys; for a gap, the key at which the gap ends. NULL for a single key.
  const char *last_key;
  // When the wait began, microseconds since 1970; 0 for a lock that is held.
  uint64_t wait_begun_us;
  // One transaction that blocks the request; 0 for a lock that is held. If several transactions
  // block the request, it is listed once for each of them.
  uint64_t blocker;
  // Number of the blocker's session.
  uint64_t blocker_session;
} firn_lock_info;

typedef void (*LockCallback)(void *context, const struct firn_lock_info *info);

// A transaction in a deadlock.
typedef struct firn_deadlock_info {
  // Number of the deadlock since the database was opened.
  uint64_t number;
  // When it was found, microseconds since 1970.
  uint64_t at_us;
  // The transaction, as [`firn_trx_info::id`] named it.
  uint64_t trx;
  // Number of its session.
  uint64_t session;
  // Whether it was rolled back.
  bool is_victim;
  // Estimated cost of its rollback.
  uint64_t weight;
  // Kind of the lock that it waited for.
  enum firn_lock_kind kind;
  // `database/table`.
  const char *table_name;
  // Name of the index; empty for a hidden primary key.
  const char *index_name;
  // The key in words.
  const char *key;
  // The transaction that blocked it.
  uint64_t blocker;
  // The SQL text that it executed; NULL if it could not be had.
  const char *statement;
} firn_deadlock_info;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Reserves `count` values of the series `offset + k * increment`. `first` is set to the first
// value, `reserved` to the number of values. `FIRN_AUTOINC_EXHAUSTED` if no value is left.
//
// # Safety
// The table must be live, and the pointers must be writable.
enum firn_status firn_autoinc_reserve(const struct firn_table *table,
                                      uint64_t offset,
                                      uint64_t increment,
                                      uint64_t count,
                                      uint64_t *first,
                                      uint64_t *reserved);

// Notes that a row with the AUTO_INCREMENT value `used` was written: later values are larger, also
// after a restart.
//
// # Safety
// The handles must be live, and only this thread may use the session.
void firn_autoinc_raise(struct firn_session *session,
                        const struct firn_table *table,
                        uint64_t used);

// The smallest AUTO_INCREMENT value that the next row can get; 0 if `table` is NULL.
//
// # Safety
// The table must be live.
uint64_t firn_autoinc_next_value(const struct firn_table *table);

// Makes `next` the next AUTO_INCREMENT value, or the value after `largest` if that is greater.
// `largest` is the largest value in any row. Durable on return. Nobody may write to the table
// meanwhile.
//
// # Safety
// The table must be live.
enum firn_status firn_autoinc_set(const struct firn_table *table, uint64_t next, uint64_t largest);

// Inserts a row into the target of a copying ALTER: nobody else sees the table until
// `firn_bulk_end`. `flags` are `FIRN_BULK_ONE_BY_ONE`, `FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK` and
// `FIRN_WRITE_NO_FOREIGN_KEYS`. The call checks the table's foreign keys, except those that the
// table to replace has too, because the rows of that table have been checked already. The other
// arguments are those of `firn_insert`.
//
// # Safety
// The requirements are those of `firn_insert`.
enum firn_status firn_bulk_insert(struct firn_session *session,
                                  const struct firn_table *table,
                                  const uint8_t *record,
                                  uint32_t flags,
                                  uint32_t *dup_index,
                                  uint8_t *ref_out);

// Ends a load. On return all its rows are durable, and visible to snapshots that are taken from
// now on. If the call fails, call `firn_bulk_abort`. One such failure is `FIRN_DUPLICATE`: two
// rows of the load have the same key in index `dup_index`.
//
// # Safety
// The handles must be live, and only this thread may use the session; `progress` must not call the
// core.
enum firn_status firn_bulk_end(struct firn_session *session,
                               const struct firn_table *table,
                               firn_progress progress,
                               void *context,
                               uint32_t *dup_index);

// After a load has ended because two of its rows have the same key, writes the second of these
// rows to `record`. The row's blobs stay valid until the next call or
// the end of the transaction.
//
// # Safety
// The handles must be live, and only this thread may use the session; `record` must be a record
// buffer of the table.
enum firn_status firn_bulk_duplicate(struct firn_session *session,
                                     const struct firn_table *table,
                                     uint8_t *record);

// Gives up a load. The caller must then drop the table.
//
// # Safety
// The session must be live and used by this thread alone.
enum firn_status firn_bulk_abort(struct firn_session *session, const struct firn_table *table);

// Opens a cursor on the index of `table` with the number `index`. `FIRN_PRIMARY` is the number of
// the clustered index if the primary key is hidden.
//
// # Safety
// The handles must be live, `out` must be writable, and `session` must stay valid until the cursor
// is closed, parked or reset.
enum firn_status firn_cursor_open(struct firn_session *session,
                                  const struct firn_table *table,
                                  uint32_t index,
                                  enum firn_read_mode mode,
                                  enum firn_wait wait,
                                  struct firn_cursor **out);

// Points a cursor at another index, session or mode, so that no new cursor need be allocated.
//
// # Safety
// The requirements are those of `firn_cursor_open`.
enum firn_status firn_cursor_reset(struct firn_cursor *cursor,
                                   struct firn_session *session,
                                   uint32_t index,
                                   enum firn_read_mode mode,
                                   enum firn_wait wait);

// Parks a cursor at the end of a statement: releases its session, super version and blocks. The
// cursor keeps its last key, and the blobs that the last record points to.
//
// # Safety
// `cursor` must be live and used by this thread alone.
void firn_cursor_park(struct firn_cursor *cursor);

// Frees the memory of long values that a cursor keeps, at the end of a statement. The blobs that
// the last record points to become invalid.
//
// # Safety
// `cursor` must be live and used by this thread alone.
void firn_cursor_trim(struct firn_cursor *cursor);

// Continues with a parked cursor in another statement: the next move continues from the last key,
// at the read point of the new statement.
//
// # Safety
// The requirements are those of `firn_cursor_open`.
enum firn_status firn_cursor_resume(struct firn_cursor *cursor,
                                    struct firn_session *session,
                                    enum firn_read_mode mode,
                                    enum firn_wait wait);

// Closes a cursor.
//
// # Safety
// `cursor` must be NULL or live, and must not be used afterwards.
void firn_cursor_close(struct firn_cursor *cursor);

// Sets a condition on the entries of a secondary index for a read without locks: the cursor passes
// over entries for which the condition is false. It holds until the cursor is reset or parked.
//
// # Safety
// `cursor` must be live and used by this thread alone, and `context` valid until the cursor is
// reset, parked or closed.
enum firn_status firn_cursor_condition(struct firn_cursor *cursor,
                                       firn_condition condition,
                                       void *context);

// Chooses the columns to decode. `bitmap` has bit `i % 8` of byte `i / 8` for column `i`; NULL
// means all columns. `key_only` decodes the columns of the index and of the primary key from the
// index entry alone. `parts` names the columns of which the cursor reads only a part if the value
// lies out of line. The cursor still reads short values whole. It also reads the values of locked
// rows whole, except BLOBs of which only the length is needed: a statement that neither reads nor
// writes such a BLOB passes both records to `firn_update` without the BLOB's bytes.
//
// # Safety
// `cursor` must be live and used by this thread alone. `bitmap` must be NULL or have a bit for
// each column; `parts` must have `part_count` elements.
enum firn_status firn_cursor_columns(struct firn_cursor *cursor,
                                     const uint8_t *bitmap,
                                     bool key_only,
                                     const struct firn_partial_column *parts,
                                     uint32_t part_count);

// Ends forward scans at a key image. `flag` is the server's: with `HA_READ_AFTER_KEY` entries that
// begin with the image are still read, with `HA_READ_BEFORE_KEY` the scan ends before them. A NULL
// key removes the end.
//
// # Safety
// `cursor` must be live and used by this thread alone; `key` must be NULL or have `key_len` bytes.
enum firn_status firn_cursor_end_range(struct firn_cursor *cursor,
                                       const uint8_t *key,
                                       uint32_t key_len,
                                       uint32_t flag);

// Takes one exclusive lock that stands for all entries whose keys begin with a key image, and
// keeps it until the transaction ends. It takes the lock even if there is no such entry. Until the
// cursor is reset, its scans end with these entries and lock no gaps. A statement calls this
// before it checks a key that it is about to write, so that the same check of another transaction
// waits. An image of no bytes stands for the whole index.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; the key image must have
// the length given.
enum firn_status firn_cursor_lock_key_prefix(struct firn_cursor *cursor,
                                             const uint8_t *key,
                                             uint32_t key_len);

// Writes the eight bytes of the hidden key of the row last read.
//
// # Safety
// `cursor` must be live and used by this thread alone; `out` must have room for eight bytes.
enum firn_status firn_cursor_ref(struct firn_cursor *cursor, uint8_t *out);

// Turns semi-consistent reading on or off. When it is on, a locking scan of the clustered index
// does not wait at a row that another transaction has locked, but returns the row's last committed
// version. If that version matches the statement's condition, the caller makes the next move or
// repeats the seek: this call waits for the lock and returns the row again, locked.
//
// # Safety
// `cursor` must be live and used by this thread alone.
enum firn_status firn_cursor_set_semi_consistent(struct firn_cursor *cursor, bool on);

// Whether the row last read was returned without its lock, by semi-consistent reading.
//
// # Safety
// `cursor` must be live and used by this thread alone.
bool firn_cursor_was_semi_consistent(struct firn_cursor *cursor);

// Releases the lock of the row last read, if reading it took the lock.
//
// # Safety
// `cursor` and its session must be live and used by this thread alone.
enum firn_status firn_cursor_unlock_row(struct firn_cursor *cursor);

// Removes the row last read from the transaction's validation set, if reading the row has added
// it. The caller does this when the row does not match the statement's condition: the commit then
// does not depend on the row. Locks stay.
//
// # Safety
// `cursor` and its session must be live and used by this thread alone.
enum firn_status firn_cursor_forget_row(struct firn_cursor *cursor);

// Moves to the entry that the key image and `find_flag` (the server's `ha_rkey_function`) choose,
// and reads its row. A NULL key means the first entry.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; `record` must have the
// table's record length; the key image must have the length given.
enum firn_status firn_cursor_seek(struct firn_cursor *cursor,
                                  const uint8_t *key,
                                  uint32_t key_len,
                                  uint32_t find_flag,
                                  uint8_t *record);

// Moves the cursor to the first entry of the index and reads its row.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; `record` must have the
// table's record length.
enum firn_status firn_cursor_first(struct firn_cursor *cursor, uint8_t *record);

// Moves the cursor to the last entry of the index and reads its row.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; `record` must have the
// table's record length.
enum firn_status firn_cursor_last(struct firn_cursor *cursor, uint8_t *record);

// Moves the cursor to the entry behind its position in the index and reads its row.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; `record` must have the
// table's record length.
enum firn_status firn_cursor_next(struct firn_cursor *cursor, uint8_t *record);

// Moves the cursor to the entry before its position in the index and reads its row.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; `record` must have the
// table's record length.
enum firn_status firn_cursor_prev(struct firn_cursor *cursor, uint8_t *record);

// Moves the cursor to the entry behind its position in the index, and reads the row if the key of
// that entry starts with the key image.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; `record` must have the
// table's record length; the key image must have the length given.
enum firn_status firn_cursor_next_same(struct firn_cursor *cursor,
                                       const uint8_t *key,
                                       uint32_t key_len,
                                       uint8_t *record);

// Reads the row that has this key in a unique index, without a scan. The key image has all parts.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; `record` must have the
// table's record length; the key image must have the length given.
enum firn_status firn_cursor_get(struct firn_cursor *cursor,
                                 const uint8_t *key,
                                 uint32_t key_len,
                                 uint8_t *record);

// Reads the row that a row reference identifies. The reference is the key image of the primary
// key, or the eight bytes of `firn_cursor_ref` if the primary key is hidden.
//
// # Safety
// The cursor and its session must be live and used by this thread alone; `record` must have the
// table's record length; the key image must have the length given.
enum firn_status firn_cursor_get_ref(struct firn_cursor *cursor,
                                     const uint8_t *reference,
                                     uint32_t len,
                                     uint8_t *record);

// Opens the database in `config->dir` and recovers it. Commits or rolls back the transactions that
// earlier server runs prepared, as the binary logs of those runs say. Leaves prepared the
// transactions with a client's xid, and those whose outcome the server itself decides after
// `firn_recover`.
//
// # Safety
// The pointers must be valid; the callbacks of `host` must stay valid until `firn_close`.
enum firn_status firn_open(const struct firn_config *config,
                           const struct firn_host *host,
                           struct firn_db **out);

// Closes the database. On return, all commits are durable, and background threads have ended,
// except for those that hang in a file operation of the log archive or of the object store: they
// make no callback any more. The second one keeps the data directory locked until it ends.
// The handle is freed even if an error is returned. This library must stay loaded: its code runs
// in that thread, and at the end of each thread that has called it.
//
// # Safety
// `db` must be from `firn_open`. Neither `db` nor its sessions, tables and cursors may be used
// afterwards.
enum firn_status firn_close(struct firn_db *db);

// Makes everything committed so far durable.
//
// # Safety
// `db` must be open.
enum firn_status firn_sync_log(const struct firn_db *db);

// Makes a checkpoint of everything committed so far in `target`, a directory that must not exist.
// With `flush` the memtables are flushed first. The checkpoint is durable on return.
//
// # Safety
// `db` must be open; `target` must be a string.
enum firn_status firn_checkpoint(const struct firn_db *db,
                                 const char *target,
                                 bool flush,
                                 enum firn_remote_files remote,
                                 firn_progress progress,
                                 void *context);

// Notes that the server's binary log ends in `file` at `position`. The core stores this position
// in its own log with the next change of the catalog, so that the log archive can be recovered to
// a position in the binary log. Without a log archive the call does nothing.
//
// # Safety
// `db` must be open; `file` must be a string.
enum firn_status firn_note_binlog_position(const struct firn_db *db,
                                           const char *file,
                                           uint64_t position);

// Notes the server run that prepares transactions from now on: the run that writes `file` of its
// binary log, or, with NULL, a run without a binary log. Call this before the first transaction is
// prepared, and whenever the server has begun another file.
//
// # Safety
// `db` must be open; `file` must be NULL or a string.
enum firn_status firn_note_server_run(const struct firn_db *db, const char *file);

// Freezes the memtable and writes all memtables to files.
//
// # Safety
// `db` must be open.
enum firn_status firn_flush(const struct firn_db *db);

// Changes an option; the new value is used from now on.
//
// # Safety
// `db` must be open.
enum firn_status firn_set_option(const struct firn_db *db, enum firn_option option, uint64_t value);

// Writes the xids of prepared transactions without a session into at most `cap` slots, skipping
// the first `skip` xids. Returns the number of slots written.
//
// # Safety
// `db` must be open; `slots` must have room for `cap` slots.
uint32_t firn_recover(const struct firn_db *db, uint8_t *slots, uint32_t cap, uint32_t skip);

// Commits a prepared transaction that no session owns. `FIRN_NO_ROW` if the xid is unknown.
//
// # Safety
// `db` must be open; `xid` must have `len` bytes.
enum firn_status firn_commit_xid(const struct firn_db *db, const uint8_t *xid, size_t len);

// Rolls back a prepared transaction that no session owns. `FIRN_NO_ROW` if the xid is unknown.
//
// # Safety
// `db` must be open; `xid` must have `len` bytes.
enum firn_status firn_rollback_xid(const struct firn_db *db, const uint8_t *xid, size_t len);

// Creates a table: atomic and durable. The core stores `frm` and `version` for the server and does
// not read them. `autoincrement` is the first AUTO_INCREMENT value of the table. `foreign_keys`
// may be NULL for a table without foreign keys.
//
// # Safety
// The pointers must be valid for their types.
enum firn_status firn_create_table(const struct firn_db *db,
                                   const char *table_name,
                                   const struct firn_table_def *definition,
                                   const uint8_t *frm,
                                   size_t frm_len,
                                   const uint8_t *version,
                                   size_t version_len,
                                   uint64_t autoincrement,
                                   const struct firn_foreign_key_request *foreign_keys);

// Creates a temporary table: neither it nor its rows are logged, and the next start finds nothing
// of it. No other table may have the name `table_name` as long as it exists. Other functions take
// the table by its name or its handle, like any table. `autoincrement` is the first AUTO_INCREMENT
// value.
//
// # Safety
// `session` must be live and used by this thread alone; the pointers must be valid for their
// types.
enum firn_status firn_create_temporary_table(const struct firn_db *db,
                                             struct firn_session *session,
                                             const char *table_name,
                                             const struct firn_table_def *definition,
                                             uint64_t autoincrement);

// Drops a table: atomic and durable. `FIRN_NO_TABLE` if there is none. `FIRN_FOREIGN_KEY` if
// `checks` is set and a foreign key of another table refers to this table; with `whole_database`,
// foreign keys of tables in the same database do not count, because those tables are dropped too.
// `session` is the session that drops the table, or NULL. A temporary table can be dropped only
// with its session.
//
// # Safety
// `session` must be NULL, or live and used by this thread alone; the pointers must be valid for
// their types.
enum firn_status firn_drop_table(const struct firn_db *db,
                                 struct firn_session *session,
                                 const char *table_name,
                                 bool checks,
                                 bool whole_database);

// Renames a table with its foreign keys: atomic and durable. Foreign keys of other tables that
// refer to it get the new name, unless `to` is the name that a copying ALTER gives to the old
// table. In that case the call first waits until no transaction relies on the table's indexes for
// a foreign key, for at most `lock_timeout_us`. A kill of `session` ends the wait. If `session` is
// NULL, the call fails at once where it would have to wait. `from_text` and `to_text` are the
// names as SQL has them, without the database.
//
// # Safety
// The pointers must be valid for their types.
enum firn_status firn_rename_table(const struct firn_db *db,
                                   const char *from,
                                   const char *to,
                                   const char *from_text,
                                   const char *to_text,
                                   struct firn_session *session,
                                   bool checks,
                                   uint64_t lock_timeout_us);

// Empties a table: atomic and durable. Its AUTO_INCREMENT values start anew. Open handles of the
// table stay valid and see the empty table. The call first waits until no transaction relies on
// the table's indexes for a foreign key, for at most `lock_timeout_us`. A kill of `session` ends
// the wait. If `session` is NULL, the call fails at once where it would have to wait. A temporary
// table can be emptied only with its session.
//
// # Safety
// `session` must be NULL, or live and used by this thread alone; the pointers must be valid for
// their types.
enum firn_status firn_truncate_table(const struct firn_db *db,
                                     struct firn_session *session,
                                     const char *table_name,
                                     uint64_t lock_timeout_us);

// Calls `each` with the name of every table whose name starts with `prefix`.
//
// # Safety
// The pointers must be valid; `each` must not call the core.
enum firn_status firn_list_table_names(const struct firn_db *db,
                                       const char *prefix,
                                       void (*each)(void *context, const char *name),
                                       void *context);

// Copies the version of a table's definition to `out`, at most `cap` bytes: the bytes that the
// server gave as `version` when the table was created or last changed. `len` is set to their full
// number.
//
// # Safety
// The pointers must be valid for their types.
enum firn_status firn_table_version(const struct firn_db *db,
                                    const char *table_name,
                                    uint8_t *out,
                                    size_t cap,
                                    size_t *len);

// Tells the core that the server begins to repeat or undo the DDL that a crash has interrupted.
// Until `firn_end_ddl_recovery`, drops and renames check no foreign keys, and a full disk does not
// prevent them.
//
// # Safety
// `db` must be open.
enum firn_status firn_begin_ddl_recovery(const struct firn_db *db);

// Handles the tables that interrupted DDL has left over. Call this after the server has repeated
// or undone the DDL that it knows of. A copy that is the only table with its rows gets its name
// back; other copies are dropped.
//
// # Safety
// `db` must be open; `files` must be valid, and its functions must be callable.
enum firn_status firn_end_ddl_recovery(const struct firn_db *db,
                                       const struct firn_definition_files *files);

// Returns the rule that the last `FIRN_FOREIGN_KEY` of this thread says is broken, one of
// `firn_violation`. Sets `table` to the referencing table, as `database/table`, `name` to the name
// of the foreign key (or of an index, see `firn_violation`), and `text` to the error's message
// without a prefix. The strings are valid until the next call on this thread.
//
// # Safety
// The pointers must be writable.
enum firn_violation firn_last_foreign_key(const char **table, const char **name, const char **text);

// Message of the last call on this thread that failed; "" if there was none. Valid until the next
// call on this thread.
const char *firn_last_error(void);

// Makes the commit of an index change also add and drop foreign keys. `FIRN_FOREIGN_KEY` if one of
// them is not allowed, or if the change drops an index that a foreign key needs.
//
// # Safety
// The change must be live; `request` must be valid as its description says.
enum firn_status firn_index_change_foreign_keys(struct firn_index_change *change,
                                                const struct firn_foreign_key_request *request);

// Calls `each` with every foreign key of the table, or, with `referencing`, with every one that
// refers to it.
//
// # Safety
// The pointers must be valid; `each` must not call the core.
enum firn_status firn_list_foreign_keys(const struct firn_db *db,
                                        const char *table_name,
                                        bool referencing,
                                        void (*each)(void *context,
                                                     const struct firn_foreign_key_info *key),
                                        void *context);

// Whether a foreign key refers to the table. It takes constant time.
//
// # Safety
// The table must be live.
bool firn_is_referenced(const struct firn_table *table);

// Whether the table has a foreign key that refers to the table itself and that the core checks:
// one that an ALTER TABLE copies from the table to replace does not count, because its rows have
// been checked already.
//
// # Safety
// The table must be live.
bool firn_refers_to_itself(const struct firn_table *table);

// Plans to give `table` the columns and indexes of `definition`, which has the primary key of the
// table. `columns` has for each column of `definition` the number of that column in the table, or
// `FIRN_NONE` for a new column; `indexes` has the same for each index. `defaults` is a record
// buffer of `definition` with the values that the new columns get in all rows of the table.
// `FIRN_UNSUPPORTED`, with the reason in words, if the change takes a copy of the rows or of the
// primary index.
//
// # Safety
// The table must be live; the pointers must be valid for their types, `columns` and `indexes` for
// as many numbers as the definition has columns and indexes, `defaults` for a record buffer of the
// definition. New columns of `defaults` that are blobs must point to their bytes. The collator's
// callbacks and the handles of the definition's collations must stay valid until the change is
// freed.
enum firn_status firn_index_change_new(const struct firn_table *table,
                                       const struct firn_table_def *definition,
                                       const uint32_t *columns,
                                       const uint32_t *indexes,
                                       const uint8_t *defaults,
                                       struct firn_index_change **out);

// Fills the new indexes from the rows of the table. Nobody may change rows of the table from this
// call to the commit. `FIRN_DUPLICATE` means that two rows have the same key in the new unique
// index `dup_index`: `record` gets the second of these rows, whose blobs stay valid until the next
// call of the session.
//
// # Safety
// The handles must be live, and only this thread may use the session; `record` must be a record
// buffer of the table; `progress` must not call the core.
enum firn_status firn_index_change_fill(struct firn_session *session,
                                        struct firn_index_change *change,
                                        firn_progress progress,
                                        void *context,
                                        uint8_t *record,
                                        size_t record_len,
                                        uint32_t *dup_index);

// Makes the commit of the change also set the table's next AUTO_INCREMENT value: to `next`, or to
// the value after `largest` if that is greater. `largest` is the largest value in any row.
//
// # Safety
// The change must be live.
enum firn_status firn_index_change_autoinc(struct firn_index_change *change,
                                           uint64_t next,
                                           uint64_t largest);

// Commits the changes of several tables (the partitions of one table) at once, with the server's
// new definition and version: atomic and durable. Open handles of the tables keep the old
// definition, so the caller must close them. The call first waits until no transaction relies on
// the tables' indexes for a foreign key, for at most `lock_timeout_us`. A kill of `session` ends
// the wait. If `session` is NULL, the call fails at once where it would have to wait.
//
// # Safety
// The handles must be live; `changes` must have `count` different ones; the other pointers must be
// valid for their types.
enum firn_status firn_index_change_commit(const struct firn_db *db,
                                          struct firn_index_change *const *changes,
                                          size_t count,
                                          const uint8_t *frm,
                                          size_t frm_len,
                                          const uint8_t *version,
                                          size_t version_len,
                                          struct firn_session *session,
                                          bool checks,
                                          uint64_t lock_timeout_us);

// Ends a change. If it was not committed, the entries of its new indexes become garbage.
//
// # Safety
// `change` must be NULL or from `firn_index_change_new`, and must not be used afterwards.
void firn_index_change_free(struct firn_index_change *change);

// Checks a list of nodes of the memory pool, as [`firn_set_pool_nodes`] does, and changes nothing.
//
// # Safety
// `nodes` must be NULL or a string.
enum firn_status firn_check_pool_nodes(const char *nodes);

// Sets the nodes of the memory pool: `host:port`, `[IPv6]:port`, one of these behind `tls:`, or
// `unix:/path`, apart by commas, each with `*weight` behind it if that is not 1. Empty for none.
//
// # Safety
// `db` must be open; `nodes` must be a string.
enum firn_status firn_set_pool_nodes(const struct firn_db *db, const char *nodes);

// Switches the memory pool on or off.
//
// # Safety
// `db` must be open.
enum firn_status firn_set_pool_enabled(const struct firn_db *db, bool enabled);

// Calls `each` for every node of the memory pool.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_pool_nodes(const struct firn_db *db,
                                      void (*each)(void *context,
                                                   const struct firn_pool_node_info *info),
                                      void *context);

// Calls `each` for the object store, if there is one. Asks nothing of the store.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_object_stores(const struct firn_db *db,
                                         void (*each)(void *context,
                                                      const struct firn_object_store_info *info),
                                         void *context);

// Inserts a row. `FIRN_DUPLICATE` means that a unique index has the key already: `dup_index` is
// set to the number of the first such index, in ascending order, and nothing of the row is
// written. `ref_out` (may be NULL) gets the eight bytes of a hidden key.
//
// # Safety
// The handles must be live, and only this thread may use the session; `record` must be a record
// buffer of the table.
enum firn_status firn_insert(struct firn_session *session,
                             const struct firn_table *table,
                             const uint8_t *record,
                             uint32_t flags,
                             uint32_t *dup_index,
                             uint8_t *ref_out);

// Changes a row that was read under an exclusive lock. `old_ref` is the eight bytes of the row's
// hidden key, or NULL if the table has a primary key. `FIRN_SAME_ROW` means that both records are
// equal. `FIRN_DUPLICATE` and `dup_index` are as for `firn_insert`.
//
// # Safety
// The requirements are those of `firn_insert`, for both records.
enum firn_status firn_update(struct firn_session *session,
                             const struct firn_table *table,
                             const uint8_t *old_record,
                             const uint8_t *new_record,
                             const uint8_t *old_ref,
                             uint32_t flags,
                             uint32_t *dup_index);

// Deletes a row that was read under an exclusive lock. `reference` is the eight bytes of the row's
// hidden key, or NULL if the table has a primary key.
//
// # Safety
// The requirements are those of `firn_insert`.
enum firn_status firn_delete(struct firn_session *session,
                             const struct firn_table *table,
                             const uint8_t *record,
                             const uint8_t *reference,
                             uint32_t flags);

// Writes the key of one string to `out`, as an index on a VARCHAR column would have it, or, if
// `chars` is not zero, as an index on a CHAR column of so many characters. Returns the length of
// the key. If that is above `capacity`, nothing is written. Returns 0 if `collation` is not a
// valid description of a collation. Only tests of the callbacks need this function.
//
// # Safety
// All pointers must be valid; `text` must have `len` bytes, and `out` must have room for
// `capacity`.
size_t firn_text_key(const struct firn_collation *collation,
                     const struct firn_collator *collator,
                     const uint8_t *text,
                     size_t len,
                     uint32_t chars,
                     uint8_t *out,
                     size_t capacity);

// Makes a session. The core passes `host` to the callbacks of
// [`firn_host`](crate::host_callbacks::firn_host), until [`firn_session_free`] has returned.
// `number` names the session in reports.
//
// # Safety
// `db` must be open; `out` must be writable.
enum firn_status firn_session_new(const struct firn_db *db,
                                  void *host,
                                  uint64_t number,
                                  struct firn_session **out);

// Ends a session. An active transaction is rolled back; a prepared one is left for
// `firn_commit_xid` and `firn_rollback_xid`. On return no callback that has the session's `host`
// is running, and none will be called with it.
//
// # Safety
// `session` must be NULL or from `firn_session_new`, and must not be used afterwards.
void firn_session_free(struct firn_session *session);

// Begins a transaction if none is active. Begins a statement if `statement_id` is new: sets the
// statement's savepoint, and at READ COMMITTED gives the statement a snapshot of its own.
// `autocommit` says that the statement is the whole transaction. `lock_timeout_us` limits each of
// its lock waits.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_begin_statement(struct firn_session *session,
                                      uint64_t statement_id,
                                      enum firn_isolation isolation,
                                      uint64_t lock_timeout_us,
                                      bool autocommit);

// Tells the core that the session's statement will change or lock rows of the table. Call it for
// each such table before the statement reads, so that all its reads of optimistic tables show the
// same state.
//
// # Safety
// The handles must be live, and only this thread may use the session.
enum firn_status firn_table_expect_changes(const struct firn_table *table,
                                           struct firn_session *session);

// Makes the session's transactions lock rows of optimistic tables, too, and wait for each other:
// for a session that applies the changes of another server, in their order.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_lock_optimistic_tables(struct firn_session *session, bool on);

// Clears the validation set of a transaction without writes, so that `firn_commit` cannot fail for
// it. Call this when another engine has already committed its part of the transaction. Does
// nothing for a transaction with writes.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_forget_reads(struct firn_session *session);

// Ends the statement and keeps its changes.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_end_statement(struct firn_session *session);

// Rolls back the statement's changes, and keeps its locks.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_rollback_statement(struct firn_session *session);

// Fixes the snapshot of the transaction now. Call `firn_begin_statement` first, which begins the
// transaction. Does nothing at READ COMMITTED, where every statement has a snapshot of its own.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_consistent_snapshot(struct firn_session *session);

// Commits: makes the changes visible, releases the locks, and waits until the commit is as durable
// as the flush mode says, unless the host holds its answer back until then. If
// `firn_commit_ordered` has made the changes visible already, the call does only the rest. Does
// nothing if no transaction is active.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_commit(struct firn_session *session);

// Leaves the session's prepared transaction to the next start of the server, which decides its
// outcome, because the log has failed and cannot take an outcome now. Releases the transaction's
// locks.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_leave_prepared(struct firn_session *session);

// First phase of a two-phase commit: on return the changes are in the log under the xid, as
// durable as the flush mode says. `may_stay` says that another session may decide the outcome:
// until then, DDL is refused for the tables that the transaction has changed.
//
// # Safety
// `session` must be live and used by this thread alone; the pointers must be valid for their
// types.
enum firn_status firn_prepare(struct firn_session *session,
                              const uint8_t *xid,
                              size_t xid_len,
                              bool may_stay);

// Second phase: assigns the seqno and makes the changes visible, without I/O. `binlog_file` and
// `binlog_pos` are the position of the commit in the binary log; the file may be NULL.
//
// # Safety
// `session` must be live and used by this thread alone; the pointers must be valid for their
// types.
enum firn_status firn_commit_ordered(struct firn_session *session,
                                     const char *binlog_file,
                                     uint64_t binlog_pos);

// Rolls back all changes and releases the locks.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_rollback(struct firn_session *session);

// Sets a savepoint and writes its number to `mark`. The savepoint is valid until the transaction
// ends.
//
// # Safety
// `session` must be live and used by this thread alone; the pointers must be valid for their
// types.
enum firn_status firn_savepoint(struct firn_session *session, uint64_t *mark);

// Rolls back all writes after the savepoint. Locks are kept, except those of keys that only these
// writes have locked.
//
// # Safety
// `session` must be live and used by this thread alone.
enum firn_status firn_rollback_to_savepoint(struct firn_session *session, uint64_t mark);

// Whether DDL on a table that the transaction has used could harm the transaction after a rollback
// to a savepoint. It could if the transaction has written, holds locks that such a rollback keeps,
// or validates its reads when it commits.
//
// # Safety
// `session` must be live and used by this thread alone.
bool firn_depends_on_tables(const struct firn_session *session);

// Ends the session's lock wait. If the session waits for no lock now, its next lock wait fails.
// May be called from any thread.
//
// # Safety
// `session` must be live.
void firn_kill(const struct firn_session *session);

// Forgets a kill that was meant for a statement that has ended.
//
// # Safety
// `session` must be live and used by this thread alone.
void firn_clear_kill(struct firn_session *session);

// Reads the statistics of a table. With `size_only` it leaves out what the optimizer does not need
// in a statement: `index_stored_bytes`, `free_bytes` and `create_time_s` are 0. `session` may be
// NULL; `own_rows` is 0 then.
//
// # Safety
// The table must be live, `out` must be writable, and no other thread may use the session.
enum firn_status firn_table_statistics(const struct firn_session *session,
                                       const struct firn_table *table,
                                       bool size_only,
                                       struct firn_table_stats *out);

// Estimates the rows in a range of an index, with those that the open transaction of `session` has
// added, unless it is NULL. A NULL key leaves that end of the range open. The
// flags are the server's: `HA_READ_AFTER_KEY` excludes the key itself at the lower end and
// includes it at the upper end.
//
// # Safety
// The table must be live; the keys must have the lengths given; no other thread may use the
// session.
uint64_t firn_records_in_range(const struct firn_session *session,
                               const struct firn_table *table,
                               uint32_t index,
                               const uint8_t *min_key,
                               uint32_t min_len,
                               uint32_t min_flag,
                               const uint8_t *max_key,
                               uint32_t max_len,
                               uint32_t max_flag);

// Writes for n = 1, 2 and so on the mean number of rows that agree in the first n key parts of an
// index, at most `parts` numbers. Only the key parts that the definition of the index names count.
// Reads the properties of at most 64 files of the index. Only if these tell nothing (an older
// version wrote them), or memtables have very many entries, it reads a few dozen blocks for each
// key part.
//
// # Safety
// The table must be live, and `rows_per_key` must have room for `parts` numbers.
enum firn_status firn_index_statistics(const struct firn_table *table,
                                       uint32_t index,
                                       double *rows_per_key,
                                       uint32_t parts);

// Reads the counters.
//
// # Safety
// `db` must be open, and `out` must be writable.
enum firn_status firn_read_counters(const struct firn_db *db, struct firn_counters *out);

// Passes the text of SHOW ENGINE FIRN STATUS to `emit`.
//
// # Safety
// `db` must be open; `emit` must not call the core.
enum firn_status firn_status_text(const struct firn_db *db,
                                  void (*emit)(void *context, const char *text, size_t len),
                                  void *context);

// Calls `each` for every index of every table.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_indexes(const struct firn_db *db,
                                   void (*each)(void *context, const struct firn_index_info *info),
                                   void *context);

// Calls `each` for every level.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_levels(const struct firn_db *db,
                                  void (*each)(void *context, const struct firn_level_info *info),
                                  void *context);

// Calls `each` for every index of every table.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_index_details(const struct firn_db *db,
                                         void (*each)(void *context,
                                                      const struct firn_index_detail *info),
                                         void *context);

// Calls `each` for every table file.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_files(const struct firn_db *db,
                                 void (*each)(void *context, const struct firn_file_info *info),
                                 void *context);

// Calls `each` for the last 200 flushes and compactions, oldest first.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_jobs(const struct firn_db *db,
                                void (*each)(void *context, const struct firn_job_info *info),
                                void *context);

// Calls `each` for every class of reads of files, of blocks that came from the memory pool
// instead, and, with an object store, of reads of its files by the place that has served them.
// Reads that a cache in memory served are not counted.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_io(const struct firn_db *db,
                              void (*each)(void *context, const struct firn_io_info *info),
                              void *context);

// Calls `each` for every reason for which writers are delayed.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_stalls(const struct firn_db *db,
                                  void (*each)(void *context, const struct firn_named_pair *info),
                                  void *context);

// Calls `each` for every user of memory, for `total`, and for the numbers of the allocator.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_memory(const struct firn_db *db,
                                  void (*each)(void *context, const struct firn_named_pair *info),
                                  void *context);

// Returns the counts of the reads that the calling thread has made since it began. The difference
// of two such results counts the reads between the two calls.
struct firn_reads firn_thread_reads(void);

// Opens a table, which the server defines as `definition`. `FIRN_DEFINITION_DIFFERS` if this
// definition gives the table's rows or keys other bytes than the stored one; the message of the
// error names the remedy.
//
// # Safety
// The pointers must be valid for their types.
enum firn_status firn_table_open(const struct firn_db *db,
                                 const char *table_name,
                                 const struct firn_table_def *definition,
                                 struct firn_table **out);

// Whether the table is a temporary one, which only one session uses.
//
// # Safety
// The table must be live.
bool firn_table_is_temporary(const struct firn_table *table);

// Describes how the definition given at open differs from the stored one, although rows and keys
// have the same bytes by both definitions; NULL if the definitions do not differ. The text is
// valid until the table is closed.
//
// # Safety
// The table must be live.
const char *firn_table_warning(const struct firn_table *table);

// Whether the table is optimistic: transactions lock nothing in it, and a commit fails if another
// transaction has changed rows on which it depends.
//
// # Safety
// The table must be live.
bool firn_table_is_optimistic(const struct firn_table *table);

// Closes a table.
//
// # Safety
// `table` must be NULL or from `firn_table_open`, and must not be used afterwards. Its open
// cursors may still be used.
void firn_table_close(struct firn_table *table);

// Refuses to let the caller copy a table that a prepared transaction has changed: the copy would
// lack these changes if the transaction commits later. `FIRN_LOCK_TIMEOUT` if there is such a
// transaction.
//
// # Safety
// The table must be live.
enum firn_status firn_refuse_prepared_changes(const struct firn_table *table);

// Checks a table: checksums of its files, and that rows and index entries match. With `extended`,
// looks up each row and each entry; without `extended`, only the rows and entries of an index
// whose entries do not match the rows. `problem` is called for each problem found; the status is
// then `FIRN_CORRUPTION`.
//
// # Safety
// The handles must be live, and only this thread may use the session; `problem` must not call the
// core.
enum firn_status firn_check_table(struct firn_session *session,
                                  const struct firn_table *table,
                                  bool extended,
                                  void (*problem)(void *context, const char *text),
                                  void *context,
                                  uint64_t *rows);

// Compacts the table's indexes: afterwards all entries are in the last level, and the versions and
// tombstones that no snapshot needs are gone. Calls `progress` between two compactions. If it
// returns true the call ends with `FIRN_INTERRUPTED`, and the compactions that are done stay in
// effect.
//
// # Safety
// The handles must be live; `progress` must not call the core.
enum firn_status firn_optimize_table(const struct firn_table *table,
                                     firn_progress progress,
                                     void *context);

// Calls `each` for every open transaction of a session.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_transactions(const struct firn_db *db,
                                        void (*each)(void *context, const struct firn_trx_info *info),
                                        void *context);

// Calls `each` for the locks that transactions hold, at most 100,000; the locks of a large
// statement count as one for each index. With `waits`, calls it instead for every request that
// waits.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_locks(const struct firn_db *db,
                                 bool waits,
                                 LockCallback each,
                                 void *context);

// Calls `each` for every transaction of the last ten deadlocks, the oldest deadlock first.
//
// # Safety
// `db` must be open; `each` must not call the core.
enum firn_status firn_list_deadlocks(const struct firn_db *db,
                                     void (*each)(void *context,
                                                  const struct firn_deadlock_info *info),
                                     void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* FIRN_H */
