//! Random edits; after each one the totals equal what the files say, counted in another way.

use super::*;
use crate::base::event_listener::Silent;
use crate::base::health::Health;
use crate::env::{Env, MemEnv};
use crate::sst::SstBlockCache;
use crate::store::FileStore;
use crate::version::testing::file;
use crate::version::{Edit, FileSource, FileSums, Version, VersionSet, VersionSetContext};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

const DIR: &str = "/totals";
/// Keys: each index has eight.
const SLOTS: u64 = 400;
const PER_INDEX: u64 = 8;

fn key(slot: u64) -> Vec<u8> {
    let index = (slot / PER_INDEX) as u32 + 1;
    let mut key = index.to_be_bytes().to_vec();
    key.push((slot % PER_INDEX) as u8);
    key
}

fn open(env: &Arc<dyn Env>) -> VersionSet {
    let store = FileStore::new(Arc::clone(env), DIR);
    VersionSet::open(VersionSetContext {
        env: Arc::clone(env),
        dir: PathBuf::from(DIR),
        source: FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20))),
        health: Arc::new(Health::new()),
        listener: Arc::new(Silent),
    })
    .unwrap()
}

/// A file over the slots from `from` to `to`, both inclusive.
fn random_file(rng: &mut StdRng, id: u64, from: u64, to: u64) -> FileMeta {
    let mut meta = file(id, &key(from), &key(to));
    let indexes = from / PER_INDEX + 1..=to / PER_INDEX + 1;
    let dirty = rng.random_range(0..3) > 0;
    let stats = indexes.map(|index| {
        let entries = rng.random_range(1..1000);
        IndexStats {
            index: index as u32,
            entries,
            deletes: if dirty {
                rng.random_range(0..=entries)
            } else {
                0
            },
            raw_bytes: entries * rng.random_range(1..100),
            stored_bytes: entries * rng.random_range(1..50),
        }
    });
    meta.per_index = stats.collect();
    meta.entries = meta.per_index.iter().map(|s| s.entries).sum();
    meta.deletes = meta.per_index.iter().map(|s| s.deletes).sum();
    meta.superseded = if dirty {
        rng.random_range(0..=meta.entries)
    } else {
        0
    };
    meta.dense_deletes = rng.random_range(0..=meta.deletes);
    meta.size = rng.random_range(1..1 << 30);
    meta.max_seqno = rng.random_range(1..100);
    meta.at_rest = rng.random();
    let mut blobs: Vec<u64> = (0..rng.random_range(0..4))
        .map(|_| 1 + rng.random_range(0..30))
        .collect();
    blobs.sort_unstable();
    blobs.dedup();
    let used = blobs.into_iter().map(|file| BlobUse {
        file,
        refs: rng.random_range(1..9),
        // Some sums do not fit into 64 bits.
        bytes: rng.random_range(1..1 << 58),
    });
    meta.blobs = used.collect();
    meta
}

/// Whether the slots are free in the run of `level` and `run`.
fn is_free(version: &Version, level: u8, run: u64, from: u64, to: u64) -> bool {
    let mut runs = version
        .runs(level)
        .iter()
        .filter(|r| level > 0 || r.number == run);
    runs.all(|r| !r.files.iter().any(|f| f.overlaps(&key(from), &key(to))))
}

/// An edit of a few removals, additions and moves.
fn random_edit(rng: &mut StdRng, versions: &VersionSet) -> Edit {
    let version = versions.current();
    let all: Vec<_> = version.files().collect();
    let mut edit = Edit::default();
    let mut taken: HashSet<u64> = HashSet::new();
    for _ in 0..rng.random_range(0..4) {
        if !all.is_empty() && (all.len() > 60 || rng.random_range(0..3) == 0) {
            let (level, file) = all[rng.random_range(0..all.len())];
            if taken.insert(file.file_id) {
                edit.removed.push((level, file.file_id));
                let to = rng.random_range(1..LEVELS as u8);
                let slots = |key: &[u8]| u64::from(key[3] - 1) * PER_INDEX + u64::from(key[4]);
                let (a, b) = (slots(&file.smallest), slots(&file.largest));
                if rng.random() && is_free(&version, to, 0, a, b) && apart(&edit, to, a, b) {
                    edit.added.push((to, 0, FileMeta::clone(file.meta())));
                }
            }
        }
    }
    let run = versions.new_run_number();
    for _ in 0..rng.random_range(0..6) {
        let level = rng.random_range(0..LEVELS as u8);
        let from = rng.random_range(0..SLOTS);
        let to = (from + rng.random_range(0..20)).min(SLOTS - 1);
        if is_free(&version, level, run, from, to) && apart(&edit, level, from, to) {
            let meta = random_file(rng, versions.new_file_id(), from, to);
            edit.added
                .push((level, if level == 0 { run } else { 0 }, meta));
        }
    }
    edit
}

/// Whether no added file of `level` overlaps the slots.
fn apart(edit: &Edit, level: u8, from: u64, to: u64) -> bool {
    let mut added = edit.added.iter().filter(|(at, ..)| *at == level);
    added.all(|(.., meta)| !meta.overlaps(&key(from), &key(to)))
}

