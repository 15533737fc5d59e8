//! The command line.

use clap::builder::TypedValueParser;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// The engine FIRN as `information_schema` names it.
pub const FIRN: &str = "FIRN";
/// The engine InnoDB as `information_schema` names it.
pub const INNODB: &str = "InnoDB";

/// Look into, check, repair, back up and restore a data directory of the Firn storage engine.
///
/// Exit codes: 0 all is well; 1 damage was found, or something was lost; 2 the command line is
/// wrong; 3 a server holds the directory; 4 anything else.
#[derive(Debug, Parser)]
#[command(name = "firn", version, max_term_width = 100)]
pub struct Args {
    /// Print JSON instead of text.
    #[arg(long, global = true)]
    pub json: bool,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// The command.
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
    /// Write the server's definition of a table, its .frm file, as the engine keeps it.
    Definition(Definition),
    /// Back up all FIRN tables of a running server, or of a stopped one. Files that an earlier
    /// backup in the same target has are not sent again.
    Backup(TakeBackup),
    /// List the backups in a target.
    Backups(ListBackups),
    /// Remove the oldest backups, and the files that no other one needs.
    Prune(Prune),
    /// Make a data directory out of a backup.
    Restore(Restore),
    /// Move the tables of schemas from InnoDB to FIRN, or back, with their foreign keys. The
    /// command can be repeated: it goes on where an earlier call ended.
    Convert(Convert),
}

/// How to reach the server: options for the server's client program, which reads its option files,
/// too.
#[derive(Debug, clap::Args)]
pub struct Client {
    /// The client program.
    #[arg(long, default_value = "mariadb")]
    pub client: PathBuf,
    /// Read only this option file.
    #[arg(long)]
    pub defaults_file: Option<PathBuf>,
    /// Socket of the server.
    #[arg(long, short = 'S')]
    pub socket: Option<PathBuf>,
    /// Host of the server. It must be this machine, because the server's files are read.
    #[arg(long)]
    pub host: Option<String>,
    /// Port of the server.
    #[arg(long, short = 'P')]
    pub port: Option<u16>,
    /// User, whose password is in an option file or in MYSQL_PWD. A backup needs RELOAD, FILE,
    /// SUPER and REPLICA MONITOR; a conversion needs ALL on its schemas.
    #[arg(long, short = 'u')]
    pub user: Option<String>,
}

impl Client {
    /// The options for a client program of the server. They come first among its arguments, since
    /// it accepts an option file only there.
    pub fn options(&self) -> Vec<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let options = [
            ("defaults-file", self.defaults_file.as_ref().map(path)),
            ("host", self.host.clone()),
            ("user", self.user.clone()),
            ("socket", self.socket.as_ref().map(path)),
            ("port", self.port.map(|port| port.to_string())),
        ];
        let given = options.into_iter();
        given
            .filter_map(|(name, value)| Some(format!("--{name}={}", value?)))
            .collect()
    }
}

/// Arguments of `backup`.
#[derive(Debug, clap::Args)]
pub struct TakeBackup {
    /// Where backups are kept: a directory, file:///dir or s3://bucket/prefix. For a bucket the
    /// environment has AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_REGION, AWS_ENDPOINT.
    pub target: String,
    /// Take no backup; read all backups in the target and compare every checksum.
    #[arg(long)]
    pub verify: bool,
    /// The data directory of a stopped server, or the engine's directory.
    #[arg(long, conflicts_with = "verify")]
    pub from_dir: Option<PathBuf>,
    /// Where the server makes the checkpoint: a directory on the file system of its data directory.
    /// If secure_file_priv is set, the directory must lie below that one. [default: the engine's
    /// directory]
    #[arg(long)]
    pub checkpoint_dir: Option<PathBuf>,
    /// Back up the whole server: mariadb-backup copies InnoDB, other engines and the system tables
    /// at the position of the checkpoint. The backup holds that copy too.
    #[arg(long, conflicts_with_all = ["verify", "from_dir"])]
    pub with_innodb: bool,
    /// The program that copies InnoDB: mariadb-backup of the same version as the server.
    #[arg(long, default_value = "mariadb-backup", requires = "with_innodb")]
    pub mariadb_backup: PathBuf,
    /// Where mariadb-backup makes its copy, which is removed when it is sent: a directory with room
    /// for all tables that are not FIRN's. [default: that of the checkpoint]
    #[arg(long, requires = "with_innodb")]
    pub copy_dir: Option<PathBuf>,
    /// Seconds to wait for statements that hold up the backup, such as ALTER TABLE; other
    /// statements wait behind the backup meanwhile.
    #[arg(long, default_value_t = 60)]
    pub lock_wait: u32,
    /// The object store that has cold files, which the backup copies. [default: the server's
    /// firn_storage_url]
    #[arg(long, conflicts_with = "verify")]
    pub storage_url: Option<String>,
    /// The server.
    #[command(flatten)]
    pub server: Client,
}

