//! CHECK TABLE, OPTIMIZE TABLE, and the check before a copying ALTER.

use crate::error::{firn_status, guard};
use crate::progress::{firn_progress, reporter};
use crate::session::{firn_session, session_mut};
use crate::table::firn_table;
use firn::base::Error;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// Refuses to let the caller copy a table that a prepared transaction has changed: the copy would
/// lack these changes if the transaction commits later. `FIRN_LOCK_TIMEOUT` if there is such a
/// transaction.
///
/// # Safety
/// The table must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_refuse_prepared_changes(table: *const firn_table) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let whole = unsafe { firn_table::whole(table) }?;
        Ok(whole.table.refuse_prepared_changes(whole.db().context())?)
    })
}

/// Checks a table: checksums of its files, and that rows and index entries match. With `extended`,
/// looks up each row and each entry; without `extended`, only the rows and entries of an index
/// whose entries do not match the rows. `problem` is called for each problem found; the status is
/// then `FIRN_CORRUPTION`.
///
/// # Safety
/// The handles must be live, and only this thread may use the session; `problem` must not call the
/// core.
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
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
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
            // SAFETY: the host keeps callback and context valid during the call.
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

/// Compacts the table's indexes: afterwards all entries are in the last level, and the versions and
/// tombstones that no snapshot needs are gone. Calls `progress` between two compactions. If it
/// returns true the call ends with `FIRN_INTERRUPTED`, and the compactions that are done stay in
/// effect.
///
/// # Safety
/// The handles must be live; `progress` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_optimize_table(
    table: *const firn_table,
    progress: firn_progress,
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let whole = unsafe { firn_table::whole(table) }?;
        let indexes = whole.table.index_ids();
        // SAFETY: the host keeps callback and context valid during the call.
        let mut report = unsafe { reporter(progress, context, "the optimization was interrupted") };
        Ok(whole.db.optimize(&indexes, &mut report)?)
    })
}
