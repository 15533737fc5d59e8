//! Tables: definition, rows, auto-increment.

use crate::database::firn_db;
use crate::error::{Outcome, firn_status, guard, guard_value};
use crate::memory::{borrow_bytes, boxed, name, unbox};
use crate::schema::{firn_table_def, table_schema};
use crate::session::{firn_session, session_mut};
use firn::base::{Error, ErrorKind};
use firn::catalog::Definition;
use firn::db::Db;
use firn::table::{BulkLoad, RowScratch, Table, WriteFlags, Written};
use std::cell::RefCell;
use std::ffi::{CString, c_char, c_void};
use std::sync::Arc;

/// An opened table, shared by all who use it.
pub struct firn_table {
    table: Arc<Table>,
    db: Arc<Db>,
}

impl firn_table {
    /// # Safety
    /// `table` is NULL or from `firn_table_open` and not closed.
    pub(crate) unsafe fn get<'a>(table: *const firn_table) -> Result<&'a Arc<Table>, Outcome> {
        // SAFETY: as the caller promises.
        Ok(&unsafe { Self::whole(table) }?.table)
    }

    /// # Safety
    /// As for [`Self::get`].
    pub(crate) unsafe fn whole<'a>(table: *const firn_table) -> Result<&'a firn_table, Outcome> {
        // SAFETY: as the caller promises.
        unsafe { table.as_ref() }.ok_or_else(|| Error::invalid("no table").into())
    }

    pub(crate) fn db(&self) -> &Arc<Db> {
        &self.db
    }
}

thread_local! {
    static SCRATCH: RefCell<RowScratch> = RefCell::default();
}

/// Creates a table: atomic and durable. `frm` and `version` are the server's own, kept for it;
/// `autoincrement` is the first value to hand out.
///
/// # Safety
/// The pointers are valid for what they name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_create_table(
    db: *const firn_db,
    table_name: *const c_char,
    definition: *const firn_table_def,
    frm: *const u8,
    frm_len: usize,
    version: *const u8,
    version_len: usize,
    autoincrement: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let db = unsafe { firn_db::get(db) }?;
        // SAFETY: as the caller promises.
        let table_name = unsafe { name(table_name) }?;
        // SAFETY: as the caller promises.
        let schema = unsafe { table_schema(definition) }?;
        // SAFETY: as the caller promises.
        let (frm, version) = unsafe {
            (
                borrow_bytes(frm, frm_len),
                borrow_bytes(version, version_len),
            )
        };
        let created_micros = db.wall_micros();
        let definition = Definition {
            schema: schema.clone(),
            frm,
            version,
            created_micros,
        };
        db.catalog().create(table_name, definition)?;
        if autoincrement > 1 {
            Table::open(db.catalog(), table_name, schema, &[])?.set_autoincrement(autoincrement)?;
        }
        Ok(())
    })
}

/// Drops a table: atomic and durable. `FIRN_NO_TABLE` if there is none.
///
/// # Safety
/// The pointers are valid for what they name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_drop_table(
    db: *const firn_db,
    table_name: *const c_char,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, table_name) = unsafe { (firn_db::get(db)?, name(table_name)?) };
        db.catalog().drop_table(table_name)?;
        Ok(())
    })
}

/// Renames a table: atomic and durable.
///
/// # Safety
/// The pointers are valid for what they name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_rename_table(
    db: *const firn_db,
    from: *const c_char,
    to: *const c_char,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, from, to) = unsafe { (firn_db::get(db)?, name(from)?, name(to)?) };
        db.catalog().rename(from, to)?;
        Ok(())
    })
}

/// Empties a table: atomic and durable; auto-increment starts anew. Open handles follow.
///
/// # Safety
/// The pointers are valid for what they name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_truncate_table(
    db: *const firn_db,
    table_name: *const c_char,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, table_name) = unsafe { (firn_db::get(db)?, name(table_name)?) };
        db.catalog().truncate(table_name)?;
        Ok(())
    })
}

