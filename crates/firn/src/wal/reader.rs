//! The reading end of the log: replay.
//!
//! A replay reads groups in the order of their numbers, over all incarnations that wrote to the
//! log. The difficult question is where the log ends. A missing or damaged group may be the torn
//! tail that a crash leaves, or damage to acknowledged commits. A damaged group is the end of the
//! log only if no later group and no later segment header shows that it was durable: each group
//! records up to which group the log was known to be durable, and the segment headers of each
//! incarnation name the last group of the incarnation before. If one of them shows that, the replay
//! fails with `Corruption` instead of dropping that group.

mod dump;
mod log_salvage;
mod segments;

pub use dump::{SegmentPiece, dump_segment, fingerprint};
pub use log_salvage::{LogStart, missing_between, missing_segment, salvage_log};

use super::frame::{FIRST_GROUP, GROUP_HEADER, GroupHeader};
use super::{GroupNumber, LogEnd, Record, SegmentId};
use crate::base::{Error, Result};
use crate::env::{BLOCK, Env};
use segments::{Copied, IncarnationSegments, SegmentReader};
use std::path::Path;

/// Result of a replay.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReplayEnd {
    /// Segment of the last group that was replayed.
    pub last_segment: SegmentId,
    /// Number of the last group that was replayed.
    pub last_group: GroupNumber,
    /// Offset at which the last replayed group ends in its segment, bytes; 0 if no group was
    /// replayed.
    pub end_offset: u64,
    /// Largest segment id found in the directory. The next incarnation begins with a larger one.
    pub max_segment_id_seen: SegmentId,
    /// Largest id of a segment that has a header. Segments without a header were never used.
    pub max_segment_id_used: SegmentId,
    /// Whether the log has a torn tail: it ends with a group that a crash left incomplete.
    pub torn_tail: bool,
    /// Bytes of all replayed groups, padding included.
    pub bytes: u64,
    /// Number of replayed records.
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

/// Callback that receives each replayed record, with the segment in which it lies.
pub type Visit<'f> = dyn FnMut(SegmentId, Record<'_>) -> Result<()> + 'f;

/// Callback that receives how far a replay is: the number of the segment that it reads now, counted
/// from 1, and the number of segments.
pub type Progress<'f> = dyn FnMut(usize, usize) + 'f;

/// Passes each record of the segments with id `first` or larger to `f`, in order, up to the end of
/// the log. With `first` 0, an empty directory counts as an empty log; otherwise segment `first`
/// must exist.
///
/// The log ends at the first group that is missing or damaged. But if a later group of the same
/// incarnation says that this group was durable, or if a later incarnation continued the log behind
/// it, it is no end but `Corruption`.
///
/// # Errors
/// `Corruption`, with file and offset; `Unsupported` for a newer format; the errors of `f`; `Io`
/// for a failed read, which never counts as the end of the log.
pub fn replay(env: &dyn Env, dir: &Path, first: SegmentId, f: &mut Visit<'_>) -> Result<ReplayEnd> {
    replay_reporting(env, dir, first, f, &mut |_, _| {})
}

/// As [`replay`]. Calls `progress` when the replay begins with a segment.
///
/// # Errors
/// Those of [`replay`].
pub fn replay_reporting(
    env: &dyn Env,
    dir: &Path,
    first: SegmentId,
    f: &mut Visit<'_>,
    progress: &mut Progress<'_>,
) -> Result<ReplayEnd> {
    replay_incarnations(segments::open(env, dir, first, Copied::Whole)?, f, progress)
}

/// As [`replay`], for the segments `first` to `last` of a log archive. An archived segment may be
/// shorter than its header says: the archiver leaves out the unused room after the last group.
///
/// # Errors
/// Those of [`replay`].
pub fn replay_archived(
    env: &dyn Env,
    archive: &Path,
    first: SegmentId,
    last: SegmentId,
    f: &mut Visit<'_>,
) -> Result<ReplayEnd> {
    let segments = segments::open(env, archive, first, Copied::UpTo(last))?;
    replay_incarnations(segments, f, &mut |_, _| {})
}

