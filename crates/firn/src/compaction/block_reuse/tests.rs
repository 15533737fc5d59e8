use crate::base::key::UNCOMMITTED_BIT;
use crate::base::options::Options;
use crate::base::{InternalIterator, InternalKey, Kind, Seqno, Value};
use crate::compaction::JobStats;
use crate::compaction::testing::{Db, Entry, VecIter, entry, user_key};
use crate::compaction::{
    HandoverPace, Job, JobKind, PickerContext, RestGoal, RetiredIndexes, RunningJobs, Snapshots,
    flush, pick, run_job,
};
use crate::env::{IoStats, PosixEnv, ReadClass};
use crate::sst::{CachedBlock, IndexStats, SstOptions, SstWriter};
use crate::store::PooledBlocks;
use crate::store::testing::{MapPool, PoolCall};
use crate::version::FileMeta;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A tree whose jobs the test runs one by one.
struct Tree {
    db: Db,
    retired: RetiredIndexes,
    reused: u64,
    jobs: u64,
}

impl Tree {
    fn new(block_reuse: bool) -> Self {
        Self::over(Db::new(), block_reuse)
    }

    fn over(mut db: Db, block_reuse: bool) -> Self {
        db.options = Options {
            block_reuse,
            target_file_size: 4 << 20,
            ..db.options
        };
        Self {
            db,
            retired: RetiredIndexes::new(),
            reused: 0,
            jobs: 0,
        }
    }

    fn flush(&self, entries: Vec<Entry>, reads: &Snapshots) {
        let mut source = VecIter::new(entries);
        let (files, _) = flush(
            self.db.context(),
            &mut source,
            reads,
            &self.retired,
            &AtomicBool::new(false),
        )
        .unwrap();
        self.db.install_run(files);
    }

    /// Adds files to L0 with the external seqno `seqno`, as a commit ingests files written before
    /// it. `stored` gives the seqnos stored in them.
    fn ingest(&self, entries: &[Entry], seqno: Seqno, stored: impl Fn(u64) -> Seqno) {
        let versions = &self.db.versions;
        let (id, block_size) = (versions.new_file_id(), self.db.options.block_size);
        let file = versions.source().store().create(id).unwrap();
        let options = match seqno % 2 {
            0 => SstOptions::last_level(block_size),
            _ => SstOptions::upper_level(block_size),
        };
        let mut writer = SstWriter::new(file, id, options, 0).with_external_seqno();
        for (n, (key, _, kind, value)) in entries.iter().enumerate() {
            let key = InternalKey::new(key, stored(n as u64), *kind);
            writer.add(key, Value::split(value, &[])).unwrap();
        }
        let meta = FileMeta::from_summary(writer.finish().unwrap(), 0, seqno.is_multiple_of(2));
        self.db.install_run(vec![meta.with_external_seqno(seqno)]);
    }

    fn pick(&self, reads: &Snapshots, rest: RestGoal) -> Option<Job> {
        pick(&PickerContext {
            version: &self.db.versions.current(),
            options: &self.db.options,
            running: &RunningJobs::default(),
            retired: &self.retired,
            oldest_read: reads.oldest(),
            reported: &[],
            rest,
        })
    }

    fn run(&mut self, job: &Job, reads: &Snapshots) -> JobStats {
        let version = self.db.versions.current();
        let context = self.db.context();
        let cancel = AtomicBool::new(false);
        let (edit, stats) = run_job(context, &version, job, reads, &self.retired, &cancel).unwrap();
        self.db.versions.apply(edit).unwrap();
        self.reused += stats.reused_bytes;
        stats
    }

    /// Runs all due jobs; with [`RestGoal::Complete`] down to the resting state.
    fn compact(&mut self, reads: &Snapshots, rest: RestGoal) {
        while let Some(job) = self.pick(reads, rest) {
            self.run(&job, reads);
            self.jobs += 1;
            assert!(self.jobs < 10_000, "compaction does not end");
            drop(job);
            self.db.versions.delete_obsolete().unwrap();
        }
    }

    /// The result of a read at `seqno`: each key with the seqno that wrote it.
    fn visible(&self, entries: &[Entry], seqno: Seqno) -> Vec<(Vec<u8>, [u8; 8])> {
        let mut seen: Vec<(Vec<u8>, Kind, [u8; 8])> = Vec::new();
        for (key, at, kind, wrote) in entries {
            if *at <= seqno && seen.last().is_none_or(|(last, ..)| last != key) {
                seen.push((key.clone(), *kind, *wrote));
            }
        }
        let dropped = |key: &[u8]| {
            self.retired
                .keys()
                .any(|id| key.starts_with(&id.to_be_bytes()))
        };
        seen.into_iter()
            .filter(|(key, kind, _)| kind.is_put() && !dropped(key))
            .map(|(key, _, wrote)| (key, wrote))
            .collect()
    }

