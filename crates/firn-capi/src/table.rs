//! Handles of open tables.

use crate::database::firn_db;
use crate::error::{CallOutcome, firn_status, guard, guard_value};
use crate::pointers::{borrow_bytes, boxed, name, unbox};
use crate::schema::{firn_table_def, table_schema};
use firn::base::Error;
use firn::db::Db;
use firn::table::Table;
use firn::temporary::EphemeralDb;
use std::ffi::{CString, c_char};
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
    /// `table` must be NULL or from `firn_table_open`, and must not be closed.
    pub(crate) unsafe fn get<'a>(table: *const firn_table) -> Result<&'a Arc<Table>, CallOutcome> {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        Ok(&unsafe { Self::whole(table) }?.table)
    }

    /// # Safety
    /// The requirements are those of [`Self::get`].
    pub(crate) unsafe fn whole<'a>(
        table: *const firn_table,
    ) -> Result<&'a firn_table, CallOutcome> {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { table.as_ref() }.ok_or_else(|| Error::invalid("no table").into())
    }

    pub(crate) fn db(&self) -> &Arc<Db> {
        &self.db
    }

    pub(crate) fn is_temporary(&self) -> bool {
        self.ephemeral.is_some()
    }
}

/// Opens a table, which the server defines as `definition`. `FIRN_DEFINITION_DIFFERS` if this
/// definition gives the table's rows or keys other bytes than the stored one; the message of the
/// error names the remedy.
///
/// # Safety
/// The pointers must be valid for their types.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_open(
    db: *const firn_db,
    table_name: *const c_char,
    definition: *const firn_table_def,
    out: *mut *mut firn_table,
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
/// The table must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_is_temporary(table: *const firn_table) -> bool {
    guard_value(false, || {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { firn_table::whole(table) }.is_ok_and(firn_table::is_temporary)
    })
}

/// Describes how the definition given at open differs from the stored one, although rows and keys
/// have the same bytes by both definitions; NULL if the definitions do not differ. The text is
/// valid until the table is closed.
///
/// # Safety
/// The table must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_warning(table: *const firn_table) -> *const c_char {
    guard_value(std::ptr::null(), || {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let table = unsafe { firn_table::whole(table) }.ok();
        let warning = table.and_then(|table| table.warning.as_ref());
        warning.map_or(std::ptr::null(), |words| words.as_ptr())
    })
}

/// Whether the table is optimistic: transactions lock nothing in it, and a commit fails if another
/// transaction has changed rows on which it depends.
///
/// # Safety
/// The table must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_is_optimistic(table: *const firn_table) -> bool {
    guard_value(false, || {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { firn_table::get(table) }.is_ok_and(|table| table.is_optimistic())
    })
}

/// Closes a table.
///
/// # Safety
/// `table` must be NULL or from `firn_table_open`, and must not be used afterwards. Its open
/// cursors may still be used.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_table_close(table: *mut firn_table) {
    // SAFETY: the handle came from `boxed`, and the host passes it here once, as its last use.
    guard_value((), || drop(unsafe { unbox(table) }));
}
