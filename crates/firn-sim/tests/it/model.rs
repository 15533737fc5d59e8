//! Random work compared with the model.

use firn_sim::crash::model_run;

#[test]
fn every_read_of_every_snapshot_shows_what_was_committed() {
    for seed in 0..20 {
        model_run(seed, 2000).unwrap();
    }
}
