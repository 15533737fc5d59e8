//! Rows: inserting, updating, deleting, loading.

use crate::error::{CallOutcome, firn_status, guard};
use crate::session::{bulk_position, firn_session, session_mut};
use crate::table::firn_table;
use firn::base::{Error, ErrorKind};
use firn::table::{BulkLoad, RowScratch, Table, WriteFlags, WriteOutcome};
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;

thread_local! {
    static SCRATCH: RefCell<RowScratch> = RefCell::default();
}

/// A duplicate is about to be replaced or updated: lock it exclusively.
pub const FIRN_WRITE_LOCK_DUPLICATE_X: u32 = 1;
/// The target of a copying ALTER: nobody else sees the table until `firn_bulk_end`. A duplicate may
/// become known later, and ends the load; `firn_bulk_duplicate` gives its row.
pub const FIRN_WRITE_BULK: u32 = 2;
/// With `FIRN_WRITE_BULK`: whether a row is a duplicate is known at once, and the load goes on
/// without it.
pub const FIRN_WRITE_BULK_ONE_BY_ONE: u32 = 8;
/// The caller vouches for unique secondary indexes.
pub const FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK: u32 = 4;

fn write_flags(flags: u32) -> WriteFlags {
    WriteFlags {
        lock_duplicate_exclusive: flags & FIRN_WRITE_LOCK_DUPLICATE_X != 0,
        private: flags & FIRN_WRITE_BULK != 0,
        skip_unique_secondary: flags & FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK != 0,
    }
}

/// # Safety
/// `record` has the table's record length.
unsafe fn record_of<'a>(table: &Table, record: *const u8) -> Result<&'a [u8], CallOutcome> {
    if record.is_null() {
        return Err(Error::invalid("no record").into());
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { std::slice::from_raw_parts(record, table.record_len()) })
}

/// # Safety
/// `reference` is NULL or has eight bytes.
unsafe fn row_id(reference: *const u8) -> Option<u64> {
    // SAFETY: as the caller promises.
    (!reference.is_null())
        .then(|| u64::from_be_bytes(unsafe { reference.cast::<[u8; 8]>().read() }))
}

/// # Safety
/// `dup_index` is NULL or may be written.
unsafe fn outcome(written: WriteOutcome, dup_index: *mut u32) -> Result<Option<u64>, CallOutcome> {
    match written {
        WriteOutcome::Done { row_id } => Ok(row_id),
        WriteOutcome::Same => Err(firn_status::FIRN_SAME_ROW.into()),
        WriteOutcome::Duplicate { index } => {
            if !dup_index.is_null() {
                // SAFETY: as the caller promises.
                unsafe { dup_index.write(index as u32) };
            }
            Err(firn_status::FIRN_DUPLICATE.into())
        }
    }
}

/// Inserts a row. `FIRN_DUPLICATE`: `dup_index` is the number of the first unique index, in
/// ascending order, that has the key already; nothing of the row stays. `ref_out` (may be NULL)
/// gets the eight bytes of a hidden key.
///
/// # Safety
/// The handles are live, the session is this thread's; `record` is a record buffer of the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_insert(
    session: *mut firn_session,
    table: *const firn_table,
    record: *const u8,
    flags: u32,
    dup_index: *mut u32,
    ref_out: *mut u8,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let session = unsafe { session_mut(session) }?;
        // SAFETY: as the caller promises.
        let whole = unsafe { firn_table::whole(table) }?;
        let table = &whole.table;
        // SAFETY: as the caller promises.
        let record = unsafe { record_of(table, record) }?;
        let how = write_flags(flags);
        let written = SCRATCH.with_borrow_mut(|scratch| {
            if !how.private {
                // SAFETY: as the caller promises.
                return unsafe { table.insert(&mut session.transaction, record, how, scratch) };
            }
            let bulk = bulk_of(session, whole, flags)?;
            // SAFETY: as the caller promises.
            unsafe { bulk.insert(record, how, scratch) }
        })?;
        // SAFETY: as the caller promises.
        let id = unsafe { outcome(written, dup_index) }?;
        if let (Some(id), false) = (id, ref_out.is_null()) {
            // SAFETY: as the caller promises.
            unsafe { ref_out.cast::<[u8; 8]>().write(id.to_be_bytes()) };
        }
        Ok(())
    })
}

