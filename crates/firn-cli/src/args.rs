//! The command line.

use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Look into, check and repair a data directory of the Firn storage engine.
///
/// Exit codes: 0 all is well; 1 damage was found, or something was lost; 2 the command line is wrong;
/// 3 a server holds the directory; 4 anything else.
#[derive(Debug, Parser)]
#[command(name = "firn", version, max_term_width = 100)]
pub struct Args {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Show levels, files and tables: a picture of the tree.
    Inspect(Inspect),
    /// Show what one file holds.
    #[command(subcommand)]
    Dump(Dump),
    /// Check every checksum, every invariant, and every index against its table.
    Check(Check),
    /// Save what a damaged directory still holds into a fresh one, and say what is lost.
    Repair(Repair),
}

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub struct Inspect {
    /// The data directory, or the server's that has it as `#firn`.
    pub directory: PathBuf,
    /// List every file, too.
    #[arg(long)]
    pub files: bool,
}

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The data directory, or the server's that has it as `#firn`.
    pub directory: PathBuf,
    /// Check the files alone, not the tables in them.
    #[arg(long)]
    pub files_only: bool,
}

/// Arguments of `repair`.
#[derive(Debug, clap::Args)]
pub struct Repair {
    /// The damaged data directory, or the server's that has it as `#firn`. It is not changed.
    pub directory: PathBuf,
    /// Where the new one goes: empty, or not there yet.
    pub target: PathBuf,
}

/// What `dump` shows.
#[derive(Debug, Subcommand)]
pub enum Dump {
    /// A sorted file of entries: `0000000001.sst`.
    Sst(DumpSst),
    /// A segment of the log: `000001.wal`.
    Wal(DumpWal),
    /// A manifest: `MANIFEST-000001`.
    Manifest(DumpManifest),
}

/// Arguments of `dump sst`.
#[derive(Debug, clap::Args)]
pub struct DumpSst {
    /// The file.
    pub file: PathBuf,
    /// List the data blocks.
    #[arg(long)]
    pub blocks: bool,
    /// List the entries.
    #[arg(long)]
    pub entries: bool,
    /// Show the bytes of values with the entries.
    #[arg(long, requires = "entries")]
    pub values: bool,
    /// Entries or blocks listed at most.
    #[arg(long, default_value_t = 1000)]
    pub limit: u64,
}

/// Arguments of `dump wal`.
#[derive(Debug, clap::Args)]
pub struct DumpWal {
    /// The file.
    pub file: PathBuf,
    /// List the entries of each commit.
    #[arg(long)]
    pub entries: bool,
    /// Groups listed at most.
    #[arg(long, default_value_t = 1000)]
    pub limit: u64,
}

/// Arguments of `dump manifest`.
#[derive(Debug, clap::Args)]
pub struct DumpManifest {
    /// The file.
    pub file: PathBuf,
}
