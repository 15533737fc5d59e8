//! Failing devices and full disks.

use firn_sim::faults::{descriptor_run, errno_run, fault_run, panic_run, stalled_run};

#[test]
fn failed_calls_and_full_disks_lose_nothing() {
    // With seed 905,267 a call that persists a counter fails, and the run goes on without a
    // restart. With seed 8,106 a start finds more files that nothing names than it removes at once.
    for seed in (0..60).chain([905_267, 8106]) {
        fault_run(seed).unwrap();
    }
}

#[test]
fn stalled_writers_hear_of_a_full_disk_and_go_on_when_there_is_room() {
    stalled_run(1).unwrap();
}

#[test]
fn a_panic_in_the_background_stops_writes_and_loses_nothing() {
    for seed in 1..31 {
        panic_run(seed).unwrap();
    }
}

#[test]
fn files_that_cannot_be_opened_stop_nothing_and_lose_nothing() {
    // Over all values of `nth`, each call that opens a file fails once, in a few histories.
    for nth in 1..60 {
        for seed in 0..2 {
            descriptor_run(1000 * seed + nth, nth).unwrap();
        }
    }
}

#[test]
fn each_error_of_each_call_is_refused_retried_or_stops_writes() {
    for seed in 0..210 {
        errno_run(seed).unwrap();
    }
}
