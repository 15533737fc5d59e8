//! Cold files: an object store with faults beside the database. It outlives the crashes of the
//! process, and requests of a dead process may be executed after them.

use super::{DIR, End, StepEnd, World};
use crate::ensure;
use firn::base::ErrorKind;
use firn::base::options::{CommitDurability, Tier};
use firn::env::MemEnv;
use firn::version::{FileLocation, ManifestState};
use firn_objects::mem::{Faults, MemFiles, MemObjects, VirtualClock};
use firn_objects::{Clock, Deadlines, Job, Jobs, ObjectStore};
use firn_tier::{ColdStore, ColdStoreParts, IDENTITY, OWNER, OwnerFile, object_name};
use rand::Rng;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
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

/// What lies beside the data directory.
pub(super) struct ColdSide {
    clock: Arc<VirtualClock>,
    objects: Arc<MemObjects>,
    /// The file cache and the file of the owner.
    files: Arc<MemFiles>,
}

impl ColdSide {
    fn new(seed: u64) -> Self {
        let clock = Arc::new(VirtualClock::new(seed));
        let store_clock: Arc<dyn Clock> = Arc::<VirtualClock>::clone(&clock);
        Self {
            objects: Arc::new(MemObjects::new(seed, store_clock)),
            clock,
            files: Arc::new(MemFiles::new(seed, &["/"])),
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
        match self.rng.random_range(0..20) {
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
            6 => self.pass(24 * 60 * MINUTE_US),
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
        &self.cold.as_ref().expect("there is a store").objects
    }

    fn pass(&self, us: u64) {
        self.env.advance_clock(us);
        if let Some(cold) = &self.cold {
            cold.clock.sleep_us(us);
        }
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
            self.pass(25 * 60 * MINUTE_US);
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
