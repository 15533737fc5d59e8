use super::*;
use crate::base::prefix_extractor::PrefixExtractors;
use crate::base::{Error, ErrorKind, InternalKey, Kind, Value};
use crate::blob::BlobStore;
use crate::cache::RowCache;
use crate::env::{CountingEnv, Env, IoStats, MemEnv};
use crate::memtable::Memtable;
use crate::read::SuperVersions;
use crate::sst::SstBlockCache;
use crate::store::FileStore;
use crate::version::{FileSource, Run, Version, testing};
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::collections::HashSet;
use std::path::Path;
use std::sync::atomic::AtomicU64;

const INDEX: IndexId = 7;
const FILE_ROWS: usize = 100;

/// Keys of two parts of four bytes, and the number of the row.
struct TwoParts;

impl PrefixExtractor for TwoParts {
    fn prefixes(&self) -> usize {
        2
    }

    fn fixed_len(&self, part: usize) -> Option<usize> {
        // The second part is found as one of variable length.
        (part == 0).then_some(4)
    }

    fn part_end(&self, user_key: &[u8], _part: usize, from: usize) -> Option<usize> {
        (user_key.len() >= from + 4).then_some(from + 4)
    }
}

struct Extractors;

impl PrefixExtractors for Extractors {
    fn prefix_extractor(&self, _: IndexId) -> Option<Arc<dyn PrefixExtractor>> {
        Some(Arc::new(TwoParts))
    }
}

fn extractor() -> Arc<dyn PrefixExtractor> {
    Arc::new(TwoParts)
}

/// The values of the two parts of a row.
type Row = (u32, u32);

fn key(index: IndexId, row: Row, n: u32) -> Vec<u8> {
    [index, row.0, row.1, n].map(u32::to_be_bytes).concat()
}

/// An index in runs and a memtable.
struct World {
    source: Arc<FileSource>,
    opens: Arc<IoStats>,
    next_file: u64,
    runs: Vec<Arc<Run>>,
    memtable: Memtable,
    rows: Vec<Row>,
}

impl World {
    fn new() -> Self {
        let env = CountingEnv::new(Arc::new(MemEnv::new()));
        let opens = Arc::clone(env.counters());
        let env: Arc<dyn Env> = Arc::new(env);
        env.create_dir_all(Path::new("/values")).unwrap();
        let store = FileStore::new(env, "/values");
        Self {
            source: FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20))),
            opens,
            next_file: 1,
            runs: Vec::new(),
            memtable: Memtable::new(1, 1),
            rows: Vec::new(),
        }
    }

    fn keys(&mut self, rows: &[Row]) -> Vec<Vec<u8>> {
        let first = self.rows.len() as u32;
        self.rows.extend_from_slice(rows);
        let keys = (first..).zip(rows).map(|(n, row)| key(INDEX, *row, n));
        let mut keys: Vec<Vec<u8>> = keys.collect();
        keys.sort();
        keys
    }

    /// Adds a run with `rows`. Its first and its last file have entries of other indexes, too.
    fn add_run(&mut self, rows: &[Row]) {
        let others = |index| (0..5).map(move |n| key(index, (n, n), n));
        let mut keys: Vec<Vec<u8>> = others(INDEX - 1).collect();
        keys.extend(self.keys(rows));
        keys.extend(others(INDEX + 1));
        let mut files = Vec::new();
        for keys in keys.chunks(FILE_ROWS) {
            let entries: Vec<_> = keys.iter().map(|key| (key.clone(), Kind::Put)).collect();
            let id = self.next_file;
            files.push(testing::written(
                &self.source,
                id,
                &entries,
                Arc::new(Extractors),
            ));
            self.next_file += 1;
        }
        self.runs.push(Arc::new(Run::new(self.next_file, files)));
    }

    fn insert(&mut self, rows: &[Row]) {
        for key in self.keys(rows) {
            let key = InternalKey::new(&key, 5, Kind::Put);
            self.memtable.insert(key, Value::whole(b""));
        }
    }

    /// Spreads rows over three runs of 91, 8 and 1 percent, and the memtable.
    fn spread(rows: &[Row]) -> Self {
        let mut world = Self::new();
        let part = |percent: usize| rows.len() * percent / 1000;
        world.insert(&rows[..part(1)]);
        world.add_run(&rows[part(1)..part(10)]);
        world.add_run(&rows[part(10)..part(90)]);
        world.add_run(&rows[part(90)..]);
        world
    }

    fn estimate(self) -> (Result<Option<Vec<f64>>>, Self) {
        let files = FileStore::new(Arc::new(MemEnv::new()), "/blobs");
        let mut version = Version::default();
        version.l0 = self.runs.iter().rev().cloned().collect();
        let super_versions = SuperVersions::new(
            Arc::new(self.memtable),
            Arc::new(version),
            Arc::new(AtomicU64::new(9)),
            Arc::new(RowCache::new(0)),
            Arc::new(BlobStore::read_only(files, 1 << 20)),
        );
        let super_version = super_versions.latest().super_version;
        let values = distinct_values(&super_version, INDEX, &extractor());
        let memtable = Memtable::new(1, 1);
        (values, Self { memtable, ..self })
    }

    /// The exact numbers of distinct values.
    fn truth(&self) -> Vec<f64> {
        let first: HashSet<u32> = self.rows.iter().map(|row| row.0).collect();
        let both: HashSet<Row> = self.rows.iter().copied().collect();
        vec![first.len() as f64, both.len() as f64]
    }
}

