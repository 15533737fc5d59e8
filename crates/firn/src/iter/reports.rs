//! Ranges in which scans skipped too much.

use crate::base::Seqno;
use crate::base::range::KeyRange;
use parking_lot::Mutex;

/// Ranges kept; the oldest go first.
const RANGES_MAX: usize = 16;

/// Collects what scans report, for the picker of compactions.
///
/// A cursor reports when a single move skips a thousand entries: then there is a stretch of
/// deletions without a row between them. (Old versions between rows are what updates leave
/// everywhere, and no reason to hurry.)
///
/// A range is open until the picker finds nothing more to do for it. Then it is closed, and reports
/// of it are passed over as long as the oldest read stands where it stood: whatever is still skipped
/// there must stay for that read. That keeps a long snapshot from having the same range rewritten
/// again and again.
#[derive(Debug, Default)]
pub struct Reports {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    open: Vec<KeyRange>,
    /// With the oldest read when they were closed.
    closed: Vec<(KeyRange, Seqno)>,
}

impl Reports {
    /// A scan skipped too much in `range`. Returns whether the range was not known.
    pub fn report(&self, range: KeyRange) -> bool {
        let mut state = self.state.lock();
        if let Some(open) = state.open.iter_mut().find(|open| open.overlaps(&range)) {
            let known = open.contains(&range.smallest) && open.contains(&range.largest);
            open.extend(&range);
            return !known;
        }
        if state.open.len() == RANGES_MAX {
            state.open.remove(0);
        }
        state.open.push(range);
        true
    }

    /// The ranges to work on when the oldest read stands at `oldest`.
    pub fn open(&self, oldest: Seqno) -> Vec<KeyRange> {
        let mut state = self.state.lock();
        let State { open, closed } = &mut *state;
        closed.retain(|(_, at)| *at >= oldest);
        open.retain(|range| !closed.iter().any(|(done, _)| done.overlaps(range)));
        open.clone()
    }

    /// The picker found nothing more to do for `ranges`.
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
