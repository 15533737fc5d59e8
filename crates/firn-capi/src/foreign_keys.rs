//! Foreign keys: their definitions as they cross the C ABI, and questions about them.

use crate::database::firn_db;
use crate::error::{CallOutcome, firn_status, guard, guard_value};
use crate::index_change::firn_index_change;
use crate::pointers::{c_str, name};
use crate::table::firn_table;
use firn::base::Error;
use firn::catalog::{
    ForeignKey, ForeignKeyColumn, ForeignKeyRequest, NewForeignKey, ReferentialAction, TableEntry,
};
use std::ffi::{CString, c_char, c_void};

/// RESTRICT, or no action given: the change is refused.
pub const FIRN_ACTION_RESTRICT: u8 = 0;
/// NO ACTION: the change is refused.
pub const FIRN_ACTION_NONE: u8 = 1;
/// CASCADE.
pub const FIRN_ACTION_CASCADE: u8 = 2;
/// SET NULL.
pub const FIRN_ACTION_SET_NULL: u8 = 3;

/// A foreign key to add.
#[repr(C)]
pub struct firn_new_foreign_key {
    /// Its name; NULL to let the core choose one.
    pub name: *const c_char,
    /// Its name or columns, for messages.
    pub label: *const c_char,
    /// Names of its columns.
    pub columns: *const *const c_char,
    /// For each column: the largest number of characters that it takes; 0 if it is no text.
    pub chars: *const u32,
    /// Names of the referenced columns.
    pub parent_columns: *const *const c_char,
    /// How many columns.
    pub column_count: u32,
    /// The referenced table, `database/table`, encoded as in file names.
    pub parent: *const c_char,
    /// The referenced table as SQL names it, for messages.
    pub parent_label: *const c_char,
    /// `FIRN_ACTION_…`.
    pub on_delete: u8,
    /// `FIRN_ACTION_…`.
    pub on_update: u8,
    /// The table to replace has the same foreign key.
    pub inherited: bool,
    /// Whether a stored generated column is computed from one of the foreign key's columns.
    pub on_generated_base: bool,
}

/// The foreign keys of a statement.
#[repr(C)]
pub struct firn_foreign_key_request {
    /// The foreign keys to add.
    pub added: *const firn_new_foreign_key,
    /// Number of foreign keys to add.
    pub added_count: u32,
    /// Names of the foreign keys to drop.
    pub dropped: *const *const c_char,
    /// Number of foreign keys to drop.
    pub dropped_count: u32,
    /// The statement is an ALTER.
    pub alters: bool,
    /// The session checks foreign keys.
    pub checks: bool,
    /// The session's mode is strict.
    pub strict: bool,
    /// The table as SQL names it, for messages.
    pub table_label: *const c_char,
    /// The table's own name as SQL has it.
    pub table_text: *const c_char,
    /// The table that the new one replaces, `database/table`; NULL if it replaces none.
    pub replaces: *const c_char,
}

/// A foreign key. Strings are valid during the callback.
#[repr(C)]
pub struct firn_foreign_key_info {
    /// The referencing table, `database/table`.
    pub table: *const c_char,
    /// Its name.
    pub name: *const c_char,
    /// The referenced table, `database/table`.
    pub parent: *const c_char,
    /// Name of the referenced index; NULL if there is none.
    pub parent_index: *const c_char,
    /// Names of the columns.
    pub columns: *const *const c_char,
    /// Names of the referenced columns.
    pub parent_columns: *const *const c_char,
    /// For each column: whether it may be NULL.
    pub nullable: *const bool,
    /// For each referenced column: whether it may be NULL.
    pub parent_nullable: *const bool,
    /// How many columns.
    pub column_count: u32,
    /// `FIRN_ACTION_…`.
    pub on_delete: u8,
    /// `FIRN_ACTION_…`.
    pub on_update: u8,
    /// Whether a cascade may update the referenced columns, because a foreign key of the referenced
    /// table contains them. If so, even a statement that only deletes rows may update a referenced
    /// row, and `on_update` then changes the rows that refer to it.
    pub parent_follows: bool,
}

