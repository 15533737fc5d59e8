//! Definitions: creating, dropping, renaming and emptying tables, and the server's version number
//! of a definition.

use crate::database::firn_db;
use crate::ddl_session::ddl_session;
use crate::error::{firn_status, guard};
use crate::foreign_keys::{firn_foreign_key_request, foreign_key_request};
use crate::pointers::{borrow_bytes, name};
use crate::schema::{firn_table_def, table_schema};
use crate::session::{firn_session, session_mut};
use firn::base::Error;
use firn::catalog::{NewTable, TableRename};
use std::ffi::{CString, c_char, c_void};

/// Creates a table: atomic and durable. The core stores `frm` and `version` for the server and does
/// not read them. `autoincrement` is the first AUTO_INCREMENT value of the table. `foreign_keys`
/// may be NULL for a table without foreign keys.
///
/// # Safety
/// The pointers must be valid for their types.
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
    foreign_keys: *const firn_foreign_key_request,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let db = unsafe { firn_db::get(db) }?;
        // SAFETY: the strings end with a NUL byte and stay valid during the call.
        let table_name = unsafe { name(table_name) }?;
        // SAFETY: the definition and all that it points to stay valid during the call.
        let schema = unsafe { table_schema(definition) }?;
        // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
        let (frm, version) = unsafe {
            (
                borrow_bytes(frm, frm_len),
                borrow_bytes(version, version_len),
            )
        };
        let created_micros = db.wall_micros();
        let definition = NewTable {
            schema,
            frm,
            version,
            created_micros,
        };
        let used = autoincrement.saturating_sub(1);
        // SAFETY: the pointer is NULL, or a request that stays valid during the call.
        let request = unsafe { foreign_key_request(foreign_keys) }?;
        db.catalog()
            .create_referencing(table_name, definition, used, &request)?;
        Ok(())
    })
}

/// Creates a temporary table: neither it nor its rows are logged, and the next start finds nothing
/// of it. No other table may have the name `table_name` as long as it exists. Other functions take
/// the table by its name or its handle, like any table. `autoincrement` is the first AUTO_INCREMENT
/// value.
///
/// # Safety
/// `session` must be live and used by this thread alone; the pointers must be valid for their
/// types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_create_temporary_table(
    db: *const firn_db,
    session: *mut firn_session,
    table_name: *const c_char,
    definition: *const firn_table_def,
    autoincrement: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the database is open; the session is live, and this thread alone uses it, so the
        // borrow is unique; the strings end with a NUL byte and stay valid during the call.
        let (temporary, session, table_name) = unsafe {
            (
                firn_db::temporary(db)?,
                session_mut(session)?,
                name(table_name)?,
            )
        };
        // SAFETY: the definition and all that it points to stay valid during the call.
        let schema = unsafe { table_schema(definition) }?;
        temporary.create(table_name, schema, autoincrement, &mut session.temporary)?;
        Ok(())
    })
}

/// Drops a table: atomic and durable. `FIRN_NO_TABLE` if there is none. `FIRN_FOREIGN_KEY` if
/// `checks` is set and a foreign key of another table refers to this table; with `whole_database`,
/// foreign keys of tables in the same database do not count, because those tables are dropped too.
/// `session` is the session that drops the table, or NULL. A temporary table can be dropped only
/// with its session.
///
/// # Safety
/// `session` must be NULL, or live and used by this thread alone; the pointers must be valid for
/// their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_drop_table(
    db: *const firn_db,
    session: *mut firn_session,
    table_name: *const c_char,
    checks: bool,
    whole_database: bool,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, temporary, table_name) = unsafe {
            (
                firn_db::get(db)?,
                firn_db::temporary(db)?,
                name(table_name)?,
            )
        };
        if temporary.find(table_name).is_some() {
            // SAFETY: the pointer is NULL, or a live session that this thread alone uses.
            let session = unsafe { session.as_mut() };
            temporary.drop_table(table_name, session.map(|session| &mut session.temporary))?;
            return Ok(());
        }
        // SAFETY: no session is passed.
        let ddl = unsafe { ddl_session(std::ptr::null_mut(), checks, 0) };
        db.catalog()
            .drop_unreferenced(table_name, &ddl, whole_database)?;
        Ok(())
    })
}

