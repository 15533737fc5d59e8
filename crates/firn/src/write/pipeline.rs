//! The commit pipeline gives each commit its seqno, logs it, applies it to the memtable and
//! publishes it in order.
//!
//! Steps of a commit:
//! 1. Under the pipeline's mutex, which is held for a short time: take the next seqno, choose the
//!    memtable, append to the log's buffer, join the queue. Log order, queue order and seqno order
//!    are therefore the same.
//! 2. Outside the mutex: insert the entries into the memtable, in parallel with other commits.
//! 3. Under the mutex again: mark the commit as applied. If the head of the queue is now applied,
//!    this thread publishes all applied commits from the head up to the first one that is not
//!    applied, by moving the visible seqno.
//! 4. When its own seqno is visible, the caller releases its row locks, and only then waits until
//!    the log is durable ([`Pipeline::wait_durable`]). So row locks are never held during a sync.
//!
//! Invariants: a seqno becomes visible only after all smaller ones; a commit is in the memtable
//! that was active when its seqno was assigned, so a freeze never splits a commit; a memtable is
//! flushed only after its writers have left.
//!
//! When the log fails, commits are still published up to the first one that the log has lost: a
//! durable commit is acknowledged, so it must become visible. If a commit panics between steps 1
//! and 3, the engine is poisoned and no commit from that one on is published. Later commits then
//! fail with an unknown outcome instead of waiting for ever.
//!
//! Rejected: commit groups in which a leader inserts the batches of all members. That costs two
//! more wake-ups per member, and each batch is copied twice.

mod archive_records;
mod commit;
mod cut_log;
mod durability;
mod log_pins;
mod log_server_run;
mod panic_guard;
mod prepare;

pub use archive_records::OwnedBinlogPosition;
pub use commit::{CommitRecord, Committed};
pub use cut_log::{BegunCut, LogCut};
pub use durability::unknown_outcome;
pub use prepare::PreparedLogPin;

use super::stall::admission::GateCharge;
use super::stall::{CommitTotals, GateWaiter, StallGate};
use crate::base::health::{FullDisk, Health};
use crate::base::options::MutableOptions;
use crate::base::parker::Parker;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{CounterValue, ErrorKind, Result, Seqno};
use crate::memtable::Memtable;
use crate::store::{FileStore, ReservePart};
use crate::version::{FileMeta, Flushable};
use crate::wal::{Lsn, Record, SegmentId, Wal};
use log_pins::LogPins;
use log_server_run::ServerRunNote;
use panic_guard::PoisonOnPanic;
use parking_lot::{Mutex, MutexGuard};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size at which a memtable is frozen while the disk is full, bytes.
const FULL_DISK_FREEZE: u64 = ReservePart::Table.bytes() / 2;

/// The host of a pipeline, which the pipeline calls when it replaces the active memtable. The
/// pipeline holds its mutex during the call: an implementation must be quick and must not call the
/// pipeline.
pub trait MemtableHost: Send + Sync {
    /// Makes `active` the memtable that takes all later commits, and adds `queued` to the
    /// flushables that wait for their place in the tree. `queued` is ordered newest first, and all
    /// of it is newer than the flushables that wait already.
    fn switched(&self, queued: &[Flushable], active: Arc<Memtable>);
}

/// A commit that has its seqno and is not published.
#[derive(Default)]
struct QueuedCommit {
    applied: bool,
    /// Wakes the thread of the commit, if that waits for the publication.
    waiter: Option<Arc<Parker>>,
}