/// Calls `each` with the name of every table whose name starts with `prefix`.
///
/// # Safety
/// The pointers are valid; `each` does not come back into the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_table_names(
    db: *const firn_db,
    prefix: *const c_char,
    each: unsafe extern "C" fn(context: *mut c_void, name: *const c_char),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, prefix) = unsafe { (firn_db::get(db)?, name(prefix)?) };
        for table in db.catalog().list(prefix) {
            let name =
                CString::new(table.name.as_str()).map_err(|_| Error::invalid("table name"))?;
            // SAFETY: as the caller promises.
            unsafe { each(context, name.as_ptr()) };
        }
        Ok(())
    })
}

/// Copies the server's version of a table's definition to `out`, at most `cap` bytes; `len` gets
/// its length.
///
/// # Safety
/// The pointers are valid for what they name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_version(
    db: *const firn_db,
    table_name: *const c_char,
    out: *mut u8,
    cap: usize,
    len: *mut usize,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, table_name) = unsafe { (firn_db::get(db)?, name(table_name)?) };
        let entry = db.catalog().get(table_name)?;
        let copied = entry.version.len().min(cap);
        // SAFETY: as the caller promises.
        unsafe {
            std::ptr::copy_nonoverlapping(entry.version.as_ptr(), out, copied);
            len.write(entry.version.len());
        }
        Ok(())
    })
}

/// Replaces the server's own definition and version that are kept with the table; durable.
///
/// # Safety
/// The pointers are valid for what they name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_set_table_image(
    db: *const firn_db,
    table_name: *const c_char,
    frm: *const u8,
    frm_len: usize,
    version: *const u8,
    version_len: usize,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (db, table_name) = unsafe { (firn_db::get(db)?, name(table_name)?) };
        // SAFETY: as the caller promises.
        let (frm, version) = unsafe {
            (
                borrow_bytes(frm, frm_len),
                borrow_bytes(version, version_len),
            )
        };
        db.catalog().set_image(table_name, frm, version)?;
        Ok(())
    })
}

/// Opens a table, which the server defines as `definition`.
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
        // SAFETY: as the caller promises.
        let (db, table_name) = unsafe { (firn_db::get(db)?, name(table_name)?) };
        // SAFETY: as the caller promises.
        let schema = unsafe { table_schema(definition) }?;
        let len = schema.record_len as usize;
        // SAFETY: the definition is valid, and its default record as long as every record.
        let defaults = unsafe { borrow_bytes((*definition).default_record, len) };
        let table = Table::open(db.catalog(), table_name, schema, defaults)?;
        // SAFETY: as the caller promises.
        unsafe {
            out.write(boxed(firn_table {
                table,
                db: Arc::clone(db),
            }))
        };
        Ok(())
    })
}

/// Closes a table.
///
/// # Safety
/// `table` is NULL or from `firn_table_open`, and not used afterwards but by its cursors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_close(table: *mut firn_table) {
    // SAFETY: as the caller promises.
    guard_value((), || drop(unsafe { unbox(table) }));
}

