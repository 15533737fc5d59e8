use super::*;
use crate::compaction::testing::{user_key, version_of};

fn options() -> Options {
    Options {
        target_file_size: 100,
        base_level_size: 1000,
        l0_compaction_runs: 2,
        ..Options::default()
    }
}

struct Case {
    version: Version,
    options: Options,
    running: RunningJobs,
    retired: RetiredIndexes,
    reported: Vec<KeyRange>,
    rest: RestGoal,
}

/// A case whose files are given as (level, run, id, smallest key, largest key, size).
fn case(files: &[(u8, u64, u64, u64, u64, u64)]) -> Case {
    Case {
        version: version_of(files),
        options: options(),
        running: RunningJobs::default(),
        retired: RetiredIndexes::new(),
        reported: Vec::new(),
        rest: RestGoal::No,
    }
}

impl Case {
    fn pick(&self) -> Option<Job> {
        pick(&PickerContext {
            version: &self.version,
            options: &self.options,
            running: &self.running,
            retired: &self.retired,
            oldest_read: 100,
            reported: &self.reported,
            rest: self.rest,
        })
    }

    fn picked(&self) -> (JobKind, u8, Vec<u64>) {
        let job = self.pick().expect("a job");
        let ids = job.files().map(|(_, f)| f.file_id).collect();
        (job.kind, job.output_level, ids)
    }
}

#[test]
fn an_empty_or_small_tree_rests() {
    assert!(case(&[]).pick().is_none());
    assert!(case(&[(0, 1, 1, 0, 9, 50)]).pick().is_none());
    let mut resting = case(&[(6, 0, 1, 0, 9, 50)]);
    resting.rest = RestGoal::Complete;
    assert!(resting.pick().is_none());
}

#[test]
fn overlapping_runs_are_merged_with_what_lies_below() {
    let c = case(&[
        (0, 2, 3, 0, 9, 50),
        (0, 1, 2, 5, 15, 50),
        (6, 0, 1, 9, 9, 500),
        (6, 0, 4, 16, 20, 500),
    ]);
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![3, 2, 1]));
}

#[test]
fn disjoint_runs_move_together_above_the_last_level() {
    let c = case(&[
        (0, 2, 3, 0, 9, 50),
        (0, 1, 2, 15, 25, 50),
        (6, 0, 1, 0, 10, 1800),
        (6, 0, 4, 11, 30, 1800),
    ]);
    assert_eq!(c.picked(), (JobKind::Move, 5, vec![3, 2]));
}

#[test]
fn a_file_in_the_upper_codec_is_rewritten_into_the_last_level() {
    let c = case(&[(0, 2, 3, 0, 9, 50), (0, 1, 2, 15, 25, 50)]);
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![3]));
}

#[test]
fn a_level_over_its_target_gives_the_file_with_the_least_overlap() {
    let c = case(&[
        (5, 0, 1, 0, 9, 600),
        (5, 0, 2, 10, 19, 600),
        (5, 0, 3, 20, 29, 600),
        (6, 0, 4, 0, 12, 4000),
        (6, 0, 5, 18, 19, 100),
        (6, 0, 6, 20, 39, 4000),
    ]);
    let (kind, level, ids) = c.picked();
    assert_eq!((kind, level), (JobKind::Compact, 6));
    // File 1 overlaps 4, file 3 overlaps 6, file 2 overlaps 4 and 5.
    assert!(ids == [1, 4] || ids == [3, 6], "{ids:?}");
}

#[test]
fn running_jobs_are_kept_clear_of() {
    let mut c = case(&[
        (0, 2, 3, 0, 9, 50),
        (0, 1, 2, 5, 15, 50),
        (0, 1, 5, 20, 29, 50),
        (6, 0, 1, 0, 30, 500),
    ]);
    let first = c.pick().unwrap();
    let ticket = c.running.begin(&first);
    assert!(c.running.holds(3) && c.running.conflicts(&first));
    // The other group must wait: it overlaps the same file of the last level.
    assert!(c.pick().is_none());
    c.running.end(ticket, &first);
    assert!(!c.running.holds(3));
    assert!(c.pick().is_some());
}

