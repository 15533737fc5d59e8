use super::*;
use crate::base::options::Options;
use crate::compaction::running_jobs::RunningJobs;
use crate::compaction::testing::version_of;
use crate::compaction::{PickerContext, RestGoal, RetiredIndexes, pick};
use std::cell::Cell;

thread_local! {
    static STEPS: Cell<u64> = const { Cell::new(0) };
}

pub(super) fn count_step() {
    STEPS.with(|steps| steps.set(steps.get() + 1));
}

/// Bisections that picking the next job takes with `runs` runs of `pieces` files, which overlap
/// like bricks.
fn steps(runs: u64, pieces: u64) -> u64 {
    let mut files = Vec::new();
    for run in 0..runs {
        let shift = run % 2 * 500;
        for piece in 0..pieces {
            let from = piece * 1000 + shift;
            files.push((0, run + 1, run * pieces + piece + 1, from, from + 999, 1000));
        }
    }
    let version = version_of(&files);
    let options = Options {
        target_file_size: 1000,
        l0_compaction_runs: 4,
        ..Options::default()
    };
    STEPS.with(|steps| steps.set(0));
    let job = pick(&PickerContext {
        version: &version,
        options: &options,
        running: &RunningJobs::default(),
        retired: &RetiredIndexes::new(),
        oldest_read: 100,
        reported: &[],
        rest: RestGoal::No,
    });
    assert!(job.is_some());
    STEPS.with(Cell::get)
}

#[test]
fn a_wide_l0_is_picked_from_in_few_steps() {
    for (runs, pieces) in [(20, 100), (100, 20), (500, 4), (1000, 2)] {
        let files = runs * pieces;
        let steps = steps(runs, pieces);
        assert!(
            steps <= files * files / 4 + 20 * files,
            "{runs} of {pieces}: {steps}"
        );
    }
    // Twice the files in each run cost about twice the steps, not eight times as many.
    let (narrow, wide) = (steps(40, 25), steps(40, 50));
    assert!(wide < 3 * narrow, "{narrow} {wide}");
}

#[test]
fn a_part_takes_all_that_is_older_and_leaves_the_newest_out() {
    let version = version_of(&[
        (0, 3, 31, 0, 20, 10),
        (0, 2, 21, 0, 9, 10),
        (0, 2, 22, 15, 29, 10),
        (0, 1, 11, 8, 16, 10),
        (0, 1, 12, 25, 40, 10),
    ]);
    let runs = version.l0.iter().enumerate();
    let files = runs.flat_map(|(i, run)| run.files.iter().map(move |f| (i, f)));
    let group = L0Overlap::of(files.collect());
    let ids =
        |group: &L0Overlap<'_>| -> Vec<u64> { group.files().map(|(_, f)| f.file_id).collect() };
    let bottoms: Vec<u64> = group.bottoms().map(|f| f.file_id).collect();
    assert_eq!(bottoms, [11, 12]);
    let over = |id: u64, room| {
        let file = group.files().find(|(_, f)| f.file_id == id).unwrap().1;
        ids(&group.take(&group.part_over(&file.range(), room, 1)))
    };
    assert_eq!(over(11, 100), [31, 21, 22, 11, 12]);
    assert_eq!(over(11, 40), [21, 22, 11, 12]);
    assert_eq!(over(11, 30), [11]);
    assert_eq!(over(12, 30), [22, 11, 12]);
}
