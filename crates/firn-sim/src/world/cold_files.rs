//! Cold files: an object store with faults beside the database. It outlives the crashes of the
//! process, and requests of a dead process may be executed after them.

use super::check::DatabaseContents;
use super::checkpoint::KeptCheckpoint;
use super::{DIR, End, StepEnd, World, is_refusal};
use crate::ensure;
use firn::backup::RemoteInCheckpoint;
use firn::base::options::{CommitDurability, Tier};
use firn::base::{ErrorKind, Value};
use firn::db::{Attached, Db};
use firn::env::{Env, MemEnv};
use firn::store::RemoteFiles;
use firn::txn::Isolation;
use firn::version::{FileLocation, ManifestState};
use firn_objects::mem::{Faults, MemFiles, MemObjects, VirtualClock};
use firn_objects::{Clock, Deadlines, Job, Jobs, ObjectStore};
use firn_tier::{ColdStore, ColdStoreParts, IDENTITY, OWNER, OwnerFile, Ownership, object_name};
use rand::Rng;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

const MINUTE_US: u64 = 60_000_000;

/// Steps of a hundred that are about cold files.
const PERCENT: u32 = 8;

/// Jobs that run where they are submitted.
struct Inline;

impl Jobs for Inline {
    fn submit(&self, job: Job) {
        job();
    }
}

/// The part of a world that lies beside the data directory.
pub(super) struct ColdSide {
    clock: Arc<VirtualClock>,
    objects: Arc<MemObjects>,
    /// The file cache and the file of the owner.
    files: Arc<MemFiles>,
    /// The store as the process of the database has it.
    process: Mutex<Option<Arc<ColdStore>>>,
}

/// The parts of a world for which time passes.
struct Passing {
    env: MemEnv,
    clock: Arc<VirtualClock>,
    process: Option<Arc<ColdStore>>,
}

impl Passing {
    /// Time passes, in which the server shows that it lives.
    fn pass(&self, us: u64) {
        let mut left = us;
        while left > 0 {
            let step = left.min(MINUTE_US);
            self.stop_for(step);
            if let Some(process) = &self.process {
                process.beat();
            }
            left -= step;
        }
    }

    /// Time passes in which the server is stopped.
    fn stop_for(&self, us: u64) {
        self.env.advance_clock(us);
        self.clock.sleep_us(us);
    }
}

impl ColdSide {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(VirtualClock::new(seed));
        let store_clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&clock);
        Self {
            objects: Arc::new(MemObjects::new(seed, store_clock)),
            clock,
            files: Arc::new(MemFiles::new(seed, &["/"])),
            process: Mutex::default(),
        }
    }

    /// A copy of the directory as it has come to another machine.
    fn of_copy(&self, seed: u64) -> Self {
        Self {
            clock: Arc::clone(&self.clock),
            objects: Arc::clone(&self.objects),
            files: Arc::new(MemFiles::new(seed, &["/"])),
            process: Mutex::default(),
        }
    }

    /// The store of the process of the database.
    pub(super) fn attach_process(&self, env: &MemEnv) -> Arc<ColdStore> {
        let process = self.attach(env, Some("/cache".into()));
        *self.process.lock().expect("no panic") = Some(Arc::clone(&process));
        process
    }

    /// The process of the database is gone; it may say so.
    pub(super) fn end_process(&self, says_so: bool) {
        let process = self.process.lock().expect("no panic").take();
        if let Some(process) = process.filter(|_| says_so) {
            process.stop();
        }
    }

    /// The store as a new process has it.
    pub(super) fn attach(&self, env: &MemEnv, cache_dir: Option<PathBuf>) -> Arc<ColdStore> {
        let objects: Arc<dyn ObjectStore> = Arc::<MemObjects>::clone(&self.objects);
        ColdStore::new(ColdStoreParts {
            name: "mem://store".to_owned(),
            store: Box::new(move || Ok(Arc::clone(&objects))),
            shares_disk_with: Box::new(|_| false),
            owner_file: OwnerFile {
                files: Arc::<MemFiles>::clone(&self.files),
                path: "/STORE".into(),
                place: "here".to_owned(),
                store: "mem://store".to_owned(),
            },
            clock: Arc::<VirtualClock>::clone(&self.clock),
            deadlines: Deadlines::default(),
            env: Arc::new(env.clone()),
            cache_files: Arc::<MemFiles>::clone(&self.files),
            cache_dir,
            cache_bytes: 2 << 20,
            close_patience: Duration::from_secs(60),
            read_jobs: Arc::new(Inline),
            upload_jobs: Arc::new(Inline),
        })
    }

    /// The process ends without a close.
    pub(super) fn die(&self, end: End) {
        self.end_process(false);
        if end == End::PowerCut {
            self.files.crash();
        }
    }
}

