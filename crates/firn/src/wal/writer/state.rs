//! The state of the log that its mutex guards.

use super::super::commit_waiter::CommitQueue;
use super::super::durable_prefix::{DurablePrefix, PrefixEnd};
use super::super::frame::{FIRST_GROUP, GROUP_HEADER, GroupHeader, blocks_for};
use super::super::segment::{OldSegment, Segment};
use super::super::{GroupNumber, LogEnd, Lsn, SegmentId};
use super::log_writer_work::LogWriterWork;
use super::sealed_group::{GrowingGroup, SealedGroup};
use super::{
    FullDiskAccess, OutcomeRoom, WalOptions, WalStats, has_room, margin, outcome_room, takes,
};
use crate::env::{AlignedBuf, BLOCK};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// A group's buffer is kept for reuse after the write, if its content has at most this many bytes.
const KEPT_BUFFER: usize = 4 << 20;

/// Everything about the log that changes with an append, a write or a sync.
///
/// Records move through three steps. The open group collects them; the last of them ends at
/// `appended`. A leader takes them out as a sealed group; the last sealed group ends at `sealed`.
/// The durable prefix in `progress` knows which groups are written and which are durable. The
/// positions are always ordered `progress ≤ sealed ≤ appended`. `segment` and `offset` say where
/// the open group will lie; a group never spans two segments.
pub(super) struct WalState {
    /// Buffer of the open group: room for its header, then its records. It is empty if there are no
    /// records.
    pub open: AlignedBuf,
    open_records: u32,
    pub appended: Lsn,
    /// Log position of the end of the last sealed group.
    pub sealed: Lsn,
    last_group: GroupNumber,
    /// Number of records of the group `last_group`; 0 if an earlier incarnation wrote that group.
    pub last_records: u32,
    /// The current segment, to which the open group will be written at `offset` or at the next
    /// block. It is a placeholder while the disk has no room for a segment.
    pub segment: Arc<Segment>,
    pub offset: u64,
    segment_first: GroupNumber,
    previous_segment: SegmentId,
    /// The last segment that a replay needs even if nothing is appended; see
    /// [`Self::begin_of_new`].
    needed_anyway: SegmentId,
    /// The last written group, if more records may be added to it.
    pub tail: Option<GrowingGroup>,
    /// Changes whenever the growth of the last group ends. A thread that writes the group without
    /// the mutex compares it before and after the write.
    pub growth_generation: u64,
    /// The segments that are prepared to follow the current one, with the ids after its id. Mostly
    /// it is one; behind it may be larger ones, for groups that do not fit it.
    pub ready: VecDeque<Arc<Segment>>,
    /// Number of prepared transactions whose outcome is not in the log yet.
    pub outcomes: u64,
    /// Id of the segment that the background thread has been asked to prepare.
    pub next_wanted: SegmentId,
    /// Whether the background thread must try again to prepare the segment `next_wanted`.
    pub ask_again: bool,
    /// Segments before the current one that were not released yet.
    pub old: BTreeMap<SegmentId, OldSegment>,
    /// Segments with this id or a larger one are not released.
    pub kept_from: SegmentId,
    pub progress: DurablePrefix,
    /// Segments with groups that were written but not synced.
    pub unsynced: Vec<Arc<Segment>>,
    /// Whether a thread syncs, or was woken to sync.
    pub syncing: bool,
    pub waiters: CommitQueue,
    pub log_writer: LogWriterWork,
    /// Number of committers that were woken to lead and have not begun. A write slot is reserved
    /// for each of them.
    pub called: usize,
    pub slots: usize,
    spare: Vec<AlignedBuf>,
    /// Whether the last committer waited for the device.
    pub wants_durable: bool,
    pub failed: bool,
    pub closed: bool,
    pub stop_worker: bool,
    pub stats: WalStats,
}

impl WalState {
    pub(super) fn new(
        segment: Arc<Segment>,
        prev: LogEnd,
        old: BTreeMap<SegmentId, OldSegment>,
        opts: &WalOptions,
    ) -> Self {
        let needed_anyway = match opts.discards {
            true => segment.id,
            false => prev.segment.max(opts.replayed_from),
        };
        Self {
            open: AlignedBuf::new(),
            open_records: 0,
            appended: 0,
            sealed: 0,
            last_group: prev.group,
            last_records: 0,
            segment,
            offset: FIRST_GROUP,
            segment_first: prev.group + 1,
            previous_segment: prev.segment,
            needed_anyway,
            tail: None,
            growth_generation: 0,
            ready: VecDeque::new(),
            outcomes: 0,
            next_wanted: 0,
            ask_again: false,
            old,
            kept_from: SegmentId::MAX,
            progress: DurablePrefix::new(PrefixEnd {
                group: prev.group,
                lsn: 0,
            }),
            unsynced: Vec::new(),
            syncing: false,
            waiters: CommitQueue::default(),
            log_writer: LogWriterWork::default(),
            called: 0,
            slots: opts.syncs_in_flight.max(1),
            spare: Vec::new(),
            wants_durable: opts.durable_commits,
            failed: false,
            closed: false,
            stop_worker: false,
            stats: WalStats::default(),
        }
    }

