//! Source of a backup: a checkpoint of a running server, or the directory of a stopped one. Also
//! the definitions that the server keeps beside the engine's tables.

use super::backup_format::Position;
use super::definition_names::{is_database, is_definition};
use super::server_copy::{ServerCopy, take};
use super::table_file_names::encode;
use super::temporary_directories::{TemporaryDirectory, checkpoint_of, remove_left_behind};
use crate::args::TakeBackup;
use crate::data_directory::{IN_DATADIR, with_store};
use crate::server::{Server, quoted_text};
use firn::backup::archive_of;
use firn::base::{Error, ErrorKind, Result};
use firn::db::ReadOnlyDb;
use firn::env::{Env, PosixEnv};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Contents of definitions, by path in the server's data directory.
pub type Definitions = BTreeMap<String, Vec<u8>>;

/// The files of a backup, which do not change while it is taken.
pub struct Source {
    /// Directory of the engine's files.
    pub dir: PathBuf,
    /// All definitions of the server, also of tables of other engines.
    pub definitions: Definitions,
    /// Directories in the server's data directory that cannot be read, with the error.
    pub unreadable: BTreeMap<String, Error>,
    /// `VERSION()` of the server; empty for a stopped server.
    pub server_version: String,
    /// Positions of the binary logs.
    pub position: Option<Position>,
    /// Time for which commits had to wait, milliseconds; 0 if `mariadb-backup` made them wait,
    /// since it does not report the time.
    pub pause_ms: f64,
    /// Identity of the log archive, if the log is archived.
    pub archive: Option<String>,
    /// Every commit in the source was made before this time, milliseconds since 1970.
    pub cut_ms: u64,
    /// Remarks for the user.
    pub notes: Vec<String>,
    /// The checkpoint in `dir`. It is removed when this value is dropped, before its lock is
    /// released.
    _checkpoint: Option<TemporaryDirectory>,
    /// The database in `dir`, locked.
    pub db: ReadOnlyDb,
    /// The copy of everything that is not FIRN's.
    pub server_copy: Option<ServerCopy>,
}

impl Source {
    /// The source of a stopped server; `path` is its data directory or the engine's. Its cold files
    /// are in the object store at `storage_url`.
    pub fn stopped(path: &Path, storage_url: Option<&str>) -> Result<Self> {
        let inner = path.join(IN_DATADIR);
        let (dir, (definitions, unreadable)) = match inner.is_dir() {
            true => (inner, definitions(path)?),
            false => (path.to_owned(), Default::default()),
        };
        let env = PosixEnv::new();
        Ok(Self {
            db: with_store(
                ReadOnlyDb::open(Arc::new(PosixEnv::new()), &dir)?,
                storage_url,
                &dir,
            )?,
            archive: archive_of(&env, &dir)?,
            cut_ms: env.wall_micros() / 1000,
            dir,
            definitions,
            unreadable,
            server_version: String::new(),
            position: None,
            pause_ms: 0.0,
            notes: Vec::new(),
            _checkpoint: None,
            server_copy: None,
        })
    }

