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
use crate::base::key::{SEQNO_COMMITTED_MAX, index_id_of};
use crate::base::options::{FlushMode, LiveOptions};
use crate::base::value::check_entry;
use crate::base::{Error, ErrorKind, IndexId, InternalKey, Result, Seqno};
use crate::memtable::Memtable;
use crate::store::{FileKind, FileStore};
use crate::version::{FileMeta, FileSource, Frozen, IngestedRun};
use crate::wal::{BinlogPosition, Cut, Lsn, Record, SegmentId, Wal};
use parking_lot::{Condvar, Mutex, MutexGuard};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Told when a memtable is replaced. Called under the pipeline's mutex: short, and no way back in.
pub trait MemtableHost: Send + Sync {
    /// `active` takes the commits that follow. `queued`, newest first, comes on top of what waits to get
    /// into the tree.
    fn switched(&self, queued: &[Frozen], active: Arc<Memtable>);
}

/// What a transaction has changed.
#[derive(Debug, Clone)]
pub enum Changes {
    /// Few enough to be in memory.
    Batch(Batch),
    /// Files written beforehand, ascending, without a common user key: synced, and their names as well.
    Run(Vec<FileMeta>),
}

impl Changes {
    /// The files, if the changes are in files.
    pub fn files(&self) -> &[FileMeta] {
        match self {
            Self::Batch(_) => &[],
            Self::Run(files) => files,
        }
    }

    /// The indexes that entries are of.
    ///
    /// # Errors
    /// Damage of a batch.
    pub fn indexes(&self) -> Result<BTreeSet<IndexId>> {
        match self {
            Self::Batch(batch) => {
                let mut indexes = BTreeSet::new();
                let mut last = None;
                batch.for_each(|entry| {
                    let index = index_id_of(entry.user_key);
                    if index != last {
                        indexes.extend(index);
                        last = index;
                    }
                })?;
                Ok(indexes)
            }
            Self::Run(files) => {
                let counted = files.iter().flat_map(|file| &file.per_index);
                Ok(counted.map(|stats| stats.index).collect())
            }
        }
    }
}

/// What a commit writes to the log.
#[derive(Debug, Clone, Copy)]
pub enum What<'a> {
    /// The changes themselves.
    Batch,
    /// The batch, as a change of the catalog described for those who follow the log.
    SchemaChange(&'a [u8]),
    /// The outcome of a prepared transaction, whose changes the log has already.
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

/// A place in the server's binary log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BinlogPlace {
    /// Name of its file; empty if it is not known.
    pub name: Vec<u8>,
    /// Position in the file.
    pub pos: u64,
}

impl BinlogPlace {
    fn set(&mut self, at: BinlogPosition<'_>) {
        self.pos = at.pos;
        if self.name != at.name {
            self.name = at.name.to_vec();
        }
    }
}

/// The log was cut, and is on its way to the device.
pub struct BegunCut {
    cut: Cut,
    seqno: Seqno,
    binlog: BinlogPlace,
    held_us: u64,
}

/// The end of what was committed when the log was cut.
#[derive(Debug, Clone)]
pub struct LogCut {
    /// The last segment of the log before the cut; it does not change any more.
    pub segment: SegmentId,
    /// The last commit in it, or in the files.
    pub seqno: Seqno,
    /// The last commit's place in the binary log, if one told since the database was opened.
    pub binlog: BinlogPlace,
    /// How long commits were held up, microseconds.
    pub held_us: u64,
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
    /// Where in the binary log the last commit stands that told.
    binlog: BinlogPlace,
    /// Where the binary log ended before the last change of the catalog, if the host told: for the archive of the log.
    told: Option<BinlogPlace>,
    /// The last look at the clock that went into the log, in steps of [`CLOCK_STEP_US`].
    clock: u64,
    waiting_for_publication: usize,
    poisoned: bool,
    /// Commits whose records end here or later are hidden since the failure.
    hidden_from: Option<Lsn>,
}

/// The commit pipeline of a database.
pub struct Pipeline {
    wal: Arc<Wal>,
    health: Arc<Health>,
    live: Arc<LiveOptions>,
    visible: Arc<AtomicU64>,
    stall: Arc<Stall>,
    host: Box<dyn MemtableHost>,
    /// Where the files are, if the log is archived.
    archived: Option<FileStore>,
    state: Mutex<State>,
    published: Condvar,
}

