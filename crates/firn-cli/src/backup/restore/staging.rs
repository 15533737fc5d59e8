//! Assembles a restored copy in a directory of its own beside the final one, so that one rename
//! makes it appear.
//!
//! 1. `#firn.restoring/engine` becomes the engine's directory, complete and synced.
//! 2. `#firn.restoring/definitions` gets the definitions, or all files of the rest of the server;
//!    then each is hard-linked into the data directory. A link appears whole, and fails if the name
//!    is taken.
//! 3. `engine` is renamed to `#firn`. Before this there is no database for a server to open; after
//!    it the database is complete.
//! 4. `#firn.restoring` is removed.
//!
//! If the restore is cut short before step 3, the next one undoes `#firn.restoring`: a definition
//! in the data directory belongs to the restore if it is a link to the staged file.

use crate::backup::backup_format::busy;
use crate::backup::source::Definitions;
use crate::data_directory::IN_DATADIR;
use firn::base::{Error, ErrorKind, Result};
use firn::env::{Env, PosixEnv};
use std::collections::BTreeSet;
use std::fs::{self, File, Metadata};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Name of the staging directory.
pub const STAGE: &str = "#firn.restoring";

/// A function that is called with the name of each step, after this step and before the next one.
/// If it fails, the restore ends there.
pub type Step<'a> = &'a dyn Fn(&str) -> Result<()>;

/// A restored copy in its staging directory.
pub struct Stage<'a> {
    to: &'a Path,
    dir: PathBuf,
    step: Step<'a>,
    _lock: Box<dyn Send + Sync>,
}

impl<'a> Stage<'a> {
    /// Undoes a restore that was cut short, and creates the staging directory.
    ///
    /// # Errors
    /// `AlreadyExists` if the restore would overwrite or mix with something. `to` must be missing
    /// or empty; unless the backup is of a `whole_server`, it may also be a server's data directory
    /// that has neither an engine's directory nor any of the `definitions`. `Busy` while another
    /// restore works there.
    pub fn begin(
        to: &'a Path,
        definitions: &Definitions,
        whole_server: bool,
        step: Step<'a>,
    ) -> Result<Self> {
        let (engine, dir) = (to.join(IN_DATADIR), to.join(STAGE));
        if fs::read_dir(&engine).is_ok_and(|mut inside| inside.next().is_some()) {
            return Err(busy(&engine));
        }
        if dir.exists() {
            let _lock = lock(&dir)?;
            undo(to, &dir)?;
            fs::remove_dir_all(&dir).map_err(|e| Error::io(&e, dir.display()))?;
        }
        require_room(to, definitions, whole_server)?;
        PosixEnv::new().create_dir_all(&dir.join("engine"))?;
        let stage = Self {
            _lock: lock(&dir)?,
            to,
            dir,
            step,
        };
        stage.step("begun")?;
        Ok(stage)
    }

    /// The staging directory of the engine's files.
    pub fn engine(&self) -> PathBuf {
        self.dir.join("engine")
    }

    /// The part of the staging directory for the files that the restore puts into the data
    /// directory beside the engine's directory, such as definition files (`.frm`).
    pub fn definitions_dir(&self) -> PathBuf {
        self.dir.join("definitions")
    }

    /// Reports a step.
    pub fn step(&self, name: &str) -> Result<()> {
        (self.step)(name)
    }

