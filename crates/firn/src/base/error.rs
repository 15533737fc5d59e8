//! Errors: few public kinds, each telling the caller what to do.

use super::foreign_key_error::ForeignKeyError;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The kind of an error, as far as it changes what the caller does next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorKind {
    /// Stored bytes contradict their checksum or format. Other files stay usable.
    Corruption {
        /// File name, relative to the data directory.
        file: String,
        /// Byte offset of the damaged unit (block, record) in the file.
        offset: u64,
    },
    /// The operating system refused an operation.
    Io {
        /// `errno` as the system gave it; 0 if it gave none.
        os_errno: i32,
    },
    /// The device has no room; writes resume once it has.
    NoSpace,
    /// The process or the system has no descriptor or no memory left to open a file. The call had
    /// no effect, and a later one may succeed.
    NoDescriptor,
    /// An earlier write or sync failed: the engine refuses writes until it is reopened.
    Poisoned,
    /// The object store did not answer, or refused the request. Nothing is damaged, and a later
    /// call may succeed.
    Unreachable,
    /// A lock was not granted in time.
    LockTimeout,
    /// Another transaction holds the lock, and the caller asked not to wait.
    LockNotAvailable,
    /// Transactions wait for each other in a cycle. This transaction was chosen as the victim and
    /// must roll back.
    Deadlock,
    /// The caller's session was killed; or background work was given up, because the database
    /// closes.
    Interrupted,
    /// The table's definition is newer than the transaction's snapshot.
    TableDefChanged,
    /// The caller's definition of a table differs from the one by which the table's rows or keys
    /// were encoded.
    DefinitionDiffers,
    /// A callback of the host failed. The host has told its session why.
    HostFailed,
    /// A row or a definition breaks a rule of foreign keys.
    ForeignKey(Box<ForeignKeyError>),
    /// The named object does not exist.
    NotFound,
    /// The named object exists already.
    AlreadyExists,
    /// The caller broke the contract of the call.
    InvalidArgument,
    /// A row or an index entry is longer than files can hold.
    TooLarge,
    /// The feature or format version is not supported.
    Unsupported,
    /// Another process uses the directory.
    Busy,
    /// The call came when the engine was closing, or a bug has stopped it.
    ShutDown,
}

/// How the engine goes on after a failed call on a file on which durability depends: the log, the
/// manifest, or their directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureClass {
    /// The file could not be opened, so nothing was written. The statement that needed the call
    /// fails; all others go on.
    NoEffect,
    /// The device has no room. The engine ignores the bytes that the failed call may have written,
    /// and makes the same write again later.
    Retry,
    /// The call may or may not have reached the device. The engine refuses writes until the
    /// database is opened again.
    Poison,
}

/// An error: its kind, and a message for the log.
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    message: Arc<str>,
}

