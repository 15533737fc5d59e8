//! Pauses between the steps of reads and commits.

use crate::tiny_options::chance;
use firn::base::pause_points::{self, PausePoint};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Holds this thread up at some of the points it passes, until it ends.
pub(super) fn begin(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    pause_points::on_this_thread(move |point| {
        let (percent, most_us) = match point {
            // The widest race: everything may happen between the two loads.
            PausePoint::Pinned => (20, 1500),
            PausePoint::SnapshotTaken | PausePoint::LockGranted => (10, 1000),
            PausePoint::LockWanted | PausePoint::LockRefused | PausePoint::Published => (5, 500),
            PausePoint::Sequenced | PausePoint::BeforePublish => (10, 500),
            // The mutex of the pipeline is held.
            PausePoint::Switched => (5, 100),
        };
        if chance(&mut rng, percent) {
            std::thread::sleep(Duration::from_micros(rng.random_range(0..most_us)));
        }
    });
}

/// No more pauses on this thread.
pub(super) fn end() {
    pause_points::clear();
}
