//! Cursors: reading rows into the server's record buffers.

use crate::error::{CallOutcome, firn_status, guard, guard_value};
use crate::pointers::{boxed, unbox};
use crate::session::{firn_session, session_mut};
use crate::table::firn_table;
use firn::base::Error;
use firn::base::memory_tracker::MemoryCharge;
use firn::table::{Cursor, KeyImage, LockWait, PartialColumn, ReadMode, SeekMode, Verdict};
use firn::temporary::EphemeralDb;
use firn::txn::LockMode;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

/// A position in one index of a table. It belongs to one thread at a time.
pub struct firn_cursor {
    pub(crate) cursor: Cursor,
    pub(crate) session: *mut firn_session,
    pub(crate) record_len: usize,
    /// The ephemeral database of the cursor's table; `None` unless the table is temporary.
    pub(crate) ephemeral: Option<Arc<EphemeralDb>>,
    /// Counts what the cursor keeps between statements. Values and blocks, which it has only during
    /// a statement, are no part of it: a charge that rose and fell with each statement would shrink
    /// and grow the caches.
    _memory: MemoryCharge,
}

/// An estimate of the bytes that a cursor keeps beside its structure, for keys, bounds and decode
/// plans. Bytes beyond the estimate are part of the memory that is not counted.
const CURSOR_PIECES: u64 = 1 << 10;

/// How a cursor reads.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum firn_read_mode {
    /// The transaction's snapshot, without locks.
    FIRN_READ_SNAPSHOT = 0,
    /// The latest committed rows, each locked shared. In an optimistic table this mode and the next
    /// one read the transaction's snapshot and lock nothing; the commit validates the rows that
    /// they return.
    FIRN_READ_LOCK_SHARED = 1,
    /// The latest committed rows, each locked exclusively.
    FIRN_READ_LOCK_EXCLUSIVE = 2,
}

/// Behaviour of a locking read at a row that another transaction has locked.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum firn_wait {
    /// Waits as long as the session's timeout.
    FIRN_WAIT = 0,
    /// Fails at once with `FIRN_LOCK_NOT_AVAILABLE`.
    FIRN_NOWAIT = 1,
    /// Skips the row.
    FIRN_SKIP_LOCKED = 2,
}

/// Number that stands for the clustered index of a table whose primary key is hidden.
pub const FIRN_PRIMARY: u32 = u32::MAX;

impl From<firn_read_mode> for ReadMode {
    fn from(mode: firn_read_mode) -> Self {
        match mode {
            firn_read_mode::FIRN_READ_SNAPSHOT => ReadMode::Snapshot,
            firn_read_mode::FIRN_READ_LOCK_SHARED => ReadMode::Locking(LockMode::Shared),
            firn_read_mode::FIRN_READ_LOCK_EXCLUSIVE => ReadMode::Locking(LockMode::Exclusive),
        }
    }
}

impl From<firn_wait> for LockWait {
    fn from(wait: firn_wait) -> Self {
        match wait {
            firn_wait::FIRN_WAIT => LockWait::Wait,
            firn_wait::FIRN_NOWAIT => LockWait::Fail,
            firn_wait::FIRN_SKIP_LOCKED => LockWait::Skip,
        }
    }
}

fn index_number(index: u32) -> Option<usize> {
    (index != FIRN_PRIMARY).then_some(index as usize)
}

/// # Safety
/// `cursor` must be live and used by this thread alone.
pub(crate) unsafe fn cursor_mut<'a>(
    cursor: *mut firn_cursor,
) -> Result<&'a mut firn_cursor, CallOutcome> {
    // SAFETY: the pointer is NULL or a live handle that this thread alone uses, so the borrow is
    // unique.
    unsafe { cursor.as_mut() }.ok_or_else(|| Error::invalid("no cursor").into())
}