    /// Upper bound of the bytes that the open group takes in the segment if `more` bytes of records
    /// are added to it.
    pub(super) fn group_len(&self, more: usize) -> usize {
        blocks_for(self.open.len().max(GROUP_HEADER) + more)
    }

    /// Number of outcomes that are expected after an append with this effect.
    pub(super) fn outcomes_after(&self, room: OutcomeRoom) -> u64 {
        match room {
            OutcomeRoom::Leave => self.outcomes,
            OutcomeRoom::Keep => self.outcomes + 1,
            OutcomeRoom::Use => self.outcomes.saturating_sub(1),
        }
    }

    pub(super) fn fits(&self, group_len: usize) -> bool {
        self.next_block() + group_len as u64 <= self.segment.size
    }

    /// Makes sure that the open group can have `group_len` bytes, with room for `outcomes` outcomes
    /// of prepared transactions behind it or in the next segment. It may move the open group to the
    /// prepared next segment. Returns `false` if the caller must first prepare a next segment with
    /// that room.
    pub(super) fn make_room(
        &mut self,
        group_len: usize,
        outcomes: u64,
        access: FullDiskAccess,
    ) -> bool {
        let kept = outcome_room(outcomes);
        let stays = takes(&self.segment, access);
        let left = margin(&self.segment, access) as usize;
        if stays && self.fits(group_len + kept as usize + left) {
            return true;
        }
        let room = group_len as u64 + kept;
        self.steps_to(room, access).is_some()
            && (stays && self.fits(group_len + left) || self.advance(room, access))
    }

    /// Whether an ordinary group of `room` bytes finds its room in the current segment or in a
    /// prepared one.
    pub(super) fn has_ready(&self, room: u64) -> bool {
        let access = FullDiskAccess::Ordinary;
        takes(&self.segment, access) && self.fits(room as usize)
            || self.steps_to(room, access).is_some()
    }

    /// The prepared segment to which the log would go for groups of `room` bytes.
    pub(super) fn prepared(&self, room: u64, access: FullDiskAccess) -> Option<&Arc<Segment>> {
        self.ready.get(self.steps_to(room, access)? - 1)
    }

    /// By how many segments the log must move on to have `room` bytes for groups. `None` if no
    /// prepared segment has that room.
    fn steps_to(&self, room: u64, access: FullDiskAccess) -> Option<usize> {
        let mut ready = self.ready.iter();
        let at = ready.position(|segment| has_room(segment, room, access));
        at.map(|at| at + 1)
    }

    /// Makes the first prepared segment that has `room` bytes for groups the current one. Those
    /// before it stay empty. Returns whether there is one.
    fn advance(&mut self, room: u64, access: FullDiskAccess) -> bool {
        let steps = self.steps_to(room, access);
        (0..steps.unwrap_or(0)).for_each(|_| self.enter_next());
        steps.is_some()
    }

    /// Moves the open group to the next segment, if the room for the expected outcomes is in that
    /// segment and no longer in the current one.
    pub(super) fn use_kept_room(&mut self) {
        let open = self.group_len(0);
        if self.outcomes > 0 && !self.fits(open + outcome_room(self.outcomes) as usize) {
            self.rotate(open);
        }
    }

    fn next_block(&self) -> u64 {
        self.offset.next_multiple_of(BLOCK as u64)
    }

    /// Describes the current segment as one that takes no more groups.
    pub(super) fn as_old(&self) -> OldSegment {
        OldSegment {
            size: self.segment.size,
            end: self.next_block().min(self.segment.size),
        }
    }

    /// A replay that begins with this segment finds all records that are appended from now on. It
    /// is the current segment. While that is the placeholder, no file has its id, and the process
    /// may die before one has: then it is the last segment that the next replay needs anyway, with
    /// the last group of the log, or with which that replay begins.
    pub(super) fn begin_of_new(&self) -> SegmentId {
        match self.segment.is_none() {
            true => self.needed_anyway,
            false => self.segment.id,
        }
    }

    /// Whether any record was appended to the current segment.
    pub(super) fn segment_used(&self) -> bool {
        self.offset > FIRST_GROUP || !self.open.is_empty()
    }

    /// Moves the log to a prepared segment that has room for an open group of `group_len` bytes.
    /// Returns whether there is one.
    pub(super) fn rotate(&mut self, group_len: usize) -> bool {
        self.advance(group_len as u64, FullDiskAccess::Exits)
    }

    fn enter_next(&mut self) {
        let Some(next) = self.ready.pop_front() else {
            return;
        };
        if self.offset > FIRST_GROUP {
            self.previous_segment = self.segment.id;
        }
        if !self.segment.is_none() {
            self.old.insert(self.segment.id, self.as_old());
        }
        self.end_growth();
        self.segment = next;
        self.offset = FIRST_GROUP;
        self.segment_first = self.last_group + 1;
    }

