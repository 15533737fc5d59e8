//! Errors of decoders, to which the caller adds file and offset.

use crate::base::{Error, encryption_envelope};

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// They contradict their checksum or the format.
    Corrupt(&'static str),
    /// They are well-formed, but this version does not know what they mean.
    Unsupported(&'static str),
    /// They are encrypted.
    Encrypted,
}

pub(super) type Decoded<T> = Result<T, DecodeError>;

impl DecodeError {
    /// The error for the reader of `file`, about the block at `offset`.
    #[cold]
    pub(super) fn at(self, file: &str, offset: u64) -> Error {
        match self {
            Self::Corrupt(what) => Error::corruption(file, offset, what),
            Self::Encrypted => {
                encryption_envelope::refused(format_args!("{file} at offset {offset}"))
            }
            Self::Unsupported(what) => {
                Error::unsupported(format!("{what} in {file} at offset {offset}"))
            }
        }
    }
}
