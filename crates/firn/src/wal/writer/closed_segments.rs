//! Closed segments, which are kept until the log archive has copied them.

use super::super::SegmentId;
use super::Wal;

/// A log segment that does not change any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedSegment {
    /// Id of the segment.
    pub id: SegmentId,
    /// Size of the segment's file, bytes.
    pub size: u64,
    /// No group lies behind this offset: a copy may leave out the bytes after it.
    pub end: u64,
}

impl Wal {
    /// Keeps [`Wal::release_before`] from releasing segments with id `segment` or larger, until a
    /// later call names a larger id. Before the first call it keeps none.
    pub fn keep_from(&self, segment: SegmentId) {
        self.shared.state.lock().kept_from = segment;
    }

    /// The existing segments from `first` on that are durable and no longer change, ascending. The
    /// current segment is one of them only after the log was closed.
    pub fn closed_segments(&self, first: SegmentId) -> Vec<ClosedSegment> {
        let state = self.shared.state.lock();
        let ended = state.closed && state.progress.writing() == 0 && state.open.is_empty();
        let last = (ended && !state.failed && state.segment_used())
            .then(|| (state.segment.id, state.as_old()));
        let limit = match last {
            Some(_) => SegmentId::MAX,
            None => state.oldest_needed(),
        };
        let closed = state.old.range(first..).map(|(id, old)| (*id, *old));
        closed
            .chain(last.filter(|(id, _)| *id >= first))
            .take_while(|(id, _)| *id < limit)
            .map(|(id, old)| ClosedSegment {
                id,
                size: old.size,
                end: old.end,
            })
            .collect()
    }

    /// Whether a segment with id `first` or larger exists before the current one. The groups of
    /// such a segment may not be durable yet, unlike those of the segments that
    /// [`Self::closed_segments`] returns.
    pub fn has_left_segment(&self, first: SegmentId) -> bool {
        self.shared.state.lock().old.range(first..).next().is_some()
    }

    /// Whether any record was appended since the log moved to its current segment.
    pub fn segment_used(&self) -> bool {
        self.shared.state.lock().segment_used()
    }
}
