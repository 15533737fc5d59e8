//! Finds the point in an archive to which a backup is to be recovered.
//!
//! A point lies between two records of one segment. For a wanted seqno or time, recovery ends
//! before the first record beyond it: a later commit, or a later clock record (see
//! [`RecoveryTarget`]).
//!
//! For a wanted binary log position, recovery ends before the first commit with a later position. A
//! change of the catalog reports no position. But a clock record before each change says where the
//! binary log ended at that time. If the binary log ended at or beyond the wanted position, the
//! change comes after that position too, and the point may lie before this clock record. A later
//! commit at or before the wanted position shows that it does not.
//!
//! ```text
//! commit 1 at 100 · clock, binlog ends at 100 · change 2 · commit 3 at 200
//!                 ^ wanted 100                           ^ wanted 101
//! ```

use super::{archived_segments, coverage};
use crate::base::blob_ref::BlobUses;
use crate::base::{Error, ErrorKind, Kind, Result, Seqno};
use crate::env::Env;
use crate::version::FileMeta;
use crate::wal::{self, BinlogPosition, Record, SegmentId, missing_between, segment_name};
use crate::write::Batch;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A position in the server's binary log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BinlogCoordinates {
    /// Name of the binary log file.
    pub name: String,
    /// Offset in the file, bytes.
    pub pos: u64,
}

impl BinlogCoordinates {
    fn of(at: &BinlogPosition<'_>) -> Self {
        Self {
            name: String::from_utf8_lossy(at.name).into_owned(),
            pos: at.pos,
        }
    }

    /// The base name that all files of one binary log share: the file name without directory and
    /// number.
    pub fn base(&self) -> &str {
        let name = self.name.rsplit('/').next().unwrap_or_default();
        name.rsplit_once('.').map_or(name, |(base, _)| base)
    }

    /// File number and offset: a sort key among positions of one [`Self::base`]. The number follows
    /// the last dot.
    pub fn order(&self) -> (u64, u64) {
        let number = self.name.rsplit('.').next().unwrap_or_default();
        (number.parse().unwrap_or(0), self.pos)
    }

    /// Compares this position with `other`; `None` if they belong to different binary logs.
    pub fn to(&self, other: &BinlogCoordinates) -> Option<Ordering> {
        let one_log = self.base() == other.base();
        one_log.then(|| self.order().cmp(&other.order()))
    }
}

/// Where recovery ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecoveryTarget {
    /// At the end of the archive.
    End,
    /// After this commit.
    Seqno(Seqno),
    /// Recovery ends before the first clock record after this time, milliseconds since 1970.
    Time(u64),
    /// Recovery ends after the last commit that the binary log has up to this position.
    Binlog(BinlogCoordinates),
}

/// A point between two records of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryPoint {
    /// The last segment of the backup. If a bulk load was logged in this segment or an earlier one,
    /// the backup's manifest has its files, or the outputs of compactions that replaced them.
    pub backup_segment: SegmentId,
    /// The segment that contains the point.
    pub segment: SegmentId,
    /// Number of records of the segment before the point.
    pub records: u64,
}

/// Files that log records name.
#[derive(Debug, Clone, Default)]
pub struct NamedFiles {
    /// SSTs, by id.
    pub files: BTreeMap<u64, FileMeta>,
    /// Ids of blob files.
    pub blobs: BTreeSet<u64>,
}

/// A recovery point that was found.
#[derive(Debug, Clone)]
pub struct ReachedPoint {
    /// The point.
    pub point: RecoveryPoint,
    /// Seqno of the last commit before the point.
    pub seqno: Seqno,
    /// Time of the last clock record before the point, milliseconds since 1970.
    pub wall_ms: Option<u64>,
    /// The last binary log position that a commit before the point reported.
    pub binlog: Option<BinlogCoordinates>,
    /// The files that the log records between the backup and the point name, and possibly some that
    /// only later records name.
    pub names: NamedFiles,
    /// Changes of the catalog that recovery to this point includes although the binary log may have
    /// them only after the wanted position: seqno and description.
    pub doubtful: Vec<(Seqno, String)>,
}

