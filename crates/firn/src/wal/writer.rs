//! The writing end of the log.

mod closed_segments;
mod group_commit;
mod growing_group;
mod log_cut;
mod sealed_group;
mod state;

use super::frame::{FIRST_GROUP, GROUP_HEADER};
use super::segment::{self, OldSegment, Segment, Segments};
use super::{LogEnd, Lsn, Record, SegmentId};
use crate::base::epoch::{end_of_names, epoch_of};
use crate::base::event_listener::{Listener, Severity};
use crate::base::health::{FullDisk, Health};
use crate::base::{Error, ErrorKind, Result};
use crate::env::{BLOCK, Env};
use crate::store::DiskReserve;
pub use closed_segments::ClosedSegment;
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
    /// Writes that may be in flight at once.
    pub syncs_in_flight: usize,
    /// Bypass the page cache where the file system allows it.
    pub direct_io: bool,
    /// Prepare segments ahead in a background thread. Without it, `append` prepares one when it
    /// needs one.
    pub background: bool,
    /// An `append` that finds this many bytes unwritten writes them first.
    pub buffer_max: usize,
    /// Released segments to keep for recycling.
    pub spare_segments_max: usize,
    /// Whether the first commits wait for the device; later the log follows what commits ask for.
    pub durable_commits: bool,
    /// Room that is kept for a full disk.
    pub kept: Option<Arc<DiskReserve>>,
    /// The segment with which the next replay begins, as far as is known: it must stay even if it
    /// has no group.
    pub replayed_from: SegmentId,
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
        }
    }
}

/// Use of the room that is kept for outcomes of prepared transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutcomeRoom {
    /// Leaves it.
    Leave,
    /// Adds to it: one more outcome will be appended, and must fit even on a full disk.
    Keep,
    /// This is such an outcome.
    Use,
}

/// The room that records may take when the disk is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FullDiskAccess {
    /// None: the append fails.
    Ordinary,
    /// Three quarters of the reserve: for deletions of rows.
    Deletions,
    /// All of the reserve: for records that drop tables or end prepared transactions.
    Exits,
}

/// Result of `append`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Position after the records, for `sync_to` and `write_to`.
    pub lsn: Lsn,
    /// The segment to pin: the records lie in it or a later one.
    pub segment: SegmentId,
}

/// Counters since the log was created.
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
    /// Durable writes and syncs of files.
    pub syncs: u64,
    /// Segments created.
    pub segments_created: u64,
    /// Segments recycled.
    pub segments_recycled: u64,
    /// Times a committer slept.
    pub waits: u64,
}

/// The log, open for appending.
///
/// # Invariants
/// - Groups are numbered without gaps. A durably written group owns whole units of the segment; a
///   group that goes through the page cache owns whole blocks, because the cache writes all of a
///   block. Neither is written again once a sync or a durable write of it has begun. Recovery opens
///   a new segment and never appends to an old one.
/// - A commit is acknowledged when its group *and all before it* are durable; that same prefix is
///   what later groups record as known to be synced.
/// - A segment is used only when its header, its size and its name are durable. `append` ensures
///   the room, so a full disk fails the commit before it has a position in the log.
/// - After a failed write or sync nothing is written any more.
/// - The segment, or else the next one, which is ready, has room for the outcome of each prepared
///   transaction: a commit that is already in the binary log must not fail for lack of space.
///
/// # Steps of a durable commit
/// 1. `append`: under the mutex, encode into the open group.
/// 2. `sync_to`: if a write slot is free and enough others wait, too, *lead*: take the open group
///    out, write it without the mutex. Otherwise sleep.
/// 3. The thread that finishes a write advances the durable prefix, wakes the waiters that it
///    satisfies and, for the slot that became free, one waiter of the open group: the next leader.
///    The others sleep on.
///
/// # Rejected
/// A log thread (two more switches per commit), a timer that gathers groups (no gain in a closed
/// loop), one write at a time (a third of the throughput on devices that take several).
pub struct Wal {
    shared: Arc<Shared>,
    worker: Mutex<Option<JoinHandle<()>>>,
}

