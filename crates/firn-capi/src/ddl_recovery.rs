//! Ends DDL that a crash has interrupted: drops or renames the tables that it has left over. Such a
//! table has a name with `#sql`, as the server gives it to the copies of a copying ALTER.

use crate::database::firn_db;
use crate::error::{firn_status, guard};
use firn::base::Error;
use firn::catalog::{DefinitionFiles, LeftoverFate, TableEntry};
use std::ffi::{CStr, CString, c_char, c_void};

/// Fate of a table that interrupted DDL has left over: it was garbage, and was dropped.
pub const FIRN_LEFTOVER_DROPPED: u8 = 0;
/// Fate: the table is the only one with its rows, and got its own name back.
pub const FIRN_LEFTOVER_RESTORED: u8 = 1;
/// Fate: the table stays as it is.
pub const FIRN_LEFTOVER_KEPT: u8 = 2;

/// The server's definition files. Names are those of tables, `database/table`, never of partitions.
/// The functions must not call the core.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct firn_definition_files {
    /// Passed to all functions.
    pub context: *mut c_void,
    /// Copies the version of the definition, which the server has written into the definition file
    /// of a table, to `version`, at most `size` bytes. Returns its length in bytes, 0 if the file
    /// has none; below 0 if there is no file.
    pub version: unsafe extern "C" fn(
        context: *mut c_void,
        table_name: *const c_char,
        version: *mut u8,
        size: usize,
    ) -> isize,
    /// Calls `each` with the name of every table in `schema` that has a definition file, of any
    /// engine.
    pub list: unsafe extern "C" fn(
        context: *mut c_void,
        schema: *const c_char,
        each: unsafe extern "C" fn(names: *mut c_void, name: *const c_char),
        names: *mut c_void,
    ),
    /// Whether the definition file of a table is that of a table of this engine.
    pub is_own: unsafe extern "C" fn(context: *mut c_void, table_name: *const c_char) -> bool,
    /// Gives the table a durable definition file with the version `version`: the file of `copy` if
    /// that has this version, otherwise a new file with the content `frm`. Returns false if this
    /// fails, or if the table already has the file of another engine.
    pub place: unsafe extern "C" fn(
        context: *mut c_void,
        table_name: *const c_char,
        copy: *const c_char,
        frm: *const u8,
        frm_len: usize,
        version: *const u8,
        version_len: usize,
    ) -> bool,
    /// If the table lacks the file with the names of its partitions, gives it, durably, the file of
    /// a copy that has the same partitions.
    pub place_partitions: unsafe extern "C" fn(
        context: *mut c_void,
        table_name: *const c_char,
        partitions: *const *const c_char,
        count: usize,
    ),
    /// Removes the files of `copy`, if there are any.
    pub remove: unsafe extern "C" fn(context: *mut c_void, copy: *const c_char),
    /// Reports the fate of the leftover table `copy`: `fate` is one of `FIRN_LEFTOVER_*`, `text` is
    /// the name that the table has now, or the reason why it stays.
    pub report: unsafe extern "C" fn(
        context: *mut c_void,
        copy: *const c_char,
        fate: u8,
        text: *const c_char,
    ),
}

/// Converts a text to a C string. Replaces NUL bytes by spaces: names have none, and a message does
/// not need them.
fn c_text(text: &str) -> CString {
    CString::new(text.replace('\0', " ")).unwrap_or_default()
}

struct HostFiles(firn_definition_files);

unsafe extern "C" fn collect(names: *mut c_void, name: *const c_char) {
    // SAFETY: `names` is the vector of `HostFiles::list`, which nobody else uses during that call.
    let names = unsafe { &mut *names.cast::<Vec<String>>() };
    // SAFETY: the host passes a string that ends with a NUL byte.
    let name = unsafe { CStr::from_ptr(name) };
    names.extend(name.to_str().map(str::to_owned));
}