    /// Checks every file: its blocks are intact, its filters contain its keys, its metadata match.
    fn check(&self, context: &str) {
        for (_, file) in self.db.versions.current().files() {
            let reader = file.reader().unwrap();
            let report = reader.verify().unwrap_or_else(|e| panic!("{context}: {e}"));
            assert_eq!(report.checksum, file.checksum, "{context}");
            assert_eq!(
                (report.entries, report.deletes),
                (file.entries, file.deletes),
                "{context}"
            );
            assert_eq!(reader.properties().per_index, file.per_index, "{context}");
            let mut iter = reader.iter(ReadClass::Compaction, false);
            let (mut last, mut superseded) = (Vec::new(), 0);
            let mut on = iter.seek_to_first().unwrap();
            while on {
                let key = iter.key().user_key.to_vec();
                assert!(reader.may_contain(&key).unwrap(), "{context}: {key:?}");
                superseded += u64::from(key == last);
                last = key;
                on = iter.next().unwrap();
            }
            assert_eq!(superseded, file.superseded, "{context}");
        }
    }

    fn index_stats(&self) -> BTreeMap<u32, (u64, u64, u64)> {
        let mut sums = BTreeMap::new();
        for (_, file) in self.db.versions.current().files() {
            for s in &file.per_index {
                let IndexStats {
                    entries,
                    deletes,
                    raw_bytes,
                    ..
                } = *s;
                let sum: &mut (u64, u64, u64) = sums.entry(s.index).or_default();
                *sum = (sum.0 + entries, sum.1 + deletes, sum.2 + raw_bytes);
            }
        }
        sums
    }
}

/// The keys of a batch: neighbours, so that whole blocks between batches stay untouched.
fn batch(rng: &mut StdRng, keys: u64) -> BTreeSet<(u32, u64)> {
    let index = rng.random_range(1..4);
    match rng.random_range(0..4) {
        0 => (0..rng.random_range(1..60))
            .map(|_| (index, rng.random_range(0..keys)))
            .collect(),
        1 => {
            let from = rng.random_range(0..keys);
            (from..from + rng.random_range(1..3000))
                .map(|n| (index, n))
                .collect()
        }
        2 => (0..20)
            .flat_map(|_| {
                let from = rng.random_range(0..keys);
                from..from + 40
            })
            .map(|n| (index, n))
            .collect(),
        _ => (1..4).map(|i| (i, rng.random_range(0..keys))).collect(),
    }
}

#[test]
fn reads_see_the_same_with_and_without() {
    let mut reused = 0;
    for seed in 0..3 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut with = Tree::new(true);
        let mut without = Tree::new(false);
        let keys = 40_000;
        let mut seqno = 1;
        let mut snapshots: BTreeSet<Seqno> = BTreeSet::new();
        for round in 0..24 {
            let context = format!("seed {seed}, round {round}");
            let written: BTreeSet<(u32, u64)> = match round {
                0 => (0..keys).flat_map(|n| [(1, n), (2, n)]).collect(),
                _ => batch(&mut rng, keys),
            };
            let deletes = round > 0 && rng.random_range(0..3) == 0;
            let ingested = round == 0 || rng.random_range(0..3) == 0;
            let zeros: bool = rng.random();
            let mut entries = Vec::new();
            seqno += 1;
            for (index, n) in written {
                seqno += u64::from(!ingested);
                let kind = match deletes && rng.random_range(0..4) > 0 {
                    true => Kind::Delete,
                    false => Kind::Put,
                };
                entries.push(entry(user_key(index, n), seqno, kind));
            }
            if rng.random_range(0..3) == 0 {
                snapshots.insert(seqno - rng.random_range(0..10).min(seqno - 1));
            }
            if rng.random_range(0..3) == 0 {
                snapshots.pop_first();
            }
            if round == 15 && seed % 2 == 0 {
                with.retired.insert(3, seqno);
                without.retired.insert(3, seqno);
            }
            let reads = Snapshots::new(seqno, snapshots.iter().copied());
            let rest =
                [RestGoal::No, RestGoal::WhereItPays, RestGoal::Complete][rng.random_range(0..3)];
            for tree in [&mut with, &mut without] {
                match ingested {
                    true => tree.ingest(&entries, seqno, |n| match zeros {
                        true => 0,
                        false => UNCOMMITTED_BIT | (n + 1),
                    }),
                    false => tree.flush(entries.clone(), &reads),
                }
                tree.compact(&reads, rest);
            }
            with.check(&context);
            let (a, b) = (with.db.scan(), without.db.scan());
            for at in snapshots.iter().copied().chain([seqno]) {
                assert_eq!(
                    with.visible(&a, at),
                    without.visible(&b, at),
                    "{context}: at {at}"
                );
            }
        }
        let reads = Snapshots::new(seqno, []);
        with.compact(&reads, RestGoal::Complete);
        without.compact(&reads, RestGoal::Complete);
        assert!(without.reused == 0);
        with.check("at rest");
        assert_eq!(with.db.scan(), without.db.scan(), "seed {seed}: at rest");
        assert_eq!(with.index_stats(), without.index_stats(), "seed {seed}");
        reused += with.reused;
    }
    assert!(reused > 1 << 20, "only {reused} bytes were copied");
}

