//! Flushes, compactions and the log's once-a-second sync: the work itself, and the threads that do
//! it.
//!
//! Every install goes through one mutex that covers the manifest edit and the switch of the views,
//! so that views follow the manifest in order. A memtable is flushed only when its writers have
//! left and the log is durable up to its end: files never hold a commit that the log may lose.

use crate::base::events::Severity;
use crate::base::health::Health;
use crate::base::options::Options;
use crate::base::{Error, ErrorKind, IndexId, Result, Seqno};
use crate::catalog::{Catalog, Counters};
use crate::compaction::{
    self, Handover, Job, JobContext, JobStats, Picking, Retired, Running, Shape, Snapshots,
};
use crate::env::Env;
use crate::read::Views;
use crate::txn::SnapshotList;
use crate::version::{Edit, Version, VersionSet};
use crate::wal::Wal;
use crate::write::{Pipeline, Pressure, Stall};
use parking_lot::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long nothing must have been written before the tree goes to its resting state.
const IDLE_AFTER_MICROS: u64 = 2_000_000;

/// Pause after background work failed for a passing reason, such as a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// What flushes and compactions have done.
#[derive(Debug, Default)]
pub(super) struct WorkCounters {
    pub flushes: AtomicU64,
    pub flushed_bytes: AtomicU64,
    pub compactions: AtomicU64,
    pub compacted_bytes_read: AtomicU64,
    pub compacted_bytes_written: AtomicU64,
}

#[derive(Default)]
struct Signals {
    flush: bool,
    compact: bool,
}

/// Flushes and compactions of a database.
pub(super) struct Work {
    pub env: Arc<dyn Env>,
    pub options: Options,
    pub health: Arc<Health>,
    pub wal: Arc<Wal>,
    pub versions: Arc<VersionSet>,
    pub views: Arc<Views>,
    pub pipeline: Arc<Pipeline>,
    pub stall: Arc<Stall>,
    pub counters: WorkCounters,
    snapshots: Arc<SnapshotList>,
    catalog_counters: Arc<Counters>,
    catalog: OnceLock<Arc<Catalog>>,
    install: Mutex<()>,
    flushing: Mutex<()>,
    running: Mutex<Running>,
    signals: Mutex<Signals>,
    signal: Condvar,
    stopping: AtomicBool,
    last_write: Mutex<(Seqno, u64)>,
}

impl Work {
    #[allow(clippy::too_many_arguments)] // The composition root names each part once.
    pub(super) fn new(
        env: Arc<dyn Env>,
        options: Options,
        health: Arc<Health>,
        wal: Arc<Wal>,
        versions: Arc<VersionSet>,
        views: Arc<Views>,
        pipeline: Arc<Pipeline>,
        snapshots: Arc<SnapshotList>,
        catalog_counters: Arc<Counters>,
        stall: Arc<Stall>,
    ) -> Self {
        Self {
            env,
            options,
            health,
            wal,
            versions,
            views,
            pipeline,
            stall,
            counters: WorkCounters::default(),
            snapshots,
            catalog_counters,
            catalog: OnceLock::new(),
            install: Mutex::new(()),
            flushing: Mutex::new(()),
            running: Mutex::default(),
            signals: Mutex::default(),
            signal: Condvar::new(),
            stopping: AtomicBool::new(false),
            last_write: Mutex::new((0, 0)),
        }
    }

    pub(super) fn set_catalog(&self, catalog: Arc<Catalog>) {
        let _ = self.catalog.set(catalog);
    }

    /// The pipeline has frozen a memtable. Called under its mutex.
    pub(super) fn memtable_frozen(&self) {
        self.report_pressure();
        self.signals.lock().flush = true;
        self.signal.notify_all();
    }

