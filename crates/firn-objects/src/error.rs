//! Errors of object stores, by what the caller can do.

use std::fmt;
use std::io;

/// Why a request to a store failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorKind {
    /// There is no such object. Trying again does not help.
    Absent,
    /// The store does not allow it: credentials, permissions, quota. Trying again helps once
    /// somebody has changed that.
    Refused,
    /// The store asks for fewer requests. The request had no effect.
    Throttled,
    /// No answer, or that of a store that has failed. The request may have had its effect, or may
    /// have it later.
    Unreachable,
    /// The bytes are not those that were stored or sent.
    Damaged,
    /// The request or the configuration makes no sense.
    Invalid,
}

/// The number of kinds.
pub const KINDS: usize = 6;

impl ErrorKind {
    /// All kinds, in the order of their numbers.
    pub const ALL: [Self; KINDS] = [
        Self::Absent,
        Self::Refused,
        Self::Throttled,
        Self::Unreachable,
        Self::Damaged,
        Self::Invalid,
    ];

    /// Whether the same request may succeed soon, without anybody's help.
    pub fn passes(self) -> bool {
        matches!(self, Self::Throttled | Self::Unreachable | Self::Damaged)
    }
}

/// A failed request to a store. The text never contains credentials.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

/// The result of a request to a store.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error with the text that people read.
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self {
            kind,
            text: text.into(),
        }
    }

    /// An error of the operating system, at the file or object `name`.
    pub fn from_io(error: &io::Error, name: impl fmt::Display) -> Self {
        let kind = match error.kind() {
            io::ErrorKind::NotFound => ErrorKind::Absent,
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::FileTooLarge => ErrorKind::Refused,
            io::ErrorKind::UnexpectedEof => ErrorKind::Damaged,
            io::ErrorKind::InvalidInput | io::ErrorKind::NotADirectory => ErrorKind::Invalid,
            // EIO, ESTALE and time-outs: network file systems recover from them.
            _ => ErrorKind::Unreachable,
        };
        Self::new(kind, format!("{name}: {error}"))
    }

    /// Why it failed.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