#[test]
fn files_of_dropped_indexes_go_at_once() {
    let mut c = case(&[(0, 1, 1, 0, 9, 50), (6, 0, 2, 0, 9, 50)]);
    c.retired = RetiredIndexes::from([(1, 101)]);
    assert!(c.pick().is_none(), "a snapshot is older than the drop");
    c.retired = RetiredIndexes::from([(1, 100)]);
    assert_eq!(c.picked(), (JobKind::DropFiles, 6, vec![1, 2]));
}

#[test]
fn a_reported_range_is_compacted() {
    let mut c = case(&[
        (5, 0, 1, 0, 9, 10),
        (5, 0, 2, 10, 19, 10),
        (6, 0, 3, 0, 19, 900),
    ]);
    let range = KeyRange {
        smallest: user_key(1, 15),
        largest: user_key(1, 16),
    };
    c.reported = vec![range];
    assert!(c.pick().is_none(), "nothing to gain");
    let mut edit = crate::version::Edit::default();
    for (level, file) in c.version.files() {
        let mut meta = FileMeta::clone(file.meta());
        meta.deletes = 1;
        meta.per_index[0].deletes = 1;
        meta.file_id += 10;
        edit.removed.push((level, file.file_id));
        edit.added.push((level, 0, meta));
    }
    c.version = c
        .version
        .with(&edit, &crate::compaction::testing::no_files())
        .unwrap();
    c.reported.truncate(0);
    let garbage = c.picked();
    assert_eq!(
        garbage,
        (JobKind::Compact, 6, vec![13]),
        "half of the last file is deletions"
    );
    c.reported = vec![KeyRange {
        smallest: user_key(1, 15),
        largest: user_key(1, 16),
    }];
    // The job includes the neighbour, which overlaps the same lower file.
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![11, 12, 13]));
}

#[test]
fn a_job_on_l0_takes_the_oldest_runs_that_fit() {
    let run = |n: u64| (0, n, n, 0, 9, 1000);
    let mut c = case(&[run(6), run(5), run(4), run(3), run(2), (6, 0, 1, 0, 9, 900)]);
    c.options.base_level_size = 10_000;
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![3, 2, 1]));
    c.options.target_file_size = 100_000;
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![6, 5, 4, 3, 2, 1]));
}

#[test]
fn of_a_large_group_a_rectangle_goes_with_all_that_is_older() {
    // The newest run has one file over all keys. Starting from the first file of the oldest run,
    // the job is runs 1 and 2 over one file of the last level.
    let mut c = case(&[
        (0, 4, 41, 0, 99, 100),
        (0, 3, 31, 0, 45, 100),
        (0, 3, 32, 55, 99, 100),
        (0, 2, 21, 0, 48, 100),
        (0, 2, 22, 52, 99, 100),
        (0, 1, 11, 5, 49, 100),
        (0, 1, 12, 51, 90, 100),
        (6, 0, 1, 0, 49, 900),
        (6, 0, 2, 50, 99, 900),
    ]);
    assert_eq!(c.version.l0_depth(), 4);
    c.options.l0_compaction_runs = 3;
    c.options.target_file_size = 75;
    let first = c.picked();
    assert_eq!(first, (JobKind::Compact, 6, vec![31, 21, 11, 1]));
    // The other half may run at the same time. After that nothing is left to do.
    let job = c.pick().unwrap();
    c.running.begin(&job);
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![32, 22, 12, 2]));
    let job = c.pick().unwrap();
    c.running.begin(&job);
    assert!(c.pick().is_none());
}

