/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

namespace firn {

/*
  A connection's side of its transaction: the core's session and what the server's two-phase commit has to remember
  between its calls.

  Invariants
    - One per THD, owned by it through thd_set_ha_data(); made at the first FIRN table, freed by close_connection.
    - begin_statement() runs before any row is read or written; it registers the transaction with the server, without
      which the server would neither commit nor log it.
    - The statement savepoint belongs to the outermost statement. Statements of triggers and functions call
      begin_statement() again and find it begun, because only the server's end of a statement (commit or rollback with
      all=false) ends it.
    - After abort_transaction() nothing is read or written until the server has rolled back.
*/
class Session {
 public:
  /* The session of `thd`, made if there is none. NULL: out of memory or the engine is closed; see firn_last_error(). */
  static Session* get(THD* thd);
  /* The session of `thd`, or NULL. */
  static Session* find(THD* thd) { return static_cast<Session*>(thd_get_ha_data(thd, hton)); }
  /* close_connection: rolls back what is active, detaches what is prepared. */
  static void close(THD* thd);

  /* Registers the transaction and begins a statement if none has begun. 0 or an error of the server. */
  int begin_statement();
  /* START TRANSACTION WITH CONSISTENT SNAPSHOT. */
  int begin_snapshot();

  /*
    Before a row is written; 0 or an error of the server. The server takes the engine's part in two-phase commits away
    when it is installed in a running server whose coordinator would then be another one, and says so in a warning of
    that statement alone. A transaction in which another engine has written too would not be committed as a whole.
  */
  int may_write() { return hton->prepare ? 0 : refuse_second_engine(); }

  /* The server's callbacks, see handlerton in sql/handler.h; `all` means the transaction, else the statement. */
  int commit(bool all);
  int rollback(bool all);
  int prepare(bool all);
  void commit_ordered();

  /* Rolls the core's transaction back now and has the server do the rest. */
  void abort_transaction();
  bool aborted() const { return aborted_; }

  firn_session* core() const { return core_; }
  THD* thd() const { return thd_; }
  /* NOWAIT (or a timeout of 0) was asked for this statement. */
  bool no_wait() const { return lock_timeout_us_ == 0; }

  /* Number of the index in which a key was found twice. Of a partitioned table, the server may ask another partition.
   */
  void note_duplicate(uint32_t index) { duplicate_index_ = index; }
  uint32_t duplicate_index() const { return duplicate_index_; }

  /* The end of a load failed where the server does not look: the transaction cannot be committed. */
  void fail_load() { load_failed_ = true; }

  /* The core's words for the last failure, for print_error(). */
  void keep_message(const char* text) { strmake(message_, text, sizeof(message_) - 1); }
  const char* message() const { return message_; }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  Session(THD* thd, firn_session* core) : core_(core), thd_(thd) {}
  ~Session() { firn_session_free(core_); }

  int refuse_xa();
  int refuse_second_engine();
  bool in_multi_statement_transaction() const;
  bool is_real_end(bool all) const { return all || !in_multi_statement_transaction(); }
  void register_with_server();
  /* A kill that came before was for an earlier statement, unless the server says that it still stands. */
  void forget_old_kill();
  void transaction_ended();

  firn_session* const core_;
  THD* const thd_;
  uint64_t statement_id_ = 0;
  uint64_t lock_timeout_us_ = 0;
  bool statement_begun_ = false;
  bool registered_ = false;
  bool prepared_ = false;
  bool ordered_ = false;
  /* The binary log has the transaction and repeats it after a crash. */
  bool in_binlog_ = false;
  bool aborted_ = false;
  bool load_failed_ = false;
  uint32_t duplicate_index_ = 0;
  /* commit_ordered() cannot fail; what went wrong there is reported by commit(). */
  char message_[512] = "";
};

}  // namespace firn