fn action(number: u8) -> Result<ReferentialAction, Error> {
    ReferentialAction::from_number(number)
        .ok_or_else(|| Error::invalid(format_args!("referential action {number}")))
}

/// # Safety
/// `first` must point to `count` items, if there are any.
unsafe fn list<'a, T>(first: *const T, count: u32) -> &'a [T] {
    if count == 0 || first.is_null() {
        return &[];
    }
    // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
    unsafe { std::slice::from_raw_parts(first, count as usize) }
}

/// # Safety
/// The pointers of `key` must be valid as their descriptions say.
unsafe fn new_foreign_key(key: &firn_new_foreign_key) -> Result<NewForeignKey, CallOutcome> {
    // SAFETY: the definition and all that it points to stay valid during the call.
    unsafe {
        let names = list(key.columns, key.column_count).iter();
        let referenced = list(key.parent_columns, key.column_count).iter();
        let chars = list(key.chars, key.column_count).iter();
        let columns = names.zip(referenced).zip(chars);
        let columns = columns.map(|((column, referenced), chars)| {
            Ok(ForeignKeyColumn {
                name: name(*column)?.to_owned(),
                referenced: name(*referenced)?.to_owned(),
                chars: *chars,
            })
        });
        Ok(NewForeignKey {
            name: c_str(key.name)?.map(str::to_owned),
            label: name(key.label)?.to_owned(),
            columns: columns.collect::<Result<_, CallOutcome>>()?,
            parent: name(key.parent)?.to_owned(),
            parent_label: name(key.parent_label)?.to_owned(),
            on_delete: action(key.on_delete)?,
            on_update: action(key.on_update)?,
            inherited: key.inherited,
            on_generated_base: key.on_generated_base,
        })
    }
}

/// Converts the foreign key request at `request`. NULL becomes an empty request.
///
/// # Safety
/// `request` must be NULL, or its pointers must be valid as their descriptions say.
pub(crate) unsafe fn foreign_key_request(
    request: *const firn_foreign_key_request,
) -> Result<ForeignKeyRequest, CallOutcome> {
    // SAFETY: the pointer is NULL, or a request that stays valid during the call, with all that it
    // points to.
    unsafe {
        let Some(request) = request.as_ref() else {
            return Ok(ForeignKeyRequest::default());
        };
        let added = list(request.added, request.added_count).iter();
        let dropped = list(request.dropped, request.dropped_count).iter();
        let dropped = dropped.map(|one| Ok(name(*one)?.to_owned()));
        Ok(ForeignKeyRequest {
            added: added
                .map(|key| new_foreign_key(key))
                .collect::<Result<_, CallOutcome>>()?,
            dropped: dropped.collect::<Result<_, CallOutcome>>()?,
            operation: if request.alters { "Alter " } else { "Create " },
            table_label: name(request.table_label)?.to_owned(),
            table_text: name(request.table_text)?.to_owned(),
            replaces: c_str(request.replaces)?.map(str::to_owned),
            checks: request.checks,
            strict: request.strict,
        })
    }
}

/// Makes the commit of an index change also add and drop foreign keys. `FIRN_FOREIGN_KEY` if one of
/// them is not allowed, or if the change drops an index that a foreign key needs.
///
/// # Safety
/// The change must be live; `request` must be valid as its description says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_index_change_foreign_keys(
    change: *mut firn_index_change,
    request: *const firn_foreign_key_request,
) -> firn_status {
    guard(|| {
        // SAFETY: the pointer is NULL or a live handle that this thread alone uses, so the borrow
        // is unique.
        let change = unsafe { change.as_mut() }.ok_or_else(|| Error::invalid("no change"))?;
        // SAFETY: the request and all that it points to stay valid during the call.
        let request = unsafe { foreign_key_request(request) }?;
        Ok(change.build().set_foreign_keys(request)?)
    })
}

fn strings(texts: &[&str]) -> Vec<CString> {
    let texts = texts.iter().map(|text| CString::new(*text));
    texts.map(Result::unwrap_or_default).collect()
}

