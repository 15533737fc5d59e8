//! A database under random work, next to its model.
//!
//! One thread does everything, background work included, so a run repeats exactly: the same seed
//! gives the same calls, and the n-th sync is the same sync. Each result is compared with the model
//! at once. A call that fails, because the environment died or because a fault was injected, ends
//! the step with [`StepEnd::Engine`]; the owner of the world then crashes it or inspects it.
//!
//! Rejected: threads. An exact model needs the order of commits, and a failure needs a seed that
//! repeats it; `bank` and `concurrent` cover the races.

mod bit_rot;
mod blob_values;
mod check;
mod checkpoint;
mod cold_files;
mod ddl;
mod point_in_time;
mod power;
mod read;
mod session;
mod write;

use crate::failure::Failure;
use crate::model::{Event, Model};
use crate::tiny_options::{chance, one_of, tiny};
pub use bit_rot::FlipOutcome;
use checkpoint::KeptCheckpoint;
use cold_files::ColdSide;
use firn::base::options::{CommitDurability, Options};
use firn::base::{Error, ErrorKind, IndexId, Result};
use firn::db::{Attached, Db};
use firn::env::{Env, MemEnv};
use firn::txn::LockMode;
pub use power::End;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use session::Session;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

/// Index ids of entries that belong to no table. The catalog assigns ids far below them.
const LOOSE: [IndexId; 3] = [1_000_000, 1_000_001, 1_000_255];

/// Directory of the database.
pub const DIR: &str = "/db";

/// Why a step ended early.
#[derive(Debug)]
pub enum StepEnd {
    /// A call of the database failed: the environment died, or a fault was injected.
    Engine(Error),
    /// A promise is broken.
    Failed(Failure),
}

impl From<Failure> for StepEnd {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

impl From<Error> for StepEnd {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

/// Counts of a world's work.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stats {
    /// Steps taken.
    pub steps: u64,
    /// Commits, prepared ones included.
    pub commits: u64,
    /// Changes of the catalog.
    pub ddl: u64,
    /// Keys compared with the model.
    pub compared: u64,
    /// Power cuts and kills, those during recovery included.
    pub crashes: u64,
    /// Events that crashes took back, all of them unacknowledged.
    pub lost: u64,
    /// Prepared transactions found by recoveries.
    pub prepared: u64,
    /// Checkpoints made and opened.
    pub checkpoints: u64,
    /// Recoveries of a backup to a point in the log archive.
    pub points: u64,
    /// Files moved to or from the object store.
    pub moved: u64,
    /// Of these, because the disk ran full.
    pub by_room: u64,
    /// Copying checkpoints during which files came back.
    pub long_copies: u64,
    /// Checkpoints that named objects.
    pub named: u64,
    /// Copies of the directory that were opened beside it.
    pub copies: u64,
}

impl Stats {
    /// Adds the counts of another world.
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.commits += other.commits;
        self.ddl += other.ddl;
        self.compared += other.compared;
        self.crashes += other.crashes;
        self.lost += other.lost;
        self.prepared += other.prepared;
        self.checkpoints += other.checkpoints;
        self.points += other.points;
        self.moved += other.moved;
        self.by_room += other.by_room;
        self.long_copies += other.long_copies;
        self.named += other.named;
        self.copies += other.copies;
    }
}

/// Wraps the environment of a world, to inject faults. Called at each start of the database.
pub type Wrap = Box<dyn Fn(&MemEnv) -> Arc<dyn Env>>;

/// A database, its model, and the sessions that use it.
pub struct World {
    rng: StdRng,
    env: MemEnv,
    wrap: Wrap,
    options: Options,
    /// The object store, if the database has one.
    cold: Option<ColdSide>,
    db: Option<Arc<Db>>,
    history: Model,
    sessions: Vec<Session>,
    /// Holders of each row lock: owner number and mode, by key.
    locks: BTreeMap<Vec<u8>, BTreeMap<u64, LockMode>>,
    /// For each prepared transaction that no session owns, by xid: the number under which it owns
    /// its row locks.
    detached: BTreeMap<Vec<u8>, u64>,
    next_owner: u64,
    next_name: u64,
    /// Number of keys of an index that the work uses.
    keys: u32,
    /// Checkpoints on disk, with their contents.
    checkpoints: Vec<KeptCheckpoint>,
    /// A checkpoint that names objects, of the process that runs.
    named: Option<KeptCheckpoint>,
    /// Backups and noted states, while the log is archived.
    points: point_in_time::RecoveryPoints,
    /// Whether SSTs that belong neither to the tree nor to a transaction may be on disk until the
    /// next start, because the call that should have removed them may have failed.
    has_stray_files: bool,
    /// Whether the environment may die at a change of names during an open.
    dies_at_names: bool,
    /// Whether the log may have no segment, because the disk is full and the reserve is used up.
    may_lack_log: bool,
    /// By counter id and generation: the largest value that the counter has had in this generation,
    /// durable or only in memory. Setting a counter to a value begins a new generation; raising it
    /// does not.
    counters_most: BTreeMap<(u64, u64), u64>,
    stats: Stats,
}

