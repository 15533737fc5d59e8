//! Closed segments that stay until an archive of the log has copied them.

use super::super::SegmentId;
use super::Wal;

/// A segment that does not change any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedSegment {
    /// Its id.
    pub id: SegmentId,
    /// Bytes of its file.
    pub size: u64,
    /// The bytes after this offset are zeros or do not count.
    pub end: u64,
}

impl Wal {
    /// Keeps segments from `segment` on until a later call with a larger one. Without a call none
    /// is kept.
    pub fn keep_from(&self, segment: SegmentId) {
        self.shared.state.lock().kept_from = segment;
    }

    /// The existing segments from `first` on that are durable and change no more, ascending; all of
    /// them once the log is closed.
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

    /// Whether anything was appended since the log moved to its current segment.
    pub fn segment_used(&self) -> bool {
        self.shared.state.lock().segment_used()
    }
}
