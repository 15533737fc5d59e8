//! The segments that a replay reads: checks that none is missing, and reads groups at offsets.

use super::super::frame::{FIRST_GROUP, GroupHeader, SegmentHeader};
use super::super::segment::{list, segment_name};
use super::super::{LogEnd, SegmentId};
use crate::base::{Error, Result};
use crate::env::{BLOCK, Env, ReadClass, ReadFile, SECTOR};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes of a segment that are read into memory at once.
const WINDOW: usize = 256 << 10;

/// A segment for reading, with a buffer (`window`) of the part that was read last. The file is open
/// only from the first read to [`Self::rest`], because a log archive may have more segments than a
/// process may have open files.
pub(super) struct SegmentReader<'e> {
    env: &'e dyn Env,
    path: PathBuf,
    pub id: SegmentId,
    pub name: String,
    size: u64,
    /// Bytes of the unit: groups begin at multiples of it and are padded to it.
    unit: usize,
    file: Option<Arc<dyn ReadFile>>,
    window: Vec<u8>,
    window_at: u64,
}

impl<'e> SegmentReader<'e> {
    pub(super) fn open(env: &'e dyn Env, dir: &Path, id: SegmentId) -> Result<Self> {
        let name = segment_name(id);
        let path = dir.join(&name);
        let file = env.open(&path)?;
        Ok(Self {
            env,
            path,
            id,
            name,
            // After a crash the file may end within a block. No group ends there, so the last
            // partial block is left out.
            size: file.size()? / BLOCK as u64 * BLOCK as u64,
            unit: BLOCK,
            file: Some(file),
            window: Vec::new(),
            window_at: 0,
        })
    }

    /// Closes the file and frees the buffer; the next read opens the file again.
    pub(super) fn rest(&mut self) {
        self.file = None;
        self.window = Vec::new();
    }

    fn file(&mut self) -> Result<&dyn ReadFile> {
        if self.file.is_none() {
            self.file = Some(self.env.open(&self.path)?);
        }
        Ok(&**self.file.as_ref().expect("opened just now"))
    }

    /// Size of the segment's file, bytes, rounded down to whole blocks.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Returns `len` bytes at `offset`; `None` if they reach past the end of the file.
    pub(super) fn bytes(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(len).filter(|&end| end <= self.size) else {
            return Ok(None);
        };
        if offset < self.window_at || end > self.window_at + self.window.len() as u64 {
            let want = len.max(WINDOW as u64).min(self.size - offset) as usize;
            let mut window = std::mem::take(&mut self.window);
            window.resize(want, 0);
            self.file()?
                .read_exact_at(ReadClass::Log, offset, &mut window)?;
            self.window = window;
            self.window_at = offset;
        }
        let from = (offset - self.window_at) as usize;
        Ok(Some(&self.window[from..from + len as usize]))
    }

    /// Returns the segment's header, if it is intact. Later searches for groups use the unit that
    /// this header names.
    pub(super) fn header(&mut self) -> Result<Option<SegmentHeader>> {
        let (id, name) = (self.id, self.name.clone());
        let header = match self.bytes(0, BLOCK as u64)? {
            Some(block) => SegmentHeader::decode(block, id, &name)?,
            None => None,
        };
        if let Some(header) = &header {
            self.unit = header.unit;
        }
        Ok(header)
    }

    /// For a segment without an intact header: determines the unit to which its groups are padded,
    /// as the one with which most groups are valid. Returns whether the segment has any group.
    pub(super) fn find_unit(&mut self) -> Result<bool> {
        let mut best = (0, BLOCK);
        let mut unit = SECTOR;
        while unit <= BLOCK {
            self.unit = unit;
            // One valid group does not prove that the unit is right: a group that was padded to
            // whole blocks, and whose last block happens to be filled up to its last sector, is
            // valid with each smaller unit, too. So count the valid groups.
            let mut groups = 0;
            self.scan(FIRST_GROUP, &mut |_| {
                groups += 1;
                true
            })?;
            best = best.max((groups, unit));
            unit *= 2;
        }
        self.unit = best.1;
        Ok(best.0 > 0)
    }

    /// Bytes of the unit: groups begin at multiples of it.
    pub(super) fn unit(&self) -> u64 {
        self.unit as u64
    }

    /// Reads the group at `offset`: its header, and all its bytes. `None` if there is no intact
    /// group.
    pub(super) fn group(&mut self, offset: u64) -> Result<Option<(GroupHeader, &[u8])>> {
        let (id, unit, name) = (self.id, self.unit, self.name.clone());
        let Some(len) = self.peek(offset)? else {
            return Ok(None);
        };
        let Some(bytes) = self.bytes(offset, len)? else {
            return Ok(None);
        };
        Ok(GroupHeader::decode(bytes, id, offset, unit, &name)?.map(|header| (header, bytes)))
    }

    /// Length in bytes of the group whose header seems to be at `offset`. `None` if nothing there
    /// looks like a group header. The checksum is not checked.
    pub(super) fn peek(&mut self, offset: u64) -> Result<Option<u64>> {
        let (id, unit) = (self.id, self.unit);
        let start = self.bytes(offset, unit as u64)?;
        Ok(start.and_then(|start| GroupHeader::peek_len(start, id, unit)))
    }

