//! The commit pipeline.
//!
//! Steps of a commit:
//! 1. Under one short mutex: take the next seqno, choose the memtable, append to the log's buffer,
//!    join the queue. Log order, queue order and seqno order are therefore the same.
//! 2. Outside the mutex: insert the entries into the memtable, in parallel with other commits.
//! 3. Under the mutex again: mark the commit applied; whoever finds the head of the queue applied
//!    publishes the whole applied prefix by moving the visible seqno.
//! 4. When its own seqno is visible the caller releases row locks, and only then waits for the log
//!    ([`Pipeline::wait_durable`]): locks are never held across a sync.
//!
//! Invariants: a seqno becomes visible only after all smaller ones; a commit is in the memtable that
//! was active when its seqno was assigned, so a freeze never splits a commit; a memtable is flushed
//! only after its writers have left.
//!
//! Rejected: commit groups with a leader that writes batches for the others (two more wake-ups per
//! member, and each batch is copied twice).

use super::batch::Batch;
use super::stall::Stall;
use crate::base::health::Health;
use crate::base::key::SEQNO_COMMITTED_MAX;
use crate::base::options::{FlushMode, LiveOptions};
use crate::base::{Error, ErrorKind, InternalKey, Result, Seqno};
use crate::memtable::Memtable;
use crate::wal::{BinlogPosition, Lsn, Record, SegmentId, Wal};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Told when a memtable freezes. Called under the pipeline's mutex: short, and no way back in.
pub trait MemtableHost: Send + Sync {
    /// `frozen` takes no new commits; `active` takes them.
    fn switched(&self, frozen: Arc<Memtable>, active: Arc<Memtable>);
}

/// What a commit writes to the log.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    /// The batch itself.
    Batch,
    /// The batch, as a change of the catalog described for those who follow the log.
    SchemaChange(&'a [u8]),
    /// The outcome of a prepared transaction, whose batch the log has already.
    Prepared {
        /// The id it was prepared with.
        xid: &'a [u8],
        /// What [`Pipeline::prepare`] returned.
        prepared: Prepared,
        /// Name and position in the binary log.
        binlog: Option<BinlogPosition<'a>>,
    },
}

/// A prepared transaction's place in the log; pins its segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prepared {
    segment: SegmentId,
}

/// A visible commit.
#[derive(Debug, Clone, Copy)]
pub struct Committed {
    /// Its seqno.
    pub seqno: Seqno,
    /// Its end in the log.
    pub lsn: Lsn,
}

struct State {
    last_seqno: Seqno,
    active: Arc<Memtable>,
    /// Commits between assignment and publication, oldest first: applied or not. The last one has
    /// seqno `last_seqno`.
    queue: VecDeque<bool>,
    /// Commits whose log bytes may not be durable: what to hide if the log fails.
    undurable: VecDeque<(Lsn, Seqno)>,
    /// Segments pinned by prepared transactions, with counts.
    pins: BTreeMap<SegmentId, usize>,
    waiting_for_publication: usize,
    poisoned: bool,
}

/// The commit pipeline of a database.
pub struct Pipeline {
    wal: Arc<Wal>,
    health: Arc<Health>,
    live: Arc<LiveOptions>,
    visible: Arc<AtomicU64>,
    stall: Arc<Stall>,
    host: Box<dyn MemtableHost>,
    state: Mutex<State>,
    published: Condvar,
}

impl Pipeline {
    /// A pipeline that continues after `last_seqno`, writing into `active`.
    pub fn new(
        wal: Arc<Wal>,
        health: Arc<Health>,
        live: Arc<LiveOptions>,
        visible: Arc<AtomicU64>,
        stall: Arc<Stall>,
        host: Box<dyn MemtableHost>,
        active: Arc<Memtable>,
    ) -> Self {
        let last_seqno = visible.load(Ordering::Acquire);
        let state = State {
            last_seqno,
            active,
            queue: VecDeque::new(),
            undurable: VecDeque::new(),
            pins: BTreeMap::new(),
            waiting_for_publication: 0,
            poisoned: false,
        };
        Self {
            wal,
            health,
            live,
            visible,
            stall,
            host,
            state: Mutex::new(state),
            published: Condvar::new(),
        }
    }

