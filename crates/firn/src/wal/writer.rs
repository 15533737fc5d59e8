//! The writing end of the log.

mod closed_segments;
mod group_commit;
mod growing_group;
mod large_segment;
mod log_cut;
mod log_writer;
mod log_writer_work;
mod sealed_group;
mod state;

use super::frame::{FIRST_GROUP, GROUP_HEADER};
use super::segment::{self, OldSegment, Segment, Segments};
use super::{LogEnd, Lsn, Record, SegmentId};
use crate::base::epoch::{end_of_names, epoch_of};
use crate::base::event_listener::{Listener, Severity};
use crate::base::health::{FullDisk, Health};
use crate::base::pause_points::{self, PausePoint};
use crate::base::{Error, ErrorKind, Result};
use crate::env::{BLOCK, Env};
use crate::store::DiskReserve;
pub use closed_segments::ClosedSegment;
pub use large_segment::RoomAhead;
pub use log_cut::{SegmentHold, WalCut};
use parking_lot::{Condvar, Mutex};
use state::WalState;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;

/// Options of a log.
#[derive(Clone)]
pub struct WalOptions {
    /// Size of a segment, bytes; a multiple of 4096, three blocks at least.
    pub segment_size: u64,
    /// Number of group writes that may be in flight at once.
    pub syncs_in_flight: usize,
    /// Whether durable writes bypass the page cache, where the file system allows it.
    pub direct_io: bool,
    /// Whether a background thread prepares the next segment ahead. Without the thread, `append`
    /// prepares a segment when it needs one.
    pub background: bool,
    /// Limit of the buffer of records that are not written yet, bytes. An `append` that finds the
    /// buffer this full writes it before it appends.
    pub buffer_max: usize,
    /// Number of released segments that are kept for recycling.
    pub spare_segments_max: usize,
    /// Whether the log expects the first commits to wait for the device, so that new segments are
    /// filled with zeros. Later it expects that the next commit waits for the device if the last
    /// one did.
    pub durable_commits: bool,
    /// The disk reserve, which provides a segment when the disk is full.
    pub kept: Option<Arc<DiskReserve>>,
    /// The segment with which the next replay begins, as far as is known. It must not be removed,
    /// even if it has no group.
    pub replayed_from: SegmentId,
    /// Whether records are only counted: the log has no file, and everything appended to it passes
    /// for durable. For a database that is never recovered.
    pub discards: bool,
}

impl Default for WalOptions {
    fn default() -> Self {
        Self {
            segment_size: 16 << 20,
            syncs_in_flight: 4,
            direct_io: true,
            background: true,
            buffer_max: 8 << 20,
            spare_segments_max: 8,
            durable_commits: true,
            kept: None,
            replayed_from: 0,
            discards: false,
        }
    }
}

/// The effect of an append on the log room that is reserved for outcomes (commit or rollback) of
/// prepared transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeRoom {
    /// The append leaves the reserved room as it is.
    Leave,
    /// The append reserves room for one more outcome, which must fit later even on a full disk.
    Keep,
    /// The append is such an outcome and takes its reserved room.
    Use,
}

/// The share of the log's disk reserve that the records may take when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDiskAccess {
    /// None: the append fails.
    Ordinary,
    /// Three quarters of the reserve. This is for deletions of rows.
    Deletions,
    /// All of the reserve. This is for records that drop tables or end prepared transactions.
    Exits,
}

/// Result of `append`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Log position behind the records, for `sync_to` and `write_to`.
    pub lsn: Lsn,
    /// The records lie in this segment or a later one. The caller must keep this segment from being
    /// released as long as it needs the records.
    pub segment: SegmentId,
}

/// Counters of a [`Wal`] since it was created.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WalStats {
    /// Records appended.
    pub records: u64,
    /// Bytes of records appended.
    pub bytes_appended: u64,
    /// Bytes of groups written, padding included.
    pub bytes_written: u64,
    /// Groups written.
    pub groups: u64,
    /// Number of durable writes and of syncs of segment files.
    pub syncs: u64,
    /// Segments made of new files.
    pub segments_created: u64,
    /// Segments made of recycled files.
    pub segments_recycled: u64,
    /// How often a committer slept until its records were written or durable.
    pub waits: u64,
}

