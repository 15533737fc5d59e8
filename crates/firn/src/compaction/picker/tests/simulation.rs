//! Random loads on a tree without files: the real picker, drop rule and splitter, with entries in
//! memory. After each step the version's invariants hold; reads, done as the reader does them, give
//! what was written; and without new writes the picker comes to rest.

use super::*;
use crate::base::{InternalKey, Kind, Value};
use crate::compaction::job::{Below, JobStats, filter};
use crate::compaction::testing::{Entry, VecIter, entry, meta_of, no_files};
use crate::compaction::{DropRule, Snapshots, Splitter};
use crate::iter::MergeIter;
use crate::version::{Edit, FileSource, State};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, HashMap};

mod loads;

const UPPER_BYTES: u64 = 100;
const LAST_BYTES: u64 = 60;

struct Sim {
    rng: StdRng,
    state: State,
    version: Arc<Version>,
    source: Arc<FileSource>,
    data: HashMap<u64, Vec<Entry>>,
    model: BTreeMap<Vec<u8>, Vec<(Seqno, Kind)>>,
    seqno: Seqno,
    snapshots: Vec<Seqno>,
    retired: Retired,
    running: Running,
    flights: Vec<Flight>,
    options: Options,
    written: u64,
    flushed: u64,
}

/// A job under way, with what it saw when it began.
struct Flight {
    job: Job,
    ticket: u64,
    version: Arc<Version>,
    reads: Snapshots,
}

impl Sim {
    fn new(seed: u64) -> Self {
        Self {
            rng: StdRng::seed_from_u64(seed),
            state: State::default(),
            version: Arc::default(),
            source: no_files(),
            data: HashMap::new(),
            model: BTreeMap::new(),
            seqno: 0,
            snapshots: Vec::new(),
            retired: Retired::new(),
            running: Running::default(),
            flights: Vec::new(),
            options: Options {
                target_file_size: 2000,
                base_level_size: 8000,
                l0_compaction_runs: 4,
                ..Options::default()
            },
            written: 0,
            flushed: 0,
        }
    }

    fn reads(&self) -> Snapshots {
        Snapshots::new(self.seqno, self.snapshots.iter().copied())
    }

    fn apply(&mut self, edit: &Edit) {
        assert_eq!(self.state.objection(edit), None);
        self.version = Arc::new(self.version.with(edit, &self.source));
        assert_eq!(self.version.check_all(), None);
        self.state.apply(edit);
    }

    /// Writes what the rule keeps of `inputs` into files of a level, as seen from `version`.
    fn write(
        &mut self,
        version: &Version,
        reads: &Snapshots,
        inputs: Vec<Vec<Entry>>,
        level: u8,
        boundaries: u8,
    ) -> Vec<FileMeta> {
        let retired = self.retired.clone();
        let mut rule = DropRule::new(reads, &retired, level == LAST);
        let mut below = Below::new(version, level);
        let next = &version.levels[usize::from(boundaries) - 1].files;
        let next = next.iter().map(|f| f.smallest.clone()).collect();
        let mut splitter = Splitter::new(self.options.target_file_size, next);
        let mut files: Vec<Vec<Entry>> = Vec::new();
        let bytes = if level == LAST {
            LAST_BYTES
        } else {
            UPPER_BYTES
        };
        let keep = |key: InternalKey<'_>, value: Value<'_>, _cached: bool| {
            let wrote = value.head.try_into().unwrap_or(key.seqno.to_le_bytes());
            let entry = (key.user_key.to_vec(), key.seqno, key.kind, wrote);
            let file = files.last().filter(|file| {
                let last = &file[file.len() - 1].0;
                let size = file.len() as u64 * bytes;
                last == key.user_key || !splitter.cut(last, key.user_key, size)
            });
            match file {
                Some(_) => files.last_mut().unwrap().push(entry),
                None => files.push(vec![entry]),
            }
            Ok(())
        };
        let mut source = MergeIter::new(inputs.into_iter().map(VecIter::new).collect());
        let nothing_below = |key: &[u8]| level != 0 && below.is_empty(key);
        let mut stats = JobStats::default();
        filter(
            &mut source,
            &mut rule,
            nothing_below,
            |_| Ok(()),
            &mut stats,
            keep,
        )
        .unwrap();
        let mut metas = Vec::new();
        for file in files {
            let id = self.state.next_file_id;
            self.state.next_file_id += 1;
            let size = file.len() as u64 * bytes;
            self.written += size;
            metas.push(meta_of(id, &file, size, level == LAST));
            self.data.insert(id, file);
        }
        metas
    }