fn bulk_of<'a>(
    session: &'a mut firn_session,
    whole: &firn_table,
    flags: u32,
) -> Result<&'a mut BulkLoad, Error> {
    let at = match bulk_position(session, &whole.table) {
        Some(at) => at,
        None => {
            let owner = whole.db().helper_of(session.transaction.owner());
            let (table, cx) = (Arc::clone(&whole.table), whole.db().context());
            let one_by_one = flags & FIRN_WRITE_BULK_ONE_BY_ONE != 0;
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

/// How far something long is: so much of `total`, in no certain unit. True ends it.
pub type firn_progress = unsafe extern "C" fn(context: *mut c_void, done: u64, total: u64) -> bool;

/// Ends a load: everything is durable, and visible to snapshots from now on. After an error,
/// `FIRN_DUPLICATE` with its index included, call `firn_bulk_abort`.
///
/// # Safety
/// The handles are live, the session is this thread's; `progress` does not come back into the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_bulk_end(
    session: *mut firn_session,
    table: *const firn_table,
    progress: firn_progress,
    context: *mut c_void,
    dup_index: *mut u32,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        let Some(at) = bulk_position(session, table) else {
            return Ok(());
        };
        let written = session.bulks[at].finish(&mut |done, total| {
            // SAFETY: as the caller promises.
            match unsafe { progress(context, done, total) } {
                true => Err(Error::new(
                    ErrorKind::Interrupted,
                    "the load was interrupted",
                )),
                false => Ok(()),
            }
        })?;
        // SAFETY: as the caller promises.
        unsafe { outcome(written, dup_index) }?;
        session.bulks.swap_remove(at);
        Ok(())
    })
}

/// Writes the second row of the duplicate that ended a load to `record`. Its blobs stay until the
/// next call.
///
/// # Safety
/// The handles are live, the session is this thread's; `record` is a record buffer of the table.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_bulk_duplicate(
    session: *mut firn_session,
    table: *const firn_table,
    record: *mut u8,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        let at = bulk_position(session, table).ok_or_else(|| Error::invalid("no load"))?;
        if record.is_null() {
            return Err(Error::invalid("no record").into());
        }
        // SAFETY: as the caller promises.
        let record = unsafe { std::slice::from_raw_parts_mut(record, table.record_len()) };
        Ok(session.bulks[at].duplicate_row(record, &mut session.duplicate_blobs)?)
    })
}

/// Gives up a load; the table is to be dropped next.
///
/// # Safety
/// The session is live and this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_bulk_abort(
    session: *mut firn_session,
    table: *const firn_table,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        if let Some(at) = bulk_position(session, table) {
            session.bulks.swap_remove(at);
        }
        Ok(())
    })
}

/// Changes a row that was read under an exclusive lock. `old_ref`: the eight bytes of its hidden
/// key, NULL if it has a primary key. `FIRN_SAME_ROW`: nothing changes. `FIRN_DUPLICATE`: as for
/// `firn_insert`.
///
/// # Safety
/// As for `firn_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_update(
    session: *mut firn_session,
    table: *const firn_table,
    old_record: *const u8,
    new_record: *const u8,
    old_ref: *const u8,
    flags: u32,
    dup_index: *mut u32,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        // SAFETY: as the caller promises.
        let (old, new) = unsafe { (record_of(table, old_record)?, record_of(table, new_record)?) };
        let written = SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: as the caller promises.
            unsafe {
                let (txn, how) = (&mut session.transaction, write_flags(flags));
                table.update(txn, old, new, row_id(old_ref), how, scratch)
            }
        })?;
        // SAFETY: as the caller promises.
        unsafe { outcome(written, dup_index) }?;
        Ok(())
    })
}

/// Deletes a row that was read under an exclusive lock. `reference`: the eight bytes of its hidden
/// key, NULL if it has a primary key.
///
/// # Safety
/// As for `firn_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_delete(
    session: *mut firn_session,
    table: *const firn_table,
    record: *const u8,
    reference: *const u8,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        // SAFETY: as the caller promises.
        let record = unsafe { record_of(table, record) }?;
        SCRATCH.with_borrow_mut(|scratch| {
            // SAFETY: as the caller promises.
            unsafe {
                let txn = &mut session.transaction;
                table.delete(
                    txn,
                    record,
                    row_id(reference),
                    WriteFlags::default(),
                    scratch,
                )
            }
        })?;
        Ok(())
    })
}
