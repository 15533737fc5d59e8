//! Records which archive belongs to which database, and how far the archive reaches.
//!
//! The file `ARCHIVING` of the database and the file `ARCHIVE` of the archive hold the same id. A
//! third file, `COVERED` in the archive, holds a time up to which the archive has every commit. The
//! segments alone do not tell this time: while nothing is committed, no record is logged.
//!
//! - *An archive has no gaps.* A database that was without an archive for a while, or had another
//!   one, begins with a new id, so it cannot continue its old archive. An archive that was moved to
//!   another directory keeps its id and is continued.
//! - *A database gives up its archive only if it is opened without one.* If it is opened with
//!   another directory, and that has no file `ARCHIVE`, the archive may have been moved to a file
//!   system that is not mounted there yet. So the database keeps the id, and the segments and files
//!   that wait for the archive; archiving fails until the archive is in that directory.
//! - *A directory without `ARCHIVE` is made an archive at most once.* `ARCHIVING` records that this
//!   was done. If `ARCHIVE` is missing later, the directory is taken for a mount point whose file
//!   system is not mounted, and archiving fails.
//! - *The id does not tell a database from a copy of its directory.* The archiver therefore
//!   compares segments ([`super::archiver`]).

use super::super::copy_files::{read_text, write_text};
use super::archived_segments;
use crate::base::checksum::xxh3;
use crate::base::{Error, ErrorKind, Result};
use crate::env::Env;
use crate::store::PENDING;
use crate::wal::SegmentId;
use std::path::Path;

/// File in an archive that holds the database's id.
pub const ARCHIVE_FILE: &str = "ARCHIVE";
/// File in a database that names its archive.
const ARCHIVING_FILE: &str = "ARCHIVING";
const COVERED_FILE: &str = "COVERED";

/// The archiving state of a database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArchiveIdentity {
    /// The id that the database shares with its archives.
    pub id: String,
    /// The first segment whose files the archive holds.
    pub from: SegmentId,
    /// Path of the archive; an empty string while the log is not archived.
    place: String,
    /// Whether a directory was made the archive of this database: the file `ARCHIVE` with this id
    /// was written into it. It may have been another directory than `place`, if the archive was
    /// moved to `place` later.
    pub(super) claimed: bool,
}

/// A time up to which the archive has every commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Coverage {
    /// Milliseconds since 1970.
    pub until_ms: u64,
    /// The last archived segment at that time.
    pub segment: SegmentId,
}

impl ArchiveIdentity {
    fn encode(&self) -> String {
        let Self {
            id,
            from,
            place,
            claimed,
        } = self;
        format!("firn archiving 1\nid {id}\nfrom {from}\nplace {place}\nclaimed {claimed}\nend\n")
    }

    fn decode(text: &str) -> Option<Self> {
        let mut lines = text.lines().skip(1);
        let read = Self {
            id: lines.next()?.strip_prefix("id ")?.to_owned(),
            from: lines.next()?.strip_prefix("from ")?.parse().ok()?,
            place: lines.next()?.strip_prefix("place ")?.to_owned(),
            claimed: lines.next()?.strip_prefix("claimed ")?.parse().ok()?,
        };
        (read.encode() == text).then_some(read)
    }
}

fn read_archiving(env: &dyn Env, dir: &Path) -> Result<Option<ArchiveIdentity>> {
    let Some(text) = read_text(env, &dir.join(ARCHIVING_FILE))? else {
        return Ok(None);
    };
    let damaged = || Error::corruption(ARCHIVING_FILE, 0, "not as it was written");
    ArchiveIdentity::decode(&text).ok_or_else(damaged).map(Some)
}

/// The id that the database in `dir` shares with its archive; `None` if its log is not archived.
///
/// # Errors
/// `Corruption` of the file; `Io`.
pub fn archive_of(env: &dyn Env, dir: &Path) -> Result<Option<String>> {
    let archiving = read_archiving(env, dir)?.filter(|archiving| !archiving.place.is_empty());
    Ok(archiving.map(|archiving| archiving.id))
}

