//! Trees with damaged files: everything else is compacted as before.

use super::{Sim, batch};
use firn::compaction::RestGoal;
use firn::version::{FileMeta, LAST_LEVEL};
use rand::Rng;
use rand::seq::IndexedRandom;
use std::sync::Arc;

/// Damages a random file of `level`, or of any level if that has none.
fn damage_one(sim: &mut Sim, level: u8) -> (u8, Arc<FileMeta>) {
    let undamaged = |level: Option<u8>| -> Vec<(u8, Arc<FileMeta>)> {
        let files = sim.tree.version.files();
        files
            .filter(|(of, _)| level.is_none_or(|level| level == *of))
            .filter(|(_, file)| !sim.tree.version.in_quarantine(file.file_id))
            .map(|(of, file)| (of, Arc::clone(file.meta())))
            .collect()
    };
    let mut files = undamaged(Some(level));
    if files.is_empty() {
        files = undamaged(None);
    }
    let chosen = files.choose(&mut sim.rng).cloned().unwrap();
    sim.tree.damage(chosen.0, &chosen.1);
    chosen
}

/// Files of all levels are damaged one after the other, while writes go on. No job takes a damaged
/// file or moves data past it: each read finds the newest version. The gate sees a shallow L0, and
/// reads do not ask many more files than there are damaged ones.
#[test]
fn writes_over_damaged_files_neither_pile_up_nor_sink_below_older_data() {
    let mut levels = [0; LAST_LEVEL + 1];
    for seed in 0..12 {
        println!("seed {seed}");
        let mut sim = Sim::new(3000 + seed);
        let spread = [30, 300, 2000][seed as usize % 3];
        let mut damaged: Vec<Arc<FileMeta>> = Vec::new();
        let count = 1 + seed as usize % 4;
        for round in 0..200 {
            let batch = batch(&mut sim, 2000, spread);
            sim.flush(&batch);
            match sim.rng.random_range(0..12) {
                0 => sim.tree.snapshots.push(sim.tree.seqno),
                1 if !sim.tree.snapshots.is_empty() => {
                    let at = sim.rng.random_range(0..sim.tree.snapshots.len());
                    sim.tree.snapshots.swap_remove(at);
                }
                _ => {}
            }
            sim.work();
            if round >= 60 && damaged.len() < count && sim.rng.random_range(0..8) == 0 {
                sim.land();
                let (level, file) = damage_one(&mut sim, [0, 5, 6, 3][seed as usize / 3]);
                levels[usize::from(level)] += 1;
                damaged.push(file);
            }
            if sim.tree.version.l0.len() > 8 {
                sim.compact_all(RestGoal::No);
                let (seen, depth) = (sim.tree.backlog().l0_runs, sim.tree.version.l0_depth());
                assert!(seen < 4, "{seen} runs, {depth} deep");
                assert!(depth < 5 + 8 * damaged.len(), "{depth} deep");
            }
            if round % 20 == 19 {
                sim.check_reads();
            }
        }
        sim.tree.snapshots.clear();
        sim.compact_all(RestGoal::Complete);
        sim.check_reads();
        let version = &sim.tree.version;
        assert_eq!(version.quarantine().len(), damaged.len());
        for file in &damaged {
            assert!(version.in_quarantine(file.file_id));
        }
        // All data that damage does not keep above it is at rest.
        for (level, file) in version.files() {
            let over = |below: &Arc<FileMeta>| below.overlaps(&file.smallest, &file.largest);
            let is_damaged = version.in_quarantine(file.file_id);
            let at_rest = usize::from(level) == LAST_LEVEL && file.at_rest;
            assert!(
                at_rest || is_damaged || damaged.iter().any(over),
                "L{level}: {file:?}"
            );
        }
        // The damaged files go with their tables.
        sim.tree.seqno += 1;
        for index in 1..4 {
            sim.tree.retired.insert(index, sim.tree.seqno);
        }
        sim.compact_all(RestGoal::No);
        assert_eq!(sim.tree.version.files().count(), 0);
        assert!(sim.tree.version.quarantine().is_empty());
    }
    println!("{levels:?}");
    assert!(
        [0, 5, 6].iter().all(|level| levels[*level] > 3),
        "{levels:?}"
    );
}