struct PipelineState {
    last_seqno: Seqno,
    active: Arc<Memtable>,
    /// One element for each commit that has its seqno and is not published, oldest first. The last
    /// element is that of `last_seqno`.
    queue: VecDeque<QueuedCommit>,
    /// Commits whose log records may not be durable yet, oldest first. If the log fails, the first
    /// of them that is not durable and all later ones are hidden.
    undurable: VecDeque<(Lsn, Seqno)>,
    /// The log segments that prepared transactions pin.
    pins: LogPins,
    /// The segment of the last append, and whether, when the log moved to that segment, the active
    /// memtable kept too much log from being released. A memtable keeps all segments from the
    /// oldest one with a record of its entries on.
    log_seen: (SegmentId, bool),
    /// The server run to which newly prepared transactions belong.
    run: ServerRunNote,
    /// Binary log position of the last commit that reported one.
    binlog: OwnedBinlogPosition,
    /// End of the binary log before the last change of the catalog, if the server reported it. The
    /// log archive records it.
    schema_change_position: Option<OwnedBinlogPosition>,
    /// Commits, and the bytes for which the stall gate charges them.
    totals: CommitTotals,
    /// The wall-clock time that the log recorded last, in steps of `CLOCK_STEP_US`.
    clock: u64,
    poisoned: bool,
    /// Commits with this seqno or a larger one never become visible, because the log has lost them
    /// or a bug has kept one of them from being applied. `Seqno::MAX` as long as there are no such
    /// commits.
    lost_from: Seqno,
    /// After a failure, commits whose log records end at this position or later are hidden.
    hidden_from: Option<Lsn>,
}

/// The commit pipeline of a database.
pub struct Pipeline {
    wal: Arc<Wal>,
    health: Arc<Health>,
    mutable: Arc<MutableOptions>,
    visible: Arc<AtomicU64>,
    stall: Arc<StallGate>,
    host: Box<dyn MemtableHost>,
    /// The database's file store, if the log is archived.
    archived: Option<FileStore>,
    state: Mutex<PipelineState>,
}

impl Pipeline {
    /// Makes a pipeline that inserts into `active`. The first commit gets the seqno after
    /// `visible`.
    pub fn new(
        wal: Arc<Wal>,
        health: Arc<Health>,
        mutable: Arc<MutableOptions>,
        visible: Arc<AtomicU64>,
        stall: Arc<StallGate>,
        host: Box<dyn MemtableHost>,
        active: Arc<Memtable>,
    ) -> Self {
        let last_seqno = visible.load(Ordering::Acquire);
        let state = PipelineState {
            last_seqno,
            active,
            queue: VecDeque::new(),
            undurable: VecDeque::new(),
            pins: LogPins::default(),
            log_seen: (0, false),
            run: ServerRunNote::default(),
            binlog: OwnedBinlogPosition::default(),
            schema_change_position: None,
            totals: CommitTotals::default(),
            clock: 0,
            poisoned: false,
            lost_from: Seqno::MAX,
            hidden_from: None,
        };
        Self {
            wal,
            health,
            mutable,
            visible,
            stall,
            host,
            archived: None,
            state: Mutex::new(state),
        }
    }

    /// Waits as long as the write stall demands. A writer calls it before its commit, and never
    /// while one of its commits has a seqno that is not published.
    ///
    /// Returns the charge, for [`Self::settle`].
    ///
    /// # Errors
    /// `Interrupted` if `waiter` is killed; `LockTimeout` after its timeout; otherwise the error
    /// that keeps background work from making room, such as `NoSpace`, `Corruption` or `Io`.
    pub fn pass_gate(&self, waiter: &dyn GateWaiter) -> Result<GateCharge> {
        self.stall.pass(waiter)
    }

    /// As [`Self::pass_gate`], for a deletion: the wait ends without an error if background work
    /// has failed because the disk is full.
    ///
    /// # Errors
    /// Those of [`Self::pass_gate`], without `NoSpace`.
    pub fn pass_gate_deleting(&self, waiter: &dyn GateWaiter) -> Result<GateCharge> {
        match self.stall.pass(waiter) {
            Err(full) if *full.kind() == ErrorKind::NoSpace => Ok(GateCharge::default()),
            passed => passed,
        }
    }

    /// Ends the charge of a transaction that has passed the gate, and whose commit was charged for
    /// `bytes` ([`Changes::charged_bytes`](super::Changes::charged_bytes)); 0 after a rollback.
    pub fn settle(&self, charge: GateCharge, bytes: u64) {
        self.stall.settle(charge, bytes);
    }

    /// A commit whose batch would have more bytes should be a run of files. Smaller runs would fill
    /// L0 with runs that are much smaller than memtables.
    pub fn batch_bytes_max(&self) -> u64 {
        let half_memtable = self.mutable.freeze_at() / 2;
        match self.health.is_full(None) {
            // A batch may go into the log's disk reserve.
            true => u64::MAX,
            false => self.wal.usual_append_max().max(half_memtable),
        }
    }

