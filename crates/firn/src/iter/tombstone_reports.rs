//! Collects the key ranges in which scans skipped too many entries.

use crate::base::Seqno;
use crate::base::key_range::KeyRange;
use parking_lot::Mutex;

/// Most ranges kept; the oldest are dropped first.
const RANGES_MAX: usize = 16;

/// Collects the ranges that scans report, for the compaction picker.
///
/// An iterator reports when a single move skips a thousand entries, which means a stretch of
/// deletions without a row in between. (Old versions between rows are ordinary under updates and
/// not urgent.) If the move goes on, each further report begins at the key where the last one
/// ended. Ranges that share a key become one, so a long stretch takes one of the few places.
///
/// A range is open until the picker finds no more work for it; then it is closed. Compactions must
/// still keep the entries in it that the oldest read (the one at the lowest seqno) sees, and scans
/// still skip them. So reports of a closed range are ignored until that read ends: otherwise a long
/// snapshot would cause rewrites of the same range again and again.
#[derive(Debug, Default)]
pub struct TombstoneReports {
    state: Mutex<ReportedRanges>,
}

#[derive(Debug, Default)]
struct ReportedRanges {
    open: Vec<KeyRange>,
    /// Ranges in which the picker found no more work. Reports of such a range are ignored as long
    /// as the read lives that was the oldest one when the range was closed; the seqno is that of
    /// this read.
    closed: Vec<(KeyRange, Seqno)>,
}

impl TombstoneReports {
    /// Records that a scan skipped too many entries in `range`. Returns whether a part of the range
    /// was not reported before.
    pub fn report(&self, range: KeyRange) -> bool {
        let open = &mut self.state.lock().open;
        let known =
            |open: &KeyRange| open.contains(&range.smallest) && open.contains(&range.largest);
        if open.iter().any(known) {
            return false;
        }
        let mut joined = range;
        // The grown range may reach further ones.
        while let Some(at) = open.iter().position(|open| open.overlaps(&joined)) {
            joined.extend(&open.remove(at));
        }
        if open.len() == RANGES_MAX {
            open.remove(0);
        }
        open.push(joined);
        true
    }

    /// The open ranges: scans have reported them, and the picker may still find work for them.
    /// Leaves out those that overlap a closed range, for which the picker found no more work and
    /// the oldest read of that time still goes on. `oldest` is the seqno of the oldest read that
    /// goes on now.
    pub fn open(&self, oldest: Seqno) -> Vec<KeyRange> {
        let mut state = self.state.lock();
        let ReportedRanges { open, closed } = &mut *state;
        closed.retain(|(_, at)| *at >= oldest);
        open.retain(|range| !closed.iter().any(|(done, _)| done.overlaps(range)));
        open.clone()
    }

    /// Closes `ranges`, because the picker found no more work for them: a scan may report them
    /// again, but the picker does not see such a report as long as a read from before now goes on.
    /// `oldest` is the seqno of the oldest read that was in progress when the picker looked.
    pub fn close(&self, ranges: &[KeyRange], oldest: Seqno) {
        let mut state = self.state.lock();
        state.open.retain(|open| !ranges.contains(open));
        let closed = ranges.iter().map(|range| (range.clone(), oldest));
        state.closed.extend(closed);
        let excess = state.closed.len().saturating_sub(RANGES_MAX);
        state.closed.drain(..excess);
    }
}

#[cfg(test)]
mod tests;
