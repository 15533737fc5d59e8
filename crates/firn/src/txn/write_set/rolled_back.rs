//! Positions of rolled back writes in spilled runs.

/// The dead positions: those of spilled writes that were rolled back, as intervals.
///
/// Invariant: the intervals are not empty, ascend, and do not overlap. Positions are never used
/// twice, so a dead position stays dead.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct RolledBackPositions {
    /// (a, b) stands for the positions greater than a, up to and including b.
    intervals: Vec<(u64, u64)>,
}

impl RolledBackPositions {
    pub(super) fn is_empty(&self) -> bool {
        self.intervals.is_empty()
    }

    /// Records that the spilled writes at positions above `mark` were rolled back. `last` is the
    /// largest position of a spilled write.
    pub(super) fn add(&mut self, mark: u64, last: u64) {
        let mut from = mark;
        while let Some(&(start, end)) = self.intervals.last() {
            if end < mark {
                break;
            }
            from = from.min(start);
            self.intervals.pop();
        }
        if from < last {
            self.intervals.push((from, last));
        }
    }

    /// Forgets dead positions above `last`, because the spilled runs with these positions were
    /// removed. `last` is the last position of the runs that are left.
    pub(super) fn cut(&mut self, last: u64) {
        self.intervals.retain(|(from, _)| *from < last);
        if let Some((_, to)) = self.intervals.last_mut() {
            *to = last.min(*to);
        }
    }

    pub(super) fn contains(&self, position: u64) -> bool {
        self.touches(position, position)
    }

    /// Whether a position from `first` to `last` is dead.
    pub(super) fn touches(&self, first: u64, last: u64) -> bool {
        let at = self.intervals.partition_point(|(_, to)| *to < first);
        self.intervals.get(at).is_some_and(|(from, _)| *from < last)
    }

    /// Whether all positions from `first` to `last` are dead.
    pub(super) fn covers(&self, first: u64, last: u64) -> bool {
        let at = self.intervals.partition_point(|(_, to)| *to < last);
        self.intervals
            .get(at)
            .is_some_and(|(from, _)| *from < first)
    }
}

#[cfg(test)]
mod tests;