/// Result with [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// An error of `kind` with `message`.
    pub fn new(kind: ErrorKind, message: impl Into<Arc<str>>) -> Self {
        Self {
            kind,
            message: message.into(),
        }
    }

    /// `Corruption`: stored bytes of `file` at `offset` are damaged.
    pub fn corruption(file: impl Into<String>, offset: u64, message: impl fmt::Display) -> Self {
        Self::new(
            ErrorKind::Corruption {
                file: file.into(),
                offset,
            },
            Arc::<str>::from(message.to_string()),
        )
    }

    /// The error of an I/O operation; `what` describes the operation. `ENOSPC` and `EDQUOT` become
    /// [`ErrorKind::NoSpace`]. `ENFILE` and `EMFILE`, which only calls that open a file return,
    /// become [`ErrorKind::NoDescriptor`]. A missing file becomes [`ErrorKind::NotFound`], and all
    /// other errors become [`ErrorKind::Io`].
    pub fn io(error: &std::io::Error, what: impl fmt::Display) -> Self {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        const ENOSPC: i32 = 28;
        const EDQUOT: i32 = 122;
        let os_errno = error.raw_os_error().unwrap_or(0);
        let kind = match os_errno {
            ENOSPC | EDQUOT => ErrorKind::NoSpace,
            ENFILE | EMFILE => ErrorKind::NoDescriptor,
            _ if error.kind() == std::io::ErrorKind::NotFound => ErrorKind::NotFound,
            _ => ErrorKind::Io { os_errno },
        };
        Self::new(kind, format!("{what}: {error}"))
    }

    /// As [`Self::io`], for the call that opens a file. `ENOMEM` becomes
    /// [`ErrorKind::NoDescriptor`], too: an open that fails with it had no effect, whereas a write
    /// or a sync may have had one.
    pub fn open(error: &std::io::Error, what: impl fmt::Display) -> Self {
        const ENOMEM: i32 = 12;
        match error.raw_os_error() {
            Some(ENOMEM) => Self::new(ErrorKind::NoDescriptor, format!("{what}: {error}")),
            _ => Self::io(error, what),
        }
    }

    /// How the engine goes on if this error comes from the log, the manifest or their directory, on
    /// which durability depends.
    pub fn class(&self) -> FailureClass {
        match self.kind {
            ErrorKind::NoDescriptor => FailureClass::NoEffect,
            ErrorKind::NoSpace => FailureClass::Retry,
            _ => FailureClass::Poison,
        }
    }

    /// `ForeignKey`: a row or a definition breaks a rule of foreign keys.
    pub fn foreign_key(broken: ForeignKeyError, message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::ForeignKey(Box::new(broken)), message.to_string())
    }

    /// `InvalidArgument`: the caller broke the contract of the call.
    pub fn invalid(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::InvalidArgument, message.to_string())
    }

    /// `Unsupported`: the feature or format is not supported.
    pub fn unsupported(message: impl fmt::Display) -> Self {
        Self::new(ErrorKind::Unsupported, message.to_string())
    }

    /// The kind, for decisions.
    pub fn kind(&self) -> &ErrorKind {
        &self.kind
    }

    /// The message, without the kind.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether the object store did not answer, or refused: the error says nothing about the bytes.
    pub fn is_unreachable(&self) -> bool {
        self.kind == ErrorKind::Unreachable
    }

    /// Whether the error says nothing about whether the stored bytes are intact: another version
    /// of Firn, or a later call, may read them. Repair and salvage must not drop them as damaged.
    pub fn leaves_bytes_unknown(&self) -> bool {
        self.is_unsupported() || self.is_unreachable()
    }

    /// Whether the kind is `Corruption`.
    pub fn is_corruption(&self) -> bool {
        matches!(self.kind, ErrorKind::Corruption { .. })
    }

    /// Whether the error is of kind `Unsupported`: the stored bytes are intact, but only a newer
    /// version of Firn can read them. Repair and salvage must not drop them as damaged.
    pub fn is_unsupported(&self) -> bool {
        self.kind == ErrorKind::Unsupported
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            ErrorKind::Corruption { file, offset } => {
                write!(
                    f,
                    "corruption in {file} at offset {offset}: {}",
                    self.message
                )
            }
            kind => write!(f, "{}: {}", kind.words(), self.message),
        }
    }
}

impl std::error::Error for Error {}

impl ErrorKind {
    /// The kind in words.
    pub fn words(&self) -> &'static str {
        match self {
            Self::Corruption { .. } => "corruption",
            Self::Io { .. } => "input/output error",
            Self::NoSpace => "disk full",
            Self::NoDescriptor => "no file can be opened",
            Self::Poisoned => "writes stopped after an earlier failure",
            Self::Unreachable => "object store not available",
            Self::LockTimeout => "lock wait timeout",
            Self::LockNotAvailable => "lock not available",
            Self::Deadlock => "deadlock",
            Self::Interrupted => "interrupted",
            Self::TableDefChanged => "table definition changed",
            Self::DefinitionDiffers => "table definition differs",
            Self::HostFailed => "a callback failed",
            Self::ForeignKey(_) => "foreign key",
            Self::NotFound => "not found",
            Self::AlreadyExists => "already exists",
            Self::InvalidArgument => "invalid argument",
            Self::TooLarge => "too large",
            Self::Unsupported => "unsupported",
            Self::Busy => "in use",
            Self::ShutDown => "shut down",
        }
    }
}

/// For loops of background work: fails with `Interrupted` once `stopping` is set, because the
/// database stops or gives the work up.
///
/// # Errors
/// `Interrupted`.
pub fn check_stopping(stopping: &AtomicBool) -> Result<()> {
    match stopping.load(Ordering::Relaxed) {
        true => Err(Error::new(ErrorKind::Interrupted, "the database stops")),
        false => Ok(()),
    }
}
