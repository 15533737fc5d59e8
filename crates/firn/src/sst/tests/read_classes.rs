//! Each read of a file says what it is for.

use super::memory::{dictionary_options, wordy};
use super::*;
use crate::base::key::SEQNO_MAX;
use crate::env::{CountingEnv, Env, IoStats, MemEnv};
use std::collections::BTreeMap;
use std::path::Path;

struct Counted {
    env: CountingEnv,
    stats: Arc<IoStats>,
}

impl Counted {
    fn new(bytes: Vec<u8>) -> Self {
        let env = MemEnv::new();
        env.place(Path::new("/77.sst"), bytes);
        let env = CountingEnv::new(Arc::new(env));
        let stats = Arc::clone(env.counters());
        Self { env, stats }
    }

    /// Opens the file with an empty block cache, and without room for index partitions.
    fn open(&self) -> Arc<SstReader> {
        let cache = Arc::new(SstBlockCache::new(16 << 20));
        cache.set_room(16 << 20, 0);
        let file = self.env.open(Path::new("/77.sst")).unwrap();
        SstReader::open(file, FILE_ID, NAME.into(), cache).unwrap()
    }

    fn totals(&self) -> BTreeMap<&'static str, u64> {
        let all = self.stats.file_reads().by_class();
        all.map(|one| (one.class.name(), one.reads)).collect()
    }

    /// The classes of the reads that `f` makes, with their numbers.
    fn reads<T>(&self, f: impl FnOnce() -> T) -> BTreeMap<&'static str, u64> {
        let before = self.totals();
        f();
        let mut after = self.totals();
        after.iter_mut().for_each(|(name, n)| *n -= before[name]);
        after.retain(|_, n| *n > 0);
        after
    }
}

fn names(reads: &BTreeMap<&'static str, u64>) -> Vec<&'static str> {
    reads.keys().copied().collect()
}

#[test]
fn queries_read_blocks_and_what_leads_to_them() {
    let file = Counted::new(wordy(dictionary_options(), 1 << 20));
    assert_eq!(names(&file.reads(|| file.open())), ["index"]);
    let reader = file.open();
    let key = |n| edges::key(1, n);
    let point = || get(&reader, &key(5), SEQNO_MAX).unwrap().unwrap();
    let reads = file.reads(point);
    // A partition with its filter, the dictionary.
    assert_eq!(reads, [("index", 3), ("point", 1)].into());
    assert!(file.reads(point).is_empty(), "all is cached");
    // The start of a range, and a scan of the rest.
    let mut iter = reader.iter(ReadClass::Range, true);
    let reads = file.reads(|| iter.seek(&key(500), SEQNO_MAX).unwrap());
    assert_eq!(reads.get("range"), Some(&1), "{reads:?}");
    assert!(reads.keys().all(|name| ["index", "range"].contains(name)));
    let reads = file.reads(|| while iter.next().unwrap() {});
    assert_eq!(names(&reads), ["index", "range", "scan"]);
    assert_eq!(reads["range"], 1, "the third block in a row is read ahead");
    assert!(reads["scan"] >= 2, "{reads:?}");
    // The ends of a range whose rows are estimated.
    let reader = file.open();
    let reads = file.reads(|| {
        let place = reader.locate(&key(700)).unwrap();
        reader.rank(&place, &key(700)).unwrap()
    });
    assert_eq!(names(&reads), ["index", "range"]);
    // Rows of a batch.
    let reader = file.open();
    let hash = KeyHash::of(&key(900));
    let reads = file.reads(|| reader.get(&key(900), hash, SEQNO_MAX, ReadClass::Range, |_, _| ()));
    assert_eq!(reads, [("index", 3), ("range", 1)].into());
}

#[test]
fn whoever_reads_a_file_once_has_one_class() {
    let file = Counted::new(wordy(dictionary_options(), 1 << 20));
    for class in [ReadClass::Compaction, ReadClass::Load, ReadClass::Verify] {
        let reader = file.open();
        let reads = file.reads(|| {
            let mut iter = reader.iter(class, false);
            let mut on = iter.seek_to_first().unwrap();
            while on {
                on = iter.next().unwrap();
            }
        });
        assert_eq!(names(&reads), [class.name()]);
    }
    let reader = file.open();
    let reads = file.reads(|| reader.verify().unwrap());
    assert_eq!(names(&reads), ["verify"]);
    // Blocks that a compaction hands over to its outputs.
    let reader = file.open();
    let entries = reader.properties().entries;
    let reads = file.reads(|| {
        reader
            .warm(std::slice::from_ref(&(0..entries)), Vec::new())
            .unwrap()
    });
    assert_eq!(names(&reads), ["compaction"]);
    let reads = file.reads(|| reader.forget_cached().unwrap());
    assert_eq!(names(&reads), ["compaction"]);
}