impl DefinitionFiles for HostFiles {
    fn version(&self, table: &str) -> Option<Vec<u8>> {
        let mut version = vec![0; 64];
        let name = c_text(table);
        // SAFETY: the host passed this context for its own functions; name and buffer are valid
        // during the call.
        let len = unsafe {
            (self.0.version)(
                self.0.context,
                name.as_ptr(),
                version.as_mut_ptr(),
                version.len(),
            )
        };
        version.truncate(usize::try_from(len).ok()?);
        Some(version)
    }

    fn is_own(&self, table: &str) -> bool {
        let name = c_text(table);
        // SAFETY: the host passed this context for its own functions; the name is valid during the
        // call.
        unsafe { (self.0.is_own)(self.0.context, name.as_ptr()) }
    }

    fn list(&self, database: &str) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        let schema = c_text(database);
        // SAFETY: the host passed this context for its own functions; the name is valid during the
        // call, and the host passes the vector to `collect` only.
        unsafe {
            (self.0.list)(
                self.0.context,
                schema.as_ptr(),
                collect,
                (&raw mut names).cast(),
            );
        }
        names
    }

    fn place(&self, table: &str, copy: &str, entry: &TableEntry) -> bool {
        let (table, copy) = (c_text(table), c_text(copy));
        // SAFETY: the host passed this context for its own functions; names, definition and version
        // are valid during the call.
        unsafe {
            (self.0.place)(
                self.0.context,
                table.as_ptr(),
                copy.as_ptr(),
                entry.frm.as_ptr(),
                entry.frm.len(),
                entry.version.as_ptr(),
                entry.version.len(),
            )
        }
    }

    fn place_partitions(&self, table: &str, partitions: &[&str]) {
        let table = c_text(table);
        let owned: Vec<CString> = partitions.iter().map(|name| c_text(name)).collect();
        let names: Vec<*const c_char> = owned.iter().map(|name| name.as_ptr()).collect();
        // SAFETY: the host passed this context for its own functions; the names are valid during
        // the call.
        unsafe {
            (self.0.place_partitions)(self.0.context, table.as_ptr(), names.as_ptr(), names.len());
        }
    }

    fn remove(&self, copy: &str) {
        let copy = c_text(copy);
        // SAFETY: the host passed this context for its own functions; the name is valid during the
        // call.
        unsafe { (self.0.remove)(self.0.context, copy.as_ptr()) }
    }
}

/// Tells the core that the server begins to repeat or undo the DDL that a crash has interrupted.
/// Until `firn_end_ddl_recovery`, drops and renames check no foreign keys, and a full disk does not
/// prevent them.
///
/// # Safety
/// `db` must be open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_begin_ddl_recovery(db: *const firn_db) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { firn_db::get(db) }?.catalog().begin_ddl_recovery();
        Ok(())
    })
}

/// Handles the tables that interrupted DDL has left over. Call this after the server has repeated
/// or undone the DDL that it knows of. A copy that is the only table with its rows gets its name
/// back; other copies are dropped.
///
/// # Safety
/// `db` must be open; `files` must be valid, and its functions must be callable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_end_ddl_recovery(
    db: *const firn_db,
    files: *const firn_definition_files,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the pointer is NULL, or the functions are valid during the call.
        let (db, files) = unsafe { (firn_db::get(db)?, files.as_ref()) };
        let files = files.ok_or_else(|| Error::invalid("no definition files"))?;
        let mut report = |copy: &str, fate: &LeftoverFate| {
            let (number, text) = match fate {
                LeftoverFate::Dropped => (FIRN_LEFTOVER_DROPPED, ""),
                LeftoverFate::Restored(name) => (FIRN_LEFTOVER_RESTORED, name.as_str()),
                LeftoverFate::Kept(why) => (FIRN_LEFTOVER_KEPT, why.as_str()),
            };
            let (copy, text) = (c_text(copy), c_text(text));
            // SAFETY: the host passed this context for its own functions; the texts are valid
            // during the call.
            unsafe { (files.report)(files.context, copy.as_ptr(), number, text.as_ptr()) }
        };
        db.catalog()
            .end_ddl_recovery(&HostFiles(*files), &mut report);
        Ok(())
    })
}
