//! The costs of the picker's decisions under typical loads in the long run: bytes that compactions
//! write for each byte flushed, files that a point read may have to ask, and stored bytes as a
//! multiple of the live data. Time is counted in flushes: after each one, jobs run until none is
//! due. So the results depend on the shape of the tree alone, not on the speed of jobs;
//! [`super::closed_loop`] covers that.

use super::tree::{Flight, Key, Tree};
use firn::base::Seqno;
use firn::base::options::Options;
use firn::compaction::RestGoal;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::BTreeMap;

/// Keys to put, or to delete.
pub type Batch = Vec<(Key, bool)>;

const UPPER_BYTES: u64 = 100;
const LAST_BYTES: u64 = 60;
const KEYS: u64 = 6000;
const BATCH: u64 = 80;

/// A tree and its model.
pub struct Sim {
    /// Chooses keys and the order of jobs.
    pub rng: StdRng,
    /// The tree.
    pub tree: Tree,
    /// Versions of each key, newest first: seqno, and whether it is a put.
    pub model: BTreeMap<Key, Vec<(Seqno, bool)>>,
    flights: Vec<Flight>,
}

impl Sim {
    /// An empty tree of small files.
    pub fn new(seed: u64) -> Self {
        let options = Options {
            target_file_size: 2000,
            base_level_size: 8000,
            l0_compaction_runs: 4,
            ..Options::default()
        };
        Self {
            rng: StdRng::seed_from_u64(seed),
            tree: Tree::new(options, (UPPER_BYTES, LAST_BYTES)),
            model: BTreeMap::new(),
            flights: Vec::new(),
        }
    }

    /// Commits and flushes a batch.
    pub fn flush(&mut self, batch: &[(Key, bool)]) {
        for (i, &(key, put)) in batch.iter().enumerate() {
            let seqno = self.tree.seqno + 1 + i as u64;
            self.model.entry(key).or_default().insert(0, (seqno, put));
        }
        self.tree.flush(batch);
    }

    fn begin(&mut self, rest: RestGoal) -> bool {
        let flight = self.tree.begin(rest);
        let begun = flight.is_some();
        self.flights.extend(flight);
        begun
    }

    /// Ends one of the jobs under way.
    fn finish(&mut self) {
        let at = self.rng.random_range(0..self.flights.len());
        let flight = self.flights.swap_remove(at);
        self.tree.finish(flight);
    }

    /// Ends all jobs under way.
    pub fn land(&mut self) {
        while !self.flights.is_empty() {
            self.finish();
        }
    }

    /// Begins some jobs and ends some, in random order; up to three are under way at once.
    pub fn work(&mut self) {
        for _ in 0..self.rng.random_range(0..8) {
            let begin = self.flights.len() < 3 && self.rng.random();
            let begun = begin && self.begin(RestGoal::No);
            if !begun && !self.flights.is_empty() {
                self.finish();
            }
        }
    }

    /// Runs jobs until the picker finds none.
    ///
    /// # Panics
    /// If that takes thousands of steps: the picker does not come to an end.
    pub fn compact_all(&mut self, rest: RestGoal) {
        let mut steps = 0;
        loop {
            let begin = self.flights.len() < 3 && (self.flights.is_empty() || self.rng.random());
            if !(begin && self.begin(rest)) {
                if self.flights.is_empty() {
                    return;
                }
                self.finish();
            }
            steps += 1;
            assert!(steps < 5000, "no end in sight: {:?}", self.tree.pick(rest));
        }
    }

    /// Compares a read of every key, at each snapshot and at the newest commit, with the model.
    ///
    /// # Panics
    /// If a read differs.
    pub fn check_reads(&self) {
        let tree = &self.tree;
        for (key, versions) in &self.model {
            if tree.retired.contains_key(&key.0) {
                continue;
            }
            for at in tree.snapshots.iter().copied().chain([tree.seqno]) {
                let seen = versions.iter().find(|(seqno, _)| *seqno <= at);
                let expected = seen.filter(|(_, put)| *put).map(|(seqno, _)| *seqno);
                assert_eq!(tree.read(*key, at), expected, "key {key:?} at {at}");
            }
        }
    }
}

/// A load: a name, and a function that makes the batch of each flush.
pub struct Load {
    /// The name.
    pub name: &'static str,
    flushes: u64,
    batch: fn(&mut Sim, u64) -> Batch,
    /// Upper bounds of the results of [`costs`].
    pub bounds: (f64, f64, f64),
}

fn puts(keys: impl Iterator<Item = u64>) -> Batch {
    keys.map(|n| ((1, n), true)).collect()
}

fn uniform(sim: &mut Sim, _: u64) -> Batch {
    puts((0..BATCH).map(|_| sim.rng.random_range(0..KEYS)))
}

fn skewed(sim: &mut Sim, _: u64) -> Batch {
    puts((0..BATCH).map(|_| super::closed_loop::skewed(&mut sim.rng, KEYS)))
}