struct Shared {
    opts: WalOptions,
    segments: Segments,
    listener: Listener,
    state: Mutex<WalState>,
    /// Held while a group is written without a sync. Lock order: before `state`.
    turn: Mutex<()>,
    durable: AtomicU64,
    /// Held while a segment is prepared. Lock order: before `state`.
    preparing: Mutex<()>,
    work: Condvar,
    /// Number of readers of segments that may have been released. Changes under `state`.
    held: Arc<AtomicUsize>,
}

impl Wal {
    /// Opens a new log, or the continuation of a recovered one, in `dir`. `first` is an id larger
    /// than that of every segment ever used there; `prev` is where replay ended.
    ///
    /// The segments found are synced: what replay read may so far be in the page cache only, while
    /// the new segment's header says that the log reaches so far.
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
        for id in segment::list(env.as_ref(), dir)? {
            if id >= end {
                // Of no epoch yet. The opening thread has seen that the segment is unused.
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
        segment::sync_all(env.as_ref(), dir)?;
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
        let segment = {
            // Segments after the end hold no group of the log. But the next replay may begin in
            // one: after a replay that found no group, the recorded end is that of an earlier run.
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
            work: Condvar::new(),
            held: Arc::default(),
        });
        let worker = if shared.opts.background {
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

    /// Appends records, all of them to the same group: replay yields all or none.
    ///
    /// Cheap: copies into a buffer. It waits only if the next segment is not ready, or if
    /// [`WalOptions::buffer_max`] bytes wait to be written.
    ///
    /// # Errors
    /// `NoSpace` if there is no room for another segment, `Unsupported` over 1 GiB: nothing was
    /// appended. `Poisoned`, `ShutDown`. With [`OutcomeRoom::Use`] there is always room.
    pub fn append(&self, records: &[Record<'_>], room: OutcomeRoom) -> Result<Appended> {
        self.append_to(records, room, FullDiskAccess::Ordinary)
    }

    /// As [`Self::append`], also in room that is kept for a full disk.
    ///
    /// # Errors
    /// As of [`Self::append`].
    pub fn append_to(
        &self,
        records: &[Record<'_>],
        room: OutcomeRoom,
        access: FullDiskAccess,
    ) -> Result<Appended> {
        self.shared.append(records, room, access)
    }

    /// Announces one more outcome, of a transaction that an earlier run of the log has prepared.
    /// Unlike with [`OutcomeRoom::Keep`] there may be no room for it yet.
    pub fn expect_outcome(&self) {
        self.shared.state.lock().outcomes += 1;
    }

    /// Whether there is no segment: nothing can be made durable until there is room on the disk.
    pub fn has_no_segment(&self) -> bool {
        self.shared.state.lock().segment.is_none()
    }

    /// Prepares the next segment if the disk had no room for it before, and begins it if there is
    /// none.
    ///
    /// # Errors
    /// `NoSpace` if it has none now; `Poisoned`.
    pub fn retry_next_segment(&self) -> Result<()> {
        self.shared.segments.health.check()?;
        match self.shared.segments.health.is_full(Some(FullDisk::Log)) {
            true => self.shared.find_segment(FullDiskAccess::Ordinary),
            false => Ok(()),
        }
    }

    /// Returns when everything up to `lsn` is durable.
    ///
    /// # Errors
    /// `Poisoned`: whether the records survive is unknown until restart.
    pub fn sync_to(&self, lsn: Lsn) -> Result<()> {
        if lsn <= self.durable_lsn() {
            return Ok(());
        }
        self.shared.wait_for(lsn, true)
    }

    /// Returns when everything up to `lsn` is with the operating system.
    ///
    /// # Errors
    /// As for [`Self::sync_to`].
    pub fn write_to(&self, lsn: Lsn) -> Result<()> {
        self.shared.wait_for(lsn, false)
    }

    /// Everything up to here is durable.
    pub fn durable_lsn(&self) -> Lsn {
        self.shared.durable.load(Ordering::Acquire)
    }

    /// Everything up to here is with the operating system: a kill of the process leaves it.
    #[cfg(test)]
    pub fn written_lsn(&self) -> Lsn {
        self.shared.state.lock().progress.written().lsn
    }

    /// The position after the last record.
    pub fn appended_lsn(&self) -> Lsn {
        self.shared.state.lock().appended
    }

    /// Future appends go to this segment or a later one.
    pub fn current_segment(&self) -> SegmentId {
        self.shared.state.lock().segment.id
    }

    /// Recycles or removes segments below `segment`. The caller has made durable that replay begins
    /// at `segment` or later. Segments with groups that are not durable stay for a later call; so
    /// do all while [`Self::hold_segments`] is in force, and those from [`Self::keep_from`] on.
    ///
    /// # Errors
    /// Those of the file system: `Io`. The segments stay for a later call.
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

    /// Counters.
    pub fn stats(&self) -> WalStats {
        let segments = &self.shared.segments;
        WalStats {
            segments_created: segments.created.load(Ordering::Relaxed),
            segments_recycled: segments.recycled.load(Ordering::Relaxed),
            ..self.shared.state.lock().stats
        }
    }

    /// Makes everything durable and ends the log: later appends fail with `ShutDown`. An empty last
    /// group vouches for all before it, so that damage to the last records is not taken for a torn
    /// tail. Further calls do nothing.
    ///
    /// # Errors
    /// Those of [`Self::sync_to`].
    pub fn close(&self) -> Result<()> {
        if std::mem::replace(&mut self.shared.state.lock().closed, true) {
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
        if let Some(worker) = self.worker.lock().take()
            && worker.join().is_err()
        {
            let message = "the log thread panicked";
            self.shared.listener.log(Severity::Error, message);
        }
    }
}

impl Drop for Wal {
    /// Without `close`, what was not synced may be lost.
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
        // Whether to ask for room without the outcomes that are expected later.
        let mut alone = false;
        loop {
            self.segments.health.check()?;
            let mut state = self.state.lock();
            if state.failed {
                return Err(self.unknown_outcome());
            }
            if state.closed {
                return Err(Error::new(ErrorKind::ShutDown, "the log is closed"));
            }
            if state.open.len() >= self.opts.buffer_max.clamp(GROUP_HEADER + 1, MAX_APPEND) {
                self.flush_open(state)?;
                continue;
            }
            let group_len = state.group_len(bytes);
            let outcomes = match room {
                OutcomeRoom::Leave => state.outcomes,
                OutcomeRoom::Keep => state.outcomes + 1,
                OutcomeRoom::Use => state.outcomes.saturating_sub(1),
            };
            let behind = if alone { 0 } else { outcomes };
            if !state.make_room(group_len, behind, access) {
                drop(state);
                let more = group_len as u64 + outcome_room(behind);
                match self.prepare(more, access, !alone) {
                    Ok(_) => continue,
                    // After a restart more outcomes may be expected than the reserve has room for.
                    // An outcome that finds room does not harm the others.
                    Err(full)
                        if room == OutcomeRoom::Use
                            && !alone
                            && *full.kind() == ErrorKind::NoSpace =>
                    {
                        alone = true;
                        continue;
                    }
                    // Decisions of recovery stay in memory until there is a segment.
                    Err(full) if room == OutcomeRoom::Use && *full.kind() == ErrorKind::NoSpace => {
                        state = self.state.lock();
                        if !state.segment.is_none() {
                            return Err(full);
                        }
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
                segment: state.segment.id,
            });
        }
    }

    /// Prepares the segment after the current one, for a group of `room` bytes, unless it is there.
    fn prepare_next(&self, room: u64, access: FullDiskAccess) -> Result<Arc<Segment>> {
        self.prepare(room, access, true)
    }

    /// As [`Self::prepare_next`]. Room for all expected outcomes is added only if `for_outcomes`.
    fn prepare(
        &self,
        room: u64,
        access: FullDiskAccess,
        for_outcomes: bool,
    ) -> Result<Arc<Segment>> {
        let _preparing = self.preparing.lock();
        let (id, durable, room, given) = {
            let mut state = self.state.lock();
            let room = match for_outcomes {
                true => room.max(outcome_room(state.outcomes)),
                false => room,
            };
            if let Some(next) = &state.next
                && has_room(next, room, access)
            {
                return Ok(Arc::clone(next));
            }
            // A prepared segment that is too small is written anew, larger: it has no group yet.
            // But if it has the room that is kept for outcomes, it is used as it is, and the larger
            // one follows it.
            state.use_kept_room();
            let given = state.next.take().filter(|next| next.reserve);
            (state.segment.id + 1, state.wants_durable, room, given)
        };
        if let Some(given) = given {
            self.segments.give_back(given.id, given.size)?;
        }
        let in_reserve = || {
            // A third more than requested: a quarter of the whole then remains.
            let with_margin = match access {
                FullDiskAccess::Deletions => (FIRST_GROUP + room) / 3 + room + 1,
                _ => room,
            };
            self.segments.prepare_in_reserve(id, with_margin)
        };
        let exits = access != FullDiskAccess::Ordinary;
        // `retry_next_segment` checks whether the disk is still full.
        let kept = match exits && self.segments.health.is_full(Some(FullDisk::Log)) {
            true => in_reserve()?,
            false => None,
        };
        let next = match kept {
            Some(kept) => kept,
            None => {
                let prepared = self.segments.prepare(id, room, durable);
                self.segments.health.note(FullDisk::Log, &prepared);
                match prepared {
                    Err(full) if exits && *full.kind() == ErrorKind::NoSpace => {
                        in_reserve()?.ok_or(full)?
                    }
                    prepared => prepared?,
                }
            }
        };
        self.state.lock().next = Some(Arc::clone(&next));
        Ok(next)
    }

    /// The background thread: prepares each segment it is asked for, once.
    fn prepare_ahead(&self) {
        let mut tried = 0;
        let mut state = self.state.lock();
        while !state.stop_worker {
            if state.next_wanted <= tried {
                self.work.wait(&mut state);
                continue;
            }
            tried = state.next_wanted;
            drop(state);
            if let Err(error) = self.prepare_next(0, FullDiskAccess::Ordinary) {
                // The append that needs the segment tries again and reports to its caller.
                let message = format!("the next log segment is not ready: {error}");
                self.listener.log(Severity::Warning, &message);
            }
            state = self.state.lock();
        }
    }
}

/// Most bytes of the records of an outcome: with the time, a name and a position in the binary
/// log.
const OUTCOME_BYTES_MAX: usize = BLOCK / 2;

/// Bytes for so many outcomes, each in a group of its own, and for the rest of the block in which
/// the group before them ends.
fn outcome_room(outcomes: u64) -> u64 {
    match outcomes {
        0 => 0,
        _ => (outcomes + 1) * BLOCK as u64,
    }
}

/// Bytes at the end of a segment that records of this kind may not take: deletions of rows leave a
/// quarter of a reserve segment to the records that drop tables or end prepared transactions.
fn margin(segment: &Segment, access: FullDiskAccess) -> u64 {
    match segment.reserve && access == FullDiskAccess::Deletions {
        true => segment.size / 4,
        false => 0,
    }
}

/// Whether records of this kind may go into a segment at all.
fn takes(segment: &Segment, access: FullDiskAccess) -> bool {
    !segment.reserve || access != FullDiskAccess::Ordinary
}

/// Whether a segment without groups has room for groups of `room` bytes.
fn has_room(segment: &Segment, room: u64, access: FullDiskAccess) -> bool {
    takes(segment, access) && segment.size >= FIRST_GROUP + room + margin(segment, access)
}

/// Bytes one `append` may take; with the buffered ones a group's length fits its 32-bit field.
const MAX_APPEND: usize = 1 << 30;
