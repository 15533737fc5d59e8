//! Bulk loads and index changes, with crashes and failing calls.

use firn_sim::bulk_loads::{LoadStats, load_run};

#[test]
fn a_load_is_there_as_a_whole_or_not_at_all() {
    let mut stats = LoadStats::default();
    for seed in 0..60 {
        stats.add(&load_run(seed).unwrap());
    }
    assert!(
        stats.loads > 0 && stats.changes > 0 && stats.duplicates > 0 && stats.ended > 0,
        "{stats:?}"
    );
}
