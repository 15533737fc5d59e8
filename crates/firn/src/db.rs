//! Composition root: opens and recovers a database, runs its background work, reports on it.

mod activities;
mod archive_log;
mod background;
mod engine_status;
mod ephemeral;
mod in_doubt;
mod make_checkpoint;
mod memory_pool;
mod read_only;
mod recover_prepared;
mod recovery;
mod repair;
mod storage_reports;
mod transaction_reports;
mod wal_size_limit;

pub use background::{BlobReport, JobReport, MemoryReport};
pub use engine_status::{Condition, IndexReport, LevelReport, Metrics};
pub use in_doubt::ServerStart;
pub use memory_pool::MemoryPool;
pub use read_only::{BlobFileReport, BlobFilesReport, ReadOnlyDb, ReadOnlyLog, ReadOnlyTree};
pub use repair::{Repaired, repair};
pub use storage_reports::{FileReport, IndexDetail, PlacesReport, StallReport};
pub use transaction_reports::SnapshotAge;

use crate::backup::{Archiver, ArchiverContext, RecoveryPoint, begin_archiving};
use crate::base::event_listener::{EventListener, Severity};
use crate::base::health::Health;
use crate::base::options::{CommitDurability, Options};
use crate::base::{Error, ErrorKind, Result, Seqno};
use crate::blob::BlobStore;
use crate::cache::{BlockCache, RowCache};
use crate::catalog::{Catalog, Counters};
use crate::compaction::RestGoal;
use crate::env::{CountingEnv, Env, IoStats, UnsyncedEnv};
use crate::memtable::Memtable;
use crate::read::SuperVersions;
use crate::store::{BlockPool, DiskReserve, FileKind, FileStore, PooledBlocks, RemoteFiles};
use crate::txn::{
    ActiveInserts, LockOwner, LockTable, ReferencedTables, SnapshotList, Transaction,
    TransactionContext, TransactionList, WaitObserver,
};
use crate::version::{self, Edit, FileSource, Flushable, LEVELS, Version, VersionSet};
use crate::wal::{self, Wal, WalOptions};
use crate::write::{MemtableHost, Pipeline, StallGate};
use activities::{Activities, ProgressReporter};
use background::MemoryArbiter;
use background::{BackgroundThreads, BackgroundWork, BulkLoadHost, install_found};
use make_checkpoint::Checkpoints;
use memory_pool::DbPool;
use parking_lot::Mutex;
use recovery::Replayed;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

/// The memory trackers of write sets and sessions make the memory arbiter divide the memory limit
/// again each time their sum crosses a multiple of this many bytes.
const TRACKED_STEP: u64 = 256 << 10;

/// Longest wait for a log archive that does not respond. Closing a database waits this long at most
/// twice: for the archive thread to end, and for the last segment to be archived.
const ARCHIVE_PATIENCE: Duration = Duration::from_secs(20);

/// An open database.
///
/// Owns every part of the engine and connects them. The commit pipeline reports each frozen
/// memtable to the super versions and to the background work; the background work installs new
/// versions into the super versions. With `background_jobs` 0 there are no threads, and the caller
/// drives flushes, compactions and archiving through [`Self::flush`], [`Self::compact_once`],
/// [`Self::collect_blobs`] and [`Self::archive_log`].
///
/// The order of opening matters; `open_at` keeps it:
/// 1. Lock the directory, load the manifest, replay the log into flushables.
/// 2. In a recovery to a point: install the files of loads that the manifest lacks.
/// 3. Sync the log, then make the SSTs obsolete that neither manifest nor log names, and delete
///    some of them.
/// 4. Fill the disk reserve, for which all of them may have to go; delete unused blob files; open a
///    new log segment behind all that were used.
/// 5. Wire super versions, pipeline and background work; load the catalog; write prepared
///    transactions to the new log and take their locks.
/// 6. Flush the recovered flushables, start the threads.
pub struct Db {
    work: Arc<BackgroundWork>,
    cx: Arc<TransactionContext>,
    catalog: Arc<Catalog>,
    background: Mutex<Option<BackgroundThreads>>,
    checkpoints: Checkpoints,
    io: Arc<IoStats>,
    pool: Option<DbPool>,
    dir: PathBuf,
    next_owner: AtomicU64,
    /// Number of ephemeral databases that were opened beside this one.
    ephemeral_opened: AtomicU64,
    env: Arc<dyn Env>,
    _lock: DirectoryLock,
}

