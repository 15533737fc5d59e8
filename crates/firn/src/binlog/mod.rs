//! The host's binary log, read only: whether a run of the server committed what it had prepared.
//!
//! The server numbers its transactions anew with each start, and after a crash it reads the files of its last run alone.
//! So a transaction that an earlier run prepared belongs to the files of that run: the log of the engine names one of
//! them ([`BinlogFile`]), and [`Run`] finds the others.
//!
//! Format: version 4 of the replication protocol, as MariaDB writes it. Nothing is decoded but what is needed: the
//! description at the start of a file, the numbers of committed transactions, and how a file ends.

mod events;
mod run;
mod xid;

pub use run::{Run, same_file};
pub use xid::server_xid;

use crate::base::Result;
use crate::env::Env;
use events::Events;
use std::path::{Path, PathBuf};

/// A file of the server's binary log, and what tells it from another one of the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BinlogFile {
    /// As the server names it: a relative path starts at the server's working directory.
    pub path: PathBuf,
    /// When it was begun, seconds since 1970.
    pub created: u32,
    /// The server that began it.
    pub server_id: u32,
}

impl BinlogFile {
    /// The file at `path` as it is.
    ///
    /// # Errors
    /// Those of reading it; corruption if it is no binary log.
    pub fn read(env: &dyn Env, path: &Path) -> Result<Self> {
        let description = Events::open(env, path)?.description;
        Ok(Self {
            path: path.to_owned(),
            created: description.created,
            server_id: description.server_id,
        })
    }
}

/// Whose transactions are prepared.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerRun {
    /// A run of a server without a binary log.
    NoBinlog,
    /// The run that wrote this file. What is prepared while the file is named is in this one or a later one of the run.
    Binlog(BinlogFile),
}

#[cfg(test)]
pub mod testing;
