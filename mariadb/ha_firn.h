/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"
#include "session.h"
#include "share.h"

#include <vector>

/*
  How a statement reads the rows of this table. begin() computes it for each statement. It is one
  value, so that clone() copies all of it and the next statement inherits none of it.
*/
struct ReadIntent {
  firn_read_mode mode = FIRN_READ_SNAPSHOT;
  firn_wait wait = FIRN_WAIT;
  /* The server's lock type is TL_READ or weaker: the statement asks for no row locks. */
  bool plain = false;
  /*
    The statement changes rows. It reads all columns, because the new row is built from the old one.
  */
  bool whole_row = false;
  /* Locks of rows that do not match are released: READ COMMITTED and below. */
  bool gives_back = false;
  /*
    A row that another transaction has locked is first returned as it was last committed; the
    statement waits for the lock only if that row matches. The server turns this on for a loop over
    one handler, so clone() clears it.
  */
  bool semi_consistent = false;

  bool locks() const { return mode != FIRN_READ_SNAPSHOT; }
};

/*
  A table opened by a connection: the server's handler interface over one cursor of the core.

  A statement calls, in this order:

    store_lock      The server names the table lock that it would take. The handler keeps it.
    external_lock   Finds the session, begins the statement in the core, and turns the lock type
                    into a ReadIntent: snapshot, shared row locks or exclusive row locks. Under
                    LOCK TABLES the server calls start_stmt instead.
    index_init, …   Aims the cursor. The core decodes rows straight into the record buffer.
    write_row, …    Passes record buffers to the core.
    reset           Parks the cursor: it unpins everything and keeps its memory.

  Invariants
    - A handler opens one cursor and re-aims it, so that a statement allocates no cursor.
    - A parked cursor refers to no session: a handler stays in the table cache longer than the
      session that used it.
    - The core gets the columns to decode only when the index, read_set, the key read or the
      partial columns have changed.

  Rejected
    - One cursor per scan: an allocation per statement.
    - Row positions made by the core: the position of a row is the server's key image of its
      primary key, so that position() needs no cursor.
*/
class ha_firn final : public handler {
 public:
  ha_firn(handlerton* hton, TABLE_SHARE* share) : handler(hton, share) {}

  /* flags and limits */
  Table_flags table_flags() const override;
  ulong index_flags(uint index, uint part, bool all_parts) const override;
  const char* index_type(uint) override { return "BTREE"; }
  uint max_supported_keys() const override { return MAX_KEY; }
  uint max_supported_key_length() const override { return MAX_DATA_LENGTH_FOR_KEY; }
  uint max_supported_key_part_length() const override { return MAX_DATA_LENGTH_FOR_KEY; }
  const key_map* keys_to_use_for_scanning() override { return &key_map_full; }
  uint8 table_cache_type() override { return HA_CACHE_TBL_NOCACHE; }
  bool autoinc_lock_mode_stmt_unsafe() const override;
  /* There is one row format. Its rows have no fixed length. */
  enum row_type get_row_type() const override { return ROW_TYPE_DYNAMIC; }

  /* open and close */
  int open(const char* name, int mode, uint test_if_locked) override;
  int close() override;
  handler* clone(const char* name, MEM_ROOT* mem_root) override;
  int reset() override;
  int extra(enum ha_extra_function operation) override;

  /* locks */
  uint lock_count() const override { return 0; }
  THR_LOCK_DATA** store_lock(THD* thd, THR_LOCK_DATA** to, enum thr_lock_type lock_type) override;
  int external_lock(THD* thd, int lock_type) override;
  int start_stmt(THD* thd, thr_lock_type lock_type) override;
  void unlock_row() override;
  void try_semi_consistent_read(bool yes) override;
  bool was_semi_consistent_read() override;

  /* reads */
  int index_init(uint index, bool sorted) override;
  int index_end() override;
  int index_read_map(uchar* buf, const uchar* key, key_part_map parts, enum ha_rkey_function flag) override;
  int index_read_idx_map(uchar* buf, uint index, const uchar* key, key_part_map parts,
                         enum ha_rkey_function flag) override;
  int index_read_last_map(uchar* buf, const uchar* key, key_part_map parts) override;
  int index_next(uchar* buf) override;
  int index_prev(uchar* buf) override;
  int index_first(uchar* buf) override;
  int index_last(uchar* buf) override;
  int index_next_same(uchar* buf, const uchar* key, uint length) override;
  int read_range_first(const key_range* start, const key_range* end, bool equal, bool sorted) override;
  int read_range_next() override;
  int rnd_init(bool scan) override;
  int rnd_end() override;
  int rnd_next(uchar* buf) override;
  int rnd_pos(uchar* buf, uchar* position) override;
  void position(const uchar* record) override;
  int cmp_ref(const uchar* left, const uchar* right) override;
  void column_bitmaps_signal() override;
  Item* idx_cond_push(uint index, Item* condition) override;

