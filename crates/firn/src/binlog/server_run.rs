//! The binary log files of one server run.

use super::BinlogFile;
use super::events::{Description, Events, FORMAT_DESCRIPTION, NextEvent, ROTATE, XID};
use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The binary log files of one server run, from a known one to the last.
///
/// The server gives each new file the number after the highest one that exists. So the server run
/// goes on in the file with the next number, unless that file says that a server run began with it.
/// If no file has the next number, the next file is the one named at the end of the current file:
/// the server writes that name when it finishes a file. If the name or the file that it names is
/// missing, too, the later files of the server run cannot be found.
#[derive(Debug)]
pub struct ServerRunFiles {
    files: Vec<PathBuf>,
    /// Whether the server run ended without closing its last file.
    in_use: bool,
}

impl ServerRunFiles {
    /// Finds the server run that wrote the file `known`. Looks for the file at its path and, if the
    /// binary log has been moved, in the directory `moved_to`.
    ///
    /// # Errors
    /// `NotFound` if a file of the server run is gone; corruption, `Unsupported` and others if a
    /// file cannot be read.
    pub fn find(env: &dyn Env, known: &BinlogFile, moved_to: Option<&Path>) -> Result<Self> {
        let (first, mut description) = locate(env, known, moved_to)?;
        let mut files = vec![first];
        while let Some(next) = next_of(env, &files[files.len() - 1])? {
            let found = Events::open(env, &next)?.description;
            if found.is_first {
                break;
            }
            description = found;
            files.push(next);
        }
        Ok(Self {
            files,
            in_use: description.in_use,
        })
    }

    /// The last file of the server run.
    #[allow(clippy::missing_panics_doc)] // No caller can cause it.
    pub fn last(&self) -> &Path {
        self.files.last().expect("the one that is known")
    }

    /// Whether the server run ended in a crash, which leaves its last file unclosed. If no later
    /// server run has written another file, the server itself reads [`Self::last`] at its next
    /// start, and decides there about the transactions that this run prepared.
    pub fn was_killed(&self) -> bool {
        self.in_use
    }

    /// Returns those of `xids` that the server run committed.
    ///
    /// # Errors
    /// `NotFound` if a file of the server run is missing; `Corruption`, `Unsupported` and `Io` of
    /// reading one. Once all of `xids` are found, the remaining files are not read, so damage in
    /// them is no error.
    pub fn committed(&self, env: &dyn Env, xids: &BTreeSet<u64>) -> Result<BTreeSet<u64>> {
        let mut committed = BTreeSet::new();
        for (at, path) in self.files.iter().enumerate() {
            let (end, in_use) = read(env, path, |xid| {
                if xids.contains(&xid) {
                    committed.insert(xid);
                }
            })?;
            if committed.len() == xids.len() {
                break;
            }
            let is_last = at + 1 == self.files.len();
            match end {
                FileEnd::Rotated(_) if is_last => missing_behind(env, path)?,
                FileEnd::Rotated(_) => {}
                // If the server was killed, its last file may end within the event that it was
                // writing.
                FileEnd::Closed if is_last => {}
                FileEnd::Torn if is_last && in_use => {}
                FileEnd::Damaged | FileEnd::Torn if is_last => {
                    let name = path.display().to_string();
                    return Err(Error::corruption(
                        name,
                        0,
                        "an event of the binary log is damaged",
                    ));
                }
                FileEnd::Closed | FileEnd::Torn | FileEnd::Damaged => {
                    let name = path.display().to_string();
                    let what = "the end of the binary log is lost: another file of its run follows";
                    return Err(Error::corruption(name, 0, what));
                }
            }
        }
        Ok(committed)
    }
}

/// The end of a file.
#[derive(Debug, PartialEq, Eq)]
enum FileEnd {
    /// The file ends with an event that names the next file.
    Rotated(PathBuf),
    /// The file ends with another whole event.
    Closed,
    /// The file ends within an event.
    Torn,
    /// Whole events follow a damaged one.
    Damaged,
}