/// A key that sorts by `n` and hardly compresses.
fn long_key(n: u64) -> Vec<u8> {
    let noise = crate::base::checksum::xxh3(&n.to_le_bytes());
    [user_key(1, n), noise.to_le_bytes().to_vec()].concat()
}

/// A tree at rest with the keys 0, 2, 4, …, and a job that merges `entries` into it.
fn at_rest(entries: Vec<Entry>) -> (Tree, Job, Snapshots) {
    rested(Tree::new(true), entries)
}

fn rested(mut tree: Tree, entries: Vec<Entry>) -> (Tree, Job, Snapshots) {
    // All keys in one file.
    tree.db.options.target_file_size = 1 << 30;
    tree.db.options.base_level_size = 64 << 20;
    let reads = Snapshots::new(400_000, []);
    let all = (0..40_000).map(|n| entry(long_key(2 * n), 1 + n, Kind::Put));
    tree.flush(all.collect(), &reads);
    tree.compact(&reads, RestGoal::Complete);
    tree.flush(entries, &reads);
    let job = tree.pick(&reads, RestGoal::Complete).unwrap();
    assert_eq!(job.kind, JobKind::Compact);
    assert_eq!(job.files().count(), 2);
    (tree, job, reads)
}

#[test]
fn only_blocks_that_overlap_nothing_are_copied() {
    // A new key in the middle, and a new version of an existing key elsewhere.
    let new = vec![
        entry(long_key(20_001), 380_000, Kind::Put),
        entry(long_key(40_000), 380_001, Kind::Put),
    ];
    let (mut tree, job, reads) = at_rest(new);
    let stats = tree.run(&job, &reads);
    let share = stats.reused_bytes as f64 / stats.written_bytes as f64;
    assert!((0.8..1.0).contains(&share), "{stats:?}");
    assert_eq!(stats.shadowed, 1);
    assert_eq!(stats.entries_out, 40_001);
    assert!(
        tree.pick(&reads, RestGoal::Complete).is_none(),
        "it is at rest again"
    );
    assert_eq!(tree.db.scan().len(), 40_001);
    tree.check("after the job");
}

#[test]
fn a_damaged_block_is_not_copied_on() {
    let new = vec![entry(long_key(40_000), 380_001, Kind::Put)];
    let (tree, job, reads) = at_rest(new);
    let (_, damaged) = job.files().last().unwrap();
    tree.db.damage(damaged.file_id);
    let cancel = AtomicBool::new(false);
    let version = tree.db.versions.current();
    let error = run_job(
        tree.db.context(),
        &version,
        &job,
        &reads,
        &tree.retired,
        &cancel,
    )
    .unwrap_err();
    assert!(error.is_corruption(), "{error}");
}

#[test]
fn cached_blocks_that_are_copied_get_their_new_name() {
    hand_over(false);
}

/// As above, but the reader of the input is evicted between the merge and the handover.
#[test]
fn cached_blocks_of_an_evicted_file_get_their_new_name() {
    hand_over(true);
}

