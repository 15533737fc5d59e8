//! Commits that wait for the operating system only: the last group grows in its block.
//!
//! A group in the page cache owns whole blocks, so each small commit that does not share a group
//! would take a block of the log and of the device. Through the page cache a block may be written
//! again at no cost: the device gets it once, at the next sync. A power cut may leave an earlier
//! version of such a group in front of later groups; those record how many records it should have.

use super::super::Lsn;
use super::Shared;
use super::sealed_group::{GrowingGroup, SealedGroup};
use super::state::WalState;

impl Shared {
    /// Hands the open group to the operating system, if no other write is under way and no
    /// committer waits to see it durable. Commits that arrive meanwhile append to the next group,
    /// and the thread that gets the turn next writes for all of them.
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
    /// Groups that were written before may not grow any more.
    pub(super) fn end_growth(&mut self) {
        self.tail = None;
        self.growth_generation += 1;
    }

    /// The last group with the open one's records added, or the open group; and whether its blocks
    /// are written for the first time.
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
