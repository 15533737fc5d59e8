//! Commits of batches and of runs of files.
//!
//! Under the pipeline's mutex a commit draws its seqno, appends its record to the log's buffer and
//! joins the queue, so seqnos, records and publications have one order. Outside the mutex it
//! inserts its entries into the memtable, side by side with other commits. Then it marks itself as
//! applied. If it is the oldest commit of the queue, it publishes itself and all applied commits
//! directly behind it: the visible seqno never passes a commit that is not in its memtable.
//!
//! If a commit panics between these steps, or its batch does not decode, the engine is poisoned and
//! the waits of later commits end (`panic_guard`): otherwise they would wait for ever for a commit
//! that cannot be published.

use super::archive_records::clock_records;
use super::panic_guard::{CommitGuard, PoisonOnPanic};
use super::{Pipeline, PipelineState, PreparedLogPin, QueuedCommit, counter_records, file_ids};
use crate::base::health::FullDisk;
use crate::base::key::SEQNO_COMMITTED_MAX;
use crate::base::parker::Parker;
use crate::base::pause_points::{self, PausePoint};
use crate::base::value::check_entry;
use crate::base::{CounterValue, Error, ErrorKind, InternalKey, Result, Seqno};
use crate::store::FileKind;
use crate::version::{FileMeta, FileSource, Flushable, IngestedRun};
use crate::wal::{Appended, BinlogPosition, FullDiskAccess, Lsn, OutcomeRoom, Record};
use crate::write::{Batch, Changes, RunCharge};
use parking_lot::MutexGuard;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Upper bound of the bytes of one counter's record.
pub(super) const COUNTER_BYTES_MAX: usize = 64;

/// Upper bound of the bytes of a commit's seqno, lengths and clock record.
pub(super) const OTHER_BYTES_MAX: usize = 256;

/// The record that a commit writes to the log.
#[derive(Debug, Clone, Copy)]
pub enum CommitRecord<'a> {
    /// The changes themselves.
    Batch,
    /// A batch that changes the catalog, with a description for readers of the log.
    SchemaChange(&'a [u8]),
    /// As `SchemaChange`, for a change that frees space: the record may take the room that is kept
    /// for a full disk.
    Retirement(&'a [u8]),
    /// The outcome of a prepared transaction, whose changes the log has already.
    Prepared {
        /// The id it was prepared with.
        xid: &'a [u8],
        /// The result of [`Pipeline::prepare_changes`].
        prepared: PreparedLogPin,
        /// Name and position in the binary log.
        binlog: Option<BinlogPosition<'a>>,
    },
}

impl CommitRecord<'_> {
    /// The effect of the record on the log room that is reserved for outcomes of prepared
    /// transactions.
    fn room(&self) -> OutcomeRoom {
        match self {
            Self::Batch | Self::SchemaChange(_) | Self::Retirement(_) => OutcomeRoom::Leave,
            Self::Prepared { .. } => OutcomeRoom::Use,
        }
    }

    /// Upper bound of the bytes that a commit logs besides its batch and its counters.
    fn other_bytes_max(&self) -> usize {
        match self {
            Self::SchemaChange(description) | Self::Retirement(description) => {
                OTHER_BYTES_MAX + description.len()
            }
            Self::Batch | Self::Prepared { .. } => OTHER_BYTES_MAX,
        }
    }

    /// Tells how much of the log's disk reserve the record may take on a full disk. `only_deletes`
    /// examines all changes, so it is called only where the answer matters.
    fn access(&self, only_deletes: impl FnOnce() -> bool) -> FullDiskAccess {
        match self {
            Self::Prepared { .. } | Self::Retirement(_) => FullDiskAccess::Exits,
            Self::Batch if only_deletes() => FullDiskAccess::Deletions,
            Self::Batch | Self::SchemaChange(_) => FullDiskAccess::Ordinary,
        }
    }
}