    fn flush(&mut self, batch: Vec<(Vec<u8>, Kind)>) {
        let mut entries = Vec::new();
        for (key, kind) in batch {
            self.seqno += 1;
            self.model
                .entry(key.clone())
                .or_default()
                .insert(0, (self.seqno, kind));
            entries.push(entry(key, self.seqno, kind));
        }
        let version = self.version.clone();
        let base = Shape::of(&version, self.options.base_level_size).base;
        let before = self.written;
        let metas = self.write(&version, &self.reads(), vec![entries], 0, base);
        self.flushed += self.written - before;
        let run = self.state.next_run_number;
        let added = metas.into_iter().map(|meta| (0, run, meta)).collect();
        self.apply(&Edit {
            added,
            ..Edit::default()
        });
    }

    fn pick(&self, idle: bool) -> Option<Job> {
        pick(&Picking {
            version: &self.version,
            options: &self.options,
            running: &self.running,
            retired: &self.retired,
            oldest_read: self.reads().oldest(),
            reported: &[],
            rest: if idle { Rest::Complete } else { Rest::No },
        })
    }

    /// Begins a job, if there is one.
    fn begin(&mut self, idle: bool) -> bool {
        let Some(job) = self.pick(idle) else {
            return false;
        };
        self.flights.push(Flight {
            ticket: self.running.begin(&job),
            job,
            version: self.version.clone(),
            reads: self.reads(),
        });
        true
    }

    /// Ends one of the jobs under way.
    fn finish(&mut self) {
        let at = self.rng.random_range(0..self.flights.len());
        let flight = self.flights.swap_remove(at);
        let job = &flight.job;
        let edit = job.edit_without_output().unwrap_or_else(|| {
            let entries = |input: &Input| {
                let files = input.files.iter();
                files.flat_map(|f| self.data[&f.file_id].clone()).collect()
            };
            let inputs = job.inputs.iter().map(entries).collect();
            let next = (job.output_level + 1).min(LAST);
            let outputs = self.write(
                &flight.version,
                &flight.reads,
                inputs,
                job.output_level,
                next,
            );
            job.edit(outputs)
        });
        self.apply(&edit);
        self.running.end(flight.ticket, job);
    }

    /// Some jobs begin, some end.
    fn work(&mut self) {
        for _ in 0..self.rng.random_range(0..8) {
            let begin = self.flights.len() < 3 && self.rng.random();
            let begun = begin && self.begin(false);
            if !begun && !self.flights.is_empty() {
                self.finish();
            }
        }
    }

    /// Runs jobs until there is none.
    fn settle(&mut self, idle: bool) {
        let mut steps = 0;
        loop {
            let begin = self.flights.len() < 3 && (self.flights.is_empty() || self.rng.random());
            if !(begin && self.begin(idle)) {
                if self.flights.is_empty() {
                    return;
                }
                self.finish();
            }
            steps += 1;
            assert!(steps < 5000, "no end in sight: {:?}", self.pick(idle));
        }
    }

    fn size(&self) -> u64 {
        self.version.size()
    }

    /// Reads as the reader does: run by run, the first version that is old enough.
    fn read(&self, key: &[u8], at: Seqno) -> Option<u64> {
        let runs = self.version.l0.iter().chain(&self.version.levels);
        let files = runs.filter_map(|run| run.find(key));
        let mut versions = files.flat_map(|f| &self.data[&f.file_id]);
        let (_, _, kind, wrote) = versions.find(|e| e.0 == key && e.1 <= at)?;
        kind.is_put().then(|| u64::from_le_bytes(*wrote))
    }

