//! The commit pipeline.
//!
//! Steps of a commit:
//! 1. Under one short mutex: take the next seqno, choose the memtable, append to the log's buffer,
//!    join the queue. Log order, queue order and seqno order are therefore the same.
//! 2. Outside the mutex: insert the entries into the memtable, in parallel with other commits.
//! 3. Under the mutex again: mark the commit applied; the thread that finds the head of the queue
//!    applied publishes the whole applied prefix by moving the visible seqno.
//! 4. When its own seqno is visible the caller releases row locks, and only then waits for the log
//!    ([`Pipeline::wait_durable`]): locks are never held across a sync.
//!
//! Invariants: a seqno becomes visible only after all smaller ones; a commit is in the memtable
//! that was active when its seqno was assigned, so a freeze never splits a commit; a memtable is
//! flushed only after its writers have left.
//!
//! When the log fails, publication goes on up to the first commit that the log has lost: a durable
//! commit is acknowledged, so it must become visible. If a commit panics between steps 1 and 3, the
//! engine is poisoned and publication ends before it: later commits fail with an unknown outcome
//! instead of waiting for ever.
//!
//! Rejected: commit groups with a leader that writes batches for the others (two more wake-ups per
//! member, and each batch is copied twice).

mod archive_records;
mod commit;
mod durability;
mod log_cut;
mod panic_guard;
mod prepare;
mod server_run;

pub use archive_records::OwnedBinlogPosition;
pub use commit::{CommitRecord, Committed};
pub use durability::unknown_outcome;
pub use log_cut::{BegunCut, LogCut};
pub use prepare::PreparedLogPin;

use super::stall::StallGate;
use crate::base::health::{FullDisk, Health};
use crate::base::options::MutableOptions;
use crate::base::pause_points::{self, PausePoint};
use crate::base::{CounterValue, ErrorKind, Result, Seqno};
use crate::memtable::Memtable;
use crate::store::{FileStore, ReservePart};
use crate::version::{FileMeta, Flushable};
use crate::wal::{Lsn, Record, SegmentId, Wal};
use panic_guard::PoisonOnPanic;
use parking_lot::{Condvar, Mutex, MutexGuard};
use server_run::ServerRunNote;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Where a memtable is frozen while the disk is full.
const FULL_DISK_FREEZE: u64 = ReservePart::Table.bytes() / 2;

/// Notified when a memtable is replaced. Called under the pipeline's mutex: an implementation must
/// be short and must not call the pipeline.
pub trait MemtableHost: Send + Sync {
    /// `active` takes the next commits. `queued`, newest first, is newer than all memtables and
    /// runs that already wait for the tree.
    fn switched(&self, queued: &[Flushable], active: Arc<Memtable>);
}

struct PipelineState {
    last_seqno: Seqno,
    active: Arc<Memtable>,
    /// Commits between assignment and publication, oldest first: applied or not. The last one has
    /// seqno `last_seqno`.
    queue: VecDeque<bool>,
    /// Commits whose log bytes may not be durable: what to hide if the log fails.
    undurable: VecDeque<(Lsn, Seqno)>,
    /// Segments pinned by prepared transactions, with counts.
    pins: BTreeMap<SegmentId, usize>,
    /// Whose transactions are prepared.
    run: ServerRunNote,
    /// Binary log position of the last commit that reported one.
    binlog: OwnedBinlogPosition,
    /// End of the binary log before the last change of the catalog, if the host reported it; for
    /// the archive of the log.
    told: Option<OwnedBinlogPosition>,
    /// The last time that was logged, in steps of [`CLOCK_STEP_US`].
    clock: u64,
    waiting_for_publication: usize,
    poisoned: bool,
    /// Commits from here on never become visible: the log has lost them, or a bug has kept one of
    /// them from being applied. `Seqno::MAX` as long as there are none.
    lost_from: Seqno,
    /// Since the failure, commits whose records end here or later are hidden.
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
    /// The store of the files, if the log is archived.
    archived: Option<FileStore>,
    state: Mutex<PipelineState>,
    published: Condvar,
}

impl Pipeline {
    /// A pipeline that continues after `last_seqno`, writing into `active`.
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
            pins: BTreeMap::new(),
            run: ServerRunNote::default(),
            binlog: OwnedBinlogPosition::default(),
            told: None,
            clock: 0,
            waiting_for_publication: 0,
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
            published: Condvar::new(),
        }
    }

    /// Waits at the gate of the stall control. Call it before a commit, without a slot of the
    /// pipeline.
    ///
    /// # Errors
    /// `Interrupted`; the error of the background work that the gate waits for (`NoSpace`,
    /// `Corruption`, `Io`), `Poisoned`, `ShutDown`.
    pub fn pass_gate(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        self.stall.pass(interrupted)
    }

    /// As [`Self::pass_gate`], for a deletion: a full disk does not stop it.
    ///
    /// # Errors
    /// As for [`Self::pass_gate`], without `NoSpace`.
    pub fn pass_gate_deleting(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        match self.stall.pass(interrupted) {
            Err(full) if *full.kind() == ErrorKind::NoSpace => Ok(()),
            passed => passed,
        }
    }

    /// Freezes the active memtable if it holds anything. Returns whether it did.
    pub fn freeze(&self) -> bool {
        let mut state = self.state.lock();
        let _switching = PoisonOnPanic(&self.health);
        let empty = state.active.entries() == 0 && state.queue.is_empty();
        if !empty {
            self.switch(&mut state);
        }
        !empty
    }

    /// The oldest log segment still needed. `unflushed` lists the memtables and runs that stay in
    /// the queue; it is called under the mutex, since a memtable that freezes meanwhile must not be
    /// missed.
    pub fn log_floor(&self, unflushed: impl FnOnce() -> Vec<Flushable>) -> SegmentId {
        let state = self.state.lock();
        let frozen = unflushed();
        let queued = frozen.iter().map(Flushable::min_segment);
        let pinned = state.pins.keys().copied();
        queued
            .chain(pinned)
            .fold(state.active.min_segment(), SegmentId::min)
    }

    /// The last seqno assigned.
    pub fn last_seqno(&self) -> Seqno {
        self.state.lock().last_seqno
    }

    fn freeze_if_full(&self, state: &mut MutexGuard<'_, PipelineState>) {
        // A larger memtable would not fit into the room that is kept for a full disk.
        let full = self.health.is_full(Some(FullDisk::Flush))
            && state.active.size_bytes() >= FULL_DISK_FREEZE;
        let blobs = self.mutable.blob_freeze_at.load(Ordering::Relaxed);
        if full
            || state.active.size_bytes() >= self.mutable.freeze_at()
            || state.active.blob_bytes() >= blobs
        {
            self.switch(state);
        }
    }

    fn switch(&self, state: &mut MutexGuard<'_, PipelineState>) {
        let frozen = Arc::clone(&state.active);
        let id = frozen.id() + 1;
        self.replace_active(state, id, &[Flushable::Memtable(frozen)]);
    }

    /// Makes memtable `id` the active one. `queued`, newest first, joins the flushables that wait
    /// for the tree, as the newest of them.
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
