//! Reads the host's binary log to find out which prepared transactions a server run committed.
//!
//! The server numbers its transactions anew at each start, and after a crash it reads only the
//! files of its last server run. So the files of the server run that prepared a transaction decide
//! that transaction: the engine's log names one of them ([`BinlogFile`]), and [`ServerRunFiles`]
//! finds the others.
//!
//! Format: version 4 of the replication protocol, as MariaDB writes it. The module decodes only the
//! description at the start of a file, the numbers of committed transactions, and the end of a
//! file.

mod events;
mod server_run;
mod xid;

pub use server_run::{ServerRunFiles, same_file};
pub use xid::server_xid;

use crate::base::Result;
use crate::env::Env;
use events::Events;
use std::path::{Path, PathBuf};

/// A file of the server's binary log, with the fields that tell it from another file of the same
/// name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BinlogFile {
    /// Path of the file as the server names it: a relative path starts at the server's working
    /// directory.
    pub path: PathBuf,
    /// Creation time of the file, seconds since 1970.
    pub created: u32,
    /// Id of the server that created the file.
    pub server_id: u32,
}

impl BinlogFile {
    /// Reads the description of the file at `path`.
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

/// The server run that prepared a transaction.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ServerRun {
    /// A server run without a binary log.
    NoBinlog,
    /// The server run that wrote this file. If a transaction is prepared while the engine's log
    /// names this file, its commit can only be in this file or in a later one of the same server
    /// run.
    Binlog(BinlogFile),
}

#[cfg(test)]
pub mod testing;
