//! Picks compactions for callers that want to bring only some key ranges to rest.

use super::{ANY_GARBAGE, JobReason, LAST, LevelTargets, PickerContext, Wanted, changes_at_rest};
use crate::base::Seqno;
use crate::base::key_range::KeyRange;
use crate::compaction::held_files::HeldFiles;
use crate::compaction::running_jobs::Job;
use crate::version::{FileHandle, FileMeta};
use std::ops::ControlFlow;

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
/// no such job, or if each of them conflicts with a running job. `p.rest` must be
/// [`super::RestGoal::Complete`].
pub fn pick_within(p: &PickerContext<'_>, order: &RestOrder) -> Option<Job> {
    let level_targets = LevelTargets::of(p.version, p.options.base_level_size);
    let wanted = |file: &FileMeta| order.wants(file);
    let ordered = Wanted::Order(order);
    p.sink_l0(&level_targets, JobReason::Idle, 0, wanted)
        .or_else(|| (1..LAST).find_map(|l| p.sink(&level_targets, l, JobReason::Idle, ordered)))
        .or_else(|| p.in_place(JobReason::Idle, ANY_GARBAGE, ordered))
}

/// Files that are not at rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RestlessFiles {
    /// Number of files.
    pub files: u64,
    /// Their sizes in bytes.
    pub bytes: u64,
}

/// The files of `order` that are not at rest. In the last level, the function visits no other
/// files.
pub fn restless_files(p: &PickerContext<'_>, order: &RestOrder) -> RestlessFiles {
    let mut all = RestlessFiles::default();
    let _ = for_each_restless(p, order, |file| {
        all.files += 1;
        all.bytes += file.size;
        ControlFlow::Continue(())
    });
    all
}

/// Whether no file of `order` has to be compacted.
pub fn is_at_rest(p: &PickerContext<'_>, order: &RestOrder) -> bool {
    for_each_restless(p, order, |_| ControlFlow::Break(())).is_continue()
}

/// Calls `f` with each file that is not at rest and that `order` asks to bring to rest, until `f`
/// returns `Break`. Leaves out damaged files and those that damaged files keep where they are: no
/// job brings them to rest.
fn for_each_restless(
    p: &PickerContext<'_>,
    order: &RestOrder,
    mut f: impl FnMut(&FileMeta) -> ControlFlow<()>,
) -> ControlFlow<()> {
    let wanted = Wanted::Order(order);
    let level_targets = LevelTargets::of(p.version, p.options.base_level_size);
    let held = HeldFiles::of(p.version, level_targets.base);
    let stays = |level: u8, file: &FileHandle| match level {
        0 => held.has(file),
        level => p.version.is_blocked(level, file),
    };
    for level in 0..LAST {
        for run in p.version.runs(level) {
            for part in wanted.positions(&run.files) {
                for file in run.files.range(part) {
                    if order.wants(file) && !stays(level, file) {
                        f(file)?;
                    }
                }
            }
        }
    }
    let files = p.files(LAST);
    let retired = p.droppable_indexes();
    for part in wanted.positions(files) {
        let mut from = part.start;
        while let Some(at) = p
            .next_improvable(from, ANY_GARBAGE, true, &retired)
            .filter(|at| *at < part.end)
        {
            let file = &files[at];
            from = at + 1;
            let improves = changes_at_rest(file, p.retired, p.oldest_read);
            if order.wants(file) && improves && !stays(LAST, file) {
                f(file)?;
            }
        }
    }
    ControlFlow::Continue(())
}

#[cfg(test)]
mod tests;
