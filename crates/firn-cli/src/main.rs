//! `firn`: look into, check, repair, back up and restore a data directory of the Firn storage
//! engine, and convert tables of a running server.
//!
//! Exit codes: 0 all is well; 1 damage was found, or something was lost; 2 the command line is
//! wrong; 3 a server holds the directory; 4 anything else, such as no database there, or one that a
//! newer version wrote.

mod args;
mod backup;
mod check;
mod convert;
mod data_directory;
mod definition;
mod dump;
mod inspect;
mod level_bars;
mod output;
mod repair;
mod server;

use args::{Args, Command};
use clap::Parser;
use firn::base::{Error, ErrorKind};
use rustix::fs::Mode;
use rustix::process::{Resource, getrlimit, setrlimit, umask};
use std::process::ExitCode;

/// How a command ended.
enum Outcome {
    Well,
    Damage,
    Unsupported,
}

fn main() -> ExitCode {
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(error) => return usage(&error),
    };
    allow_many_files();
    // Files that this program creates hold the data of a database: the owner's group may only read
    // them, and all others may not even do that.
    umask(Mode::WGRP | Mode::RWXO);
    let out = output::Output::new(args.json);
    let done = match &args.command {
        Command::Inspect(what) => inspect::run(what, &out),
        Command::Dump(what) => dump::run(what, &out),
        Command::Check(what) => check::run(what, &out),
        Command::Repair(what) => repair::run(what, &out),
        Command::Definition(what) => definition::run(what, &out),
        Command::Backup(what) => backup::run(what, &out),
        Command::Backups(what) => backup::list(what, &out),
        Command::Prune(what) => backup::prune(what, &out),
        Command::Restore(what) => backup::restore(what, &out),
        Command::Convert(what) => convert::run(what, &out),
    };
    match done {
        Ok(Outcome::Well) => ExitCode::SUCCESS,
        Ok(Outcome::Damage) => ExitCode::from(1),
        Ok(Outcome::Unsupported) => ExitCode::from(4),
        Err(error) => {
            out.error(&error);
            ExitCode::from(code_of(&error))
        }
    }
}

/// Prints the error of the command line, or the help that the user asked for.
fn usage(error: &clap::Error) -> ExitCode {
    let json = std::env::args_os().any(|arg| arg == "--json");
    match json && error.use_stderr() {
        true => output::Output::new(true).error(&Error::invalid(error.to_string().trim())),
        // A failed print is ignored, because without standard output there is no reader.
        false => drop(error.print()),
    }
    ExitCode::from(error.exit_code() as u8)
}

/// Raises the limit of open files, because a large database has more files than a process may
/// usually have open.
fn allow_many_files() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If the limit stays low, opening a large database fails with the system's error.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn code_of(error: &Error) -> u8 {
    match error.kind() {
        ErrorKind::Corruption { .. } => 1,
        ErrorKind::Busy => 3,
        _ => 4,
    }
}
