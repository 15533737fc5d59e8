//! Open tables: handles, AUTO_INCREMENT, CHECK, OPTIMIZE.

use crate::bulk_load::firn_progress;
use crate::database::firn_db;
use crate::error::{CallOutcome, firn_status, guard, guard_value};
use crate::pointers::{borrow_bytes, boxed, name, unbox};
use crate::schema::{firn_table_def, table_schema};
use crate::session::{bulk_position, firn_session, session_mut};
use firn::base::{Error, ErrorKind};
use firn::db::Db;
use firn::table::Table;
use firn::temporary::EphemeralDb;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// An opened table, which all sessions share.
pub struct firn_table {
    pub(crate) table: Arc<Table>,
    pub(crate) db: Arc<Db>,
    /// The database of a temporary table.
    pub(crate) ephemeral: Option<Arc<EphemeralDb>>,
    warning: Option<CString>,
}

impl firn_table {
    /// # Safety
    /// `table` is NULL or from `firn_table_open` and not closed.
    pub(crate) unsafe fn get<'a>(table: *const firn_table) -> Result<&'a Arc<Table>, CallOutcome> {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        Ok(&unsafe { Self::whole(table) }?.table)
    }

    /// # Safety
    /// As for [`Self::get`].
    pub(crate) unsafe fn whole<'a>(
        table: *const firn_table,
    ) -> Result<&'a firn_table, CallOutcome> {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        unsafe { table.as_ref() }.ok_or_else(|| Error::invalid("no table").into())
    }

    pub(crate) fn db(&self) -> &Arc<Db> {
        &self.db
    }

    pub(crate) fn is_temporary(&self) -> bool {
        self.ephemeral.is_some()
    }
}

/// Opens a table, which the server defines as `definition`. `FIRN_DEFINITION_DIFFERS`, with the
/// remedy in words, if the rows or keys of the table are stored by another definition.
///
/// # Safety
/// The pointers are valid for what they name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_open(
    db: *const firn_db,
    table_name: *const c_char,
    definition: *const firn_table_def,
    out: *mut *mut firn_table,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees it only after its last call with it; the
        // strings end with a NUL byte and stay valid during the call.
        let (db, temporary, table_name) = unsafe {
            (
                firn_db::get(db)?,
                firn_db::temporary(db)?,
                name(table_name)?,
            )
        };
        let ephemeral = temporary.find(table_name);
        let db = ephemeral.as_ref().map_or(db, |database| database.db());
        // SAFETY: the definition and all that it points to stay valid during the call.
        let schema = unsafe { table_schema(definition) }?;
        let len = schema.record_len as usize;
        // SAFETY: the definition is valid, and its default record has the length of a record.
        let defaults = unsafe { borrow_bytes((*definition).default_record, len) };
        let table = Table::open(db.catalog(), table_name, schema, defaults)?;
        let warning = table.warning().and_then(|words| CString::new(words).ok());
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe {
            out.write(boxed(firn_table {
                table,
                db: Arc::clone(db),
                ephemeral,
                warning,
            }))
        };
        Ok(())
    })
}

/// Whether the table is a temporary one, which only one session uses.
///
/// # Safety
/// The table is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_is_temporary(table: *const firn_table) -> bool {
    guard_value(false, || {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        unsafe { firn_table::whole(table) }.is_ok_and(firn_table::is_temporary)
    })
}

/// Words on how the definition given at open differs from the stored one, if rows and keys have the
/// same bytes by both; NULL if the definitions do not differ. Valid until the table is closed.
///
/// # Safety
/// The table is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_warning(table: *const firn_table) -> *const c_char {
    guard_value(std::ptr::null(), || {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        let table = unsafe { firn_table::whole(table) }.ok();
        let warning = table.and_then(|table| table.warning.as_ref());
        warning.map_or(std::ptr::null(), |words| words.as_ptr())
    })
}

/// Whether the table is optimistic: transactions lock nothing in it, and a commit fails if another
/// transaction was first.
///
/// # Safety
/// The table is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_is_optimistic(table: *const firn_table) -> bool {
    guard_value(false, || {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        unsafe { firn_table::get(table) }.is_ok_and(|table| table.is_optimistic())
    })
}

/// The session's statement will change or lock rows of the table. Call it for each such table
/// before the statement reads, so that all its reads of optimistic tables show the same state.
///
/// # Safety
/// The handles are live, and the session belongs to this thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_expect_changes(
    table: *const firn_table,
    session: *mut firn_session,
) -> firn_status {
    guard(|| {
        // SAFETY: the handles are live, and the session is used by this thread alone, so the borrow
        // is unique.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        table.expect_changes(&mut session.transaction);
        Ok(())
    })
}

/// Closes a table.
///
/// # Safety
/// `table` is NULL or from `firn_table_open`, and not used afterwards. Its open cursors may still
/// be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_close(table: *mut firn_table) {
    // SAFETY: the handle came from `boxed`, and the host passes it here once, as its last use.
    guard_value((), || drop(unsafe { unbox(table) }));
}

