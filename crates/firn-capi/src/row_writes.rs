//! Inserting, updating and deleting rows.

use crate::error::{CallOutcome, firn_status, guard};
use crate::session::{firn_session, session_mut};
use crate::table::firn_table;
use crate::write_scratch::with_scratch;
use firn::base::Error;
use firn::table::{Table, WriteFlags, WriteOutcome};

/// Flag: if the key exists already, lock the row that has it exclusively, because the caller is
/// about to replace or update that row.
pub const FIRN_WRITE_LOCK_DUPLICATE_X: u32 = 1;
/// Flag: do not check keys of unique secondary indexes. The caller guarantees that they are unique.
pub const FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK: u32 = 4;

/// Flag: do not check foreign keys, and do not carry out their actions, such as cascades.
pub const FIRN_WRITE_NO_FOREIGN_KEYS: u32 = 8;

pub(crate) fn write_flags(table: &firn_table, flags: u32) -> WriteFlags {
    WriteFlags {
        lock_duplicate_exclusive: flags & FIRN_WRITE_LOCK_DUPLICATE_X != 0,
        private: table.is_temporary(),
        skip_unique_secondary: flags & FIRN_WRITE_NO_UNIQUE_SECONDARY_CHECK != 0,
        validated: false,
        skip_foreign_keys: flags & FIRN_WRITE_NO_FOREIGN_KEYS != 0,
    }
}

/// # Safety
/// `record` must have the table's record length.
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
/// `reference` must be NULL or have eight bytes.
unsafe fn row_id(reference: *const u8) -> Option<u64> {
    // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
    (!reference.is_null())
        .then(|| u64::from_be_bytes(unsafe { reference.cast::<[u8; 8]>().read() }))
}

/// # Safety
/// `dup_index` must be NULL or writable.
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

/// Inserts a row. `FIRN_DUPLICATE` means that a unique index has the key already: `dup_index` is
/// set to the number of the first such index, in ascending order, and nothing of the row is
/// written. `ref_out` (may be NULL) gets the eight bytes of a hidden key.
///
/// # Safety
/// The handles must be live, and only this thread may use the session; `record` must be a record
/// buffer of the table.
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
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
        let (session, whole) = unsafe { (session_mut(session)?, firn_table::whole(table)?) };
        let table = &whole.table;
        // SAFETY: the caller promises that `record` is a record buffer of this table.
        let record = unsafe { record_of(table, record) }?;
        let (txn, how) = (session.transaction_of(whole), write_flags(whole, flags));
        let written = with_scratch(|scratch| {
            // SAFETY: the caller promises that blob columns of the record point to their bytes.
            unsafe { table.insert(txn, record, how, scratch) }
        })?;
        // SAFETY: the caller promises that each of both pointers is NULL or may be written.
        unsafe { inserted(written, dup_index, ref_out) }
    })
}

/// Turns the outcome of an insert into the status and the results of `firn_insert`.
///
/// # Safety
/// `dup_index` must be NULL or writable; `ref_out` must be NULL or have room for eight bytes.
pub(crate) unsafe fn inserted(
    written: WriteOutcome,
    dup_index: *mut u32,
    ref_out: *mut u8,
) -> Result<(), CallOutcome> {
    // SAFETY: the caller promises that `dup_index` is NULL or may be written.
    let id = unsafe { outcome(written, dup_index) }?;
    if let (Some(id), false) = (id, ref_out.is_null()) {
        // SAFETY: the caller promises room for eight bytes, and the write needs no alignment.
        unsafe { ref_out.cast::<[u8; 8]>().write(id.to_be_bytes()) };
    }
    Ok(())
}

/// Changes a row that was read under an exclusive lock. `old_ref` is the eight bytes of the row's
/// hidden key, or NULL if the table has a primary key. `FIRN_SAME_ROW` means that both records are
/// equal. `FIRN_DUPLICATE` and `dup_index` are as for `firn_insert`.
///
/// # Safety
/// The requirements are those of `firn_insert`, for both records.
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
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
        let (session, whole) = unsafe { (session_mut(session)?, firn_table::whole(table)?) };
        let table = &whole.table;
        // SAFETY: the buffer has the table's record length and stays valid during the call.
        let (old, new) = unsafe { (record_of(table, old_record)?, record_of(table, new_record)?) };
        let written = with_scratch(|scratch| {
            // SAFETY: pointer and length describe memory that the host keeps unchanged during the
            // call, and the caller promises that blob columns of both records point to their bytes.
            unsafe {
                let (txn, how) = (session.transaction_of(whole), write_flags(whole, flags));
                table.update(txn, old, new, row_id(old_ref), how, scratch)
            }
        })?;
        // SAFETY: the caller promises that `dup_index` is NULL or may be written.
        unsafe { outcome(written, dup_index) }?;
        Ok(())
    })
}

/// Deletes a row that was read under an exclusive lock. `reference` is the eight bytes of the row's
/// hidden key, or NULL if the table has a primary key.
///
/// # Safety
/// The requirements are those of `firn_insert`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_delete(
    session: *mut firn_session,
    table: *const firn_table,
    record: *const u8,
    reference: *const u8,
    flags: u32,
) -> firn_status {
    guard(|| {
        // SAFETY: both handles are live, and this thread alone uses the session, so the borrow of
        // the session is unique.
        let (session, whole) = unsafe { (session_mut(session)?, firn_table::whole(table)?) };
        let table = &whole.table;
        // SAFETY: the buffer has the table's record length and stays valid during the call.
        let record = unsafe { record_of(table, record) }?;
        with_scratch(|scratch| {
            // SAFETY: pointer and length describe memory that the host keeps unchanged during the
            // call, and the caller promises that blob columns of the record point to their bytes.
            unsafe {
                let (txn, how) = (session.transaction_of(whole), write_flags(whole, flags));
                table.delete(txn, record, row_id(reference), how, scratch)
            }
        })?;
        Ok(())
    })
}
