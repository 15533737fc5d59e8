//! Backups: taken from a running server or a stopped one, kept in a directory or a bucket, restored.
#![allow(clippy::disallowed_methods)] // Nothing here runs under the simulation.

mod archive;
mod checkpoint;
mod create;
pub mod file_names;
mod format;
mod keep;
mod mark;
mod pieces;
mod restore;
mod send;
mod server;
mod source;
mod target;

use crate::Outcome;
use crate::args::TakeBackup;
use crate::output::Output;
use firn::base::Result;
pub use keep::{list, prune};
pub use restore::run as restore;

/// Takes a backup, or verifies those there are.
pub fn run(args: &TakeBackup, out: &Output) -> Result<Outcome> {
    match args.verify {
        true => keep::verify(&args.target, out),
        false => create::run(args, out),
    }
}

#[cfg(test)]
mod tests;
