//! Marks of running commands in a target.
//!
//! The files that a backup has sent are named by no object until the backup is published, so a
//! prune at the same time would remove them. Each command first puts its mark and then looks for
//! marks of others, so of two commands the later one sees the other. If a command was cut short,
//! its mark stays and is reported, and `prune --force` removes it.

use super::backup_format::timestamp;
use super::target::Target;
use firn::base::{Error, ErrorKind, Result};
use firn::env::{Env, PosixEnv};

/// Start of the names of marks that belong to prunes.
const PRUNE: &str = "prune-";

/// The mark of this command.
pub struct InProgress<'a> {
    target: &'a Target,
    /// Id of the command, and name of its mark.
    pub id: String,
}

impl<'a> InProgress<'a> {
    /// Puts the mark of a backup. The id of the backup is the current time, with a number behind it
    /// if a mark exists with that time or `taken` says that a backup has it.
    ///
    /// # Errors
    /// `Busy` while a prune is under way.
    pub fn of_backup(target: &'a Target, taken: &dyn Fn(&str) -> Result<bool>) -> Result<Self> {
        let mark = Self::put(target, "", taken)?;
        mark.alone(|other| other.starts_with(PRUNE))
    }

    /// Puts the mark of a prune. With `force`, removes all other marks: the commands that put them
    /// were cut short.
    ///
    /// # Errors
    /// `Busy` while another command is under way.
    pub fn of_prune(target: &'a Target, force: bool) -> Result<Self> {
        let mark = Self::put(target, PRUNE, &|_| Ok(false))?;
        if force {
            for other in mark.others()? {
                target.remove(&format!("running/{other}"))?;
            }
        }
        mark.alone(|_| true)
    }

    fn put(target: &'a Target, kind: &str, taken: &dyn Fn(&str) -> Result<bool>) -> Result<Self> {
        let time = timestamp(PosixEnv::new().wall_micros() / 1_000_000);
        let mut next = 1;
        loop {
            // Backups of one second get different ids, in order.
            let id = match next {
                1 => format!("{kind}{time}"),
                _ => format!("{kind}{time}_{next:03}"),
            };
            next += 1;
            match target.put_new(&format!("running/{id}"), Vec::new()) {
                Ok(()) => {}
                Err(error) if *error.kind() == ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
            let mark = Self { target, id };
            // Ask `taken` whether the target has a backup with this id only after this mark is in
            // the target. Another backup with the same id would keep its mark, which has the same
            // name, until the backup is published. This mark could be put only once that mark was
            // gone, so `taken` sees the published backup.
            match taken(&mark.id)? {
                true => mark.remove()?,
                false => return Ok(mark),
            }
        }
    }

    fn others(&self) -> Result<Vec<String>> {
        let names = self.target.list("running")?.into_iter();
        let names = names.map(|(name, _)| name);
        Ok(names.filter(|name| *name != self.id).collect())
    }

    /// Returns `self` if `refused` is false for the marks of all other commands. Otherwise removes
    /// the own mark, `self`.
    ///
    /// # Errors
    /// `Busy` if another mark is refused.
    fn alone(self, refused: impl Fn(&str) -> bool) -> Result<Self> {
        let others = self.others()?;
        let Some(other) = others.iter().find(|other| refused(other)) else {
            return Ok(self);
        };
        let message = match other.strip_prefix(PRUNE) {
            Some(time) => format!("a prune is under way since {time}, and removes files"),
            None => {
                format!("backup {other} is under way, and its files are named by nothing yet")
            }
        };
        self.remove()?;
        let message = format!("{message}; 'prune --force' if it was cut short");
        Err(Error::new(ErrorKind::Busy, message))
    }

    /// Whether the mark is still there: a forced prune removes it.
    pub fn is_there(&self) -> Result<bool> {
        let marks = self.target.list("running")?;
        Ok(marks.iter().any(|(name, _)| *name == self.id))
    }

    /// Removes the mark, because its command has ended.
    pub fn remove(&self) -> Result<()> {
        self.target.remove(&format!("running/{}", self.id))
    }
}
