use super::*;
use crate::base::Kind;
use crate::base::prefix_extractor::NoPrefixExtractors;
use crate::base::work_count::counted;
use crate::env::{Env, MemEnv};
use crate::sst::SstBlockCache;
use crate::store::FileStore;
use crate::version::{FileMeta, FileSource, testing};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::path::Path;

fn key(n: u32) -> Vec<u8> {
    [7u32.to_be_bytes(), n.to_be_bytes()].concat()
}

fn source() -> Arc<FileSource> {
    let env: Arc<dyn Env> = Arc::new(MemEnv::new());
    env.create_dir_all(Path::new("/estimates")).unwrap();
    let store = FileStore::new(env, "/estimates");
    FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20)))
}

/// A run of up to 150 files with up to 30 entries each, and its keys. Between the files, keys are
/// left out.
fn random_run(rng: &mut StdRng) -> (Arc<Run>, Vec<u32>) {
    let source = source();
    let mut files = Vec::new();
    let mut all = Vec::new();
    let mut next = rng.random_range(0..50);
    for id in 1..=rng.random_range(1..150) {
        let mut keys = Vec::new();
        for _ in 0..rng.random_range(1..30) {
            next += rng.random_range(1..4);
            let kind = match rng.random_ratio(1, 8) {
                true => Kind::Delete,
                false => Kind::Put,
            };
            keys.push((key(next), kind));
            all.push(next);
        }
        next += rng.random_range(0..5);
        let file = testing::written(&source, id, &keys, Arc::new(NoPrefixExtractors));
        let mut meta = FileMeta::clone(file.meta());
        meta.superseded = rng.random_range(0..3);
        files.push(FileHandle::new(Arc::new(meta), Arc::clone(&source)));
    }
    (Arc::new(Run::new(1, files)), all)
}

/// The numbers of a run in a range, summed up file by file.
#[derive(Debug, PartialEq)]
struct Numbers {
    files: usize,
    total: u64,
    entries: (u64, u64),
    deletes: (u64, u64),
    superseded: u64,
    cuts: Vec<u64>,
}

impl Numbers {
    fn visited(files: FileSpan<'_>, range: &ScanRange) -> Self {
        let mut numbers = Self {
            files: files.len(),
            total: 0,
            entries: (0, 0),
            deletes: (0, 0),
            superseded: 0,
            cuts: Vec::new(),
        };
        for file in files {
            numbers.total += file.entries;
            numbers.superseded += file.superseded;
            let (lower, upper) = (lower_in(file, range), upper_in(file, range));
            let (mut entries, mut deletes) =
                ((file.entries, file.entries), (file.deletes, file.deletes));
            if lower.is_some() || upper.is_some() {
                numbers.cuts.push(file.file_id);
                let reader = file.reader().unwrap();
                let bounds =
                    |key: Option<&[u8]>| key.map(|key| reader.locate(key).unwrap().bounds());
                let from = bounds(lower).unwrap_or((0, 0));
                let to = bounds(upper).unwrap_or(entries);
                entries = (to.0.saturating_sub(from.1), to.1.saturating_sub(from.0));
                if file.deletes > 0 {
                    let (least, most) = reader.deletes_within(lower, upper).unwrap();
                    deletes = (least, most.min(entries.1));
                }
            }
            numbers.entries.0 += entries.0;
            numbers.entries.1 += entries.1;
            numbers.deletes.0 += deletes.0;
            numbers.deletes.1 += deletes.1;
        }
        numbers
    }

    fn of(found: &RunInRange<'_>) -> Self {
        let entries = found.entries();
        Self {
            files: found.files.len(),
            total: found.total(),
            entries: (entries.least, entries.most),
            deletes: (found.deletes.least, found.deletes.most),
            superseded: found.superseded,
            cuts: found.cuts.iter().map(|cut| cut.file.file_id).collect(),
        }
    }
}

fn check(run: &Arc<Run>, keys: &[u32], range: &ScanRange, rng: &mut StdRng) {
    let bound = range.upper.as_deref();
    let bound = bound.map_or(Bound::Unbounded, Bound::Excluded);
    let files = run.overlapping(&range.lower, bound);
    let Some(mut found) = RunInRange::of(run, range).unwrap() else {
        assert!(files.is_empty());
        return;
    };
    assert_eq!(Numbers::of(&found), Numbers::visited(files, range));
    let entries_min = rng.random_range(1..60);
    let groups: Vec<(u64, u64)> = found
        .groups(entries_min)
        .map(|(last, entries)| (last.file_id, entries))
        .collect();
    let (mut visited, mut waiting) = (Vec::new(), 0);
    for file in files {
        waiting += file.entries;
        if waiting >= entries_min {
            visited.push((file.file_id, std::mem::take(&mut waiting)));
        }
    }
    assert_eq!(groups, visited);
    // The keys of the files before the first one of the range.
    let first = files.first().unwrap();
    let before = keys.partition_point(|n| key(*n) < first.smallest);
    let last = files.last().unwrap();
    let end = keys.partition_point(|n| key(*n) <= last.largest);
    let n = rng.random_range(keys[before]..=keys[end - 1] + 1);
    let rank = keys[before..end].partition_point(|other| *other < n);
    assert_eq!(found.rank(&key(n)).unwrap(), rank as u64);
    found.count(range).unwrap();
    let within = |n: &&u32| {
        key(**n) >= range.lower && range.upper.as_ref().is_none_or(|end| key(**n) < *end)
    };
    let exact = keys.iter().filter(within).count() as u64;
    let entries = found.entries();
    assert_eq!((entries.least, entries.most), (exact, exact));
}

/// The numbers from sums are those of a visit to every file.
#[test]
fn the_sums_of_a_range_are_those_of_its_files() {
    for seed in 0..60 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let (run, keys) = random_run(rng);
        for _ in 0..40 {
            let end = |rng: &mut StdRng| match rng.random_range(0..3) {
                // Keys at which a file begins or ends.
                0 => keys[rng.random_range(0..keys.len())],
                _ => rng.random_range(0..keys[keys.len() - 1] + 20),
            };
            let (lower, upper) = (end(rng), end(rng));
            let upper = (!rng.random_ratio(1, 5)).then(|| key(upper.max(lower) + 1));
            let range = ScanRange {
                lower: key(lower),
                upper,
            };
            check(&run, &keys, &range, rng);
        }
    }
}

/// An estimate visits no more files of a long run than a few bisections do.
#[test]
fn the_work_of_a_range_does_not_grow_with_its_files() {
    let source = source();
    let mut work = Vec::new();
    for count in [64, 4096, 65_536_u32] {
        let file = |n: u32| testing::file(u64::from(n) + 1, &key(2 * n), &key(2 * n + 1));
        let files = (0..count).map(|n| FileHandle::new(Arc::new(file(n)), Arc::clone(&source)));
        let run = Arc::new(Run::new(1, files.collect()));
        let range = ScanRange {
            lower: key(0),
            upper: Some(key(u32::MAX)),
        };
        let (entries, counts) = counted(|| {
            let found = RunInRange::of(&run, &range).unwrap().unwrap();
            let groups = found.groups(found.total().div_ceil(64)).count();
            assert_eq!(groups, 64);
            found.total()
        });
        assert_eq!(entries, u64::from(count) * 10);
        work.push(counts.files);
        let bisections = 4 * u64::from(count.ilog2()) + 8;
        assert!(counts.files <= bisections, "{count} files: {work:?}");
    }
}