/// Opens a cursor on the index of `table` with the number `index`. `FIRN_PRIMARY` is the number of
/// the clustered index if the primary key is hidden.
///
/// # Safety
/// The handles must be live, `out` must be writable, and `session` must stay valid until the cursor
/// is closed, parked or reset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_open(
    session: *mut firn_session,
    table: *const firn_table,
    index: u32,
    mode: firn_read_mode,
    wait: firn_wait,
    out: *mut *mut firn_cursor,
) -> firn_status {
    guard(|| {
        // SAFETY: the handle is live: the host frees a handle only after the last call with that
        // handle.
        let whole = unsafe { firn_table::whole(table) }?;
        let table = &whole.table;
        let mut cursor = Cursor::new(Arc::clone(table));
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let transaction = unsafe { &session_mut(session)?.transaction };
        let mode = table.read_mode(transaction, mode.into());
        cursor.reset(index_number(index), mode, wait.into())?;
        let cursor = firn_cursor {
            cursor,
            session,
            record_len: table.record_len(),
            ephemeral: whole.ephemeral.clone(),
            _memory: whole
                .db
                .charge_session(size_of::<firn_cursor>() as u64 + CURSOR_PIECES),
        };
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe { out.write(boxed(cursor)) };
        Ok(())
    })
}

/// Points a cursor at another index, session or mode, so that no new cursor need be allocated.
///
/// # Safety
/// The requirements are those of `firn_cursor_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_reset(
    cursor: *mut firn_cursor,
    session: *mut firn_session,
    index: u32,
    mode: firn_read_mode,
    wait: firn_wait,
) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        cursor.session = session;
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(session) }?;
        let mode = cursor.cursor.read_mode(&session.transaction, mode.into());
        Ok(cursor
            .cursor
            .reset(index_number(index), mode, wait.into())?)
    })
}

/// Parks a cursor at the end of a statement: releases its session, super version and blocks. The
/// cursor keeps its last key, and the blobs that the last record points to.
///
/// # Safety
/// `cursor` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_park(cursor: *mut firn_cursor) {
    guard_value((), || {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        if let Ok(cursor) = unsafe { cursor_mut(cursor) } {
            cursor.session = std::ptr::null_mut();
            cursor.cursor.park();
        }
    });
}

/// Frees the memory of long values that a cursor keeps, at the end of a statement. The blobs that
/// the last record points to become invalid.
///
/// # Safety
/// `cursor` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_trim(cursor: *mut firn_cursor) {
    guard_value((), || {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        if let Ok(cursor) = unsafe { cursor_mut(cursor) } {
            cursor.cursor.trim();
        }
    });
}

/// Continues with a parked cursor in another statement: the next move continues from the last key,
/// at the read point of the new statement.
///
/// # Safety
/// The requirements are those of `firn_cursor_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_resume(
    cursor: *mut firn_cursor,
    session: *mut firn_session,
    mode: firn_read_mode,
    wait: firn_wait,
) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        cursor.session = session;
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(session) }?;
        let mode = cursor.cursor.read_mode(&session.transaction, mode.into());
        cursor.cursor.resume(mode, wait.into());
        Ok(())
    })
}

/// Closes a cursor.
///
/// # Safety
/// `cursor` must be NULL or live, and must not be used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_close(cursor: *mut firn_cursor) {
    // SAFETY: the handle came from `boxed`, and the host passes it here once, as its last use.
    guard_value((), || drop(unsafe { unbox(cursor) }));
}

/// The part of a column's value that the statement needs: its first `prefix` bytes. If the value
/// lies out of line, the cursor reads only this part. With `length`, the value in the record has
/// the length of the whole value, and zeros after the prefix.
#[repr(C)]
pub struct firn_partial_column {
    /// Number of the column.
    pub column: u32,
    /// Bytes that are needed from the beginning of the value.
    pub prefix: u64,
    /// Whether the length of the whole value is needed.
    pub length: bool,
}

impl firn_partial_column {
    fn part(&self) -> PartialColumn {
        PartialColumn {
            column: self.column as usize,
            prefix: self.prefix,
            length: self.length,
        }
    }
}

/// Answers of a `firn_condition`.
pub const FIRN_ENTRY_PASSES: c_int = 0;
/// The row of the entry may match.
pub const FIRN_ENTRY_MATCHES: c_int = 1;
/// The session was killed.
pub const FIRN_ENTRY_INTERRUPTED: c_int = 2;

/// A condition over the columns of an index, whose values are in `record`. It returns a
/// `FIRN_ENTRY_…`, and uses neither the cursor nor its session.
pub type firn_condition =
    Option<unsafe extern "C" fn(context: *mut c_void, record: *mut u8) -> c_int>;

