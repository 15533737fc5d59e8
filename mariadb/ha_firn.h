/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"
#include "session.h"
#include "share.h"

#include <vector>

/*
  How a statement reads the rows of a table, chosen when it begins on it. It is one value, so that a clone has all of it
  and the next statement inherits nothing.
*/
struct ReadIntent {
  firn_read_mode mode = FIRN_READ_SNAPSHOT;
  firn_wait wait = FIRN_WAIT;
  /* The server asked for no lock at all. */
  bool plain = false;
  /* Rows are read to be changed: all columns are needed, the new row is built from the old one. */
  bool whole_row = false;
  /* The lock of a row that does not match is given back: READ COMMITTED and below. */
  bool gives_back = false;
  /* Rows that another transaction has locked are shown first, and waited for only if they match. The server turns it on
   * for a single loop over one handler, so a clone does not have it. */
  bool semi_consistent = false;

  bool locks() const { return mode != FIRN_READ_SNAPSHOT; }
};

/*
  A table opened by a connection: the server's handler over one cursor of the core.

  Steps of a statement
    store_lock      remembers the lock the server would take
    external_lock   (start_stmt under LOCK TABLES) finds the session, begins the statement, turns that lock into how
  rows are read: from the snapshot, with shared or with exclusive row locks index_init …    aims the cursor; the core
  decodes rows straight into the server's record buffer write_row …     hands record buffers to the core reset parks the
  cursor: nothing stays pinned, its memory does

  Invariants
    - The cursor is made once per handler and then re-aimed: a statement allocates nothing.
    - A parked cursor refers to no session; a handler sits in the table cache longer than the session that used it.
    - Which columns to decode is told to the core only when read_set, key read or the index changed.

  Rejected: one cursor per scan (an allocation per statement), and positions that the core makes up: the server's own
  key image of the primary key is the row's position, so that position() needs no cursor.
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
  bool autoinc_lock_mode_stmt_unsafe() const override { return true; }

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
  ha_rows estimate_rows_upper_bound() override { return HA_POS_ERROR; }

  /* DDL */
  int create(const char* name, TABLE* form, HA_CREATE_INFO* info) override;
  int delete_table(const char* name) override;
  int rename_table(const char* from, const char* to) override;
  int truncate() override;
  void update_create_info(HA_CREATE_INFO* info) override;
  enum_alter_inplace_result check_if_supported_inplace_alter(TABLE* altered, Alter_inplace_info* info) override;
  bool prepare_inplace_alter_table(TABLE* altered, Alter_inplace_info* info) override;
  bool inplace_alter_table(TABLE* altered, Alter_inplace_info* info) override;
  bool commit_inplace_alter_table(TABLE* altered, Alter_inplace_info* info, bool commit) override;

  /* administration */
  int check(THD* thd, HA_CHECK_OPT* options) override;
  int analyze(THD* thd, HA_CHECK_OPT* options) override;
  int optimize(THD* thd, HA_CHECK_OPT* options) override;

  /* errors */
  void print_error(int error, myf flags) override;
  bool get_error_message(int error, String* text) override;

 private:
  bool has_primary_key() const { return table_share->primary_key != MAX_KEY; }
  /* The core's number of the index that holds the rows. */
  uint32_t clustered_index() const { return has_primary_key() ? table_share->primary_key : FIRN_PRIMARY; }

  int begin(THD* thd, thr_lock_type lock_type, bool write);
  int refuse_unsupported(THD* thd, bool write);
  ReadIntent read_intent(THD* thd, thr_lock_type lock_type, bool write) const;

  /* Makes the cursor read `index` for this statement, and the columns that read_set asks for. */
  int aim(uint32_t index);
  int choose_columns();
  /* Columns of which this statement needs only a part; none where that is not certain. */
  bool may_leave_unread() const;
  void choose_unread(std::vector<firn_partial_column>* parts) const;
  void choose_partial_columns(std::vector<firn_partial_column>* parts) const;
  bool may_read_partial_columns() const;
  bool wants_large_column() const;
  bool reads_entries_only() const;
  void park();
  /* Continues a scan whose cursor was parked in between (HANDLER … READ NEXT). */
  int resume_scan();
  void clear_bound();
  bool is_unique_lookup(const KEY* key_info, key_part_map parts) const;
  int read_status(firn_status status) { return likely(status == FIRN_OK) ? 0 : firn_error(status); }
  int firn_error(firn_status status);
  void estimate_rows_per_key();
  int end_bulk();
  void abort_bulk();
  void note_duplicate(uint32_t index);
  /* The hidden row id of the row last read or written, for tables without a primary key. */
  const uchar* current_row_id();
  void raise_auto_increment(const Field* field, const uchar* record);
  int largest_auto_increment(ulonglong* largest);

  firn::Share* m_share = nullptr;
  firn::Session* m_session = nullptr;

  firn_cursor* m_cursor = nullptr;
  uint32_t m_cursor_index = 0;
  bool m_cursor_live = false;
  /* A scan was parked and goes on with the next read. */
  bool m_scan_parked = false;
  bool m_scan_started = false;
  /* The cursor carries an end of range, and rows beyond it are not returned. */
  bool m_bounded = false;
  bool m_in_read_range = false;
  /* A point read answered index_read_map; a scan from there starts beyond this key (in m_point_key). */
  bool m_at_point = false;

  /* As store_lock() was given it, for the external_lock() that follows. */
  thr_lock_type m_lock_type = TL_UNLOCK;
  ReadIntent m_intent;
  /* A clone reads as the handler that it was made from. */
  bool m_is_clone = false;
  bool m_keyread = false;

  /* What the cursor was last told to decode. m_columns, m_point_key and m_path share one allocation. */
  bool m_columns_known = false;
  bool m_columns_whole = false;
  bool m_columns_keyread = false;
  std::vector<firn_partial_column> m_parts;
  uchar* m_columns = nullptr;
  uint m_columns_bytes = 0;

  uchar* m_point_key = nullptr;
  uint m_point_key_length = 0;

  /* As given to open(): a partition's own path. */
  const char* m_path = nullptr;

  uint32_t m_write_flags = 0;
  bool m_bulk = false;
  uchar m_row_id[8] = {};
  bool m_row_id_is_of_cursor = false;
  double m_rows_bytes = 0;
};
