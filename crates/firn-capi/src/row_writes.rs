//! Rows: inserting, updating, deleting.

use crate::error::{CallOutcome, firn_status, guard};
use crate::session::{firn_session, session_mut};
use crate::table::firn_table;
use firn::base::Error;
use firn::table::{RowScratch, Table, WriteFlags, WriteOutcome};
use std::cell::RefCell;

thread_local! {
    static SCRATCH: RefCell<RowScratch> = RefCell::default();
}

/// A duplicate is about to be replaced or updated: lock it exclusively.
pub const FIRN_WRITE_LOCK_DUPLICATE_X: u32 = 1;
/// The caller guarantees that keys of unique secondary indexes are unique.
pub const FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK: u32 = 4;

fn write_flags(flags: u32) -> WriteFlags {
    WriteFlags {
        lock_duplicate_exclusive: flags & FIRN_WRITE_LOCK_DUPLICATE_X != 0,
        private: false,
        skip_unique_secondary: flags & FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK != 0,
    }
}

/// # Safety
/// `record` has the table's record length.
pub(crate) unsafe fn record_of<'a>(
    table: &Table,
    record: *const u8,
) -> Result<&'a [u8], CallOutcome> {
    if record.is_null() {
        return Err(Error::invalid("no record").into());
    }
    // SAFETY: the buffer has the table's record length and stays valid during the call.
    Ok(unsafe { std::slice::from_raw_parts(record, table.record_len()) })
}

/// # Safety
/// `reference` is NULL or has eight bytes.
unsafe fn row_id(reference: *const u8) -> Option<u64> {
    // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
    (!reference.is_null())
        .then(|| u64::from_be_bytes(unsafe { reference.cast::<[u8; 8]>().read() }))
}

/// # Safety
/// `dup_index` is NULL or may be written.
pub(crate) unsafe fn outcome(
    written: WriteOutcome,
    dup_index: *mut u32,
) -> Result<Option<u64>, CallOutcome> {
    match written {
        WriteOutcome::Done { row_id } => Ok(row_id),
        WriteOutcome::Same => Err(firn_status::FIRN_SAME_ROW.into()),
        WriteOutcome::Duplicate { index } => {
            if !dup_index.is_null() {
                // SAFETY: the out pointer is valid for writes, and only this call refers to its
                // target.
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
        // SAFETY: the handles are live, and the session is used by this thread alone, so the borrow
        // is unique.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        // SAFETY: the caller promises a record buffer of this table.
        let record = unsafe { record_of(table, record) }?;
        let (txn, how) = (&mut session.transaction, write_flags(flags));
        let written = with_scratch(|scratch| {
            // SAFETY: the blobs that the record points to live as long as the record, by contract.
            unsafe { table.insert(txn, record, how, scratch) }
        })?;
        // SAFETY: the caller promises that both may be written, or are NULL.
        unsafe { inserted(written, dup_index, ref_out) }
    })
}

/// Reports the outcome of an insert.
///
/// # Safety
/// `dup_index` is NULL or may be written; `ref_out` is NULL or has eight bytes.
pub(crate) unsafe fn inserted(
    written: WriteOutcome,
    dup_index: *mut u32,
    ref_out: *mut u8,
) -> Result<(), CallOutcome> {
    // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
    let id = unsafe { outcome(written, dup_index) }?;
    if let (Some(id), false) = (id, ref_out.is_null()) {
        // SAFETY: eight bytes without alignment, promised by the caller.
        unsafe { ref_out.cast::<[u8; 8]>().write(id.to_be_bytes()) };
    }
    Ok(())
}

/// Calls `write` with this thread's scratch memory for encoded rows and keys.
pub(crate) fn with_scratch<T>(write: impl FnOnce(&mut RowScratch) -> T) -> T {
    SCRATCH.with_borrow_mut(write)
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
        // SAFETY: the handles are live, and the session is used by this thread alone, so the borrow
        // is unique.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        // SAFETY: the buffer has the table's record length and stays valid during the call.
        let (old, new) = unsafe { (record_of(table, old_record)?, record_of(table, new_record)?) };
        let written = with_scratch(|scratch| {
            // SAFETY: pointer and length describe memory that the host keeps unchanged during the
            // call; blob columns of the record point to their bytes: the same promise, passed on.
            unsafe {
                let (txn, how) = (&mut session.transaction, write_flags(flags));
                table.update(txn, old, new, row_id(old_ref), how, scratch)
            }
        })?;
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
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
        // SAFETY: the handles are live, and the session is used by this thread alone, so the borrow
        // is unique.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        // SAFETY: the buffer has the table's record length and stays valid during the call.
        let record = unsafe { record_of(table, record) }?;
        with_scratch(|scratch| {
            // SAFETY: pointer and length describe memory that the host keeps unchanged during the
            // call; blob columns of the record point to their bytes: the same promise, passed on.
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