/// The condition of a cursor with its context.
struct HostCondition {
    condition: unsafe extern "C" fn(context: *mut c_void, record: *mut u8) -> c_int,
    context: *mut c_void,
}

// SAFETY: only the thread that uses the cursor calls the condition.
unsafe impl Send for HostCondition {}

impl HostCondition {
    fn verdict(&self, record: &mut [u8]) -> Verdict {
        // SAFETY: the host keeps the context until it resets or parks the cursor, which drops this
        // condition. The record buffer is that of the read.
        match unsafe { (self.condition)(self.context, record.as_mut_ptr()) } {
            FIRN_ENTRY_PASSES => Verdict::Pass,
            FIRN_ENTRY_MATCHES => Verdict::Match,
            _ => Verdict::Interrupted,
        }
    }
}

/// Sets a condition on the entries of a secondary index for a read without locks: the cursor passes
/// over entries for which the condition is false. It holds until the cursor is reset or parked.
///
/// # Safety
/// `cursor` must be live and used by this thread alone, and `context` valid until the cursor is
/// reset, parked or closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_condition(
    cursor: *mut firn_cursor,
    condition: firn_condition,
    context: *mut c_void,
) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        let condition = condition.ok_or_else(|| Error::invalid("no condition"))?;
        let host = HostCondition { condition, context };
        let verdict = move |record: &mut [u8]| host.verdict(record);
        Ok(cursor.cursor.set_condition(Box::new(verdict))?)
    })
}

/// Chooses the columns to decode. `bitmap` has bit `i % 8` of byte `i / 8` for column `i`; NULL
/// means all columns. `key_only` decodes the columns of the index and of the primary key from the
/// index entry alone. `parts` names the columns of which the cursor reads only a part if the value
/// lies out of line. The cursor still reads short values whole. It also reads the values of locked
/// rows whole, except BLOBs of which only the length is needed: a statement that neither reads nor
/// writes such a BLOB passes both records to `firn_update` without the BLOB's bytes.
///
/// # Safety
/// `cursor` must be live and used by this thread alone. `bitmap` must be NULL or have a bit for
/// each column; `parts` must have `part_count` elements.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_columns(
    cursor: *mut firn_cursor,
    bitmap: *const u8,
    key_only: bool,
    parts: *const firn_partial_column,
    part_count: u32,
) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        let len = cursor.cursor.column_bitmap_len();
        let bitmap = (!bitmap.is_null())
            // SAFETY: pointer and length describe memory that the host keeps unchanged during the
            // call.
            .then(|| unsafe { std::slice::from_raw_parts(bitmap, len) });
        let parts: Vec<PartialColumn> = match part_count {
            0 => Vec::new(),
            // SAFETY: pointer and length describe memory that the host keeps unchanged during the
            // call.
            count => unsafe { std::slice::from_raw_parts(parts, count as usize) }
                .iter()
                .map(firn_partial_column::part)
                .collect(),
        };
        Ok(cursor.cursor.set_columns(bitmap, key_only, &parts)?)
    })
}

/// Ends forward scans at a key image. `flag` is the server's: with `HA_READ_AFTER_KEY` entries that
/// begin with the image are still read, with `HA_READ_BEFORE_KEY` the scan ends before them. A NULL
/// key removes the end.
///
/// # Safety
/// `cursor` must be live and used by this thread alone; `key` must be NULL or have `key_len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_end_range(
    cursor: *mut firn_cursor,
    key: *const u8,
    key_len: u32,
    flag: u32,
) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        // SAFETY: pointer and length describe a key image that stays unchanged during the call.
        let key = unsafe { key_image(key, key_len) };
        Ok(cursor
            .cursor
            .set_end_range(key, flag == HA_READ_AFTER_KEY)?)
    })
}