    /// Puts the copy in place. The engine's directory must be complete and synced, and so must be
    /// the files with the paths `server_files`, which are in [`Stage::definitions_dir`].
    pub fn put_in_place(self, definitions: &Definitions, server_files: &[String]) -> Result<()> {
        let env = PosixEnv::new();
        let aside = self.definitions_dir();
        for (path, bytes) in definitions {
            let path = aside.join(path);
            env.create_dir_all(path.parent().unwrap_or(&aside))?;
            write(&path, bytes)?;
        }
        self.step("definitions put aside")?;
        let mut databases = BTreeSet::new();
        for path in definitions.keys().chain(server_files) {
            let place = self.to.join(path);
            let database = place.parent().unwrap_or(self.to);
            env.create_dir_all(database)?;
            let named = fs::hard_link(aside.join(path), &place);
            named.map_err(|e| there_or(&e, &place))?;
            databases.insert(database.to_owned());
            self.step(path)?;
        }
        for database in &databases {
            env.sync_dir(database)?;
        }
        env.sync_dir(self.to)?;
        self.step("definitions in place")?;
        // The rename replaces an empty directory at most.
        let place = self.to.join(IN_DATADIR);
        let renamed = fs::rename(self.engine(), &place);
        renamed.map_err(|e| Error::io(&e, place.display()))?;
        env.sync_dir(self.to)?;
        self.step("in place")?;
        fs::remove_dir_all(&self.dir).map_err(|e| Error::io(&e, self.dir.display()))?;
        env.sync_dir(self.to)
    }
}

fn lock(dir: &Path) -> Result<Box<dyn Send + Sync>> {
    let locked = PosixEnv::new().lock(&dir.join("LOCK"));
    locked.map_err(|error| match error.kind() {
        ErrorKind::Busy => {
            let message = format!("another restore goes on in {}", dir.display());
            Error::new(ErrorKind::Busy, message)
        }
        _ => error,
    })
}

/// Removes what an interrupted restore has put into the data directory `to` beside the engine's
/// directory: the hard links to files of its staging directory `dir`, and then the directories that
/// are empty.
fn undo(to: &Path, dir: &Path) -> Result<()> {
    let aside = dir.join("definitions");
    if aside.is_dir() {
        undo_links(&aside, to).map_err(|e| Error::io(&e, to.display()))?;
    }
    PosixEnv::new().sync_dir(to)
}

/// Removes from `place` each file that is a link to a file of `staged`.
fn undo_links(staged: &Path, place: &Path) -> std::io::Result<()> {
    let same = |a: &Metadata, b: &Metadata| (a.dev(), a.ino()) == (b.dev(), b.ino());
    for entry in fs::read_dir(staged)? {
        let entry = entry?;
        let there = place.join(entry.file_name());
        let ours = entry.metadata()?;
        if ours.is_dir() {
            undo_links(&entry.path(), &there)?;
            // Ignore an error: the directory may have other files, and then it must stay, or it may
            // not exist.
            let _ = fs::remove_dir(&there);
        } else if fs::symlink_metadata(&there).is_ok_and(|found| same(&found, &ours)) {
            fs::remove_file(&there)?;
        }
    }
    Ok(())
}

fn require_room(to: &Path, definitions: &Definitions, whole_server: bool) -> Result<()> {
    let entries = match fs::read_dir(to) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(Error::io(&e, to.display())),
    };
    if entries.count() == 0 {
        return Ok(());
    }
    if whole_server {
        let message = format!(
            "{} is not empty, and the backup is of a whole server",
            to.display()
        );
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    if !to.join("mysql").is_dir() {
        let message = format!("{} is neither empty nor a data directory", to.display());
        return Err(Error::new(ErrorKind::AlreadyExists, message));
    }
    let mut taken = definitions.keys().map(|path| to.join(path));
    match taken.find(|path| path.symlink_metadata().is_ok()) {
        Some(path) => Err(busy(&path)),
        None => Ok(()),
    }
}

/// Writes a new file and syncs it.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let failed = |e: std::io::Error| there_or(&e, path);
    let mut file = File::create_new(path).map_err(failed)?;
    file.write_all(bytes)
        .and_then(|()| file.sync_all())
        .map_err(failed)
}

fn there_or(error: &std::io::Error, path: &Path) -> Error {
    match error.kind() {
        std::io::ErrorKind::AlreadyExists => busy(path),
        _ => Error::io(error, path.display()),
    }
}
