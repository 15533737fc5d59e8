mod damage;

use super::closed_loop::{Machine, MachinePlan};
use super::plans;
use super::workloads::{Batch, LOADS, Sim, costs};
use firn::compaction::RestGoal;
use firn::version::LAST_LEVEL;
use rand::Rng;

fn batch(sim: &mut Sim, keys: u64, spread: u64) -> Batch {
    let from = sim.rng.random_range(0..keys);
    let one = |rng: &mut rand::rngs::StdRng| {
        let n = (from + rng.random_range(0..spread)) % keys;
        ((1 + (n % 3) as u32, n), rng.random_range(0..5) != 0)
    };
    (0..60).map(|_| one(&mut sim.rng)).collect()
}

#[test]
fn random_loads_keep_all_reads_and_come_to_rest() {
    for seed in 0..12 {
        println!("seed {seed}");
        let mut sim = Sim::new(seed);
        let spread = [30, 300, 2000][seed as usize % 3];
        for round in 0..120 {
            let batch = batch(&mut sim, 2000, spread);
            sim.flush(&batch);
            match sim.rng.random_range(0..12) {
                0 => sim.tree.snapshots.push(sim.tree.seqno),
                1 if !sim.tree.snapshots.is_empty() => {
                    let at = sim.rng.random_range(0..sim.tree.snapshots.len());
                    sim.tree.snapshots.swap_remove(at);
                }
                2 if round == 90 => sim.compact_all(RestGoal::Complete),
                _ => {}
            }
            sim.work();
            if sim.tree.version.l0.len() > 8 {
                sim.compact_all(RestGoal::No);
                let version = &sim.tree.version;
                assert!(version.l0_depth() < 4 && version.l0.len() < 16);
            }
            if round % 20 == 19 {
                sim.check_reads();
            }
        }
        sim.tree.snapshots.clear();
        sim.compact_all(RestGoal::Complete);
        sim.check_reads();
        for (level, file) in sim.tree.version.files() {
            assert!(usize::from(level) == LAST_LEVEL && file.at_rest);
            assert_eq!((file.deletes, file.superseded), (0, 0));
        }
    }
}

#[test]
fn dropped_indexes_leave_nothing() {
    for seed in 0..4 {
        println!("seed {seed}");
        let mut sim = Sim::new(100 + seed);
        for _ in 0..40 {
            let batch = batch(&mut sim, 500, 200);
            sim.flush(&batch);
            sim.compact_all(RestGoal::No);
        }
        sim.tree.snapshots.push(sim.tree.seqno);
        sim.tree.seqno += 1;
        sim.tree.retired.insert(2, sim.tree.seqno);
        sim.compact_all(RestGoal::Complete);
        let holds = |sim: &Sim| {
            let mut files = sim.tree.version.files();
            files.any(|(_, f)| f.index(2).is_some())
        };
        assert!(holds(&sim), "a snapshot is older than the drop");
        sim.tree.snapshots.clear();
        sim.compact_all(RestGoal::Complete);
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
        let one = |_| ((1, sim.rng.random_range(0..keys)), true);
        let batch: Batch = (0..80).map(one).collect();
        sim.flush(&batch);
        sim.compact_all(RestGoal::No);
        if round > 200 {
            // The size of the tree at rest, with all keys in the last level. The size of L0 is left
            // out, because the memtables bound it.
            let resting = keys * sim.tree.entry_bytes.1;
            let version = &sim.tree.version;
            let stored = version.size() - version.level_size(0);
            worst = worst.max(stored as f64 / resting as f64);
        }
    }
    assert!(worst < 1.25, "{worst}");
    let amplification = sim.tree.compacted as f64 / sim.tree.flushed as f64;
    assert!(amplification < 11.0, "{amplification}");
}

#[test]
fn ascending_keys_are_rewritten_once() {
    let mut sim = Sim::new(8);
    for round in 0..400u64 {
        let batch: Batch = (0..60).map(|i| ((1, round * 60 + i), true)).collect();
        sim.flush(&batch);
        sim.compact_all(RestGoal::No);
    }
    sim.compact_all(RestGoal::Complete);
    let tree = &sim.tree;
    assert_eq!(tree.version.size(), 400 * 60 * tree.entry_bytes.1);
    // Each entry is flushed once and rewritten once, into the last level; little else is written.
    let amplification = tree.compacted as f64 / tree.flushed as f64;
    assert!(amplification < 0.9, "{amplification}");
}

#[test]
fn loads_cost_what_they_should() {
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

/// No second is far below the median, writers hardly ever stop, the stored size stays within 1.2
/// times the compacted size plus the memtables, and write amplification stays low.
#[test]
fn full_speed_is_even_and_small() {
    for seed in 1..3 {
        println!("seed {seed}");
        let plan = MachinePlan {
            seed,
            seconds: 75,
            scale: 100,
            ..MachinePlan::default()
        };
        let seen = Machine::new(plan).run();
        let (slowest, space) = (seen.slowest(), seen.largest());
        assert!(slowest >= 0.7, "{slowest} of the median");
        assert!(space <= seen.allowed(), "{space} of {}", seen.allowed());
        assert!(seen.written < 6.0, "{}", seen.written);
        assert!(seen.median() > 170_000.0, "{}", seen.median());
        assert!(seen.stopped < 0.5, "{}", seen.stopped);
    }
}

#[test]
fn other_trees_and_machines_are_even_too() {
    for (name, plan) in plans(1, 60).into_iter().skip(1) {
        let (scale, small) = (plan.scale * 2, plan.keys < 1_000_000);
        let seen = Machine::new(MachinePlan { scale, ..plan }).run();
        let (slowest, space) = (seen.slowest(), seen.largest());
        assert!(slowest >= 0.5, "{name}: {slowest} of the median");
        // Files have a minimum size, so one file is a large part of a small tree.
        let room = seen.allowed() + if small { 0.2 } else { 0.0 };
        assert!(space <= room, "{name}: {space} of {room}");
    }
}
