//! Groups that left the log's mutex to be written, and the last of them, which may grow.

use super::super::GroupNumber;
use super::super::frame::{GROUP_HEADER, GroupHeader};
use super::super::segment::Segment;
use crate::base::Result;
use crate::env::{AlignedBuf, BLOCK};
use std::sync::Arc;

/// A group taken out of the log, to be written without the mutex.
pub(super) struct SealedGroup {
    pub header: GroupHeader,
    pub buf: AlignedBuf,
    pub segment: Arc<Segment>,
    pub offset: u64,
    /// Durable when written; otherwise it waits for a sync.
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

/// The last group written, while it may grow.
///
/// Invariants
/// - It fills one block at most, so a kill leaves its block in the page cache whole or not at all.
/// - It was never durable, and no sync has begun since it was written: a later version must not
///   tear the bytes that a running sync makes durable.
/// - It is the last group of the log.
pub(super) struct GrowingGroup {
    /// The group, its buffer without padding.
    pub(super) group: SealedGroup,
}

impl GrowingGroup {
    /// The group that was just written, if it leaves room in its block.
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

    /// The group with the records of `open` behind its own.
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