/// The log, open for appending.
///
/// # Invariants
/// - Groups are numbered without gaps. A durably written group owns whole units of the segment; a
///   group that goes through the page cache owns whole blocks, because the cache writes all of a
///   block. No group is written again once a durable write of it, or a sync of its file, has begun.
///   Recovery opens a new segment and never appends to an old one.
/// - A durable commit is acknowledged when its group *and all groups before it* are durable. Each
///   group records the end of this durable prefix in its header (`known_synced`).
/// - A segment is used only when its header, its size and its name are durable. `append` makes sure
///   that there is room, so on a full disk a commit fails before it has a position in the log.
/// - After a failed write or sync nothing is written to the log any more.
/// - The current segment, or else a prepared one, has room for the outcome of each prepared
///   transaction: a commit that is already in the binary log must not fail for lack of space.
///
/// # Steps of a durable commit
/// 1. `append` encodes the records into the open group, under the log's mutex.
/// 2. `sync_to`: if a write slot is free and enough other committers wait, too, the thread *leads*:
///    it takes the open group out and writes it without the mutex. Otherwise it sleeps.
/// 3. The thread that finishes a write advances the durable prefix and wakes the committers that
///    are now durable. For the slot that became free it also wakes one committer of the open group,
///    the next leader. All other committers sleep on.
///
/// # Rejected
/// A dedicated thread that writes the log for committers that sleep costs two more context switches
/// per commit. A timer that
/// delays writes to gather larger groups gains nothing if each client waits for its commit. One
/// write at a time gives a third of the throughput on devices that take several writes at once.
pub struct Wal {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    opts: WalOptions,
    segments: Segments,
    listener: Listener,
    state: Mutex<WalState>,
    /// Held while a group is written to the page cache without a sync. Lock order: before `state`.
    turn: Mutex<()>,
    durable: AtomicU64,
    /// Held while a segment is prepared. Lock order: before `state`.
    preparing: Mutex<()>,
    /// Held from the preparation of the room for a large append up to the append. Lock order:
    /// before the mutexes of the pipeline and of this log.
    large_turn: Mutex<()>,
    work: Condvar,
    /// Number of [`SegmentHold`]s: while it is not 0, no segment is released. It grows only under
    /// the mutex of `state`.
    held: Arc<AtomicUsize>,
}