    /// Passes the header of each intact group from `offset` on to `see`, until `see` returns
    /// `false`. Units that belong to no intact group are skipped. Returns whether the scan reached
    /// the end of the segment.
    pub(super) fn scan(
        &mut self,
        mut offset: u64,
        see: &mut dyn FnMut(&GroupHeader) -> bool,
    ) -> Result<bool> {
        while offset < self.size {
            let group = self
                .group(offset)?
                .map(|(header, bytes)| (header, bytes.len()));
            offset += match group {
                Some((header, _)) if !see(&header) => return Ok(false),
                Some((_, len)) => len as u64,
                None => self.unit as u64,
            };
        }
        Ok(true)
    }
}

/// The segments of one incarnation, in order.
pub(super) struct IncarnationSegments<'e> {
    pub incarnation: SegmentId,
    /// Where the log ended when this incarnation began.
    pub base: LogEnd,
    /// The end of this incarnation that the recovery before the next incarnation found. `None` for
    /// the last incarnation, or if that recovery may not have read this incarnation.
    pub next_base: Option<LogEnd>,
    pub segments: Vec<SegmentReader<'e>>,
}

/// Which segments of a directory a replay reads, and whether they have their full size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copied {
    /// All segments. Each has the full size that its header states.
    Whole,
    /// The segments up to this id. They are copies, which may lack the unused room after the last
    /// group.
    UpTo(SegmentId),
}

/// Opens the segments from `first` on, checks that no used segment is missing, and puts them into
/// lists by incarnation. Also returns the largest segment id in `dir`.
pub(super) fn open<'e>(
    env: &'e dyn Env,
    dir: &Path,
    first: SegmentId,
    copied: Copied,
) -> Result<(Vec<IncarnationSegments<'e>>, SegmentId)> {
    let mut ids = list(env, dir)?;
    if let Copied::UpTo(last) = copied {
        ids.retain(|id| *id <= last);
    }
    let max_seen = ids.last().copied().unwrap_or(0);
    let mut runs: Vec<IncarnationSegments<'_>> = Vec::new();
    // The segment id that should come next.
    let mut expected = (first > 0).then_some(first);
    for id in ids.into_iter().filter(|&id| id >= first) {
        let mut segment = SegmentReader::open(env, dir, id)?;
        let Some(header) = segment.header()? else {
            check_unused(&mut segment, first)?;
            continue;
        };
        if copied == Copied::Whole {
            check_whole(&segment, &header)?;
        }
        if let Some(lost) = expected.and_then(|expected| lost_between(expected, &header, first)) {
            let message = format!("the segment is missing, {} needs it", segment.name);
            return Err(Error::corruption(segment_name(lost), 0, message));
        }
        expected = Some(id.saturating_add(1));
        segment.rest();
        match runs.last_mut() {
            Some(run) if run.incarnation == header.incarnation => run.segments.push(segment),
            last => {
                if let Some(last) = last {
                    // The `base` of an incarnation is the end of the log that its recovery has
                    // found, which is the end of the groups of the incarnation before, `last`. But
                    // if that recovery began behind the last group, it has found no group and has
                    // kept the `base` of `last`, which does not say where the groups of `last` end.
                    // In an archive all these groups were durable, so replay may read them all.
                    let known = copied == Copied::Whole || header.base != last.base;
                    last.next_base = known.then_some(header.base);
                }
                runs.push(IncarnationSegments {
                    incarnation: header.incarnation,
                    base: header.base,
                    next_base: None,
                    segments: vec![segment],
                });
            }
        }
    }
    if runs.is_empty() && first > 0 {
        let message = "the segment is missing or its header damaged; the log begins in it";
        return Err(Error::corruption(segment_name(first), 0, message));
    }
    Ok((runs, max_seen))
}

/// The segment ids from `expected` up to the segment of `header` have no file, or a file without a
/// header. Returns one of these ids that must have been part of the log, for one of three reasons.
/// Replay begins in that segment. Or the log ended in or after it when the incarnation of `header`
/// began. Or that incarnation used it before the segment of `header`, since an incarnation uses its
/// segments in order and writes each header before the first group.
pub(super) fn lost_between(
    expected: SegmentId,
    header: &SegmentHeader,
    first: SegmentId,
) -> Option<SegmentId> {
    let of_same_run = expected.max(header.incarnation);
    if expected >= header.id {
        None
    } else if expected == first || expected <= header.base.segment {
        Some(expected)
    } else {
        (of_same_run < header.id).then_some(of_same_run)
    }
}

/// Checks that the segment's file has the size that its header names. That size was durable before
/// the header was written. So if the file is shorter now, the missing part may have held groups.
pub(super) fn check_whole(segment: &SegmentReader<'_>, header: &SegmentHeader) -> Result<()> {
    if segment.size >= header.size {
        return Ok(());
    }
    let message = format!("the segment ends here, it had {} bytes", header.size);
    Err(Error::corruption(
        segment.name.clone(),
        segment.size,
        message,
    ))
}

/// Checks that a segment without an intact header was never used. If it has groups, or replay
/// begins with it, the header was damaged: that is `Corruption`.
fn check_unused(segment: &mut SegmentReader<'_>, first: SegmentId) -> Result<()> {
    if !segment.find_unit()? && segment.id != first {
        return Ok(());
    }
    let message = "the header of a log segment is damaged";
    Err(Error::corruption(segment.name.clone(), 0, message))
}
