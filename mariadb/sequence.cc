/* Copyright (c) 2025 the Firn authors. SPDX-License-Identifier: GPL-2.0-only */

/*
  The row behind a SEQUENCE. The server keeps the values that it may hand out in memory, and writes
  the row when it reserves more (ha_sequence, SEQUENCE::next_value). A value that was handed out
  must never come again, whatever becomes of the statement: so each write is a small transaction of
  its own, committed before the server hands out a value (as durably as
  firn_flush_log_at_trx_commit says, which is as InnoDB does it), and a rollback of the
  session's transaction does not reach it. Reads see the row as it was last committed, whatever the
  isolation level.

  The own transaction belongs to the handler and not to the connection: several sequences may be
  read and written in one statement, and the commit of one must not end the scan of another. It has
  no host pointer, so it outlives no THD. It waits for no lock: the server admits one writer of a
  sequence at a time, and nobody else locks the row.

  A temporary sequence is the same: its handler's transaction is the only one that uses it.

  Rejected: writing in the session's transaction and keeping the write at a rollback. Other sessions
  would wait for the row until that transaction ends.
*/

#include "ha_firn.h"
#include "errors.h"

bool ha_firn::is_sequence() const { return table_share && table_share->sequence; }

/* Begins a statement of the own transaction, which sees all that is committed now. */
int ha_firn::begin_own() {
  if (!m_own) {
    const firn_status status = firn_session_new(firn::database, nullptr, 0, &m_own);
    if (status != FIRN_OK) return firn_error(status);
  }
  constexpr uint64_t kLockTimeoutUs = 1000000;
  return firn_error(firn_begin_statement(m_own, ++m_own_statement, FIRN_READ_COMMITTED, kLockTimeoutUs, true));
}

/*
  Commits a write of the own transaction that ended with `error`. Returns that error or the
  commit's.
*/
int ha_firn::commit_own(int error) {
  if (!m_own) return error;
  if (error) {
    end_own();
    return error;
  }
  const firn_status status = firn_commit(m_own);
  if (status == FIRN_OK) return 0;
  /* Read the error before end_own(), because the rollback sets a last error of its own. */
  error = firn_error(status);
  end_own();
  return error;
}

/* Lets go of the snapshot and of what was not committed. */
void ha_firn::end_own() {
  if (!m_own) return;
  park();
  (void)firn_rollback(m_own);
}

void ha_firn::free_own() {
  if (!m_own) return;
  end_own();
  firn_session_free(m_own);
  m_own = nullptr;
}