    fn check_reads(&self) {
        for (key, versions) in &self.model {
            let index = crate::base::key::index_id_of(key).unwrap();
            if self.retired.contains_key(&index) {
                continue;
            }
            for at in self.snapshots.iter().copied().chain([self.seqno]) {
                let seen = versions.iter().find(|(seqno, _)| *seqno <= at);
                let expected = seen
                    .filter(|(_, kind)| kind.is_put())
                    .map(|(seqno, _)| *seqno);
                assert_eq!(self.read(key, at), expected, "key {key:?} at {at}");
            }
        }
    }

    fn batch(&mut self, keys: u64, spread: u64) -> Vec<(Vec<u8>, Kind)> {
        let from = self.rng.random_range(0..keys);
        let one = |rng: &mut StdRng| {
            let n = (from + rng.random_range(0..spread)) % keys;
            let kind = if rng.random_range(0..5) == 0 {
                Kind::Delete
            } else {
                Kind::Put
            };
            (user_key(1 + (n % 3) as u32, n), kind)
        };
        (0..60).map(|_| one(&mut self.rng)).collect()
    }
}

#[test]
fn random_loads_keep_all_reads_and_come_to_rest() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut sim = Sim::new(seed);
        let spread = [30, 300, 2000][seed as usize % 3];
        for round in 0..120 {
            let batch = sim.batch(2000, spread);
            sim.flush(batch);
            match sim.rng.random_range(0..12) {
                0 => sim.snapshots.push(sim.seqno),
                1 if !sim.snapshots.is_empty() => {
                    let at = sim.rng.random_range(0..sim.snapshots.len());
                    sim.snapshots.swap_remove(at);
                }
                2 if round == 90 => sim.settle(true),
                _ => {}
            }
            sim.work();
            if sim.version.l0.len() > 8 {
                sim.settle(false);
                assert!(l0_depth(&sim.version) < 4 && sim.version.l0.len() < 16);
            }
            if round % 20 == 19 {
                sim.check_reads();
            }
        }
        sim.snapshots.clear();
        sim.settle(true);
        sim.check_reads();
        assert!(
            sim.version
                .files()
                .all(|(level, f)| level == LAST && f.at_rest)
        );
        assert!(
            sim.version
                .files()
                .all(|(_, f)| f.deletes == 0 && f.superseded == 0)
        );
    }
}

#[test]
fn dropped_indexes_leave_nothing() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut sim = Sim::new(100 + seed);
        for _ in 0..40 {
            let batch = sim.batch(500, 200);
            sim.flush(batch);
            sim.settle(false);
        }
        sim.snapshots.push(sim.seqno);
        sim.seqno += 1;
        sim.retired.insert(2, sim.seqno);
        sim.settle(true);
        let holds = |sim: &Sim| sim.version.files().any(|(_, f)| f.index(2).is_some());
        assert!(holds(&sim), "a snapshot is older than the drop");
        sim.snapshots.clear();
        sim.settle(true);
        assert!(!holds(&sim));
        sim.check_reads();
    }
}

#[test]
fn garbage_stays_within_bounds_under_updates() {
    let mut sim = Sim::new(7);
    let keys = 4000;
    let mut worst: f64 = 0.0;
    for round in 0..500 {
        let batch = (0..80).map(|_| (user_key(1, sim.rng.random_range(0..keys)), Kind::Put));
        let batch = batch.collect();
        sim.flush(batch);
        sim.settle(false);
        if round > 200 {
            // All keys in the last level's codec, and L0, which counts as memtables.
            let resting = keys * LAST_BYTES;
            let l0: u64 = sim.version.level_size(0);
            worst = worst.max((sim.size() - l0) as f64 / resting as f64);
        }
    }
    assert!(worst < 1.25, "{worst}");
    let amplification = sim.written as f64 / sim.flushed as f64;
    assert!(amplification < 12.0, "{amplification}");
}

#[test]
fn ascending_keys_are_rewritten_once() {
    let mut sim = Sim::new(8);
    for round in 0..400u64 {
        let batch = (0..60)
            .map(|i| (user_key(1, round * 60 + i), Kind::Put))
            .collect();
        sim.flush(batch);
        sim.settle(false);
    }
    sim.settle(true);
    assert_eq!(sim.size(), 400 * 60 * LAST_BYTES);
    // Flushed once, and once more into the last level's codec; little besides.
    let amplification = sim.written as f64 / sim.flushed as f64;
    assert!(amplification < 1.9, "{amplification}");
}
