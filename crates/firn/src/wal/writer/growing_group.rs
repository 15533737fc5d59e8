//! Commits that wait for the operating system only: the last group grows in its block.
//!
//! A group in the page cache owns whole blocks, so small commits that nobody gathers would each
//! take a block of the log and of the device. Through the page cache a block may be written again
//! at no cost: the device sees it once, at the next sync. After a power cut an earlier version of
//! such a group may be there with later groups behind it; these tell how many records it should
//! have.

use super::super::frame::{GROUP_HEADER, GroupHeader};
use super::super::{GroupNumber, Lsn};
use super::Shared;
use super::state::{SealedGroup, WalState};
use crate::base::Result;
use crate::env::{AlignedBuf, BLOCK};

/// The last group written, while it may grow.
///
/// Invariants: it fills one block at most, so that the process can be killed before or after its
/// block is in the page cache but not in between; it was never durable, and no sync has begun since
/// it was written (a sync that has begun may be writing the block out, and what it makes durable
/// must not be torn by a later version of it); no group lies behind it.
pub(super) struct GrowingGroup {
    /// The group, its buffer without padding.
    group: SealedGroup,
}

impl GrowingGroup {
    /// The group that was just written, if it leaves room in its block.
    fn of(mut group: SealedGroup) -> Result<Self, SealedGroup> {
        let len = GROUP_HEADER + group.header.payload_len as usize;
        if len >= BLOCK {
            return Err(group);
        }
        group.buf.truncate(len);
        Ok(Self { group })
    }

    fn has_room_for(&self, open: &AlignedBuf) -> bool {
        self.group.buf.len() + open.len() - GROUP_HEADER <= BLOCK
    }

    /// The group with the records of `open` behind its own.
    fn grown(self, open: &AlignedBuf, records: u32, known_synced: GroupNumber) -> SealedGroup {
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

impl Shared {
    /// Hands the open group to the operating system, if that is all that is being written and
    /// nobody waits to see it durable; those who come meanwhile append to the next one, and whoever
    /// has the turn after this writes for all of them.
    pub(super) fn write_inline(&self, lsn: Lsn) {
        let _turn = self.turn.lock();
        let mut state = self.state.lock();
        let needed = lsn > state.sealed && !state.failed && !state.segment.is_none();
        let alone = state.progress.writing() == 0 && !state.open_wanted_durable();
        if !needed || !alone {
            return;
        }
        let (mut group, first) = state.take_inline();
        let epoch = state.growth_generation;
        drop(state);
        let written = self.segments.health.check().and_then(|()| group.write());
        let mut state = self.state.lock();
        match written {
            Ok(()) => state.wrote_inline(group, first, epoch),
            Err(error) => self.fail(&mut state, error),
        }
        self.settle(state);
    }
}

impl WalState {
    /// No group may grow any more that was written before.
    pub(super) fn end_growth(&mut self) {
        self.tail = None;
        self.growth_generation += 1;
    }

    /// The last group with the open one's records added, or the open group; whether its place is
    /// written for the first time.
    fn take_inline(&mut self) -> (SealedGroup, bool) {
        let Some(tail) = self.tail.take_if(|tail| tail.has_room_for(&self.open)) else {
            return (self.seal(false), true);
        };
        let records = self.take_open_records();
        let group = tail.grown(&self.open, records, self.progress.durable().group);
        self.open.clear();
        self.sealed = self.appended;
        self.last_records = group.header.records;
        self.progress.grow(group.header.number, self.sealed);
        (group, false)
    }

    fn wrote_inline(&mut self, group: SealedGroup, first: bool, epoch: u64) {
        self.note_written(&group, first);
        match GrowingGroup::of(group) {
            Ok(tail) if self.growth_generation == epoch => self.tail = Some(tail),
            Ok(GrowingGroup { group }) | Err(group) => self.keep_buffer(group.buf),
        }
    }
}
