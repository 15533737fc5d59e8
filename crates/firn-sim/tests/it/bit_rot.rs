//! Databases with flipped bits.

use firn_sim::bit_rot::{RotStats, rot_run};
use firn_sim::damaged_files::{DamageStats, damage_run};

#[test]
fn a_flipped_bit_is_named_or_harmless_and_never_wrong_data() {
    let mut stats = RotStats::default();
    for seed in 0..60 {
        stats.add(&rot_run(seed).unwrap());
    }
    assert!(stats.found > 0 && stats.refused > 0, "{stats:?}");
}

#[test]
fn damage_in_any_level_stops_no_writer_and_no_other_range() {
    let mut stats = DamageStats::default();
    for seed in 0..36 {
        stats.add(&damage_run(seed, 90).unwrap());
    }
    println!("{stats:?}");
    assert!(stats.damaged.iter().all(|files| *files >= 10), "{stats:?}");
    assert!(stats.failed_jobs > 30 && stats.failed_gets > 0, "{stats:?}");
    assert!(stats.right_gets > 1000, "{stats:?}");
}
