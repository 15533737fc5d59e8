use super::*;
use crate::compaction::testing::version_of;

fn bases(last: u64, upper: Option<u8>) -> LevelTargets {
    let mut files = vec![(6, 0, 1u64, 1, 5, last)];
    files.extend(upper.map(|level| (level, 0, 2, 1, 5, 1)));
    LevelTargets::of(&version_of(&files), 100)
}

#[test]
fn the_base_follows_the_size() {
    assert_eq!(LevelTargets::of(&Version::default(), 100).base, 6);
    for (last, base) in [(300, 6), (400, 5), (2500, 5), (4000, 4), (1 << 40, 1)] {
        assert_eq!(bases(last, None).base, base, "last level of {last}");
    }
}

#[test]
fn the_base_is_never_below_data() {
    assert_eq!(bases(300, Some(3)).base, 3);
    assert_eq!(bases(4000, Some(5)).base, 4);
}

#[test]
fn each_target_is_a_share_of_the_next() {
    let level_targets = bases(900_000, None);
    assert_eq!(level_targets.base, 2);
    assert_eq!(
        level_targets.targets,
        [0, 0, 100, 1000, 10_000, 100_000, 800_000]
    );
    assert!((level_targets.fill(5, 50_000) - 0.5).abs() < 1e-9);
}

#[test]
fn files_of_upper_levels_are_a_share_of_their_level() {
    let level_targets = bases(900_000, None);
    assert_eq!(level_targets.file_size(6, 10_000), 10_000);
    assert_eq!(level_targets.file_size(5, 10_000), 2083);
    assert_eq!(
        level_targets.file_size(5, 1000),
        1000,
        "never larger than the target"
    );
    assert_eq!(
        level_targets.file_size(2, 10_000),
        312,
        "nor than a thirty-second of it smaller"
    );
    assert_eq!(
        level_targets.file_size(0, 10_000),
        level_targets.file_size(2, 10_000)
    );
}

#[test]
fn jobs_and_files_of_the_last_level_are_small_parts_of_it() {
    let small = LevelTargets::of_size(900, 1000);
    assert_eq!((small.base, small.targets[6]), (6, 800));
    assert_eq!((small.file_size(6, 100), small.job_size(100)), (12, 25));
    let large = LevelTargets::of_size(900_000, 1000);
    assert_eq!((large.file_size(6, 100), large.job_size(100)), (100, 400));
    assert_eq!(large.job_size(10_000), 25_000);
}
