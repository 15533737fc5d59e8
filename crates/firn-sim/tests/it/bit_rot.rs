//! Databases with flipped bits.

use firn_sim::bit_rot::{RotStats, rot_run};

#[test]
fn a_flipped_bit_is_named_or_harmless_and_never_wrong_data() {
    let mut stats = RotStats::default();
    for seed in 0..60 {
        stats.add(&rot_run(seed).unwrap());
    }
    assert!(stats.found > 0 && stats.refused > 0, "{stats:?}");
}
