use super::super::{RestGoal, RetiredIndexes, RunningJobs, changes_at_rest};
use super::*;
use crate::base::options::Options;
use crate::base::work_count::counted;
use crate::compaction::testing::{no_files, user_key, version_of};
use crate::version::{Edit, FileMeta, Version};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

fn with<T>(version: &Version, f: impl FnOnce(&PickerContext<'_>) -> T) -> T {
    f(&PickerContext {
        version,
        options: &Options::default(),
        running: &RunningJobs::default(),
        retired: &RetiredIndexes::new(),
        oldest_read: 100,
        reported: &[],
        rest: RestGoal::Complete,
    })
}

fn range(from: u64, to: u64) -> KeyRange {
    KeyRange {
        smallest: user_key(1, from),
        largest: user_key(1, to),
    }
}

/// Compares with a look at each file.
#[test]
fn restless_files_are_counted_once() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut files = Vec::new();
        let mut id = 1;
        for (level, run) in [(0, 2), (0, 1), (5, 0), (6, 0)] {
            let mut from = rng.random_range(0..9);
            for _ in 0..rng.random_range(1..60) {
                let to = from + rng.random_range(0..9);
                files.push((level, run, id, from, to, rng.random_range(1..100)));
                from = to + rng.random_range(1..9);
                id += 1;
            }
        }
        let mut version = version_of(&files);
        // Some files of the last level have garbage, or the layout of the upper levels.
        let mut edit = Edit::default();
        for file in version.levels[5].files.iter() {
            if rng.random() {
                let mut meta = FileMeta::clone(file.meta());
                meta.file_id += 1000;
                meta.at_rest = rng.random();
                meta.superseded = rng.random_range(0..2);
                meta.max_seqno = [6, 200][rng.random_range(0..2)];
                edit.removed.push((6, file.file_id));
                edit.added.push((6, 0, meta));
            }
        }
        version = version.with(&edit, &no_files()).unwrap();
        let order = RestOrder {
            ranges: vec![range(0, 50), range(40, 90), range(150, 200)],
            until: [4, 100][rng.random_range(0..2)],
        };
        with(&version, |p| {
            let mut right = RestlessFiles::default();
            for (level, file) in version.files() {
                let rests = level == LAST && !changes_at_rest(file, p.retired, p.oldest_read);
                if order.wants(file) && !rests {
                    right.files += 1;
                    right.bytes += file.size;
                }
            }
            assert_eq!(restless_files(p, &order), right, "seed {seed}");
            assert_eq!(is_at_rest(p, &order), right.files == 0);
        });
    }
}

/// The work on one file does not grow with the files of the table.
#[test]
fn a_large_table_is_not_visited_for_each_job() {
    let last = (0..20_000).map(|n| (6, 0, 100 + n, 10 * n, 10 * n + 9, 100));
    let upper = (0..2000).map(|n| (5, 0, 100_000 + n, 100 * n + 5, 100 * n + 25, 10));
    let version = version_of(&last.chain(upper).collect::<Vec<_>>());
    let order = RestOrder {
        ranges: vec![range(0, 1 << 40)],
        until: 100,
    };
    let late = RestOrder {
        until: 4,
        ..order.clone()
    };
    with(&version, |p| {
        let (job, work) = counted(|| pick_within(p, &order));
        assert!(job.is_some());
        assert!(work.files < 1500, "{work:?}");
        let (job, work) = counted(|| pick_within(p, &late));
        assert!(job.is_none(), "all was written after the work began");
        assert!(work.files < 1500, "{work:?}");
        let (left, work) = counted(|| restless_files(p, &order));
        assert_eq!(left.files, 2000);
        assert!(work.files < 2000 * 4 + 100, "{work:?}");
    });
}

/// Of many cheap files that were written after the work began, none is taken, but the one behind
/// them is.
#[test]
fn a_wanted_file_is_found_behind_cheaper_ones() {
    let mut files: Vec<_> = (0..500)
        .map(|n| (5, 0, 1 + n, 10 * n, 10 * n + 5, 100))
        .collect();
    files.push((6, 0, 1000, 3000, 3005, 10_000));
    let mut version = version_of(&files);
    let mut edit = Edit::default();
    for file in version.levels[4].files.iter().filter(|f| f.file_id != 301) {
        let mut meta = FileMeta::clone(file.meta());
        meta.file_id += 2000;
        (meta.min_seqno, meta.max_seqno) = (60, 60);
        edit.removed.push((5, file.file_id));
        edit.added.push((5, 0, meta));
    }
    version = version.with(&edit, &no_files()).unwrap();
    let order = RestOrder {
        ranges: vec![range(0, 1 << 40)],
        until: 50,
    };
    with(&version, |p| {
        let (job, work) = counted(|| pick_within(p, &order));
        let job = job.expect("file 301 is wanted");
        let ids: Vec<u64> = job.files().map(|(_, f)| f.file_id).collect();
        assert_eq!(ids, [301, 1000]);
        assert!(work.files < 500, "{work:?}");
    });
}

/// The work on a range ends although damage keeps files where they are.
#[test]
fn files_that_damage_keeps_are_not_restless() {
    let mut version = version_of(&[
        (0, 3, 1, 0, 9, 10),
        (0, 2, 2, 5, 15, 10),
        (0, 1, 3, 100, 110, 10),
        (5, 0, 4, 20, 29, 10),
        (5, 0, 5, 40, 49, 10),
        (6, 0, 6, 25, 35, 10),
    ]);
    let order = RestOrder {
        ranges: vec![range(0, 200)],
        until: 100,
    };
    for id in [2, 6] {
        let (level, file) = version.files().find(|(_, f)| f.file_id == id).unwrap();
        let damaged = crate::version::DamagedFile {
            level,
            meta: std::sync::Arc::clone(file.meta()),
            error: crate::base::Error::corruption("file", 0, "damaged"),
            unreadable: false,
        };
        version = version.with_quarantine(damaged).unwrap();
    }
    let left = with(&version, |p| restless_files(p, &order));
    assert_eq!((left.files, left.bytes), (2, 20), "files 3 and 5");
    let over = RestOrder {
        ranges: vec![range(0, 39)],
        ..order
    };
    assert!(with(&version, |p| is_at_rest(p, &over)));
}
