//! Finding the place in an archive up to which a backup is to be brought.

use super::{archived_segments, coverage};
use crate::base::{Error, ErrorKind, Kind, Result, Seqno};
use crate::env::Env;
use crate::rowcode::BlobUses;
use crate::version::FileMeta;
use crate::wal::{self, BinlogPosition, Record, SegmentId, missing_between, segment_name};
use crate::write::Batch;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A place in the server's binary log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Name of the file.
    pub name: String,
    /// Position in it.
    pub pos: u64,
}

impl Place {
    fn of(at: &BinlogPosition<'_>) -> Self {
        Self {
            name: String::from_utf8_lossy(at.name).into_owned(),
            pos: at.pos,
        }
    }

    /// The names of all files of one binary log, without directory and number.
    pub fn base(&self) -> &str {
        let name = self.name.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or(name, |(base, _)| base)
    }

    /// Comes later the greater it is, among places with one [`Self::base`]. Files are numbered, behind the last dot.
    pub fn order(&self) -> (u64, u64) {
        let number = self.name.rsplit('.').next().unwrap_or_default();
        (number.parse().unwrap_or(0), self.pos)
    }

    /// How the place lies to `other`; none if they are of two binary logs.
    pub fn to(&self, other: &Place) -> Option<Ordering> {
        let one_log = self.base() == other.base();
        one_log.then(|| self.order().cmp(&other.order()))
    }
}

/// Up to where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Everything there is.
    End,
    /// This commit, included.
    Seqno(Seqno),
    /// Milliseconds since 1970: what the clock said then, included.
    Time(u64),
    /// Whatever the binary log has up to here.
    Binlog(Place),
}

/// A place between two records of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Point {
    /// The last segment that the backup has: files of loads up to it are in its manifest, as far as they live.
    pub backup_segment: SegmentId,
    /// The segment with the point.
    pub segment: SegmentId,
    /// Records of that segment before it.
    pub records: u64,
}

/// Files that records name.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// Of entries, by id.
    pub files: BTreeMap<u64, FileMeta>,
    /// Of values out of line.
    pub blobs: BTreeSet<u64>,
}

/// A point, and what is known of it.
#[derive(Debug, Clone)]
pub struct Reached {
    /// The point.
    pub point: Point,
    /// The last commit before it.
    pub seqno: Seqno,
    /// What the clock said last, milliseconds since 1970.
    pub wall_ms: Option<u64>,
    /// The last place in the binary log that a commit told.
    pub binlog: Option<Place>,
    /// What the log between backup and point names, at least.
    pub names: Names,
    /// Changes of the catalog that are in, and may come behind the wanted place in the binary log: commit and description.
    pub doubtful: Vec<(Seqno, String)>,
}

/// Adds what `record` names.
///
/// # Errors
/// `Corruption` of the record.
pub fn names_in(record: &Record<'_>, names: &mut Names) -> Result<()> {
    let mut uses = BlobUses::default();
    match record {
        Record::Batch { batch, .. } | Record::Prepare { batch, .. } => {
            let mut counted = Ok(());
            Batch::from_bytes(batch.to_vec())?.for_each(|entry| {
                if entry.kind == Kind::PutBlobs && counted.is_ok() {
                    counted = uses.add_tail(entry.value.tail);
                }
            })?;
            counted?;
        }
        Record::PrepareRun { info, .. }
        | Record::RunIngest { info, .. }
        | Record::Load { info, .. } => {
            let files = FileMeta::decode_all(info)?;
            let damaged = || Error::corruption("", 0, "files that a record names");
            for file in files.ok_or_else(damaged)? {
                file.blobs.iter().for_each(|&used| uses.add(used));
                names.files.insert(file.file_id, file);
            }
        }
        _ => {}
    }
    names.blobs.extend(uses.iter().map(|used| used.file));
    Ok(())
}

/// A statement that changes the catalog writes to the binary log when it is done with the engine, so long after at most,
/// milliseconds.
const DDL_MS_MAX: u64 = 60_000;

