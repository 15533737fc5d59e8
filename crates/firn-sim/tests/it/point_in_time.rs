//! Recoveries of backups to a point in the log archive.

use firn_sim::bulk_loads::{LoadStats, load_point_run};
use firn_sim::point_in_time::point_run;

#[test]
fn a_backup_and_the_archive_lead_to_any_state_since() {
    for seed in 0..60 {
        point_run(seed).unwrap();
    }
}

#[test]
fn a_backup_and_the_archive_lead_to_any_state_of_loads() {
    let mut stats = LoadStats::default();
    for seed in 0..40 {
        stats.add(&load_point_run(seed).unwrap());
    }
    assert!(stats.loads > 0 && stats.changes > 0, "{stats:?}");
}
