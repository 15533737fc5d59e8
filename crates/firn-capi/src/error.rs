//! Status codes, the last error of a thread, and the guard that lets no panic pass.

use firn::base::{Error, ErrorKind, ForeignKeyViolation};
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Result of a call. The numbers never change.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum firn_status {
    /// Done.
    FIRN_OK = 0,
    /// No row has the key.
    FIRN_NO_ROW = 1,
    /// The scan is at its end.
    FIRN_END = 2,
    /// A unique index has the key already.
    FIRN_DUPLICATE = 3,
    /// The update changes nothing.
    FIRN_SAME_ROW = 4,
    /// A row lock was not granted in time.
    FIRN_LOCK_TIMEOUT = 10,
    /// Another transaction has locked the row, and the caller asked not to wait.
    FIRN_LOCK_NOT_AVAILABLE = 11,
    /// This transaction was chosen to end a deadlock: roll it back.
    FIRN_DEADLOCK = 12,
    /// The session was killed.
    FIRN_INTERRUPTED = 13,
    /// The snapshot is older than the index.
    FIRN_TABLE_DEF_CHANGED = 15,
    /// The stored definition has other bytes for rows or keys than the given definition.
    FIRN_DEFINITION_DIFFERS = 16,
    /// A callback of the host failed, and has told the session why.
    FIRN_HOST_FAILED = 17,
    /// No such table.
    FIRN_NO_TABLE = 20,
    /// The table exists.
    FIRN_TABLE_EXISTS = 21,
    /// A row or a definition breaks a rule of foreign keys: see `firn_last_foreign_key`.
    FIRN_FOREIGN_KEY = 24,
    /// No auto-increment value is left.
    FIRN_AUTOINC_EXHAUSTED = 22,
    /// A row or an entry of an index is longer than files can hold.
    FIRN_TOO_LARGE = 23,
    /// Stored bytes are damaged.
    FIRN_CORRUPTION = 30,
    /// The operating system refused an operation.
    FIRN_IO = 31,
    /// The disk is full.
    FIRN_NO_SPACE = 32,
    /// Writes are refused until a restart.
    FIRN_POISONED = 33,
    /// The caller broke the contract of the call.
    FIRN_INVALID = 40,
    /// The feature or the format version is not supported.
    FIRN_UNSUPPORTED = 41,
    /// Another process uses the directory.
    FIRN_BUSY = 42,
    /// The engine is closing.
    FIRN_SHUTDOWN = 43,
    /// A bug: the call panicked.
    FIRN_PANIC = 44,
}

use firn_status::*;

thread_local! {
    static LAST_ERROR: RefCell<CString> = RefCell::default();
    static LAST_FOREIGN_KEY: RefCell<LastForeignKey> = RefCell::default();
}

/// A result other than success: an expected one, such as the end of a scan, or an error.
pub(crate) enum CallOutcome {
    /// A status without a message.
    Status(firn_status),
    /// An error with a message.
    Error(Error),
}

impl From<Error> for CallOutcome {
    fn from(error: Error) -> Self {
        Self::Error(error)
    }
}

impl From<firn_status> for CallOutcome {
    fn from(status: firn_status) -> Self {
        Self::Status(status)
    }
}

fn status_of(error: &Error) -> firn_status {
    match error.kind() {
        ErrorKind::Corruption { .. } => FIRN_CORRUPTION,
        ErrorKind::Io { .. } | ErrorKind::NoDescriptor | ErrorKind::Unreachable => FIRN_IO,
        ErrorKind::NoSpace => FIRN_NO_SPACE,
        ErrorKind::Poisoned => FIRN_POISONED,
        ErrorKind::LockTimeout => FIRN_LOCK_TIMEOUT,
        ErrorKind::LockNotAvailable => FIRN_LOCK_NOT_AVAILABLE,
        ErrorKind::Deadlock => FIRN_DEADLOCK,
        ErrorKind::Interrupted => FIRN_INTERRUPTED,
        ErrorKind::TableDefChanged => FIRN_TABLE_DEF_CHANGED,
        ErrorKind::DefinitionDiffers => FIRN_DEFINITION_DIFFERS,
        ErrorKind::HostFailed => FIRN_HOST_FAILED,
        ErrorKind::ForeignKey(_) => FIRN_FOREIGN_KEY,
        ErrorKind::NotFound => FIRN_NO_TABLE,
        ErrorKind::AlreadyExists => FIRN_TABLE_EXISTS,
        ErrorKind::InvalidArgument => FIRN_INVALID,
        ErrorKind::TooLarge => FIRN_TOO_LARGE,
        ErrorKind::Unsupported => FIRN_UNSUPPORTED,
        ErrorKind::Busy => FIRN_BUSY,
        ErrorKind::ShutDown => FIRN_SHUTDOWN,
    }
}

/// The foreign key that an error was about.
#[derive(Default)]
struct LastForeignKey {
    table: CString,
    name: CString,
    text: CString,
    violation: firn_violation,
}

