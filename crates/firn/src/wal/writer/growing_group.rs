//! Adds commits that wait only for the operating system, and not for the device, to the last group,
//! which grows in its block.
//!
//! A group that goes through the page cache owns whole blocks, so each small commit with a group of
//! its own would take a block of the log and of the device. Rewriting a block in the page cache
//! costs no device write: the device gets the block once, at the next sync. After a power cut, an
//! earlier version of a growing group may stand in front of later groups. Replay notices that,
//! because each group header records how many records the previous group had.

use super::super::Lsn;
use super::Shared;
use super::sealed_group::{GrowingGroup, SealedGroup};
use super::state::WalState;

impl Shared {
    /// Writes the open group to the page cache, if no other write is under way and no committer
    /// waits for the open group to be durable. Commits that arrive during the write append to the
    /// next open group. The thread that gets the mutex `turn` next writes that group for all these
    /// commits.
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
        self.wake_committers(state);
    }
}

impl WalState {
    /// Ends the growth of the last group: from now on no records are added to a group that was
    /// already written.
    pub(super) fn end_growth(&mut self) {
        self.tail = None;
        self.growth_generation += 1;
    }

    /// Takes out the next group to write: the growing group with the records of the open group
    /// added, or else the open group alone. The `bool` is `true` if this is the first write of the
    /// group.
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