impl World {
    /// As [`Self::new`], with an object store to and from which files move.
    pub fn with_store(seed: u64, flush_mode: CommitDurability) -> Self {
        let world = Self::new(seed, flush_mode);
        let mutable = &world.options.mutable;
        mutable.cold_after_s.store(0, Ordering::Relaxed);
        mutable.set_tier(Tier::Cold);
        Self {
            cold: Some(ColdSide::new(seed)),
            ..world
        }
    }

    /// Whether the next step is one about cold files. Draws nothing without a store.
    pub(super) fn is_tier_step(&mut self) -> bool {
        self.cold.is_some() && self.lucky(PERCENT)
    }

    /// Faults that end in time: a request is tried for half a minute, and none that a statement
    /// waits for may fail.
    fn random_faults(&mut self) -> Faults {
        if self.lucky(30) {
            return Faults::default();
        }
        Faults {
            flip_read: 0,
            timeout_us: 1_000_000,
            ..Faults::all(self.rng.random_range(1..50))
        }
    }

    pub(super) fn tier_step(&mut self) -> Result<(), StepEnd> {
        match self.rng.random_range(0..24) {
            0..=1 => {
                let tier = match self.lucky(60) {
                    true => Tier::Cold,
                    false => Tier::Local,
                };
                self.options.mutable.set_tier(tier);
            }
            2 => {
                let faults = self.random_faults();
                self.objects().set_faults(faults);
            }
            3..=5 => {
                let minutes = self.rng.random_range(0..80);
                self.pass(minutes * MINUTE_US);
            }
            6 => self.passing().stop_for(24 * 60 * MINUTE_US),
            20 => self.checkpoint_while_files_come_back()?,
            21 => self.named_checkpoint()?,
            22 => self.move_by_room()?,
            23 => self.second_owner()?,
            _ => {
                for _ in 0..self.rng.random_range(1..12) {
                    self.move_one()?;
                }
            }
        }
        Ok(())
    }