/// Arguments of `backups`.
#[derive(Debug, clap::Args)]
pub struct ListBackups {
    /// Where backups are kept.
    pub target: String,
    /// Show what this log archive covers, too.
    #[arg(long)]
    pub archive: Option<PathBuf>,
}

/// Arguments of `prune`.
#[derive(Debug, clap::Args)]
pub struct Prune {
    /// Where backups are kept.
    pub target: String,
    /// Number of the newest backups that stay.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..).map(|n| n as usize))]
    pub keep: usize,
    /// Also remove from this log archive what the oldest backup that stays does not need.
    #[arg(long)]
    pub archive: Option<PathBuf>,
    /// Remove the marks that other backups and prunes have left in the target. Use this only if
    /// these commands were cut short.
    #[arg(long)]
    pub force: bool,
}

/// Arguments of `restore`.
#[derive(Debug, clap::Args)]
pub struct Restore {
    /// Where backups are kept.
    pub target: String,
    /// The id of the backup, or `latest`.
    #[arg(long, default_value = "latest")]
    pub backup: String,
    /// The data directory: empty, not there yet, or that of a stopped server that has no #firn yet.
    #[arg(long)]
    pub to: PathBuf,
    /// Restore this table only: `database.table`. May be repeated.
    #[arg(long)]
    pub table: Vec<String>,
    /// The log archive (`firn_log_archive_dir`), for the commits after the backup.
    #[arg(long, requires = "until")]
    pub archive: Option<PathBuf>,
    /// The point up to which the backup is brought.
    #[command(flatten)]
    pub until: Until,
}

/// The point up to which the log archive brings a backup.
#[derive(Debug, clap::Args)]
#[group(id = "until", multiple = false, requires = "archive")]
pub struct Until {
    /// Up to this time, included: '2026-11-22 13:00:00[.5]' as the clock here shows it, or with an
    /// offset as 2026-11-22T13:00:00Z.
    #[arg(long, value_name = "TIME")]
    pub until_time: Option<String>,
    /// Up to this position in the binary log, which is the end of the last event that is wanted:
    /// bin.000007:1234.
    #[arg(long, value_name = "FILE:POS")]
    pub until_binlog: Option<String>,
    /// Up to this commit, included.
    #[arg(long, value_name = "SEQNO")]
    pub until_seqno: Option<u64>,
    /// Up to the end of the archive.
    #[arg(long)]
    pub until_end: bool,
}

/// Arguments of `convert`.
#[derive(Debug, clap::Args)]
pub struct Convert {
    /// The schemas. Tables that a foreign key links to a table in another schema are not converted,
    /// unless that schema is named, too.
    #[arg(required = true, value_name = "SCHEMA")]
    pub schemas: Vec<String>,
    /// The engine to which tables are moved from the other engine.
    #[arg(long, value_enum, default_value = "firn")]
    pub to: TargetEngine,
    /// Change nothing; show which tables would be converted, and which stay, and why.
    #[arg(long)]
    pub dry_run: bool,
    /// Keep the changes out of the binary log: replicas stay as they are. Needs BINLOG ADMIN.
    #[arg(long)]
    pub local: bool,
    /// Seconds to wait for transactions that use a table; other statements on the table wait
    /// behind it meanwhile.
    #[arg(long, default_value_t = 60)]
    pub lock_wait: u32,
    /// The server.
    #[command(flatten)]
    pub server: Client,
}

