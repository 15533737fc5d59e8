/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/* A session's transaction: its statements, and its commit, prepare and rollback in the core. */

#include "session.h"
#include "errors.h"
#include "binlog_file.h"
#include "lock_timeout.h"
#include "sysvars.h"
#include "xa.h"
#include "log.h"

#include <new>

/* The server exports both to engines; no header declares them. */
void mysql_bin_log_commit_pos(THD* thd, ulonglong* position, const char** file);
extern "C" bool thd_is_slave(const MYSQL_THD thd);

namespace firn {
namespace {

/* At SERIALIZABLE a plain SELECT locks what it reads, which external_lock.cc decides. */
firn_isolation isolation_of(THD* thd) {
  switch (thd_tx_isolation(thd)) {
    case ISO_READ_UNCOMMITTED:
      return FIRN_READ_UNCOMMITTED;
    case ISO_READ_COMMITTED:
      return FIRN_READ_COMMITTED;
    case ISO_REPEATABLE_READ:
      return FIRN_REPEATABLE_READ;
    default:
      return FIRN_SERIALIZABLE;
  }
}

}  // namespace

Session* Session::get(THD* thd) {
  if (Session* session = find(thd)) return session;
  firn_session* core = nullptr;
  if (!database || firn_session_new(database, thd, thd_get_thread_id(thd), &core) != FIRN_OK) return nullptr;
  Session* session = new (std::nothrow) Session(thd, core);
  if (!session) {
    firn_session_free(core);
    return nullptr;
  }
  /*
    A replica applies some transactions side by side, but commits them in the order of the primary.
    A later transaction that is validated first would make an earlier one lose, again and again.
    With locks, the later one waits for the earlier one, or is rolled back in favour of it.
  */
  if (thd_is_slave(thd)) (void)firn_lock_optimistic_tables(core, true);
  thd_set_ha_data(thd, hton, session);
  return session;
}

void Session::close(THD* thd) {
  Session* session = find(thd);
  if (!session) return;
  /*
    First hide the session from kill_query(), which looks it up under the lock that
    thd_set_ha_data() takes. Then delete it.
  */
  thd_set_ha_data(thd, hton, nullptr);
  delete session;
}

bool Session::in_multi_statement_transaction() const {
  return thd_test_options(thd_, OPTION_NOT_AUTOCOMMIT | OPTION_BEGIN) != 0;
}

void Session::register_with_server() {
  trans_register_ha(thd_, false, hton, 0);
  if (!registered_ && in_multi_statement_transaction()) {
    trans_register_ha(thd_, true, hton, 0);
    registered_ = true;
  }
}

void Session::forget_old_kill() {
  firn_clear_kill(core_);
  if (thd_kill_level(thd_) > THD_ABORT_SOFTLY) firn_kill(core_);
}

/*
  Like may_write(), for XA START … XA PREPARE: the server would prepare the other engines and leave
  this one out.
*/
int Session::refuse_xa() {
  Xid xid;
  thd_get_xid(thd_, reinterpret_cast<MYSQL_XID*>(&xid));
  if (xid.formatID < 0 || !is_from_client(xid)) return 0;
  my_printf_error(ER_NOT_SUPPORTED_YET,
                  "FIRN takes part in XA transactions only if it is loaded when the server starts: set "
                  "plugin_load_add = ha_firn and restart the server",
                  MYF(0));
  return kErrorReported;
}

int Session::refuse_second_engine() {
  const THD_TRANS* const lists[] = {&thd_->transaction->all, &thd_->transaction->stmt};
  for (const THD_TRANS* list : lists)
    for (Ha_trx_info* other = list->ha_list; other; other = other->next())
      if (other->ht() != hton && other->ht()->recover && other->is_trx_read_write()) {
        my_printf_error(ER_NOT_SUPPORTED_YET,
                        "FIRN commits together with another engine only if it is loaded when the server starts: set "
                        "plugin_load_add = ha_firn and restart the server",
                        MYF(0));
        return kErrorReported;
      }
  return 0;
}

/*
  Whether another engine writes in the transaction that the server commits in one phase. That engine
  may have committed already when the server calls FIRN. The server's list of engines does not show
  it: as soon as an engine has committed, the server clears its entry, with its flags and its link
  to the next entry. But before the first engine commits, the server sets backup_commit_lock if any
  engine has written. Engines that only read do not count, nor does a binary log without changes,
  although START TRANSACTION WITH CONSISTENT SNAPSHOT registers all of them.
*/
bool Session::another_engine_commits(bool all) const {
  if (!thd_->backup_commit_lock) return false;
  const Ha_trx_info& own = thd_->ha_data[hton->slot].ha_info[all];
  /*
    FIRN has written too, but has rolled back to a savepoint. If another engine had written as well,
    the server would have prepared all of them, unless an engine without two-phase commit takes part
    (no_2pc).
  */
  if (own.is_started() && own.is_trx_read_write())
    return all ? thd_->transaction->all.no_2pc : thd_->transaction->stmt.no_2pc;
  return true;
}

int Session::begin_statement() {
  if (aborted()) return HA_ERR_ROLLBACK;
  if (!hton->prepare)
    if (int error = refuse_xa()) return error;
  register_with_server();
  if (statement_begun_) return 0;
  if (failure_) failure_->message[0] = 0;
  forget_old_kill();
  lock_timeout_us_ = lock_timeout_us(thd_);
  const firn_status status = firn_begin_statement(core_, ++statement_id_, isolation_of(thd_), lock_timeout_us_,
                                                  !in_multi_statement_transaction());
  if (status != FIRN_OK) return to_server_error(status);
  statement_begun_ = true;
  return 0;
}

int Session::begin_snapshot() {
  if (int error = begin_statement()) return error;
  return to_server_error(firn_consistent_snapshot(core_));
}

void Session::transaction_ended() {
  statement_begun_ = registered_ = load_failed_ = false;
  phase_ = CommitPhase::kActive;
}

int Session::commit(bool all) {
  if (!is_real_end(all)) {
    statement_begun_ = false;
    if (aborted()) return HA_ERR_ROLLBACK;
    return to_server_error(firn_end_statement(core_));
  }
  firn_status status = FIRN_OK;
  if (aborted()) {
    transaction_ended();
    return HA_ERR_ROLLBACK;
  }
  forget_old_kill();
  if (load_failed_) {
    my_printf_error(ER_ERROR_DURING_COMMIT, "FIRN: rows could not be loaded: %s", MYF(0), message());
    (void)firn_rollback(core_);
    transaction_ended();
    return HA_ERR_INTERNAL_ERROR;
  }
  if (is_ordered()) {
    /*
      The transaction is visible already, in the order of the binary log. Later ones may join the
      next group commit before this one is durable.
    */
    thd_wakeup_subsequent_commits(thd_, 0);
    status = firn_commit(core_);
    /*
      Without the binary log, the server coordinates several engines with tc.log. After a crash,
      10.11 rolls back transactions that tc.log lists as committed, because xarecover_handlerton()
      does not look at it. So nothing may depend on tc.log: firn_commit() has waited for the core's
      log, and ha_flush_logs() makes the other engines, which rely on tc.log, write theirs.
    */
    if (phase_ == CommitPhase::kOrdered) ha_flush_logs();
  } else {
    if (another_engine_commits(all)) (void)firn_forget_reads(core_);
    status = firn_commit(core_);
  }
  if (status == FIRN_DEADLOCK) return lose();
  const int error = to_server_error(status);
  if (error) {
    /*
      The server itself reports only "Got error N during COMMIT", and calls no rollback afterwards.
    */
    my_printf_error(error == HA_ERR_DISK_FULL ? ER_DISK_FULL : ER_ERROR_DURING_COMMIT, "FIRN: commit failed: %s",
                    MYF(0), message());
    /*
      A visible transaction is not rolled back, because others may have read it. It stays prepared
      until the next start, which asks the binary log for its outcome.
    */
    if (is_ordered())
      (void)firn_leave_prepared(core_);
    else
      (void)firn_rollback(core_);
    transaction_ended();
    return error;
  }
  transaction_ended();
  return 0;
}

void Session::keep_message() {
  if (!failure_) failure_.reset(new (std::nothrow) Failure);
  if (failure_) strmake(failure_->message, firn_last_error(), sizeof(failure_->message) - 1);
}

/*
  Ends a transaction whose validation has failed: another one has changed rows of optimistic tables
  on which it depends. The error is reported here, because the server would report "Got error N
  during COMMIT". The rollback is done here, because the server calls none after a failed commit.
*/
int Session::lose() {
  keep_message();
  (void)firn_rollback(core_);
  transaction_ended();
  my_error(ER_LOCK_DEADLOCK, MYF(0));
  return HA_ERR_LOCK_DEADLOCK;
}

int Session::rollback(bool all) {
  if (!is_real_end(all)) {
    statement_begun_ = false;
    if (aborted()) return 0;
    return to_server_error(firn_rollback_statement(core_));
  }
  const firn_status status = aborted() ? FIRN_OK : firn_rollback(core_);
  transaction_ended();
  return to_server_error(status);
}

int Session::prepare(bool all) {
  /*
    With the binary log on, the server calls prepare() also at the end of each statement within a
    transaction, where there is nothing to prepare.
  */
  if (!is_real_end(all)) return 0;
  if (aborted()) return HA_ERR_ROLLBACK;
  forget_old_kill();
  binlog_file::note_if_changed();
  Xid xid;
  thd_get_xid(thd_, reinterpret_cast<MYSQL_XID*>(&xid));
  XidImage image(xid);
  const firn_status status = firn_prepare(core_, image.data(), image.size(), is_from_client(xid));
  if (status != FIRN_OK) {
    const int error = to_server_error(status);
    if (status == FIRN_DEADLOCK)
      my_error(ER_LOCK_DEADLOCK, MYF(0));
    else
      my_printf_error(error == HA_ERR_DISK_FULL ? ER_DISK_FULL : ER_ERROR_DURING_COMMIT, "FIRN: prepare failed: %s",
                      MYF(0), message());
    return error;
  }
  phase_ = CommitPhase::kPrepared;
  return 0;
}

void Session::commit_ordered() {
  if (phase_ != CommitPhase::kPrepared) return;
  ulonglong position = 0;
  const char* file = nullptr;
  mysql_bin_log_commit_pos(thd_, &position, &file);
  /* This function must not fail; commit() reports the error. */
  (void)firn_commit_ordered(core_, file, position);
  phase_ = file ? CommitPhase::kOrderedInBinlog : CommitPhase::kOrdered;
}

void Session::abort_transaction() {
  if (!aborted()) {
    phase_ = CommitPhase::kAborted;
    const firn_status status = firn_rollback(core_);
    if (status != FIRN_OK) sql_print_error("FIRN: rollback failed: %s", firn_last_error());
  }
  thd_->mark_transaction_to_rollback(true);
}

int Session::to_server_error(firn_status status) {
  if (status == FIRN_OK) return 0;
  int error = error_number(status);
  if (is_result(status)) return error;
  keep_message();
  if (belongs_in_log(status)) sql_print_error("FIRN: %s", message());
  switch (status) {
    case FIRN_DEADLOCK:
      abort_transaction();
      break;
    case FIRN_LOCK_TIMEOUT:
    case FIRN_LOCK_NOT_AVAILABLE:
      if (sysvars::rollback_on_timeout)
        abort_transaction();
      else
        thd_->mark_transaction_to_rollback(false);
      break;
    case FIRN_INTERRUPTED:
      /*
        The server reports HA_ERR_ABORTED_BY_USER as a kill, so the session must have been killed.
      */
      if (thd_kill_level(thd_) == THD_IS_NOT_KILLED) error = HA_ERR_LOCK_WAIT_TIMEOUT;
      thd_->mark_transaction_to_rollback(false);
      break;
    case FIRN_FOREIGN_KEY:
      return note_foreign_key();
    case FIRN_HOST_FAILED:
      /* The callback has reported why; this error becomes a further warning, as with InnoDB. */
      my_error(ER_GET_ERRNO, MYF(0), HA_ERR_GENERIC, hton_name(hton)->str);
      return kErrorReported;
    case FIRN_TOO_LARGE:
      /* Reports the core's text: the server's own says that BLOBs do not count. */
      my_printf_error(ER_TOO_BIG_ROWSIZE, "FIRN: %s", MYF(0), message());
      return kErrorReported;
    default:
      break;
  }
  return error;
}

}  // namespace firn
