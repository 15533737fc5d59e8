//! Errors of files on this machine.

use firn::base::Error;
use std::path::Path;

/// The error of a file on this machine. A file that ends too early counts as damaged.
pub fn local_error(error: &std::io::Error, path: &Path) -> Error {
    match error.kind() {
        std::io::ErrorKind::UnexpectedEof => {
            Error::corruption(path.to_string_lossy(), 0, "the file ends early")
        }
        _ => Error::io(error, path.display()),
    }
}
