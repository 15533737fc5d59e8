//! Sessions and their transactions.

use crate::database::firn_db;
use crate::error::{CallOutcome, firn_status, guard, guard_value};
use crate::pointers::{borrow_bytes, boxed, c_str, unbox};
use crate::table::firn_table;
use crate::write_scratch::trim_scratch;
use firn::base::Error;
use firn::base::blob_buf::BlobBuf;
use firn::base::memory_tracker::MemoryCharge;
use firn::table::{BulkLoad, Table};
use firn::temporary::{EphemeralDb, SessionStatement, TemporarySavepoint, TemporaryTransactions};
use firn::txn::{Isolation, LockOwner, Savepoint, Transaction};
use std::ffi::{c_char, c_void};
use std::sync::Arc;

/// An estimate of the bytes that a session keeps beside its structure, for its lock owner, entries
/// in lists and buffers. Bytes beyond the estimate are part of the memory that is not counted.
const SESSION_PIECES: u64 = 2 << 10;

/// A connection of the server and its transaction. It belongs to one thread at a time; only
/// `firn_kill` may be called from any thread.
pub struct firn_session {
    pub(crate) transaction: Transaction,
    /// The part of the transaction that changes temporary tables.
    pub(crate) temporary: TemporaryTransactions,
    statement: SessionStatement,
    /// Bulk loads that have begun, at most one for each table.
    pub(crate) bulks: Vec<BulkLoad>,
    /// Blobs of the duplicate row that was decoded last.
    pub(crate) duplicate_blobs: BlobBuf,
    db: Arc<firn::db::Db>,
    owner: Arc<LockOwner>,
    marks: Vec<(Savepoint, TemporarySavepoint)>,
    /// Counts the memory of the session, without that of its changes.
    _memory: MemoryCharge,
}

impl firn_session {
    /// The transaction that changes `table`.
    pub(crate) fn transaction_of(&mut self, table: &firn_table) -> &mut Transaction {
        self.transaction_in(table.ephemeral.as_ref())
    }

    /// The transaction that has changed `table`, if one is open.
    pub(crate) fn open_transaction_of(&self, table: &firn_table) -> Option<&Transaction> {
        match &table.ephemeral {
            None => Some(&self.transaction),
            Some(database) => self.temporary.open_transaction(database),
        }
    }

    /// The session's transaction in the ephemeral database `database`; for `None`, its transaction
    /// in the server's database.
    pub(crate) fn transaction_in(
        &mut self,
        database: Option<&Arc<EphemeralDb>>,
    ) -> &mut Transaction {
        match database {
            None => &mut self.transaction,
            Some(database) => {
                let statement = self.statement;
                self.temporary.transaction(database, statement, &self.owner)
            }
        }
    }

    /// Frees the memory that large rows of the transaction have left in buffers.
    fn trim_buffers(&mut self) {
        self.duplicate_blobs.trim();
        trim_scratch();
    }

    /// Commits the changes of the server's tables and of the session's temporary tables. Takes all
    /// steps that may fail before the changes of the server's tables become visible: afterwards the
    /// commit must not fail, and the changes of the temporary tables must not be lost.
    fn commit(&mut self) -> firn::base::Result<()> {
        if !self.temporary.is_open() {
            return self.transaction.commit_for_answer();
        }
        if !self.transaction.has_writes() {
            // The validation of optimistic tables may fail, and the caller then rolls back the
            // temporary tables' changes too. So commit these changes only after the validation.
            self.transaction.commit_for_answer()?;
            return self.temporary.commit();
        }
        self.temporary.prepare()?;
        self.transaction.commit_for_answer()?;
        // The commit is visible, so it must not be reported as failed. An error means that the
        // ephemeral database is poisoned: later statements on temporary tables report it.
        if self.temporary.commit().is_err() {
            let _ = self.temporary.rollback();
        }
        Ok(())
    }
}

