//! Damaged table files under steady writes: the promises of the quarantine.
//!
//! One thread writes, flushes and compacts a few tables, next to an exact model, and meanwhile
//! files of all levels are damaged, one after the other.
//!
//! - Writes never wait at the stall gate, and L0 stays as shallow as without damage, but for a few
//!   runs over each damaged file.
//! - Each damaged file fails one compaction at most. It is never dropped.
//! - A read of a key outside of the damaged files' ranges is right. Inside, a read is right or
//!   fails with an error that names a damaged file.
//! - All this holds after a restart, too, which forgets the quarantine.

use crate::crash::failure_of;
use crate::ensure;
use crate::failure::Failure;
use crate::tiny_options::{chance, one_of, tiny};
use crate::world::{DIR, StepEnd};
use firn::base::key_range::KeyRange;
use firn::base::options::{CommitDurability, Options};
use firn::base::{Error, ErrorKind, IndexId, Value};
use firn::db::Db;
use firn::env::{Env, FaultEnv, MemEnv, ReadClass};
use firn::iter::{MergeIter, MvccIter, ReadAt};
use firn::read::{ReadPoint, ScanRange, scan_sources};
use firn::store::{FileKind, file_name};
use firn::txn::Isolation;
use firn::version::{DamagedFile, LAST_LEVEL};
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The tables: ids of indexes that the catalog does not know.
const TABLES: [IndexId; 3] = [1_000_000, 1_000_001, 1_000_255];
/// Keys of each table.
const KEYS: u32 = 700;
const ROWS_A_ROUND: usize = 24;
const ROUNDS_BEFORE: usize = 40;
const ROUNDS_AFTER_RESTART: usize = 20;
/// A write that waits longer at the gate has been stopped, microseconds.
const PATIENCE_US: u64 = 1_000_000;
/// Runs over one key beyond those that make a compaction of L0 due, for each damaged file: the file
/// itself, and the runs above it, whose sizes grow by a factor.
const RUNS_OVER_DAMAGE: usize = 9;

/// Counts of the damage that the runs have met.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DamageStats {
    /// Damaged files of L0, of the levels between, and of the last level.
    pub damaged: [u64; 3],
    /// Compactions that failed.
    pub failed_jobs: u64,
    /// Gets that failed.
    pub failed_gets: u64,
    /// Scans of tables that failed.
    pub failed_scans: u64,
    /// Gets that were right although a damaged file may have the key.
    pub right_gets: u64,
    /// The deepest L0.
    pub depth_max: usize,
}

impl DamageStats {
    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        { self.damaged.iter_mut().zip(other.damaged) }.for_each(|(own, other)| *own += other);
        self.failed_jobs += other.failed_jobs;
        self.failed_gets += other.failed_gets;
        self.failed_scans += other.failed_scans;
        self.right_gets += other.right_gets;
        self.depth_max = self.depth_max.max(other.depth_max);
    }
}

struct DamagedDb {
    rng: StdRng,
    disk: MemEnv,
    env: FaultEnv,
    options: Options,
    db: Option<Arc<Db>>,
    model: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Names and key ranges of the damaged files.
    damaged: Vec<(String, KeyRange)>,
    /// Names of the files that have been in quarantine since the database was opened.
    found: BTreeSet<String>,
    /// Compactions that failed since the database was opened.
    failed_jobs: usize,
    stats: DamageStats,
}

fn open(env: &FaultEnv, options: &Options) -> firn::base::Result<Arc<Db>> {
    let env: Arc<dyn Env> = Arc::new(env.clone());
    Db::open(env, Path::new(DIR), options.clone(), None)
}

fn key_of(table: IndexId, n: u32) -> Vec<u8> {
    [table.to_be_bytes(), n.to_be_bytes()].concat()
}

/// Damages one to three files, and writes `rounds` small runs of L0 afterwards.
///
/// # Errors
/// A [`Failure`] that describes the broken promise.
pub fn damage_run(seed: u64, rounds: usize) -> Result<DamageStats, Failure> {
    let run = || -> Result<DamageStats, StepEnd> {
        let mut db = DamagedDb::new(seed)?;
        for _ in 0..ROUNDS_BEFORE {
            db.round()?;
        }
        let files = 1 + seed as usize % 3;
        for n in 0..files {
            db.damage(seed / 3 + n as u64)?;
            for _ in 0..rounds / files {
                db.round()?;
            }
            db.check_reads()?;
        }
        db.restart()?;
        for _ in 0..ROUNDS_AFTER_RESTART {
            db.round()?;
        }
        db.check_reads()?;
        db.end()?;
        Ok(db.stats)
    };
    run().map_err(|stop| failure_of(stop).within(format_args!("damage seed {seed}")))
}

