use super::*;
use crate::base::Error;
use crate::base::work_count::counted;
use crate::compaction::testing::no_files;
use crate::compaction::testing::{user_key, version_of};
use crate::version::{DamagedFile, Edit};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

/// A version of files given as (level, run, id, smallest key, largest key, size), of which those
/// with the ids `damaged` are in quarantine.
fn damaged_version(files: &[(u8, u64, u64, u64, u64, u64)], damaged: &[u64]) -> Version {
    damaged.iter().fold(version_of(files), |version, id| {
        let (level, file) = version.files().find(|(_, f)| f.file_id == *id).unwrap();
        let damaged = DamagedFile {
            level,
            meta: Arc::clone(file.meta()),
            error: Error::corruption("file", 0, "damaged"),
            unreadable: false,
        };
        version.with_quarantine(damaged).unwrap()
    })
}

fn held(version: &Version, base: u8) -> Vec<u64> {
    let held = HeldFiles::of(version, base);
    let mut ids: Vec<u64> = held.ids.iter().copied().collect();
    ids.sort_unstable();
    assert_eq!(ids.is_empty(), held.is_empty());
    ids
}

fn ids_of(group: &L0Overlap<'_>) -> Vec<u64> {
    group.files().map(|(_, f)| f.file_id).collect()
}

fn merged(version: &Version, due: usize) -> Vec<Vec<u64>> {
    let held = HeldFiles::of(version, 1);
    held.merges(due).map(|group| ids_of(&group)).collect()
}

#[test]
fn newer_files_over_damage_are_held_and_so_are_those_over_them() {
    // The example of `HeldFiles`, with the files A to E as 1 to 5.
    let files = [
        (0, 4, 4, 40, 60, 10),
        (0, 4, 5, 70, 80, 10),
        (0, 3, 3, 25, 45, 10),
        (0, 2, 2, 10, 30, 10),
        (0, 1, 1, 15, 35, 10),
    ];
    assert_eq!(held(&damaged_version(&files, &[]), 6), []);
    assert_eq!(held(&damaged_version(&files, &[2]), 6), [2, 3, 4]);
    assert_eq!(held(&damaged_version(&files, &[4]), 6), [4]);
    assert_eq!(held(&damaged_version(&files, &[1]), 6), [1, 2, 3, 4]);
}

#[test]
fn damage_in_the_base_holds_files_and_damage_below_it_does_not() {
    let files = [
        (0, 2, 3, 0, 9, 10),
        (0, 1, 2, 20, 29, 10),
        (1, 0, 1, 5, 15, 10),
        (2, 0, 4, 20, 29, 10),
    ];
    assert_eq!(held(&damaged_version(&files, &[1]), 1), [3]);
    assert_eq!(held(&damaged_version(&files, &[4]), 1), []);
}

#[test]
fn the_newest_runs_of_similar_size_are_merged() {
    let run = |n: u64, size| (0, n, n, 0, 9, size);
    let files = [run(5, 10), run(4, 20), run(3, 60), run(2, 181), run(1, 10)];
    let version = damaged_version(&files, &[1]);
    assert_eq!(merged(&version, 3), [[5, 4, 3]]);
    assert!(merged(&version, 4).is_empty());
    let files = [run(5, 10), run(4, 20), run(3, 60), run(2, 180), run(1, 10)];
    assert_eq!(merged(&damaged_version(&files, &[1]), 3), [[5, 4, 3, 2]]);
}

#[test]
fn no_merge_crosses_a_damaged_file() {
    let run = |n: u64| (0, n, n, 0, 9, 10);
    let mut files: Vec<_> = (1..8).rev().map(run).collect();
    // A neighbour of the damaged file 4 in its run.
    files.insert(4, (0, 4, 9, 20, 29, 10));
    files.push((1, 0, 10, 5, 25, 10));
    let version = damaged_version(&files, &[4, 10]);
    assert_eq!(held(&version, 1), [1, 2, 3, 4, 5, 6, 7, 9]);
    assert_eq!(merged(&version, 2), [vec![7, 6, 5], vec![3, 2, 1]]);
}

#[test]
fn files_across_an_edge_of_damage_are_found() {
    let version = damaged_version(
        &[
            (0, 3, 4, 40, 45, 10),
            (0, 2, 2, 10, 30, 10),
            (0, 2, 3, 31, 45, 10),
            (0, 1, 1, 20, 40, 10),
        ],
        &[1],
    );
    let mut expected = vec![user_key(1, 20), user_key(1, 40)];
    expected[1].push(0);
    assert_eq!(version.edges(0), expected);
    let of = HeldFiles::of(&version, 6);
    assert_eq!(of.across_edges(&version).len(), 3);
    let inside = damaged_version(&[(0, 2, 2, 20, 40, 10), (0, 1, 1, 20, 40, 10)], &[1]);
    assert_eq!(HeldFiles::of(&inside, 6).across_edges(&inside).len(), 0);
}