/// The lock of the data directory. A thread that the close may leave to itself holds it, too, so
/// that nobody opens the directory while that thread may still touch its files.
type DirectoryLock = Arc<dyn Send + Sync>;

/// Services of other machines for a database.
#[derive(Default)]
pub struct Attached {
    /// A memory pool, which is off at first.
    pub pool: Option<MemoryPool>,
    /// The object store of cold files. Nothing is asked of it before a file moves there or a file
    /// is read that is there.
    pub remote: Option<Arc<dyn RemoteFiles>>,
}

/// A database is opened on this.
enum OpenedOn<'a> {
    /// An environment, whose reads and writes the database counts, and what is attached.
    Env(Arc<dyn Env>, Attached),
    /// The environment of the host database, but without syncs. The host database counts.
    Host(&'a Db),
}

/// Tells the super versions and the background work when the pipeline has switched to a new
/// memtable. The background work is created after the pipeline, so its slot is filled later.
struct MemtableSwitch {
    super_versions: Arc<SuperVersions>,
    /// Weak, because the background work owns the pipeline, which owns this switch.
    work: Arc<OnceLock<Weak<BackgroundWork>>>,
}

impl MemtableHost for MemtableSwitch {
    fn switched(&self, queued: &[Flushable], active: Arc<Memtable>) {
        self.super_versions.switched(queued, active);
        if let Some(work) = self.work.get().and_then(Weak::upgrade) {
            work.memtable_frozen();
        }
    }
}

impl Db {
    /// Opens the database in `dir`, creates it if it is missing, and replays the log beyond what
    /// the files hold. `waits` is told which transactions wait for which.
    ///
    /// # Errors
    /// `Busy` if another process has the database open. `Corruption`, `Io` and `Unsupported` (a
    /// newer format, an encrypted unit) of its files. `NoSpace` if opening must write a file and
    /// the disk has no room. `Unsupported` also if the log is to be archived and the file system
    /// cannot give files a second name.
    pub fn open(
        env: Arc<dyn Env>,
        dir: &Path,
        options: Options,
        waits: Option<Arc<dyn WaitObserver>>,
    ) -> Result<Arc<Self>> {
        let on = OpenedOn::Env(env, Attached::default());
        Self::open_at(on, dir, options, waits, None)
    }

    /// As [`Self::open`], with what other machines have for the database. Ephemeral databases of
    /// this database do not use it, because their files are gone soon.
    ///
    /// # Errors
    /// As [`Self::open`]. `Unsupported` if files are in an object store and none is attached.
    pub fn open_with(
        env: Arc<dyn Env>,
        dir: &Path,
        options: Options,
        waits: Option<Arc<dyn WaitObserver>>,
        attached: Attached,
    ) -> Result<Arc<Self>> {
        Self::open_at(OpenedOn::Env(env, attached), dir, options, waits, None)
    }