/// No special wishes.
pub const FIRN_WRITE_DEFAULT: u32 = 0;
/// A duplicate is about to be replaced or updated: lock it exclusively.
pub const FIRN_WRITE_LOCK_DUPLICATE_X: u32 = 1;
/// The target of a copying ALTER: nobody else sees the table, and rows are committed in pieces
/// until `firn_bulk_end`.
pub const FIRN_WRITE_BULK: u32 = 2;
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
unsafe fn record_of<'a>(table: &Table, record: *const u8) -> Result<&'a [u8], Outcome> {
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
unsafe fn outcome(written: Written, dup_index: *mut u32) -> Result<Option<u64>, Outcome> {
    match written {
        Written::Done { row_id } => Ok(row_id),
        Written::Same => Err(firn_status::FIRN_SAME_ROW.into()),
        Written::Duplicate { index } => {
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
            let bulk = bulk_of(session, whole);
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

fn bulk_of<'a>(session: &'a mut firn_session, whole: &firn_table) -> &'a mut BulkLoad {
    let at = bulk_position(session, &whole.table).unwrap_or_else(|| {
        let owner = whole.db.new_owner(0);
        session.bulks.push(BulkLoad::new(
            Arc::clone(&whole.table),
            whole.db.context(),
            owner,
        ));
        session.bulks.len() - 1
    });
    &mut session.bulks[at]
}

fn bulk_position(session: &firn_session, table: &Arc<Table>) -> Option<usize> {
    session
        .bulks
        .iter()
        .position(|bulk| Arc::ptr_eq(bulk.table(), table))
}

/// Ends a load: everything is durable, and visible to snapshots from now on.
///
/// # Safety
/// The handles are live, the session is this thread's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_bulk_end(
    session: *mut firn_session,
    table: *const firn_table,
) -> firn_status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        match bulk_position(session, table) {
            Some(at) => Ok(session.bulks.swap_remove(at).finish()?),
            None => Ok(()),
        }
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

/// Reserves `count` values of the series `offset + k * increment`. `first` is the first one,
/// `reserved` how many there are. `FIRN_AUTOINC_EXHAUSTED` if there is none.
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
        // SAFETY: as the caller promises.
        let table = unsafe { firn_table::get(table) }?;
        let count = count.max(1);
        let value = table.reserve_autoincrement(offset, increment, count);
        let value = value.ok_or(firn_status::FIRN_AUTOINC_EXHAUSTED)?;
        // SAFETY: as the caller promises.
        unsafe {
            first.write(value);
            reserved.write(count);
        }
        Ok(())
    })
}

/// A row with this value was written: later ones are larger, also after a restart.
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
        // SAFETY: as the caller promises.
        let (session, table) = unsafe { (session_mut(session)?, firn_table::get(table)?) };
        match bulk_position(session, table) {
            Some(at) => session.bulks[at].use_autoincrement(used),
            None => table.use_autoincrement(&mut session.transaction, used),
        }
        Ok(())
    });
}

/// The value that the next row gets at least; 0 if there is no table.
///
/// # Safety
/// The table is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_next_value(table: *const firn_table) -> u64 {
    guard_value(0, || {
        // SAFETY: as the caller promises.
        unsafe { firn_table::get(table) }.map_or(0, |t| t.next_autoincrement())
    })
}

/// Makes `next` the next value, unless larger ones were used; durable.
///
/// # Safety
/// The table is live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_autoinc_set(table: *const firn_table, next: u64) -> firn_status {
    // SAFETY: as the caller promises.
    guard(|| Ok(unsafe { firn_table::get(table) }?.set_autoincrement(next)?))
}

/// Checks a table: checksums of its files; extended: that each row has its entries and each entry
/// its row. `problem` is called for each problem; then the status is `FIRN_CORRUPTION`.
///
/// # Safety
/// The handles are live, the session is this thread's; `problem` does not come back into the core.
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
        // SAFETY: as the caller promises.
        let (session, whole) = unsafe { (session_mut(session)?, firn_table::whole(table)?) };
        let owner = Arc::clone(session.transaction.owner());
        let views = &whole.db.context().views;
        let report = whole
            .table
            .check(views, extended, &|| owner.is_interrupted())?;
        // SAFETY: as the caller promises.
        unsafe { rows.write(report.rows) };
        for text in &report.problems {
            let text = CString::new(text.as_str()).unwrap_or_default();
            // SAFETY: as the caller promises.
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

/// Compacts to the resting state: everything in the last level.
///
/// # Safety
/// The handles are live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_optimize_table(
    db: *const firn_db,
    _table: *const firn_table,
) -> firn_status {
    // SAFETY: as the caller promises.
    guard(|| match unsafe { firn_db::get(db) }?.compact_all() {
        // A passing job was canceled by a close.
        Err(e) if *e.kind() == ErrorKind::Interrupted => Err(e.into()),
        done => Ok(done?),
    })
}
