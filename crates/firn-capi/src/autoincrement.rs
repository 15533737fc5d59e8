//! AUTO_INCREMENT values of tables.

use crate::error::{firn_status, guard, guard_value};
use crate::session::{bulk_position, firn_session, session_mut};
use crate::table::firn_table;

/// Reserves `count` values of the series `offset + k * increment`. `first` is set to the first
/// value, `reserved` to the number of values. `FIRN_AUTOINC_EXHAUSTED` if no value is left.
///
/// # Safety
/// The table must be live, and the pointers must be writable.
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
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
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
/// The handles must be live, and only this thread may use the session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_raise(
    session: *mut firn_session,
    table: *const firn_table,
    used: u64,
) {
    guard(|| {
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
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
/// The table must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_next_value(table: *const firn_table) -> u64 {
    guard_value(0, || {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { firn_table::get(table) }.map_or(0, |t| t.next_autoincrement())
    })
}

/// Makes `next` the next AUTO_INCREMENT value, or the value after `largest` if that is greater.
/// `largest` is the largest value in any row. Durable on return. Nobody may write to the table
/// meanwhile.
///
/// # Safety
/// The table must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_set(
    table: *const firn_table,
    next: u64,
    largest: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let whole = unsafe { firn_table::whole(table) }?;
        let cx = whole.db().context();
        Ok(whole.table.set_autoincrement(next, largest, cx)?)
    })
}
