//! Finds the data directory for a path.

use firn::base::{Error, ErrorKind, Result};
use firn::db::ReadOnlyDb;
use firn::env::{Env, PosixEnv};
use std::path::Path;
use std::sync::Arc;

/// Default name of the engine's directory in the server's data directory.
pub const IN_DATADIR: &str = "#firn";

/// Opens a database without changing it. `path` is the engine's directory or the server's data
/// directory.
///
/// # Errors
/// `NotFound` if `path` is neither, `Busy` while a server uses the database.
pub fn open_read_only(path: &Path) -> Result<ReadOnlyDb> {
    let env: Arc<dyn Env> = Arc::new(PosixEnv::new());
    let inner = path.join(IN_DATADIR);
    let opened = match ReadOnlyDb::open(Arc::clone(&env), path) {
        Err(error) if *error.kind() == ErrorKind::NotFound && env.exists(&inner)? => {
            ReadOnlyDb::open(env, &inner)
        }
        opened => opened,
    };
    opened.map_err(|error| match error.kind() {
        ErrorKind::Busy => Error::new(
            ErrorKind::Busy,
            format!(
                "{}: a server has this directory open; stop it first",
                path.display()
            ),
        ),
        _ => error,
    })
}
