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