#[test]
fn shallow_places_wait() {
    let c = case(&[
        (0, 3, 3, 0, 9, 50),
        (0, 2, 2, 20, 29, 50),
        (0, 1, 4, 40, 49, 50),
        (6, 0, 1, 0, 99, 500),
    ]);
    assert_eq!(c.version.l0_depth(), 1);
    assert!(c.pick().is_none());
}

#[test]
fn deletions_count_as_what_they_will_free() {
    let last: Vec<_> = (0..900).map(|n| (6, 0, n + 10, n, n, 10)).collect();
    let mut files = vec![(5, 0, 1, 0, 899, 500)];
    files.extend(last);
    let mut c = case(&files);
    assert!(c.pick().is_none(), "half of its target");
    let mut edit = crate::version::Edit::default();
    let upper = c.version.files().next().unwrap().1.clone();
    let mut meta = FileMeta::clone(upper.meta());
    (meta.file_id, meta.entries, meta.deletes) = (2, 200, 90);
    (meta.per_index[0].entries, meta.per_index[0].deletes) = (200, 90);
    meta.per_index[0].stored_bytes = 500;
    edit.removed.push((5, 1));
    edit.added.push((5, 0, meta));
    let files: Vec<_> = c.version.files().filter(|(level, _)| *level == 6).collect();
    for (_, file) in files {
        let mut meta = FileMeta::clone(file.meta());
        meta.file_id += 2000;
        meta.per_index[0].stored_bytes = 10;
        edit.removed.push((6, file.file_id));
        edit.added.push((6, 0, meta));
    }
    c.version = c
        .version
        .with(&edit, &crate::compaction::testing::no_files())
        .unwrap();
    assert_eq!(c.picked().1, 6, "90 deletions of 10 bytes fill it");
}

#[test]
fn idle_jobs_must_be_worth_what_they_rewrite() {
    let mut few = case(&[(0, 1, 1, 0, 9, 15), (6, 0, 2, 0, 9, 985)]);
    few.rest = RestGoal::WhereItPays;
    assert!(
        few.pick().is_none(),
        "15 bytes are no reason to rewrite 985"
    );
    few.rest = RestGoal::Complete;
    assert_eq!(few.picked(), (JobKind::Compact, 6, vec![1, 2]));
    let mut many = case(&[(0, 1, 1, 0, 9, 25), (6, 0, 2, 0, 9, 975)]);
    many.rest = RestGoal::WhereItPays;
    assert_eq!(many.picked(), (JobKind::Compact, 6, vec![1, 2]));
    // A job that rewrites nothing always pays.
    let mut alone = case(&[(0, 1, 1, 0, 9, 1), (6, 0, 2, 20, 29, 999)]);
    alone.rest = RestGoal::WhereItPays;
    assert_eq!(alone.picked(), (JobKind::Compact, 6, vec![1]));
}

#[test]
fn only_the_ranges_asked_for_are_brought_to_rest() {
    let c = case(&[
        (0, 2, 3, 0, 9, 50),
        (0, 1, 2, 20, 29, 50),
        (6, 0, 1, 0, 10, 100),
        (6, 0, 4, 11, 30, 100),
    ]);
    let context = PickerContext {
        version: &c.version,
        options: &c.options,
        running: &c.running,
        retired: &c.retired,
        oldest_read: 100,
        reported: &[],
        rest: RestGoal::Complete,
    };
    let order = |from, to, until| RestOrder {
        ranges: vec![KeyRange {
            smallest: user_key(1, from),
            largest: user_key(1, to),
        }],
        until,
    };
    let picked = |order: &RestOrder| -> Option<Vec<u64>> {
        let job = pick_within(&context, order)?;
        assert_eq!((job.kind, job.output_level), (JobKind::Compact, 6));
        Some(job.files().map(|(_, f)| f.file_id).collect())
    };
    assert_eq!(picked(&order(25, 40, 100)), Some(vec![2, 4]));
    assert_eq!(picked(&order(0, 0, 100)), Some(vec![3, 1]));
    assert_eq!(picked(&order(31, 40, 100)), None);
    // Written after the work began.
    assert_eq!(picked(&order(0, 40, 4)), None);
    let bytes = |order| restless_files(&context, &order).bytes;
    assert_eq!(bytes(order(25, 40, 100)), 50);
    assert_eq!(bytes(order(0, 40, 100)), 100);
    assert_eq!(bytes(order(0, 40, 4)), 0);
}