/// Begins, continues or ends archiving the log of the database in `dir`. With `None` as `archive`,
/// archiving ends. A later call with a directory then begins a new archive, with a new id, whose
/// first segment is `first`; the log must not have written to that segment yet. If archiving has
/// not ended and the database has an archive already, the call continues it. If `archive` is not
/// the directory that the database has recorded, the archive must have been moved to `archive`,
/// otherwise [`claim`] fails.
///
/// # Errors
/// `Unsupported` if the file system of `dir` has no hard links; `InvalidArgument` for a path with a
/// line break; `Corruption` of the database's file; `NoSpace` and `Io`.
pub fn begin_archiving(
    env: &dyn Env,
    dir: &Path,
    archive: Option<&Path>,
    first: SegmentId,
) -> Result<Option<ArchiveIdentity>> {
    let before = read_archiving(env, dir)?;
    let place = archive.map_or_else(String::new, |path| path.display().to_string());
    if place.contains('\n') {
        return Err(Error::invalid("the name of an archive has several lines"));
    }
    match (&before, archive) {
        (None, None) => return Ok(None),
        (Some(known), _) if known.place == place => {
            return Ok(before.filter(|_| archive.is_some()));
        }
        (Some(known), Some(archive))
            if known.claimed
                || !known.place.is_empty()
                    && owner(env, archive).is_ok_and(|owner| owner == known.id) =>
        {
            let moved = ArchiveIdentity {
                place,
                claimed: true,
                ..known.clone()
            };
            write_archiving(env, dir, &moved)?;
            return Ok(Some(moved));
        }
        _ => {}
    }
    let pending = dir.join(PENDING);
    env.create_dir_all(&pending)?;
    env.sync_dir(dir)?;
    for name in env.list_dir(&pending)? {
        env.remove(&pending.join(name))?;
    }
    let seed = format!("{} {first} {}", env.wall_micros(), dir.display());
    let archiving = ArchiveIdentity {
        id: format!("{:016x}", xxh3(seed.as_bytes())),
        from: first,
        place,
        claimed: false,
    };
    write_archiving(env, dir, &archiving)?;
    if archive.is_none() {
        return Ok(None);
    }
    let probe = pending.join("probe");
    env.link(&dir.join(ARCHIVING_FILE), &probe)
        .map_err(|error| match error.kind() {
            ErrorKind::Unsupported => Error::unsupported(format_args!(
                "the log is not archived: files in {} cannot have two names",
                dir.display()
            )),
            _ => error,
        })?;
    env.remove(&probe)?;
    Ok(Some(archiving))
}

/// The id of the database that owns the archive.
///
/// # Errors
/// `NotFound` if the directory is no archive; `Corruption` of its file; `Io`.
pub fn owner(env: &dyn Env, archive: &Path) -> Result<String> {
    let Some(text) = read_text(env, &archive.join(ARCHIVE_FILE))? else {
        let message = format!("{} is no archive of a log", archive.display());
        return Err(Error::new(ErrorKind::NotFound, message));
    };
    let id = text
        .lines()
        .nth(1)
        .and_then(|line| line.strip_prefix("id "));
    let id = id.filter(|id| owner_text(id) == text);
    let damaged = || Error::corruption(ARCHIVE_FILE, 0, "not as it was written");
    id.map(str::to_owned).ok_or_else(damaged)
}

fn owner_text(id: &str) -> String {
    format!("firn archive 1\nid {id}\nend\n")
}

fn write_archiving(env: &dyn Env, dir: &Path, archiving: &ArchiveIdentity) -> Result<()> {
    write_text(env, dir, ARCHIVING_FILE, &archiving.encode())
}

/// Checks that the directory `archive` is the archive of the database in `dir`. If the database has
/// no archive in any directory yet, and `archive` has no segments, makes `archive` its archive.
pub(super) fn claim(
    env: &dyn Env,
    dir: &Path,
    archive: &Path,
    archiving: &mut ArchiveIdentity,
) -> Result<()> {
    let at = archive.display();
    match owner(env, archive) {
        Ok(other) if other == archiving.id => {}
        Ok(_) => {
            let message = format!(
                "{at} is the archive of another database, or of this one before it was restored or was without an \
                 archive: a new one is needed"
            );
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        Err(error) if *error.kind() != ErrorKind::NotFound => return Err(error),
        Err(_) if archiving.claimed => {
            let message = format!(
                "{at} has no file {ARCHIVE_FILE}, and the archive of this database has one: its file system may not be \
                 mounted, or the archive was not moved there; a new archive begins after a start without any"
            );
            return Err(Error::new(ErrorKind::NotFound, message));
        }
        Err(_) if !archived_segments(env, archive)?.is_empty() => {
            let message = format!(
                "{at} has log segments, but no file {ARCHIVE_FILE} that says whose: a new archive begins in an empty directory"
            );
            return Err(Error::new(ErrorKind::AlreadyExists, message));
        }
        Err(_) => write_text(env, archive, ARCHIVE_FILE, &owner_text(&archiving.id))?,
    }
    if !archiving.claimed {
        let claimed = ArchiveIdentity {
            claimed: true,
            ..archiving.clone()
        };
        write_archiving(env, dir, &claimed)?;
        *archiving = claimed;
    }
    Ok(())
}

/// The coverage that the archive records, if any.
///
/// # Errors
/// `Corruption` of the file; `Io`.
pub fn coverage(env: &dyn Env, archive: &Path) -> Result<Option<Coverage>> {
    let Some(text) = read_text(env, &archive.join(COVERED_FILE))? else {
        return Ok(None);
    };
    let read = |text: &str| {
        let line = text.lines().nth(1)?;
        let (until_ms, segment) = line.strip_prefix("until ")?.split_once(" segment ")?;
        Some(Coverage {
            until_ms: until_ms.parse().ok()?,
            segment: segment.parse().ok()?,
        })
    };
    let found = read(&text).filter(|found| covered_text(*found) == text);
    let damaged = || Error::corruption(COVERED_FILE, 0, "not as it was written");
    found.ok_or_else(damaged).map(Some)
}

fn covered_text(covered: Coverage) -> String {
    let Coverage { until_ms, segment } = covered;
    format!("firn archive covers 1\nuntil {until_ms} segment {segment}\nend\n")
}

pub(super) fn write_coverage(env: &dyn Env, archive: &Path, covered: Coverage) -> Result<()> {
    write_text(env, archive, COVERED_FILE, &covered_text(covered))
}
