//! Errors of stores as errors of the engine.

use firn::base::{Error, ErrorKind};
use firn_objects::ErrorKind as StoreKind;

/// An error of a request that is not about one file.
pub fn of_request(store: &str, error: &firn_objects::Error) -> Error {
    Error::new(ErrorKind::Unreachable, format!("{store}: {error}"))
}

/// An error of reading the bytes at `offset` of the file that errors call `name`. Only what the
/// store does not have, or has otherwise, is damage: everything else may pass, or somebody can set
/// it right.
pub fn of_read(store: &str, name: &str, offset: u64, error: &firn_objects::Error) -> Error {
    match error.kind() {
        StoreKind::Absent | StoreKind::Damaged => {
            Error::corruption(name, offset, format!("{store}: {error}"))
        }
        _ => Error::new(ErrorKind::Unreachable, format!("{store}: {name}: {error}")),
    }
}
