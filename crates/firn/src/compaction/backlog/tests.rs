use super::*;
use crate::compaction::running_jobs::{JobInput, JobKind, JobReason};
use crate::compaction::testing::version_of;

const MIB: u64 = 1 << 20;

fn job(version: &Version, output_level: u8) -> Job {
    let input = |(level, file): (u8, &std::sync::Arc<_>)| JobInput {
        level,
        files: vec![std::sync::Arc::clone(file)],
    };
    Job {
        inputs: version.files().map(input).collect(),
        output_level,
        output_run: 0,
        kind: JobKind::Compact,
        reason: JobReason::Size,
    }
}

#[test]
fn what_replaces_nothing_takes_no_space() {
    let version = version_of(&[(5, 0, 1, 0, 9, 28 * MIB), (6, 0, 2, 0, 9, 100 * MIB)]);
    let options = Options::default();
    let space_tracker = SpaceTracker::default();
    let garbage =
        |space_tracker: &SpaceTracker| Backlog::of(&version, &options, space_tracker).garbage;
    assert_eq!(garbage(&space_tracker), 0);
    // The job drops one shadowed entry for each of the two upper entries.
    let job = job(&version, 6);
    (0..50).for_each(|_| space_tracker.dropped(&version, &job, 2));
    assert!((0.999..=1.0).contains(&space_tracker.replacing()));
    assert!((27 * MIB..=28 * MIB).contains(&garbage(&space_tracker)));
    space_tracker.begins(&job);
    assert_eq!(space_tracker.held(), 128 * MIB);
    assert!((155 * MIB..=156 * MIB).contains(&garbage(&space_tracker)));
    space_tracker.ends(&job);
    (0..50).for_each(|_| space_tracker.dropped(&version, &job, 0));
    assert!(garbage(&space_tracker) < MIB / 10);
}

#[test]
fn only_what_arrives_in_the_last_level_tells() {
    let version = version_of(&[(4, 0, 1, 0, 9, MIB), (5, 0, 2, 0, 9, MIB)]);
    let space_tracker = SpaceTracker::default();
    space_tracker.dropped(&version, &job(&version, 5), 2);
    assert_eq!(space_tracker.replacing(), 0.0);
}

/// Data that damaged files keep where it is makes no pressure. What jobs can move does.
#[test]
fn data_over_damage_does_not_count() {
    let size = |n: u64| 3_u64.pow(9 - n as u32) * MIB;
    let runs = (2..9).rev().map(|n| (0, n, n, 0, 9, size(n)));
    let mut files: Vec<(u8, u64, u64, u64, u64, u64)> = runs.collect();
    files.push((0, 1, 1, 0, 9, 50 * MIB));
    files.extend([(5, 0, 20, 0, 9, 9000 * MIB), (5, 0, 21, 10, 19, 10 * MIB)]);
    files.push((6, 0, 30, 5, 9, 100 * MIB));
    let version = version_of(&files);
    let space_tracker = SpaceTracker::default();
    (0..50).for_each(|_| space_tracker.dropped(&version, &job(&version, 6), 100));
    let backlog = |version: &Version| Backlog::of(version, &Options::default(), &space_tracker);
    let before = backlog(&version);
    assert_eq!(before.l0_runs, 8);
    assert!(before.debt > 0 && before.garbage > 9000 * MIB, "{before:?}");
    let damage = |version: &Version, id: u64| {
        let (level, file) = version.files().find(|(_, f)| f.file_id == id).unwrap();
        let damaged = crate::version::DamagedFile {
            level,
            meta: std::sync::Arc::clone(file.meta()),
            error: crate::base::Error::corruption("file", 0, "damaged"),
            unreadable: false,
        };
        version.with_quarantine(damaged).unwrap()
    };
    // L5 can sink no more, and L0 into L5 as before.
    let below = backlog(&damage(&version, 30));
    assert_eq!((below.l0_runs, below.debt), (8, 0));
    assert!(below.garbage < before.garbage - 8000 * MIB, "{below:?}");
    // The runs over a damaged one have such sizes that a merge does not pay.
    assert_eq!(backlog(&damage(&version, 1)).l0_runs, 0);
    // Runs below a damaged one sink, and count.
    assert_eq!(backlog(&damage(&version, 5)).l0_runs, 4);
}
