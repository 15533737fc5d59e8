//! Picks compactions of given key ranges, for callers that want only these ranges at rest.

use super::{JobReason, LAST, LevelTargets, PickerContext, changes_at_rest};
use crate::base::Seqno;
use crate::base::key_range::KeyRange;
use crate::compaction::running_jobs::Job;
use crate::version::FileMeta;

/// Key ranges to bring to rest, and a seqno. Files with only newer entries are left to the
/// background, because otherwise the work might never end while data is written.
#[derive(Debug, Clone)]
pub struct RestOrder {
    /// The ranges.
    pub ranges: Vec<KeyRange>,
    /// The visible seqno when the work began.
    pub until: Seqno,
}

impl RestOrder {
    fn wants(&self, file: &FileMeta) -> bool {
        let in_range = |range: &KeyRange| file.overlaps(&range.smallest, &range.largest);
        file.min_seqno <= self.until && self.ranges.iter().any(in_range)
    }
}

/// The next job that brings data of `order` nearer to rest, if one is due and no running job
/// conflicts with it. `p.rest` must be [`super::RestGoal::Complete`].
pub fn pick_within(p: &PickerContext<'_>, order: &RestOrder) -> Option<Job> {
    let level_targets = LevelTargets::of(p.version, p.options.base_level_size);
    let wanted = |file: &FileMeta| order.wants(file);
    p.sink_l0(&level_targets, JobReason::Idle, 0, wanted)
        .or_else(|| (1..LAST).find_map(|l| p.sink(&level_targets, l, JobReason::Idle, wanted)))
        .or_else(|| p.in_place(JobReason::Idle, 0, wanted))
}

/// Bytes of the files of `order` that are not at rest.
pub fn bytes_not_at_rest(p: &PickerContext<'_>, order: &RestOrder) -> u64 {
    let files = p.version.files().filter(|(level, file)| {
        order.wants(file) && (*level != LAST || changes_at_rest(file, p.retired, p.oldest_read))
    });
    files.map(|(_, file)| file.size).sum()
}