struct Search<'a> {
    wanted: &'a Destination,
    here: Reached,
    /// The binary log had reached the point here, perhaps before the last commit up to it was written to this log.
    candidate: Option<Reached>,
    found: bool,
    /// A place with the name of the one that is wanted was seen.
    in_binlog: bool,
    /// The segment with the last look at the clock.
    clock_in: SegmentId,
    /// Changes of the catalog not long ago: when, which.
    changes: Vec<(u64, Seqno, String)>,
}

impl Search<'_> {
    fn visit(&mut self, segment: SegmentId, record: &Record<'_>) -> Result<()> {
        if self.here.point.segment != segment {
            self.here.point.segment = segment;
            self.here.point.records = 0;
        }
        let seqno = match record {
            Record::Batch { seqno, .. }
            | Record::Commit { seqno, .. }
            | Record::RunIngest { seqno, .. }
            | Record::SchemaChange { seqno, .. } => Some(*seqno),
            _ => None,
        };
        if self.is_beyond(record, seqno) {
            self.found = true;
            return Err(Error::new(ErrorKind::Interrupted, "the point is found"));
        }
        names_in(record, &mut self.here.names)?;
        self.here.seqno = seqno.unwrap_or(self.here.seqno);
        match record {
            Record::Clock { wall_ms, .. } => {
                self.here.wall_ms = Some(*wall_ms);
                self.clock_in = segment;
            }
            Record::Commit {
                binlog: Some(at), ..
            } => {
                self.here.binlog = Some(Place::of(at));
                self.candidate = None;
                self.doubt();
            }
            Record::SchemaChange {
                seqno, description, ..
            } => {
                let what = String::from_utf8_lossy(description).into_owned();
                let when = self.here.wall_ms.unwrap_or(0);
                self.changes.push((when, *seqno, what));
            }
            // Reads of what comes next are at this seqno at least.
            Record::Epoch { after, .. } => self.here.seqno = self.here.seqno.max(*after),
            _ => {}
        }
        self.here.point.records += 1;
        Ok(())
    }

    /// The last commit up to the wanted place may be that which came before a change of the catalog, in the binary log,
    /// and after it here: the change was made, and not written there yet.
    fn doubt(&mut self) {
        let now = self.here.wall_ms.unwrap_or(0);
        let recent = |when: u64| now.saturating_sub(when) <= DDL_MS_MAX;
        self.changes.retain(|(when, ..)| recent(*when));
        self.here.doubtful.clear();
        if let (Destination::Binlog(wanted), Some(at)) = (self.wanted, &self.here.binlog)
            && at.to(wanted) == Some(Ordering::Equal)
        {
            let changes = self.changes.iter();
            self.here.doubtful = changes.map(|(_, n, what)| (*n, what.clone())).collect();
        }
    }

    fn is_beyond(&mut self, record: &Record<'_>, seqno: Option<Seqno>) -> bool {
        match (self.wanted, record) {
            (Destination::Seqno(last), _) => seqno.is_some_and(|seqno| seqno > *last),
            (Destination::Time(last), Record::Clock { wall_ms, .. }) => wall_ms > last,
            (
                Destination::Binlog(last),
                Record::Commit {
                    binlog: Some(at), ..
                },
            ) => self.compare(at, last) == Some(Ordering::Greater),
            (
                Destination::Binlog(last),
                Record::Clock {
                    binlog: Some(at), ..
                },
            ) => {
                let reached = self.compare(at, last).is_some_and(Ordering::is_ge);
                if reached && self.candidate.is_none() {
                    self.candidate = Some(self.here.clone());
                }
                false
            }
            _ => false,
        }
    }

    /// How a place that the log tells lies to the one that is wanted. The server's binary log may have got another name:
    /// what has that comes before all of the wanted name, or behind it once that was seen.
    fn compare(&mut self, at: &BinlogPosition<'_>, wanted: &Place) -> Option<Ordering> {
        let found = Place::of(at).to(wanted);
        self.in_binlog |= found.is_some();
        match found {
            None if self.in_binlog => Some(Ordering::Greater),
            found => found,
        }
    }
}

