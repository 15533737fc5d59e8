//! Flushes and compactions of a database, and their reports; `threads` runs them.
//!
//! - *Installs are ordered.* Every edit that adds or replaces SSTs holds `install` around the
//!   manifest edit and the switch of the super versions, so that they follow the manifest in order.
//!   A checkpoint holds it to keep the tree still.
//! - *A flush follows the log.* A memtable is flushed only after its last writer has left and the
//!   log is durable up to its last commit: files never hold a commit that the log may lose.
//! - *Flushes run one at a time*, oldest first, under `flushing`: run numbers are installed in
//!   ascending order. Compactions run in parallel; `running` keeps their inputs and key ranges
//!   apart.
//!
//! Lock order: `flushing` or `running` (never both), then `install`, then the mutex of the commit
//! pipeline, then `telling`, then `signals`.

mod allocator_watch;
pub(super) mod blob_gc;
mod bulk_load_install;
mod coldest_files;
mod damage;
mod file_splitters;
mod full_disk;
mod job_history;
mod job_prefix_extractors;
mod memory_limit;
mod optimize;

mod stall_input;
mod threads;
mod tier_mover;
mod write_set_memory;

pub use blob_gc::BlobReport;
pub(super) use bulk_load_install::{BulkLoadHost, install_found};
pub use job_history::JobReport;
pub(super) use memory_limit::MemoryArbiter;
pub use memory_limit::MemoryReport;
pub(super) use threads::BackgroundThreads;

use super::activities::Activities;
use crate::backup::Archiver;
use crate::base::event_listener::Severity;
use crate::base::health::{FullDisk, Health};
use crate::base::key_range::KeyRange;
use crate::base::options::Options;
use crate::base::pause_points::{self, PausePoint};
use crate::base::prefix_extractor::PrefixExtractors;
use crate::base::{Error, ErrorKind, IndexId, Result, Seqno};
use crate::blob::BlobStore;
use crate::cache::RowCache;
use crate::catalog::{Catalog, Counters};
use crate::compaction::{
    self, Backlog, CacheHandover, HandoverPace, Job, JobContext, JobReason, JobStats, LevelTargets,
    PickerContext, RateLimiter, RestGoal, RetiredIndexes, RunningJobs, Snapshots, SpaceTracker,
};
use crate::env::{Env, ReadClass};
use crate::ingest::RunFactory;
use crate::iter::TombstoneReports;
use crate::memtable::Memtable;
use crate::read::{SuperVersion, SuperVersions};
use crate::store::ReservePart;
use crate::txn::{SnapshotList, TransactionList};
use crate::version::{Edit, FileHandle, FileMeta, Flushable, IngestedRun, Version, VersionSet};
use crate::wal::{SegmentId, Wal};
use crate::write::{Pipeline, Pressure, RunCharge, StallGate};
use blob_gc::BlobGc;
use damage::Recheck;
use job_history::JobHistory;
use job_prefix_extractors::LatePrefixExtractors;
use parking_lot::{Condvar, Mutex};

use stall_input::{is_cut_short, stall_input};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use tier_mover::TierMover;

/// A job, the version that it was picked from, and its number among the running jobs.
type PickedJob = (Arc<Version>, Job, u64);

/// Counters of flushes and compactions since the database was opened; sizes in bytes.
#[derive(Debug, Default)]
pub(super) struct BackgroundStats {
    pub flushes: AtomicU64,
    pub flushed_bytes: AtomicU64,
    pub compactions: AtomicU64,
    pub compacted_bytes_read: AtomicU64,
    pub compacted_bytes_written: AtomicU64,
    pub reused_bytes: AtomicU64,
    pub recipes_tried: AtomicU64,
    pub recipes_inherited: AtomicU64,
}

/// How a step of compaction has ended.
enum CompactionStep {
    /// A job has run.
    Compacted,
    /// No job was due.
    NothingDue,
    /// A job has failed because of a damaged file, which has been put into quarantine and reported.
    MetDamage(Error),
    /// A job has failed so often that it is given up for a time, which has been reported.
    GaveUp(Error),
}