/// Reserves `count` values of the series `offset + k * increment`. `first` is set to the first
/// value, `reserved` to the number of values. `FIRN_AUTOINC_EXHAUSTED` if no value is left.
///
/// # Safety
/// The table is live, the pointers may be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_reserve(
    table: *const firn_table,
    offset: u64,
    increment: u64,
    count: u64,
    first: *mut u64,
    reserved: *mut u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        let table = unsafe { firn_table::get(table) }?;
        let count = count.max(1);
        let value = table.reserve_autoincrement(offset, increment, count);
        let value = value.ok_or(firn_status::FIRN_AUTOINC_EXHAUSTED)?;
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe {
            first.write(value);
            reserved.write(count);
        }
        Ok(())
    })
}

/// Notes that a row with the AUTO_INCREMENT value `used` was written: later values are larger, also
/// after a restart.
///
/// # Safety
/// The handles are live, the session is this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_raise(
    session: *mut firn_session,
    table: *const firn_table,
    used: u64,
) {
    guard(|| {
        // SAFETY: the handles are live, and the session is used by this thread alone, so the borrow
        // is unique.
        let (session, whole) = unsafe { (session_mut(session)?, firn_table::whole(table)?) };
        match bulk_position(session, &whole.table) {
            Some(at) => session.bulks[at].use_autoincrement(used),
            None => {
                let txn = session.transaction_of(whole);
                whole.table.use_autoincrement(txn, used);
            }
        }
        Ok(())
    });
}

/// The smallest AUTO_INCREMENT value that the next row can get; 0 if `table` is NULL.
///
/// # Safety
/// The table is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_next_value(table: *const firn_table) -> u64 {
    guard_value(0, || {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        unsafe { firn_table::get(table) }.map_or(0, |t| t.next_autoincrement())
    })
}

/// Makes `next` the next AUTO_INCREMENT value, or the value after `largest` if that is greater.
/// `largest` is the largest value in any row. Durable on return. Nobody may write to the table
/// meanwhile.
///
/// # Safety
/// The table is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_set(
    table: *const firn_table,
    next: u64,
    largest: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        let whole = unsafe { firn_table::whole(table) }?;
        let cx = whole.db().context();
        Ok(whole.table.set_autoincrement(next, largest, cx)?)
    })
}

/// Refuses to let the caller copy a table that a prepared transaction has changed: the copy would
/// lack these changes if the transaction commits later. `FIRN_LOCK_TIMEOUT` if there is such a
/// transaction.
///
/// # Safety
/// The table is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_refuse_unsettled(table: *const firn_table) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        let whole = unsafe { firn_table::whole(table) }?;
        Ok(whole.table.refuse_unsettled(whole.db().context())?)
    })
}

/// Checks a table: checksums of its files, and that rows and index entries match. `extended` looks
/// each row and each entry up. `problem` is called for each problem found; the status is then
/// `FIRN_CORRUPTION`.
///
/// # Safety
/// The handles are live, the session is this thread's; `problem` calls no function of the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_check_table(
    session: *mut firn_session,
    table: *const firn_table,
    extended: bool,
    problem: unsafe extern "C" fn(context: *mut c_void, text: *const c_char),
    context: *mut c_void,
    rows: *mut u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the handles are live, and the session is used by this thread alone, so the borrow
        // is unique.
        let (session, whole) = unsafe { (session_mut(session)?, firn_table::whole(table)?) };
        let owner = Arc::clone(session.transaction.owner());
        let views = &whole.db.context().super_versions;
        let report = whole
            .table
            .check(views, extended, &|| owner.is_interrupted())?;
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe { rows.write(report.rows) };
        for text in &report.problems {
            let text = CString::new(text.as_str()).unwrap_or_default();
            // SAFETY: callback and context are the host's and stay valid during the call.
            unsafe { problem(context, text.as_ptr()) };
        }
        match report.problem_count {
            0 => Ok(()),
            count => {
                Err(
                    Error::corruption(whole.table.name(), 0, format_args!("{count} problems"))
                        .into(),
                )
            }
        }
    })
}

/// Compacts the table's indexes: everything is in the last level then, without what no snapshot
/// needs. `progress` is called between two steps. If it returns true the call ends with
/// `FIRN_INTERRUPTED`, and what has been compacted stays so.
///
/// # Safety
/// The handles are live; `progress` calls no function of the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_optimize_table(
    table: *const firn_table,
    progress: firn_progress,
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees it only after its last call with it.
        let whole = unsafe { firn_table::whole(table) }?;
        let indexes = whole.table.index_ids();
        Ok(whole.db.optimize(&indexes, &mut |done, total| {
            // SAFETY: callback and context are the host's and stay valid during the call.
            match unsafe { progress(context, done, total) } {
                true => Err(Error::new(
                    ErrorKind::Interrupted,
                    "the optimization was interrupted",
                )),
                false => Ok(()),
            }
        })?)
    })
}
