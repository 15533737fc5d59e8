//! Random pauses at the pause points of reads, lock waits and commits, which widen races.

use crate::tiny_options::chance;
use firn::base::pause_points::{self, PausePoint};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::time::Duration;

/// Makes this thread sleep at some of the pause points it passes, until [`end`].
pub(super) fn begin(seed: u64) {
    let mut rng = StdRng::seed_from_u64(seed);
    pause_points::on_this_thread(move |point| {
        let (percent, most_us) = match point {
            // The widest race: a flush or many commits may fall between pinning the super version
            // and reading the visible seqno.
            PausePoint::Pinned => (20, 1500),
            PausePoint::SnapshotTaken | PausePoint::LockGranted => (10, 1000),
            PausePoint::LockWanted | PausePoint::LockRefused | PausePoint::Published => (5, 500),
            PausePoint::Sequenced | PausePoint::BeforePublish => (10, 500),
            // Between the two halves of a gap lock, and of an insert that must see it.
            PausePoint::GapWanted
            | PausePoint::GapLocked
            | PausePoint::InsertAllowed
            | PausePoint::Inserted => (10, 500),
            // Between the locks and the searches of the two sides of a foreign key.
            PausePoint::ReferenceSought
            | PausePoint::ReferenceLocked
            | PausePoint::ReferencesSought => (10, 500),
            // Between the two halves of DDL on a table that foreign keys may refer to.
            PausePoint::IndexesClosed => (10, 500),
            // Between a checkpoint's hold and the deletion of a file.
            PausePoint::ObsoleteWanted => (20, 1500),
            // Short, because the thread holds the mutex of the commit pipeline.
            PausePoint::Switched => (5, 100),
        };
        if chance(&mut rng, percent) {
            std::thread::sleep(Duration::from_micros(rng.random_range(0..most_us)));
        }
    });
}

/// Ends the pauses of this thread.
pub(super) fn end() {
    pause_points::clear();
}