impl DamagedDb {
    fn new(seed: u64) -> Result<Self, StepEnd> {
        let mut rng = StdRng::seed_from_u64(seed ^ 0xda3a6e);
        let disk = MemEnv::new();
        let env = FaultEnv::new(Arc::new(disk.clone()));
        let options = Options {
            block_cache_size: 0,
            target_file_size: one_of(&mut rng, &[1 << 10, 4 << 10]),
            ..tiny(&mut rng, CommitDurability::Lazy)
        };
        let mutable = &options.mutable;
        mutable.blob_threshold.store(1 << 20, Ordering::Relaxed);
        mutable.memory_limit.store(0, Ordering::Relaxed);
        mutable.memtable_size.store(256 << 10, Ordering::Relaxed);
        Ok(Self {
            db: Some(open(&env, &options)?),
            rng,
            disk,
            env,
            options,
            model: BTreeMap::new(),
            damaged: Vec::new(),
            found: BTreeSet::new(),
            failed_jobs: 0,
            stats: DamageStats::default(),
        })
    }

    fn db(&self) -> &Arc<Db> {
        self.db.as_ref().expect("open")
    }

    fn point(&self) -> ReadPoint {
        self.db().context().super_versions.latest()
    }

    /// Flips a bit in an undamaged file, or makes it unreadable. Takes a file of L0 if `part`
    /// modulo 3 is 0, of a level between if it is 1, and of the last level if it is 2. Takes
    /// another level if that has none.
    fn damage(&mut self, part: u64) -> Result<(), StepEnd> {
        let part = (part % 3) as usize;
        if part == 0 {
            self.write()?;
        }
        let part_of = |level: u8| match level {
            0 => 0,
            6 => 2,
            _ => 1,
        };
        let point = self.point();
        let is_damaged = |id: u64| {
            let name = file_name(FileKind::Sst, id);
            self.damaged.iter().any(|(damaged, _)| *damaged == name)
        };
        let files: Vec<_> = { point.super_version.version.files() }
            .filter(|(_, file)| !is_damaged(file.file_id))
            .collect();
        let of_part: Vec<_> = files.iter().filter(|f| part_of(f.0) == part).collect();
        let (level, file) = of_part
            .choose(&mut self.rng)
            .copied()
            .or_else(|| files.choose(&mut self.rng))
            .expect("a file");
        let name = file_name(FileKind::Sst, file.file_id);
        let path = Path::new(DIR).join(&name);
        if chance(&mut self.rng, 25) {
            self.env.fail_reads(&name);
        } else {
            // Most bytes of a file are in its data blocks.
            let bit = self.rng.random_range(0..file.size * 8);
            self.disk.damage(&path, |bytes| {
                bytes[(bit / 8) as usize] ^= 1 << (bit % 8);
            })?;
        }
        self.stats.damaged[part_of(*level)] += 1;
        self.damaged.push((name, file.range()));
        Ok(())
    }

    /// Checks that an error names a damaged file.
    fn blame(&self, error: &Error, what: &str) -> Result<(), StepEnd> {
        let named = match error.kind() {
            ErrorKind::Corruption { file, .. } => {
                self.damaged.iter().any(|(name, _)| file.ends_with(name))
            }
            ErrorKind::Unsupported | ErrorKind::Io { .. } => {
                let mut names = self.damaged.iter();
                names.any(|(name, _)| error.message().contains(name))
            }
            _ => false,
        };
        ensure!(named, "{what} fails with {error:?}");
        Ok(())
    }

    /// Commits some rows of neighbouring keys, and flushes them into a run of L0.
    fn write(&mut self) -> Result<(), StepEnd> {
        let (db, rng) = (Arc::clone(self.db()), &mut self.rng);
        let spread = one_of(rng, &[40, KEYS]);
        let from = rng.random_range(0..KEYS);
        let mut txn = db.new_transaction(db.new_owner(0));
        for _ in 0..ROWS_A_ROUND {
            txn.begin_statement(1, Isolation::RepeatableRead, PATIENCE_US, false);
            txn.before_write()?;
            let n = (from + rng.random_range(0..spread)) % KEYS;
            let key = key_of(one_of(rng, &TABLES), n);
            if chance(rng, 15) {
                txn.delete(&key)?;
                self.model.remove(&key);
            } else {
                let value = vec![rng.random(); rng.random_range(20..80)];
                txn.put(&key, Value::whole(&value))?;
                self.model.insert(key, value);
            }
        }
        txn.commit()?;
        Ok(db.flush()?)
    }

    /// Writes a run of L0, and compacts until the picker finds nothing.
    fn round(&mut self) -> Result<(), StepEnd> {
        self.write()?;
        loop {
            match self.db().compact_once() {
                Ok(true) => {}
                Ok(false) => break,
                Err(error) => {
                    self.blame(&error, "a compaction")?;
                    self.failed_jobs += 1;
                    self.stats.failed_jobs += 1;
                    let again = self.failed_jobs > self.damaged.len();
                    ensure!(!again, "compactions fail again and again: {error:?}");
                }
            }
        }
        let version = Arc::clone(&self.point().super_version.version);
        let depth = version.l0_depth();
        self.stats.depth_max = self.stats.depth_max.max(depth);
        let due = self.options.l0_compaction_runs;
        let depth_max = due + RUNS_OVER_DAMAGE * self.damaged.len();
        ensure!(depth <= depth_max, "L0 is {depth} deep");
        let waits: u64 = self.db().stall_reports().iter().map(|of| of.count).sum();
        ensure!(waits == 0, "writers wait: {:?}", self.db().stall_reports());
        let quarantine = version.quarantine().iter();
        let names = quarantine.map(|of| file_name(FileKind::Sst, of.meta.file_id));
        let now: BTreeSet<String> = names.collect();
        ensure!(
            now.is_superset(&self.found),
            "{:?} became {now:?}",
            self.found
        );
        self.found = now;
        Ok(())
    }

