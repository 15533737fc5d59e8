//! Cutting the log: what was appended so far ends with its segment.
//!
//! A copy of the log that is taken while it is written must end somewhere. A segment that no group
//! goes into any more can be given a second name instead of being copied, and holds nothing of what
//! comes later.

use super::super::frame::FIRST_GROUP;
use super::super::{Lsn, SegmentId};
use super::sealed_group::SealedGroup;
use super::{FullDiskAccess, Wal, outcome_room};
use crate::base::{Error, ErrorKind, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The log was cut; its last groups may still be on their way to the device.
pub struct WalCut {
    /// To be written by whoever cut.
    group: Option<SealedGroup>,
    lsn: Lsn,
    segment: SegmentId,
}

/// As long as it lives no segment is recycled or removed.
pub struct SegmentHold(Arc<AtomicUsize>);

impl Drop for SegmentHold {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Wal {
    /// Keeps all segments until what it returns is dropped: those that are released meanwhile go
    /// with the next release after that.
    pub fn hold_segments(&self) -> SegmentHold {
        // Under the mutex: a release that has begun has chosen its segments.
        let _state = self.shared.state.lock();
        self.shared.held.fetch_add(1, Ordering::AcqRel);
        SegmentHold(Arc::clone(&self.shared.held))
    }

    /// Makes ready what [`Self::try_cut`] needs. May take as long as filling a segment with zeros.
    ///
    /// # Errors
    /// As of [`Self::append`].
    pub fn prepare_cut(&self) -> Result<()> {
        self.shared
            .prepare_next(0, FullDiskAccess::Ordinary)
            .map(drop)
    }

    /// Ends the current segment behind everything that was appended; what is appended from now on
    /// goes into the next one. No I/O: the caller passes the result to [`Self::finish_cut`],
    /// always. `None` if the next segment was taken meanwhile: to be prepared again.
    ///
    /// # Errors
    /// `Poisoned`, `ShutDown`.
    pub fn try_cut(&self) -> Result<Option<WalCut>> {
        let mut state = self.shared.state.lock();
        if state.failed {
            return Err(self.shared.unknown_outcome());
        }
        if state.closed {
            return Err(Error::new(ErrorKind::ShutDown, "the log is closed"));
        }
        let room = FIRST_GROUP + outcome_room(state.outcomes);
        if state.next.as_ref().is_none_or(|next| next.size < room) {
            return Ok(None);
        }
        if state.segment.is_none() {
            // Records that were kept in memory go first.
            let open = state.group_len(0);
            state.rotate(open);
            return Ok(None);
        }
        // The open group has its place for sure. A segment without any would pass for one that was
        // never used, so it gets an empty one.
        let wanted = !state.open.is_empty() || state.offset == FIRST_GROUP;
        let group = wanted.then(|| state.seal(true));
        let cut = WalCut {
            group,
            lsn: state.appended,
            segment: state.segment.id,
        };
        let rotated = state.rotate(0);
        debug_assert!(rotated, "the next segment was there");
        Ok(Some(cut))
    }

    /// Returns when everything before the cut is durable: the segments up to the one returned do
    /// not change any more.
    ///
    /// # Errors
    /// `Poisoned`: as of [`Self::sync_to`].
    pub fn finish_cut(&self, cut: WalCut) -> Result<SegmentId> {
        if let Some(group) = cut.group {
            self.shared.write(group);
        }
        self.shared.wait_for(cut.lsn, true)?;
        // An empty group moves no position: did its write succeed?
        self.shared.segments.health.check()?;
        Ok(cut.segment)
    }
}