    fn open_at(
        on: OpenedOn<'_>,
        dir: &Path,
        options: Options,
        waits: Option<Arc<dyn WaitObserver>>,
        point: Option<RecoveryPoint>,
    ) -> Result<Arc<Self>> {
        let (env, io, host, attached): (Arc<dyn Env>, _, _, _) = match on {
            OpenedOn::Env(env, attached) => {
                let counting = Arc::new(CountingEnv::new(env));
                let io = Arc::clone(counting.counters());
                (counting, io, None, attached)
            }
            OpenedOn::Host(host) => {
                let unsynced = Arc::new(UnsyncedEnv::new(Arc::clone(&host.env)));
                (
                    unsynced,
                    Arc::clone(&host.io),
                    Some(host),
                    Attached::default(),
                )
            }
        };
        env.create_dir_all(dir)?;
        let lock: DirectoryLock = Arc::from(env.lock(&dir.join("LOCK"))?);
        // Keep the directory open, so that syncing it never fails for lack of a file descriptor.
        env.keep_dir_open(dir)?;
        let listener = Arc::clone(&options.listener);
        let health = Arc::new(Health::new());
        let activities = Arc::new(Activities::new(Arc::clone(&env)));
        let _progress = (options.background_jobs > 0 && !options.ephemeral).then(|| {
            ProgressReporter::begin("start", Arc::clone(&activities), Arc::clone(&listener))
        });
        let opened = env.monotonic_micros();
        let doing = activities.begin("reading the manifest");
        let memory = match host {
            Some(host) => host.work.memory.guest(&options, Arc::clone(&env)),
            None => {
                let (block_cache_size, row_cache_size) = MemoryArbiter::initial_sizes(&options);
                MemoryArbiter::new(
                    &options,
                    Arc::clone(&env),
                    Arc::new(BlockCache::new(block_cache_size)),
                    Arc::new(RowCache::new(row_cache_size)),
                    Arc::default(),
                )
            }
        };
        let cache = Arc::clone(memory.block_cache());
        let rows = Arc::clone(memory.row_cache());
        let write_sets = Arc::clone(memory.write_sets().sets());
        let mut store = FileStore::new(Arc::clone(&env), dir)
            .with_health(Arc::clone(&health), Arc::clone(&listener))
            .with_direct_reads(options.direct_reads)
            .with_archive(options.log_archive_dir.is_some());
        store = match host {
            // The database and its ephemeral databases have different file ids, so they can share
            // one limit on open files.
            Some(host) => store.with_open_files_of(host.work.versions.source().store()),
            None => store.with_open_files(options.mutable.open_files.load(Ordering::Relaxed)),
        };
        let remote = attached.remote;
        if let Some(remote) = &remote {
            store = store.with_remote(Arc::clone(remote));
            // Files count as read at the open.
            store.set_read_clock(env.monotonic_micros() / 1_000_000);
        }
        let pool = attached.pool.map(|memory| {
            let memory = Arc::new(memory);
            let pool: Arc<dyn BlockPool> = Arc::<MemoryPool>::clone(&memory);
            let blocks = PooledBlocks::new(pool, Arc::clone(&env), Arc::clone(&io));
            let blocks = Arc::new(blocks);
            DbPool { memory, blocks }
        });
        if let Some(pool) = &pool {
            store = store.with_pool(Arc::clone(&pool.blocks));
        }
        let reserve =
            (!options.ephemeral).then(|| Arc::new(DiskReserve::new(Arc::clone(&env), dir)));
        if let Some(reserve) = &reserve {
            store = store.with_reserve(Arc::clone(reserve));
        }
        let files = store.clone();
        let versions = Arc::new(VersionSet::open(version::VersionSetContext {
            env: Arc::clone(&env),
            dir: dir.to_owned(),
            source: FileSource::new(store, cache),
            health: Arc::clone(&health),
            listener: Arc::clone(&listener),
        })?);
        if let Some(remote) = &remote {
            remote.belongs_to(versions.identity().database, versions.names_objects());
        }

        if let Some(host) = host {
            ephemeral::begin(host, &versions)?;
        }
        let counters = Arc::new(Counters::default());
        versions
            .counters()
            .into_iter()
            .for_each(|(c, v)| counters.learn(c, v));
        let started = env.monotonic_micros();
        doing.set("looking for the log");
        let memtable_size = options.mutable.freeze_at();
        let mut replayed = recovery::replay(
            &*env,
            dir,
            versions.source(),
            versions.log_number(),
            versions.last_seqno(),
            memtable_size,
            &counters,
            point,
            &mut |segment, of| {
                doing.set(format!("recovering the log, segment {segment} of {of}"));
            },
        )?;
        recovery::take_epoch(&versions, &mut replayed)?;
        versions.reserve_file_ids(replayed.next_file_id);
        install_found(&versions, &mut replayed.loads)?;
        // Sync the log before deleting the files that nothing names: after a kill, the records just
        // read may exist only in the page cache. Otherwise a power cut could lose, say, the
        // rollback record because of which a file is not needed, and then an earlier prepare record
        // would need the deleted file again.
        doing.set("syncing the log");
        wal::sync_all(&*env, dir)?;
        doing.set("removing files that neither manifest nor log names");
        versions.note_gtids(&replayed.gtids);
        versions.remove_strays(&replayed.named_files());
        // Fill the disk reserve after the stray files are deleted, since it may need their room,
        // and before anything else takes room.
        if let Err(error) = versions.fill_reserve_at_open() {
            let message = format!("room for a full disk: {error}");
            listener.log(Severity::Warning, &message);
        }
        // A crash has ended the loads that these temporary files belong to.
        for id in versions.take_found(FileKind::Sort) {
            if let Err(error) = versions.source().store().remove_sort(id) {
                warn_of_leftover(&*listener, &error);
            }
        }
        doing.set("removing blob files that nothing refers to");
        let blobs = open_blobs(&versions, &options, &replayed)?;
        doing.set("beginning a new log");
        let first_segment = recovery::new_segment(&*env, dir, &versions, &replayed)?;
        let archive = options.log_archive_dir.clone();
        let archiving = begin_archiving(&*env, dir, archive.as_deref(), first_segment)?;
        let wal = Wal::create(
            Arc::clone(&env),
            dir,
            WalOptions {
                kept: reserve,
                replayed_from: versions.log_number(),
                ..wal_options(&options)
            },
            Arc::clone(&health),
            Arc::clone(&listener),
            first_segment,
            replayed.end.log_end(),
        )?;
        let archiver = archiving.zip(archive).map(|(archiving, archive)| {
            Archiver::new(ArchiverContext {
                env: Arc::clone(&env),
                dir: dir.to_owned(),
                archive,
                archiving,
                wal: Arc::clone(&wal),
                blobs: Arc::clone(&blobs),
                listener: Arc::clone(&listener),
            })
        });

        let visible = Arc::new(AtomicU64::new(replayed.last_seqno));
        let first_id = replayed.queue.len() as u64 + 1;
        let active = Arc::new(Memtable::with_capacity(
            first_id,
            wal.current_segment(),
            memtable_size,
        ));
        let super_versions = Arc::new(SuperVersions::new(
            Arc::clone(&active),
            versions.current(),
            Arc::clone(&visible),
            rows,
            Arc::clone(&blobs),
        ));
        super_versions.recovered(&replayed.queue);
        let stall = Arc::new(StallGate::new(Arc::clone(&env)));
        let late_work = Arc::new(OnceLock::new());
        let switch = MemtableSwitch {
            super_versions: Arc::clone(&super_versions),
            work: Arc::clone(&late_work),
        };
        let pipeline = Pipeline::new(
            Arc::clone(&wal),
            Arc::clone(&health),
            Arc::clone(&options.mutable),
            visible,
            Arc::clone(&stall),
            Box::new(switch),
            active,
        );
        let pipeline = Arc::new(pipeline.with_archive(files));
        let snapshots = Arc::new(SnapshotList::new());
        let transactions = Arc::new(TransactionList::default());
        let work = Arc::new(BackgroundWork::new(
            Arc::clone(&env),
            options,
            health,
            wal,
            versions,
            Arc::clone(&super_versions),
            Arc::clone(&pipeline),
            Arc::clone(&snapshots),
            Arc::clone(&transactions),
            Arc::clone(&counters),
            stall,
            memory,
            Arc::clone(&blobs),
            archiver,
            host.map(|host| Arc::clone(&host.work.limiter)),
            Arc::clone(&activities),
        ));
        work.report_pressure();
        let locks = LockTable::merging_at(work.options.lock_merge_rows);
        locks.set_observer(waits);
        let cx = Arc::new(TransactionContext {
            super_versions,
            pipeline,
            locks,
            transactions,
            inserts: ActiveInserts::new(),
            referenced: Arc::new(ReferencedTables::new(Arc::clone(&env))),
            snapshots,
            mutable: Arc::clone(&work.options.mutable),
            write_sets: Arc::clone(&write_sets),
            prepared: Arc::default(),
            tombstone_reports: Arc::clone(&work.tombstone_reports),
            ingest: work.ingest(),
            loads: Arc::new(BulkLoadHost(Arc::clone(&work))),
            blobs,
        });
        doing.set("reading the catalog");
        let catalog = Arc::new(Catalog::load(
            Arc::clone(&cx.pipeline),
            Arc::clone(&cx.prepared),
            Arc::clone(&cx.referenced),
            counters,
            &cx.super_versions.latest(),
        )?);
        doing.set("logging prepared transactions again");
        recover_prepared::relog(&cx, &catalog, &replayed, &*work.options.listener)?;
        work.set_catalog(Arc::clone(&catalog));
        // Flush only after the catalog is loaded: without its prefix extractors the files would
        // have no sketches of their keys.
        work.flush_recovered(point.is_some(), |flushed, of| {
            doing.set(format!(
                "flushing what the log held, {flushed} of {of} memtables done"
            ));
        })?;
        if point.is_some() {
            work.forget_log(first_segment)?;
        }
        let _ = late_work.set(Arc::downgrade(&work));
        let observer = Arc::downgrade(&work);
        let observe = move || {
            if let Some(work) = observer.upgrade() {
                work.report_pressure();
            }
        };
        work.memory.observe(TRACKED_STEP, observe);
        if !work.options.ephemeral {
            let took_ms = (env.monotonic_micros() - started) / 1000;
            report_recovery(&work, &replayed, took_ms);
            report_start(&work, &catalog, (env.monotonic_micros() - opened) / 1000);
        }
        drop(doing);

        let background = match work.options.background_jobs {
            0 => None,
            _ => Some(BackgroundThreads::start(&work, &lock)?),
        };
        let db = Arc::new(Self {
            work,
            cx,
            catalog,
            background: Mutex::new(background),
            checkpoints: Checkpoints::default(),
            io,
            pool,
            dir: dir.to_owned(),
            next_owner: AtomicU64::new(1),
            ephemeral_opened: AtomicU64::new(0),
            env,
            _lock: lock,
        });
        db.log_deadlocks();
        Ok(db)
    }