/// Adds the files that `record` names.
///
/// # Errors
/// `Corruption` of the record.
pub fn names_in(record: &Record<'_>, names: &mut NamedFiles) -> Result<()> {
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

/// Upper bound for the time between a change of the catalog in the engine and its statement in the
/// binary log, milliseconds.
const DDL_MS_MAX: u64 = 60_000;

struct Search<'a> {
    wanted: &'a RecoveryTarget,
    here: ReachedPoint,
    /// The point before the first clock record that says that the binary log ended at or beyond the
    /// wanted position. Discarded when a later commit turns out to be at or before that position.
    candidate: Option<ReachedPoint>,
    found: bool,
    /// Whether some record read so far has a position in the binary log with the base name that the
    /// target has.
    in_binlog: bool,
    /// The segment of the last clock record.
    clock_in: SegmentId,
    /// Recent changes of the catalog: time in milliseconds, seqno, description.
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
                self.here.binlog = Some(BinlogCoordinates::of(at));
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
            // All seqnos of the new epoch are larger than `after`. So the recovery point has at
            // least seqno `after`, even if no commit of the new epoch lies before the point.
            Record::Epoch { after, .. } => self.here.seqno = self.here.seqno.max(*after),
            _ => {}
        }
        self.here.point.records += 1;
        Ok(())
    }

    /// If the last commit is exactly the one at the wanted position, records the recent changes of
    /// the catalog in `doubtful`. Such a change precedes the commit in this log, but may follow it
    /// in the binary log, because the server writes the statement to the binary log only after the
    /// engine has made the change.
    fn doubt(&mut self) {
        let now = self.here.wall_ms.unwrap_or(0);
        let recent = |when: u64| now.saturating_sub(when) <= DDL_MS_MAX;
        self.changes.retain(|(when, ..)| recent(*when));
        self.here.doubtful.clear();
        if let (RecoveryTarget::Binlog(wanted), Some(at)) = (self.wanted, &self.here.binlog)
            && at.to(wanted) == Some(Ordering::Equal)
        {
            let changes = self.changes.iter();
            self.here.doubtful = changes.map(|(_, n, what)| (*n, what.clone())).collect();
        }
    }

    fn is_beyond(&mut self, record: &Record<'_>, seqno: Option<Seqno>) -> bool {
        match (self.wanted, record) {
            (RecoveryTarget::Seqno(last), _) => seqno.is_some_and(|seqno| seqno > *last),
            (RecoveryTarget::Time(last), Record::Clock { wall_ms, .. }) => wall_ms > last,
            (
                RecoveryTarget::Binlog(last),
                Record::Commit {
                    binlog: Some(at), ..
                },
            ) => self.compare(at, last) == Some(Ordering::Greater),
            (
                RecoveryTarget::Binlog(last),
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

    /// Compares a position in the log with the wanted one. The two may be in binary logs of
    /// different names, because the server's binary log was renamed. Positions under another name
    /// count as earlier (`None`) before the first position under the wanted name, and as later
    /// after it.
    fn compare(&mut self, at: &BinlogPosition<'_>, wanted: &BinlogCoordinates) -> Option<Ordering> {
        let found = BinlogCoordinates::of(at).to(wanted);
        self.in_binlog |= found.is_some();
        match found {
            None if self.in_binlog => Some(Ordering::Greater),
            found => found,
        }
    }
}

/// Finds the point for `wanted` in the archive, behind a backup that ends with segment
/// `backup_segment` and commit `seqno`. If the target lies before the end of the backup, the point
/// is the end of the backup.
///
/// # Errors
/// `NotFound` if the archive lacks segments before the point or ends before it; the message names
/// the missing segment and the last commit that can be reached. `Corruption`; `Unsupported` for a
/// newer format; `Io`.
pub fn find_point(
    env: &dyn Env,
    archive: &Path,
    backup_segment: SegmentId,
    seqno: Seqno,
    wanted: &RecoveryTarget,
) -> Result<ReachedPoint> {
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
        here: ReachedPoint {
            point: RecoveryPoint {
                backup_segment,
                segment: backup_segment,
                records: u64::MAX,
            },
            seqno,
            wall_ms: None,
            binlog: None,
            names: NamedFiles::default(),
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
        // `here.names` has the files that the records read so far name. Records behind the recovery
        // point may name some of them, which does no harm.
        place.names = here.names;
        return Ok(place);
    }
    let to_the_end = || ReachedPoint {
        point: RecoveryPoint {
            backup_segment,
            segment: last,
            records: u64::MAX,
        },
        ..here.clone()
    };
    let gap = lost.is_some();
    let reached = match wanted {
        _ if found => return Ok(here),
        RecoveryTarget::End => !gap,
        RecoveryTarget::Seqno(wanted) => here.seqno >= *wanted,
        // The archive's file `COVERED` says up to which time the archive has all commits, and which
        // segment was the last one when the file was written. Ignore the file if a later segment
        // has a clock record. No clock record is beyond the wanted time, so the clock was set back
        // after the file was written, and commits that the archive lacks may have earlier times
        // than the file says.
        RecoveryTarget::Time(wanted) => coverage(env, archive)?.is_some_and(|covered| {
            let segments = clock_in.max(backup_segment)..=last;
            covered.until_ms >= *wanted && segments.contains(&covered.segment) && !gap
        }),
        RecoveryTarget::Binlog(wanted) => here
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
        (RecoveryTarget::Binlog(wanted), Some(_)) if !in_binlog => {
            format!("; nothing in it is of a binary log {}.*", wanted.base())
        }
        _ => String::new(),
    };
    let message = format!("{why}: it leads to commit {}{until}{foreign}", here.seqno);
    Err(Error::new(ErrorKind::NotFound, message))
}

#[cfg(test)]
mod tests;