/// Compares the answers of `version` with those counted from its files.
fn compare(version: &Version) {
    assert_eq!(version.totals_difference(), None);
    assert_eq!(version.check_all(), None);
    let files: Vec<_> = version.files().collect();
    let mut blobs: BTreeMap<u64, (u64, u128)> = BTreeMap::new();
    for used in files.iter().flat_map(|(_, f)| &f.blobs) {
        let sum = blobs.entry(used.file).or_default();
        *sum = (sum.0 + used.refs, sum.1 + u128::from(used.bytes));
    }
    let uses = version.blob_uses();
    let sums: Vec<BlobUse> = uses.to_uses().iter().collect();
    let narrow = |bytes: u128| bytes.min(u128::from(u64::MAX)) as u64;
    assert_eq!(sums.len(), blobs.len());
    for (file, (refs, bytes)) in &blobs {
        let of = uses.of(*file);
        assert_eq!((of.refs, of.bytes), (*refs, narrow(*bytes)));
        let naming = files
            .iter()
            .filter(|(_, f)| f.blobs.iter().any(|used| used.file == *file));
        let naming: u64 = naming.map(|(_, f)| f.size).sum();
        assert_eq!(uses.naming_bytes([*file].into_iter()), naming);
    }
    assert_eq!(uses.naming_bytes([1000, 1001].into_iter()), 0);
    assert_eq!(uses.bytes(), narrow(blobs.values().map(|(_, b)| b).sum()));
    assert_eq!(uses.is_empty(), blobs.is_empty());
    let depth = (0..SLOTS).map(|slot| {
        let l0 = files.iter().filter(|(level, _)| *level == 0);
        l0.filter(|(_, f)| f.range().contains(&key(slot))).count()
    });
    assert_eq!(version.l0_depth(), depth.max().unwrap());
    let mut entry_bytes: HashMap<IndexId, u64> = HashMap::new();
    for index in 1..=(SLOTS / PER_INDEX) as IndexId {
        let of = |level: Option<u8>| {
            let files = files
                .iter()
                .filter(move |(l, _)| level.is_none_or(|level| *l == level));
            files.filter_map(move |(_, f)| f.index(index))
        };
        let stats = version.index_stats(index);
        assert_eq!(stats.entries, of(None).map(|s| s.entries).sum::<u64>());
        assert_eq!(stats.deletes, of(None).map(|s| s.deletes).sum::<u64>());
        assert_eq!(stats.raw_bytes, of(None).map(|s| s.raw_bytes).sum::<u64>());
        assert_eq!(
            stats.stored_bytes,
            of(None).map(|s| s.stored_bytes).sum::<u64>()
        );
        let last = || of(Some(LAST_LEVEL as u8));
        let bytes: u64 = last().map(|s| s.stored_bytes).sum();
        entry_bytes.insert(index, bytes / last().map(|s| s.entries).sum::<u64>().max(1));
        let runs = version.l0.iter().chain(&version.levels);
        let with: Vec<_> = runs
            .filter(|r| r.files.iter().any(|f| f.index(index).is_some()))
            .collect();
        let clean = files.iter().all(|(_, f)| {
            f.index(index)
                .is_none_or(|s| f.superseded == 0 && s.deletes == 0)
        });
        assert_eq!(version.is_plain(index), with.len() == 1 && clean);
        let runs = version.l0.iter().chain(&version.levels);
        let found = runs.flat_map(|run| run.of_index(index));
        let found = found
            .filter(|f| f.index(index).is_some())
            .map(|f| f.file_id);
        let right = files.iter().filter(|(_, f)| f.index(index).is_some());
        assert!(found.eq(right.map(|(_, f)| f.file_id)));
    }
    for level in 0..LEVELS as u8 {
        let here = || files.iter().filter(|(l, _)| *l == level);
        let deleting = here().flat_map(|(_, f)| &f.per_index);
        let freed: u64 = deleting.map(|s| s.deletes * entry_bytes[&s.index]).sum();
        assert_eq!(version.reclaimable(level), freed);
        let by_file: u64 = here().map(|(_, f)| version.reclaimable_by(f)).sum();
        assert_eq!(by_file, freed);
        let mut sums = FileSums::default();
        here().for_each(|(_, f)| sums.add(&FileSums::of(f)));
        assert_eq!(version.level_sums(level), sums);
        assert_eq!(sums.size, here().map(|(_, f)| f.size).sum::<u64>());
    }
}

#[test]
fn totals_are_those_of_the_files_after_random_edits_and_reopens() {
    for seed in 0..6 {
        let rng = &mut StdRng::seed_from_u64(seed);
        let env: Arc<dyn Env> = Arc::new(MemEnv::new());
        env.create_dir_all(Path::new(DIR)).unwrap();
        let mut versions = open(&env);
        for step in 0..120 {
            let edit = random_edit(rng, &versions);
            let before = versions.current();
            versions.apply(edit).unwrap();
            if step % 5 == 0 {
                compare(&versions.current());
                // The edit has changed a copy.
                compare(&before);
            }
            if step % 40 == 20 {
                let some: Vec<_> = versions
                    .current()
                    .files()
                    .map(|(_, f)| Arc::clone(f))
                    .collect();
                compare(&versions.close_files(&some[..some.len() / 2]));
                drop(versions);
                versions = open(&env);
                compare(&versions.current());
            }
        }
    }
}
