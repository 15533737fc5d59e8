//! Failing devices and full disks.

use firn_sim::faults::fault_run;

#[test]
fn failed_calls_and_full_disks_lose_nothing() {
    for seed in 0..60 {
        fault_run(seed).unwrap();
    }
}
