//! Reading rows through a cursor.

use crate::cursor::{cursor_mut, firn_cursor, key_image, seek_mode};
use crate::error::{firn_status, guard};
use crate::session::session_mut;
use firn::base::Error;
use firn::table::Cursor;
use firn::txn::Transaction;
use firn_status::{FIRN_END, FIRN_NO_ROW};

/// Runs a move of the cursor. Returns the status `nothing` if the move finds no row.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length.
unsafe fn read(
    cursor: *mut firn_cursor,
    record: *mut u8,
    nothing: firn_status,
    f: impl FnOnce(&mut Cursor, &mut Transaction, &mut [u8]) -> Result<bool, Error>,
) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(cursor.session) }?;
        if record.is_null() {
            return Err(Error::invalid("no record buffer").into());
        }
        // SAFETY: the buffer has the table's record length and stays valid during the call.
        let record = unsafe { std::slice::from_raw_parts_mut(record, cursor.record_len) };
        let txn = session.transaction_in(cursor.ephemeral.as_ref());
        match f(&mut cursor.cursor, txn, record)? {
            true => Ok(()),
            false => Err(nothing.into()),
        }
    })
}

/// Moves to the entry that the key image and `find_flag` (the server's `ha_rkey_function`) choose,
/// and reads its row. A NULL key means the first entry.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length; the key image must have the length given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_seek(
    cursor: *mut firn_cursor,
    key: *const u8,
    key_len: u32,
    find_flag: u32,
    record: *mut u8,
) -> firn_status {
    // SAFETY: the caller promises what `read` requires.
    unsafe {
        read(
            cursor,
            record,
            FIRN_NO_ROW,
            |cursor, txn, record| match key_image(key, key_len) {
                Some(key) => cursor.seek(txn, key, seek_mode(find_flag)?, record),
                None => cursor.first(txn, record),
            },
        )
    }
}

/// Moves the cursor to the first entry of its index and reads the row of that entry.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_first(
    cursor: *mut firn_cursor,
    record: *mut u8,
) -> firn_status {
    // SAFETY: the caller promises what `read` requires.
    unsafe { read(cursor, record, FIRN_END, Cursor::first) }
}

/// Moves the cursor to the last entry of its index and reads the row of that entry.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_last(
    cursor: *mut firn_cursor,
    record: *mut u8,
) -> firn_status {
    // SAFETY: the caller promises what `read` requires.
    unsafe { read(cursor, record, FIRN_END, Cursor::last) }
}

/// Reads the row of the next entry.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_next(
    cursor: *mut firn_cursor,
    record: *mut u8,
) -> firn_status {
    // SAFETY: the pointer is NULL or a live handle that this thread alone uses, so the borrow is
    // unique.
    let plain = unsafe { cursor.as_mut() }.filter(|cursor| cursor.cursor.can_skip_keys());
    if let Some(plain) = plain
        && !record.is_null()
    {
        // SAFETY: the buffer has the table's record length and stays valid during the call.
        let record = unsafe { std::slice::from_raw_parts_mut(record, plain.record_len) };
        return guard(|| Ok(plain.cursor.next_without_key(record)?));
    }
    // SAFETY: the caller promises what `read` requires.
    unsafe { read(cursor, record, FIRN_END, Cursor::next) }
}

/// Reads the row of the previous entry.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_prev(
    cursor: *mut firn_cursor,
    record: *mut u8,
) -> firn_status {
    // SAFETY: the caller promises what `read` requires.
    unsafe { read(cursor, record, FIRN_END, Cursor::prev) }
}

/// Reads the row of the next entry if its key starts with the key image.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length; the key image must have the length given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_next_same(
    cursor: *mut firn_cursor,
    key: *const u8,
    key_len: u32,
    record: *mut u8,
) -> firn_status {
    // SAFETY: the caller promises what `read` requires.
    unsafe {
        read(
            cursor,
            record,
            FIRN_END,
            |cursor, txn, record| match key_image(key, key_len) {
                Some(key) => cursor.next_same(txn, key, record),
                None => cursor.next(txn, record),
            },
        )
    }
}

/// Reads the row that has this key in a unique index, without a scan. The key image has all parts.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length; the key image must have the length given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_get(
    cursor: *mut firn_cursor,
    key: *const u8,
    key_len: u32,
    record: *mut u8,
) -> firn_status {
    // SAFETY: the caller promises what `read` requires.
    unsafe {
        read(
            cursor,
            record,
            FIRN_NO_ROW,
            |cursor, txn, record| match key_image(key, key_len) {
                Some(key) => cursor.get(txn, key, record),
                None => Err(Error::invalid("no key")),
            },
        )
    }
}

/// Reads the row that a row reference identifies. The reference is the key image of the primary
/// key, or the eight bytes of `firn_cursor_ref` if the primary key is hidden.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; `record` must have the
/// table's record length; the key image must have the length given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_get_ref(
    cursor: *mut firn_cursor,
    reference: *const u8,
    len: u32,
    record: *mut u8,
) -> firn_status {
    // SAFETY: the caller promises what `read` requires.
    unsafe {
        read(
            cursor,
            record,
            FIRN_NO_ROW,
            |cursor, txn, record| match key_image(reference, len) {
                Some(key) => cursor.get_row(txn, key, record),
                None => Err(Error::invalid("no row reference")),
            },
        )
    }
}