    /// Makes a checkpoint of the running server, or lets `mariadb-backup` trigger it
    /// ([`super::server_copy`]). Commits wait from the beginning of the stage `BLOCK_COMMIT` until
    /// the checkpoint exists and the positions are read. Without `mariadb-backup`, definitions are
    /// read before that stage, while DDL is blocked already.
    pub fn running(args: &TakeBackup, id: &str) -> Result<Self> {
        let clock = PosixEnv::new();
        let mut server = Server::connect(&args.server)?;
        let server_version = server.ask_one("SELECT VERSION()")?;
        let data_dir = PathBuf::from(server.ask_one("SELECT @@datadir")?);
        let engine_dir = server.ask_one("SELECT @@firn_data_dir").map_err(|error| {
            Error::unsupported(format_args!("the server runs without engine FIRN: {error}"))
        })?;
        let engine_dir = data_dir.join(engine_dir);
        if !engine_dir.is_dir() {
            let message = format!(
                "{}: no such directory here; run the backup on the server's machine, as a user who may read its files",
                engine_dir.display()
            );
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        // Make the path absolute: the server would resolve a relative one against another
        // directory.
        let storage_url = match &args.storage_url {
            Some(url) => Some(url.clone()),
            None => storage_url(&mut server)?,
        };
        let storage_url = storage_url.as_deref();
        // An engine that does not know it has no such files.
        let names = "SHOW VARIABLES LIKE 'firn_checkpoint_names_objects'";
        if storage_url.is_some() && !server.ask(names)?.is_empty() {
            // This program sends these files itself: commits wait for the checkpoint.
            server.ask("SET SESSION firn_checkpoint_names_objects = 1")?;
        }
        let checkpoints = args.checkpoint_dir.as_ref().map(std::path::absolute);
        let checkpoints = checkpoints.transpose();
        let checkpoints = checkpoints.map_err(|e| Error::io(&e, "--checkpoint-dir"))?;
        let parent = checkpoints.as_ref().unwrap_or(&engine_dir);
        let dir = checkpoint_of(parent, id);
        let name = dir.display().to_string();
        let quoted = quoted_text(&name);
        if args.with_innodb {
            let taken = take(args, &mut server, &data_dir, &dir, parent, id)?;
            let (definitions, unreadable) = definitions(taken.copy.dir())?;
            return Ok(Self {
                dir,
                definitions,
                unreadable,
                server_version,
                position: taken.position,
                pause_ms: 0.0,
                archive: archive_of(&clock, &engine_dir)?,
                cut_ms: taken.cut_ms,
                notes: taken.notes,
                _checkpoint: Some(taken.checkpoint),
                db: with_store(taken.db, storage_url, &engine_dir)?,
                server_copy: Some(taken.copy),
            });
        }

        server.ask("SET SESSION firn_backup_client = 1")?;
        let wait = args.lock_wait;
        server.ask(&format!("SET SESSION lock_wait_timeout = {wait}"))?;
        server.backup_stage("START")?;
        // No other backup makes a checkpoint now, since only one client at a time can be in a
        // backup stage.
        let notes = remove_left_behind(parent)?;
        server.backup_stage("FLUSH")?;
        server.backup_stage("BLOCK_DDL")?;
        let (definitions, unreadable) = definitions(&data_dir)?;
        let began = clock.monotonic_micros();
        server.backup_stage("BLOCK_COMMIT")?;
        let checkpoint = TemporaryDirectory::at(&dir)?;
        server.ask(&format!("SET GLOBAL firn_create_checkpoint = {quoted}"))?;
        // All commits of the backup must be before `cut_ms`. The checkpoint may have commits of the
        // current millisecond, so take the next one.
        let cut_ms = clock.wall_micros() / 1000 + 1;
        // Lock the checkpoint at once: the next backup removes each checkpoint without a lock,
        // because it takes it for the checkpoint of a killed backup.
        let db = ReadOnlyDb::open(Arc::new(PosixEnv::new()), &dir)?;
        let position = Some(server.position()?);
        server.backup_stage("END")?;
        let pause_ms = (clock.monotonic_micros() - began) as f64 / 1000.0;
        Ok(Self {
            dir,
            definitions,
            unreadable,
            server_version,
            position,
            pause_ms,
            archive: archive_of(&clock, &engine_dir)?,
            cut_ms,
            notes,
            _checkpoint: Some(checkpoint),
            db: with_store(db, storage_url, &engine_dir)?,
            server_copy: None,
        })
    }
}

/// The object store of the server's cold files, if it has one.
fn storage_url(server: &mut Server) -> Result<Option<String>> {
    // An older engine has no such variable.
    let rows = server.ask("SHOW GLOBAL VARIABLES LIKE 'firn_storage_url'")?;
    let value = rows.first().and_then(|row| row.get(1));
    Ok(value.filter(|url| !url.is_empty()).cloned())
}

/// All definitions of tables, views and triggers that the server stores, by path; and the
/// directories that could not be read.
fn definitions(data_dir: &Path) -> Result<(Definitions, BTreeMap<String, Error>)> {
    let mut found = Definitions::new();
    let mut unreadable = BTreeMap::new();
    let failed = |e: std::io::Error, path: &Path| Error::io(&e, path.display());
    for database in fs::read_dir(data_dir).map_err(|e| failed(e, data_dir))? {
        let database = database.map_err(|e| failed(e, data_dir))?.path();
        let name = database.file_name().unwrap_or_default().to_string_lossy();
        if !is_database(&name) || !database.is_dir() {
            continue;
        }
        let files = match fs::read_dir(&database) {
            Ok(files) => files,
            // A directory that cannot be read may be one such as lost+found. The caller decides
            // whether it is a database that the backup needs.
            Err(e) => {
                unreadable.insert(name.into_owned(), failed(e, &database));
                continue;
            }
        };
        for file in files {
            let path = file.map_err(|e| failed(e, &database))?.path();
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            if is_definition(&file) {
                let bytes = fs::read(&path).map_err(|e| failed(e, &path))?;
                found.insert(format!("{name}/{file}"), bytes);
            }
        }
    }
    Ok((found, unreadable))
}

/// The table of a catalog name; for a partition, the table that it belongs to.
pub fn base_table(name: &str) -> &str {
    name.split("#P#").next().unwrap_or(name)
}

/// The definitions that belong to the tables with these catalog names: the tables' own, those of
/// their triggers, the defaults of their databases, and with `views` all views of these databases.
pub fn belonging(all: &Definitions, tables: &[&str], views: bool) -> Definitions {
    let has = |path: &str| tables.iter().any(|table| base_table(table) == path);
    let in_database = |path: &str| {
        let database = path.split('/').next().unwrap_or_default();
        let mut databases = tables.iter().filter_map(|table| table.split('/').next());
        databases.any(|other| other == database)
    };
    let belongs = |path: &str, bytes: &[u8]| {
        let (base, ending) = path.rsplit_once('.').unwrap_or((path, ""));
        match ending {
            "frm" if bytes.starts_with(b"TYPE=VIEW") => views && in_database(path),
            "frm" | "par" | "TRG" => has(base),
            "TRN" => trigger_table(path, bytes).is_some_and(|table| has(&table)),
            _ => in_database(path),
        }
    };
    let chosen = all.iter().filter(|(path, bytes)| belongs(path, bytes));
    chosen
        .map(|(path, bytes)| (path.clone(), bytes.clone()))
        .collect()
}

/// The table of a trigger, from the file named after the trigger.
fn trigger_table(path: &str, bytes: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(bytes);
    let table = text
        .lines()
        .find_map(|line| line.strip_prefix("trigger_table="))?;
    let database = path.split('/').next()?;
    Some(format!("{database}/{}", encode(table)))
}
