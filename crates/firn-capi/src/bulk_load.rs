//! Bulk loads: rows for a table that nobody else sees until the load ends.
//!
//! A session has one load for each table that it fills. `firn_bulk_insert` begins the load with the
//! first row, `firn_bulk_end` publishes the table, and `firn_bulk_abort` gives the load up. The
//! rows take no locks. They become visible together, to all snapshots taken after the end.

use crate::error::{firn_status, guard};
use crate::progress::{firn_progress, reporter};
use crate::row_writes::{
    FIRN_WRITE_NO_FOREIGN_KEYS, FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK, inserted, outcome, record_of,
};
use crate::session::{bulk_position, firn_session, session_mut};
use crate::table::firn_table;
use crate::write_scratch::with_scratch;
use firn::base::Error;
use firn::table::{BulkLoad, WriteFlags};
use std::ffi::c_void;
use std::sync::Arc;

/// Flag of `firn_bulk_insert`. All rows of a load must have the same flag. With it, each call
/// reports whether its row is a duplicate, and the load goes on without that row. Otherwise a
/// duplicate may be found only by a later call and ends the load; `firn_bulk_duplicate` then
/// returns its row.
pub const FIRN_BULK_ONE_BY_ONE: u32 = 2;

/// Inserts a row into the target of a copying ALTER: nobody else sees the table until
/// `firn_bulk_end`. `flags` are `FIRN_BULK_ONE_BY_ONE`, `FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK` and
/// `FIRN_WRITE_NO_FOREIGN_KEYS`. The call checks the table's foreign keys, except those that the
/// table to replace has too, because the rows of that table have been checked already. The other
/// arguments are those of `firn_insert`.
///
/// # Safety
/// The requirements are those of `firn_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_bulk_insert(
    session: *mut firn_session,
    table: *const firn_table,
    record: *const u8,
    flags: u32,
    dup_index: *mut u32,
    ref_out: *mut u8,
) -> firn_status {
    guard(|| {
        // SAFETY: the caller promises that the handles are live, and that only this thread uses the
        // session.
        let (session, whole) = unsafe { (session_mut(session)?, firn_table::whole(table)?) };
        // SAFETY: the caller promises that `record` is a record buffer of this table.
        let record = unsafe { record_of(&whole.table, record) }?;
        let how = WriteFlags {
            lock_duplicate_exclusive: false,
            private: true,
            skip_unique_secondary: flags & FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK != 0,
            validated: false,
            skip_foreign_keys: true,
        };
        if flags & FIRN_WRITE_NO_FOREIGN_KEYS == 0 {
            // SAFETY: the caller promises that blob columns of the record point to their bytes.
            unsafe {
                whole.table.check_loaded(&mut session.transaction, record)?;
            }
        }
        let load = load_of(session, whole, flags & FIRN_BULK_ONE_BY_ONE != 0)?;
        // SAFETY: the caller promises that blob columns of the record point to their bytes.
        let written = with_scratch(|scratch| unsafe { load.insert(record, how, scratch) })?;
        // SAFETY: the caller promises that each of both pointers is NULL or may be written.
        unsafe { inserted(written, dup_index, ref_out) }
    })
}

/// Returns the session's load into the table. Begins a load if the session has none for the table.
fn load_of<'a>(
    session: &'a mut firn_session,
    whole: &firn_table,
    one_by_one: bool,
) -> Result<&'a mut BulkLoad, Error> {
    let at = match bulk_position(session, &whole.table) {
        Some(at) => at,
        None => {
            let owner = whole.db().helper_of(session.transaction.owner());
            let (table, cx) = (Arc::clone(&whole.table), whole.db().context());
            let bulk = BulkLoad::new(table, cx, owner, one_by_one, session.bulks.len())?;
            session.bulks.push(bulk);
            let loads = session.bulks.len();
            let bulks = &mut session.bulks;
            bulks.iter_mut().for_each(|bulk| bulk.share_memory(loads));
            loads - 1
        }
    };
    Ok(&mut session.bulks[at])
}

/// Ends a load. On return all its rows are durable, and visible to snapshots that are taken from
/// now on. If the call fails, call `firn_bulk_abort`. One such failure is `FIRN_DUPLICATE`: two
/// rows of the load have the same key in index `dup_index`.
///
/// # Safety
/// The handles must be live, and only this thread may use the session; `progress` must not call the
/// core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_bulk_end(
    session: *mut firn_session,
    table: *const firn_table,
    progress: firn_progress,
    context: *mut c_void,
    dup_index: *mut u32,
) -> firn_status {
    guard(|| {
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        let Some(at) = bulk_position(session, table) else {
            return Ok(());
        };
        // SAFETY: the host keeps callback and context valid during the call.
        let mut report = unsafe { reporter(progress, context, "the load was interrupted") };
        let written = session.bulks[at].finish(&mut report)?;
        // SAFETY: the caller promises that `dup_index` is NULL or may be written.
        unsafe { outcome(written, dup_index) }?;
        session.bulks.swap_remove(at);
        Ok(())
    })
}

/// After a load has ended because two of its rows have the same key, writes the second of these
/// rows to `record`. The row's blobs stay valid until the next call or
/// the end of the transaction.
///
/// # Safety
/// The handles must be live, and only this thread may use the session; `record` must be a record
/// buffer of the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_bulk_duplicate(
    session: *mut firn_session,
    table: *const firn_table,
    record: *mut u8,
) -> firn_status {
    guard(|| {
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        let at = bulk_position(session, table).ok_or_else(|| Error::invalid("no load"))?;
        if record.is_null() {
            return Err(Error::invalid("no record").into());
        }
        // SAFETY: the buffer has the table's record length and stays valid during the call.
        let record = unsafe { std::slice::from_raw_parts_mut(record, table.record_len()) };
        Ok(session.bulks[at].duplicate_row(record, &mut session.duplicate_blobs)?)
    })
}

/// Gives up a load. The caller must then drop the table.
///
/// # Safety
/// The session must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_bulk_abort(
    session: *mut firn_session,
    table: *const firn_table,
) -> firn_status {
    guard(|| {
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        if let Some(at) = bulk_position(session, table) {
            session.bulks.swap_remove(at);
        }
        Ok(())
    })
}