    /// Flushes the oldest frozen memtable. Returns whether there was one.
    pub(super) fn flush_oldest(&self) -> Result<bool> {
        let _in_order = self.flushing.lock();
        let view = self.views.pin();
        let Some(memtable) = view.frozen.last() else {
            return Ok(false);
        };
        self.health.check()?;
        memtable.wait_quiescent();
        self.views.drained(memtable);
        self.wal
            .sync_to(memtable.last_lsn())
            .inspect_err(|_| self.pipeline.contain_failure())?;
        let handover = Handover::default();
        let context = self.job_context(&handover);
        let mut source = memtable.iter();
        let snapshots = self.live_snapshots();
        let (files, stats) = compaction::flush(context, &mut source, &snapshots, &self.retired())?;
        let run = self.versions.new_run_number();
        let flushed = memtable.id();
        let floor = self.pipeline.log_floor(|| {
            let mut frozen = self.views.pin().frozen.clone();
            frozen.retain(|other| other.id() != flushed);
            frozen
        });
        let edit = Edit {
            added: files.into_iter().map(|meta| (0, run, meta)).collect(),
            log_number: Some(floor),
            last_seqno: memtable.seqno_range().map(|(_, newest)| newest),
            counters: self.catalog_counters.snapshot(),
            time_pairs: memtable
                .seqno_range()
                .map(|(_, newest)| (newest, self.env.wall_micros()))
                .into_iter()
                .collect(),
            ..Edit::default()
        };
        view.rows.retire(flushed, &mut memtable.iter())?;
        self.install(edit, &[flushed])?;
        self.wal.release_before(self.versions.log_number())?;
        self.counters.flushes.fetch_add(1, Ordering::Relaxed);
        self.counters
            .flushed_bytes
            .fetch_add(stats.written_bytes, Ordering::Relaxed);
        self.signals.lock().compact = true;
        self.signal.notify_all();
        Ok(true)
    }

    /// Freezes the active memtable and flushes all.
    pub(super) fn flush_all(&self) -> Result<()> {
        self.pipeline.freeze();
        while self.flush_oldest()? {}
        Ok(())
    }

    /// Runs the compaction that the picker sees first. Returns whether there was one.
    pub(super) fn compact_once(&self, idle: bool) -> Result<bool> {
        self.health.check()?;
        let retired = self.retired();
        let Some((version, job, ticket)) = self.pick(&retired, idle) else {
            self.forget_retired(&retired)?;
            return Ok(false);
        };
        let handover = Handover::default();
        let done = self.run(&version, &job, &retired, &handover);
        self.running.lock().end(ticket, &job);
        let stats = done?;
        handover.complete(&job, &self.versions.current());
        self.counters.compactions.fetch_add(1, Ordering::Relaxed);
        self.counters
            .compacted_bytes_read
            .fetch_add(stats.read_bytes, Ordering::Relaxed);
        self.counters
            .compacted_bytes_written
            .fetch_add(stats.written_bytes, Ordering::Relaxed);
        Ok(true)
    }

    /// The next job, with the version it was picked from: read under the mutex, so that no job that
    /// ended in between is missing from it.
    fn pick(&self, retired: &Retired, idle: bool) -> Option<(Arc<Version>, Job, u64)> {
        let mut running = self.running.lock();
        let version = self.versions.current();
        let job = compaction::pick(&Picking {
            version: &version,
            options: &self.options,
            running: &running,
            retired,
            oldest_read: self.live_snapshots().oldest(),
            reported: &[],
            idle,
        })?;
        let ticket = running.begin(&job);
        Some((version, job, ticket))
    }

    fn job_context<'a>(&'a self, handover: &'a Handover) -> JobContext<'a> {
        JobContext {
            versions: &self.versions,
            options: &self.options,
            handover,
        }
    }

    fn run(
        &self,
        version: &Version,
        job: &Job,
        retired: &Retired,
        handover: &Handover,
    ) -> Result<JobStats> {
        let context = self.job_context(handover);
        let snapshots = self.live_snapshots();
        let (edit, stats) =
            compaction::run(context, version, job, &snapshots, retired, &self.stopping)?;
        self.install(edit, &[])?;
        Ok(stats)
    }

    fn install(&self, edit: Edit, flushed: &[u64]) -> Result<()> {
        let _in_order = self.install.lock();
        let version = self.versions.apply(edit)?;
        self.views.installed(version, flushed);
        self.stall.set_failure(None);
        self.report_pressure();
        Ok(())
    }

    /// Where reads may stand: the visible seqno first, then the list, as [`Snapshots::new`] asks.
    fn live_snapshots(&self) -> Snapshots {
        let visible = self.views.visible();
        Snapshots::new(visible, self.snapshots.live())
    }

    fn retired(&self) -> Retired {
        self.catalog
            .get()
            .map_or_else(BTreeMap::new, |catalog| catalog.retired())
    }

    /// Ids whose last entry is gone from files and memtables need no note any more.
    fn forget_retired(&self, retired: &Retired) -> Result<()> {
        if retired.is_empty() {
            return Ok(());
        }
        let view = self.views.pin();
        let in_files = view.version.all_index_stats();
        let in_memtables = |id: IndexId| {
            let all = std::iter::once(&view.active).chain(&view.frozen);
            all.into_iter()
                .any(|memtable| memtable.index_counts(id).entries > 0)
        };
        let gone: Vec<IndexId> = retired
            .keys()
            .copied()
            .filter(|id| in_files.get(id).is_none_or(|s| s.entries == 0) && !in_memtables(*id))
            .collect();
        match self.catalog.get() {
            Some(catalog) => catalog.forget_retired(&gone),
            None => Ok(()),
        }
    }