    /// Closes the database: cancels flushes and compactions, ends the background threads and makes
    /// the log durable. Memtables are not flushed, which keeps closing fast; the next open replays
    /// the log. The wait for an unresponsive log archive is bounded. While a close takes long, the
    /// error log says every few seconds what it waits for.
    ///
    /// # Errors
    /// `Poisoned` or `Io` if the log cannot be made durable; `NoSpace` if the counters cannot be
    /// stored.
    pub fn close(&self) -> Result<()> {
        self.close_within(ARCHIVE_PATIENCE)
    }

    fn close_within(&self, patience: Duration) -> Result<()> {
        let background = self.background.lock().take();
        let has_threads = background.is_some();
        let reported = has_threads && !self.work.options.ephemeral;
        let begun = self.env.monotonic_micros();
        let _progress = reported.then(|| {
            self.report_stop();
            let work = &self.work;
            let listener = Arc::clone(&work.options.listener);
            ProgressReporter::begin("stop", Arc::clone(&work.activities), listener)
        });
        if let Some(background) = background {
            background.stop(patience);
        }
        let doing = self.work.activities.begin("deleting obsolete files");
        // The next open deletes the files that are not deleted now. On a full disk delete them all,
        // because the open may need their room.
        let _ = match self.work.health.is_full(None) {
            true => self.work.versions.delete_obsolete(),
            false => self.work.versions.delete_few(),
        };
        doing.set("cutting blob files to their length");
        self.cx.blobs.seal_active();
        self.cx.blobs.trim_sealed();
        doing.set("storing counters");
        let synced = match self.work.health.check() {
            // Persist the counters, so that auto-increment values that were handed out but never
            // committed stay used after a clean restart.
            Ok(()) => self.catalog.persist_counters(),
            // After a failed write nothing more may be written. No acknowledged commit is lost if
            // the counters are not stored: each commit has logged the counters that it used.
            Err(_) => Ok(()),
        };
        // Before anything that may fail: no thread may be left.
        if let Some(pool) = &self.pool {
            doing.set("ending the thread of the memory pool");
            pool.blocks.set_on(false);
            pool.memory.pool().stop();
        }
        doing.set("syncing the log");
        self.work.wal.close()?;
        doing.set("archiving the end of the log");
        match has_threads {
            true => self.work.archive_rest_within(patience),
            false => self.work.archive_rest(),
        }
        if reported {
            let took_ms = (self.env.monotonic_micros() - begun) / 1000;
            let message = format!("stopped in {took_ms} ms");
            self.work.options.listener.log(Severity::Note, &message);
        }
        synced
    }