/// Checks that the files of `group` may be merged into the newest of their runs: their output, here
/// one file over all their keys, fits there, and no older version of a key rises above a newer one.
fn check_merge(version: &Version, group: &L0Overlap<'_>) {
    let files: Vec<FileInRun<'_>> = group.files().collect();
    let newest = files[0].0;
    let taken = |id: u64| files.iter().any(|(_, f)| f.file_id == id);
    for (at, file) in &files {
        for run in &version.l0[newest..*at] {
            for other in run.files.iter().filter(|other| !taken(other.file_id)) {
                let passed = other.overlaps(&file.smallest, &file.largest);
                assert!(!passed, "{file:?} rises above {other:?}");
            }
        }
    }
    let mut output = FileMeta::clone(files[0].1.meta());
    output.file_id = 10_000;
    for (_, file) in &files {
        output.smallest = output.smallest.min(file.smallest.clone());
        output.largest = output.largest.max(file.largest.clone());
        assert!(!version.in_quarantine(file.file_id));
    }
    let edit = Edit {
        removed: files.iter().map(|(_, f)| (0, f.file_id)).collect(),
        added: vec![(0, version.l0[newest].number, output)],
        ..Edit::default()
    };
    let next = version.with(&edit, &no_files()).unwrap();
    assert_eq!(next.check_all(), None);
}

/// A file of run 3 that is not held lies between two that are. What joins them is above a damaged
/// file, so it belongs to another group.
#[test]
fn a_merge_leaves_room_for_free_files() {
    let files = [
        (0, 5, 50, 0, 30, 10),
        (0, 4, 40, 26, 28, 10),
        (0, 3, 31, 11, 13, 10),
        (0, 3, 32, 15, 17, 10),
        (0, 3, 33, 18, 19, 10),
        (0, 2, 21, 8, 14, 10),
        (0, 2, 22, 18, 25, 10),
        (0, 1, 11, 0, 10, 10),
        (0, 1, 12, 20, 30, 10),
    ];
    let version = damaged_version(&files, &[11, 12, 40]);
    assert_eq!(held(&version, 6), [11, 12, 21, 22, 31, 33, 40, 50]);
    assert_eq!(merged(&version, 2), [[31, 21], [33, 22]]);
    for group in HeldFiles::of(&version, 6).merges(2) {
        check_merge(&version, &group);
    }
}

#[test]
fn no_merge_breaks_the_order_of_l0() {
    let mut seen = [0; 3];
    for seed in 0..2000 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut files = Vec::new();
        for run in (1..rng.random_range(4..9)).rev() {
            let mut from = rng.random_range(0..20);
            while from < 100 {
                let to = from + rng.random_range(0..12);
                files.push((
                    0,
                    run,
                    files.len() as u64 + 1,
                    from,
                    to,
                    rng.random_range(5..20),
                ));
                from = to + rng.random_range(1..25);
            }
        }
        let count = rng.random_range(1..5);
        let mut damaged: Vec<u64> = (0..count)
            .map(|_| rng.random_range(1..=files.len() as u64))
            .collect();
        damaged.sort_unstable();
        damaged.dedup();
        let version = damaged_version(&files, &damaged);
        let held = HeldFiles::of(&version, 6);
        for group in held.merges(2) {
            check_merge(&version, &group);
            seen[0] += 1;
            for (run, file) in group.files() {
                check_merge(&version, &group.take(&group.part_above((run, file))));
                seen[1] += 1;
            }
        }
        for part in held.across_edges(&version) {
            check_merge(&version, &part);
            seen[2] += 1;
        }
    }
    assert!(seen.iter().all(|n| *n > 1000), "{seen:?}");
}

/// The work grows with the files of L0, not with their number times that of the damaged ones.
#[test]
fn many_damaged_files_take_no_more_work_each() {
    let count = 300;
    let upper = (0..count).map(|n| (0, 1, 1 + n, 10 * n, 10 * n + 5, 10));
    let lower = (0..count).map(|n| (1, 0, 1000 + n, 10 * n, 10 * n + 5, 10));
    let files: Vec<_> = upper.chain(lower).collect();
    let damaged: Vec<u64> = (1000..1000 + count).collect();
    let version = damaged_version(&files, &damaged);
    let (held, work) = counted(|| HeldFiles::of(&version, 1));
    assert_eq!(held.groups.len(), count as usize);
    assert!(work.files < 50 * count, "{work:?}");
}
