//! The log archive: the ranges of the log that it covers, and the removal of files that no backup
//! needs.

use super::backup_format::Backup;
use chrono::{DateTime, Local};
use firn::backup::{NamedFiles, archive_owner, archived_segments, coverage, names_in};
use firn::base::{Error, Result};
use firn::env::{Env, PosixEnv};
use firn::store::{FileKind, file_name, parse_file_name};
use firn::wal::frame::GroupHeader;
use firn::wal::{Record, SegmentPiece, dump_segment, missing_between, segment_name};
use serde::Serialize;
use std::collections::HashSet;
use std::path::Path;

/// Consecutive log segments, with the seqnos and times of the first and the last commit in them.
#[derive(Debug, Default, Serialize)]
pub struct SegmentRange {
    pub first_segment: u64,
    pub last_segment: u64,
    pub first_seqno: Option<u64>,
    pub last_seqno: Option<u64>,
    pub first_time: Option<String>,
    pub last_time: Option<String>,
}

/// Counts of files removed from an archive.
#[derive(Debug, Default, Serialize)]
pub struct Removed {
    pub segments: usize,
    pub files: usize,
    pub bytes: u64,
}

/// A time in the local time zone.
pub fn local_time(wall_ms: u64) -> String {
    match DateTime::from_timestamp_millis(wall_ms as i64) {
        Some(time) => time
            .with_timezone(&Local)
            .format("%Y-%m-%d %H:%M:%S%.3f %:z")
            .to_string(),
        None => format!("{wall_ms} ms since 1970"),
    }
}

/// The seqnos of the first and the last commit in a segment, and the first and the last time that
/// it records.
#[derive(Default)]
struct SegmentEnds {
    seqnos: Option<(u64, u64)>,
    times: Option<(u64, u64)>,
}

fn ends_of(env: &dyn Env, archive: &Path, segment: u64) -> Result<SegmentEnds> {
    let mut ends = SegmentEnds::default();
    let mut see = |record: &Record<'_>| match record {
        Record::Batch { seqno, .. }
        | Record::Commit { seqno, .. }
        | Record::RunIngest { seqno, .. }
        | Record::SchemaChange { seqno, .. } => {
            let first = ends.seqnos.map_or(*seqno, |(first, _)| first);
            ends.seqnos = Some((first, *seqno));
        }
        Record::Clock { wall_ms, .. } => {
            let first = ends.times.map_or(*wall_ms, |(first, _)| first);
            ends.times = Some((first, *wall_ms));
        }
        _ => {}
    };
    dump_segment(env, archive, segment, &mut |piece| {
        if let SegmentPiece::Group { records, .. } = piece {
            records.iter().for_each(&mut see);
        }
    })?;
    Ok(ends)
}

/// The ranges of the log that an archive covers, oldest first.
pub fn ranges(archive: &Path) -> Result<Vec<SegmentRange>> {
    let env = PosixEnv::new();
    archive_owner(&env, archive)?;
    let mut ranges: Vec<SegmentRange> = Vec::new();
    let segments = archived_segments(&env, archive)?;
    for &id in &segments {
        let before = ranges.last().map(|range| range.last_segment);
        let gap = before.map(|before| missing_between(&env, archive, before, id));
        match (ranges.last_mut(), gap.transpose()?.flatten()) {
            (Some(range), None) => range.last_segment = id,
            _ => ranges.push(SegmentRange {
                first_segment: id,
                last_segment: id,
                ..SegmentRange::default()
            }),
        }
    }
    for range in &mut ranges {
        // Look for the first and the last segment that have commits. Do not iterate over all
        // numbers in the range: an epoch begins with numbers far above those of the epoch before.
        let within = range.first_segment..=range.last_segment;
        let within: Vec<u64> = segments
            .iter()
            .copied()
            .filter(|id| within.contains(id))
            .collect();
        for &id in &within {
            let ends = ends_of(&env, archive, id)?;
            range.first_seqno = ends.seqnos.map(|(first, _)| first);
            range.first_time = ends.times.map(|(first, _)| local_time(first));
            if range.first_seqno.is_some() {
                break;
            }
        }
        for &id in within.iter().rev() {
            let ends = ends_of(&env, archive, id)?;
            range.last_seqno = ends.seqnos.map(|(_, last)| last);
            range.last_time = ends.times.map(|(_, last)| local_time(last));
            if range.last_seqno.is_some() {
                break;
            }
        }
    }
    if let Some(range) = ranges.last_mut()
        && let Some(covered) = coverage(&env, archive)?
        && covered.segment <= range.last_segment
    {
        let later = ends_of(&env, archive, range.last_segment)?.times;
        if later.is_none_or(|(_, last)| last <= covered.until_ms) {
            range.last_time = Some(local_time(covered.until_ms));
        }
    }
    Ok(ranges)
}

