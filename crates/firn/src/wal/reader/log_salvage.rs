//! Replay of a damaged log, for the repair of a database: it goes on where recovery refuses.
//!
//! A hole is a stretch of group numbers whose groups are missing or damaged. Recovery stops at a
//! hole: either the log ends there, or recovery fails with `Corruption`. A salvage goes on behind
//! the hole if a later group proves that the missing groups were durable once. A hole without such
//! a proof is the end of the log: the commits behind it were never acknowledged.

use super::super::frame::{GROUP_HEADER, GroupHeader, SegmentHeader};
use super::super::segment::{list, segment_name};
use super::super::{GroupNumber, Record, SegmentId};
use super::Visit;
use super::segments::{SegmentReader, check_whole, lost_between};
use crate::base::{Error, Result};
use crate::env::Env;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

/// An intact group, with the position of its segment in the list of segments and its offset in the
/// segment.
struct IntactGroup {
    segment: usize,
    offset: u64,
    header: GroupHeader,
}

/// The segment with which a salvage begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogStart {
    /// The log begins in this segment; 0 if it begins with the first segment of the database.
    At(SegmentId),
    /// The first needed segment is not known, so segments may be found that recovery no longer
    /// needs. Only the records after the last hole are salvaged. Among them no change is missing,
    /// so their newest version of a key is at least as new as the one in the SSTs. A version before
    /// a hole may be older than the one in the SSTs, and would hide it.
    Unknown {
        /// Segments below this one are not needed.
        at_least: SegmentId,
    },
}

/// As [`super::replay`], for a damaged log: passes every record that is left to `f`, in order, and
/// an error for each missing or damaged segment, group or record to `lost`.
///
/// # Errors
/// Those of the file system and those of `f`; `Unsupported` for a record of a newer format.
pub fn salvage_log(
    env: &dyn Env,
    dir: &Path,
    start: LogStart,
    f: &mut Visit<'_>,
    lost: &mut dyn FnMut(Error),
) -> Result<()> {
    let (LogStart::At(first) | LogStart::Unknown { at_least: first }) = start;
    let known = matches!(start, LogStart::At(_));
    let mut segments = Vec::new();
    let mut headers = Vec::new();
    for id in list(env, dir)?.into_iter().filter(|&id| id >= first) {
        let mut segment = SegmentReader::open(env, dir, id)?;
        match segment.header()? {
            Some(header) => {
                check_whole(&segment, &header).unwrap_or_else(&mut *lost);
                headers.push(header);
            }
            None if segment.find_unit()? || known && id == first => {
                let message = "the header of a log segment is damaged";
                lost(Error::corruption(segment.name.clone(), 0, message));
            }
            // The segment has neither header nor groups: it was never used.
            None => {}
        }
        segments.push(segment);
    }
    let ids: Vec<SegmentId> = segments.iter().map(|segment| segment.id).collect();
    let gone = gone(&headers, &ids, first, known);
    // If it is not known where the log begins, a missing segment may have been released, so do not
    // report it as lost.
    for &id in gone.iter().filter(|_| known) {
        // A segment whose header alone is damaged was reported already.
        if ids.binary_search(&id).is_err() {
            let message = "the segment is missing";
            lost(Error::corruption(segment_name(id), 0, message));
        }
    }
    let groups = find(&mut segments, &headers)?;
    let pieces = pieces(&groups, &segments, &gone);
    let from = match known {
        true => 0,
        false => pieces.len().saturating_sub(1),
    };
    for (number, piece) in pieces.iter().enumerate() {
        let begin = &groups[piece.start()];
        let missing = match number {
            // The first intact group need not be the first group of its segment: the groups in
            // front of it are missing.
            0 => begin.header.segment_first..*piece.start(),
            _ => pieces[number - 1].end() + 1..*piece.start(),
        };
        let name = segment_name(segments[begin.segment].id);
        if !missing.is_empty() && number >= from {
            let (from, to) = (missing.start, missing.end - 1);
            let message = format!("groups {from} to {to} of the log are lost");
            lost(Error::corruption(name.clone(), begin.offset, message));
        }
        if number == from && from > 0 {
            let before = piece.start() - 1;
            let message =
                format!("the log up to group {before} is left out: it may be older than the files");
            lost(Error::corruption(name, begin.offset, message));
        }
        if number < from {
            continue;
        }
        for (_, found) in groups.range(piece.clone()) {
            deliver(&mut segments[found.segment], found, f, lost)?;
        }
    }
    Ok(())
}

/// Returns a segment that the log needs, from segment `first` on, and that has no file in `dir`.
/// `None` if there is no such segment.
///
/// # Errors
/// Those of the file system.
pub fn missing_segment(env: &dyn Env, dir: &Path, first: SegmentId) -> Result<Option<SegmentId>> {
    let ids: Vec<SegmentId> = list(env, dir)?
        .into_iter()
        .filter(|&id| id >= first)
        .collect();
    let mut headers = Vec::new();
    for &id in &ids {
        headers.extend(SegmentReader::open(env, dir, id)?.header()?);
    }
    let mut gone = gone(&headers, &ids, first, true).into_iter();
    Ok(gone.find(|id| ids.binary_search(id).is_err()))
}