    fn report_pressure(&self) {
        let view = self.views.pin();
        self.stall.set_pressure(Pressure {
            frozen_share: view.frozen.len() as f64 / self.options.frozen_memtables_max as f64,
            l0_share: compaction::l0_depth(&view.version) as f64 / self.options.l0_stop_runs as f64,
        });
    }

    /// Whether nothing was committed for a while.
    fn is_idle(&self) -> bool {
        let now = self.env.monotonic_micros();
        let visible = self.views.visible();
        let mut last = self.last_write.lock();
        if last.0 != visible {
            *last = (visible, now);
        }
        now - last.1 >= IDLE_AFTER_MICROS
    }

    /// Level targets, for reports.
    pub(super) fn shape(&self) -> Shape {
        Shape::of(&self.versions.current(), self.options.base_level_size)
    }

    fn wait(&self, wanted: impl Fn(&mut Signals) -> bool, timeout: Duration) {
        let mut signals = self.signals.lock();
        if !self.stopping.load(Ordering::Acquire) && !wanted(&mut signals) {
            self.signal.wait_for(&mut signals, timeout);
            wanted(&mut signals);
        }
    }

    fn flush_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            match self.flush_oldest() {
                Ok(true) => {}
                Ok(false) => self.wait(|s| std::mem::take(&mut s.flush), Duration::from_secs(1)),
                Err(error) => self.failed("flush", &error),
            }
        }
    }

    fn compaction_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            let idle = self.is_idle();
            let done = self
                .when_idle_flush(idle)
                .and_then(|()| self.compact_once(idle));
            let done = done.and_then(|more| self.versions.delete_obsolete().map(|_| more));
            match done {
                Ok(true) => {}
                Ok(false) => {
                    self.wait(
                        |s| std::mem::take(&mut s.compact),
                        Duration::from_millis(500),
                    );
                }
                Err(error) if *error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.failed("compaction", &error),
            }
        }
    }

    /// The resting state has empty memtables.
    fn when_idle_flush(&self, idle: bool) -> Result<()> {
        let settled = self.views.pin().active.entries() == 0;
        if idle && !settled {
            self.flush_all()
        } else {
            Ok(())
        }
    }

    fn log_loop(&self) {
        while !self.stopping.load(Ordering::Acquire) {
            self.wait(|_| false, Duration::from_secs(1));
            if self.health.check().is_ok()
                && let Err(error) = self.pipeline.sync_all()
            {
                self.failed("log sync", &error);
            }
        }
    }

    fn failed(&self, what: &str, error: &Error) {
        if *error.kind() != ErrorKind::Poisoned {
            let message = format!("{what} failed: {error}");
            self.options.listener.log(Severity::Error, &message);
        }
        self.pipeline.contain_failure();
        self.stall.set_failure(Some(error.clone()));
        self.wait(|_| false, RETRY_PAUSE);
    }
}

/// The threads of a database.
pub(super) struct Background {
    work: Arc<Work>,
    threads: Vec<JoinHandle<()>>,
}

impl Background {
    pub(super) fn start(work: &Arc<Work>) -> Self {
        let mut threads = vec![
            spawn(work, "firn-flush", Work::flush_loop),
            spawn(work, "firn-log", Work::log_loop),
        ];
        for _ in 0..work.options.background_jobs {
            threads.push(spawn(work, "firn-compact", Work::compaction_loop));
        }
        Self {
            work: Arc::clone(work),
            threads,
        }
    }

    pub(super) fn stop(self) {
        self.work.stopping.store(true, Ordering::Release);
        self.work.stall.release();
        {
            let _signals = self.work.signals.lock();
            self.work.signal.notify_all();
        }
        for thread in self.threads {
            // A thread that panicked has reported it and poisoned the engine.
            let _ = thread.join();
        }
    }
}

/// A thread that stops the engine's writes when a bug panics it.
fn spawn(work: &Arc<Work>, name: &str, body: fn(&Work)) -> JoinHandle<()> {
    let work = Arc::clone(work);
    let label = name.to_owned();
    let guarded = move || {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(&work))) {
            let words = panic
                .downcast_ref::<String>()
                .map(String::as_str)
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("no message");
            let message = format!("bug: thread {label} panicked, writes stop: {words}");
            work.options.listener.log(Severity::Error, &message);
            work.health.poison(Error::new(ErrorKind::ShutDown, message));
            work.pipeline.contain_failure();
        }
    };
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(guarded)
        .expect("the system has room for a few threads at start")
}