/// A job's inputs leave the tree with its install, before the job ends. They count no longer then.
#[test]
fn inputs_that_have_left_the_tree_are_not_busy() {
    let mut c = case(&[
        (5, 0, 1, 0, 9, 600),
        (5, 0, 2, 10, 19, 600),
        (5, 0, 3, 20, 29, 600),
        (6, 0, 4, 0, 9, 2700),
        (6, 0, 5, 10, 19, 2700),
        (6, 0, 6, 20, 29, 2600),
    ]);
    assert_eq!(c.picked().2, [3, 6]);
    let job = c.pick().unwrap();
    c.running.begin(&job);
    assert!(c.pick().is_some(), "L5 is over its target beside the job");
    let output = FileMeta {
        file_id: 7,
        ..FileMeta::clone(job.inputs[1].files[0].meta())
    };
    let source = crate::compaction::testing::no_files();
    c.version = c.version.with(&job.edit(vec![output]), &source).unwrap();
    assert!(c.running.holds(3), "the job has not ended");
    assert!(c.pick().is_some(), "L5 is as full as before");
}

/// Of all files that no running job keeps away, the picker takes one with the least bytes to
/// rewrite for each byte. Compares with a look at each file, through a sequence of jobs.
#[test]
fn the_picked_file_is_the_cheapest_of_all() {
    use rand::rngs::StdRng;
    use rand::{Rng, SeedableRng};
    let mut compared = 0;
    for seed in 0..15 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut files = Vec::new();
        let mut id = 1;
        for level in [4, 5, 6] {
            let mut from = rng.random_range(0..50);
            let count = [0, 0, 0, 0, 30, 200, 900][usize::from(level)];
            for _ in 0..count {
                let to = from + rng.random_range(1..9 * 900 / count);
                files.push((level, 0, id, from, to, rng.random_range(50..150)));
                from = to + rng.random_range(1..5);
                id += 1;
            }
        }
        let mut c = case(&files);
        c.rest = RestGoal::Complete;
        c.options.base_level_size = 1000;
        let mut jobs = Vec::new();
        while let Some(job) = c.pick() {
            let (level, seed_file) = job.files().next().unwrap();
            let output = job.output_level;
            if level < LAST {
                let cost = |at: usize| {
                    let file = &c.version.levels[usize::from(level) - 1].files[at];
                    let below = c.version.levels[usize::from(output) - 1].files.iter();
                    let below = below.filter(|f| f.overlaps(&file.smallest, &file.largest));
                    (below.map(|f| f.size).sum::<u64>() << 20) / file.size
                };
                let context = PickerContext {
                    version: &c.version,
                    options: &c.options,
                    running: &c.running,
                    retired: &c.retired,
                    oldest_read: 100,
                    reported: &[],
                    rest: c.rest,
                };
                let free = context.free_positions(level, output, Wanted::All);
                let least = free.into_iter().flatten().map(cost).min().unwrap();
                let taken = job.files().filter(|(of, _)| *of == level).map(|(_, file)| {
                    let files = &c.version.levels[usize::from(level) - 1].files;
                    cost(files.partition_point(|f| f.smallest < file.smallest))
                });
                assert_eq!(taken.min(), Some(least), "seed {seed}, {seed_file:?}");
                compared += 1;
            }
            let ticket = c.running.begin(&job);
            jobs.push((ticket, job));
            if jobs.len() == 3 {
                let (ticket, job) = jobs.remove(rng.random_range(0..3));
                // As many bytes as came in, in files at rest over the same keys.
                let lower = job.inputs.last().unwrap().files.iter();
                let outputs = lower.map(|file| {
                    id += 1;
                    FileMeta {
                        file_id: id,
                        at_rest: true,
                        ..FileMeta::clone(file.meta())
                    }
                });
                let edit = job
                    .edit_without_output()
                    .unwrap_or_else(|| job.edit(outputs.collect()));
                c.version = c
                    .version
                    .with(&edit, &crate::compaction::testing::no_files())
                    .unwrap();
                c.running.end(ticket, &job);
            }
            if compared > 3000 {
                break;
            }
        }
    }
    assert!(compared > 200, "{compared}");
}