/// An engine that `convert` moves tables to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum TargetEngine {
    /// From InnoDB to FIRN.
    Firn,
    /// From FIRN to InnoDB.
    Innodb,
}

impl Convert {
    /// The engine whose tables are moved.
    pub fn from(&self) -> &'static str {
        match self.to {
            TargetEngine::Firn => INNODB,
            TargetEngine::Innodb => FIRN,
        }
    }

    /// The engine that they are moved to.
    pub fn to(&self) -> &'static str {
        match self.to {
            TargetEngine::Firn => FIRN,
            TargetEngine::Innodb => INNODB,
        }
    }
}

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub struct Inspect {
    /// The engine's data directory, or the server's, if that has the engine's as `#firn`.
    pub directory: PathBuf,
    /// List every file, too.
    #[arg(long)]
    pub files: bool,
}

/// Arguments of `check`.
#[derive(Debug, clap::Args)]
pub struct Check {
    /// The engine's data directory, or the server's, if that has the engine's as `#firn`.
    pub directory: PathBuf,
    /// Check the files alone, not the tables in them.
    #[arg(long)]
    pub files_only: bool,
    /// The object store that has cold files, as the server's firn_storage_url names it: without it
    /// they are not checked. Keys come from the environment, as for the server.
    #[arg(long)]
    pub storage_url: Option<String>,
}

/// Arguments of `repair`.
#[derive(Debug, clap::Args)]
pub struct Repair {
    /// The damaged data directory of the engine, or the server's, if that has the engine's as
    /// `#firn`. It is not changed.
    pub directory: PathBuf,
    /// The new data directory: empty, or not there yet. It gets all files, also those of an object
    /// store.
    pub target: PathBuf,
    /// The object store that has cold files, as the server's firn_storage_url names it. Keys come
    /// from the environment, as for the server.
    #[arg(long)]
    pub storage_url: Option<String>,
}

/// Arguments of `definition`.
#[derive(Debug, clap::Args)]
pub struct Definition {
    /// The engine's data directory, or the server's, if that has the engine's as `#firn`.
    pub directory: PathBuf,
    /// The table: `database.table`.
    pub table: String,
    /// The file to write, which must not exist yet.
    pub target: PathBuf,
}

/// The kind of file that `dump` shows.
#[derive(Debug, Subcommand)]
pub enum Dump {
    /// A sorted file of entries: `0000000001.sst`.
    Sst(DumpSst),
    /// A segment of the log: `000001.wal`.
    Wal(DumpWal),
    /// A manifest: `MANIFEST-000001`.
    Manifest(DumpManifest),
    /// A file of values out of line: `0000000001.blob`.
    Blob(DumpBlob),
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

/// Arguments of `dump blob`.
#[derive(Debug, clap::Args)]
pub struct DumpBlob {
    /// The file.
    pub file: PathBuf,
    /// Blobs listed at most.
    #[arg(long, default_value_t = 1000)]
    pub limit: u64,
}

/// Arguments of `dump manifest`.
#[derive(Debug, clap::Args)]
pub struct DumpManifest {
    /// The file.
    pub file: PathBuf,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Args::command().debug_assert();
    }

    /// Only commands that read remote files take the store that has them.
    #[test]
    fn the_object_store_is_an_option_of_commands_that_read_it() {
        let command = Args::command();
        let takes = command.get_subcommands().filter(|command| {
            let mut options = command.get_arguments();
            options.any(|option| option.get_id() == "storage_url")
        });
        let takes: Vec<&str> = takes.map(clap::Command::get_name).collect();
        assert_eq!(takes, ["check", "repair", "backup"]);
    }
}