/// Isolation levels.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum firn_isolation {
    /// Reads as READ COMMITTED.
    FIRN_READ_UNCOMMITTED = 0,
    /// Each statement sees the data committed before its first read.
    FIRN_READ_COMMITTED = 1,
    /// The transaction sees the data committed before its first read.
    FIRN_REPEATABLE_READ = 2,
    /// As `FIRN_REPEATABLE_READ`; the caller makes plain reads shared locking reads.
    FIRN_SERIALIZABLE = 3,
}

impl From<firn_isolation> for Isolation {
    fn from(isolation: firn_isolation) -> Self {
        match isolation {
            firn_isolation::FIRN_REPEATABLE_READ => Isolation::RepeatableRead,
            firn_isolation::FIRN_SERIALIZABLE => Isolation::Serializable,
            _ => Isolation::ReadCommitted,
        }
    }
}

/// # Safety
/// `session` must be from `firn_session_new`, must not be freed, and no other thread may use it.
pub(crate) unsafe fn session_mut<'a>(
    session: *mut firn_session,
) -> Result<&'a mut firn_session, CallOutcome> {
    // SAFETY: the pointer is NULL or a live handle that this thread alone uses, so the borrow is
    // unique.
    unsafe { session.as_mut() }.ok_or_else(|| Error::invalid("no session").into())
}

/// Makes a session. The core passes `host` to the callbacks of
/// [`firn_host`](crate::host_callbacks::firn_host), until [`firn_session_free`] has returned.
/// `number` names the session in reports.
///
/// # Safety
/// `db` must be open; `out` must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_session_new(
    db: *const firn_db,
    host: *mut c_void,
    number: u64,
    out: *mut *mut firn_session,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let db = unsafe { firn_db::get(db) }?;
        let host = host as usize as u64;
        let owner = db.new_session_owner(host, number);
        let transaction = db.new_transaction(Arc::clone(&owner));
        let memory = db.charge_session(size_of::<firn_session>() as u64 + SESSION_PIECES);
        let db = Arc::clone(db);
        let session = firn_session {
            transaction,
            temporary: TemporaryTransactions::default(),
            statement: SessionStatement::default(),
            bulks: Vec::new(),
            duplicate_blobs: BlobBuf::new(),
            db,
            owner,
            marks: Vec::new(),
            _memory: memory,
        };
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe { out.write(boxed(session)) };
        Ok(())
    })
}

/// Ends a session. An active transaction is rolled back; a prepared one is left for
/// `firn_commit_xid` and `firn_rollback_xid`. On return no callback that has the session's `host`
/// is running, and none will be called with it.
///
/// # Safety
/// `session` must be NULL or from `firn_session_new`, and must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_session_free(session: *mut firn_session) {
    guard_value((), || {
        // SAFETY: the handle came from `boxed`, and the host passes it here once, as its last use.
        let Some(mut session) = (unsafe { unbox(session) }) else {
            return;
        };
        // Detach the host before any lock is released. A waiter that has found this session among
        // its blockers may be about to pass the host pointer to a callback, and this pointer is
        // valid only until this call returns.
        session.owner.detach_host();
        if session.transaction.is_prepared() {
            let fresh = session.db.new_owner(0);
            session.transaction.detach(fresh);
        }
    });
}

/// Begins a transaction if none is active. Begins a statement if `statement_id` is new: sets the
/// statement's savepoint, and at READ COMMITTED gives the statement a snapshot of its own.
/// `autocommit` says that the statement is the whole transaction. `lock_timeout_us` limits each of
/// its lock waits.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_begin_statement(
    session: *mut firn_session,
    statement_id: u64,
    isolation: firn_isolation,
    lock_timeout_us: u64,
    autocommit: bool,
) -> firn_status {
    guard(|| {
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(session) }?;
        session.statement = SessionStatement {
            id: statement_id,
            autocommit,
        };
        session.transaction.begin_statement(
            statement_id,
            isolation.into(),
            lock_timeout_us,
            autocommit,
        );
        Ok(())
    })
}

