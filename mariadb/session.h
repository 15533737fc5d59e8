/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */
#pragma once

#include "engine.h"

#include <memory>

namespace firn {

/*
  A connection's session: the session of the core, and the state that the server's two-phase commit
  needs between its calls.

  Invariants
    - One per THD. The THD owns it through thd_set_ha_data(); get() makes it at the first use of
      the engine, close_connection frees it.
    - begin_statement() runs before a row is read or written. It registers the transaction with
      the server, which would otherwise neither commit nor log it.
    - The statement savepoint belongs to the outermost statement. Statements of triggers and
      functions call begin_statement() again and find the statement begun: only the server's end
      of a statement (commit or rollback) ends it.
    - After abort_transaction() nothing is read or written until the server has rolled back.
*/
class Session {
 public:
  /*
    The session of `thd`; makes one if there is none. NULL if memory is short or the engine is not
    open.
  */
  static Session* get(THD* thd);
  /* The session of `thd`, or NULL. */
  static Session* find(THD* thd) { return static_cast<Session*>(thd_get_ha_data(thd, hton)); }
  /* Whether the transaction does not end with the running statement. */
  bool in_multi_statement_transaction() const;
  /* For close_connection: rolls back an active transaction, detaches a prepared one. */
  static void close(THD* thd);

  /*
    Registers the transaction and begins a statement if none has begun. Returns 0 or an error of the
    server.
  */
  int begin_statement();
  /* START TRANSACTION WITH CONSISTENT SNAPSHOT. */
  int begin_snapshot();

  /*
    Called before a row is written. Returns 0 or an error of the server. If the engine is installed
    in a running server that would now choose another coordinator, the server clears hton->prepare
    and says so only in a warning of that INSTALL statement. A transaction in which another engine
    has also written would then not commit as a whole, so the write is refused.
  */
  int may_write() { return hton->prepare ? 0 : refuse_second_engine(); }

  /*
    The handlerton's callbacks, see sql/handler.h. `all` ends the transaction; otherwise the call
    ends the statement, and with it the transaction in autocommit mode.
  */
  int commit(bool all);
  int rollback(bool all);
  int prepare(bool all);
  void commit_ordered();

  /* Rolls the core's transaction back at once, and marks the server's for rollback. */
  void abort_transaction();
  bool aborted() const { return phase_ == CommitPhase::kAborted; }

  /*
    Translates a status of the core to the server's error number. If the status ends the statement
    or the transaction (lock wait timeout, deadlock), the function marks it for rollback. It rolls a
    deadlock's victim back at once, because its locks must not wait for the client. The session
    keeps the core's text for print_error().
  */
  int to_server_error(firn_status status);

  firn_session* core() const { return core_; }
  THD* thd() const { return thd_; }
  /* The statement has NOWAIT, or a lock timeout of 0. */
  bool no_wait() const { return lock_timeout_us_ == 0; }

  /*
    Number of the index in which a duplicate key was found. It is kept here because the server may
    ask the handler of another partition for it.
  */
  void note_duplicate(uint32_t index) { duplicate_index_ = index; }
  uint32_t duplicate_index() const { return duplicate_index_; }

  /*
    Whether statement `query` has not yet been told about table option `option` (below 64): the
    partitions of a table are created one by one, with the same options.
  */
  bool note_option(uint64_t query, uint option) {
    if (query != noted_query_) noted_options_ = 0;
    noted_query_ = query;
    const uint64_t bit = uint64_t(1) << option;
    const bool fresh = !(noted_options_ & bit);
    noted_options_ |= bit;
    return fresh;
  }

  /* A bulk load failed at its end, where the server ignores the error: commit() must fail. */
  void fail_load() { load_failed_ = true; }

  /* The core's text of the last failure. */
  const char* message() const { return failure_ ? failure_->message : ""; }

  /*
    The foreign key of the last failure: the referencing table as the core's catalog names it, and
    the name of the key, or of the index that a cascade found a duplicate in.
  */
  const char* broken_table() const { return failure_ ? failure_->table : ""; }
  const char* broken_key() const { return failure_ ? failure_->key : ""; }

  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  Session(THD* thd, firn_session* core) : core_(core), thd_(thd) {}
  ~Session() { firn_session_free(core_); }

  /*
    The transaction's way through the server's two-phase commit. Its end, and nothing else, leads
    back to kActive.
  */
  enum class CommitPhase : uint8_t {
    kActive,
    kPrepared,
    /*
      The changes are visible since commit_ordered(). The binary log is off, so no other log says
      that the transaction commits.
    */
    kOrdered,
    /* As kOrdered, and the transaction is in the binary log: recovery after a crash commits it. */
    kOrderedInBinlog,
    /* Rolled back in the core, from kActive or kPrepared; the server has yet to roll back. */
    kAborted,
  };

  /* Texts of the last failure. */
  struct Failure {
    char message[512] = "";
    char table[FN_REFLEN] = "";
    char key[NAME_LEN + 1] = "";
  };

  /* Keeps the core's text of its last failure; forgets it if memory is short. */
  void keep_message();
  int lose();
  bool another_engine_commits(bool all) const;
  int refuse_xa();
  int refuse_second_engine();
  bool is_ordered() const { return phase_ == CommitPhase::kOrdered || phase_ == CommitPhase::kOrderedInBinlog; }
  bool is_real_end(bool all) const { return all || !in_multi_statement_transaction(); }
  int note_foreign_key();
  void register_with_server();
  /*
    Clears a kill that was meant for an earlier statement; sets it again if the server still reports
    the session as killed.
  */
  void forget_old_kill();
  void transaction_ended();

  firn_session* const core_;
  THD* const thd_;
  uint64_t statement_id_ = 0;
  uint64_t lock_timeout_us_ = 0;
  bool statement_begun_ = false;
  bool registered_ = false;
  CommitPhase phase_ = CommitPhase::kActive;
  bool load_failed_ = false;
  uint32_t duplicate_index_ = 0;
  uint64_t noted_query_ = 0;
  uint64_t noted_options_ = 0;
  /* NULL until the session's first failure, which most sessions never have. */
  std::unique_ptr<Failure> failure_;
};

}  // namespace firn
