//! Finds the data directory for a path.

use firn::base::{Error, ErrorKind, Result};
use firn::db::ReadOnlyDb;
use firn::env::{Env, PosixEnv};
use std::path::Path;
use std::sync::Arc;

/// Name of the engine's directory in the server's, unless it is configured.
pub const IN_DATADIR: &str = "#firn";

/// Opens the database in `path`, or in the server's data directory `path`, for looking.
///
/// # Errors
/// `NotFound` if neither holds one, `Busy` while a server has it.
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