    /// A step of the mover. It may meet a store that fails.
    fn move_one(&mut self) -> Result<bool, StepEnd> {
        match self.db().tier_step() {
            Ok(moved) => {
                self.stats.moved += u64::from(moved);
                Ok(moved)
            }
            Err(error) if error.is_unreachable() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn objects(&self) -> &MemObjects {
        &self.cold().objects
    }

    fn cold(&self) -> &ColdSide {
        self.cold.as_ref().expect("there is a store")
    }

    fn passing(&self) -> Passing {
        Passing {
            env: self.env.clone(),
            clock: Arc::clone(&self.cold().clock),
            process: self.cold().process.lock().expect("no panic").clone(),
        }
    }

    fn pass(&self, us: u64) {
        self.passing().pass(us);
    }

    /// A checkpoint copies files of the store, and meanwhile they come back, and the time passes
    /// after which their objects go.
    fn checkpoint_while_files_come_back(&mut self) -> Result<(), StepEnd> {
        self.next_name += 1;
        let dir = PathBuf::from(format!("/h{}", self.next_name));
        let (db, passing) = (Arc::clone(self.db()), self.passing());
        let mutable = Arc::clone(&self.options.mutable);
        let tier = mutable.tier();
        let (mut calls, at) = (0, self.rng.random_range(1..4));
        let mut each = |_, _| {
            calls += 1;
            if calls != at {
                return Ok(());
            }
            mutable.set_tier(Tier::Local);
            for _ in 0..3 {
                while match db.tier_step() {
                    Err(error) if error.is_unreachable() => false,
                    moved => moved?,
                } {}
                passing.pass(11 * MINUTE_US);
            }
            Ok(())
        };
        let flush = self.lucky(50);
        let remote = RemoteInCheckpoint::Copied(&mut each);
        let made = self.db().checkpoint_with(&dir, flush, remote);
        self.stats.long_copies += u64::from(calls >= at);
        self.options.mutable.set_tier(tier);
        made?;
        self.keep_checkpoint(dir)
    }

    /// Makes a checkpoint that leaves files in the store, or copies and removes the last one, as
    /// `firn backup` does some time later.
    fn named_checkpoint(&mut self) -> Result<(), StepEnd> {
        if let Some(named) = self.named.take() {
            let seen = self.look_with_store(&named.dir)?;
            ensure!(
                named.is_shown_by(&seen),
                "the checkpoint {} that names objects has changed",
                named.dir.display()
            );
            for name in self.env.list_dir(&named.dir)? {
                self.env.remove(&named.dir.join(name))?;
            }
            self.env.remove_dir(&named.dir)?;
            return Ok(());
        }
        self.next_name += 1;
        let dir = PathBuf::from(format!("/n{}", self.next_name));
        let flush = self.lucky(50);
        { self.db() }.checkpoint_with(&dir, flush, RemoteInCheckpoint::Named)?;
        self.stats.named += 1;
        let now = self.history.now();
        self.history.acknowledge(now);
        let holds = self.look_with_store(&dir)?;
        if let Some(what) = self.difference(&holds, now, self.history.side()) {
            ensure!(false, "the checkpoint that names objects is wrong: {what}");
        }
        self.named = Some(KeptCheckpoint { dir, holds });
        Ok(())
    }

    /// Reads a checkpoint and the objects that it names.
    fn look_with_store(&self, dir: &Path) -> Result<DatabaseContents, StepEnd> {
        let disk = self.env.copy();
        disk.unfill();
        let attached = self.attached(&disk);
        let env: Arc<dyn Env> = Arc::new(disk);
        let db = Db::open_with(env, dir, self.options.clone(), None, attached)?;
        self.see_in(&db)
    }

    /// The disk runs full for a while, and files leave that were just read.
    fn move_by_room(&mut self) -> Result<(), StepEnd> {
        let mutable = Arc::clone(&self.options.mutable);
        let tier = mutable.tier();
        mutable.set_tier(Tier::Cold);
        mutable.cold_after_s.store(1 << 40, Ordering::Relaxed);
        self.env.fill();
        let used = self.env.used();
        self.env.make_room(self.rng.random_range(0..used / 8));
        let mut done = Ok(());
        for _ in 0..self.rng.random_range(1..20) {
            match self.db().tier_step() {
                Ok(moved) => self.stats.by_room += u64::from(moved),
                Err(error) if error.is_unreachable() || is_refusal(&error) => {}
                Err(error) => {
                    done = Err(error.into());
                    break;
                }
            }
            self.pass(1_000_000);
        }
        self.env.unfill();
        self.db().recheck_full_disk();
        mutable.cold_after_s.store(0, Ordering::Relaxed);
        mutable.set_tier(tier);
        done
    }

    /// A copy of the directory is opened elsewhere, with the same store. It changes nothing there.
    fn second_owner(&mut self) -> Result<(), StepEnd> {
        if !self.objects().contents().contains_key(OWNER) {
            // The first one that moves a file owns the store.
            return Ok(());
        }
        let disk = self.env.copy();
        disk.unfill();
        let seed = self.rng.random();
        let side = self.cold().of_copy(seed);
        let store = side.attach(&disk, None);
        let attached = Attached {
            remote: Some(Arc::<ColdStore>::clone(&store)),
            ..Attached::default()
        };
        let env: Arc<dyn Env> = Arc::new(disk.clone());
        let copy = Db::open_with(env, Path::new(DIR), self.options.clone(), None, attached)?;
        for n in 0..20u64 {
            let mut txn = copy.new_transaction(copy.new_owner(0));
            txn.begin_statement(n + 1, Isolation::RepeatableRead, 0, true);
            let key = [&super::LOOSE[0].to_be_bytes()[..], &n.to_be_bytes()].concat();
            txn.put(&key, Value::split(&[n as u8; 900], b""))?;
            txn.commit()?;
        }
        match copy.compact_all() {
            Err(error) if !error.is_unreachable() => return Err(error.into()),
            _ => {}
        }
        for _ in 0..3 {
            let _ = copy.tier_step();
            disk.advance_clock(11 * MINUTE_US);
            self.pass(11 * MINUTE_US);
        }
        let stats = store.stats();
        ensure!(
            stats.ownership != Ownership::Ours
                && (stats.uploads.stored, stats.deletes.requests) == (0, 0),
            "a copy of the directory has changed the store: {stats:?}"
        );
        self.stats.copies += 1;
        Ok(())
    }

    fn manifest(&self) -> Result<ManifestState, StepEnd> {
        let loaded = firn::version::load(&self.env, Path::new(DIR))?;
        Ok(loaded.map(|loaded| loaded.state).unwrap_or_default())
    }

    /// Each remote file has its object, with its bytes.
    ///
    /// # Errors
    /// [`StepEnd::Failed`] if it has not.
    pub fn check_objects(&self) -> Result<(), StepEnd> {
        let objects = self.objects().contents();
        for (id, placed) in &self.manifest()?.files {
            if placed.meta.location == FileLocation::ObjectStore {
                let object = objects.get(&object_name(*id, placed.meta.checksum));
                let sum = object.map(|bytes| xxh3_64(bytes));
                ensure!(
                    sum == Some(placed.meta.checksum),
                    "the object of file {id} is missing, or another one"
                );
            }
        }
        Ok(())
    }

    /// Lets the store recover and time pass, until each leftover must be gone. Then the store has
    /// the objects of remote files, and no other one.
    ///
    /// # Errors
    /// [`StepEnd::Engine`] if a call of the database fails; [`StepEnd::Failed`] if an object is
    /// lost or left over.
    pub fn check_swept(&mut self) -> Result<(), StepEnd> {
        self.objects().set_faults(Faults::default());
        self.end_sessions();
        self.sessions.clear();
        for round in 0..8 {
            let mut waited = false;
            loop {
                match self.db().tier_step() {
                    Ok(true) => {}
                    Ok(false) => break,
                    // After a crash, changes wait for two minutes.
                    Err(error) if *error.kind() == ErrorKind::Unreachable && !waited => {
                        waited = true;
                        self.pass(3 * MINUTE_US);
                    }
                    Err(error) => return Err(error.into()),
                }
            }
            self.passing().stop_for(25 * 60 * MINUTE_US);
            // Files that have left the tree go with the last view that has them.
            if round < 4 {
                self.db().compact_all()?;
            }
        }
        self.check_objects()?;
        let state = self.manifest()?;
        ensure!(
            state.deferred.is_empty(),
            "objects are still to be deleted: {:?}",
            state.deferred
        );
        let name = |id: &u64| object_name(*id, state.files[id].meta.checksum);
        // A stray of a file that is local now stays until the file goes.
        let mut named: BTreeSet<String> = state.files.keys().map(name).collect();
        named.extend([IDENTITY.to_owned(), OWNER.to_owned()]);
        let there = self.objects().contents().into_keys();
        let strays: Vec<String> = there.filter(|name| !named.contains(name)).collect();
        ensure!(strays.is_empty(), "objects are left over: {strays:?}");
        ensure!(
            self.objects().uploads() == 0,
            "uploads in parts are left over"
        );
        Ok(())
    }
}