#[derive(Default)]
struct WorkSignals {
    flush: bool,
    compact: bool,
}

/// Flushes and compactions of a database; see the module for its locks.
pub(super) struct BackgroundWork {
    pub env: Arc<dyn Env>,
    pub options: Options,
    pub health: Arc<Health>,
    pub wal: Arc<Wal>,
    pub versions: Arc<VersionSet>,
    pub super_versions: Arc<SuperVersions>,
    pub pipeline: Arc<Pipeline>,
    pub stall: Arc<StallGate>,
    pub counters: BackgroundStats,
    pub(in crate::db) history: JobHistory,
    /// The rate limit on background I/O. Flushes are charged to it and never wait; compactions,
    /// loads and blob collection wait.
    pub limiter: Arc<RateLimiter>,
    /// Key ranges in which scans skipped too many tombstones.
    pub tombstone_reports: Arc<TombstoneReports>,
    pub memory: MemoryArbiter,
    pub blobs: Arc<BlobStore>,
    pub blob_gc: BlobGc,
    /// Present if the log is archived.
    pub archiver: Option<Archiver>,
    snapshots: Arc<SnapshotList>,
    pub(super) transactions: Arc<TransactionList>,
    /// Identifies the snapshot of the last warning, so that it is not reported again: the time at
    /// which it was taken, microseconds since 1970.
    pub(super) warned_snapshot_us: AtomicU64,
    catalog_counters: Arc<Counters>,
    catalog: Arc<OnceLock<Arc<Catalog>>>,
    prefix_extractors: Arc<dyn PrefixExtractors>,
    install: Mutex<()>,
    flushing: Mutex<()>,
    running: Mutex<RunningJobs>,
    /// The error of a job that is given up, see [`RunningJobs::given_up_error`]. It has a mutex of
    /// its own, a leaf, because a freeze tells it the gate and must not wait for the picker.
    given_up: Mutex<Option<Error>>,
    recheck: Mutex<Recheck>,
    space_tracker: SpaceTracker,
    tier_mover: Mutex<TierMover>,
    signals: Mutex<WorkSignals>,
    signal: Condvar,
    pub(super) stopping: AtomicBool,
    last_write: Mutex<(Seqno, u64)>,
    telling: Mutex<()>,
    pub(super) activities: Arc<Activities>,
}

impl BackgroundWork {
    #[allow(clippy::too_many_arguments)] // The composition root passes each part once.
    pub(super) fn new(
        env: Arc<dyn Env>,
        options: Options,
        health: Arc<Health>,
        wal: Arc<Wal>,
        versions: Arc<VersionSet>,
        super_versions: Arc<SuperVersions>,
        pipeline: Arc<Pipeline>,
        snapshots: Arc<SnapshotList>,
        transactions: Arc<TransactionList>,
        catalog_counters: Arc<Counters>,
        stall: Arc<StallGate>,
        memory: MemoryArbiter,
        blobs: Arc<BlobStore>,
        archiver: Option<Archiver>,
        limiter: Option<Arc<RateLimiter>>,
        activities: Arc<Activities>,
    ) -> Self {
        let catalog = Arc::default();
        Self {
            limiter: limiter.unwrap_or_else(|| {
                let mutable = Arc::clone(&options.mutable);
                Arc::new(RateLimiter::new(Arc::clone(&env), mutable))
            }),
            env,
            options,
            health,
            wal,
            versions,
            super_versions,
            pipeline,
            stall,
            counters: BackgroundStats::default(),
            history: JobHistory::default(),
            tombstone_reports: Arc::default(),
            memory,
            blobs,
            archiver,
            blob_gc: BlobGc::default(),
            snapshots,
            transactions,
            warned_snapshot_us: AtomicU64::new(0),
            catalog_counters,
            prefix_extractors: Arc::new(LatePrefixExtractors(Arc::clone(&catalog))),
            catalog,
            install: Mutex::new(()),
            flushing: Mutex::new(()),
            running: Mutex::default(),
            given_up: Mutex::default(),
            recheck: Mutex::default(),
            space_tracker: SpaceTracker::default(),
            tier_mover: Mutex::default(),
            signals: Mutex::default(),
            signal: Condvar::new(),
            stopping: AtomicBool::new(false),
            last_write: Mutex::new((0, 0)),
            telling: Mutex::new(()),
            activities,
        }
    }

