//! Picks compactions for callers that want to bring only some key ranges to rest.

use super::{ANY_GARBAGE, JobReason, LAST, LevelTargets, PickerContext, Wanted, changes_at_rest};
use crate::base::Seqno;
use crate::base::key_range::KeyRange;
use crate::compaction::running_jobs::Job;
use crate::version::FileMeta;
use std::collections::HashSet;
use std::ops::Bound;

/// Key ranges to bring to rest, and a seqno. Files that have only entries above this seqno do not
/// count, because otherwise the work might never end while data is written.
#[derive(Debug, Clone)]
pub struct RestOrder {
    /// The ranges.
    pub ranges: Vec<KeyRange>,
    /// The visible seqno when the work began.
    pub until: Seqno,
}

impl RestOrder {
    pub(super) fn wants(&self, file: &FileMeta) -> bool {
        let in_range = |range: &KeyRange| file.overlaps(&range.smallest, &range.largest);
        file.min_seqno <= self.until && self.ranges.iter().any(in_range)
    }
}

/// The next job that brings the ranges of `order` closer to the state at rest; `None` if there is
/// none, or only such that conflict with running jobs. `p.rest` must be
/// [`super::RestGoal::Complete`].
pub fn pick_within(p: &PickerContext<'_>, order: &RestOrder) -> Option<Job> {
    let level_targets = LevelTargets::of(p.version, p.options.base_level_size);
    let wanted = |file: &FileMeta| order.wants(file);
    let ordered = Wanted::Order(order);
    p.sink_l0(&level_targets, JobReason::Idle, 0, wanted)
        .or_else(|| (1..LAST).find_map(|l| p.sink(&level_targets, l, JobReason::Idle, ordered)))
        .or_else(|| p.in_place(JobReason::Idle, ANY_GARBAGE, ordered))
}

/// Bytes of the files of `order` that are not at rest.
pub fn bytes_not_at_rest(p: &PickerContext<'_>, order: &RestOrder) -> u64 {
    let mut counted = HashSet::new();
    let mut bytes = 0;
    for range in &order.ranges {
        let upper = Bound::Included(range.largest.as_slice());
        for level in 0..=LAST {
            let runs = p.version.runs(level).iter();
            for file in runs.flat_map(|run| run.overlapping(&range.smallest, upper)) {
                let at_rest = level == LAST && !changes_at_rest(file, p.retired, p.oldest_read);
                // A file may have keys of several ranges.
                if !at_rest && order.wants(file) && counted.insert(file.file_id) {
                    bytes += file.size;
                }
            }
        }
    }
    bytes
}
