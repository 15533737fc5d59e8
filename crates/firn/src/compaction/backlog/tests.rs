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
    let extra = SpaceTracker::default();
    let garbage = |extra: &SpaceTracker| Backlog::of(&version, &options, extra).garbage;
    assert_eq!(garbage(&extra), 0);
    // The job drops one shadowed entry for each of the two upper entries.
    let job = job(&version, 6);
    (0..50).for_each(|_| extra.dropped(&version, &job, 2));
    assert!((0.999..=1.0).contains(&extra.replacing()));
    assert!((27 * MIB..=28 * MIB).contains(&garbage(&extra)));
    extra.begins(&job);
    assert_eq!(extra.held(), 128 * MIB);
    assert!((155 * MIB..=156 * MIB).contains(&garbage(&extra)));
    extra.ends(&job);
    (0..50).for_each(|_| extra.dropped(&version, &job, 0));
    assert!(garbage(&extra) < MIB / 10);
}

#[test]
fn only_what_arrives_in_the_last_level_tells() {
    let version = version_of(&[(4, 0, 1, 0, 9, MIB), (5, 0, 2, 0, 9, MIB)]);
    let extra = SpaceTracker::default();
    extra.dropped(&version, &job(&version, 5), 2);
    assert_eq!(extra.replacing(), 0.0);
}