/// Compares the estimates with the truth: they may be wrong by `factor`.
fn check(world: World, factor: f64, what: &str) -> World {
    let (found, world) = world.estimate();
    let (found, truth) = (found.unwrap().unwrap(), world.truth());
    for (found, truth) in found.iter().zip(&truth) {
        let ratio = found / truth;
        assert!(
            (1.0 / factor..factor).contains(&ratio),
            "{what}: {found} for {truth}"
        );
    }
    world
}

fn shuffled(
    rng: &mut StdRng,
    count: u32,
    mut row: impl FnMut(&mut StdRng, u32) -> Row,
) -> Vec<Row> {
    let mut rows: Vec<Row> = (0..count).map(|n| row(rng, n)).collect();
    rows.shuffle(rng);
    rows
}

const ROWS: u32 = 32_000;

/// Some dozens of more than three hundred files tell the values of all of them.
#[test]
fn values_in_many_files_are_estimated_within_a_factor_of_one_and_a_half() {
    type Column = fn(&mut StdRng, u32) -> u32;
    let columns: [(&str, Column); 12] = [
        ("unique", |_, n| n),
        ("one value", |_, _| 3),
        ("two values", |rng, _| rng.random_range(0..2)),
        ("seven values", |rng, _| rng.random_range(0..7)),
        ("forty values", |rng, _| rng.random_range(0..40)),
        ("a value fills three files", |_, n| n / 300),
        ("a value fills half a file", |_, n| n / 50),
        ("ten rows of a value", |_, n| n / 10),
        ("three rows of a value on average", |rng, _| {
            rng.random_range(0..ROWS / 3)
        }),
        ("NULL in four rows of five", |_, n| {
            n.saturating_sub(ROWS * 4 / 5)
        }),
        ("NULL in 39 rows of 40", |_, n| {
            n.saturating_sub(ROWS / 40 * 39)
        }),
        ("skewed", |rng, _| {
            let power: f64 = rng.random_range(0.0..1.0);
            f64::from(ROWS).powf(power) as u32
        }),
    ];
    for seed in 0..3 {
        let rng = &mut StdRng::seed_from_u64(seed);
        for (name, column) in columns {
            for second in [1, 5, 1 << 20] {
                let rows = shuffled(rng, ROWS, |rng, n| {
                    (column(rng, n), rng.random_range(0..second))
                });
                let what = format!("seed {seed}, {name}, {second}");
                check(World::spread(&rows), 1.5, &what);
            }
        }
    }
}

/// Values that lie in one run each are at worst those of the largest run.
#[test]
fn values_of_the_smaller_runs_are_missed_at_worst() {
    let rows: Vec<Row> = (0..ROWS).map(|n| (n / 40, 0)).collect();
    let (found, world) = World::spread(&rows).estimate();
    let (found, truth) = (found.unwrap().unwrap()[0], world.truth()[0]);
    assert!(
        found > truth * 0.8 && found < truth * 1.2,
        "{found} for {truth}"
    );
}