/// Tells the core that the session's statement will change or lock rows of the table. Call it for
/// each such table before the statement reads, so that all its reads of optimistic tables show the
/// same state.
///
/// # Safety
/// The handles must be live, and only this thread may use the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_expect_changes(
    table: *const firn_table,
    session: *mut firn_session,
) -> firn_status {
    guard(|| {
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        table.expect_changes(&mut session.transaction);
        Ok(())
    })
}

/// Makes the session's transactions lock rows of optimistic tables, too, and wait for each other:
/// for a session that applies the changes of another server, in their order.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_lock_optimistic_tables(
    session: *mut firn_session,
    on: bool,
) -> firn_status {
    guard(|| {
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(session) }?;
        session.transaction.lock_optimistic_tables(on);
        Ok(())
    })
}

/// Clears the validation set of a transaction without writes, so that `firn_commit` cannot fail for
/// it. Call this when another engine has already committed its part of the transaction. Does
/// nothing for a transaction with writes.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_forget_reads(session: *mut firn_session) -> firn_status {
    guard(|| {
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(session) }?;
        session.transaction.forget_reads();
        Ok(())
    })
}

/// Runs a call on a session.
///
/// # Safety
/// `session` must be live and used by this thread alone.
unsafe fn with(
    session: *mut firn_session,
    f: impl FnOnce(&mut firn_session) -> Result<(), CallOutcome>,
) -> firn_status {
    // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
    guard(|| f(unsafe { session_mut(session) }?))
}

/// Ends the statement and keeps its changes.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_end_statement(session: *mut firn_session) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it.
    unsafe {
        with(session, |session| {
            session.transaction.end_statement();
            session.temporary.end_statement(session.statement.id);
            Ok(())
        })
    }
}

/// Rolls back the statement's changes, and keeps its locks.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_rollback_statement(session: *mut firn_session) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it.
    unsafe {
        with(session, |session| {
            session.transaction.rollback_statement();
            session.temporary.rollback_statement(session.statement.id);
            Ok(())
        })
    }
}

/// Fixes the snapshot of the transaction now. Call `firn_begin_statement` first, which begins the
/// transaction. Does nothing at READ COMMITTED, where every statement has a snapshot of its own.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_consistent_snapshot(session: *mut firn_session) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it.
    unsafe {
        with(session, |session| {
            session.transaction.fix_snapshot();
            Ok(())
        })
    }
}

/// Commits: makes the changes visible, releases the locks, and waits until the commit is as durable
/// as the flush mode says, unless the host holds its answer back until then. If
/// `firn_commit_ordered` has made the changes visible already, the call does only the rest. Does
/// nothing if no transaction is active.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_commit(session: *mut firn_session) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it.
    unsafe {
        with(session, |session| {
            session.marks.clear();
            session.trim_buffers();
            Ok(session.commit()?)
        })
    }
}

/// Leaves the session's prepared transaction to the next start of the server, which decides its
/// outcome, because the log has failed and cannot take an outcome now. Releases the transaction's
/// locks.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_leave_prepared(session: *mut firn_session) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it.
    unsafe {
        with(session, |session| {
            session.marks.clear();
            session.transaction.leave_prepared();
            Ok(session.temporary.rollback()?)
        })
    }
}

/// First phase of a two-phase commit: on return the changes are in the log under the xid, as
/// durable as the flush mode says. `may_stay` says that another session may decide the outcome:
/// until then, DDL is refused for the tables that the transaction has changed.
///
/// # Safety
/// `session` must be live and used by this thread alone; the pointers must be valid for their
/// types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_prepare(
    session: *mut firn_session,
    xid: *const u8,
    xid_len: usize,
    may_stay: bool,
) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it; pointer and length describe memory that the host keeps unchanged during the call.
    unsafe {
        with(session, |session| {
            let xid = borrow_bytes(xid, xid_len);
            session.temporary.prepare()?;
            match may_stay {
                true => session.transaction.prepare_to_stay(xid)?,
                false => session.transaction.prepare(xid)?,
            }
            Ok(())
        })
    }
}