/// Reads a file and calls `found_xid` with the number of each transaction that is committed in it.
/// Returns how the file ends, and whether the server left it unclosed.
fn read(env: &dyn Env, path: &Path, mut found_xid: impl FnMut(u64)) -> Result<(FileEnd, bool)> {
    let mut events = Events::open(env, path)?;
    let in_use = events.description.in_use;
    let mut end = FileEnd::Closed;
    let end = loop {
        match events.next()? {
            NextEvent::End => break end,
            NextEvent::Torn => break FileEnd::Torn,
            NextEvent::Damaged => {
                break match events.next()? {
                    NextEvent::Event { .. } => FileEnd::Damaged,
                    _ => FileEnd::Torn,
                };
            }
            NextEvent::Event { kind: XID, body } => {
                let Ok(xid) = body.try_into().map(u64::from_ne_bytes) else {
                    break FileEnd::Damaged;
                };
                found_xid(xid);
                end = FileEnd::Closed;
            }
            // The body of the event is a position in the next file (8 bytes), then the name of that
            // file.
            NextEvent::Event { kind: ROTATE, body } => {
                let name = OsStr::from_bytes(body.get(8..).unwrap_or_default());
                end = FileEnd::Rotated(path.with_file_name(name));
            }
            NextEvent::Event {
                kind: FORMAT_DESCRIPTION,
                ..
            } => break FileEnd::Damaged,
            NextEvent::Event { .. } => end = FileEnd::Closed,
        }
    };
    Ok((end, in_use))
}

/// Finds the binary log file `known` at its recorded path or, under the same name, in the directory
/// `moved_to`. Returns its path and the description at its start.
fn locate(
    env: &dyn Env,
    known: &BinlogFile,
    moved_to: Option<&Path>,
) -> Result<(PathBuf, Description)> {
    let moved = moved_to.zip(known.path.file_name());
    let moved = moved.map(|(directory, name)| directory.join(name));
    let mut what = "is missing";
    for path in [Some(known.path.clone()), moved].into_iter().flatten() {
        if !env.exists(&path)? {
            continue;
        }
        let description = Events::open(env, &path)?.description;
        if (description.created, description.server_id) == (known.created, known.server_id) {
            return Ok((path, description));
        }
        what = "is another file of that name";
    }
    let message = format!("binary log {} {what}", known.path.display());
    Err(Error::new(ErrorKind::NotFound, message))
}

/// The file that the server wrote after `path`, if it exists: the file with the next number,
/// otherwise the file that `path` names at its end.
fn next_of(env: &dyn Env, path: &Path) -> Result<Option<PathBuf>> {
    if let Some(next) = successor(path)
        && env.exists(&next)?
    {
        return Ok(Some(next));
    }
    match read(env, path, |_| {})?.0 {
        FileEnd::Rotated(next) if next != path && env.exists(&next)? => Ok(Some(next)),
        _ => Ok(None),
    }
}

/// Checks a server run whose last file ends with the name of a next file, although that file is
/// missing or belongs to another server run. This is no damage if the server was killed after it
/// had finished the one file and before it created the next one. But if files with higher numbers
/// exist, the next file existed, too, and was lost.
///
/// # Errors
/// `NotFound` if the next file was lost.
fn missing_behind(env: &dyn Env, last: &Path) -> Result<()> {
    let (Some(next), Some((stem, number))) = (successor(last), numbered(last)) else {
        return Ok(());
    };
    if env.exists(&next)? {
        return Ok(());
    }
    let later = env.list_dir(directory(last))?.into_iter().any(|name| {
        numbered(Path::new(&name)).is_some_and(|(other, n)| other == stem && n > number)
    });
    match later {
        false => Ok(()),
        true => Err(Error::new(
            ErrorKind::NotFound,
            format!("binary log {} is missing", next.display()),
        )),
    }
}

fn directory(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Splits a file name into stem and number.
fn numbered(path: &Path) -> Option<(&str, u64)> {
    let (stem, number) = path.file_name()?.to_str()?.rsplit_once('.')?;
    let digits = number.len() >= 6 && number.bytes().all(|b| b.is_ascii_digit());
    Some((stem, number.parse().ok().filter(|_| digits)?))
}

/// The file with the next number.
fn successor(path: &Path) -> Option<PathBuf> {
    let (stem, number) = numbered(path)?;
    Some(path.with_file_name(format!("{stem}.{:06}", number.checked_add(1)?)))
}

/// Whether two paths name the same file of the binary log. Such paths differ if the server was
/// started with another path to its binary log.
///
/// # Errors
/// `Corruption`, `Unsupported` and `Io` of reading the files.
pub fn same_file(env: &dyn Env, one: &Path, other: &Path) -> Result<bool> {
    if one == other {
        return Ok(true);
    }
    if one.file_name() != other.file_name() || !env.exists(one)? || !env.exists(other)? {
        return Ok(false);
    }
    let of = |path| Events::open(env, path).map(|events| events.description);
    Ok(of(one)? == of(other)?)
}

#[cfg(test)]
mod tests;