/// Finds the place of `wanted` behind a backup whose last segment is `backup_segment`, and last commit `seqno`. A wish
/// from before that backup ends at the backup.
///
/// # Errors
/// `NotFound` if the archive lacks segments before the place, or does not reach it: the message says which, and how far
/// it does. `Corruption`.
pub fn find_point(
    env: &dyn Env,
    archive: &Path,
    backup_segment: SegmentId,
    seqno: Seqno,
    wanted: &Destination,
) -> Result<Reached> {
    let mut later = archived_segments(env, archive)?;
    later.retain(|id| *id > backup_segment);
    let mut last = backup_segment;
    let mut lost = None;
    for &id in &later {
        lost = missing_between(env, archive, last, id)?;
        if lost.is_some() {
            break;
        }
        last = id;
    }
    let mut search = Search {
        wanted,
        here: Reached {
            point: Point {
                backup_segment,
                segment: backup_segment,
                records: u64::MAX,
            },
            seqno,
            wall_ms: None,
            binlog: None,
            names: Names::default(),
            doubtful: Vec::new(),
        },
        candidate: None,
        found: false,
        in_binlog: false,
        clock_in: 0,
        changes: Vec::new(),
    };
    let mut visit = |segment: SegmentId, record: Record<'_>| search.visit(segment, &record);
    let replayed = match later.first() {
        Some(&first) if last >= first => {
            wal::replay_archived(env, archive, first, last, &mut visit).map(drop)
        }
        _ => Ok(()),
    };
    if !search.found {
        replayed?;
    }
    let Search {
        here,
        candidate,
        found,
        in_binlog,
        clock_in,
        ..
    } = search;
    if let Some(mut place) = candidate {
        // Names behind it do no harm.
        place.names = here.names;
        return Ok(place);
    }
    let to_the_end = || Reached {
        point: Point {
            backup_segment,
            segment: last,
            records: u64::MAX,
        },
        ..here.clone()
    };
    let gap = lost.is_some();
    let reached = match wanted {
        _ if found => return Ok(here),
        Destination::End => !gap,
        Destination::Seqno(wanted) => here.seqno >= *wanted,
        // What was written after that, and says that it is earlier, was written by a clock that was set back: of what came
        // then, nothing is known.
        Destination::Time(wanted) => coverage(env, archive)?.is_some_and(|covered| {
            let segments = clock_in.max(backup_segment)..=last;
            covered.until_ms >= *wanted && segments.contains(&covered.segment) && !gap
        }),
        Destination::Binlog(wanted) => here
            .binlog
            .as_ref()
            .is_some_and(|at| at.to(wanted) == Some(Ordering::Equal)),
    };
    if reached {
        return Ok(to_the_end());
    }
    let missing = segment_name(lost.unwrap_or(last + 1));
    let why = match gap {
        true => format!("the archive lacks {missing}, but has later ones"),
        false => format!("the archive ends before {missing}"),
    };
    let until = match (here.wall_ms, &here.binlog) {
        (Some(ms), Some(at)) => format!(", {ms} ms since 1970, {}:{}", at.name, at.pos),
        (Some(ms), None) => format!(", {ms} ms since 1970"),
        (None, Some(at)) => format!(", {}:{}", at.name, at.pos),
        (None, None) => String::new(),
    };
    let foreign = match (wanted, &here.binlog) {
        (Destination::Binlog(wanted), Some(_)) if !in_binlog => {
            format!("; nothing in it is of a binary log {}.*", wanted.base())
        }
        _ => String::new(),
    };
    let message = format!("{why}: it leads to commit {}{until}{foreign}", here.seqno);
    Err(Error::new(ErrorKind::NotFound, message))
}

#[cfg(test)]
mod tests;
