//! The copy that `mariadb-backup` makes of the rest of the server: InnoDB, other engines and the
//! system tables, at the position of the engine's checkpoint (`firn backup --with-innodb`).
//!
//! 1. `SET GLOBAL firn_backup_checkpoint` arms a checkpoint, which lasts as long as the session.
//! 2. `mariadb-backup --backup` copies, and calls `FLUSH ENGINE LOGS` while commits wait (`BACKUP
//!    STAGE BLOCK_COMMIT`). There the server makes the checkpoint: no commit lies between it and
//!    the end of InnoDB's log in the copy.
//! 3. This program opens the checkpoint as soon as it appears, which locks it.
//! 4. `mariadb-backup --prepare` applies InnoDB's log to the copy: it is a data directory then, and
//!    a restore needs no further program.
//!
//! Rejected: to stream the copy into the target. It would need no room here, but a later backup
//! would send everything again, and a restore would need `mariadb-backup`.

use super::backup_format::Position;
use super::temporary_directories::{
    TemporaryDirectory, child_ended, copy_of, remove_left_behind, start,
};
use crate::args::TakeBackup;
use crate::data_directory::IN_DATADIR;
use crate::server::{Server, quoted_text};
use firn::base::{Error, ErrorKind, Result};
use firn::db::ReadOnlyDb;
use firn::env::{Env, PosixEnv};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// Time between two looks for the checkpoint. It is short, because until this program locks the new
/// checkpoint, another backup could take the checkpoint for that of a killed backup and remove it.
const POLL: Duration = Duration::from_millis(2);

/// Lines of `mariadb-backup` that an error shows.
const LINES_SHOWN: usize = 8;

/// A file of the copy.
pub struct CopiedFile {
    /// Path in the data directory.
    pub name: String,
    /// Path on this machine.
    pub path: PathBuf,
    /// Bytes of the file.
    pub size: u64,
}

/// The copy of the rest of the server. Its directory is removed when this value is dropped.
pub struct ServerCopy {
    dir: PathBuf,
    /// All files of the copy that belong into a data directory, ascending by name.
    pub files: Vec<CopiedFile>,
    _lock: Box<dyn Send + Sync>,
    _parent: TemporaryDirectory,
}

impl ServerCopy {
    /// The copy's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }
}

/// A checkpoint and the copy at its position.
pub struct Taken {
    /// The checkpoint's directory.
    pub checkpoint: TemporaryDirectory,
    /// The database of the checkpoint.
    pub db: ReadOnlyDb,
    /// The copy.
    pub copy: ServerCopy,
    /// Positions of the binary logs.
    pub position: Option<Position>,
    /// Every commit in the checkpoint was made before this time, milliseconds since 1970.
    pub cut_ms: u64,
    /// Remarks for the user.
    pub notes: Vec<String>,
}

