//! Errors of decoders, to which the caller adds file and offset.

use crate::base::{Error, encryption_envelope};

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DecodeError {
    /// The bytes contradict their checksum or the format.
    Corrupt(&'static str),
    /// The bytes are well-formed, but a newer version wrote them and this one does not know their
    /// meaning.
    Unsupported(&'static str),
    /// The bytes are encrypted, which this version cannot read.
    Encrypted,
}

pub(super) type Decoded<T> = Result<T, DecodeError>;

impl DecodeError {
    /// Turns this into the error that names `file` and the `offset` of the block.
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
