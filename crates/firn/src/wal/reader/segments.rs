//! The segments a replay reads: headers, chains, groups at offsets.

use super::super::frame::{FIRST_GROUP, GroupHeader, SegmentHeader};
use super::super::segment::{list, segment_name};
use super::super::{LogEnd, SegmentId};
use crate::base::{Error, Result};
use crate::env::{BLOCK, Env, ReadFile, SECTOR};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes read at once.
const WINDOW: usize = 256 << 10;

/// A segment for reading, with a window over the part that was read last. It is open only from a
/// read to [`Self::rest`]: an archive of the log may have more segments than a process may have
/// files open.
pub(super) struct SegmentReader<'e> {
    env: &'e dyn Env,
    path: PathBuf,
    pub id: SegmentId,
    pub name: String,
    size: u64,
    /// Groups begin at multiples of this and fill such units.
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
            // A torn tail may end within a block; no group does.
            size: file.size()? / BLOCK as u64 * BLOCK as u64,
            unit: BLOCK,
            file: Some(file),
            window: Vec::new(),
            window_at: 0,
        })
    }

    /// Closes the file and frees the window; the next read opens the file again.
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

    /// Bytes of its whole blocks.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// The bytes at `offset`; `None` past the end of the file.
    pub(super) fn bytes(&mut self, offset: u64, len: u64) -> Result<Option<&[u8]>> {
        let Some(end) = offset.checked_add(len).filter(|&end| end <= self.size) else {
            return Ok(None);
        };
        if offset < self.window_at || end > self.window_at + self.window.len() as u64 {
            let want = len.max(WINDOW as u64).min(self.size - offset) as usize;
            let mut window = std::mem::take(&mut self.window);
            window.resize(want, 0);
            self.file()?.read_exact_at(offset, &mut window)?;
            self.window = window;
            self.window_at = offset;
        }
        let from = (offset - self.window_at) as usize;
        Ok(Some(&self.window[from..from + len as usize]))
    }

    /// Its header, if it is intact; groups are looked for in its units from then on.
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

    /// For a segment without a header: determines the unit of its groups. Returns whether it has
    /// any.
    pub(super) fn find_unit(&mut self) -> Result<bool> {
        let mut best = (0, BLOCK);
        let mut unit = SECTOR;
        while unit <= BLOCK {
            self.unit = unit;
            // A group that fills all sectors of its last block is valid with smaller units, too.
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

    /// Groups begin at multiples of this.
    pub(super) fn unit(&self) -> u64 {
        self.unit as u64
    }

    /// The group at `offset` with all its bytes: `None` if there is no intact one.
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

    /// Length of the group whose header seems to be at `offset`, bytes.
    pub(super) fn peek(&mut self, offset: u64) -> Result<Option<u64>> {
        let (id, unit) = (self.id, self.unit);
        let start = self.bytes(offset, unit as u64)?;
        Ok(start.and_then(|start| GroupHeader::peek_len(start, id, unit)))
    }

    /// Passes each intact group from `offset` on to `see`, with gaps between them, until `see`
    /// returns `false`. Returns whether it reached the end.
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

/// Segments of one run of the engine, in order.
pub(super) struct IncarnationSegments<'e> {
    pub incarnation: SegmentId,
    /// Where the log ended when the run began.
    pub base: LogEnd,
    /// Where the next run found the end of this one; `None` for the last.
    pub next_base: Option<LogEnd>,
    pub segments: Vec<SegmentReader<'e>>,
}

/// Which segments a directory has, and in what state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copied {
    /// All, as they were written.
    Whole,
    /// Segments up to this one, perhaps without the unused room after the last group.
    UpTo(SegmentId),
}

/// Opens the segments from `first` on, checks that none is missing that had been in use, and
/// groups them by run. Also returns the largest id seen in `dir`.
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
    // The id that should come next.
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
                    // A recovery that began after the last group found none, so it recorded the end
                    // that its predecessor had found. All groups that it passed were durable.
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

/// The ids from `expected` up to the segment of `header` have no file, or one without a header.
/// Returns one of them that must have been part of the log, for one of three reasons: replay begins
/// in it; the log ended in or after it when the run of `header` began; or that run used it before
/// this segment, because a run uses its segments in order and writes each header before the first
/// group.
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

/// Checks that the segment has its full size. The size is durable before the header is written, so
/// a missing end may have held groups.
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

/// Checks that a segment without a header was never used: if its header is damaged, it has groups.
fn check_unused(segment: &mut SegmentReader<'_>, first: SegmentId) -> Result<()> {
    if !segment.find_unit()? && segment.id != first {
        return Ok(());
    }
    let message = "the header of a log segment is damaged";
    Err(Error::corruption(segment.name.clone(), 0, message))
}
