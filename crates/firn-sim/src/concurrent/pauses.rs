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
            // This pause is the longest: it lets a flush or many commits happen after a read has
            // pinned its super version and before the read loads the visible seqno.
            PausePoint::Pinned => (20, 1500),
            PausePoint::SnapshotTaken | PausePoint::LockGranted => (10, 1000),
            PausePoint::LockWanted | PausePoint::LockRefused | PausePoint::Published => (5, 500),
            PausePoint::Sequenced | PausePoint::BeforePublish => (10, 500),
            // A scan locks a gap and then searches the uncommitted keys of others; an insert checks
            // the gap locks, writes its key and checks them again. These pauses let the steps of
            // both interleave.
            PausePoint::GapWanted
            | PausePoint::GapLocked
            | PausePoint::InsertAllowed
            | PausePoint::Inserted => (10, 500),
            // The writer of a child row locks the parent row and then writes; the writer of the
            // parent row locks this row and then searches for child rows. These pauses let the
            // steps of both interleave.
            PausePoint::ReferenceSought
            | PausePoint::ReferenceLocked
            | PausePoint::ReferencesSought => (10, 500),
            // DDL first closes a table's indexes, so that foreign key checks of other sessions must
            // wait, and then replaces the indexes. This pause lets a foreign key check begin in
            // between.
            PausePoint::IndexesClosed => (10, 500),
            // A checkpoint keeps obsolete files from being deleted. This pause lets a checkpoint
            // begin when another thread is about to delete a file.
            PausePoint::ObsoleteWanted => (20, 1500),
            // In three places a thread first decides and then acts: old prepared transactions are
            // about to be logged again, the outcome of a prepared transaction has found no room in
            // the log, or retired indexes are about to be forgotten. The pauses let a commit, a
            // close of the log, or a commit with rows of a retired index come in between.
            PausePoint::PinnedFilesKept
            | PausePoint::NoRoomForOutcome
            | PausePoint::RetiredChosen => (10, 500),
            // This pause lets a kill, or a change of the stall gate's mode, happen after a writer
            // has queued at the gate and before it sleeps.
            PausePoint::GateJoined => (20, 1000),
            // This pause is short, because the thread holds the mutex of the commit pipeline.
            PausePoint::Switched => (5, 100),
            // So is this one, which lets a small commit end beside a large one. Large ones are few.
            PausePoint::InsertersSought => (20, 300),
            // This pause lets reads want a reader that an eviction has taken and may put back.
            PausePoint::ReaderTaken => (20, 500),
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
