use super::*;
use crate::base::ErrorKind;
use crate::compaction::testing::version_of;

/// A job on files given as (level, id, smallest key, largest key).
fn job(output_level: u8, files: &[(u8, u64, u64, u64)]) -> Job {
    let place = |&(level, id, from, to)| (level, u64::from(level == 0) * id, id, from, to, 10);
    let files: Vec<_> = files.iter().map(place).collect();
    let version = version_of(&files);
    let input = |(level, file): (u8, &Arc<FileHandle>)| JobInput {
        level,
        files: vec![file.clone()],
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
fn zones_part_jobs_that_share_no_file() {
    let mut running = RunningJobs::default();
    let first = job(5, &[(4, 1, 0, 9), (4, 2, 20, 29), (5, 3, 5, 25)]);
    let ticket = running.begin(&first);
    // Conflict: keys between the inputs, in a level of the job.
    assert!(running.conflicts(&job(5, &[(4, 10, 11, 15)])));
    assert!(running.conflicts(&job(4, &[(3, 10, 29, 40)])));
    assert!(
        running.conflicts(&job(6, &[(0, 10, 29, 40)])),
        "spans its levels"
    );
    // No conflict: other keys, levels above, levels below.
    assert!(!running.conflicts(&job(5, &[(4, 10, 30, 40)])));
    assert!(!running.conflicts(&job(3, &[(0, 10, 0, 40)])));
    assert!(!running.conflicts(&job(6, &[(6, 10, 0, 40)])));
    // Conflict: the same file, whatever level and keys are given for it.
    assert!(running.conflicts(&job(6, &[(6, 1, 50, 60)])));
    running.end(ticket, &first);
    assert!(!running.conflicts(&first));
}

#[test]
fn edits_swap_inputs_for_outputs() {
    let mut moved = job(5, &[(4, 1, 0, 9), (4, 2, 20, 29)]);
    assert_eq!(moved.edit_without_output(), None);
    moved.kind = JobKind::Move;
    let edit = moved.edit_without_output().unwrap();
    assert_eq!(edit.removed, [(4, 1), (4, 2)]);
    let added: Vec<_> = edit
        .added
        .iter()
        .map(|(l, run, m)| (*l, *run, m.file_id))
        .collect();
    assert_eq!(added, [(5, 0, 1), (5, 0, 2)]);
    moved.kind = JobKind::DropFiles;
    let edit = moved.edit_without_output().unwrap();
    assert_eq!((edit.removed.len(), edit.added.len()), (2, 0));
}

fn error() -> Error {
    Error::new(ErrorKind::Io { os_errno: 5 }, "no output")
}

#[test]
fn a_job_is_given_up_until_its_inputs_change() {
    let mut running = RunningJobs::default();
    let bad = job(5, &[(4, 1, 0, 9), (5, 3, 5, 25)]);
    for times in 1..=ATTEMPTS_MAX {
        assert!(!running.conflicts(&bad) && running.given_up_error().is_none());
        assert_eq!(running.failed(&bad, &error()), times);
    }
    assert!(running.conflicts(&bad) && running.given_up_error().is_some());
    assert!(!running.conflicts(&job(5, &[(4, 1, 0, 9)])), "other inputs");
    assert!(running.is_given_up_with(3) && !running.is_given_up_with(2));
    running.succeeded(&job(5, &[(4, 2, 30, 39)]));
    assert!(running.is_given_up(&bad));
    running.succeeded(&job(6, &[(5, 3, 5, 25)]));
    assert!(!running.is_given_up(&bad) && running.failures.is_empty());
    assert!(running.given_up_error().is_none());
    (0..ATTEMPTS_MAX).for_each(|_| assert!(running.failed(&bad, &error()) > 0));
    running.retry_all();
    assert!(!running.is_given_up(&bad));
}

/// Each attempt waits for the store, and there are many such jobs.
#[test]
fn a_job_is_given_up_at_once_if_the_object_store_does_not_answer() {
    let mut running = RunningJobs::default();
    let remote = job(5, &[(4, 1, 0, 9)]);
    let error = Error::new(ErrorKind::Unreachable, "out");
    assert_eq!(running.failed(&remote, &error), ATTEMPTS_MAX);
    assert!(running.is_given_up(&remote));
    running.succeeded(&remote);
    assert!(!running.is_given_up(&remote));
}

/// The time for which a job is given up doubles with each failure up to ten minutes.
#[test]
fn a_job_is_given_up_for_a_time() {
    let mut running = RunningJobs::default();
    let bad = job(5, &[(4, 1, 0, 9)]);
    let mut now = 7;
    (1..ATTEMPTS_MAX).for_each(|_| assert!(running.failed(&bad, &error()) > 0));
    for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
        running.set_time(now);
        assert!(!running.is_given_up(&bad));
        running.failed(&bad, &error());
        now += seconds * 1_000_000;
        running.set_time(now - 1);
        assert!(running.is_given_up(&bad) && running.is_given_up_with(1));
    }
    // Until it has succeeded, the job counts as given up.
    running.set_time(now);
    assert!(!running.is_given_up(&bad) && running.given_up_error().is_some());
    for _ in 0..100 {
        running.failed(&bad, &error());
    }
    running.set_time(now + 600_000_000);
    assert!(!running.is_given_up(&bad));
}