/// Calls `each` with every foreign key of the table, or, with `referencing`, with every one that
/// refers to it.
///
/// # Safety
/// The pointers must be valid; `each` must not call the core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_list_foreign_keys(
    db: *const firn_db,
    table_name: *const c_char,
    referencing: bool,
    each: unsafe extern "C" fn(context: *mut c_void, key: *const firn_foreign_key_info),
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle; the strings end with a NUL byte and stay valid during the call.
        let (db, table_name) = unsafe { (firn_db::get(db)?, name(table_name)?) };
        let catalog = db.catalog();
        let keys = match (referencing, catalog.table_or_swapped(table_name)) {
            (true, _) => catalog.referencing(table_name),
            (false, None) => Vec::new(),
            (false, Some((entry, _))) => {
                let keys = entry.foreign_keys.iter();
                keys.map(|key| (entry.clone(), key.clone())).collect()
            }
        };
        for (child, key) in keys {
            let parent = catalog.table_or_swapped(&key.parent);
            report(
                &child,
                &key,
                parent.as_ref().map(|(entry, _)| &**entry),
                |info| {
                    // SAFETY: the host keeps callback and context valid during the call.
                    unsafe { each(context, info) }
                },
            );
        }
        Ok(())
    })
}

fn report(
    child: &TableEntry,
    key: &ForeignKey,
    parent: Option<&TableEntry>,
    each: impl FnOnce(*const firn_foreign_key_info),
) {
    let (names, referenced) = (key.column_names(), key.parent_column_names());
    let parent_columns = referenced.clone();
    let number = child.schema.leading_index(&names, None);
    let like = number.map(|number| (&child.schema, number));
    let parent_index = parent.and_then(|parent| {
        let number = parent.schema.leading_index(&referenced, like)?;
        CString::new(parent.schema.indexes[number].name.as_str()).ok()
    });
    let nullable = |entry: Option<&TableEntry>, name: &str| {
        let schema = &entry?.schema;
        let column = &schema.columns[schema.column_called(name)?];
        Some(column.column.null.is_some())
    };
    let own: Vec<bool> = names
        .iter()
        .map(|name| nullable(Some(child), name).unwrap_or(false))
        .collect();
    let others: Vec<bool> = referenced
        .iter()
        .map(|name| nullable(parent, name).unwrap_or(false))
        .collect();
    let texts = strings(&[&child.name, &key.name, &key.parent]);
    let (names, referenced) = (strings(&names), strings(&referenced));
    let names: Vec<_> = names.iter().map(|name| name.as_ptr()).collect();
    let referenced: Vec<_> = referenced.iter().map(|name| name.as_ptr()).collect();
    let info = firn_foreign_key_info {
        table: texts[0].as_ptr(),
        name: texts[1].as_ptr(),
        parent: texts[2].as_ptr(),
        parent_index: parent_index
            .as_ref()
            .map_or(std::ptr::null(), |name| name.as_ptr()),
        columns: names.as_ptr(),
        parent_columns: referenced.as_ptr(),
        nullable: own.as_ptr(),
        parent_nullable: others.as_ptr(),
        column_count: names.len() as u32,
        on_delete: key.on_delete as u8,
        on_update: key.on_update as u8,
        parent_follows: parent.is_some_and(|parent| parent.cascades_change(&parent_columns)),
    };
    each(&raw const info);
}

/// Whether a foreign key refers to the table. It takes constant time.
///
/// # Safety
/// The table must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_is_referenced(table: *const firn_table) -> bool {
    guard_value(false, || {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { firn_table::get(table) }.is_ok_and(|table| table.is_referenced())
    })
}

/// Whether the table has a foreign key that refers to the table itself and that the core checks:
/// one that an ALTER TABLE copies from the table to replace does not count, because its rows have
/// been checked already.
///
/// # Safety
/// The table must be live.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_refers_to_itself(table: *const firn_table) -> bool {
    guard_value(false, || {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        unsafe { firn_table::get(table) }.is_ok_and(|table| table.refers_to_itself())
    })
}