/// Lets `mariadb-backup` copy the server, and the server make the checkpoint in `checkpoint`.
///
/// # Errors
/// `Unsupported` if InnoDB is missing, keeps files outside the data directory, or the checkpoint
/// was not made; `Io` with the last lines of `mariadb-backup` if that fails.
pub fn take(
    args: &TakeBackup,
    server: &mut Server,
    data_dir: &Path,
    checkpoint: &Path,
    parent: &Path,
    id: &str,
) -> Result<Taken> {
    refuse_files_elsewhere(server, data_dir)?;
    // Other backups may be making checkpoints that nobody has locked yet, because this session is
    // in no backup stage that would keep them waiting. `remove_left_behind` leaves these
    // checkpoints alone, because the processes whose ids are in their names still run.
    let mut notes = remove_left_behind(parent)?;
    let mut copies = parent.to_owned();
    if let Some(dir) = &args.copy_dir {
        copies = absolute(dir)?;
        notes.append(&mut remove_left_behind(&copies)?);
    }
    let parent = TemporaryDirectory::at(&copy_of(&copies, id))?;
    PosixEnv::new().create_dir_all(&parent.path)?;
    let lock = PosixEnv::new().lock(&parent.path.join("LOCK"))?;
    let (dir, log) = (parent.path.join("data"), parent.path.join("log"));

    let made = TemporaryDirectory::at(checkpoint)?;
    let name = quoted_text(&checkpoint.display().to_string());
    // Keep this session alive while it waits for the copy: if it ends, the checkpoint is not made.
    server.ask("SET SESSION wait_timeout = 31536000")?;
    server.ask(&format!("SET GLOBAL firn_backup_checkpoint = {name}"))?;
    let mut copying = Command::new(&args.mariadb_backup);
    copying
        .args(args.server.options())
        .arg("--backup")
        .arg(format!("--target-dir={}", dir.display()))
        .arg(format!("--datadir={}", data_dir.display()))
        .arg(format!("--ftwrl-wait-timeout={}", args.lock_wait));
    let mut found = None;
    run(copying, &log, &mut || {
        if found.is_none() && checkpoint.is_dir() {
            let db = ReadOnlyDb::open(Arc::new(PosixEnv::new()), checkpoint)?;
            require_own_stage(&log)?;
            // All commits of the backup must be before `cut_ms`. The checkpoint may have commits of
            // the current millisecond, so take the next one.
            let cut_ms = PosixEnv::new().wall_micros() / 1000 + 1;
            let position = server.position()?;
            // As long as mariadb-backup has not ended its stage, commits wait, so the positions
            // just read are those of the checkpoint.
            let in_time = !said(&log).contains("BACKUP STAGE END");
            found = Some((db, cut_ms, position, in_time));
        }
        Ok(())
    })?;
    let Some((db, cut_ms, mut position, in_time)) = found else {
        return Err(Error::unsupported(
            "mariadb-backup did not call FLUSH ENGINE LOGS while commits waited: no checkpoint was made",
        ));
    };
    let mut preparing = Command::new(&args.mariadb_backup);
    preparing
        .arg("--prepare")
        .arg(format!("--target-dir={}", dir.display()));
    run(preparing, &log, &mut || Ok(()))?;
    if !in_time {
        position = Position::default();
        notes.push("the positions of a replica are not known: take another backup".to_owned());
    }
    take_position(&mut position, &dir)?;
    let mut files = Vec::new();
    files_below(&dir, &dir, &mut files)?;
    files.retain(|file| belongs(&file.name));
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(Taken {
        checkpoint: made,
        db,
        copy: ServerCopy {
            dir,
            files,
            _lock: lock,
            _parent: parent,
        },
        position: Some(position),
        cut_ms,
        notes,
    })
}

/// Fails unless `mariadb-backup` has blocked commits by now. Otherwise another backup, for which it
/// still waits, has called `FLUSH ENGINE LOGS` and so made the checkpoint, and the copy of InnoDB
/// would be of a later position. Only one session at a time can block commits.
fn require_own_stage(log: &Path) -> Result<()> {
    let text = said(log);
    let own = match text.contains("BACKUP STAGE") {
        true => text.contains("Acquired locks for BACKUP STAGE BLOCK_COMMIT"),
        // Some versions of mariadb-backup do not write the backup stages to their output. They
        // write this line once they have blocked commits.
        false => text.contains("Starting to backup non-InnoDB tables"),
    };
    match own {
        true => Ok(()),
        false => Err(Error::new(
            ErrorKind::Busy,
            "another backup of the server goes on, and has made the checkpoint",
        )),
    }
}

/// The output of a command so far.
fn said(log: &Path) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Makes a path absolute, because the server and this program may run in different directories.
fn absolute(path: &Path) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io(&e, path.display()))
}

/// Refuses a server whose InnoDB has files outside the data directory: such files have no place in
/// a restored data directory.
fn refuse_files_elsewhere(server: &mut Server, data_dir: &Path) -> Result<()> {
    let question = "SELECT IFNULL(@@innodb_data_home_dir, ''), \
                    IFNULL(@@innodb_log_group_home_dir, ''), IFNULL(@@innodb_undo_directory, ''), \
                    IFNULL(@@aria_log_dir_path, '')";
    let directories = server.ask(question).map_err(|error| {
        Error::unsupported(format_args!(
            "--with-innodb: the server runs without InnoDB: {error}"
        ))
    })?;
    let same = |dir: &str| {
        let (dir, data) = (data_dir.join(dir).canonicalize(), data_dir.canonicalize());
        matches!((dir, data), (Ok(dir), Ok(data)) if dir == data)
    };
    if let Some(dir) = directories.iter().flatten().find(|dir| !same(dir)) {
        return Err(Error::unsupported(format_args!(
            "--with-innodb: the server keeps files in {dir}, outside the data directory"
        )));
    }
    let files = server.ask_one("SELECT @@innodb_data_file_path")?;
    if files.contains('/') {
        return Err(Error::unsupported(format_args!(
            "--with-innodb: innodb_data_file_path has directories: {files}"
        )));
    }
    let mut files = Vec::new();
    let databases = fs::read_dir(data_dir).map_err(|e| Error::io(&e, data_dir.display()))?;
    for database in databases {
        let path = database
            .map_err(|e| Error::io(&e, data_dir.display()))?
            .path();
        // Ignore a directory that cannot be read, such as lost+found. If the directory is a
        // database that the backup needs, mariadb-backup fails.
        if let Ok(inside) = fs::read_dir(&path) {
            files.extend(inside.filter_map(|file| Some(file.ok()?.path())));
        }
    }
    match files
        .iter()
        .find(|file| file.extension().is_some_and(|e| e == "isl"))
    {
        None => Ok(()),
        Some(file) => Err(Error::unsupported(format_args!(
            "--with-innodb: {} leads to a table with a DATA DIRECTORY",
            file.display()
        ))),
    }
}