fn appended(_: &mut Sim, round: u64) -> Batch {
    puts(round * BATCH..(round + 1) * BATCH)
}

/// Rows are inserted at one end and deleted at the other; about two thousand live at a time.
fn queue(_: &mut Sim, round: u64) -> Batch {
    let half = BATCH / 2;
    let entering = (round * half..(round + 1) * half).map(|n| ((1, n), true));
    let oldest = (round * half).saturating_sub(2000);
    let leaving = (oldest.saturating_sub(half)..oldest).map(|n| ((1, n), false));
    entering.chain(leaving).collect()
}

/// In turns of 75 flushes, inserts random keys, then deletes all keys in ascending order.
fn filled_and_emptied(sim: &mut Sim, round: u64) -> Batch {
    let phase = round % 150;
    if phase < 75 {
        return uniform(sim, round);
    }
    let from = (phase - 75) * KEYS / 75;
    (from..from + KEYS / 75).map(|n| ((1, n), false)).collect()
}

fn many_tables(sim: &mut Sim, _: u64) -> Batch {
    let mut one = || (sim.rng.random_range(1..300), sim.rng.random_range(0..20));
    (0..BATCH).map(|_| (one(), true)).collect()
}

/// Half of the keys are in a table that is dropped and created again every fifty flushes.
fn drops(sim: &mut Sim, round: u64) -> Batch {
    let table = 10 + (round / 50) as u32;
    if round > 0 && round.is_multiple_of(50) {
        sim.tree.seqno += 1;
        sim.tree.retired.insert(table - 1, sim.tree.seqno);
    }
    let mut batch = uniform(sim, round);
    for (key, _) in batch.iter_mut().take(BATCH as usize / 2) {
        *key = (table, sim.rng.random_range(0..2000));
    }
    batch
}

/// Typical loads.
pub const LOADS: [Load; 7] = [
    Load {
        name: "uniform updates",
        flushes: 800,
        batch: uniform,
        bounds: (7.0, 4.0, 1.2),
    },
    Load {
        name: "skewed updates",
        flushes: 800,
        batch: skewed,
        bounds: (6.0, 4.0, 1.2),
    },
    Load {
        name: "appended rows",
        flushes: 300,
        batch: appended,
        bounds: (1.0, 2.0, 1.2),
    },
    Load {
        name: "a queue",
        flushes: 800,
        batch: queue,
        bounds: (1.5, 2.0, 1.2),
    },
    Load {
        name: "filled at random, emptied in order",
        flushes: 600,
        batch: filled_and_emptied,
        bounds: (4.0, 3.0, 1.2),
    },
    Load {
        name: "300 small tables",
        flushes: 800,
        batch: many_tables,
        bounds: (7.0, 4.0, 1.2),
    },
    Load {
        name: "tables dropped and made anew",
        flushes: 600,
        batch: drops,
        bounds: (7.0, 3.0, 1.2),
    },
];

/// Runs a load. Returns its write amplification (bytes compacted for each byte flushed), read
/// amplification (mean number of files that a point read may ask) and space amplification (largest
/// stored size over the size of the live entries), the last two from the second half of the run.
pub fn costs(load: &Load, seed: u64) -> (f64, f64, f64) {
    let mut sim = Sim::new(seed);
    sim.tree.options.base_level_size = 16_000;
    let (mut asked, mut sampled, mut worst) = (0, 0, 0.0f64);
    for round in 0..load.flushes {
        let batch = (load.batch)(&mut sim, round);
        sim.flush(&batch);
        sim.compact_all(RestGoal::No);
        if round >= load.flushes / 2 && round % 10 == 9 {
            let keys: Vec<Key> = sim.model.keys().copied().collect();
            for _ in 0..50 {
                asked += sim.tree.asked(keys[sim.rng.random_range(0..keys.len())]);
                sampled += 1;
            }
            // Leave out the size of L0, which the memtables bound, and one memtable's worth of
            // bytes, because that much may be on its way from L0 to the last level.
            let memory = BATCH * UPPER_BYTES;
            let stored = sim.tree.version.size() - sim.tree.version.level_size(0);
            let live = |(key, versions): (&Key, &Vec<(Seqno, bool)>)| {
                versions[0].1 && !sim.tree.retired.contains_key(&key.0)
            };
            let least = sim.model.iter().filter(|e| live(*e)).count() as u64 * LAST_BYTES;
            // A tree smaller than L0 may be all garbage, so its size is compared with four
            // memtables at least.
            let least = least.max(4 * memory);
            worst = worst.max(stored.saturating_sub(memory) as f64 / least as f64);
        }
    }
    sim.check_reads();
    let tree = &sim.tree;
    let written = tree.compacted as f64 / tree.flushed as f64;
    (written, asked as f64 / f64::from(sampled), worst)
}