/// A visible commit.
#[derive(Debug, Clone, Copy)]
pub struct Committed {
    /// Its seqno.
    pub seqno: Seqno,
    /// The position in the log behind its record.
    pub lsn: Lsn,
}

impl Pipeline {
    /// Commits `batch`: on return the commit is visible. It is durable once [`Self::wait_durable`]
    /// has returned. The log record also persists `counters`, the maxima of counters.
    ///
    /// # Errors
    /// `TooLarge`; `Poisoned`; those of the log's buffer.
    pub fn commit(
        &self,
        what: CommitRecord<'_>,
        batch: &Batch,
        counters: &[(u64, CounterValue)],
    ) -> Result<Committed> {
        let room_ahead = match what {
            CommitRecord::Prepared { .. } => None,
            _ => {
                self.check_entries(batch)?;
                let bytes = batch.as_bytes().len() + counters.len() * COUNTER_BYTES_MAX;
                Some(
                    self.wal
                        .prepare_room(bytes + what.other_bytes_max(), OutcomeRoom::Leave),
                )
            }
        };
        let mut unfinished = CommitGuard::new(self);
        let mut state = self.state.lock();
        self.health.check()?;
        let appending = PoisonOnPanic(&self.health);
        self.freeze_if_full(&mut state);
        let seqno = self.next_seqno(&state)?;
        unfinished.takes(seqno);
        let tick = self.archive_time_record(&mut state, &what);
        let mut records = clock_records(&tick);
        records.extend(counter_records(counters));
        records.push(match what {
            CommitRecord::Batch => Record::Batch {
                seqno,
                batch: batch.as_bytes(),
            },
            CommitRecord::SchemaChange(description) | CommitRecord::Retirement(description) => {
                Record::SchemaChange {
                    seqno,
                    batch: batch.as_bytes(),
                    description,
                }
            }
            CommitRecord::Prepared { xid, binlog, .. } => Record::Commit { xid, seqno, binlog },
        });
        let access = || what.access(|| batch.only_deletes());
        let appended = self.append(&records, what.room(), access)?;
        drop(room_ahead);
        unfinished.appended(appended.lsn);
        if let CommitRecord::Prepared { prepared, .. } = what {
            // Pass the pin of the prepare record's segment to the memtable while the mutex is held,
            // so that the segment is pinned at every moment.
            if let Some(pinned) = state.pins.remove(prepared) {
                state.active.lower_min_segment(pinned);
            }
        }
        if let CommitRecord::Prepared {
            binlog: Some(at), ..
        } = what
        {
            state.binlog.set(at);
        }
        state.last_seqno = seqno;
        state.queue.push_back(QueuedCommit::default());
        self.note_undurable(&mut state, appended.lsn, seqno);
        state.totals.commits += 1;
        state.totals.bytes += batch.as_bytes().len() as u64;
        let memtable = Arc::clone(&state.active);
        unfinished.writes_to(&memtable);
        memtable.set_last_lsn(appended.lsn);
        memtable.set_last_commit(seqno);
        self.note_segment(&mut state, appended.segment);
        drop(appending);
        drop(state);
        pause_points::at(PausePoint::Sequenced);

        let mut inserter = memtable.inserter();
        let inserted = batch.for_each(|entry| {
            inserter.insert(
                InternalKey::new(entry.user_key, seqno, entry.kind),
                entry.value,
            );
        });
        drop(inserter);
        if let Err(error) = inserted {
            // Only a broken batch gets here.
            unfinished.fails(error);
        }
        unfinished.wrote();
        self.publish(seqno);
        unfinished.ends();
        self.stall.committed(batch.as_bytes().len() as u64);
        Ok(Committed {
            seqno,
            lsn: appended.lsn,
        })
    }