    /// Commits so far, and the bytes for which the stall gate charged them.
    pub fn commit_totals(&self) -> CommitTotals {
        self.state.lock().totals
    }

    /// Freezes the active memtable, unless it has no entries and no commit is about to insert into
    /// it. Returns whether it froze the memtable.
    pub fn freeze(&self) -> bool {
        let mut state = self.state.lock();
        let _switching = PoisonOnPanic(&self.health);
        let empty = state.active.entries() == 0 && state.queue.is_empty();
        if !empty {
            self.switch(&mut state);
        }
        !empty
    }

    /// The oldest log segment that recovery would still need. `unflushed` returns the flushables
    /// that are not in the tree. It is called under the pipeline's mutex; otherwise a memtable that
    /// is frozen meanwhile would be counted neither as active nor as a flushable.
    pub fn log_floor(&self, unflushed: impl FnOnce() -> Vec<Flushable>) -> SegmentId {
        let state = self.state.lock();
        let frozen = unflushed();
        let queued = frozen.iter().map(Flushable::min_segment);
        let pinned = state.pins.floor();
        queued
            .chain(pinned)
            .fold(state.active.min_segment(), SegmentId::min)
    }

    /// The last seqno that a commit got.
    pub fn last_seqno(&self) -> Seqno {
        self.state.lock().last_seqno
    }

    fn freeze_if_full(&self, state: &mut MutexGuard<'_, PipelineState>) {
        let _switching = PoisonOnPanic(&self.health);
        // On a full disk, freeze a smaller memtable: the flush of a larger one would not fit into
        // the disk reserve.
        let full = self.health.is_full(Some(FullDisk::Flush))
            && state.active.size_bytes() >= FULL_DISK_FREEZE;
        let blobs = self.mutable.blob_freeze_at.load(Ordering::Relaxed);
        let (_, log_is_long) = state.log_seen;
        if full
            || log_is_long
            || state.active.size_bytes() >= self.mutable.freeze_at()
            || state.active.blob_bytes() >= blobs
        {
            self.switch(state);
        }
    }

    /// Notes the segment of an append. When the log has moved to another segment, checks whether
    /// the active memtable needs more log than it may: then the next commit freezes it, even if it
    /// is empty, so that its flush gives the log back.
    fn note_segment(&self, state: &mut MutexGuard<'_, PipelineState>, segment: SegmentId) {
        if state.log_seen.0 != segment {
            let bytes = self.wal.bytes_from(state.active.min_segment());
            state.log_seen = (segment, bytes > self.mutable.wal_freeze_at());
        }
    }

    fn switch(&self, state: &mut MutexGuard<'_, PipelineState>) {
        let frozen = Arc::clone(&state.active);
        let id = frozen.id() + 1;
        self.replace_active(state, id, &[Flushable::Memtable(frozen)]);
    }

    /// Makes a new memtable with id `id` the active one. Adds `queued`, newest first, in front of
    /// the flushables that wait for their place in the tree.
    fn replace_active(
        &self,
        state: &mut MutexGuard<'_, PipelineState>,
        id: u64,
        queued: &[Flushable],
    ) {
        let capacity = self.mutable.freeze_at();
        let next = Arc::new(Memtable::with_capacity(
            id,
            self.wal.current_segment(),
            capacity,
        ));
        state.active = Arc::clone(&next);
        state.log_seen.1 = false;
        self.host.switched(queued, next);
        pause_points::at(PausePoint::Switched);
    }
}

fn counter_records<'a>(counters: &[(u64, CounterValue)]) -> Vec<Record<'a>> {
    let records = counters.iter().map(|&(counter, to)| match to.generation {
        0 => Record::CounterMax {
            counter,
            value: to.value,
        },
        generation => Record::CounterSet {
            counter,
            generation,
            value: to.value,
        },
    });
    records.collect()
}

fn file_ids(files: &[FileMeta]) -> Vec<u64> {
    files.iter().map(|file| file.file_id).collect()
}

#[cfg(test)]
mod tests;