/// Removes the files that none of the backups in `kept` needs:
///
/// - Segments up to the last one in the oldest backup that this archive continues: the backups
///   themselves contain them. The oldest backup is the one with the smallest segment number, not
///   the smallest id: ids are times, and clocks may be set back.
/// - SSTs that these segments name: the backups have those that are still in use.
/// - Blob files that were made before this oldest backup and no longer existed when it was taken:
///   nothing referred to them. Blob files in the oldest backup stay, because later commits may
///   refer to values that were being written. A blob file that a later segment names stays, too:
///   the engine may have chosen its file id before the backup, and created the file after it.
pub fn prune(archive: &Path, kept: &[Backup]) -> Result<Removed> {
    let env = PosixEnv::new();
    let owner = archive_owner(&env, archive)?;
    let mut removed = Removed::default();
    let followed = kept.iter().filter(|b| b.archive.as_ref() == Some(&owner));
    let Some(first) = followed.min_by_key(|backup| backup.last_segment()) else {
        return Err(Error::invalid(format_args!(
            "nothing is removed from {}: none of the backups that stay is followed by it",
            archive.display()
        )));
    };
    let all = archived_segments(&env, archive)?;
    let (mut segments, later): (Vec<u64>, Vec<u64>) =
        all.iter().partition(|id| **id <= first.last_segment());
    // Keep the last segment: it says where the archive continues.
    if later.is_empty() {
        segments.pop();
    }
    let names = named_in(&env, archive, &segments)?;
    let of_backup = first.files.iter().filter_map(|f| parse_file_name(&f.name));
    let known: HashSet<u64> = of_backup.map(|(_, id)| id).collect();
    let newest = known.iter().max().copied().unwrap_or(0);
    let mut gone: Vec<String> = Vec::new();
    let mut doubtful: Vec<u64> = Vec::new();
    for name in env.list_dir(archive)? {
        match parse_file_name(&name) {
            Some((FileKind::Sst, id)) if names.files.contains_key(&id) => gone.push(name),
            Some((FileKind::Blob, id)) if id < newest && !known.contains(&id) => {
                match names.blobs.contains(&id) {
                    true => gone.push(name),
                    false => doubtful.push(id),
                }
            }
            _ => {}
        }
    }
    if !doubtful.is_empty() {
        let needed = named_in(&env, archive, &later)?.blobs;
        doubtful.retain(|id| !needed.contains(id));
        gone.extend(doubtful.iter().map(|id| file_name(FileKind::Blob, *id)));
    }
    removed.files = gone.len();
    removed.segments = segments.len();
    // Remove SSTs and blob files before the segments that name them.
    gone.extend(segments.iter().map(|id| segment_name(*id)));
    for name in gone {
        let path = archive.join(&name);
        removed.bytes += env.usage(&path)?.len;
        env.remove(&path)?;
    }
    env.sync_dir(archive)?;
    Ok(removed)
}

/// The files that the records of `segments` name.
///
/// # Errors
/// `Unsupported` if a group has records that this version does not know: files that such records
/// name would count as unused. `Corruption`; those of the file system.
fn named_in(env: &dyn Env, archive: &Path, segments: &[u64]) -> Result<NamedFiles> {
    let mut names = NamedFiles::default();
    for id in segments {
        let mut failed = Ok(());
        dump_segment(env, archive, *id, &mut |piece| {
            if let SegmentPiece::Group {
                offset,
                header,
                records,
                ..
            } = piece
                && failed.is_ok()
            {
                failed = names_in_group(*id, offset, &header, &records, &mut names);
            }
        })?;
        failed?;
    }
    Ok(names)
}

fn names_in_group(
    segment: u64,
    offset: u64,
    header: &GroupHeader,
    records: &[Record<'_>],
    names: &mut NamedFiles,
) -> Result<()> {
    if records.len() as u64 != u64::from(header.records) {
        return Err(Error::unsupported(format!(
            "{} at offset {offset}: this version cannot read all records of the group, so nothing is removed",
            segment_name(segment)
        )));
    }
    records
        .iter()
        .try_for_each(|record| names_in(record, names))
}

/// The path of an SST or blob file in an archive.
pub fn stored(archive: &Path, kind: FileKind, id: u64) -> std::path::PathBuf {
    archive.join(file_name(kind, id))
}

#[cfg(test)]
mod tests;