  /* writes */
  int write_row(const uchar* buf) override;
  int update_row(const uchar* old_row, const uchar* new_row) override;
  int delete_row(const uchar* buf) override;
  void get_auto_increment(ulonglong offset, ulonglong increment, ulonglong wanted, ulonglong* first,
                          ulonglong* reserved) override;
  int reset_auto_increment(ulonglong value) override;

  /* statistics and costs */
  int info(uint flag) override;
  ha_rows multi_range_read_info_const(uint index, RANGE_SEQ_IF* ranges, void* init, uint count, uint* buffer_size,
                                      uint* mode, Cost_estimate* cost) override;
  ha_rows records_in_range(uint index, const key_range* min, const key_range* max, page_range*) override;
  double scan_time() override;
  double read_time(uint index, uint ranges, ha_rows rows) override;
  ha_rows estimate_rows_upper_bound() override;

  /* DDL */
  int create(const char* name, TABLE* form, HA_CREATE_INFO* info) override;
  int delete_table(const char* name) override;
  int rename_table(const char* from, const char* to) override;
  int truncate() override;
  void update_create_info(HA_CREATE_INFO* info) override;
  bool check_if_incompatible_data(HA_CREATE_INFO* info, uint table_changes) override;
  bool can_convert_nocopy(const Field& field, const Column_definition& column) const override;
  Compare_keys compare_key_parts(const Field& old_field, const Column_definition& column, const KEY_PART_INFO& old_part,
                                 const KEY_PART_INFO& new_part) const override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE* altered, Alter_inplace_info* info) override;
  bool prepare_inplace_alter_table(TABLE* altered, Alter_inplace_info* info) override;
  bool inplace_alter_table(TABLE* altered, Alter_inplace_info* info) override;
  bool commit_inplace_alter_table(TABLE* altered, Alter_inplace_info* info, bool commit) override;

  /* foreign keys */
  char* get_foreign_key_create_info() override;
  void free_foreign_key_create_info(char* text) override;
  int get_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* keys) override;
  int get_parent_foreign_key_list(THD* thd, List<FOREIGN_KEY_INFO>* keys) override;
  bool referenced_by_foreign_key() const noexcept override;
  bool can_switch_engines() override;
  bool get_foreign_dup_key(char* child_table, uint table_size, char* child_key, uint key_size) override;

  /* administration */
  int check(THD* thd, HA_CHECK_OPT* options) override;
  int analyze(THD* thd, HA_CHECK_OPT* options) override;
  int optimize(THD* thd, HA_CHECK_OPT* options) override;

  /* errors */
  void print_error(int error, myf flags) override;
  bool get_error_message(int error, String* text) override;

 private:
  bool has_primary_key() const { return table_share->primary_key != MAX_KEY; }
  /* The core's number of the clustered index. */
  uint32_t clustered_index() const { return has_primary_key() ? table_share->primary_key : FIRN_PRIMARY; }

  /* `nested`: the table was locked before, by LOCK TABLES or by the statement around this one. */
  int begin(THD* thd, thr_lock_type lock_type, bool write, bool nested);
  void forget_statement();
  int refuse_unsupported(THD* thd, bool write);
  /* Temporary tables have no part in a commit of several engines. */
  int may_write() { return m_share->is_temporary() || is_sequence() ? 0 : m_session->may_write(); }
  firn_read_mode locked_mode(THD* thd, thr_lock_type lock_type, bool write) const;
  firn_read_mode nested_mode(THD* thd, thr_lock_type lock_type, bool write) const;
  ReadIntent read_intent(THD* thd, thr_lock_type lock_type, bool write, firn_read_mode mode) const;

  /*
    Points the cursor at `index` for this statement and chooses its columns. Returns 0 or an error
    of the server.
  */
  int aim(uint32_t index);
  int choose_columns();
  /* Gives the cursor the condition that the server has pushed for its index. */
  int push_condition();
  static int entry_verdict(void* handler, uchar* record);
  /*
    These choose the columns that the statement needs only in part, see partial_columns.cc. If it is
    not certain that a part suffices, they choose none.
  */
  bool has_large_column() const;
  bool may_leave_unread() const;
  void choose_unread(std::vector<firn_partial_column>* parts) const;
  const std::vector<firn_partial_column>& parts_in_text();
  void choose_partial_columns(std::vector<firn_partial_column>* parts);
  bool may_read_partial_columns() const;
  bool wants_large_column() const;
  bool reads_entries_only() const;
  bool entries_lack_columns(uint index) const;
  /* virtual_columns.cc */
  bool has_virtual_part(uint index) const;
  template <typename Wanted>
  bool compute_virtual_columns(uchar* record, bool ignore_errors, Wanted wanted);
  void compute_virtual_parts(uchar* record);
  int compute_indexed_columns(const uchar* record);
  void park();
  /* Continues a scan whose cursor was parked between two calls, as HANDLER … READ NEXT does. */
  int resume_scan();
  void clear_bound();
  bool is_unique_lookup(const KEY* key_info, const uchar* key, key_part_map parts) const;
  int read_status(firn_status status) { return likely(status == FIRN_OK) ? 0 : firn_error(status); }
  /* As read_status(), after a read of an index into `record`. */
  int read_status(firn_status status, uchar* record) {
    if (unlikely(m_virtual_parts) && status == FIRN_OK) compute_virtual_parts(record);
    return read_status(status);
  }
  int firn_error(firn_status status);
  bool estimate_rows_per_key();
  int end_bulk();
  void abort_bulk();
  bool may_load() const;
  void note_duplicate(uint32_t index);
  /* The hidden row id of the row last read or written; NULL if the table has a primary key. */
  const uchar* current_row_id();
  bool loses_geometry(const uchar* old_row, const uchar* new_row) const;
  void raise_auto_increment(const Field* field, const uchar* record);
  int largest_auto_increment(ulonglong* largest);

  /* sequence.cc: the transaction of its own in which a sequence is read and written. */
  bool is_sequence() const;
  int begin_own();
  int commit_own(int error);
  void end_own();
  void free_own();
  /* The core's session that reads and writes this table. */
  firn_session* core_session() const { return m_own ? m_own : m_session->core(); }

  bool checks_unique_key(const KEY* key_info, key_part_map parts, enum ha_rkey_function flag) const;
  int lock_checked_key(const KEY* key_info, const uchar* key);

  firn::Share* m_share = nullptr;
  firn::Session* m_session = nullptr;
  firn_session* m_own = nullptr;
  uint64_t m_own_statement = 0;

  firn_cursor* m_cursor = nullptr;
  uint32_t m_cursor_index = 0;
  bool m_cursor_live = false;
  /* The cursor was parked in an open scan. The next read resumes it. */
  bool m_scan_parked = false;
  bool m_scan_started = false;
  /* The cursor has an end bound and returns no rows beyond it. */
  bool m_bounded = false;
  bool m_in_read_range = false;
  /*
    The last index_read_map() was a point read and positioned no scan. A scan that goes on from
    there begins beyond the key in m_point_key.
  */
  bool m_at_point = false;

  /* The lock type of the last store_lock(), for the external_lock() that follows. */
  thr_lock_type m_lock_type = TL_UNLOCK;
  ReadIntent m_intent;
  /* How the statement that locked the table reads it. */
  firn_read_mode m_locked_mode = FIRN_READ_LOCK_EXCLUSIVE;
  /* The server has locked the table for a statement and has not unlocked it yet. */
  bool m_locked = false;
  /*
    The server called reset() while the table was locked, which did not end the statement; see
    reset(). Unlocking the table, or the begin of the next statement, ends it.
  */
  bool m_statement_ends_at_unlock = false;
  /* Set in a clone: begin() keeps the ReadIntent that clone() copied. */
  bool m_is_clone = false;
  bool m_keyread = false;
  /* About the index that the cursor is aimed at: a key read reads rows. */
  bool m_entries_lack_columns = false;
  /* It has a virtual column that the server may not compute after a read. */
  bool m_virtual_parts = false;

  /* The columns that the cursor decodes. m_columns, m_point_key and m_path share one allocation. */
  bool m_columns_known = false;
  bool m_columns_whole = false;
  bool m_columns_keyread = false;
  std::vector<firn_partial_column> m_parts;
  /* The number of the statement whose text was parsed last, and the parts that it uses. */
  uint64_t m_text_query = UINT64_MAX;
  std::vector<firn_partial_column> m_text_parts;
  uchar* m_columns = nullptr;
  uint m_columns_bytes = 0;

  uchar* m_point_key = nullptr;
  uint m_point_key_length = 0;

  /* The path given to open(). A partition has its own. */
  const char* m_path = nullptr;

  /* FIRN_WRITE_… of firn_insert() and firn_update(). */
  uint32_t m_write_flags = 0;
  /* The rows are those of a copying ALTER: firn_bulk_insert() takes them, with these flags. */
  bool m_bulk = false;
  uint32_t m_bulk_flags = 0;
  uchar m_row_id[8] = {};
  bool m_row_id_is_of_cursor = false;
  double m_rows_bytes = 0;
  /* The table has a column whose values may lie out of line, see partial_columns.cc. */
  bool m_has_large_columns = false;
};
