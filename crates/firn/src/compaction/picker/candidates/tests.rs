use super::*;
use crate::base::options::Options;
use crate::base::work_count::counted;
use crate::base::{Error, ErrorKind};
use crate::compaction::testing::{user_key, version_of};
use crate::compaction::{
    ATTEMPTS_MAX, Job, JobInput, JobKind, JobReason, LevelTargets, RestGoal, RetiredIndexes,
    RunningJobs,
};
use crate::version::Version;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const LAST: u8 = 6;

fn with<T>(version: &Version, running: &RunningJobs, f: impl FnOnce(&PickerContext<'_>) -> T) -> T {
    let options = Options::default();
    let retired = RetiredIndexes::from([(1, 5), (3, 5), (4, 900)]);
    f(&PickerContext {
        version,
        options: &options,
        running,
        retired: &retired,
        oldest_read: 100,
        reported: &[],
        rest: RestGoal::Complete,
    })
}

/// `count` files of 10 keys in level 5 over files of 100 keys in level 6.
fn two_levels(count: u64) -> Version {
    let upper = (0..count).map(|n| (5, 0, 1 + n, 10 * n, 10 * n + 9, 10));
    let lower = (0..count / 10).map(|n| (LAST, 0, 1_000_000 + n, 100 * n, 100 * n + 99, 100));
    version_of(&upper.chain(lower).collect::<Vec<_>>())
}

#[test]
fn few_files_are_compared() {
    for count in [5, 10, 1020, 5000] {
        let version = two_levels(count);
        let (found, work) = counted(|| {
            with(&version, &RunningJobs::default(), |p| {
                p.candidates(5, LAST, Wanted::All)
            })
        });
        assert_eq!(found.len(), COMPARED.min(count as usize));
        assert!(work.files < 200, "{work:?}");
    }
}

/// Compares with a look at each file: those that may begin a job that conflicts with no other.
#[test]
fn files_near_running_jobs_are_left_out() {
    let version = two_levels(200);
    let input = |level: u8, from: usize, to: usize| JobInput {
        level,
        files: version.levels[usize::from(level) - 1]
            .files
            .range(from..to)
            .to_vec(),
    };
    let job = |inputs| Job {
        inputs,
        output_level: LAST,
        output_run: 0,
        kind: JobKind::Compact,
        reason: JobReason::Size,
    };
    // A job of a whole lower file, one in the middle of a lower file, and one beside a lower file.
    let jobs = [
        job(vec![input(5, 50, 60), input(LAST, 5, 6)]),
        job(vec![input(5, 83, 84)]),
        job(vec![input(LAST, 12, 13)]),
    ];
    let mut running = RunningJobs::default();
    for job in &jobs {
        running.begin(job);
    }
    let targets = LevelTargets::of(&version, 1);
    let (found, right) = with(&version, &running, |p| {
        let files = p.files(5);
        let may = |at: &usize| {
            let job = p.down(&targets, 5, LAST, files, *at..*at + 1, JobReason::Idle);
            !p.running.conflicts(&job)
        };
        let right: Vec<usize> = (0..files.len()).filter(may).collect();
        let free = p.free_positions(5, LAST, Wanted::All);
        (free.into_iter().flatten().collect::<Vec<_>>(), right)
    });
    assert_eq!(found, right);
    assert_eq!(found.len(), 200 - 10 - 10 - 10);
}

/// The cheapest files, with all of which jobs were given up, do not hide the others.
#[test]
fn files_of_jobs_given_up_are_no_candidates() {
    let version = two_levels(200);
    let targets = LevelTargets::of(&version, 1);
    let mut running = RunningJobs::default();
    let sink = |p: &PickerContext<'_>| p.sink(&targets, 5, JobReason::Idle, Wanted::All);
    let error = Error::new(ErrorKind::Io { os_errno: 5 }, "no output");
    let mut seen = std::collections::HashSet::new();
    for _ in 0..20 {
        let job = with(&version, &running, sink).expect("a job");
        let upper = job.files().filter(|(level, _)| *level == 5);
        upper.for_each(|(_, file)| assert!(seen.insert(file.file_id)));
        (0..ATTEMPTS_MAX).for_each(|_| assert!(running.failed(&job, &error) > 0));
    }
    assert!(seen.len() > COMPARED);
}

/// Compares with a look at each position.
#[test]
fn parts_in_quarantine_are_cut_out() {
    let mut random = StdRng::seed_from_u64(7);
    for _ in 0..2000 {
        let mut ranges = |gap: usize| {
            let (mut at, mut all) = (0, Vec::new());
            for _ in 0..random.random_range(0..6) {
                let from = at + random.random_range(0..gap);
                at = from + random.random_range(0..6);
                all.push(from..at);
            }
            all
        };
        let (free, busy) = (ranges(4), ranges(7));
        let is_busy = |at: &usize| busy.iter().any(|range| range.contains(at));
        let right: Vec<_> = free
            .iter()
            .cloned()
            .flatten()
            .filter(|at| !is_busy(at))
            .collect();
        let left = without(free, busy.iter().cloned());
        assert!(left.iter().all(|part| !part.is_empty()));
        assert_eq!(left.into_iter().flatten().collect::<Vec<_>>(), right);
    }
}

/// Files of a dropped index are found by going from index to file and back.
#[test]
fn files_of_dropped_indexes_are_found() {
    let version = version_of(&[
        (LAST, 0, 1, 0, 9, 10),
        (LAST, 0, 2, 20, 29, 10),
        (5, 0, 3, 0, 50, 10),
    ]);
    with(&version, &RunningJobs::default(), |p| {
        // Index 3 has no entries, and a read still needs index 4.
        assert_eq!(p.droppable_indexes(), [1]);
        let files = p.files(LAST);
        assert_eq!(p.next_of_indexes(files, 0, &[1]), Some(0));
        assert_eq!(p.next_of_indexes(files, 1, &[1]), Some(1));
        assert_eq!(p.next_of_indexes(files, 2, &[1]), None);
        assert_eq!(p.next_of_indexes(files, 0, &[0, 2, 3]), None);
        assert_eq!(p.next_of_indexes(files, 0, &[]), None);
        assert!(files[0].overlaps(&user_key(1, 0), &user_key(1, 0)));
    });
}
