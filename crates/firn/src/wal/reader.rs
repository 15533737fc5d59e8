//! The reading end of the log: replay.
//!
//! A replay reads groups in the order of their numbers, over all runs of the engine (incarnations)
//! that wrote to the log. The difficult question is where the log ends. A group that is missing or
//! damaged may be the torn end that a crash leaves, or damage to acknowledged commits. It is an end
//! only if nothing contradicts: each group records up to where the log was known to be synced, and
//! each segment header names the last group before it. If a later group or segment of the same run
//! says that the damaged group was durable, the replay fails with `Corruption` instead of losing
//! it.

mod dump;
mod salvage;
mod segments;

pub use dump::{SegmentPiece, dump_segment, fingerprint};
pub use salvage::{LogStart, missing_between, missing_segment, salvage};

use super::frame::{FIRST_GROUP, GROUP_HEADER, GroupHeader};
use super::{GroupNumber, LogEnd, Record, SegmentId};
use crate::base::{Error, Result};
use crate::env::{BLOCK, Env};
use segments::{Copied, IncarnationSegments, SegmentReader};
use std::path::Path;

/// Result of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayEnd {
    /// Segment of the last group replayed.
    pub last_segment: SegmentId,
    /// Number of the last group replayed.
    pub last_group: GroupNumber,
    /// Where that group ends in its segment, bytes; 0 if no group was replayed.
    pub end_offset: u64,
    /// Largest segment id found; the next log begins above it.
    pub max_segment_id_seen: SegmentId,
    /// Largest id of a segment with a header: others were never used.
    pub max_segment_id_used: SegmentId,
    /// The log ended in a group that was not written completely, as a crash leaves it.
    pub torn_tail: bool,
    /// Bytes of the groups replayed, padding included.
    pub bytes: u64,
    /// Records replayed.
    pub records: u64,
}

impl ReplayEnd {
    /// The end of the log, from which [`super::Wal::create`] goes on.
    pub fn log_end(&self) -> LogEnd {
        LogEnd {
            segment: self.last_segment,
            group: self.last_group,
        }
    }
}

/// Receives the records, with the segment in which each lies.
pub type Visit<'f> = dyn FnMut(SegmentId, Record<'_>) -> Result<()> + 'f;

/// Hands the records of segments `first` and up to `f`, in order, up to the end of the log. With
/// `first` 0 an empty directory is an empty log; otherwise segment `first` must exist.
///
/// The end is the first group that is missing or damaged. If a later group of the same run says
/// that this one was durable, or the log was continued behind it, it is not the end but damage.
///
/// # Errors
/// Corruption, with file and offset; `Unsupported` for a newer format; what `f` returns. A failed
/// read is an error, never an end.
pub fn replay(env: &dyn Env, dir: &Path, first: SegmentId, f: &mut Visit<'_>) -> Result<ReplayEnd> {
    replay_incarnations(segments::open(env, dir, first, Copied::Whole)?, f)
}

/// As [`replay`], of the segments from `first` to `last` in an archive, which may have been copied
/// without the unused room after their last group.
///
/// # Errors
/// As of [`replay`].
pub fn replay_archived(
    env: &dyn Env,
    archive: &Path,
    first: SegmentId,
    last: SegmentId,
    f: &mut Visit<'_>,
) -> Result<ReplayEnd> {
    replay_incarnations(segments::open(env, archive, first, Copied::UpTo(last))?, f)
}

fn replay_incarnations(
    (runs, max_segment_id_seen): (Vec<IncarnationSegments<'_>>, SegmentId),
    f: &mut Visit<'_>,
) -> Result<ReplayEnd> {
    let last = runs.last().and_then(|run| run.segments.last());
    let mut end = ReplayEnd {
        max_segment_id_seen,
        max_segment_id_used: last.map_or(0, |segment| segment.id),
        ..ReplayEnd::default()
    };
    for run in runs {
        end.last_segment = run.base.segment;
        end.last_group = run.base.group;
        let torn = IncarnationReplay::new(run, &mut end).replay(f)?;
        end.torn_tail = torn;
    }
    Ok(end)
}

/// Replays the segments of one run.
struct IncarnationReplay<'e> {
    run: IncarnationSegments<'e>,
    end: &'e mut ReplayEnd,
    /// Index of the segment in `run`.
    at: usize,
    offset: u64,
    /// Number of the next group; unknown at the start of a segment in the middle of a run.
    expected: Option<GroupNumber>,
    /// Records of the group before, if it was replayed.
    last_records: Option<u32>,
}

impl<'e> IncarnationReplay<'e> {
    fn new(run: IncarnationSegments<'e>, end: &'e mut ReplayEnd) -> Self {
        let from_start = run.segments[0].id == run.incarnation;
        Self {
            expected: from_start.then_some(run.base.group.saturating_add(1)),
            run,
            end,
            at: 0,
            offset: FIRST_GROUP,
            last_records: None,
        }
    }

    /// Returns whether the run ends in a torn group.
    fn replay(mut self, f: &mut Visit<'_>) -> Result<bool> {
        loop {
            if self.end_known_reached() {
                return Ok(false);
            }
            if self.replay_group(f)? || self.next_segment()? {
                continue;
            }
            let torn = self.judge_end()?;
            return match self.run.next_base {
                Some(base) if base.group > self.end.last_group => {
                    let message = format!(
                        "group {} is missing, the log was continued after it",
                        self.end.last_group + 1
                    );
                    Err(self.damaged(message))
                }
                // The engine has started again since, so later groups are not part of the log.
                Some(_) => Ok(false),
                None => Ok(torn),
            };
        }
    }