    /// Waits at the gate of the stall control. Before a commit, with nothing held in the pipeline.
    pub fn pass_gate(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        self.stall.pass(interrupted)
    }

    /// Commits `batch`: on return it is visible, and durable once [`Self::wait_durable`] says so.
    /// `counters` are maxima to persist with it.
    pub fn commit(
        &self,
        what: What<'_>,
        batch: &Batch,
        counters: &[(u64, u64)],
    ) -> Result<Committed> {
        let mut state = self.state.lock();
        self.health.check()?;
        self.freeze_if_full(&mut state);
        let seqno = state.last_seqno + 1;
        if seqno > SEQNO_COMMITTED_MAX {
            return Err(Error::unsupported("seqnos are used up"));
        }
        let mut records = counter_records(counters);
        records.push(match what {
            What::Batch => Record::Batch {
                seqno,
                batch: batch.as_bytes(),
            },
            What::SchemaChange(description) => Record::SchemaChange {
                seqno,
                batch: batch.as_bytes(),
                description,
            },
            What::Prepared { xid, binlog, .. } => Record::Commit { xid, seqno, binlog },
        });
        let appended = self.wal.append(&records)?;
        if let What::Prepared { prepared, .. } = what {
            // The pin moves to the memtable in the same step, so that the segment is never free.
            state.active.lower_min_segment(prepared.segment);
            unpin(&mut state.pins, prepared.segment);
        }
        state.last_seqno = seqno;
        state.queue.push_back(false);
        self.note_undurable(&mut state, appended.lsn, seqno);
        let memtable = Arc::clone(&state.active);
        memtable.writers_begin();
        memtable.set_last_lsn(appended.lsn);
        drop(state);

        let mut inserter = memtable.inserter();
        let inserted = batch.for_each(|entry| {
            inserter.insert(
                InternalKey::new(entry.user_key, seqno, entry.kind),
                entry.value,
            );
        });
        drop(inserter);
        memtable.writers_end();
        if let Err(error) = inserted {
            // Only a broken batch gets here; the log has it, so nothing may be built on top.
            self.health.poison(error);
        }
        self.publish(seqno);
        self.stall.committed(batch.as_bytes().len() as u64);
        Ok(Committed {
            seqno,
            lsn: appended.lsn,
        })
    }

    /// Writes a transaction's batch to the log under `xid`; durable on return.
    pub fn prepare(&self, xid: &[u8], batch: &Batch, counters: &[(u64, u64)]) -> Result<Prepared> {
        let mut state = self.state.lock();
        self.health.check()?;
        let mut records = counter_records(counters);
        records.push(Record::Prepare {
            xid,
            batch: batch.as_bytes(),
        });
        let appended = self.wal.append(&records)?;
        *state.pins.entry(appended.segment).or_default() += 1;
        drop(state);
        let prepared = Prepared {
            segment: appended.segment,
        };
        if let Err(error) = self.wait_durable(appended.lsn) {
            unpin(&mut self.state.lock().pins, prepared.segment);
            return Err(error);
        }
        Ok(prepared)
    }

    /// Ends a prepared transaction without its changes.
    pub fn rollback_prepared(&self, xid: &[u8], prepared: Prepared) -> Result<Lsn> {
        let mut state = self.state.lock();
        self.health.check()?;
        let appended = self.wal.append(&[Record::Rollback { xid }])?;
        // As at a commit: the prepare record stays until the rollback is durable. Else a power cut
        // could take the rollback's predecessors from the log and leave the transaction forgotten.
        state.active.lower_min_segment(prepared.segment);
        state.active.set_last_lsn(appended.lsn);
        unpin(&mut state.pins, prepared.segment);
        Ok(appended.lsn)
    }