impl Case {
    /// Puts the file into quarantine.
    fn damage(&mut self, id: u64) {
        let (level, file) = self.version.files().find(|(_, f)| f.file_id == id).unwrap();
        let damaged = crate::version::DamagedFile {
            level,
            meta: Arc::clone(file.meta()),
            error: crate::base::Error::corruption("file", 0, "damaged"),
            unreadable: false,
        };
        self.version = self.version.with_quarantine(damaged).unwrap();
    }
}

#[test]
fn data_over_a_damaged_file_goes_right_above_it() {
    let mut c = case(&[
        (0, 2, 3, 0, 9, 50),
        (0, 1, 2, 5, 15, 50),
        (6, 0, 1, 9, 9, 500),
        (6, 0, 4, 16, 20, 500),
    ]);
    c.damage(1);
    assert_eq!(c.picked(), (JobKind::Compact, 5, vec![3, 2]));
}

#[test]
fn a_level_gives_all_but_what_lies_over_damage() {
    let files = [
        (5, 0, 1, 0, 9, 600),
        (5, 0, 2, 10, 19, 600),
        (5, 0, 3, 20, 29, 600),
        (6, 0, 4, 0, 12, 4000),
        (6, 0, 5, 18, 22, 100),
        (6, 0, 6, 23, 39, 4000),
    ];
    let mut c = case(&files);
    c.rest = RestGoal::Complete;
    c.damage(5);
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![1, 4]));
    // Files beside a damaged one sink, though they share a lower file with it.
    let mut c = case(&[files[1], files[2], files[4], files[5]]);
    c.rest = RestGoal::Complete;
    c.damage(3);
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![2, 5]));
    // The level is over its target only by files over damage, so nothing is due.
    let mut c = case(&files);
    c.damage(4);
    c.damage(5);
    c.damage(6);
    assert!(c.pick().is_none());
}

#[test]
fn l0_over_damage_is_merged_and_older_files_sink() {
    let mut c = case(&[
        (0, 5, 5, 0, 9, 50),
        (0, 4, 4, 0, 9, 50),
        (0, 3, 3, 0, 9, 50),
        (0, 2, 2, 5, 15, 50),
        (0, 1, 1, 5, 15, 50),
        (6, 0, 6, 0, 9, 900),
    ]);
    c.damage(3);
    let merge = c.pick().unwrap();
    assert_eq!((merge.output_level, merge.output_run), (0, 5));
    assert_eq!(c.picked().2, [5, 4]);
    let edit = merge.edit(vec![FileMeta {
        file_id: 7,
        ..FileMeta::clone(merge.inputs[0].files[0].meta())
    }]);
    let source = crate::compaction::testing::no_files();
    c.version = c.version.with(&edit, &source).unwrap();
    assert_eq!(c.version.l0[0].number, 5);
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![2, 1, 6]));
}

#[test]
fn a_damaged_file_goes_with_its_table() {
    let mut c = case(&[(5, 0, 1, 0, 9, 50), (6, 0, 2, 0, 9, 50)]);
    c.damage(2);
    c.retired = RetiredIndexes::from([(1, 100)]);
    assert_eq!(c.picked(), (JobKind::DropFiles, 6, vec![1, 2]));
}

