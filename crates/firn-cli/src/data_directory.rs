//! Finds the data directory for a path.

use firn::base::{Error, ErrorKind, Result};
use firn::db::ReadOnlyDb;
use firn::env::{Env, PosixEnv};
use firn_tier::open_to_read;
use std::path::Path;
use std::sync::Arc;

/// Default name of the engine's directory in the server's data directory.
pub const IN_DATADIR: &str = "#firn";

/// Lets files of the object store at `url` be read. `owner_dir` is the directory of the database
/// that uses the store, which `db` may be a checkpoint of.
///
/// # Errors
/// `InvalidArgument` if that is no URL of a store; `Io`.
pub fn with_store(db: ReadOnlyDb, url: Option<&str>, owner_dir: &Path) -> Result<ReadOnlyDb> {
    match url {
        Some(url) => Ok(db.with_remote(open_to_read(url, owner_dir)?)),
        None => Ok(db),
    }
}

/// As [`open_read_only`], with the object store at `url`.
///
/// # Errors
/// As [`open_read_only`] and [`with_store`].
pub fn open_with_store(path: &Path, url: Option<&str>) -> Result<ReadOnlyDb> {
    let db = open_read_only(path)?;
    let dir = db.dir().to_owned();
    with_store(db, url, &dir)
}

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