/// Runs a command until it ends, with its output in the file `log`. Calls `meanwhile` again and
/// again until then.
fn run(mut command: Command, log: &Path, meanwhile: &mut dyn FnMut() -> Result<()>) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let started = (|| {
        let file = File::create(log)?;
        start(command.stdout(file.try_clone()?).stderr(file))
    })();
    let mut child = started.map_err(|e| Error::io(&e, format_args!("start {program}")))?;
    let ended = loop {
        let watched = meanwhile();
        match (watched, child.try_wait()) {
            (Ok(()), Ok(None)) => std::thread::sleep(POLL),
            (Ok(()), Ok(Some(status))) => break meanwhile().map(|()| status),
            (Ok(()), Err(e)) => break Err(Error::io(&e, format_args!("wait for {program}"))),
            (Err(error), _) => {
                // It may have ended meanwhile.
                let _ = child.kill();
                let _ = child.wait();
                break Err(error);
            }
        }
    };
    child_ended();
    if ended?.success() {
        return Ok(());
    }
    let said = said(log);
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
    let kind = ErrorKind::Io { os_errno: 0 };
    Err(Error::new(kind, format!("{program} failed:\n{last}")))
}

/// Takes the position in the binary log from the copy.
///
/// # Errors
/// `Busy` if the server, asked while commits waited, gave another position.
fn take_position(position: &mut Position, dir: &Path) -> Result<()> {
    let names = ["xtrabackup_binlog_info", "mariadb_backup_binlog_info"];
    let paths = names.map(|name| dir.join(name));
    let Some(path) = paths.iter().find(|path| path.exists()) else {
        return Ok(());
    };
    let text = fs::read_to_string(path).map_err(|e| Error::io(&e, path.display()))?;
    let mut fields = text.trim_end().split('\t');
    let mut field = || fields.next().unwrap_or_default().to_owned();
    let (file, pos, gtid) = (field(), field(), field());
    let pos: u64 = pos.parse().map_err(|_| {
        Error::corruption(path.display().to_string(), 0, "no position in a binary log")
    })?;
    let asked = (&position.binlog_file, position.binlog_pos);
    if !asked.0.is_empty() && asked != (&file, pos) {
        return Err(Error::new(
            ErrorKind::Busy,
            format!("the checkpoint is of {asked:?}, InnoDB's copy of {file}:{pos}"),
        ));
    }
    position.binlog_file = file;
    position.binlog_pos = pos;
    position.gtid_binlog_pos = gtid;
    Ok(())
}

/// Whether a file of the copy belongs into a data directory. The other files are notes of
/// `mariadb-backup`.
fn belongs(name: &str) -> bool {
    let own = ["backup-my.cnf", "xtrabackup_", "mariadb_backup_"];
    let own = !name.contains('/') && own.iter().any(|prefix| name.starts_with(prefix));
    !own && !name.starts_with(IN_DATADIR)
}

fn files_below(root: &Path, dir: &Path, files: &mut Vec<CopiedFile>) -> Result<()> {
    let failed = |e: std::io::Error| Error::io(&e, dir.display());
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, meta) = (entry.path(), entry.metadata().map_err(failed)?);
        if meta.is_dir() {
            files_below(root, &path, files)?;
            continue;
        }
        let name = path.strip_prefix(root).ok().and_then(Path::to_str);
        let name = name.ok_or_else(|| {
            Error::unsupported(format_args!("{}: a name that is not UTF-8", path.display()))
        })?;
        files.push(CopiedFile {
            name: name.to_owned(),
            size: meta.len(),
            path,
        });
    }
    Ok(())
}