    pub(super) fn set_catalog(&self, catalog: Arc<Catalog>) {
        let _ = self.catalog.set(catalog);
    }

    /// Wakes the flush, because the pipeline has frozen a memtable. The caller holds the pipeline's
    /// mutex.
    pub(super) fn memtable_frozen(&self) {
        // The memory limit leaves less to the caches now, but do not shrink them here: evicting
        // takes too long while the caller holds the pipeline's mutex. The flush thread does it
        // before it flushes.
        self.tell_gate();
        self.signals.lock().flush = true;
        self.signal.notify_all();
    }

    /// Brings the oldest flushable into the tree: flushes a memtable or installs an ingested run.
    /// Returns whether there was one.
    pub(super) fn flush_oldest(&self) -> Result<bool> {
        let _in_order = self.flushing.lock();
        let super_version = self.super_versions.pin();
        let Some(oldest) = super_version.frozen.last() else {
            return Ok(false);
        };
        self.health.check()?;
        self.memory.balance(&super_version);
        let _doing = self.activities.begin(match oldest {
            Flushable::Memtable(memtable) => format!("a flush of {} bytes", memtable.size_bytes()),
            Flushable::Run(_) => "an install of the files of a large transaction".to_owned(),
        });
        match oldest {
            Flushable::Memtable(memtable) => {
                memtable.wait_quiescent();
                self.begin_install(oldest, memtable.last_lsn())?;
                let flushed = self.flush_memtable(&super_version, memtable, false);
                let flushed = match flushed {
                    Err(full) if *full.kind() == ErrorKind::NoSpace => self
                        .flush_in_reserve(&super_version, memtable)
                        .unwrap_or(Err(full)),
                    flushed => flushed,
                };
                self.flushed(flushed)?;
            }
            Flushable::Run(run) => {
                self.begin_install(oldest, run.last_lsn())?;
                let installed = self.install_run(&super_version, run);
                self.flushed(installed)?;
            }
        }
        if let Err(error) = self.wal.release_before(self.versions.log_number()) {
            // The flush is done, so the writers that wait for it must not fail.
            let message = format!("a log segment cannot be released: {error}");
            self.options.listener.log(Severity::Warning, &message);
        }
        self.signals.lock().compact = true;
        self.signal.notify_all();
        Ok(true)
    }

    /// Records the outcome of a flush. After `NoSpace`, the writers that wait for the flush fail
    /// with that error.
    fn flushed(&self, flushed: Result<()>) -> Result<()> {
        self.health.note(FullDisk::Flush, &flushed);
        if let Err(full) = &flushed
            && *full.kind() == ErrorKind::NoSpace
        {
            self.stall.set_failure(Some(full.clone()));
        }
        flushed
    }

    /// Prepares to install the oldest flushable, which gets no further entries. Makes the log
    /// durable up to `last_lsn`, because the manifest must not name commits that the log may still
    /// lose.
    fn begin_install(&self, oldest: &Flushable, last_lsn: u64) -> Result<()> {
        self.super_versions.drained(oldest);
        self.wal
            .sync_to(last_lsn)
            .inspect_err(|_| self.pipeline.contain_failure())
    }