    /// Waits until the log up to `lsn` is as durable as the flush mode promises.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        let waited = match self.live.flush_mode() {
            FlushMode::Sync => self.wal.sync_to(lsn),
            FlushMode::Write => self.wal.write_to(lsn),
            FlushMode::Lazy => Ok(()),
        };
        waited.inspect_err(|_| self.contain_failure())
    }

    /// Makes everything appended so far durable, whatever the flush mode.
    pub fn sync_all(&self) -> Result<()> {
        self.wal
            .sync_to(self.wal.appended_lsn())
            .inspect_err(|_| self.contain_failure())
    }

    /// Hides what the failed log cannot keep: visibility falls back to the last durable commit.
    pub fn contain_failure(&self) {
        if self.health.cause().is_none() {
            return;
        }
        let mut state = self.state.lock();
        if state.poisoned {
            return;
        }
        state.poisoned = true;
        let durable = self.wal.durable_lsn();
        let first_lost = state.undurable.iter().find(|(lsn, _)| *lsn > durable);
        if let Some(&(_, seqno)) = first_lost {
            let cap = (seqno - 1).min(self.visible.load(Ordering::Acquire));
            self.visible.store(cap, Ordering::Release);
        }
        self.stall.release();
        self.published.notify_all();
    }

    /// Freezes the active memtable if it holds anything. Returns whether it did.
    pub fn freeze(&self) -> bool {
        let mut state = self.state.lock();
        let empty = state.active.entries() == 0 && state.queue.is_empty();
        if !empty {
            self.switch(&mut state);
        }
        !empty
    }

    /// The oldest log segment still needed. `unflushed` lists the frozen memtables that stay; it is
    /// called under the mutex, since a memtable that freezes meanwhile must not be missed.
    pub fn log_floor(&self, unflushed: impl FnOnce() -> Vec<Arc<Memtable>>) -> SegmentId {
        let state = self.state.lock();
        let frozen = unflushed();
        let memtables = frozen.iter().map(|m| m.min_segment());
        let pinned = state.pins.keys().copied();
        memtables
            .chain(pinned)
            .fold(state.active.min_segment(), SegmentId::min)
    }

    /// The last seqno assigned.
    pub fn last_seqno(&self) -> Seqno {
        self.state.lock().last_seqno
    }

    fn freeze_if_full(&self, state: &mut MutexGuard<'_, State>) {
        if state.active.size_bytes() >= self.live.freeze_at() {
            self.switch(state);
        }
    }

    fn switch(&self, state: &mut MutexGuard<'_, State>) {
        let capacity = self.live.freeze_at();
        let id = state.active.id() + 1;
        let next = Arc::new(Memtable::with_capacity(
            id,
            self.wal.current_segment(),
            capacity,
        ));
        let frozen = std::mem::replace(&mut state.active, Arc::clone(&next));
        self.host.switched(frozen, next);
    }

    fn publish(&self, seqno: Seqno) {
        let mut state = self.state.lock();
        let first = state.last_seqno + 1 - state.queue.len() as u64;
        state.queue[(seqno - first) as usize] = true;
        let mut moved = false;
        while state.queue.front() == Some(&true) {
            state.queue.pop_front();
            moved = true;
        }
        if moved && !state.poisoned {
            let visible = state.last_seqno - state.queue.len() as u64;
            self.visible.store(visible, Ordering::Release);
        }
        if moved && state.waiting_for_publication > 0 {
            self.published.notify_all();
        }
        while self.visible.load(Ordering::Acquire) < seqno && !state.poisoned {
            state.waiting_for_publication += 1;
            self.published.wait(&mut state);
            state.waiting_for_publication -= 1;
        }
    }

    fn note_undurable(&self, state: &mut MutexGuard<'_, State>, lsn: Lsn, seqno: Seqno) {
        let durable = self.wal.durable_lsn();
        while state
            .undurable
            .front()
            .is_some_and(|(lsn, _)| *lsn <= durable)
        {
            state.undurable.pop_front();
        }
        state.undurable.push_back((lsn, seqno));
    }
}

fn counter_records<'a>(counters: &[(u64, u64)]) -> Vec<Record<'a>> {
    counters
        .iter()
        .map(|&(counter, value)| Record::CounterMax { counter, value })
        .collect()
}

fn unpin(pins: &mut BTreeMap<SegmentId, usize>, segment: SegmentId) {
    if let Some(count) = pins.get_mut(&segment) {
        *count -= 1;
        if *count == 0 {
            pins.remove(&segment);
        }
    }
}

/// The error of a commit whose log bytes may or may not survive.
pub fn unknown_outcome(cause: &Error) -> Error {
    Error::new(
        ErrorKind::Poisoned,
        format!("the outcome of this commit is unknown until the server restarts: {cause}"),
    )
}
