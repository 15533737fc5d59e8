//! Changes the columns and indexes of a table in place.

use crate::database::firn_db;
use crate::ddl_session::ddl_session;
use crate::error::{firn_status, guard, guard_value};
use crate::pointers::{borrow_bytes, boxed, unbox};
use crate::progress::{firn_progress, reporter};
use crate::schema::{FIRN_NONE, firn_table_def, table_schema};
use crate::session::{firn_session, session_mut};
use crate::table::firn_table;
use firn::base::Error;
use firn::catalog::SchemaChange;
use firn::table::{IndexBuild, WriteOutcome};
use std::ffi::c_void;
use std::sync::Arc;

/// A change of one table's columns and secondary indexes that has begun and is not committed.
pub struct firn_index_change {
    build: IndexBuild,
}

impl firn_index_change {
    pub(crate) fn build(&mut self) -> &mut IndexBuild {
        &mut self.build
    }
}

/// Plans to give `table` the columns and indexes of `definition`, which has the primary key of the
/// table. `columns` has for each column of `definition` the number of that column in the table, or
/// `FIRN_NONE` for a new column; `indexes` has the same for each index. `defaults` is a record
/// buffer of `definition` with the values that the new columns get in all rows of the table.
/// `FIRN_UNSUPPORTED`, with the reason in words, if the change takes a copy of the rows or of the
/// primary index.
///
/// # Safety
/// The table must be live; the pointers must be valid for their types, `columns` and `indexes` for
/// as many numbers as the definition has columns and indexes, `defaults` for a record buffer of the
/// definition. New columns of `defaults` that are blobs must point to their bytes. The collator's
/// callbacks and the handles of the definition's collations must stay valid until the change is
/// freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_index_change_new(
    table: *const firn_table,
    definition: *const firn_table_def,
    columns: *const u32,
    indexes: *const u32,
    defaults: *const u8,
    out: *mut *mut firn_index_change,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let whole = unsafe { firn_table::whole(table) }?;
        // SAFETY: the definition and all that it points to stay valid during the call.
        let schema = unsafe { table_schema(definition) }?;
        // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
        let (columns, indexes, defaults) = unsafe {
            (
                origins(columns, schema.columns.len()),
                origins(indexes, schema.indexes.len()),
                borrow_bytes(defaults, schema.record_len as usize),
            )
        };
        // SAFETY: new blob columns of the record point to their bytes.
        let change = unsafe { SchemaChange::new(schema, columns, indexes, defaults) }?;
        let table = Arc::clone(&whole.table);
        let build = IndexBuild::new(table, whole.db().context(), change)?;
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe { out.write(boxed(firn_index_change { build })) };
        Ok(())
    })
}

/// # Safety
/// `numbers` must be valid for `count` numbers.
unsafe fn origins(numbers: *const u32, count: usize) -> Vec<Option<usize>> {
    if count == 0 || numbers.is_null() {
        return Vec::new();
    }
    // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
    let numbers = unsafe { std::slice::from_raw_parts(numbers, count) }.iter();
    let numbers = numbers.map(|&old| (old != FIRN_NONE).then_some(old as usize));
    numbers.collect()
}

/// Fills the new indexes from the rows of the table. Nobody may change rows of the table from this
/// call to the commit. `FIRN_DUPLICATE` means that two rows have the same key in the new unique
/// index `dup_index`: `record` gets the second of these rows, whose blobs stay valid until the next
/// call of the session.
///
/// # Safety
/// The handles must be live, and only this thread may use the session; `record` must be a record
/// buffer of the table; `progress` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_index_change_fill(
    session: *mut firn_session,
    change: *mut firn_index_change,
    progress: firn_progress,
    context: *mut c_void,
    record: *mut u8,
    record_len: usize,
    dup_index: *mut u32,
) -> firn_status {
    guard(|| {
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(session) }?;
        // SAFETY: the pointer is NULL or a live handle that this thread alone uses, so the borrow
        // is unique.
        let change = unsafe { change.as_mut() }.ok_or_else(|| Error::invalid("no change"))?;
        if record.is_null() {
            return Err(Error::invalid("no record").into());
        }
        // SAFETY: the buffer has the table's record length and stays valid during the call.
        let record = unsafe { std::slice::from_raw_parts_mut(record, record_len) };
        // SAFETY: the host keeps callback and context valid during the call.
        let mut report = unsafe { reporter(progress, context, "the change was interrupted") };
        let owner = Arc::clone(session.transaction.owner());
        let blobs = &mut session.duplicate_blobs;
        match change.build.fill(&owner, &mut report, record, blobs)? {
            WriteOutcome::Duplicate { index } => {
                // SAFETY: the out pointer is valid for writes, and only this call refers to its
                // target.
                unsafe { dup_index.write(index as u32) };
                Err(firn_status::FIRN_DUPLICATE.into())
            }
            _ => Ok(()),
        }
    })
}

/// Makes the commit of the change also set the table's next AUTO_INCREMENT value: to `next`, or to
/// the value after `largest` if that is greater. `largest` is the largest value in any row.
///
/// # Safety
/// The change must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_index_change_autoinc(
    change: *mut firn_index_change,
    next: u64,
    largest: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the pointer is NULL or a live handle that this thread alone uses, so the borrow
        // is unique.
        let change = unsafe { change.as_mut() }.ok_or_else(|| Error::invalid("no change"))?;
        change.build.set_autoincrement(next, largest);
        Ok(())
    })
}

/// Commits the changes of several tables (the partitions of one table) at once, with the server's
/// new definition and version: atomic and durable. Open handles of the tables keep the old
/// definition, so the caller must close them. The call first waits until no transaction relies on
/// the tables' indexes for a foreign key, for at most `lock_timeout_us`. A kill of `session` ends
/// the wait. If `session` is NULL, the call fails at once where it would have to wait.
///
/// # Safety
/// The handles must be live; `changes` must have `count` different ones; the other pointers must be
/// valid for their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_index_change_commit(
    db: *const firn_db,
    changes: *const *mut firn_index_change,
    count: usize,
    frm: *const u8,
    frm_len: usize,
    version: *const u8,
    version_len: usize,
    session: *mut firn_session,
    checks: bool,
    lock_timeout_us: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { firn_db::get(db) }?;
        if count == 0 {
            return Ok(());
        }
        // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
        let changes = unsafe { std::slice::from_raw_parts(changes, count) };
        let builds = changes.iter().map(|change| {
            // SAFETY: the pointer is NULL or a live handle that this thread alone uses, so the
            // borrow is unique.
            let change = unsafe { change.as_mut() };
            change.map(|change| &mut change.build)
        });
        let builds: Option<Vec<_>> = builds.collect();
        let mut builds = builds.ok_or_else(|| Error::invalid("no change"))?;
        // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
        let (frm, version) = unsafe {
            (
                borrow_bytes(frm, frm_len),
                borrow_bytes(version, version_len),
            )
        };
        // SAFETY: the pointer is NULL, or a live session of this thread.
        let ddl = unsafe { ddl_session(session, checks, lock_timeout_us) };
        Ok(IndexBuild::commit(&mut builds, frm, version, &ddl)?)
    })
}

/// Ends a change. If it was not committed, the entries of its new indexes become garbage.
///
/// # Safety
/// `change` must be NULL or from `firn_index_change_new`, and must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_index_change_free(change: *mut firn_index_change) {
    // SAFETY: the handle came from `boxed`, and the host passes it here once, as its last use.
    guard_value((), || drop(unsafe { unbox(change) }));
}