    /// Whether the end that a later run found is reached. Groups after it, which that run did not
    /// see, must not be replayed.
    fn end_known_reached(&self) -> bool {
        match (self.run.next_base, self.expected) {
            (Some(base), Some(expected)) => expected > base.group,
            _ => false,
        }
    }

    fn segment(&mut self) -> &mut SegmentReader<'e> {
        &mut self.run.segments[self.at]
    }

    fn damaged(&mut self, message: impl std::fmt::Display) -> Error {
        let offset = self.offset;
        Error::corruption(self.segment().name.clone(), offset, message)
    }

    /// Replays the group at the current place or at the next block, if it is the expected one.
    fn replay_group(&mut self, f: &mut Visit<'_>) -> Result<bool> {
        for place in places(self.offset) {
            if self.replay_group_at(place, f)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn replay_group_at(&mut self, offset: u64, f: &mut Visit<'_>) -> Result<bool> {
        let (expected, limit) = (self.expected, self.run.next_base);
        let segment = &mut self.run.segments[self.at];
        let (id, name) = (segment.id, segment.name.clone());
        let Some((header, bytes)) = segment.group(offset)? else {
            return Ok(false);
        };
        let number = header.number;
        if number != expected.unwrap_or(header.segment_first)
            || limit.is_some_and(|base| number > base.group)
            || self.last_records.is_some_and(|last| !header.follows(last))
        {
            return Ok(false);
        }
        let mut payload = &bytes[GROUP_HEADER..GROUP_HEADER + header.payload_len as usize];
        let mut records = 0;
        while !payload.is_empty() {
            f(id, Record::decode(&mut payload, &name, offset)?)?;
            records += 1;
        }
        if records != u64::from(header.records) {
            let message = format!("{records} records in a group of {}", header.records);
            return Err(Error::corruption(name, offset, message));
        }
        let len = bytes.len() as u64;
        self.offset = offset + len;
        self.expected = Some(number.saturating_add(1));
        self.last_records = Some(header.records);
        self.end.last_segment = id;
        self.end.last_group = number;
        self.end.end_offset = self.offset;
        self.end.bytes += len;
        self.end.records += records;
        Ok(true)
    }

    /// Moves to a later segment if its first group is the next one, past segments that were never
    /// used.
    fn next_segment(&mut self) -> Result<bool> {
        let here = self.segment().id;
        for at in self.at + 1..self.run.segments.len() {
            let Some((header, _)) = self.run.segments[at].group(FIRST_GROUP)? else {
                self.run.segments[at].rest();
                continue;
            };
            let follows = match self.expected {
                Some(expected) => header.number == expected,
                // No group of this segment was read: did the log leave it empty?
                None => header.number == header.segment_first && header.previous_segment < here,
            };
            if follows {
                self.segment().rest();
                self.at = at;
                self.offset = FIRST_GROUP;
            }
            return Ok(follows);
        }
        Ok(false)
    }

    /// At a place without the next group: is it the end of the log, or damage? Returns whether
    /// the end is torn.
    fn judge_end(&mut self) -> Result<bool> {
        let (at, offset, expected) = (self.at, self.offset, self.expected);
        let here = self.segment().id;
        // Offset of the first group that was begun. If this is damage, it is reported there.
        let mut begun = None;
        // Offset of the first begun group that is not intact.
        let mut broken = None;
        let mut torn = false;
        let mut proof = None;
        for later in at..self.run.segments.len() {
            let from = if later == at { offset } else { FIRST_GROUP };
            let segment = &mut self.run.segments[later];
            let same = segment.id == here;
            for place in places(from) {
                if segment.peek(place)?.is_some() {
                    begun = begun.or(Some((later, place)));
                    if segment.group(place)?.is_none() {
                        broken = broken.or(Some((later, place)));
                    }
                }
            }
            segment.scan(from, &mut |header| {
                torn = true;
                if header.known_synced >= missing_group(expected, same, here, header) {
                    proof = Some(*header);
                }
                proof.is_none()
            })?;
            if let Some(header) = proof {
                let message = format!(
                    "a group is damaged that group {} (in {}) knows to be durable",
                    header.number, self.run.segments[later].name
                );
                if let Some(broken) = broken {
                    (self.at, self.offset) = broken;
                } else if expected == Some(header.segment_first) {
                    (self.at, self.offset) = (later, FIRST_GROUP);
                }
                return Err(self.damaged(message));
            }
            self.run.segments[later].rest();
        }
        (self.at, self.offset) = begun.unwrap_or((at, offset));
        Ok(torn || begun.is_some())
    }
}

/// The offsets at which the group after one that ends at `offset` may begin: there if both were
/// written past the page cache, otherwise at the next block.
fn places(offset: u64) -> impl Iterator<Item = u64> {
    let block = offset.next_multiple_of(BLOCK as u64);
    [offset]
        .into_iter()
        .chain((block > offset).then_some(block))
}

/// The number of the group that is missing where replay stopped, in segment `here`, as a later
/// group implies it.
fn missing_group(
    expected: Option<GroupNumber>,
    same_segment: bool,
    here: SegmentId,
    later: &GroupHeader,
) -> GroupNumber {
    match expected {
        Some(expected) => expected,
        None if same_segment || later.previous_segment < here => later.segment_first,
        // The last group before the later segment: the missing one, or one after it.
        None => later.segment_first.saturating_sub(1),
    }
}
