//! The log cut: the current segment ends behind the records that were appended so far, and the next
//! segment begins.
//!
//! A checkpoint or the log archive takes its copy of the log while commits go on, so the copy needs
//! a defined end. A segment that takes no more groups can be hard-linked instead of copied, and it
//! holds no records that were appended after the cut.

use super::super::frame::FIRST_GROUP;
use super::super::{Lsn, SegmentId};
use super::sealed_group::SealedGroup;
use super::{FullDiskAccess, Wal, outcome_room};
use crate::base::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A log cut that [`Wal::try_cut`] has made. The groups before it may not be durable yet:
/// [`Wal::finish_cut`] waits for that.
pub struct WalCut {
    /// The last group before the cut, which [`Wal::finish_cut`] must write.
    group: Option<SealedGroup>,
    lsn: Lsn,
    segment: SegmentId,
}

/// As long as a value of this type exists, no log segment is recycled or removed.
pub struct SegmentHold(Arc<AtomicUsize>);

impl Drop for SegmentHold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Wal {
    /// Keeps all log segments until the result is dropped. Calls of [`Wal::release_before`] until
    /// then do nothing; the first call after that releases the segments.
    pub fn hold_segments(&self) -> SegmentHold {
        // Increment the number of holds under the log's mutex. [`Wal::release_before`] holds this
        // mutex while it checks that the number is 0 and chooses the segments to release, so no
        // hold can begin in between.
        let _state = self.shared.state.lock();
        self.shared.held.fetch_add(1, Ordering::AcqRel);
        SegmentHold(Arc::clone(&self.shared.held))
    }

    /// Prepares the segment with which the log goes on behind a cut by [`Self::try_cut`]. This may
    /// take long, since a new segment may be filled with zeros.
    ///
    /// # Errors
    /// Those of [`Self::append`].
    pub fn prepare_cut(&self) -> Result<()> {
        self.shared
            .prepare_next(0, FullDiskAccess::Ordinary)
            .map(drop)
    }

    /// Ends the current segment behind all records that were appended so far; later records go to
    /// the next segment. This function does no I/O: the caller must pass the result to
    /// [`Self::finish_cut`]. Returns `None` if no next segment with enough room is prepared any
    /// more, because the log has used it since [`Self::prepare_cut`]. The caller then prepares one
    /// again.
    ///
    /// # Errors
    /// `Poisoned` if the log has failed, `ShutDown` after [`Self::close`].
    pub fn try_cut(&self) -> Result<Option<WalCut>> {
        let mut state = self.shared.state.lock();
        if state.failed {
            return Err(self.shared.unknown_outcome());
        }
        if state.closed {
            return Err(Error::new(ErrorKind::ShutDown, "the log is closed"));
        }
        let room = outcome_room(state.outcomes);
        if state.prepared(room, FullDiskAccess::Exits).is_none() {
            return Ok(None);
        }
        if state.segment.is_none() {
            // The log had no current segment, because the disk was full, so its records are still
            // in memory. They go to the prepared segment now, which becomes the current one. The
            // cut needs one more segment, for the records after it: `None` makes the caller prepare
            // it and call this function again.
            let open = state.group_len(0);
            state.rotate(open);
            return Ok(None);
        }
        // The open group always fits the current segment. A segment without any group would count
        // as never used, so if there are no records it gets an empty group.
        let wanted = !state.open.is_empty() || state.offset == FIRST_GROUP;
        let group = wanted.then(|| state.seal(true));
        let cut = WalCut {
            group,
            lsn: state.appended,
            segment: state.segment.id,
        };
        let rotated = state.rotate(room as usize);
        debug_assert!(rotated, "the next segment was there");
        Ok(Some(cut))
    }

    /// Returns when all records before the cut are durable. The result is the last segment before
    /// the cut: that segment and those before it no longer change.
    ///
    /// # Errors
    /// `Poisoned`, as [`Wal::sync_to`].
    pub fn finish_cut(&self, cut: WalCut) -> Result<SegmentId> {
        if let Some(group) = cut.group {
            self.shared.write(group);
        }
        self.shared.wait_for(cut.lsn, true)?;
        // If the last group was empty, no record waits for it, so the wait above ends even if its
        // write has failed. The health tells whether it has.
        self.shared.segments.health.check()?;
        Ok(cut.segment)
    }
}
