//! Replay of a damaged log: goes on behind what recovery refuses.
//!
//! Recovery stops at a hole: the log ends there, or it is damaged. Here a hole is passed if something
//! behind it proves that it was durable once. A hole without such a proof is the end, as for
//! recovery: what lies behind was never acknowledged.

use super::super::frame::{GROUP_HEADER, GroupHeader, SegmentHeader};
use super::super::segment::{list, segment_name};
use super::super::{GroupNumber, Record, SegmentId};
use super::Visit;
use super::segments::{SegmentReader, check_whole};
use crate::base::{Error, Result};
use crate::env::Env;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

/// An intact group, and where it lies.
struct Found {
    segment: usize,
    offset: u64,
    header: GroupHeader,
}

/// As [`super::replay`], for a damaged log: hands every record that is left of it to `f`, in order,
/// and what is missing to `lost`.
///
/// With `first` 0 it is not known where the log begins: released segments may stand before it. Only
/// what follows the last hole is taken then. It holds every change since its first one, so that for
/// any key the newest version in it is newer than what the files have; what lies before a hole may be
/// older.
///
/// # Errors
/// Those of the file system, and what `f` returns.
pub fn salvage(
    env: &dyn Env,
    dir: &Path,
    first: SegmentId,
    f: &mut Visit<'_>,
    lost: &mut dyn FnMut(Error),
) -> Result<()> {
    let mut segments = Vec::new();
    let mut headers = Vec::new();
    for id in list(env, dir)?.into_iter().filter(|&id| id >= first) {
        let mut segment = SegmentReader::open(env, dir, id)?;
        match segment.header()? {
            Some(header) => {
                check_whole(&segment, &header).unwrap_or_else(&mut *lost);
                headers.push(header);
            }
            None => lost_header(&mut segment, lost)?,
        }
        segments.push(segment);
    }
    if first > 0 && segments.first().is_none_or(|segment| segment.id > first) {
        lost(Error::corruption(
            segment_name(first),
            0,
            "the segment is missing",
        ));
    }
    let groups = find(&mut segments, &headers)?;
    let pieces = pieces(&groups);
    let from = match first {
        0 => pieces.len().saturating_sub(1),
        _ => 0,
    };
    for (number, piece) in pieces.iter().enumerate() {
        let begin = &groups[piece.start()];
        let missing = match number {
            // Does the segment begin with it?
            0 => begin.header.segment_first..*piece.start(),
            _ => pieces[number - 1].end() + 1..*piece.start(),
        };
        if !missing.is_empty() && number >= from {
            let name = segment_name(segments[begin.segment].id);
            let message = format!(
                "groups {} to {} of the log are lost",
                missing.start,
                missing.end - 1
            );
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

/// A segment without an intact header is damaged if it holds a group.
fn lost_header(segment: &mut SegmentReader, lost: &mut dyn FnMut(Error)) -> Result<()> {
    if segment.find_unit()? {
        let message = "the header of a log segment is damaged";
        lost(Error::corruption(segment.name.clone(), 0, message));
    }
    Ok(())
}

/// The numbers of the groups without a hole between them, up to the end of the log.
fn pieces(groups: &BTreeMap<GroupNumber, Found>) -> Vec<RangeInclusive<GroupNumber>> {
    let mut pieces: Vec<RangeInclusive<GroupNumber>> = Vec::new();
    let mut last_records = 0;
    for (&number, found) in groups {
        let records = found.header.records;
        match pieces.last_mut() {
            Some(piece) if *piece.end() + 1 == number && found.header.follows(last_records) => {
                *piece = *piece.start()..=number;
            }
            Some(piece) => {
                let missing = (piece.end() + 1).min(number - 1);
                let mut later = groups.range(number..);
                if !later.any(|(_, g)| g.header.known_synced >= missing) {
                    break;
                }
                pieces.push(number..=number);
            }
            None => pieces.push(number..=number),
        }
        last_records = records;
    }
    pieces
}

/// The groups that are part of the log, by number. When a run of the engine began, the log ended at
/// its base: groups behind that in older segments were dropped then.
fn find(
    segments: &mut [SegmentReader],
    headers: &[SegmentHeader],
) -> Result<BTreeMap<GroupNumber, Found>> {
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
                let found = Found {
                    segment: at,
                    offset,
                    header,
                };
                // Of two with one number the later segment's counts.
                groups.insert(header.number, found);
            }
            offset += bytes.len() as u64;
        }
    }
    Ok(groups)
}

fn deliver(
    segment: &mut SegmentReader,
    found: &Found,
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
            Err(error) => {
                lost(error);
                break;
            }
        }
    }
    Ok(())
}
