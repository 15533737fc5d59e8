//! What the picker's decisions cost under typical loads, in the long run: bytes written by
//! compactions for each byte flushed, files that a point read may have to ask, and bytes stored
//! above what a full compaction leaves. Time is counted in flushes: after each, jobs run until none
//! is due, so what is measured is the shape of the tree, not a race.

use super::*;

type Batch = Vec<(Vec<u8>, Kind)>;

/// A name, the keys, and what a flush brings.
struct Load {
    name: &'static str,
    flushes: u64,
    batch: fn(&mut Sim, u64) -> Batch,
    /// Bounds: written for each byte flushed, files asked by a read, size over the smallest.
    bounds: (f64, f64, f64),
}

const KEYS: u64 = 6000;
const BATCH: u64 = 80;

fn uniform(sim: &mut Sim, _: u64) -> Batch {
    let keys = (0..BATCH).map(|_| sim.rng.random_range(0..KEYS));
    keys.map(|n| (user_key(1, n), Kind::Put)).collect()
}

/// Half of the updates go to a hundredth of the rows.
fn skewed(sim: &mut Sim, _: u64) -> Batch {
    let mut one = || {
        let u: f64 = sim.rng.random();
        let rank = (KEYS as f64).powf(u) as u64;
        rank.wrapping_mul(2_654_435_761) % KEYS
    };
    let keys: Vec<u64> = (0..BATCH).map(|_| one()).collect();
    keys.into_iter()
        .map(|n| (user_key(1, n), Kind::Put))
        .collect()
}

fn appended(_: &mut Sim, round: u64) -> Batch {
    let keys = round * BATCH..(round + 1) * BATCH;
    keys.map(|n| (user_key(1, n), Kind::Put)).collect()
}

/// Rows enter at one end and leave at the other, two thousand later.
fn queue(_: &mut Sim, round: u64) -> Batch {
    let half = BATCH / 2;
    let entering = (round * half..(round + 1) * half).map(|n| (user_key(1, n), Kind::Put));
    let oldest = (round * half).saturating_sub(2000);
    let leaving = (oldest.saturating_sub(half)..oldest).map(|n| (user_key(1, n), Kind::Delete));
    entering.chain(leaving).collect()
}

/// Inserts at random, then everything is deleted in order, and so on.
fn filled_and_emptied(sim: &mut Sim, round: u64) -> Batch {
    let phase = round % 150;
    if phase < 75 {
        return uniform(sim, round);
    }
    let from = (phase - 75) * KEYS / 75;
    let keys = from..from + KEYS / 75;
    keys.map(|n| (user_key(1, n), Kind::Delete)).collect()
}

fn many_tables(sim: &mut Sim, _: u64) -> Batch {
    let mut one = || (sim.rng.random_range(1..300), sim.rng.random_range(0..20));
    let keys: Vec<(u32, u64)> = (0..BATCH).map(|_| one()).collect();
    let keys = keys.into_iter();
    keys.map(|(table, n)| (user_key(table, n), Kind::Put))
        .collect()
}

/// A tenth of the keys are in a table that is dropped and made anew every fifty flushes.
fn drops(sim: &mut Sim, round: u64) -> Batch {
    let table = 10 + (round / 50) as u32;
    if round > 0 && round.is_multiple_of(50) {
        sim.seqno += 1;
        sim.retired.insert(table - 1, sim.seqno);
    }
    let mut batch = uniform(sim, round);
    for (key, _) in batch.iter_mut().take(BATCH as usize / 2) {
        *key = user_key(table, sim.rng.random_range(0..2000));
    }
    batch
}

const LOADS: [Load; 7] = [
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
        name: "filled and emptied",
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
        name: "tables dropped",
        flushes: 600,
        batch: drops,
        bounds: (7.0, 3.0, 1.2),
    },
];

/// Write, read and space amplification.
fn costs(load: &Load, seed: u64) -> (f64, f64, f64) {
    let mut sim = Sim::new(seed);
    sim.options.base_level_size = 16_000;
    let (mut asked, mut sampled, mut worst) = (0, 0, 0.0f64);
    for round in 0..load.flushes {
        let batch = (load.batch)(&mut sim, round);
        sim.flush(batch);
        sim.settle(false);
        if round >= load.flushes / 2 && round % 10 == 9 {
            let keys: Vec<Vec<u8>> = sim.model.keys().cloned().collect();
            for _ in 0..50 {
                let key = &keys[sim.rng.random_range(0..keys.len())];
                let runs = sim.version.l0.iter().chain(&sim.version.levels);
                asked += runs.filter(|run| run.find(key).is_some()).count();
                sampled += 1;
            }
            // L0 counts as memtables, and so does as much as one of them on its way down.
            let memory = BATCH * UPPER_BYTES;
            let stored = sim.size() - sim.version.level_size(0);
            let live = |(key, versions): (&Vec<u8>, &Vec<(Seqno, Kind)>)| {
                let index = crate::base::key::index_id_of(key).unwrap();
                versions[0].1.is_put() && !sim.retired.contains_key(&index)
            };
            let least = sim.model.iter().filter(|e| live(*e)).count() as u64 * LAST_BYTES;
            // A tree smaller than L0 may be all garbage.
            let least = least.max(4 * memory);
            let over = stored.saturating_sub(memory) as f64 / least as f64;
            worst = worst.max(over);
        }
    }
    sim.check_reads();
    let written = (sim.written - sim.flushed) as f64 / sim.flushed as f64;
    (written, asked as f64 / f64::from(sampled), worst)
}

#[test]
fn loads_cost_what_they_should() {
    println!("| load | written | asked | size |");
    let mut failed = Vec::new();
    for load in &LOADS {
        let (written, asked, size) = costs(load, 1);
        println!("| {} | {written:.1} | {asked:.1} | {size:.2} |", load.name);
        let bounds = load.bounds;
        if written > bounds.0 || asked > bounds.1 || size > bounds.2 {
            failed.push(load.name);
        }
    }
    assert!(failed.is_empty(), "{failed:?}");
}