/// Takes one exclusive lock that stands for all entries whose keys begin with a key image, and
/// keeps it until the transaction ends. It takes the lock even if there is no such entry. Until the
/// cursor is reset, its scans end with these entries and lock no gaps. A statement calls this
/// before it checks a key that it is about to write, so that the same check of another transaction
/// waits. An image of no bytes stands for the whole index.
///
/// # Safety
/// The cursor and its session must be live and used by this thread alone; the key image must have
/// the length given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_lock_key_prefix(
    cursor: *mut firn_cursor,
    key: *const u8,
    key_len: u32,
) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        // SAFETY: the session is live, only this thread uses it, and no other borrow of it exists.
        let session = unsafe { session_mut(cursor.session) }?;
        // SAFETY: pointer and length describe a key image that stays unchanged during the call.
        let key = unsafe { key_image(key, key_len) }.unwrap_or(KeyImage::image(&[]));
        Ok(cursor.cursor.lock_key_prefix(&session.transaction, key)?)
    })
}

const HA_READ_AFTER_KEY: u32 = 3;

pub(crate) fn seek_mode(find_flag: u32) -> Result<SeekMode, Error> {
    Ok(match find_flag {
        0 => SeekMode::Exact,
        1 => SeekMode::AtOrAfter,
        2 | 7 => SeekMode::LastAtOrBefore,
        3 => SeekMode::After,
        4 => SeekMode::Before,
        5 => SeekMode::Prefix,
        6 => SeekMode::LastWithPrefix,
        other => return Err(Error::invalid(format_args!("find flag {other}"))),
    })
}

/// # Safety
/// `key` must be NULL or have `len` bytes.
pub(crate) unsafe fn key_image<'a>(key: *const u8, len: u32) -> Option<KeyImage<'a>> {
    // SAFETY: pointer and length describe memory that the host keeps unchanged during the call.
    (!key.is_null())
        .then(|| KeyImage::image(unsafe { std::slice::from_raw_parts(key, len as usize) }))
}

/// Writes the eight bytes of the hidden key of the row last read.
///
/// # Safety
/// `cursor` must be live and used by this thread alone; `out` must have room for eight bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_ref(cursor: *mut firn_cursor, out: *mut u8) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        let id = cursor.cursor.hidden_row_id()?;
        // SAFETY: the out pointer is valid for writes, and only this call refers to its target.
        unsafe { std::ptr::copy_nonoverlapping(id.to_be_bytes().as_ptr(), out, 8) };
        Ok(())
    })
}

/// Turns semi-consistent reading on or off. When it is on, a locking scan of the clustered index
/// does not wait at a row that another transaction has locked, but returns the row's last committed
/// version. If that version matches the statement's condition, the caller makes the next move or
/// repeats the seek: this call waits for the lock and returns the row again, locked.
///
/// # Safety
/// `cursor` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_set_semi_consistent(
    cursor: *mut firn_cursor,
    on: bool,
) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        unsafe { cursor_mut(cursor) }?
            .cursor
            .set_semi_consistent(on);
        Ok(())
    })
}

/// Whether the row last read was returned without its lock, by semi-consistent reading.
///
/// # Safety
/// `cursor` must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_was_semi_consistent(cursor: *mut firn_cursor) -> bool {
    guard_value(false, || {
        // SAFETY: the cursor is live and used by this thread alone, so the borrow is unique.
        unsafe { cursor_mut(cursor) }.is_ok_and(|c| c.cursor.was_semi_consistent())
    })
}

/// Releases the lock of the row last read, if reading it took the lock.
///
/// # Safety
/// `cursor` and its session must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_unlock_row(cursor: *mut firn_cursor) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(cursor.session) }?;
        let txn = session.transaction_in(cursor.ephemeral.as_ref());
        cursor.cursor.unlock_row(txn);
        Ok(())
    })
}

/// Removes the row last read from the transaction's validation set, if reading the row has added
/// it. The caller does this when the row does not match the statement's condition: the commit then
/// does not depend on the row. Locks stay.
///
/// # Safety
/// `cursor` and its session must be live and used by this thread alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_cursor_forget_row(cursor: *mut firn_cursor) -> firn_status {
    guard(|| {
        // SAFETY: the cursor is NULL or live, and this thread alone uses it, so the borrow is
        // unique.
        let cursor = unsafe { cursor_mut(cursor) }?;
        // SAFETY: the session is live, and this thread alone uses it, so the borrow is unique.
        let session = unsafe { session_mut(cursor.session) }?;
        cursor.cursor.forget_row(&mut session.transaction);
        Ok(())
    })
}
