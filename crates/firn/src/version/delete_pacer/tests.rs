use super::*;

const FILE: u64 = 32 << 20;
const STEP_US: u64 = 50_000;

/// Makes `files` files of [`FILE`] bytes obsolete at once and deletes them in steps, as fast as the
/// pacer allows. Returns the number of deletions in each step.
fn steps(pacer: &mut DeletePacer, mut files: u64, from_us: u64) -> Vec<u64> {
    pacer.obsolete(from_us, files * FILE);
    let mut now = from_us;
    let mut steps = Vec::new();
    while files > 0 {
        pacer.earn(now, files * FILE);
        let mut deleted = 0;
        while files > 0 && pacer.take(FILE) {
            files -= 1;
            deleted += 1;
        }
        steps.push(deleted);
        now += STEP_US;
        assert!(steps.len() < 100_000, "it ends");
    }
    steps
}

#[test]
fn many_files_go_in_many_steps() {
    let steps = steps(&mut DeletePacer::default(), 300, 7);
    assert!(steps.iter().all(|&n| n <= 2), "{steps:?}");
    // 300 files, 9.4 GiB, at 64 MiB/s, plus 32 MiB/s for recently obsolete bytes, plus at first 160
    // MiB/s for the backlog.
    let seconds = steps.len() as u64 * STEP_US / 1_000_000;
    assert!((50..90).contains(&seconds), "{seconds} s");
}

#[test]
fn a_large_backlog_is_gone_in_minutes() {
    // A terabyte: the backlog term of the rate deletes most of it, the term for recent bytes the
    // rest.
    let steps = steps(&mut DeletePacer::default(), 32 << 10, 0);
    let seconds = steps.len() as u64 * STEP_US / 1_000_000;
    assert!((60..300).contains(&seconds), "{seconds} s");
}

#[test]
fn a_pause_earns_little() {
    let mut pacer = DeletePacer::default();
    pacer.earn(0, 0);
    pacer.earn(3_600_000_000, 0);
    let mut taken = 0;
    while pacer.take(1 << 20) {
        taken += 1;
    }
    assert_eq!(taken, BASE_RATE >> 20);
    // A negative credit must be earned back before the next deletion. Files of size 0 need no
    // credit.
    pacer.earn(3_600_500_000, 0);
    assert!(pacer.take(1 << 30) && !pacer.take(1) && pacer.take(0));
    pacer.earn(3_601_000_000, 0);
    assert!(!pacer.take(1));
}

#[test]
fn what_became_obsolete_is_forgotten_after_a_while() {
    let mut pacer = DeletePacer::default();
    pacer.obsolete(0, 300 << 20);
    assert_eq!(pacer.rate(1_000_000, 0), BASE_RATE + (1 << 20));
    assert_eq!(pacer.rate(MEMORY_US + 1, 0), BASE_RATE);
    assert_eq!(pacer.rate(MEMORY_US + 1, 60 << 20), BASE_RATE + (1 << 20));
}