    /// An edit for the install of the flushable with id `oldest`: the new start of the log, the
    /// last seqno and the counters. The caller adds the files.
    fn edit_of(&self, oldest: u64, newest: Option<Seqno>) -> Edit {
        let floor = self.pipeline.log_floor(|| {
            let mut left = self.super_versions.pin().frozen.clone();
            left.retain(|other| other.id() != oldest);
            left
        });
        let time = newest.map(|newest| (newest, self.env.wall_micros()));
        Edit {
            log_number: Some(floor),
            last_seqno: newest,
            counters: self
                .versions
                .changed_counters(|| self.catalog_counters.take_changed()),
            time_pairs: time.into_iter().collect(),
            ..Edit::default()
        }
    }

    /// Call this after a recovery to a point, when the tree has all commits up to the point.
    /// Releases all segments before `first`, the first segment of the new log, so that the commits
    /// behind the point are never replayed.
    ///
    /// # Errors
    /// `NoSpace` if prepared transactions still need the old segments, because the disk had no room
    /// to log them again.
    pub(super) fn forget_log(&self, first: SegmentId) -> Result<()> {
        let edit = self.edit_of(0, None);
        if edit.log_number.is_none_or(|floor| floor < first) {
            let message = "the log before the point cannot be given up: the disk has no room for its contents";
            return Err(Error::new(ErrorKind::NoSpace, message));
        }
        self.install(edit, &[], &[])?;
        self.wal.release_before(self.versions.log_number())
    }

    /// Installs the files of an ingested run into L0, as one run above all earlier ones. The files
    /// are not rewritten: their entries carry no seqno, and the manifest keeps the commit's seqno
    /// for each file.
    fn install_run(&self, super_version: &SuperVersion, queued: &IngestedRun) -> Result<()> {
        let run = self.versions.new_run_number();
        let files = &queued.run().files;
        let added = files
            .iter()
            .map(|file| (0, run, FileMeta::clone(file.meta())));
        let edit = Edit {
            added: added.collect(),
            ..self.edit_of(queued.id(), Some(queued.seqno()))
        };
        retire_rows(&super_version.rows, queued);
        self.install(edit, &[queued.id()], &files.span().to_vec())?;
        let charge = RunCharge::of(files.iter().map(|file| &**file.meta()));
        self.stall
            .installed(self.pipeline.commit_totals(), charge.stored_bytes);
        Ok(())
    }

    /// Flushes a memtable into the space that the disk reserve keeps for one SST. Returns `None` if
    /// there is no such space or it is in use already. A memtable larger than the space may fit,
    /// too: if one row was changed a thousand times, the SST has only its last version. If the SST
    /// does not fit, its space goes back to the reserve.
    fn flush_in_reserve(
        &self,
        super_version: &SuperVersion,
        memtable: &Arc<Memtable>,
    ) -> Option<Result<()>> {
        let reserve = self.versions.source().store().reserve()?;
        if !reserve.has(ReservePart::Table) {
            return None;
        }
        // Make sure first that the manifest has room for the edit: otherwise the SST would have to
        // be removed, and another program could take the space.
        let edit = self.edit_of(memtable.id(), Some(memtable.last_commit()));
        Some(
            self.versions
                .find_room_for_file(&edit)
                .and_then(|()| self.flush_memtable(super_version, memtable, true)),
        )
    }