fn hand_over(evict: bool) {
    let new = vec![entry(long_key(40_000), 380_001, Kind::Put)];
    let (mut tree, job, reads) = at_rest(new);
    let cache = Arc::clone(tree.db.versions.source().cache());
    if evict {
        cache.set_room(64 << 20, 1);
    }
    let (_, input) = job.files().last().unwrap();
    let (input_id, reader) = (input.file_id, input.reader().unwrap());
    assert_eq!(reader.is_pinned(), !evict);
    let mut iter = reader.iter(ReadClass::Range, true);
    iter.seek_to_first().unwrap();
    for _ in 0..2000 {
        assert!(iter.next().unwrap());
    }
    let mut before = Vec::new();
    let mut offset = 0;
    for block in reader.blocks().unwrap().iter() {
        before.extend(reader.cached_at(offset).map(|cached| (offset, cached)));
        offset += block.bytes;
    }
    assert!(before.len() > 10);
    drop((iter, reader));
    tree.run(&job, &reads);
    let version = tree.db.versions.current();
    cache.pins().evict_excess();
    assert_eq!(input.opened().is_none(), evict);
    let handover = std::mem::take(&mut tree.db.handover);
    let pace = HandoverPace {
        limiter: &tree.db.limiter,
        stopping: &AtomicBool::new(false),
    };
    handover.complete(&job, &version, &pace);
    let (_, output) = version.files().last().unwrap();
    assert_ne!(output.file_id, input_id);
    let reader = input.reader().unwrap();
    for (offset, before) in before {
        assert!(reader.cached_at(offset).is_none(), "nobody will ask for it");
        // No key was inserted before these blocks, so their offsets are unchanged.
        let after = output.reader().unwrap().cached_at(offset);
        match (before, after) {
            (CachedBlock::Block(before), Some(CachedBlock::Block(after))) => {
                assert!(Arc::ptr_eq(&before, &after), "decoded anew at {offset}");
            }
            _ => panic!("no block at {offset}"),
        }
    }
}

/// A tree whose blocks are all in a memory pool, and a job that replaces them by several files.
fn pooled() -> (Tree, Job, Snapshots, Arc<MapPool>) {
    let pool = Arc::new(MapPool::default());
    let env = Arc::new(PosixEnv::new());
    let blocks = PooledBlocks::new(pool.clone(), env, Arc::new(IoStats::default()));
    blocks.set_on(true);
    let db = Db::with(|store| store.with_pool(Arc::new(blocks)));
    let new = vec![entry(long_key(40_000), 380_001, Kind::Put)];
    let (mut tree, job, reads) = rested(Tree::over(db, true), new);
    let (_, input) = job.files().last().unwrap();
    let mut iter = input.reader().unwrap().iter(ReadClass::Range, false);
    let mut on = iter.seek_to_first().unwrap();
    while on {
        on = iter.next().unwrap();
    }
    tree.db.options.target_file_size = 100 << 10;
    tree.run(&job, &reads);
    assert!(tree.db.versions.current().files().count() > 5);
    pool.take_calls();
    (tree, job, reads, pool)
}

fn complete(tree: &mut Tree, job: &Job, stopping: bool) {
    let handover = std::mem::take(&mut tree.db.handover);
    let pace = HandoverPace {
        limiter: &tree.db.limiter,
        stopping: &AtomicBool::new(stopping),
    };
    handover.complete(job, &tree.db.versions.current(), &pace);
}

#[test]
fn blocks_of_the_outputs_are_put_before_those_of_the_inputs_are_deleted() {
    let (mut tree, job, _, pool) = pooled();
    let inputs = pool.len();
    pool.full.store(20, Ordering::Relaxed);
    complete(&mut tree, &job, false);
    let calls = pool.take_calls();
    let puts = calls.iter().filter(|call| **call == PoolCall::Put).count();
    let deletes = calls.iter().position(|call| *call == PoolCall::Delete);
    assert!(puts * 10 > inputs * 9, "{puts} of {inputs}");
    assert_eq!(deletes, Some(puts), "all puts come first");
    assert_eq!(pool.full.load(Ordering::Relaxed), 0);
}

#[test]
fn a_pool_without_room_holds_a_job_up_once() {
    let (mut tree, job, _, pool) = pooled();
    let refusals = 1_000_000;
    pool.full.store(refusals, Ordering::Relaxed);
    complete(&mut tree, &job, false);
    let tries = refusals - pool.full.load(Ordering::Relaxed);
    let files = tree.db.versions.current().files().count();
    assert!((1000..=1000 + files).contains(&tries), "{tries} tries");
    assert!(!pool.take_calls().contains(&PoolCall::Put));
}

#[test]
fn a_handover_ends_when_the_database_stops() {
    let (mut tree, job, _, pool) = pooled();
    pool.full.store(1_000_000, Ordering::Relaxed);
    complete(&mut tree, &job, true);
    let tries = 1_000_000 - pool.full.load(Ordering::Relaxed);
    assert!(tries <= 1, "{tries} tries");
    assert_eq!(pool.take_calls(), []);
}