/// Renames a table with its foreign keys: atomic and durable. Foreign keys of other tables that
/// refer to it get the new name, unless `to` is the name that a copying ALTER gives to the old
/// table. In that case the call first waits until no transaction relies on the table's indexes for
/// a foreign key, for at most `lock_timeout_us`. A kill of `session` ends the wait. If `session` is
/// NULL, the call fails at once where it would have to wait. `from_text` and `to_text` are the
/// names as SQL has them, without the database.
///
/// # Safety
/// The pointers must be valid for their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_rename_table(
    db: *const firn_db,
    from: *const c_char,
    to: *const c_char,
    from_text: *const c_char,
    to_text: *const c_char,
    session: *mut firn_session,
    checks: bool,
    lock_timeout_us: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, from, to) = unsafe { (firn_db::get(db)?, name(from)?, name(to)?) };
        // SAFETY: the strings end with a NUL byte, the session is NULL, or this thread alone uses
        // it.
        let rename = unsafe {
            TableRename {
                session: ddl_session(session, checks, lock_timeout_us),
                from_text: name(from_text)?,
                to_text: name(to_text)?,
            }
        };
        db.catalog().rename_referencing(from, to, &rename)?;
        Ok(())
    })
}

/// Empties a table: atomic and durable. Its AUTO_INCREMENT values start anew. Open handles of the
/// table stay valid and see the empty table. The call first waits until no transaction relies on
/// the table's indexes for a foreign key, for at most `lock_timeout_us`. A kill of `session` ends
/// the wait. If `session` is NULL, the call fails at once where it would have to wait. A temporary
/// table can be emptied only with its session.
///
/// # Safety
/// `session` must be NULL, or live and used by this thread alone; the pointers must be valid for
/// their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_truncate_table(
    db: *const firn_db,
    session: *mut firn_session,
    table_name: *const c_char,
    lock_timeout_us: u64,
) -> firn_status {
    guard(|| {
        // SAFETY: the database is open; the strings end with a NUL byte and stay valid during the
        // call.
        let (db, temporary, table_name) = unsafe {
            (
                firn_db::get(db)?,
                firn_db::temporary(db)?,
                name(table_name)?,
            )
        };
        if temporary.find(table_name).is_some() {
            // SAFETY: the session is live and used by this thread alone.
            let session = unsafe { session_mut(session) }?;
            temporary.truncate(table_name, &mut session.temporary)?;
            return Ok(());
        }
        // SAFETY: the pointer is NULL, or a live session of this thread.
        let ddl = unsafe { ddl_session(session, false, lock_timeout_us) };
        db.catalog().truncate_referenced(table_name, &ddl)?;
        Ok(())
    })
}

/// Calls `each` with the name of every table whose name starts with `prefix`.
///
/// # Safety
/// The pointers must be valid; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_table_names(
    db: *const firn_db,
    prefix: *const c_char,
    each: unsafe extern "C" fn(context: *mut c_void, name: *const c_char),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, prefix) = unsafe { (firn_db::get(db)?, name(prefix)?) };
        for table in db.catalog().list(prefix) {
            let name =
                CString::new(table.name.as_str()).map_err(|_| Error::invalid("table name"))?;
            // SAFETY: the host keeps callback and context valid during the call.
            unsafe { each(context, name.as_ptr()) };
        }
        Ok(())
    })
}

/// Copies the version of a table's definition to `out`, at most `cap` bytes: the bytes that the
/// server gave as `version` when the table was created or last changed. `len` is set to their full
/// number.
///
/// # Safety
/// The pointers must be valid for their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_version(
    db: *const firn_db,
    table_name: *const c_char,
    out: *mut u8,
    cap: usize,
    len: *mut usize,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, table_name) = unsafe { (firn_db::get(db)?, name(table_name)?) };
        let entry = db.catalog().get(table_name)?;
        let copied = entry.version.len().min(cap);
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe {
            std::ptr::copy_nonoverlapping(entry.version.as_ptr(), out, copied);
            len.write(entry.version.len());
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests;