    /// Logs what a stop leaves for the next start, and what it cancels.
    fn report_stop(&self) {
        let super_version = self.cx.super_versions.pin();
        let memtables = super_version.memtables();
        let bytes: u64 = memtables.map(|memtable| memtable.size_bytes()).sum();
        let message = format!(
            "stopping: the next start recovers {bytes} bytes of memtables from the log; {} prepared transactions stay \
             prepared; {} obsolete files are deleted later",
            self.cx.prepared.xids().len(),
            self.work.versions.obsolete().0,
        );
        self.work.options.listener.log(Severity::Note, &message);
    }

    /// A new lock owner. `host` is a number that the host chooses; the wait observer is called with
    /// it.
    pub fn new_owner(&self, host: u64) -> Arc<LockOwner> {
        let id = self.next_owner.fetch_add(1, Ordering::Relaxed);
        LockOwner::new(id, host)
    }

    /// As [`Self::new_owner`], with the host's number of the session, which appears in reports.
    pub fn new_session_owner(&self, host: u64, session: u64) -> Arc<LockOwner> {
        let id = self.next_owner.fetch_add(1, Ordering::Relaxed);
        LockOwner::of_session(id, host, session)
    }

    /// A lock owner for a second transaction in the session of `owner`, for work that the session
    /// does outside of its own transaction.
    pub fn helper_of(&self, owner: &LockOwner) -> Arc<LockOwner> {
        owner.helper(self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// A transaction for one session.
    pub fn new_transaction(&self, owner: Arc<LockOwner>) -> Transaction {
        Transaction::new(Arc::clone(&self.cx), owner)
    }

    /// The catalog, which has the tables.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// The parts that transactions share: super versions, pipeline, locks, snapshots.
    pub fn context(&self) -> &Arc<TransactionContext> {
        &self.cx
    }

    /// The options of this open database.
    pub fn options(&self) -> &Options {
        &self.work.options
    }

    /// Wall clock, microseconds since 1970.
    pub fn wall_micros(&self) -> u64 {
        self.env.wall_micros()
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Makes everything committed so far durable.
    ///
    /// # Errors
    /// `Poisoned` if the log cannot be synced; the outcome of the last commits is unknown until
    /// restart.
    pub fn sync_log(&self) -> Result<()> {
        self.cx.pipeline.sync_all()
    }

    /// Xids of the prepared transactions that no session owns.
    pub fn prepared_xids(&self) -> Vec<Vec<u8>> {
        self.cx.prepared.xids()
    }

    /// Commits a prepared transaction that no session owns. Returns whether the xid was known.
    ///
    /// # Errors
    /// Those of a commit: `Poisoned`, `NoSpace`, `Io`. If the commit itself fails, the transaction
    /// stays prepared. If only the sync after it fails, the transaction counts as committed.
    pub fn commit_xid(&self, xid: &[u8]) -> Result<bool> {
        self.cx.prepared.commit(xid, &self.cx)
    }

    /// Rolls back a prepared transaction that no session owns. Returns whether the xid was known.
    ///
    /// # Errors
    /// `Poisoned`, `NoSpace` or `Io` of the log.
    pub fn rollback_xid(&self, xid: &[u8]) -> Result<bool> {
        self.cx.prepared.rollback(xid, &self.cx)
    }

    /// Freezes the active memtable and flushes all frozen ones.
    ///
    /// # Errors
    /// `NoSpace` if the disk is full: memtables and log keep the data. `Poisoned`; `Io`.
    pub fn flush(&self) -> Result<()> {
        self.work.flush_all()
    }

    /// Refills the disk reserve. While the disk is full, also tries again to get the room that
    /// writers wait for. The log thread calls this once a second.
    pub fn recheck_full_disk(&self) {
        self.work.recheck_full_disk();
    }

    /// Runs one compaction if the picker finds one worthwhile, and deletes obsolete files. Returns
    /// whether it compacted.
    ///
    /// # Errors
    /// `Corruption` of an input file, which is then in quarantine; `NoSpace`, `Poisoned`, `Io`.
    pub fn compact_once(&self) -> Result<bool> {
        let compacted = self.work.compact_once(RestGoal::No)?;
        self.work.versions.delete_obsolete()?;
        Ok(compacted)
    }

    /// Moves one file to the object store, or back, if one is to move. Also deletes objects that
    /// nobody needs, and sweeps strays from time to time. Then deletes obsolete files. Returns
    /// whether a file has moved.
    ///
    /// # Errors
    /// `Unreachable` if the store does not answer; `InvalidArgument` if it belongs to another
    /// database; `NoSpace`, `Corruption`, `Io`.
    pub fn tier_step(&self) -> Result<bool> {
        let moved = self.work.tier_step()?;
        self.work.versions.delete_obsolete()?;
        Ok(moved)
    }

    /// Flushes and compacts until the tree is at rest: all data in the last level. Then deletes the
    /// catalog's notes of dropped indexes of which no entry is left.
    ///
    /// # Errors
    /// Those of [`Self::flush`], of [`Self::compact_once`] and of a commit; `Corruption` also if a
    /// damaged file is in quarantine since an earlier compaction, because that file is not at rest.
    pub fn compact_all(&self) -> Result<()> {
        self.work.flush_all()?;
        self.work.recheck_unreadable(|_| true, &mut || Ok(()))?;
        while self.work.compact_once(RestGoal::Complete)? {}
        // Before an error for a full log: the deletions may give the room.
        self.work.versions.delete_obsolete()?;
        // The last step has tried this, and has only logged a failure.
        self.work.forget_retired()?;
        // Fail if an earlier compaction has put a damaged file in quarantine, because that file is
        // not at rest.
        self.work.damage(|_| true).map_or(Ok(()), Err)
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if let Some(background) = self.background.lock().take() {
            background.stop(ARCHIVE_PATIENCE);
        }
    }
}

fn wal_options(options: &Options) -> WalOptions {
    WalOptions {
        segment_size: options.wal_segment_size,
        syncs_in_flight: options.wal_syncs_in_flight,
        direct_io: options.wal_direct_io,
        durable_commits: options.mutable.commit_durability() == CommitDurability::Sync,
        background: options.background_jobs > 0,
        discards: options.ephemeral,
        ..WalOptions::default()
    }
}

/// Opens the blob files that the tree, the log and prepared transactions name, and removes the
/// others.
fn open_blobs(
    versions: &Arc<VersionSet>,
    options: &Options,
    replayed: &Replayed,
) -> Result<Arc<BlobStore>> {
    let ids = Arc::clone(versions);
    let store = versions.source().store().clone();
    let files = BlobStore::new(store, options.blob_file_size, move || ids.new_file_id());
    files.set_moved(versions.blobs_moved());
    let uses = background::blob_gc::uses_recovered(&versions.current(), replayed)?;
    let needed: BTreeSet<u64> = uses.iter().map(|used| used.file).collect();
    // Keep the ids of these blob files from being allocated again: if the files are missing, their
    // ids may be above all ids found on disk.
    if let Some(last) = needed.last() {
        versions.reserve_file_ids(last + 1);
    }
    let on_disk = versions.take_found(FileKind::Blob);
    let failed = |error| warn_of_leftover(&*options.listener, &error);
    let missing = files.recovered(&needed, on_disk, failed);
    let moved = versions.blobs_moved().into_keys();
    let forgotten: Vec<(u64, u64)> = moved
        .filter(|id| !needed.contains(id))
        .map(|id| (id, 0))
        .collect();
    if missing.is_empty() && !forgotten.is_empty() {
        let edit = Edit {
            blobs_moved: forgotten,
            ..Edit::default()
        };
        match versions.apply(edit) {
            // The next open forgets them.
            Err(full) if *full.kind() == ErrorKind::NoSpace => {}
            applied => drop(applied?),
        }
    }
    if !missing.is_empty() {
        // Reads of the missing files fail. Their loss is unexplained, so remove nothing more.
        let what = format!("blob files {missing:?} are missing; no stray file is removed");
        options.listener.log(Severity::Error, &what);
    }
    Ok(Arc::new(files))
}

/// Logs that an unneeded file could not be removed. The next open tries again.
fn warn_of_leftover(listener: &dyn EventListener, error: &Error) {
    let message = format!("a file that nothing needs cannot be removed: {error}");
    listener.log(Severity::Warning, &message);
}

fn report_recovery(work: &BackgroundWork, replayed: &Replayed, took_ms: u64) {
    let message = format!(
        "recovery: {} commits replayed from {} bytes of log in {took_ms} ms, last commit {}, {} prepared \
         transactions{}",
        replayed.commits,
        replayed.end.bytes,
        replayed.last_seqno,
        replayed.prepared.len(),
        if replayed.end.torn_tail {
            ", a torn group at the end of the log was dropped"
        } else {
            ""
        },
    );
    work.options.listener.log(Severity::Note, &message);
}

fn report_start(work: &BackgroundWork, catalog: &Catalog, took_ms: u64) {
    let version = work.versions.current();
    let runs = (0..LEVELS as u8).flat_map(|level| version.runs(level));
    let files = runs.map(|run| run.files.len());
    let message = format!(
        "started in {took_ms} ms: {} tables, {} files with {} bytes",
        catalog.list("").len(),
        files.sum::<usize>(),
        version.size(),
    );
    work.options.listener.log(Severity::Note, &message);
}

/// Seqno of the last visible commit.
pub fn visible(db: &Db) -> Seqno {
    db.cx.super_versions.visible()
}

/// The current version of the tree, for tools and tests.
pub fn current_version(db: &Db) -> Arc<Version> {
    db.work.versions.current()
}