    /// As [`Self::commit`], for changes of any size: a batch, or the files to which a large
    /// transaction has written its changes. Such files are read through `source`. From this call on
    /// the caller must not remove them, because the log names them, unless the append fails without
    /// poisoning the engine.
    ///
    /// # Errors
    /// As [`Self::commit`].
    pub fn commit_changes(
        &self,
        what: CommitRecord<'_>,
        changes: &Changes,
        source: &Arc<FileSource>,
        counters: &[(u64, CounterValue)],
    ) -> Result<Committed> {
        match changes {
            Changes::Batch(batch) => self.commit(what, batch, counters),
            Changes::Run(files) => self.commit_run(what, files, source, counters),
        }
    }

    /// Commits a run of files. The run gets its seqno as a batch does, and is visible as soon as
    /// earlier commits are. No I/O, apart from the log's buffer.
    ///
    /// The active memtable is always replaced, even an empty one: a statement that pinned its super
    /// version before must not see later commits without the run.
    fn commit_run(
        &self,
        what: CommitRecord<'_>,
        files: &[FileMeta],
        source: &Arc<FileSource>,
        counters: &[(u64, CounterValue)],
    ) -> Result<Committed> {
        let info = FileMeta::encode_all(files);
        let ids = file_ids(files);
        // Link the files for the log archive, unless they were linked when the transaction was
        // prepared.
        if !matches!(what, CommitRecord::Prepared { .. }) {
            source.store().keep(FileKind::Sst, &ids)?;
        }
        let charge = RunCharge::of(files.iter()).bytes;
        let metas = files.to_vec();
        let mut unfinished = CommitGuard::new(self);
        let mut state = self.state.lock();
        self.health.check()?;
        let seqno = self.next_seqno(&state)?;
        let appending = PoisonOnPanic(&self.health);
        unfinished.takes(seqno);
        let tick = self.archive_time_record(&mut state, &what);
        let mut records = clock_records(&tick);
        records.extend(counter_records(counters));
        records.push(match what {
            CommitRecord::Batch => Record::RunIngest {
                seqno,
                files: Cow::Borrowed(&ids),
                info: &info,
            },
            CommitRecord::Prepared { xid, binlog, .. } => Record::Commit { xid, seqno, binlog },
            CommitRecord::SchemaChange(_) | CommitRecord::Retirement(_) => {
                return Err(Error::invalid("a change of the catalog in files"));
            }
        });
        let access = || what.access(|| files.iter().all(|file| file.deletes == file.entries));
        let appended = self.append(&records, what.room(), access)?;
        unfinished.appended(appended.lsn);
        let mut min_segment = appended.segment;
        if let CommitRecord::Prepared {
            prepared, binlog, ..
        } = what
        {
            let pinned = state.pins.remove(prepared);
            min_segment = min_segment.min(pinned.unwrap_or(min_segment));
            if let Some(at) = binlog {
                state.binlog.set(at);
            }
        }
        let before = Arc::clone(&state.active);
        // The order matters: a commit counts its entries first and then leaves the memtable, both
        // without this mutex. So if none is inserting, all entries are counted. The queue would not
        // tell: it also has runs, and commits of older memtables.
        let inserting = !before.is_quiescent();
        pause_points::at(PausePoint::InsertersSought);
        let stays = inserting || before.entries() > 0;
        let mut last_lsn = appended.lsn;
        if !stays {
            // The empty memtable is dropped, so the run takes over the log segments that the
            // memtable keeps, such as those with outcomes of prepared transactions.
            min_segment = min_segment.min(before.min_segment());
            last_lsn = last_lsn.max(before.last_lsn());
        }
        let id = before.id() + 1;
        let run = IngestedRun::new(id, seqno, metas, source, min_segment, last_lsn);
        let mut queued = vec![Flushable::Run(Arc::new(run))];
        queued.extend(stays.then_some(Flushable::Memtable(before)));
        self.replace_active(&mut state, id + 1, &queued);
        self.note_segment(&mut state, appended.segment);
        state.last_seqno = seqno;
        state.queue.push_back(QueuedCommit::default());
        self.note_undurable(&mut state, appended.lsn, seqno);
        state.totals.commits += 1;
        state.totals.bytes += charge;
        drop(appending);
        drop(state);
        pause_points::at(PausePoint::Sequenced);
        self.publish(seqno);
        unfinished.ends();
        self.stall.committed(charge);
        Ok(Committed {
            seqno,
            lsn: appended.lsn,
        })
    }

