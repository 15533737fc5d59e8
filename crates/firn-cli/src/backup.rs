//! Backups: they are taken from a running or a stopped server, kept in a directory or a bucket, and
//! restored from there.
#![allow(clippy::disallowed_methods)] // Nothing here runs under the simulation.

mod archive_coverage;
mod backup_format;
mod create;
mod definition_names;
mod in_progress;
mod list_verify_prune;
mod local_error;
mod pieces;
mod restore;
mod send;
mod server_copy;
mod server_stage;
mod source;
mod stored_backups;
pub mod table_file_names;
mod target;
mod temporary_directories;

use crate::Outcome;
use crate::args::TakeBackup;
use crate::output::Output;
use firn::base::Result;
pub use list_verify_prune::{list, prune};
pub use restore::run as restore;

/// Takes a backup, or verifies the existing ones.
pub fn run(args: &TakeBackup, out: &Output) -> Result<Outcome> {
    match args.verify {
        true => list_verify_prune::verify(&args.target, out),
        false => create::run(args, out),
    }
}

#[cfg(test)]
mod tests;