fn replay_incarnations(
    (runs, max_segment_id_seen): (Vec<IncarnationSegments<'_>>, SegmentId),
    f: &mut Visit<'_>,
    progress: &mut Progress<'_>,
) -> Result<ReplayEnd> {
    let last = runs.last().and_then(|run| run.segments.last());
    let mut end = ReplayEnd {
        max_segment_id_seen,
        max_segment_id_used: last.map_or(0, |segment| segment.id),
        ..ReplayEnd::default()
    };
    let segments = runs.iter().map(|run| run.segments.len()).sum();
    let mut done = 0;
    for run in runs {
        end.last_segment = run.base.segment;
        end.last_group = run.base.group;
        let of_run = run.segments.len();
        let mut begins = |at: usize| progress(done + at + 1, segments);
        let torn = IncarnationReplay::new(run, &mut end).replay(f, &mut begins)?;
        done += of_run;
        end.torn_tail = torn;
    }
    Ok(end)
}

/// Replays the segments of one incarnation.
struct IncarnationReplay<'e> {
    run: IncarnationSegments<'e>,
    end: &'e mut ReplayEnd,
    /// Index of the current segment in `run.segments`.
    at: usize,
    offset: u64,
    /// Number of the next group. `None` before the first group, if the replay does not begin with
    /// the first segment of the incarnation.
    expected: Option<GroupNumber>,
    /// Number of records of the previous group, if that was replayed.
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

    /// Returns whether the incarnation ends with a torn group.
    /// Calls `begins` with the index of each segment that it reads.
    fn replay(mut self, f: &mut Visit<'_>, begins: &mut dyn FnMut(usize)) -> Result<bool> {
        begins(self.at);
        loop {
            if self.end_known_reached() {
                return Ok(false);
            }
            if self.replay_group(f)? {
                continue;
            }
            if self.next_segment()? {
                begins(self.at);
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
                // The next incarnation took this offset as the end of the log. So neither a torn
                // group here nor later groups of this incarnation belong to the log.
                Some(_) => Ok(false),
                None => Ok(torn),
            };
        }
    }

    /// Whether the replay has reached the end of this incarnation that the recovery before the next
    /// incarnation found. That recovery dropped the groups of this incarnation behind that end, so
    /// they must not be replayed now.
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

    /// Replays the next group, which begins at the current offset or at the next block. Returns
    /// whether the expected group was there.
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

    /// Finds the next segment that begins with a group, and moves to it if that is the expected
    /// group. Returns whether it moved.
    fn next_segment(&mut self) -> Result<bool> {
        let here = self.segment().id;
        for at in self.at + 1..self.run.segments.len() {
            let Some((header, _)) = self.run.segments[at].group(FIRST_GROUP)? else {
                self.run.segments[at].rest();
                continue;
            };
            let follows = match self.expected {
                Some(expected) => header.number == expected,
                // No group was read yet, so the number of the next one is not known. The later
                // segment follows if its first group says that the group before it lies in a
                // segment below the current one: then the current segment is empty.
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

    /// To be called at an offset where the next group is not intact. Decides whether the log ends
    /// here or is damaged: damage is an error. Returns whether the end is torn.
    fn judge_end(&mut self) -> Result<bool> {
        let (at, offset, expected) = (self.at, self.offset, self.expected);
        let here = self.segment().id;
        // Segment and offset of the first place behind the replayed groups that looks like the
        // start of a group, intact or not. If this function decides that the log ends here, it
        // moves the replay to that place, so that errors which the caller reports later name it.
        let mut begun = None;
        // Segment and offset of the first place that looks like the start of a group that is not
        // intact.
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

/// The offsets at which the next group may begin if the previous one ends at `offset`: at `offset`
/// itself if both groups were written past the page cache, otherwise at the next block.
fn places(offset: u64) -> impl Iterator<Item = u64> {
    let block = offset.next_multiple_of(BLOCK as u64);
    [offset]
        .into_iter()
        .chain((block > offset).then_some(block))
}

/// The replay stopped in segment `here`, where it expected a group that is missing or damaged.
/// Returns the number of that group, or a greater one: groups become durable in the order of their
/// numbers, so if the returned group was durable, the missing one was, too. If no group was
/// replayed, the number of the missing one is not known, and the result is computed from `later`,
/// the header of a later group.
fn missing_group(
    expected: Option<GroupNumber>,
    same_segment: bool,
    here: SegmentId,
    later: &GroupHeader,
) -> GroupNumber {
    match expected {
        Some(expected) => expected,
        None if same_segment || later.previous_segment < here => later.segment_first,
        // The number of the missing group is not known, but it is at most that of the last group
        // before the segment of `later`. If that last group was durable, so was the missing one.
        None => later.segment_first.saturating_sub(1),
    }
}