    /// Appends records to the log; `access` computes the room that they may take on a full disk.
    pub(super) fn append(
        &self,
        records: &[Record<'_>],
        room: OutcomeRoom,
        access: impl FnOnce() -> FullDiskAccess,
    ) -> Result<Appended> {
        // If the last append found the disk full, a record that may take the disk reserve takes it
        // at once and does not try the disk again.
        if self.health.is_full(Some(FullDisk::Log)) {
            return self.wal.append_to(records, room, access());
        }
        match self.wal.append(records, room) {
            Err(full) if *full.kind() == ErrorKind::NoSpace => match access() {
                FullDiskAccess::Ordinary => Err(full),
                access => self.wal.append_to(records, room, access),
            },
            appended => appended,
        }
    }

    /// Refuses a batch with an entry that no file can hold: each replay of the log would meet it
    /// again. Statements check before they write; this check only catches a caller that does not.
    fn check_entries(&self, batch: &Batch) -> Result<()> {
        let bytes_max = self.mutable.entry_bytes_max.load(Ordering::Relaxed);
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

    fn next_seqno(&self, state: &PipelineState) -> Result<Seqno> {
        match state.last_seqno {
            SEQNO_COMMITTED_MAX.. => Err(Error::unsupported("seqnos are used up")),
            last => Ok(last + 1),
        }
    }

    /// Marks `seqno` as applied. Returns when the commit is visible, or when it is known that it
    /// never will be.
    fn publish(&self, seqno: Seqno) {
        pause_points::at(PausePoint::BeforePublish);
        let mut state = self.state.lock();
        let first = state.last_seqno + 1 - state.queue.len() as u64;
        state.queue[(seqno - first) as usize].applied = true;
        let mut published = Vec::new();
        let mut moved = false;
        while state.queue.front().is_some_and(|head| head.applied) {
            let head = state.queue.pop_front();
            published.extend(head.and_then(|head| head.waiter));
            moved = true;
        }
        if moved {
            let applied = state.last_seqno - state.queue.len() as u64;
            let visible = applied.min(state.lost_from - 1);
            // Hiding commits may have lowered `visible`; this function never does.
            if visible > self.visible.load(Ordering::Acquire) {
                self.visible.store(visible, Ordering::Release);
            }
        }
        let mut sleep = self.wait_in_queue(&mut state, seqno);
        // Wake the others without the mutex: a thread that is woken may take the processor at once,
        // and all further commits would wait for this one. They need no mutex to see that they are
        // published.
        drop(state);
        published.iter().for_each(|waiter| waiter.unpark());
        while let Some(parker) = sleep {
            parker.park(None);
            sleep = match self.visible.load(Ordering::Acquire) < seqno {
                true => self.wait_in_queue(&mut self.state.lock(), seqno),
                false => None,
            };
        }
        pause_points::at(PausePoint::Published);
    }

    /// Prepares the wait of a commit that is not visible, because one ahead of it is not applied
    /// yet. The thread that later publishes this commit takes its element from the queue and wakes
    /// this thread. A failure wakes all. `None` if the commit is visible, or never will be.
    fn wait_in_queue(&self, state: &mut PipelineState, seqno: Seqno) -> Option<Arc<Parker>> {
        if self.visible.load(Ordering::Acquire) >= seqno || seqno >= state.lost_from {
            return None;
        }
        let first = state.last_seqno + 1 - state.queue.len() as u64;
        let waiter = &mut state.queue[(seqno - first) as usize].waiter;
        Some(Arc::clone(waiter.insert(Arc::default())))
    }

    fn note_undurable(&self, state: &mut MutexGuard<'_, PipelineState>, lsn: Lsn, seqno: Seqno) {
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