/// A log that is archived says what time it is when so many microseconds have passed, at whole multiples of them.
const CLOCK_STEP_US: u64 = 10_000;

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
            binlog: BinlogPlace::default(),
            told: None,
            clock: 0,
            waiting_for_publication: 0,
            poisoned: false,
            hidden_from: None,
        };
        Self {
            wal,
            health,
            live,
            visible,
            stall,
            host,
            archived: None,
            state: Mutex::new(state),
            published: Condvar::new(),
        }
    }

    /// The log is archived: records name nothing but what `files` keeps, and tell the time.
    pub fn with_archive(self, files: FileStore) -> Self {
        Self {
            archived: files.is_archived().then_some(files),
            ..self
        }
    }

    /// The binary log ends at `place` before what the host does next, a change of the catalog. For the archive of the log;
    /// without one it does nothing.
    pub fn tell_binlog(&self, place: BinlogPlace) {
        if self.archived.is_some() {
            self.state.lock().told = Some(place);
        }
    }

    /// What the clock says, and where the binary log ends, if an archive of the log is to know.
    fn clock_tick(&self, state: &mut State, what: &What<'_>) -> Option<(u64, Option<BinlogPlace>)> {
        let files = self.archived.as_ref()?;
        let now = files.env().wall_micros();
        // Commits tell their own places.
        let told = match what {
            What::SchemaChange(_) => state.told.clone(),
            _ => None,
        };
        if told.is_none() && now / CLOCK_STEP_US == state.clock {
            return None;
        }
        state.clock = now / CLOCK_STEP_US;
        Some((now / 1000, told))
    }

    /// Wall clock, microseconds, at a moment when no commit is between its look at the clock and the log; and whether
    /// nothing was appended to the log's current segment then.
    pub fn quiet_moment(&self, clock: &dyn Fn() -> u64) -> (u64, bool) {
        let _state = self.state.lock();
        (clock(), !self.wal.segment_used())
    }

    /// Files of a load are in the manifest: the archive of the log, if there is one, has to know of them.
    ///
    /// # Errors
    /// Of an append.
    pub fn note_load(&self, files: &[FileMeta], counters: &[(u64, u64)]) -> Result<()> {
        if self.archived.is_none() {
            return Ok(());
        }
        let (ids, info) = (file_ids(files), FileMeta::encode_all(files));
        let mut records = counter_records(counters);
        records.push(Record::Load {
            files: Cow::Borrowed(&ids),
            info: &info,
        });
        let _in_order = self.state.lock();
        self.health.check()?;
        self.wal.append(&records).map(drop)
    }

    /// Waits at the gate of the stall control. Before a commit, with nothing held in the pipeline.
    pub fn pass_gate(&self, interrupted: &dyn Fn() -> bool) -> Result<()> {
        self.stall.pass(interrupted)
    }

    /// Commits `batch`: on return it is visible, and durable once [`Self::wait_durable`] says so.
    /// `counters` are maxima to persist with it.
    ///
    /// # Errors
    /// `TooLarge`; `Poisoned`; those of the log's buffer.
    pub fn commit(
        &self,
        what: What<'_>,
        batch: &Batch,
        counters: &[(u64, u64)],
    ) -> Result<Committed> {
        if !matches!(what, What::Prepared { .. }) {
            self.check_entries(batch)?;
        }
        let mut state = self.state.lock();
        self.health.check()?;
        self.freeze_if_full(&mut state);
        let seqno = self.next_seqno(&state)?;
        let tick = self.clock_tick(&mut state, &what);
        let mut records = clock_records(&tick);
        records.extend(counter_records(counters));
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
        if let What::Prepared {
            binlog: Some(at), ..
        } = what
        {
            state.binlog.set(at);
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

    /// As [`Self::commit`], for changes of any size. Files are read by way of `source`; the log owns them
    /// from here on, unless the append fails, which [`Health`] knows nothing of.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_changes(
        &self,
        what: What<'_>,
        changes: &Changes,
        source: &Arc<FileSource>,
        counters: &[(u64, u64)],
    ) -> Result<Committed> {
        match changes {
            Changes::Batch(batch) => self.commit(what, batch, counters),
            Changes::Run(files) => self.commit_run(what, files, source, counters),
        }
    }

    /// A run gets its place in the order of commits as a batch does, and is visible as soon as those
    /// before it are. Nothing is read or written but the log's buffer.
    ///
    /// The active memtable is always replaced, also an empty one: a statement that pinned its view
    /// before must not see commits after the run without the run.
    fn commit_run(
        &self,
        what: What<'_>,
        files: &[FileMeta],
        source: &Arc<FileSource>,
        counters: &[(u64, u64)],
    ) -> Result<Committed> {
        let info = FileMeta::encode_all(files);
        let ids = file_ids(files);
        // Those of a prepared transaction were kept when it was prepared.
        if !matches!(what, What::Prepared { .. }) {
            source.store().keep(FileKind::Sst, &ids)?;
        }
        let mut state = self.state.lock();
        self.health.check()?;
        let seqno = self.next_seqno(&state)?;
        let tick = self.clock_tick(&mut state, &what);
        let mut records = clock_records(&tick);
        records.extend(counter_records(counters));
        records.push(match what {
            What::Batch => Record::RunIngest {
                seqno,
                files: Cow::Borrowed(&ids),
                info: &info,
            },
            What::Prepared { xid, binlog, .. } => Record::Commit { xid, seqno, binlog },
            What::SchemaChange(_) => {
                return Err(Error::invalid("a change of the catalog in files"));
            }
        });
        let appended = self.wal.append(&records)?;
        let mut min_segment = appended.segment;
        if let What::Prepared {
            prepared, binlog, ..
        } = what
        {
            min_segment = min_segment.min(prepared.segment);
            unpin(&mut state.pins, prepared.segment);
            if let Some(at) = binlog {
                state.binlog.set(at);
            }
        }
        let before = Arc::clone(&state.active);
        let stays = before.entries() > 0 || !state.queue.is_empty();
        let mut last_lsn = appended.lsn;
        if !stays {
            // What it was to keep of the log, the run keeps.
            min_segment = min_segment.min(before.min_segment());
            last_lsn = last_lsn.max(before.last_lsn());
        }
        let id = before.id() + 1;
        let run = IngestedRun::new(id, seqno, files.to_vec(), source, min_segment, last_lsn);
        let mut queued = vec![Frozen::Run(Arc::new(run))];
        queued.extend(stays.then_some(Frozen::Memtable(before)));
        self.replace_active(&mut state, id + 1, &queued);
        state.last_seqno = seqno;
        state.queue.push_back(false);
        self.note_undurable(&mut state, appended.lsn, seqno);
        drop(state);
        self.publish(seqno);
        Ok(Committed {
            seqno,
            lsn: appended.lsn,
        })
    }

    /// Refuses a batch with an entry that no file can hold: the log would bring it back for ever. Whoever
    /// writes checks before, with the statement at hand; this is the last line.
    fn check_entries(&self, batch: &Batch) -> Result<()> {
        let bytes_max = self.live.entry_bytes_max.load(Ordering::Relaxed);
        if batch.as_bytes().len() as u64 <= bytes_max {
            return Ok(());
        }
        let mut checked = Ok(());
        batch.for_each(|entry| {
            let bytes = entry.user_key.len() + entry.value.len();
            if checked.is_ok() {
                checked = check_entry(bytes, bytes_max);
            }
        })?;
        checked
    }

    fn next_seqno(&self, state: &State) -> Result<Seqno> {
        match state.last_seqno {
            SEQNO_COMMITTED_MAX.. => Err(Error::unsupported("seqnos are used up")),
            last => Ok(last + 1),
        }
    }

    /// As [`Self::prepare`], for changes of any size.
    ///
    /// # Errors
    /// As [`Self::prepare`].
    pub fn prepare_changes(
        &self,
        xid: &[u8],
        changes: &Changes,
        counters: &[(u64, u64)],
    ) -> Result<Prepared> {
        match changes {
            Changes::Batch(batch) => self.prepare(xid, batch, counters),
            Changes::Run(files) => {
                let (ids, info) = (file_ids(files), FileMeta::encode_all(files));
                if let Some(store) = &self.archived {
                    store.keep(FileKind::Sst, &ids)?;
                }
                let record = Record::PrepareRun {
                    xid,
                    files: Cow::Borrowed(&ids),
                    info: &info,
                };
                self.append_prepare(record, counters)
            }
        }
    }

    /// Writes a transaction's batch to the log under `xid`; durable on return.
    pub fn prepare(&self, xid: &[u8], batch: &Batch, counters: &[(u64, u64)]) -> Result<Prepared> {
        let record = Record::Prepare {
            xid,
            batch: batch.as_bytes(),
        };
        self.append_prepare(record, counters)
    }

    fn append_prepare(&self, record: Record<'_>, counters: &[(u64, u64)]) -> Result<Prepared> {
        let mut state = self.state.lock();
        self.health.check()?;
        let mut records = counter_records(counters);
        records.push(record);
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

    /// Whether a failure has stopped writes: what was appended may be in the log or not.
    pub fn is_poisoned(&self) -> bool {
        self.health.cause().is_some()
    }

    /// Waits until the log up to `lsn`, the end of a commit's record, is as durable as the flush mode promises.
    ///
    /// # Errors
    /// `Poisoned` where the log has failed, and where a failure elsewhere hid the commit before the log had it:
    /// nobody may be told of a commit that does not read.
    pub fn wait_durable(&self, lsn: Lsn) -> Result<()> {
        let waited = match self.live.flush_mode() {
            FlushMode::Sync => self.wal.sync_to(lsn),
            FlushMode::Write => self.wal.write_to(lsn),
            FlushMode::Lazy => Ok(()),
        };
        waited.inspect_err(|_| self.contain_failure())?;
        // Whoever hides commits asks the log first, so that those it has by now stay: only a failure before matters.
        if self.is_poisoned()
            && self
                .state
                .lock()
                .hidden_from
                .is_some_and(|from| from <= lsn)
        {
            return self.health.check();
        }
        Ok(())
    }

    /// Makes everything appended so far durable, whatever the flush mode.
    pub fn sync_all(&self) -> Result<()> {
        self.sync_to(self.wal.appended_lsn())
    }

    /// Makes the log up to `lsn` durable, whatever the flush mode.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        self.wal
            .sync_to(lsn)
            .inspect_err(|_| self.contain_failure())
    }

    /// Ends the log's segment behind the last commit. Commits are held up only while the log moves to its next
    /// segment, which [`Wal::prepare_cut`] has made ready: the caller had better call that before. No other
    /// I/O; [`Self::finish_cut`] must follow.
    ///
    /// # Errors
    /// `Poisoned`; `NoSpace` if there is no room for the next segment.
    pub fn begin_cut(&self, clock: &dyn Fn() -> u64) -> Result<BegunCut> {
        loop {
            self.wal.prepare_cut()?;
            let state = self.state.lock();
            let began = clock();
            self.health.check()?;
            if let Some(cut) = self.wal.try_cut()? {
                return Ok(BegunCut {
                    cut,
                    seqno: state.last_seqno,
                    binlog: state.binlog.clone(),
                    held_us: clock().saturating_sub(began),
                });
            }
        }
    }

    /// Makes everything before the cut durable.
    ///
    /// # Errors
    /// As of [`Self::sync_all`].
    pub fn finish_cut(&self, begun: BegunCut) -> Result<LogCut> {
        let finished = self.wal.finish_cut(begun.cut);
        let segment = finished.inspect_err(|_| self.contain_failure())?;
        Ok(LogCut {
            segment,
            seqno: begun.seqno,
            binlog: begun.binlog,
            held_us: begun.held_us,
        })
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
        if let Some(&(lsn, seqno)) = first_lost {
            state.hidden_from = Some(lsn);
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

    /// The oldest log segment still needed. `unflushed` lists what stays in the queue; it is
    /// called under the mutex, since a memtable that freezes meanwhile must not be missed.
    pub fn log_floor(&self, unflushed: impl FnOnce() -> Vec<Frozen>) -> SegmentId {
        let state = self.state.lock();
        let frozen = unflushed();
        let queued = frozen.iter().map(Frozen::min_segment);
        let pinned = state.pins.keys().copied();
        queued
            .chain(pinned)
            .fold(state.active.min_segment(), SegmentId::min)
    }

    /// The last seqno assigned.
    pub fn last_seqno(&self) -> Seqno {
        self.state.lock().last_seqno
    }

    fn freeze_if_full(&self, state: &mut MutexGuard<'_, State>) {
        let blobs = self.live.blob_freeze_at.load(Ordering::Relaxed);
        if state.active.size_bytes() >= self.live.freeze_at() || state.active.blob_bytes() >= blobs
        {
            self.switch(state);
        }
    }

    fn switch(&self, state: &mut MutexGuard<'_, State>) {
        let frozen = Arc::clone(&state.active);
        let id = frozen.id() + 1;
        self.replace_active(state, id, &[Frozen::Memtable(frozen)]);
    }

    /// Begins memtable `id`; `queued`, newest first, comes on top of the queue.
    fn replace_active(&self, state: &mut MutexGuard<'_, State>, id: u64, queued: &[Frozen]) {
        let capacity = self.live.freeze_at();
        let next = Arc::new(Memtable::with_capacity(
            id,
            self.wal.current_segment(),
            capacity,
        ));
        state.active = Arc::clone(&next);
        self.host.switched(queued, next);
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

fn clock_records(tick: &Option<(u64, Option<BinlogPlace>)>) -> Vec<Record<'_>> {
    let mut records = Vec::new();
    if let Some((wall_ms, told)) = tick {
        records.push(Record::Clock {
            wall_ms: *wall_ms,
            binlog: told.as_ref().map(|place| BinlogPosition {
                name: &place.name,
                pos: place.pos,
            }),
        });
    }
    records
}

fn counter_records<'a>(counters: &[(u64, u64)]) -> Vec<Record<'a>> {
    counters
        .iter()
        .map(|&(counter, value)| Record::CounterMax { counter, value })
        .collect()
}

fn file_ids(files: &[FileMeta]) -> Vec<u64> {
    files.iter().map(|file| file.file_id).collect()
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