#[test]
fn a_file_across_an_edge_of_damage_is_divided_instead_of_moved() {
    let mut c = case(&[(0, 1, 2, 0, 20, 50), (6, 0, 1, 5, 10, 1800)]);
    c.options.l0_compaction_runs = 1;
    c.damage(1);
    assert_eq!(c.picked(), (JobKind::Compact, 5, vec![2]));
    let mut c = case(&[(0, 1, 2, 5, 10, 50), (6, 0, 1, 5, 10, 1800)]);
    c.options.l0_compaction_runs = 1;
    c.damage(1);
    assert_eq!(c.picked(), (JobKind::Move, 5, vec![2]));
    let mut c = case(&[(4, 0, 2, 0, 20, 600), (6, 0, 1, 5, 10, 1800)]);
    c.damage(1);
    c.rest = RestGoal::Complete;
    assert_eq!(c.picked(), (JobKind::Compact, 5, vec![2]));
}

/// Two places over a damaged file of L0, too much for one job, are merged one after the other.
#[test]
fn a_large_merge_over_damage_is_done_in_parts() {
    let mut c = case(&[
        (0, 5, 51, 0, 40, 10),
        (0, 5, 52, 50, 99, 1000),
        (0, 4, 41, 0, 45, 1000),
        (0, 4, 42, 52, 99, 1000),
        (0, 3, 31, 44, 53, 10),
        (0, 1, 1, 0, 99, 10),
    ]);
    c.damage(1);
    c.options.base_level_size = 10_000;
    c.options.target_file_size = 100;
    // All that is above file 31 would go with it.
    assert_eq!(c.picked(), (JobKind::Compact, 0, vec![51, 41]));
    c.options.target_file_size = 100_000;
    assert_eq!(c.picked().2, [51, 52, 41, 42, 31]);
}

#[test]
fn the_deeper_part_of_l0_is_compacted_first() {
    let free = |run: u64, id| (0, run, id, 50, 59, 50);
    let held = |run: u64, id| (0, run, id, 0, 9, 50);
    let mut c = case(&[
        held(5, 5),
        held(4, 4),
        held(3, 3),
        free(2, 22),
        free(1, 21),
        (0, 1, 1, 0, 9, 50),
    ]);
    c.options.target_file_size = 10_000;
    c.damage(1);
    assert_eq!(c.picked(), (JobKind::Compact, 0, vec![5, 4, 3]));
    let mut c = case(&[
        held(7, 7),
        held(6, 6),
        free(5, 25),
        free(4, 24),
        free(3, 23),
        (0, 1, 1, 0, 9, 50),
    ]);
    c.options.target_file_size = 10_000;
    c.damage(1);
    assert_eq!(c.picked(), (JobKind::Compact, 6, vec![25, 24, 23]));
}

/// Blobs over damage stay above the last level, so they are no reason to compact others.
#[test]
fn blobs_that_damage_keeps_do_not_count() {
    let with_blobs = |damage: bool| {
        let mut c = case(&[
            (5, 0, 1, 0, 9, 10),
            (5, 0, 2, 20, 29, 10),
            (6, 0, 3, 0, 9, 1000),
            (6, 0, 4, 20, 29, 1000),
        ]);
        c.options.blob_garbage_min = 1;
        let mut edit = crate::version::Edit::default();
        for (level, file) in c.version.files() {
            let mut meta = FileMeta::clone(file.meta());
            meta.file_id += 10;
            meta.blobs = vec![crate::base::blob_ref::BlobUse {
                file: 1,
                refs: 1,
                bytes: [900, 10, 1000, 1000][file.file_id as usize - 1],
            }];
            edit.removed.push((level, file.file_id));
            edit.added.push((level, 0, meta));
        }
        let source = crate::compaction::testing::no_files();
        c.version = c.version.with(&edit, &source).unwrap();
        if damage {
            c.damage(13);
        }
        c
    };
    assert!(with_blobs(false).pick().is_some());
    assert!(with_blobs(true).pick().is_none());
}