/// Whether an error says that the call had no effect and may be repeated.
pub fn is_refusal(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::NoDescriptor)
}

impl World {
    /// A world without a database; [`Self::recover`] creates it.
    pub fn new(seed: u64, flush_mode: CommitDurability) -> Self {
        Self::with_env(seed, flush_mode, Box::new(|env| Arc::new(env.clone())))
    }

    /// As [`Self::new`], with a wrapper around the environment.
    pub fn with_env(seed: u64, flush_mode: CommitDurability, wrap: Wrap) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        let options = tiny(&mut rng, flush_mode);
        let keys = one_of(&mut rng, &[12, 60, 300]);
        let env = MemEnv::new();
        env.set_log_sectors(seed % 2 == 1);
        Self {
            rng,
            env,
            wrap,
            options,
            cold: None,
            db: None,
            history: Model::default(),
            sessions: Vec::new(),
            locks: BTreeMap::new(),
            detached: BTreeMap::new(),
            next_owner: 1,
            next_name: 1,
            keys,
            checkpoints: Vec::new(),
            named: None,
            points: point_in_time::RecoveryPoints::default(),
            counters_most: BTreeMap::new(),
            has_stray_files: false,
            dies_at_names: false,
            may_lack_log: false,
            stats: Stats::default(),
        }
    }

    /// The counts so far.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The environment since the last crash.
    pub fn env(&self) -> &MemEnv {
        &self.env
    }

    /// Whether the database is open: a failed start leaves none.
    pub fn is_open(&self) -> bool {
        self.db.is_some()
    }

    /// The database.
    ///
    /// # Panics
    /// Before [`Self::recover`].
    pub fn db(&self) -> &Arc<Db> {
        self.db.as_ref().expect("recovered")
    }

    /// The store and cache of a process beside that of the database, on the disk `env`. No two
    /// processes have one directory as their cache.
    fn attached(&self, env: &MemEnv) -> Attached {
        let cold = self.cold.as_ref().map(|cold| cold.attach(env, None));
        Attached {
            remote: cold.map(|cold| cold as _),
            ..Attached::default()
        }
    }

    fn start(&self) -> Result<Arc<Db>> {
        let cold = self.cold.as_ref();
        let cold = cold.map(|cold| cold.attach_process(&self.env));
        let attached = Attached {
            remote: cold.map(|cold| cold as _),
            ..Attached::default()
        };
        let env = (self.wrap)(&self.env);
        Db::open_with(env, Path::new(DIR), self.options.clone(), None, attached)
    }

    /// Call this before calls of the environment, removals among them, are made to fail. Until the
    /// next start, SSTs that belong neither to the tree nor to a transaction may be on disk.
    pub fn expect_strays(&mut self) {
        self.has_stray_files = true;
    }

    /// Takes `n` steps, or fewer if a step ends early with an error.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if a call of the database fails; [`StepEnd::Failed`] if a result differs
    /// from the model.
    pub fn steps(&mut self, n: usize) -> Result<(), StepEnd> {
        (0..n).try_for_each(|_| self.step())
    }

    fn step(&mut self) -> Result<(), StepEnd> {
        self.stats.steps += 1;
        if self.is_tier_step() {
            return self.tier_step();
        }
        match self.rng.random_range(0..1000) {
            // After a fault there may be no session left.
            0..900 if self.sessions.is_empty() => Ok(()),
            0..900 => {
                let at = self.rng.random_range(0..self.sessions.len());
                self.session_step(at)
            }
            900..930 => self.flush(),
            930..955 => {
                self.compact_once()?;
                self.collect_blobs()
            }
            955..958 => self.compact_all(),
            958..963 => self.sync_log(),
            963..985 => self.ddl(),
            985..990 => self.decide_detached(),
            990..992 => self.persist_counter(),
            992 => self.set_counter(),
            993..996 => self.check_latest(),
            996..998 => self.reopen(),
            998 => self.checkpoint(),
            _ => {
                self.forget();
                self.env.advance_clock(1_000_000);
                Ok(())
            }
        }
    }

    /// Records an event that succeeded, and marks it as what the commit durability promises: as
    /// durable, as handed to the operating system, or as neither.
    fn record(&mut self, event: Event) {
        let at = self.history.record(event);
        match self.options.mutable.commit_durability() {
            CommitDurability::Sync => self.history.acknowledge(at),
            CommitDurability::Write => self.history.acknowledge_written(at),
            CommitDurability::Lazy => {}
        }
    }

    /// Records an event, and acknowledges it if `result` is `Ok`.
    fn record_if<T>(&mut self, result: Result<T>, event: Event) -> Result<T, StepEnd> {
        match result {
            Ok(done) => {
                self.record(event);
                Ok(done)
            }
            Err(_) => self.record_unacknowledged(result, event),
        }
    }

    /// Records an event without acknowledgement. `NoSpace` and `NoDescriptor` say that the event
    /// did not happen; after any other error its outcome is unknown.
    fn record_unacknowledged<T>(&mut self, result: Result<T>, event: Event) -> Result<T, StepEnd> {
        match &result {
            Ok(_) => {
                self.history.record(event);
            }
            Err(error) if is_refusal(error) => {}
            Err(_) => self.history.attempt(event),
        }
        Ok(result?)
    }

    fn flush(&mut self) -> Result<(), StepEnd> {
        self.db().flush()?;
        // A flush syncs the log up to the last entry in the memtables.
        let at = self.history.last_write();
        self.history.acknowledge(at);
        self.db().bound_log()?;
        Ok(())
    }

    fn compact_once(&mut self) -> Result<(), StepEnd> {
        self.db().compact_once()?;
        Ok(())
    }

    fn compact_all(&mut self) -> Result<(), StepEnd> {
        self.db().compact_all()?;
        let at = self.history.last_write();
        self.history.acknowledge(at);
        if self.oldest_read().is_none() {
            self.check_rest()?;
        }
        Ok(())
    }

    fn sync_log(&mut self) -> Result<(), StepEnd> {
        self.db().sync_log()?;
        let now = self.history.now();
        self.history.acknowledge(now);
        Ok(())
    }

    /// Makes the model forget the moments that no session reads and no crash brings back.
    fn forget(&mut self) {
        let oldest = self.oldest_read().unwrap_or(self.history.now());
        self.history
            .forget_before(oldest.min(self.history.durable()));
    }

    /// All indexes that are not dropped.
    fn live_indexes(&self) -> Vec<IndexId> {
        let tables = self.history.side().tables.values().flatten().copied();
        LOOSE.into_iter().chain(tables).collect()
    }

    /// A random key of a live index, from a small universe: some keys are prefixes of others, some
    /// share a long prefix, one is empty.
    fn random_key(&mut self) -> Vec<u8> {
        let indexes = self.live_indexes();
        let index = one_of(&mut self.rng, &indexes);
        // In half of the cases choose one of twelve keys, so that these keys get many versions.
        let keys = if self.lucky(50) { 12 } else { self.keys };
        let n = self.rng.random_range(0..keys);
        let mut key = index.to_be_bytes().to_vec();
        match n % 4 {
            0 if n == 0 => {}
            0 => key.extend_from_slice(format!("{n:04}").as_bytes()),
            1 => key.extend_from_slice(format!("{:04}\0", n - 1).as_bytes()),
            2 => key.extend_from_slice(format!("{:0>48}", n / 8).as_bytes()),
            _ => {
                key.extend(std::iter::repeat_n(0xff, (n % 5) as usize));
                key.extend_from_slice(&n.to_be_bytes()[2..]);
            }
        }
        key
    }

    fn new_xid(&mut self) -> Vec<u8> {
        self.next_name += 1;
        format!("xid {}", self.next_name).into_bytes()
    }

    fn lucky(&mut self, percent: u32) -> bool {
        chance(&mut self.rng, percent)
    }
}