impl Wal {
    /// Opens a new log, or a new incarnation of a recovered log, in `dir`. `first` is larger than
    /// the id of every segment that was ever used in `dir`; `prev` is the end that replay has
    /// found.
    ///
    /// All segments in `dir` are synced. Groups that replay has read may so far be in the page
    /// cache only, but the header of the new segment will say that the log reaches up to `prev`.
    ///
    /// # Errors
    /// Those of the file system: `Io`, `NoSpace`.
    pub fn create(
        env: Arc<dyn Env>,
        dir: &Path,
        opts: WalOptions,
        health: Arc<Health>,
        listener: Listener,
        first: SegmentId,
        prev: LogEnd,
    ) -> Result<Arc<Self>> {
        if !opts.segment_size.is_multiple_of(BLOCK as u64) || opts.segment_size < 3 * FIRST_GROUP {
            return Err(Error::invalid(
                "the log segment size is no multiple of 4096",
            ));
        }
        health.check()?;
        env.create_dir_all(dir)?;
        let mut old = BTreeMap::new();
        let end = end_of_names(epoch_of(first));
        let ids = segment::list_tidied(env.as_ref(), dir)?;
        for &id in &ids {
            if id >= end {
                // The segment has an id of a later epoch than `first`. The thread that opens the
                // database has checked that the segment is unused, so leave it alone.
                continue;
            }
            if id >= first {
                return Err(Error::new(
                    ErrorKind::AlreadyExists,
                    format!("log segment {id} exists, the log cannot go on with {first}"),
                ));
            }
            let size = env.open(&dir.join(segment::segment_name(id)))?.size()?;
            old.insert(id, OldSegment { size, end: size });
        }
        segment::sync_each(env.as_ref(), dir, &ids)?;
        let segments = Segments {
            env,
            dir: dir.to_owned(),
            health,
            direct: opts.direct_io,
            size: opts.segment_size,
            incarnation: first,
            base: prev,
            spare: Mutex::default(),
            spare_max: opts.spare_segments_max,
            kept: opts.kept.clone(),
            created: AtomicU64::new(0),
            recycled: AtomicU64::new(0),
        };
        let segment = if opts.discards {
            Segment::none(first)
        } else {
            // On a full disk, the first segment takes the disk space of old segments, but only of
            // those with ids above `used_to`. Old segments behind the end of the log (`prev`) hold
            // no group of the log. But the next replay may begin with one of them, so those up to
            // `replayed_from` are kept too: if the last replay found no group, `prev` is the end
            // that an earlier incarnation has found.
            let used_to = prev.segment.max(opts.replayed_from);
            segments.first(first, used_to, opts.durable_commits, &mut old)?
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(WalState::new(segment, prev, old, &opts)),
            turn: Mutex::new(()),
            opts,
            segments,
            listener,
            durable: AtomicU64::new(0),
            preparing: Mutex::new(()),
            large_turn: Mutex::new(()),
            work: Condvar::new(),
            held: Arc::default(),
        });
        let worker = if shared.opts.background && !shared.opts.discards {
            let shared = Arc::clone(&shared);
            let builder = std::thread::Builder::new().name("firn-wal".into());
            let spawned = builder.spawn(move || shared.prepare_ahead());
            Some(spawned.map_err(|e| Error::io(&e, "start the log thread"))?)
        } else {
            None
        };
        Ok(Arc::new(Self {
            shared,
            worker: Mutex::new(worker),
        }))
    }

    /// Appends `records` to one group, so replay returns all or none of them.
    ///
    /// This only copies the records into a buffer. It waits for I/O only if the next segment is
    /// needed and not prepared, or if [`WalOptions::buffer_max`] bytes wait to be written.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for another segment; never with [`OutcomeRoom::Use`].
    /// `Unsupported` for more than 1 GiB of records. `Poisoned` after a failed write or sync;
    /// `ShutDown` after [`Self::close`]. After an error nothing was appended.
    pub fn append(&self, records: &[Record<'_>], room: OutcomeRoom) -> Result<Appended> {
        self.append_to(records, room, FullDiskAccess::Ordinary)
    }

    /// As [`Self::append`]; when the disk is full, `access` says how much of the disk reserve the
    /// records may take.
    ///
    /// # Errors
    /// Those of [`Self::append`].
    pub fn append_to(
        &self,
        records: &[Record<'_>],
        room: OutcomeRoom,
        access: FullDiskAccess,
    ) -> Result<Appended> {
        self.shared.append(records, room, access)
    }

    /// Announces the outcome of a transaction that was prepared in an earlier incarnation. From now
    /// on, appends leave room for this outcome. Unlike after an append with [`OutcomeRoom::Keep`],
    /// the room may not be there yet.
    pub fn expect_outcome(&self) {
        self.shared.state.lock().outcomes += 1;
    }

    /// Number of outcomes for which appends leave room.
    #[cfg(test)]
    pub fn expected_outcomes(&self) -> u64 {
        self.shared.state.lock().outcomes
    }

    /// Whether the log has no current segment. Then nothing can be made durable until there is room
    /// on the disk.
    pub fn has_no_segment(&self) -> bool {
        self.shared.state.lock().segment.is_none()
    }

    /// If the disk had no room for the next log segment, tries again to prepare it. If the log has
    /// no current segment, the prepared one becomes the current segment.
    ///
    /// # Errors
    /// `NoSpace` if the disk still has no room; `Poisoned` after a failed write or sync.
    pub fn retry_next_segment(&self) -> Result<()> {
        self.shared.segments.health.check()?;
        match self.shared.segments.health.is_full(Some(FullDisk::Log)) {
            true => self.shared.find_segment(FullDiskAccess::Ordinary),
            false => Ok(()),
        }
    }

    /// The background thread prepares the next segment in advance. If its last attempt failed, for
    /// example because the process had no free file descriptor, this call lets it try again now.
    /// Otherwise a commit would have to create the segment, and would fail if descriptors are short
    /// again at that moment. Does nothing on a full disk: [`Self::retry_next_segment`] is for that.
    pub fn ask_for_next_segment(&self) {
        let mut state = self.shared.state.lock();
        let missing = state.ready.is_empty() && state.next_wanted > state.segment.id;
        if missing && !self.shared.segments.health.is_full(Some(FullDisk::Log)) {
            state.ask_again = true;
            self.shared.work.notify_one();
        }
    }

    /// Returns when all records up to `lsn` are durable.
    ///
    /// # Errors
    /// `Poisoned` after a failed write or sync: whether the records survive is unknown until the
    /// next start.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        if lsn <= self.durable_lsn() {
            return Ok(());
        }
        self.shared.wait_for(lsn, true)
    }

    /// Returns when all records up to `lsn` were handed to the operating system, so that they
    /// survive a kill of the process.
    ///
    /// # Errors
    /// Those of [`Self::sync_to`].
    pub fn write_to(&self, lsn: Lsn) -> Result<()> {
        if self.shared.opts.discards {
            return Ok(());
        }
        self.shared.wait_for(lsn, false)
    }

    /// The end of the durable prefix: all records up to this position are durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// All records up to this position were handed to the operating system, so they survive a kill
    /// of the process.
    #[cfg(test)]
    pub fn written_lsn(&self) -> Lsn {
        self.shared.state.lock().progress.written().lsn
    }

    /// The log position behind the last appended record.
    pub fn appended_lsn(&self) -> Lsn {
        self.shared.state.lock().appended
    }

    /// The current segment: later appends go to it or to a later segment. While the log has none,
    /// an older one, which exists. So a manifest may name the result as the begin of the log.
    pub fn current_segment(&self) -> SegmentId {
        self.shared.state.lock().begin_of_new()
    }

    /// All segments before this one are closed. It is the current segment, or the first one that
    /// may be it, while the log has none.
    pub fn closed_before(&self) -> SegmentId {
        let state = self.shared.state.lock();
        // The placeholder has the id before that segment.
        state.segment.id + u64::from(state.segment.is_none())
    }

    /// Bytes of the files from segment `first` to the current one. This is the disk space of the
    /// log that a replay from `first` on needs.
    pub fn bytes_from(&self, first: SegmentId) -> u64 {
        self.shared.state.lock().bytes_from(first)
    }

    /// Recycles or removes the log segments below `segment`. Before the call, the caller must
    /// durably record that replay begins at `segment` or later. Some segments are kept, and a later
    /// call releases them: those with groups that are not durable yet; those from the segment given
    /// to [`Self::keep_from`] on; and all while a [`SegmentHold`] exists.
    ///
    /// # Errors
    /// `Io`: those of the file system. The remaining files stay in the directory until after the
    /// next open.
    pub fn release_before(&self, segment: SegmentId) -> Result<()> {
        let released = {
            let mut state = self.shared.state.lock();
            if self.shared.held.load(Ordering::Acquire) > 0 {
                return Ok(());
            }
            let limit = segment.min(state.oldest_needed()).min(state.kept_from);
            let kept = state.old.split_off(&limit);
            std::mem::replace(&mut state.old, kept)
        };
        let released = released.into_iter();
        let sizes = released.map(|(id, old)| (id, old.size));
        self.shared.segments.release(sizes)
    }

    /// Returns the counters of this log.
    pub fn stats(&self) -> WalStats {
        let segments = &self.shared.segments;
        WalStats {
            segments_created: segments.created.load(Ordering::Relaxed),
            segments_recycled: segments.recycled.load(Ordering::Relaxed),
            ..self.shared.state.lock().stats
        }
    }

    /// Makes all records durable and closes the log: later appends fail with `ShutDown`. An empty
    /// group is written last. Its header says that all groups before it are durable, so a later
    /// replay does not take damage to the last records for a torn tail. Further calls do nothing.
    ///
    /// # Errors
    /// Those of [`Self::sync_to`].
    pub fn close(&self) -> Result<()> {
        if std::mem::replace(&mut self.shared.state.lock().closed, true) {
            return Ok(());
        }
        // Wait for a segment that is being prepared. From now on nobody prepares one, because the
        // log is closed: another incarnation may use the same ids.
        drop(self.shared.preparing.lock());
        if self.shared.opts.discards {
            return Ok(());
        }
        let result = self.sync_to(self.appended_lsn());
        let result = result.and_then(|()| self.shared.write_end_mark());
        self.stop_worker();
        result
    }

    fn stop_worker(&self) {
        self.shared.state.lock().stop_worker = true;
        self.shared.work.notify_all();
        let log_writer = {
            let mut state = self.shared.state.lock();
            state.log_writer.work.notify_all();
            state.take_log_writer()
        };
        for thread in self.worker.lock().take().into_iter().chain(log_writer) {
            // The log writer drops the log if an acknowledgement was the last to hold the engine.
            let is_this = thread.thread().id() == std::thread::current().id();
            if !is_this && thread.join().is_err() {
                let message = "a thread of the log panicked";
                self.shared.listener.log(Severity::Error, message);
            }
        }
    }
}