    fn flush_memtable(
        &self,
        super_version: &SuperVersion,
        memtable: &Arc<Memtable>,
        in_reserve: bool,
    ) -> Result<()> {
        let handover = CacheHandover::default();
        let context = JobContext {
            in_reserve,
            ..self.job_context(&handover)
        };
        let (started, begun_us) = (self.env.monotonic_micros(), self.env.wall_micros());
        let mut source = memtable.iter();
        let snapshots = self.live_snapshots();
        let (files, stats) = compaction::flush(
            context,
            &mut source,
            &snapshots,
            &self.retired(),
            &self.stopping,
        )?;
        let run = self.versions.new_run_number();
        let flushed = memtable.id();
        let newest = Some(memtable.last_commit()).filter(|&newest| newest > 0);
        let edit = Edit {
            added: files.into_iter().map(|meta| (0, run, meta)).collect(),
            ..self.edit_of(flushed, newest)
        };
        super_version.rows.retire(flushed, &mut memtable.iter())?;
        self.install(edit, &[flushed], &[])?;
        let took_us = self.env.monotonic_micros().saturating_sub(started);
        let frozen = &super_version.frozen;
        let (committed, stored) = (self.pipeline.commit_totals(), stats.written_bytes);
        match is_cut_short(frozen, frozen.len() - 1, &self.options) {
            true => self.stall.installed(committed, stored),
            false => self.stall.flushed(committed, stored, took_us),
        }
        self.history.add_flush(&stats, begun_us, took_us);
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters
            .flushed_bytes
            .fetch_add(stats.written_bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Flushes the memtables that recovery filled, as long as the disk has room. If it has none,
    /// deletes all obsolete files and tries once more. The log keeps the changes of the memtables
    /// that are not flushed.
    ///
    /// `progress` is told how many memtables and runs are flushed, and how many there were.
    ///
    /// # Errors
    /// `NoSpace`, but only with `all`, which says that every memtable must be flushed.
    pub(super) fn flush_recovered(&self, all: bool, progress: impl Fn(usize, usize)) -> Result<()> {
        let recovered = self.super_versions.pin().frozen.len();
        let mut flushed = 0;
        let mut has_cleared = false;
        loop {
            progress(flushed, recovered);
            match self.flush_oldest() {
                Ok(true) => flushed += 1,
                Ok(false) => return Ok(()),
                Err(full) if *full.kind() == ErrorKind::NoSpace && !has_cleared => {
                    has_cleared = true;
                    // A file that cannot be deleted stays in the list.
                    let _ = self.versions.delete_obsolete();
                }
                Err(full) if *full.kind() == ErrorKind::NoSpace && !all => {
                    let message =
                        format!("{full}; what the log holds stays in memory until there is room");
                    self.options.listener.log(Severity::Error, &message);
                    self.stall.set_failure(Some(full));
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Freezes the active memtable and flushes all frozen ones.
    pub(super) fn flush_all(&self) -> Result<()> {
        self.pipeline.freeze();
        while self.flush_oldest()? {}
        Ok(())
    }

    /// Runs the compaction that the picker prefers. Returns whether there was one.
    ///
    /// # Errors
    /// As [`Self::compaction_step`]; and the damage if the job has met some.
    pub(super) fn compact_once(&self, rest: RestGoal) -> Result<bool> {
        match self.compaction_step(rest)? {
            CompactionStep::Compacted => Ok(true),
            CompactionStep::NothingDue => Ok(false),
            CompactionStep::MetDamage(error) | CompactionStep::GaveUp(error) => Err(error),
        }
    }

    /// Runs the compaction that the picker prefers.
    fn compaction_step(&self, rest: RestGoal) -> Result<CompactionStep> {
        self.health.check()?;
        let retired = self.retired();
        let Some(picked) = self.pick(&retired, rest) else {
            // No compaction is due, so none lacks room: clear the mark of a full disk, unless a
            // compaction is running in another thread, which may be about to fail for lack of room.
            if !self.running.lock().is_busy() {
                self.health.set_full(FullDisk::Compaction, false);
            }
            if let Err(error) = self.forget_retired() {
                // No writer waits for this.
                let message = format!("dropped indexes cannot be forgotten: {error}");
                self.options.listener.log(Severity::Warning, &message);
            }
            self.recheck_one_unreadable();
            return Ok(CompactionStep::NothingDue);
        };
        self.compact(picked, &retired)
    }

    /// Runs a job that [`Self::pick_by`] has returned.
    fn compact(
        &self,
        (version, job, ticket): PickedJob,
        retired: &RetiredIndexes,
    ) -> Result<CompactionStep> {
        let handover = CacheHandover::default();
        let _doing = self.activities.begin(format!(
            "a compaction of {} files with {} bytes into level {}",
            job.files().count(),
            job.size(),
            job.output_level
        ));
        // The stall gate measures how fast compactions empty L0. Tell it only of compactions that a
        // level's size has made due, which writers may wait for, and not, for example, of those of
        // an idle database.
        let drains = job.reason == JobReason::Size;
        if drains {
            self.stall.job_begins();
        }
        let awaited = drains || job.reason == JobReason::Damage;
        let hopeful = awaited && self.running.lock().failures(&job) == 0;
        if hopeful {
            self.stall.hope_begins();
        }
        self.space_tracker.begins(&job);
        let (started, begun_us) = (self.env.monotonic_micros(), self.env.wall_micros());
        let done = self.run(&version, &job, retired, &handover);
        let took_us = self.env.monotonic_micros().saturating_sub(started);
        self.history.add_job(&job, done.as_ref(), begun_us, took_us);
        self.health.note(FullDisk::Compaction, &done);
        let set_aside = self.end(ticket, &job, done.as_ref().err());
        self.space_tracker.ends(&job);
        if let Ok(stats) = &done {
            self.space_tracker.dropped(&version, &job, stats.shadowed);
        }
        if drains {
            let from_l0 = job.files().filter(|(level, _)| *level == 0 && done.is_ok());
            self.stall.job_ends(from_l0.map(|(_, f)| f.size).sum());
        }
        if hopeful {
            self.stall.hope_ends();
        }
        if awaited && done.is_ok() {
            self.stall.progressed();
        }
        if let Some(step) = set_aside {
            return Ok(step);
        }
        let stats = done?;
        self.tell_gate();
        if !self.stopping.load(Ordering::Relaxed) {
            let pace = HandoverPace {
                limiter: &self.limiter,
                stopping: &self.stopping,
            };
            handover.complete(&job, &self.versions.current(), &pace);
        }
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.counters
            .compacted_bytes_read
            .fetch_add(stats.read_bytes, Ordering::Relaxed);
        self.counters
            .compacted_bytes_written
            .fetch_add(stats.written_bytes, Ordering::Relaxed);
        self.counters
            .reused_bytes
            .fetch_add(stats.reused_bytes, Ordering::Relaxed);
        self.counters
            .recipes_tried
            .fetch_add(stats.recipes_tried, Ordering::Relaxed);
        self.counters
            .recipes_inherited
            .fetch_add(stats.recipes_inherited, Ordering::Relaxed);
        Ok(CompactionStep::Compacted)
    }

    /// The next job and the version it was picked from. The mutex `running` is held from reading
    /// the version to adding the job, so that the version contains the result of every job that is
    /// no longer in `running`.
    fn pick(&self, retired: &RetiredIndexes, rest: RestGoal) -> Option<PickedJob> {
        let (picked, reported) = self.pick_by(retired, rest, compaction::pick);
        // Close the reported ranges of many tombstones for which the picker has found no more work.
        // Do this only here and not in `pick_by`: only the ordinary picker, `compaction::pick`,
        // considers all reported ranges.
        if let Some((ranges, oldest_read)) = reported {
            self.tombstone_reports.close(&ranges, oldest_read);
        }
        picked
    }

    /// As [`Self::pick`], but `choose` picks the job. If no job is left for any range of a
    /// tombstone report, also returns these ranges and the oldest seqno at which a read may happen.
    fn pick_by(
        &self,
        retired: &RetiredIndexes,
        rest: RestGoal,
        choose: impl Fn(&PickerContext<'_>) -> Option<Job>,
    ) -> (Option<PickedJob>, Option<(Vec<KeyRange>, Seqno)>) {
        let mut running = self.running.lock();
        running.set_time(self.env.monotonic_micros());
        let version = self.versions.current();
        let oldest_read = self.live_snapshots().oldest();
        let reported = self.tombstone_reports.open(oldest_read);
        let job = choose(&PickerContext {
            version: &version,
            options: &self.options,
            running: &running,
            retired,
            oldest_read,
            reported: &reported,
            rest,
        });
        let urgent = |job: &Job| {
            matches!(
                job.reason,
                JobReason::Drop | JobReason::Size | JobReason::Reported | JobReason::Damage
            )
        };
        // Keep the tombstone reports while any job is running or an urgent one was picked: it may
        // be for a reported range, and more jobs for that range may follow.
        let is_answered =
            !reported.is_empty() && !running.is_busy() && !job.as_ref().is_some_and(urgent);
        let picked = job.map(|job| {
            let ticket = running.begin(&job);
            (version, job, ticket)
        });
        (picked, is_answered.then_some((reported, oldest_read)))
    }

    /// The factory for the files of spilled write sets and of loads.
    pub(super) fn ingest(&self) -> Arc<RunFactory> {
        let cutters = file_splitters::file_splitters(&self.versions, &self.options);
        let prefix_extractors = Arc::clone(&self.prefix_extractors);
        let options = self.options.clone();
        RunFactory::new(
            Arc::clone(&self.versions),
            options,
            prefix_extractors,
            cutters,
        )
    }

    fn job_context<'a>(&'a self, handover: &'a CacheHandover) -> JobContext<'a> {
        JobContext {
            versions: &self.versions,
            options: &self.options,
            handover,
            limiter: &self.limiter,
            prefix_extractors: &self.prefix_extractors,
            in_reserve: false,
        }
    }

    fn run(
        &self,
        version: &Version,
        job: &Job,
        retired: &RetiredIndexes,
        handover: &CacheHandover,
    ) -> Result<JobStats> {
        let context = self.job_context(handover);
        let snapshots = self.live_snapshots();
        let (edit, stats) =
            compaction::run_job(context, version, job, &snapshots, retired, &self.stopping)?;
        self.install(edit, &[], &[])?;
        Ok(stats)
    }

    /// Applies `edit` to the manifest and publishes a super version without the flushables whose
    /// ids are in `flushed`. `open` has the handles of added files that readers have opened
    /// already; the new version uses these handles.
    fn install(&self, edit: Edit, flushed: &[u64], open: &[Arc<FileHandle>]) -> Result<()> {
        self.install_with(edit, flushed, open, || Ok(()))
    }

    /// As [`Self::install`], and then runs `then` before it releases the mutex `install`. So no
    /// checkpoint can contain the edit without the effect of `then`.
    fn install_with(
        &self,
        edit: Edit,
        flushed: &[u64],
        open: &[Arc<FileHandle>],
        then: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let _in_order = self.install.lock();
        let version = self.versions.apply_open(edit, open)?;
        self.publish(version, flushed);
        then()?;
        self.stall.set_failure(None);
        self.report_pressure();
        Ok(())
    }

    /// Makes `version` the current one of the super versions. Computes its backlog first, because
    /// that may visit many files, and a freeze must not while it holds the pipeline's mutex.
    fn publish(&self, version: Arc<Version>, flushed: &[u64]) {
        self.backlog(&version);
        self.super_versions.installed(version, flushed);
    }

    fn backlog(&self, version: &Version) -> Backlog {
        Backlog::of(version, &self.options, &self.space_tracker)
    }

    /// The mutex held around every manifest edit that adds or replaces SSTs.
    pub(super) fn installs(&self) -> &Mutex<()> {
        &self.install
    }

    /// Closes the files that `choose` selects from the current version. Their next read opens them
    /// again.
    pub(super) fn close_files(&self, choose: impl FnOnce(&Version) -> Vec<Arc<FileHandle>>) {
        let _in_order = self.install.lock();
        let files = choose(&self.versions.current());
        if files.is_empty() {
            return;
        }
        let version = self.versions.close_files(&files);
        self.publish(version, &[]);
    }

    /// The seqnos at which reads may happen now. The function reads the visible seqno before the
    /// list of snapshots, as [`Snapshots::new`] requires.
    fn live_snapshots(&self) -> Snapshots {
        let visible = self.super_versions.visible();
        Snapshots::new(visible, self.snapshots.live())
    }

    fn retired(&self) -> RetiredIndexes {
        self.catalog
            .get()
            .map_or_else(BTreeMap::new, |catalog| catalog.retired())
    }

    /// Forgets the retired indexes of which neither a file nor a memtable has an entry any more.
    pub(super) fn forget_retired(&self) -> Result<()> {
        let Some(catalog) = self.catalog.get() else {
            return Ok(());
        };
        let retired = catalog.retired();
        if retired.is_empty() {
            return Ok(());
        }
        // Retired indexes into which open transactions may still commit entries are pinned. Read
        // which ones are pinned before pinning the super version. A transaction commits its entries
        // before it unpins its indexes, so the super version has all entries of an index that is
        // not in `kept`.
        let kept = catalog.pinned_retired();
        let super_version = self.super_versions.pin();
        let in_files = |id| super_version.version.index_stats(id).entries;
        let in_memtables = |id: IndexId| {
            let mut queued = super_version.frozen.iter();
            super_version.active.index_counts(id).entries > 0
                || queued.any(|queued| queued.index_counts(id).entries > 0)
        };
        let gone: Vec<IndexId> = retired
            .keys()
            .copied()
            .filter(|id| !kept.contains(id) && in_files(*id) == 0 && !in_memtables(*id))
            .collect();
        pause_points::at(PausePoint::RetiredChosen);
        catalog.forget_retired(&gone)
    }

    /// Divides the memory limit among memtables and caches again, and tells the stall gate how much
    /// background work is pending.
    pub(super) fn report_pressure(&self) {
        self.memory.balance(&self.super_versions.pin());
        self.tell_gate();
    }

    /// Tells the stall gate the pressure that follows from the current super version. The mutex
    /// `telling` is taken before the super version is read, so the pressure of an older super
    /// version never replaces that of a newer one.
    fn tell_gate(&self) {
        let _in_order = self.telling.lock();
        let super_version = self.super_versions.pin();
        let room = self.memory.frozen_room();
        let input = stall_input(&super_version, &self.options, &self.space_tracker, room);
        let damage = super_version.version.quarantine().first();
        let damage = damage.map(|damaged| damaged.error.clone());
        self.stall
            .set_damage(damage.or_else(|| self.given_up_error()));
        self.stall.set_pressure(Pressure::of(&input));
    }

    /// The target sizes of the levels, for reports.
    pub(super) fn shape(&self) -> LevelTargets {
        LevelTargets::of(&self.versions.current(), self.options.base_level_size)
    }
}

/// Prepares the row cache for the install of an ingested run: erases the rows of its keys.
fn retire_rows(rows: &RowCache, queued: &IngestedRun) {
    let files = &queued.run().files;
    let bytes = files.iter().map(|file| file.meta().raw_bytes);
    let is_small = bytes.sum::<u64>() <= RETIRED_BY_KEY_MAX;
    let by_key = || {
        files.iter().try_for_each(|file| {
            let mut entries = file.reader()?.iter(ReadClass::Load, false);
            rows.retire(queued.id(), &mut entries)
        })
    };
    // If a file cannot be read, the cache gives up all rows within its bounds. The readers of the
    // file report the damage.
    if rows.stats().entries == 0 || !is_small || by_key().is_err() {
        let named = |user_key: &[u8]| queued.run().find(user_key).is_some();
        rows.retire_where(queued.id(), named);
    }
}

/// Of an ingested run with more bytes than this, the row cache gives up all rows within the bounds
/// of its files. To read all keys would take longer than to load these rows again.
const RETIRED_BY_KEY_MAX: u64 = 64 << 20;

#[cfg(test)]
mod commit_wait_tests;
#[cfg(test)]
mod gate_tests;
#[cfg(test)]
mod held_answer_tests;
