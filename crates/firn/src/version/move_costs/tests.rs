use super::*;
use crate::env::PosixEnv;
use crate::sst::SstBlockCache;
use crate::store::FileStore;
use crate::version::testing::file;
use crate::version::{Edit, FileSource, ManifestState};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn source() -> Arc<FileSource> {
    let store = FileStore::new(Arc::new(PosixEnv::new()), "/nonexistent");
    FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20)))
}

fn key(n: u64) -> Vec<u8> {
    [&1u32.to_be_bytes()[..], &n.to_be_bytes()].concat()
}

/// A file with the keys `from` to `to` and `size` bytes.
fn sized(id: u64, from: u64, to: u64, size: u64) -> FileMeta {
    let mut meta = file(id, &key(from), &key(to));
    meta.size = size;
    meta
}

fn version(edit: &Edit) -> Version {
    let mut state = ManifestState::default();
    assert_eq!(state.check_edit(edit), None);
    state.apply(edit);
    Version::of_state(&state, &source())
}

/// Cost and position of the files that `belongs` accepts, in `parts` of L5, cheapest first.
fn naive(
    version: &Version,
    parts: &[Range<usize>],
    belongs: impl Fn(&FileMeta) -> bool,
) -> Vec<(u64, usize)> {
    let files = &version.levels[4].files;
    let positions = parts.iter().cloned().flatten();
    let mut all: Vec<(u64, usize)> = positions
        .filter(|at| belongs(&files[*at]))
        .map(|at| {
            let file = &files[at];
            let below = version.levels[5].files.iter();
            let below = below.filter(|f| f.overlaps(&file.smallest, &file.largest));
            let overlap: u64 = below.map(|f| f.size).sum();
            let gain = file.size + version.reclaimable_by(file);
            ((overlap << 20) / gain, at)
        })
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn the_cheapest_files_are_found_in_order() {
    for seed in 0..30 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut edit = Edit::default();
        for (level, ids) in [(5, 1), (6, 100_000)] {
            let mut from = 0;
            for id in ids..ids + rng.random_range(1..400) {
                let to = from + rng.random_range(0..30);
                let mut meta = sized(id, from, to, rng.random_range(1..1000));
                let deletes = [0, 6][rng.random_range(0..2)];
                (meta.deletes, meta.per_index[0].deletes) = (deletes, deletes);
                meta.dense_deletes = 0;
                meta.superseded = 0;
                edit.added.push((level, 0, meta));
                from = to + rng.random_range(1..20);
            }
        }
        let version = version(&edit);
        assert_eq!(version.move_costs_difference(), None);
        let len = version.levels[4].files.len();
        let cut = rng.random_range(0..=len);
        let parts = [0..cut / 2, cut..len];
        let most = rng.random_range(1..20);
        let found = version.cheapest_moves(5, &parts, MoveGroup::All, most);
        let right: Vec<usize> = naive(&version, &parts, |_| true)
            .into_iter()
            .map(|(_, at)| at)
            .take(most)
            .collect();
        assert_eq!(found, right, "seed {seed}");
        let found = version.cheapest_moves(5, &parts, MoveGroup::Dead, most);
        let dead = naive(&version, &parts, |file| file.deletes > 0);
        let right: Vec<usize> = dead.into_iter().map(|(_, at)| at).take(most).collect();
        assert_eq!(found, right, "seed {seed}");
        assert!(
            version
                .cheapest_moves(5, &parts, MoveGroup::Blobs, most)
                .is_empty()
        );
    }
}

/// Thousands of files above one file: each edit measures some of them, and the last one is right.
#[test]
fn an_edit_measures_in_proportion_to_its_own_files() {
    let upper = (0..3000).map(|n| (5, 0, sized(1 + n, 10 * n, 10 * n + 8, 10)));
    let mut edit = Edit {
        added: upper.collect(),
        ..Edit::default()
    };
    edit.added.push((6, 0, sized(9000, 0, 30_000, 500)));
    let mut version = version(&edit);
    let mut edits = 0;
    let mut id = 9000;
    loop {
        let next = Edit {
            removed: vec![(6, id)],
            added: vec![(6, 0, sized(id + 1, 0, 30_000, 600 + edits))],
            ..Edit::default()
        };
        // All files wait again after each edit of the file below them, so the last edit is of a
        // file beside them.
        if edits < 3 {
            version = version.with(&next, &source()).unwrap();
            id += 1;
        } else {
            let beside = Edit {
                added: vec![(
                    6,
                    0,
                    sized(20_000 + edits, 40_000 + edits, 40_000 + edits, 1),
                )],
                ..Edit::default()
            };
            version = version.with(&beside, &source()).unwrap();
        }
        edits += 1;
        assert_eq!(version.move_costs_difference(), None);
        let LevelCosts { costs, waiting } = &version.move_costs.levels[4];
        let overlap = 600 + edits.min(3) - 1;
        let measured = costs.iter().filter(|cost| cost.overlap == overlap).count();
        if waiting.is_empty() {
            assert_eq!(measured, 3000);
            break;
        }
        assert!(measured <= MEASURED_MAX * 3 * edits as usize, "{measured}");
        assert!(edits < 100);
    }
    assert!(edits > 10);
}

#[test]
fn a_removed_file_that_is_not_there_is_damage() {
    let edit = Edit {
        added: vec![(5, 0, sized(1, 0, 9, 10)), (6, 0, sized(2, 0, 9, 10))],
        ..Edit::default()
    };
    let version = version(&edit);
    let removed = |level, id| Edit {
        removed: vec![(level, id)],
        ..Edit::default()
    };
    for (level, id) in [(5, 2), (6, 3), (0, 1)] {
        let error = version.with(&removed(level, id), &source()).unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
    // As the version set applies it, from the metadata in the manifest's state.
    let absent = Arc::new(sized(3, 5, 5, 10));
    let removed = [(6, 0, absent)];
    let applied = version.with_open(&Edit::default(), &removed, &source(), &[]);
    assert!(applied.is_err_and(|e| e.is_corruption()));
    assert!(version.with(&self::removed_both(), &source()).is_ok());
}

fn removed_both() -> Edit {
    Edit {
        removed: vec![(5, 1), (6, 2)],
        ..Edit::default()
    }
}