    fn may_fail(&self, key: &[u8]) -> bool {
        self.damaged.iter().any(|(_, range)| range.contains(key))
    }

    /// Compares gets of all keys and scans of all tables with the model.
    fn check_reads(&mut self) -> Result<(), StepEnd> {
        let point = self.point();
        for table in TABLES {
            for n in 0..KEYS {
                self.check_get(&point, &key_of(table, n))?;
            }
            let whole = (key_of(table, 0), key_of(table, KEYS));
            self.check_scan(&point, whole.clone())?;
            // The parts between the damaged files must read.
            let mut lower = whole.0;
            let mut ranges: Vec<KeyRange> = self.damaged.iter().map(|(_, r)| r.clone()).collect();
            ranges.sort_by(|a, b| a.smallest.cmp(&b.smallest));
            for range in ranges {
                let upper = range.smallest.clone().min(whole.1.clone());
                if lower < upper {
                    self.check_scan(&point, (lower.clone(), upper))?;
                }
                lower = lower.max([&range.largest[..], &[0]].concat());
            }
            if lower < whole.1 {
                self.check_scan(&point, (lower, whole.1))?;
            }
        }
        Ok(())
    }

    fn check_get(&mut self, point: &ReadPoint, key: &[u8]) -> Result<(), StepEnd> {
        let found = firn::read::get(
            &point.super_version,
            key,
            point.seqno,
            ReadClass::Point,
            |key, value| key.kind.is_put().then(|| value.head.to_vec()),
        );
        match found {
            Ok(found) => {
                let (found, expected) = (found.flatten(), self.model.get(key));
                ensure!(
                    found.as_ref() == expected,
                    "a get of {key:?} finds {found:?}"
                );
                self.stats.right_gets += u64::from(self.may_fail(key));
            }
            Err(error) => {
                self.blame(&error, "a get")?;
                ensure!(self.may_fail(key), "a get of {key:?} fails: {error:?}");
                self.stats.failed_gets += 1;
            }
        }
        Ok(())
    }

    fn check_scan(
        &mut self,
        point: &ReadPoint,
        (lower, upper): (Vec<u8>, Vec<u8>),
    ) -> Result<(), StepEnd> {
        let range = ScanRange {
            lower: lower.clone(),
            upper: Some(upper.clone()),
        };
        let scan = || -> firn::base::Result<BTreeMap<Vec<u8>, Vec<u8>>> {
            let sources = scan_sources(&point.super_version, &range, ReadClass::Range, None);
            let read_at = ReadAt::snapshot(point.seqno);
            let mut entries = MvccIter::new(MergeIter::new(sources), read_at);
            entries.set_bounds(Some(&range.lower), range.upper.as_deref());
            let mut all = BTreeMap::new();
            let mut on = entries.first()?;
            while on {
                all.insert(entries.user_key().to_vec(), entries.value().head.to_vec());
                on = entries.next()?;
            }
            Ok(all)
        };
        match scan() {
            Ok(found) => {
                let expected = self.model.range(lower.clone()..upper);
                let same = expected.eq(found.iter());
                ensure!(same, "a scan from {lower:?} is wrong");
            }
            Err(error) => {
                self.blame(&error, "a scan")?;
                let inside = |(_, r): &(String, KeyRange)| r.largest >= lower && r.smallest < upper;
                ensure!(
                    self.damaged.iter().any(inside),
                    "a scan from {lower:?} fails: {error:?}"
                );
                self.stats.failed_scans += 1;
            }
        }
        Ok(())
    }

    fn restart(&mut self) -> Result<(), StepEnd> {
        self.db().close()?;
        self.db = None;
        self.db = Some(open(&self.env, &self.options)?);
        self.failed_jobs = 0;
        self.found.clear();
        Ok(())
    }

    /// A full compaction reports the damage, and brings all else to rest.
    fn end(&mut self) -> Result<(), StepEnd> {
        // Each damaged file fails one compaction.
        for _ in 0..=self.damaged.len() {
            if let Err(error) = self.db().compact_all() {
                self.blame(&error, "a full compaction")?;
            }
        }
        let version = Arc::clone(&self.point().super_version.version);
        for (level, file) in version.files() {
            let near = |of: &DamagedFile| of.meta.overlaps(&file.smallest, &file.largest);
            let over_damage = version.quarantine().iter().any(near);
            let name = file_name(FileKind::Sst, file.file_id);
            ensure!(
                usize::from(level) == LAST_LEVEL || over_damage,
                "{name} stays in L{level}"
            );
        }
        self.check_reads()
    }
}