/// Second phase: assigns the seqno and makes the changes visible, without I/O. `binlog_file` and
/// `binlog_pos` are the position of the commit in the binary log; the file may be NULL.
///
/// # Safety
/// `session` must be live and used by this thread alone; the pointers must be valid for their
/// types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_commit_ordered(
    session: *mut firn_session,
    binlog_file: *const c_char,
    binlog_pos: u64,
) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it.
    unsafe {
        with(session, |session| {
            let file = c_str(binlog_file)?;
            let binlog = file.map(|file| (file.as_bytes(), binlog_pos));
            Ok(session.transaction.commit_prepared(binlog)?)
        })
    }
}

/// Rolls back all changes and releases the locks.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_rollback(session: *mut firn_session) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it.
    unsafe {
        with(session, |session| {
            session.marks.clear();
            session.trim_buffers();
            let temporary = session.temporary.rollback();
            session.transaction.rollback()?;
            Ok(temporary?)
        })
    }
}

/// Sets a savepoint and writes its number to `mark`. The savepoint is valid until the transaction
/// ends.
///
/// # Safety
/// `session` must be live and used by this thread alone; the pointers must be valid for their
/// types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_savepoint(session: *mut firn_session, mark: *mut u64) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it; the out pointer is valid for writes, and only this call refers to its target.
    unsafe {
        with(session, |session| {
            let temporary = session.temporary.set_savepoint();
            let own = session.transaction.set_savepoint();
            session.marks.push((own, temporary));
            mark.write(session.marks.len() as u64 - 1);
            Ok(())
        })
    }
}

/// Rolls back all writes after the savepoint. Locks are kept, except those of keys that only these
/// writes have locked.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_rollback_to_savepoint(
    session: *mut firn_session,
    mark: u64,
) -> firn_status {
    // SAFETY: the caller promises what `with` requires: the session is live, and this thread alone
    // uses it.
    unsafe {
        with(session, |session| {
            let mark = session.marks.get(mark as usize);
            let (own, temporary) = mark.ok_or_else(|| Error::invalid("no such savepoint"))?;
            session.transaction.rollback_to(*own);
            session.temporary.rollback_to(temporary);
            Ok(())
        })
    }
}

/// Whether DDL on a table that the transaction has used could harm the transaction after a rollback
/// to a savepoint. It could if the transaction has written, holds locks that such a rollback keeps,
/// or validates its reads when it commits.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_depends_on_tables(session: *const firn_session) -> bool {
    // After a panic return true: the host then keeps its metadata locks, which is always safe.
    guard_value(true, || {
        // SAFETY: the session is live, and this thread alone uses it, so nobody changes it
        // meanwhile.
        let session = unsafe { &*session };
        !session.bulks.is_empty() || session.transaction.depends_on_tables()
    })
}

/// The position in `session.bulks` of the load into `table`.
pub(crate) fn bulk_position(session: &firn_session, table: &Arc<Table>) -> Option<usize> {
    session
        .bulks
        .iter()
        .position(|bulk| Arc::ptr_eq(bulk.table(), table))
}

/// Ends the session's lock wait. If the session waits for no lock now, its next lock wait fails.
/// May be called from any thread.
///
/// # Safety
/// `session` must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_kill(session: *const firn_session) {
    guard_value((), || {
        if session.is_null() {
            return;
        }
        // SAFETY: the session is live. This call touches only its field `owner`, which is shared
        // and never changes while another thread may call this, and makes no reference to the whole
        // session.
        let owner = unsafe { &(*session).owner };
        owner.interrupt();
    });
}

/// Forgets a kill that was meant for a statement that has ended.
///
/// # Safety
/// `session` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_clear_kill(session: *mut firn_session) {
    guard_value((), || {
        // SAFETY: the pointer is NULL or a live session of this thread.
        if let Some(session) = unsafe { session.as_ref() } {
            session.owner.clear_interrupt();
        }
    });
}

#[cfg(test)]
mod tests;