/// The union of all sketches, which an index with few files has.
#[test]
fn the_values_of_few_files_are_those_of_the_union() {
    let rng = &mut StdRng::seed_from_u64(5);
    for count in [0, 10, 900, 5900] {
        let rows = shuffled(rng, count, |rng, n| (rng.random_range(0..200), n));
        let world = World::spread(&rows);
        assert!(world.runs.iter().map(|run| run.files.len()).sum::<usize>() <= FILES_MAX);
        let (found, world) = world.estimate();
        let mut union = vec![Sketch::default(); 2];
        let mut sketcher = PrefixSketcher::new(extractor());
        let mut keys: Vec<_> = world.rows.iter().map(|row| key(INDEX, *row, 0)).collect();
        keys.sort();
        keys.iter().for_each(|key| sketcher.add(key));
        merge(&mut union, &sketcher.finish().unwrap());
        let union: Vec<f64> = union.iter().map(Sketch::estimate).collect();
        assert_eq!(found.unwrap().unwrap(), union);
    }
}

#[test]
fn at_most_some_dozens_of_files_are_opened() {
    let rows: Vec<Row> = (0..20_000).map(|n| (n, n)).collect();
    for runs in [1, 3, 20, 90] {
        let mut world = World::new();
        for run in 0..runs {
            let rows: Vec<Row> = rows.iter().copied().skip(run).step_by(runs).collect();
            world.add_run(&rows);
        }
        let before = world.opens.opens();
        let (found, world) = world.estimate();
        assert!(found.unwrap().is_some());
        let opened = world.opens.opens() - before;
        assert!((32..=64).contains(&opened), "{opened} of {runs} runs");
    }
}

/// Other files stand in for those that cannot be read.
#[test]
fn unreadable_files_are_skipped() {
    let rng = &mut StdRng::seed_from_u64(6);
    for (count, factor) in [(ROWS, 1.5), (4000, 1.6)] {
        let rows = shuffled(rng, count, |_, n| (n % 50, n));
        let mut world = World::spread(&rows);
        for id in (1..world.next_file).step_by(4) {
            world.source.store().remove(id).unwrap();
        }
        world = check(world, factor, "a quarter of the files is missing");
        for id in (1..world.next_file).filter(|id| id % 4 != 1) {
            world.source.store().remove(id).unwrap();
        }
        assert_eq!(world.estimate().0.unwrap(), None);
    }
    let kind = ErrorKind::NoDescriptor;
    let found = skip_unreadable::<()>(Err(Error::new(kind, "none left")));
    assert_eq!(*found.unwrap_err().kind(), ErrorKind::NoDescriptor);
}

#[test]
fn values_of_runs_are_added_unless_they_repeat() {
    let near = |found: f64, truth: f64, error: f64| {
        let wrong = (found / truth - 1.0).abs();
        assert!(wrong < error, "{found} for {truth}");
    };
    assert_eq!(values_of_all(&[]), 0.0);
    assert_eq!(values_of_all(&[(0.0, 0.0), (0.0, 0.0)]), 0.0);
    assert_eq!(values_of_all(&[(500.0, 30.0)]), 30.0);
    near(
        values_of_all(&[(900.0, 900.0), (90.0, 90.0), (10.0, 10.0)]),
        1000.0,
        0.01,
    );
    near(
        values_of_all(&[(90_000.0, 40.0), (9000.0, 40.0), (900.0, 40.0)]),
        40.0,
        0.01,
    );
    // Values distributed by chance. Their numbers of entries differ by chance, too.
    let rng = &mut StdRng::seed_from_u64(7);
    for (values, shares) in [(3000, [90, 97]), (50_000, [50, 80]), (400, [34, 67])] {
        let mut seen = [(); 3].map(|()| HashSet::<u32>::new());
        let mut entries = [0.0; 3];
        for _ in 0..30_000 {
            let percent = rng.random_range(0..100);
            let run = shares.iter().filter(|share| percent >= **share).count();
            seen[run].insert(rng.random_range(0..values));
            entries[run] += 1.0;
        }
        let all: HashSet<u32> = seen.iter().flatten().copied().collect();
        let runs: Vec<_> = entries
            .iter()
            .zip(&seen)
            .map(|(n, seen)| (*n, seen.len() as f64))
            .collect();
        near(values_of_all(&runs), all.len() as f64, 0.15);
    }
}