/// The rule of foreign keys that was broken. The numbers never change.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum firn_violation {
    /// Another row refers to the row that the statement deletes or changes.
    #[default]
    FIRN_ROW_IS_REFERENCED = 0,
    /// No row has the referenced value.
    FIRN_NO_REFERENCED_ROW = 1,
    /// A cascade passes through more foreign keys, one after the other, than is allowed.
    FIRN_CASCADE_TOO_DEEP = 2,
    /// A cascade would make two rows equal in a unique index. [`firn_last_foreign_key`] returns the
    /// name of that index in place of a foreign key's name.
    FIRN_DUPLICATE_IN_CHILD = 3,
    /// Another table refers to the table to drop.
    FIRN_TABLE_IS_REFERENCED = 4,
    /// Another foreign key of the database has the name.
    FIRN_FOREIGN_KEY_NAME_TAKEN = 5,
    /// A foreign key needs the index that the statement drops. [`firn_last_foreign_key`] returns
    /// the name of that index in place of a foreign key's name.
    FIRN_INDEX_IS_NEEDED = 6,
    /// The table has no index for the foreign key.
    FIRN_NO_FOREIGN_KEY_INDEX = 7,
    /// The referenced table has no index for the foreign key.
    FIRN_NO_REFERENCED_INDEX = 8,
    /// The referenced table does not exist.
    FIRN_NO_REFERENCED_TABLE = 9,
    /// SET NULL of a column that is NOT NULL.
    FIRN_FOREIGN_KEY_NOT_NULL = 10,
    /// The definition is not allowed for another reason.
    FIRN_FOREIGN_KEY_DEFINITION = 11,
    /// The statement gives two new foreign keys the name.
    FIRN_FOREIGN_KEY_NAME_GIVEN_TWICE = 12,
}

fn number_of(violation: ForeignKeyViolation) -> firn_violation {
    use firn_violation::*;
    match violation {
        ForeignKeyViolation::RowIsReferenced => FIRN_ROW_IS_REFERENCED,
        ForeignKeyViolation::NoReferencedRow => FIRN_NO_REFERENCED_ROW,
        ForeignKeyViolation::TooDeep => FIRN_CASCADE_TOO_DEEP,
        ForeignKeyViolation::DuplicateInChild => FIRN_DUPLICATE_IN_CHILD,
        ForeignKeyViolation::TableIsReferenced => FIRN_TABLE_IS_REFERENCED,
        ForeignKeyViolation::NameIsTaken => FIRN_FOREIGN_KEY_NAME_TAKEN,
        ForeignKeyViolation::NameGivenTwice => FIRN_FOREIGN_KEY_NAME_GIVEN_TWICE,
        ForeignKeyViolation::IndexIsNeeded => FIRN_INDEX_IS_NEEDED,
        ForeignKeyViolation::NoIndex => FIRN_NO_FOREIGN_KEY_INDEX,
        ForeignKeyViolation::NoReferencedIndex => FIRN_NO_REFERENCED_INDEX,
        ForeignKeyViolation::NoReferencedTable => FIRN_NO_REFERENCED_TABLE,
        ForeignKeyViolation::NotNull => FIRN_FOREIGN_KEY_NOT_NULL,
        ForeignKeyViolation::Definition => FIRN_FOREIGN_KEY_DEFINITION,
    }
}

fn remember_foreign_key(error: &Error) {
    if let ErrorKind::ForeignKey(broken) = error.kind() {
        let last = LastForeignKey {
            table: CString::new(broken.table.as_str()).unwrap_or_default(),
            name: CString::new(broken.name.as_str()).unwrap_or_default(),
            text: CString::new(error.message()).unwrap_or_default(),
            violation: number_of(broken.violation),
        };
        LAST_FOREIGN_KEY.set(last);
    }
}

/// Returns the rule that the last `FIRN_FOREIGN_KEY` of this thread says is broken, one of
/// `firn_violation`. Sets `table` to the referencing table, as `database/table`, `name` to the name
/// of the foreign key (or of an index, see `firn_violation`), and `text` to the error's message
/// without a prefix. The strings are valid until the next call on this thread.
///
/// # Safety
/// The pointers must be writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_last_foreign_key(
    table: *mut *const c_char,
    name: *mut *const c_char,
    text: *mut *const c_char,
) -> firn_violation {
    LAST_FOREIGN_KEY.with_borrow(|last| {
        // SAFETY: the out pointers are valid for writes, and only this call refers to their
        // targets.
        unsafe {
            table.write(last.table.as_ptr());
            name.write(last.name.as_ptr());
            text.write(last.text.as_ptr());
        }
        last.violation
    })
}

fn remember(message: &str) {
    let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
    LAST_ERROR.with(|last| *last.borrow_mut() = message);
}

/// Runs a call. Turns an error or a panic into a status, and keeps the message as the thread's last
/// error.
pub(crate) fn guard(f: impl FnOnce() -> Result<(), CallOutcome>) -> firn_status {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => FIRN_OK,
        Ok(Err(CallOutcome::Status(status))) => status,
        Ok(Err(CallOutcome::Error(error))) => {
            remember(&error.to_string());
            remember_foreign_key(&error);
            status_of(&error)
        }
        Err(panic) => {
            let words = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            remember(&format!("bug: panic: {words}"));
            FIRN_PANIC
        }
    }
}

/// As [`guard`], for calls that return a value. After a panic it returns `fallback`.
pub(crate) fn guard_value<T>(fallback: T, f: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(f)).unwrap_or(fallback)
}

/// Message of the last call on this thread that failed; "" if there was none. Valid until the next
/// call on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn firn_last_error() -> *const c_char {
    LAST_ERROR.with(|last| last.borrow().as_ptr())
}
