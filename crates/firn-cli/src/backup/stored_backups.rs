//! The backups that a target has.

use super::backup_format::{Backup, FORMAT, FORMAT_WITH_SERVER};
use super::target::Target;
use firn::base::checksum::xxh3;
use firn::base::{Error, ErrorKind, Result};
use serde::Deserialize;

/// Puts the object of a backup into the target: from now on the target has this backup.
pub fn publish(backup: &Backup, target: &Target) -> Result<()> {
    let json = serde_json::to_vec(backup).expect("keys are strings");
    let name = format!("backups/{}-{:016x}.json", backup.id, xxh3(&json));
    target.put_new(&name, json)
}

/// The name of a backup's object, and the id and checksum in that name.
pub struct Entry {
    pub object: String,
    pub id: String,
    checksum: u64,
}

/// The backups of a target, oldest first.
pub fn entries(target: &Target) -> Result<Vec<Entry>> {
    let parse = |(name, _): (String, u64)| {
        let (id, checksum) = name.strip_suffix(".json")?.rsplit_once('-')?;
        Some(Entry {
            object: format!("backups/{name}"),
            id: id.to_owned(),
            checksum: u64::from_str_radix(checksum, 16).ok()?,
        })
    };
    Ok(target
        .list("backups")?
        .into_iter()
        .filter_map(parse)
        .collect())
}

impl Entry {
    /// The names of the objects that a damaged backup holds, as far as they can still be read in
    /// the backup's own object.
    pub fn remains(&self, target: &Target) -> Result<Vec<String>> {
        let bytes = target.get(&self.object)?;
        let text = String::from_utf8_lossy(&bytes);
        let words = text.split('"').filter(|word| word.starts_with("files/"));
        Ok(words.map(str::to_owned).collect())
    }

    /// Reads the backup.
    ///
    /// # Errors
    /// `Corruption` if its object is not as it was written, `Unsupported` for a newer format.
    pub fn read(&self, target: &Target) -> Result<Backup> {
        let json = target.get(&self.object)?;
        let damaged = |what: String| Error::corruption(&self.object, 0, what);
        if xxh3(&json) != self.checksum {
            return Err(damaged("not as it was written".to_owned()));
        }
        let version: FormatVersion =
            serde_json::from_slice(&json).map_err(|e| damaged(e.to_string()))?;
        if ![FORMAT, FORMAT_WITH_SERVER].contains(&version.format) {
            return Err(Error::unsupported(format_args!(
                "{}: format {}",
                self.object, version.format
            )));
        }
        let backup: Backup = serde_json::from_slice(&json).map_err(|e| damaged(e.to_string()))?;
        match backup.foreign_name() {
            Some(name) => Err(damaged(format!("{name:?} is not what a backup has"))),
            None => Ok(backup),
        }
    }
}

#[derive(Deserialize)]
struct FormatVersion {
    format: u32,
}

/// The backup with this id; for `latest` the newest one that can be read, with a note of those that
/// cannot.
pub fn find(target: &Target, id: &str, notes: &mut Vec<String>) -> Result<Backup> {
    let found = entries(target)?;
    if id != "latest"
        && let Some(entry) = found.iter().find(|entry| entry.id == id)
    {
        return entry.read(target);
    }
    let mut first = None;
    for entry in found.iter().rev().filter(|_| id == "latest") {
        match entry.read(target) {
            Ok(backup) => return Ok(backup),
            Err(error) => {
                notes.push(format!("backup {} is left out: {error}", entry.id));
                first.get_or_insert(error);
            }
        }
    }
    let message = format!("{} has no backup {id}", target.name());
    Err(first.unwrap_or_else(|| Error::new(ErrorKind::NotFound, message)))
}