/// Returns a segment that the log had between the segments `before` and `id`. `None` if the log
/// went on from `before` directly to `id`; these ids need not be adjacent, for example where an
/// epoch begins. The caller must have found no segment between them in `dir`.
///
/// # Errors
/// Those of the file system; `Unsupported` for a newer format.
pub fn missing_between(
    env: &dyn Env,
    dir: &Path,
    before: SegmentId,
    id: SegmentId,
) -> Result<Option<SegmentId>> {
    let expected = before.saturating_add(1);
    if expected >= id {
        return Ok(None);
    }
    let header = SegmentReader::open(env, dir, id)?.header()?;
    Ok(header.map_or(Some(expected), |header| lost_between(expected, &header, 0)))
}

/// The segments that were part of the log, by the rules of [`lost_between`], and now have no intact
/// header, ascending. Of consecutive segments without files, only the first one is returned.
/// `headers` are those of the intact segments, and `ids` are all segments with files, both
/// ascending. `known` says that the log begins with segment `first`.
///
/// Example: the log begins with 5; 5 and 8 have damaged headers, 6 and 7 have no file, 9 is intact.
/// Then 5, 6 and 8 are gone.
fn gone(
    headers: &[SegmentHeader],
    ids: &[SegmentId],
    first: SegmentId,
    known: bool,
) -> Vec<SegmentId> {
    let mut gone = Vec::new();
    let mut expected = (known && first > 0).then_some(first);
    for header in headers {
        let lost = |id: Option<SegmentId>| id.and_then(|id| lost_between(id, header, first));
        let mut next = lost(expected);
        while let Some(id) = next {
            gone.push(id);
            let from = ids.partition_point(|&other| other < id);
            next = match ids.get(from) {
                Some(&other) if other == id => lost(Some(id.saturating_add(1))),
                other => lost(other.copied()),
            };
        }
        expected = Some(header.id.saturating_add(1));
    }
    if headers.is_empty() {
        gone.extend(expected);
    }
    gone
}

/// Splits the groups of the log into ranges of group numbers without a hole. The log goes on behind
/// a hole if a later group records that the missing groups were durable, or if one of the segments
/// in `gone` lies in the hole. Otherwise it ends there.
fn pieces(
    groups: &BTreeMap<GroupNumber, IntactGroup>,
    segments: &[SegmentReader<'_>],
    gone: &[SegmentId],
) -> Vec<RangeInclusive<GroupNumber>> {
    let mut pieces: Vec<RangeInclusive<GroupNumber>> = Vec::new();
    let mut last: Option<&IntactGroup> = None;
    for (&number, found) in groups {
        let after = |before: &IntactGroup| found.header.follows(before.header.records);
        match (pieces.last_mut(), last) {
            (Some(piece), Some(before)) if *piece.end() + 1 == number && after(before) => {
                *piece = *piece.start()..=number;
            }
            (Some(piece), Some(before)) => {
                let missing = (piece.end() + 1).min(number - 1);
                let mut later = groups.range(number..);
                let (from, to) = (segments[before.segment].id, segments[found.segment].id);
                let passed = later.any(|(_, g)| g.header.known_synced >= missing)
                    || gone.iter().any(|id| (from..to).contains(id));
                if !passed {
                    break;
                }
                pieces.push(number..=number);
            }
            _ => pieces.push(number..=number),
        }
        last = Some(found);
    }
    pieces
}

/// Finds all intact groups that are part of the log, by number. When an incarnation began, it took
/// [`SegmentHeader::base`] as the end of the log: groups with larger numbers in older segments were
/// dropped then and are left out here.
fn find(
    segments: &mut [SegmentReader<'_>],
    headers: &[SegmentHeader],
) -> Result<BTreeMap<GroupNumber, IntactGroup>> {
    let dropped = |segment: SegmentId, number: GroupNumber| {
        let mut later = headers.iter().filter(|h| segment < h.incarnation);
        later.any(|header| number > header.base.group)
    };
    let mut groups = BTreeMap::new();
    for (at, segment) in segments.iter_mut().enumerate() {
        let (mut offset, unit) = (super::FIRST_GROUP, segment.unit());
        while offset < segment.size() {
            let id = segment.id;
            let Some((header, bytes)) = segment.group(offset)? else {
                offset += unit;
                continue;
            };
            if !dropped(id, header.number) {
                let found = IntactGroup {
                    segment: at,
                    offset,
                    header,
                };
                // If two groups have the same number, the one in the later segment replaces the
                // other.
                groups.insert(header.number, found);
            }
            offset += bytes.len() as u64;
        }
    }
    Ok(groups)
}

fn deliver(
    segment: &mut SegmentReader<'_>,
    found: &IntactGroup,
    f: &mut Visit<'_>,
    lost: &mut dyn FnMut(Error),
) -> Result<()> {
    let (id, name) = (segment.id, segment.name.clone());
    let Some((header, bytes)) = segment.group(found.offset)? else {
        return Ok(());
    };
    let mut payload = &bytes[GROUP_HEADER..GROUP_HEADER + header.payload_len as usize];
    while !payload.is_empty() {
        match Record::decode(&mut payload, &name, found.offset) {
            Ok(record) => f(id, record)?,
            Err(error) if error.is_unsupported() => return Err(error),
            Err(error) => {
                lost(error);
                break;
            }
        }
    }
    Ok(())
}