    /// The id for a segment behind all that are prepared.
    pub(super) fn id_behind(&self) -> SegmentId {
        self.ready.back().unwrap_or(&self.segment).id + 1
    }

    /// Adds a prepared segment, behind all others.
    pub(super) fn place(&mut self, segment: &Arc<Segment>) {
        debug_assert_eq!(segment.id, self.id_behind());
        self.ready.push_back(Arc::clone(segment));
    }

    /// Takes the next segment out if it is made of the disk reserve and none is behind it: with one
    /// behind it the log would lack a segment.
    pub(super) fn take_reserve(&mut self) -> Option<Arc<Segment>> {
        let alone = self.ready.len() == 1 && self.ready[0].reserve;
        alone.then(|| self.ready.pop_front()).flatten()
    }

    /// Returns the buffer of the open group, to which the caller appends `records` records. In a
    /// new group, the room for the header is added first.
    pub(super) fn open_group(&mut self, records: u32) -> &mut AlignedBuf {
        if self.open.is_empty() {
            self.open.extend_from_slice(&[0; GROUP_HEADER]);
        }
        self.open_records += records;
        &mut self.open
    }

    /// Takes the open group out and fixes its position in the segment. The caller writes it and
    /// then calls [`WalState::written`].
    pub(super) fn seal(&mut self, durable: bool) -> SealedGroup {
        self.end_growth();
        self.open_group(0);
        let fresh = self.spare.pop().unwrap_or_default();
        let buf = std::mem::replace(&mut self.open, fresh);
        self.last_group += 1;
        self.sealed = self.appended;
        let last = PrefixEnd {
            group: self.last_group,
            lsn: self.sealed,
        };
        self.progress.begin(last, self.segment.id);
        let records = self.take_open_records();
        let previous_records = std::mem::replace(&mut self.last_records, records) as u16;
        // A group that goes through the page cache begins and ends at a block boundary, because the
        // cache writes whole blocks: none of them may have bytes of a durable write.
        let (offset, unit) = match durable {
            true => (self.offset, self.segment.unit),
            false => (self.next_block(), BLOCK),
        };
        self.offset = offset + buf.len().next_multiple_of(unit) as u64;
        SealedGroup {
            header: GroupHeader {
                number: self.last_group,
                known_synced: self.progress.durable().group,
                segment_first: self.segment_first,
                previous_segment: self.previous_segment,
                payload_len: (buf.len() - GROUP_HEADER) as u32,
                records,
                previous_records,
            },
            buf,
            segment: Arc::clone(&self.segment),
            offset,
            durable,
        }
    }

    pub(super) fn take_open_records(&mut self) -> u32 {
        std::mem::take(&mut self.open_records)
    }

    /// Notes that the write of `group` has succeeded.
    pub(super) fn written(&mut self, group: SealedGroup) {
        self.note_written(&group, true);
        self.keep_buffer(group.buf);
    }

    /// Notes that a write of `group` has succeeded. The caller keeps the group's buffer. `first` is
    /// `false` if the group is a growing one and was written before with fewer records.
    pub(super) fn note_written(&mut self, group: &SealedGroup, first: bool) {
        if first {
            self.stats.groups += 1;
            self.stats.bytes_written += group.buf.len() as u64;
        }
        if group.durable {
            self.stats.syncs += 1;
        } else if !self.unsynced.iter().any(|s| s.id == group.segment.id) {
            self.unsynced.push(Arc::clone(&group.segment));
        }
        self.progress.finish(group.header.number, group.durable);
    }

    pub(super) fn keep_buffer(&mut self, mut buf: AlignedBuf) {
        if buf.len() <= KEPT_BUFFER && self.spare.len() <= self.slots {
            buf.clear();
            self.spare.push(buf);
        }
    }

    pub(super) fn reached(&self, lsn: Lsn, durable: bool) -> bool {
        let end = if durable {
            self.progress.durable()
        } else {
            self.progress.written()
        };
        lsn <= end.lsn
    }

    /// Whether the background thread should now prepare the next segment. It prepares one as soon
    /// as the current segment is in use. So if no file can be opened for a while, commits can still
    /// fill one whole segment.
    pub(super) fn should_prepare(&self) -> bool {
        self.ready.is_empty() && self.next_wanted <= self.segment.id
    }

    /// Bytes of the files from segment `first` to the current one.
    pub(super) fn bytes_from(&self, first: SegmentId) -> u64 {
        let old = self.old.range(first..).map(|(_, old)| old.size);
        old.sum::<u64>() + self.segment.size
    }

    /// The lowest segment that must not be released: the current one, or one with groups that are
    /// not durable.
    pub(super) fn oldest_needed(&self) -> SegmentId {
        let unsynced = self.unsynced.iter().map(|s| s.id);
        let pending = self.progress.oldest_segment().into_iter();
        unsynced.chain(pending).fold(self.segment.id, u64::min)
    }
}

const _: () = assert!(FIRST_GROUP as usize == BLOCK);

#[cfg(test)]
mod tests;
