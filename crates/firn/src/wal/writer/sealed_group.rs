//! Sealed groups and the growing group. A sealed group takes no more commits, so a thread writes it
//! without the mutex of the log.

use super::super::GroupNumber;
use super::super::frame::{GROUP_HEADER, GroupHeader};
use super::super::segment::Segment;
use crate::base::Result;
use crate::env::{AlignedBuf, BLOCK};
use std::sync::Arc;

/// A group that a leader has taken out of the log's state, to write it without the log's mutex.
pub(super) struct SealedGroup {
    pub header: GroupHeader,
    pub buf: AlignedBuf,
    pub segment: Arc<Segment>,
    pub offset: u64,
    /// Whether the write bypasses the page cache and makes the group durable. Otherwise the group
    /// becomes durable with a later sync of its file.
    pub durable: bool,
}

impl SealedGroup {
    pub(super) fn write(&mut self) -> Result<()> {
        let Self { buf, segment, .. } = self;
        self.header.seal(buf, segment.id, self.offset, segment.unit);
        if self.durable {
            segment.file.write_durable_at(self.offset, buf)
        } else {
            buf.pad_to(BLOCK);
            segment.file.write_at(self.offset, buf)
        }
    }
}

/// The last written group, as long as more records may be added to it.
///
/// Invariants
/// - It fills one block at most. So if the process is killed during a write, the page cache has
///   either the new or the old version of that block.
/// - It was not written durably, and no sync has begun since it was written. Otherwise a rewrite
///   could tear bytes that a sync is making, or has made, durable.
/// - It is the last group of the log.
pub(super) struct GrowingGroup {
    /// The group as it was last written, with the padding removed from its buffer.
    pub(super) group: SealedGroup,
}

impl GrowingGroup {
    /// Makes `group`, which was just written, the growing group. Returns `group` as the error if it
    /// leaves no room in its block.
    pub(super) fn of(mut group: SealedGroup) -> Result<Self, SealedGroup> {
        let len = GROUP_HEADER + group.header.payload_len as usize;
        if len >= BLOCK {
            return Err(group);
        }
        group.buf.truncate(len);
        Ok(Self { group })
    }

    pub(super) fn has_room_for(&self, open: &AlignedBuf) -> bool {
        self.group.buf.len() + open.len() - GROUP_HEADER <= BLOCK
    }

    /// Returns the group with the records of the buffer `open` added behind its own records.
    pub(super) fn grown(
        self,
        open: &AlignedBuf,
        records: u32,
        known_synced: GroupNumber,
    ) -> SealedGroup {
        let mut group = self.group;
        group
            .buf
            .extend_from_slice(&open.as_slice()[GROUP_HEADER..]);
        let header: &mut GroupHeader = &mut group.header;
        header.payload_len = (group.buf.len() - GROUP_HEADER) as u32;
        header.records += records;
        header.known_synced = known_synced;
        group
    }
}