impl Drop for Wal {
    /// If [`Wal::close`] was not called before, records that were not synced may be lost.
    fn drop(&mut self) {
        self.stop_worker();
    }
}

impl Shared {
    fn append(
        &self,
        records: &[Record<'_>],
        room: OutcomeRoom,
        access: FullDiskAccess,
    ) -> Result<Appended> {
        if self.opts.discards {
            return self.discard(records);
        }
        let access = match room {
            OutcomeRoom::Use => FullDiskAccess::Exits,
            _ => access,
        };
        let bytes: usize = records.iter().map(Record::encoded_len).sum();
        debug_assert!(
            room != OutcomeRoom::Use || bytes <= OUTCOME_BYTES_MAX,
            "{bytes} bytes"
        );
        if bytes > MAX_APPEND {
            let message = format!("{bytes} bytes in one log append");
            return Err(Error::unsupported(message));
        }
        // Whether the records may be appended even if they leave no room for the outcomes that are
        // expected later.
        let mut alone = false;
        // Whether the records may stay in the buffer in memory if the log has no segment.
        let mut buffered = false;
        loop {
            let mut state = self.state.lock();
            self.check_open(&state)?;
            if state.open.len() >= self.opts.buffer_max.clamp(GROUP_HEADER + 1, MAX_APPEND) {
                self.flush_open(state)?;
                continue;
            }
            let group_len = state.group_len(bytes);
            let outcomes = state.outcomes_after(room);
            let behind = if alone { 0 } else { outcomes };
            let waits = buffered && state.segment.is_none();
            if !state.make_room(group_len, behind, access) && !waits {
                drop(state);
                let more = group_len as u64 + outcome_room(behind);
                match self.prepare(more, access, !alone) {
                    Ok(_) => continue,
                    // After a restart, more outcomes may be expected than the disk reserve has room
                    // for. Append this outcome if at least itself fits: then one outcome fewer is
                    // expected.
                    Err(full)
                        if room == OutcomeRoom::Use
                            && !alone
                            && *full.kind() == ErrorKind::NoSpace =>
                    {
                        alone = true;
                        continue;
                    }
                    // There is no room for the outcome. If the log has no segment at all, recovery
                    // is deciding about prepared transactions: the record stays in the buffer in
                    // memory until there is a segment. Look at the log again first, because others
                    // have appended to it, or closed it, while its mutex was free.
                    Err(full) if room == OutcomeRoom::Use && *full.kind() == ErrorKind::NoSpace => {
                        pause_points::at(PausePoint::NoRoomForOutcome);
                        if !self.state.lock().segment.is_none() {
                            return Err(full);
                        }
                        buffered = true;
                        continue;
                    }
                    Err(error) => return Err(error),
                }
            }
            state.outcomes = outcomes;
            if bytes > 0 {
                let open = state.open_group(records.len() as u32);
                records.iter().for_each(|r| r.encode(open));
            }
            state.appended += bytes as u64;
            state.stats.records += records.len() as u64;
            state.stats.bytes_appended += bytes as u64;
            if self.opts.background && state.should_prepare() {
                state.next_wanted = state.segment.id + 1;
                self.work.notify_one();
            }
            return Ok(Appended {
                lsn: state.appended,
                segment: state.begin_of_new(),
            });
        }
    }

    /// Fails if the log was closed or has failed.
    fn check_open(&self, state: &WalState) -> Result<()> {
        self.segments.health.check()?;
        if state.failed {
            return Err(self.unknown_outcome());
        }
        match state.closed {
            true => Err(Error::new(ErrorKind::ShutDown, "the log is closed")),
            false => Ok(()),
        }
    }

    /// Counts the records and drops them, in a log that is never replayed. Their position is
    /// durable at once, so that nobody waits for it.
    fn discard(&self, records: &[Record<'_>]) -> Result<Appended> {
        self.segments.health.check()?;
        let mut state = self.state.lock();
        if state.closed {
            return Err(Error::new(ErrorKind::ShutDown, "the log is closed"));
        }
        // In this log an LSN counts appends, not bytes: each append gets an LSN of its own.
        state.appended += 1;
        state.stats.records += records.len() as u64;
        self.durable.store(state.appended, Ordering::Release);
        Ok(Appended {
            lsn: state.appended,
            segment: state.segment.id,
        })
    }

    /// Prepares a segment behind the current one with `room` bytes for a group, unless there is one
    /// already.
    fn prepare_next(&self, room: u64, access: FullDiskAccess) -> Result<Arc<Segment>> {
        self.prepare(room, access, true)
    }

    /// As [`Self::prepare_next`]. If `for_outcomes` is set, the prepared segment also has room for
    /// the outcomes of all prepared transactions; otherwise it may lack this room.
    fn prepare(
        &self,
        room: u64,
        access: FullDiskAccess,
        for_outcomes: bool,
    ) -> Result<Arc<Segment>> {
        let _preparing = self.preparing.lock();
        let (id, durable, room, given) = {
            let mut state = self.state.lock();
            // The close itself needs a segment for outcomes that wait in the buffer, because the
            // log has none yet.
            match state.closed && state.segment.is_none() {
                true => self.segments.health.check()?,
                false => self.check_open(&state)?,
            }
            let room = match for_outcomes {
                true => room.max(outcome_room(state.outcomes)),
                false => room,
            };
            if let Some(prepared) = state.prepared(room, access) {
                return Ok(Arc::clone(prepared));
            }
            // The prepared segments are too small for `room`, so a larger one is prepared behind
            // them: if there is no room or no descriptor for it, smaller groups still have them.
            // But a segment that is made of the disk reserve and has no group yet is given back,
            // and another one is prepared in its place, with the same id. There is one exception:
            // the room that the log keeps for the outcomes of prepared transactions may lie in that
            // segment, because the current one has none left. Then that segment becomes the current
            // one now, and the other one is prepared to follow it.
            if state.ready.iter().all(|next| next.reserve) {
                state.use_kept_room();
            }
            let given = state.take_reserve();
            (state.id_behind(), state.wants_durable, room, given)
        };
        let is_usual = FIRST_GROUP + room <= self.opts.segment_size;
        if let Some(given) = given {
            self.segments.give_back(given.id, given.size)?;
        }
        let in_reserve = || {
            // Ask for a third more than `room`: deletions may not use the last quarter of the
            // segment, which is for records that drop tables or end prepared transactions.
            let with_margin = match access {
                FullDiskAccess::Deletions => (FIRST_GROUP + room) / 3 + room + 1,
                _ => room,
            };
            self.segments.prepare_in_reserve(id, with_margin)
        };
        let exits = access != FullDiskAccess::Ordinary;
        // If the disk was full before, records that may use the disk reserve take it without trying
        // the disk again. [`Wal::retry_next_segment`] finds out whether the disk is still full.
        let kept = match exits && self.segments.health.is_full(Some(FullDisk::Log)) {
            true => in_reserve()?,
            false => None,
        };
        let next = match kept {
            Some(kept) => kept,
            None => {
                let prepared = self.segments.prepare(id, room, durable);
                // A disk without room for a larger segment may have room for one of the usual size.
                if is_usual || prepared.is_ok() {
                    self.segments.health.note(FullDisk::Log, &prepared);
                }
                match prepared {
                    Err(full) if exits && *full.kind() == ErrorKind::NoSpace => {
                        in_reserve()?.ok_or(full)?
                    }
                    prepared => prepared?,
                }
            }
        };
        self.state.lock().place(&next);
        Ok(next)
    }

    /// The loop of the background thread: tries once to prepare each segment that an append has
    /// asked for.
    fn prepare_ahead(&self) {
        let mut tried = 0;
        let mut state = self.state.lock();
        while !state.stop_worker {
            if state.next_wanted <= tried && !state.ask_again {
                self.work.wait(&mut state);
                continue;
            }
            tried = state.next_wanted;
            state.ask_again = false;
            drop(state);
            if let Err(error) = self.prepare_next(0, FullDiskAccess::Ordinary)
                && !matches!(error.kind(), ErrorKind::ShutDown | ErrorKind::Poisoned)
            {
                // Only report the error: the append that needs the segment will try again and
                // return the error to its caller.
                let message = format!("the next log segment is not ready: {error}");
                self.listener.log(Severity::Warning, &message);
            }
            state = self.state.lock();
        }
    }
}

/// Upper limit for the records of one outcome, bytes. They include the time, and a file name and a
/// position of the binary log.
const OUTCOME_BYTES_MAX: usize = BLOCK / 2;

/// Bytes that `outcomes` outcomes need: one block for the group of each, and one block more because
/// the first of them begins at the next block.
fn outcome_room(outcomes: u64) -> u64 {
    match outcomes {
        0 => 0,
        _ => (outcomes + 1) * BLOCK as u64,
    }
}

/// Bytes at the end of a segment that records of this access may not take. In a segment that is
/// made of the disk reserve, deletions of rows leave a quarter to the records that drop tables or
/// end prepared transactions.
fn margin(segment: &Segment, access: FullDiskAccess) -> u64 {
    match segment.reserve && access == FullDiskAccess::Deletions {
        true => segment.size / 4,
        false => 0,
    }
}

/// Whether records appended with this kind of access may go into the segment at all: a segment that
/// is made of the disk reserve takes no ordinary records.
fn takes(segment: &Segment, access: FullDiskAccess) -> bool {
    !segment.reserve || access != FullDiskAccess::Ordinary
}

/// Whether a segment that has no groups yet has room for groups of `room` bytes.
fn has_room(segment: &Segment, room: u64, access: FullDiskAccess) -> bool {
    takes(segment, access) && segment.size >= FIRST_GROUP + room + margin(segment, access)
}

/// Maximum bytes of the records of one `append`. Together with the buffered records, the length of
/// a group then fits into its 32-bit field.
const MAX_APPEND: usize = 1 << 30;
