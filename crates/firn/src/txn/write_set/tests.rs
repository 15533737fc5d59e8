use super::*;
use crate::base::event_listener::Silent;
use crate::base::health::Health;
use crate::base::key::compare;
use crate::base::options::Options;
use crate::base::prefix_extractor::NoPrefixExtractors;
use crate::base::{ErrorKind, InternalIterator};
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{CountingEnv, Env, FaultEnv, MemEnv, ReadClass};
use crate::ingest::{FileSplitters, RunFactory};
use crate::sst::SstBlockCache;
use crate::store::FileStore;
use crate::version::{FileHandle, FileSource, VersionSet, VersionSetContext};
use crate::write::Batch;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};

const UNLIMITED: u64 = u64::MAX;

type Entry = (Vec<u8>, Seqno, Kind, Vec<u8>);

fn at_or_after(e: &Entry, user_key: &[u8], seqno: Seqno) -> bool {
    compare(&e.0, e.1, user_key, seqno).is_ge()
}

/// All writes that are not rolled back, in the order written: position, key, kind, value.
#[derive(Default)]
struct Model {
    writes: Vec<(u64, Vec<u8>, Kind, Vec<u8>)>,
}

impl Model {
    fn newest(&self, key: &[u8], own_bound: Seqno) -> Option<(Seqno, Kind, Vec<u8>)> {
        let mut versions = self.writes.iter().rev();
        versions
            .find(|w| w.1 == key && UNCOMMITTED_BIT | w.0 <= own_bound)
            .map(|w| (UNCOMMITTED_BIT | w.0, w.2, w.3.clone()))
    }

    /// All entries in internal order.
    fn entries(&self) -> Vec<Entry> {
        let mut all: Vec<_> = self
            .writes
            .iter()
            .map(|w| (w.1.clone(), UNCOMMITTED_BIT | w.0, w.2, w.3.clone()))
            .collect();
        all.sort_by(|a, b| compare(&a.0, a.1, &b.0, b.1));
        all
    }

    /// The entries that a commit writes.
    fn finals(&self) -> Vec<(Vec<u8>, Kind, Vec<u8>)> {
        let mut all = self.entries();
        all.dedup_by(|a, b| a.0 == b.0);
        all.into_iter().map(|e| (e.0, e.2, e.3)).collect()
    }
}

fn joined(value: Value<'_>) -> Vec<u8> {
    [value.head, value.tail].concat()
}

fn found(key: InternalKey<'_>, value: Value<'_>) -> (Seqno, Kind, Vec<u8>) {
    (key.seqno, key.kind, joined(value))
}

fn random_key(rng: &mut StdRng) -> Vec<u8> {
    format!("{:04}", rng.random_range(0..40)).into_bytes()
}

const DIR: &str = "/db";

/// A [`RunFactory`] whose files have about `piece` bytes and are written by the caller's thread.
fn ingest_in(env: Arc<dyn Env>, piece: u64) -> Arc<RunFactory> {
    ingest_with(env, piece, false)
}

fn ingest_with(env: Arc<dyn Env>, piece: u64, threads: bool) -> Arc<RunFactory> {
    let dir = std::path::Path::new(DIR);
    env.create_dir_all(dir).unwrap();
    let store = FileStore::new(env.clone(), dir);
    let versions = VersionSet::open(VersionSetContext {
        env,
        dir: dir.to_path_buf(),
        source: FileSource::new(store, Arc::new(SstBlockCache::new(1 << 20))),
        health: Arc::new(Health::new()),
        listener: Arc::new(Silent),
    });
    let options = Options {
        block_size: 64,
        background_jobs: usize::from(threads),
        ..Options::default()
    };
    let cutters: FileSplitters = Box::new(move |_, _| Box::new(move |_, _, size| size >= piece));
    RunFactory::new(
        Arc::new(versions.unwrap()),
        options,
        Arc::new(NoPrefixExtractors),
        cutters,
    )
}

/// A small random memory limit, and a [`RunFactory`] to spill to.
fn tiny(rng: &mut StdRng) -> (u64, Arc<RunFactory>) {
    let piece = 1 << rng.random_range(6..12);
    let ingest = ingest_with(Arc::new(MemEnv::new()), piece, rng.random());
    (version_bytes(4, 4) * rng.random_range(1..8), ingest)
}

fn on_disk(ingest: &RunFactory) -> Vec<u64> {
    ingest.versions().source().store().list().unwrap()
}

/// Checks that the files on disk are exactly those of the runs, and that a seal gives the model's
/// entries.
fn check_files(set: &mut WriteSet, ingest: &Arc<RunFactory>, model: &Model, context: &str) {
    let named = |set: &WriteSet| {
        let files = set.runs.list.iter().flat_map(|run| run.files.files());
        let mut ids: Vec<u64> = files.map(|file| file.file_id).collect();
        ids.sort_unstable();
        ids
    };
    set.finish_spill().unwrap();
    assert_eq!(on_disk(ingest), named(set), "{context}");
    if !set.has_spilled() {
        return;
    }
    let sealed = set.seal().unwrap();
    let mut committed = Vec::new();
    let mut largest = Vec::new();
    for meta in sealed.files() {
        assert!(largest < meta.smallest, "{context}");
        largest.clone_from(&meta.largest);
        let meta = Arc::new(meta.clone().with_external_seqno(77));
        let source = Arc::clone(ingest.versions().source());
        let mut iter = FileHandle::new(meta, source)
            .open()
            .unwrap()
            .iter(ReadClass::Verify, false);
        let mut on = iter.seek_to_first().unwrap();
        while on {
            assert_eq!(iter.key().seqno, 77);
            let (_, kind, value) = found(iter.key(), iter.value());
            committed.push((iter.key().user_key.to_vec(), kind, value));
            on = iter.next().unwrap();
        }
    }
    assert_eq!(committed, model.finals(), "{context}");
    drop(sealed);
    assert_eq!(on_disk(ingest), named(set), "{context}");
}

fn write_both(set: &mut WriteSet, model: &mut Model, rng: &mut StdRng) {
    let key = random_key(rng);
    let position = set.position + 1;
    if rng.random_bool(0.3) {
        set.delete(&key).unwrap();
        model.writes.push((position, key, Kind::Delete, Vec::new()));
    } else {
        let value: Vec<u8> = (0..rng.random_range(0..6)).collect();
        let (head, tail) = value.split_at(rng.random_range(0..=value.len()));
        set.put(&key, Value::split(head, tail)).unwrap();
        model.writes.push((position, key, Kind::Put, value));
    }
}

fn check(set: &WriteSet, model: &Model, rng: &mut StdRng, context: &str) {
    assert_eq!(set.is_empty(), model.writes.is_empty(), "{context}");
    if !set.has_spilled() {
        let each = model.writes.iter();
        let bytes = each.map(|w| version_bytes(w.1.len(), w.3.len())).sum();
        assert_eq!(set.bytes(), bytes, "{context}");
        let mut finals = Vec::new();
        set.for_each_final(|key, kind, value| finals.push((key.to_vec(), kind, joined(value))));
        assert_eq!(finals, model.finals(), "{context}");
        let mut batch = Batch::with_capacity(set.batch_bytes());
        let room = batch.room();
        set.for_each_final(|key, kind, value| batch.add(key, kind, value));
        assert_eq!(batch.room(), room, "the batch grew: {context}");
    }
    let key = random_key(rng);
    assert_eq!(
        set.get(&key, found).unwrap(),
        model.newest(&key, SEQNO_MAX),
        "{context}"
    );
    let bound = UNCOMMITTED_BIT | rng.random_range(0..=set.position);
    assert_eq!(
        set.get_at(&key, bound, found).unwrap(),
        model.newest(&key, bound),
        "{context}"
    );
    let upper = random_key(rng);
    let touched = model.writes.iter().any(|w| w.1 >= key && w.1 < upper);
    let found = set.touches_range(&key, Some(&upper));
    assert!(found || !touched, "{context}");
    assert!(found == touched || set.has_spilled(), "{context}");
}

#[test]
fn writes_marks_and_rollbacks_against_the_model() {
    for seed in 0..200u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (limit, ingest) = match seed % 2 {
            0 => (UNLIMITED, tiny(&mut rng).1),
            _ => tiny(&mut rng),
        };
        let mut set = WriteSet::new(limit, Some(Arc::clone(&ingest)));
        let mut model = Model::default();
        let mut marks = vec![(set.mark(), 0)];
        for step in 0..200 {
            match rng.random_range(0..20) {
                0..=1 => marks.push((set.mark(), model.writes.len())),
                2 => {
                    // Roll back to any mark; later marks become invalid.
                    let at = rng.random_range(0..marks.len());
                    marks.truncate(at + 1);
                    let (mark, writes) = marks[at];
                    set.rollback_to(mark);
                    model.writes.truncate(writes);
                }
                3 if rng.random_bool(0.3) => {
                    // The next transaction begins.
                    set.clear();
                    model = Model::default();
                    marks = vec![(set.mark(), 0)];
                }
                _ => write_both(&mut set, &mut model, &mut rng),
            }
            let context = format!("seed {seed} step {step}");
            check(&set, &model, &mut rng, &context);
            if step % 20 == 0 {
                check_files(&mut set, &ingest, &model, &context);
            }
        }
        set.rollback_to(marks[0].0);
        assert!(set.is_empty());
        assert_eq!((set.bytes(), on_disk(&ingest)), (0, vec![]));
        write_both(&mut set, &mut model, &mut rng);
        set.clear();
        assert!(set.is_empty() && on_disk(&ingest).is_empty());
    }
}

/// The seal reuses the files of an index whose rows were written in key order. It merges the files
/// of an index whose rows were written in random order.
#[test]
fn what_comes_in_order_is_committed_as_it_was_spilled() {
    let ingest = ingest_in(Arc::new(MemEnv::new()), 4 << 10);
    let mut set = WriteSet::new(64 << 10, Some(Arc::clone(&ingest)));
    for n in 0..8000u32 {
        let row = [&[0, 0, 0, 1], &n.to_be_bytes()[..]].concat();
        let entry = [
            &[0, 0, 0, 2],
            &n.wrapping_mul(0x9e37_79b1).to_be_bytes()[..],
        ]
        .concat();
        set.put(&row, Value::whole(&[n as u8; 20])).unwrap();
        set.put(&entry, Value::EMPTY).unwrap();
    }
    assert!(set.runs.list.len() <= 2 * spill_merge::FAN_IN);
    let before = on_disk(&ingest);
    let sealed = set.seal().unwrap();
    let of = |index: u8| {
        let files = sealed.files().iter();
        files.filter(move |file| file.smallest[3] == index)
    };
    assert_eq!(of(1).map(|f| f.entries).sum::<u64>(), 8000);
    assert_eq!(of(2).map(|f| f.entries).sum::<u64>(), 8000);
    let kept = of(1).filter(|file| before.contains(&file.file_id)).count();
    // Rows that were in memory until the seal are in new files.
    assert!(kept + 3 >= of(1).count() && kept > 10, "{kept}");
    let mut ids: Vec<u64> = sealed.files().iter().map(|f| f.file_id).collect();
    ids.sort_unstable();
    set.release(sealed);
    set.clear();
    assert_eq!(on_disk(&ingest), ids);
}

/// The set changes between moves; each move continues from the entry under the cursor. In a set
/// that spills, the cursor may skip writes since the last seek.
#[test]
fn a_cursor_over_a_changing_set_against_the_model() {
    for seed in 0..400u64 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (limit, ingest) = match seed % 2 {
            0 => (UNLIMITED, tiny(&mut rng).1),
            _ => tiny(&mut rng),
        };
        let set = SharedWriteSet::new(limit, Some(ingest));
        let mut model = Model::default();
        let mut iter = set.iter();
        let changes = [0.0, 0.05, 0.5][seed as usize % 3];
        for _ in 0..rng.random_range(0..100) {
            write_both(&mut set.lock(), &mut model, &mut rng);
        }
        let mut here: Option<(Vec<u8>, Seqno)> = None;
        let mut sought = 0;
        for step in 0..300 {
            if rng.random_bool(changes) {
                write_both(&mut set.lock(), &mut model, &mut rng);
            }
            if rng.random_bool(changes / 10.0) {
                let keep = rng.random_range(0..=model.writes.len());
                model.writes.truncate(keep);
                let last = model.writes.last().map_or(0, |w| w.0);
                set.lock().rollback_to(Savepoint(last));
            }
            let entries = model.entries();
            let (key, seqno) = here.clone().unwrap_or_default();
            let place = |e: &Entry| compare(&e.0, e.1, &key, seqno);
            let target = random_key(&mut rng);
            let bound = UNCOMMITTED_BIT | rng.random_range(0..200);
            let (kind, positioned) = (rng.random_range(0..12), here.is_some());
            if !positioned || kind < 4 {
                sought = UNCOMMITTED_BIT | set.lock().position;
            }
            let (mut expected, on): (Vec<_>, _) = match (kind, positioned) {
                (0, _) => (entries.iter().collect(), iter.seek_to_first()),
                (1, _) => (entries.iter().rev().collect(), iter.seek_to_last()),
                (2, _) | (3, false) => {
                    let from = |e: &&_| at_or_after(e, &target, bound);
                    let expected = entries.iter().filter(from).collect();
                    (expected, iter.seek(&target, bound))
                }
                (3, _) | (_, false) => {
                    let expected = entries.iter().rev().filter(|e| e.0 < target).collect();
                    (expected, iter.seek_before(&target))
                }
                (4..=7, true) => {
                    let expected = entries.iter().rev().filter(|e| place(e).is_lt());
                    (expected.collect(), iter.prev())
                }
                (_, true) => {
                    let expected = entries.iter().filter(|e| place(e).is_gt());
                    (expected.collect(), iter.next())
                }
            };
            let on = on.unwrap();
            let seen = on.then(|| (iter.key().user_key.to_vec(), iter.key().seqno));
            let missed = |e: &&Entry| {
                let is_seen = seen.as_ref().is_some_and(|s| (&s.0, s.1) == (&e.0, e.1));
                limit != UNLIMITED && e.1 > sought && !is_seen
            };
            let passed = expected.iter().take_while(|e| missed(e)).count();
            expected.drain(..passed);
            let expected = expected.first().copied();
            let context = format!("seed {seed} step {step}");
            assert_eq!(on, expected.is_some(), "{context}");
            assert_eq!(iter.valid(), expected.is_some(), "{context}");
            here = expected.map(|e| (e.0.clone(), e.1));
            if let Some(expected) = expected {
                assert_eq!(iter.key().user_key, expected.0, "{context}");
                assert_eq!(found(iter.key(), iter.value()).0, expected.1, "{context}");
                assert_eq!(found(iter.key(), iter.value()).2, expected.3, "{context}");
            }
        }
    }
}

fn next(class: CallClass) -> Fault {
    Fault {
        class,
        nth: 1,
        sticky: false,
        errno: Errno::NoSpace,
    }
}

#[test]
fn an_interruption_ends_merges_and_takes_nothing() {
    let ingest = ingest_in(Arc::new(MemEnv::new()), 1 << 20);
    let flag = Arc::new(AtomicBool::new(false));
    let mut set = WriteSet::new(version_bytes(4, 3), Some(Arc::clone(&ingest)));
    set.heed(Arc::clone(&flag));
    // Every write spills the one before. The write after this loop makes the first merge.
    let value = |n: usize| format!("{n:03}").into_bytes();
    for n in 0..spill_merge::FAN_IN {
        set.put(b"0000", Value::whole(&value(n))).unwrap();
    }
    flag.store(true, Ordering::SeqCst);
    let error = set.put(b"0000", Value::whole(b"abc")).unwrap_err();
    assert_eq!(error.kind(), &ErrorKind::Interrupted);
    let newest = |set: &WriteSet| set.get(b"0000", found).unwrap().unwrap().2;
    assert_eq!(newest(&set), value(spill_merge::FAN_IN - 1));
    assert_eq!(set.seal().err().unwrap().kind(), &ErrorKind::Interrupted);
    flag.store(false, Ordering::SeqCst);
    set.put(b"0000", Value::whole(b"abc")).unwrap();
    assert_eq!(newest(&set), b"abc");
    let sealed = set.seal().unwrap();
    let entries: u64 = sealed.files().iter().map(|file| file.entries).sum();
    assert_eq!(entries, 1);
}

#[test]
fn a_spill_that_fails_leaves_no_trace() {
    for class in [CallClass::Create, CallClass::Write] {
        let env = FaultEnv::new(Arc::new(MemEnv::new()));
        let ingest = ingest_in(Arc::new(env.clone()), 1 << 20);
        let limit = 2 * version_bytes(6, 3);
        let mut set = WriteSet::new(limit, Some(Arc::clone(&ingest)));
        set.put(b"index1", Value::whole(b"abc")).unwrap();
        set.put(b"index2", Value::whole(b"abc")).unwrap();
        let before = (set.mark(), set.bytes());
        env.inject(next(class));
        let error = set.put(b"index1", Value::split(b"ab", b"cd")).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NoSpace);
        assert_eq!((set.mark(), set.bytes()), before);
        assert_eq!(on_disk(&ingest), []);
        assert_eq!(set.get(b"index1", found).unwrap().unwrap().2, b"abc");
        // The injected fault concerned one call only, so the same write succeeds now.
        set.put(b"index1", Value::split(b"ab", b"cd")).unwrap();
        assert_eq!(set.get(b"index1", found).unwrap().unwrap().2, b"abcd");
        assert_eq!(on_disk(&ingest).len(), 1);
        env.inject(next(class));
        assert!(set.seal().is_err());
        assert_eq!(on_disk(&ingest).len(), 1);
        set.rollback_to(before.0);
        assert_eq!(set.get(b"index1", found).unwrap().unwrap().2, b"abc");
    }
}

/// While a background thread spills, the statement continues. A later write returns the error of
/// the spill. Nothing is lost: the frozen writes are in memory again, older than the writes since
/// then.
#[test]
fn a_spill_that_fails_beside_the_statement_leaves_no_trace() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let ingest = ingest_with(Arc::new(env.clone()), 1 << 20, true);
    let mut set = WriteSet::new(4 * version_bytes(4, 3), Some(Arc::clone(&ingest)));
    // The limit is four writes. The fifth write waits for the spill of the first four. From then on
    // the memory may take two writes, half the limit.
    (0..6).for_each(|n| put(&mut set, n));
    set.put(b"0005", Value::whole(b"def")).unwrap();
    let (statement, frozen) = (set.mark(), set.frozen.is_some());
    assert!(frozen);
    set.finish_spill().unwrap();
    env.inject(next(CallClass::Create));
    // The frozen memory has the second version of 0005.
    put(&mut set, 6);
    put(&mut set, 7);
    set.put(b"0005", Value::whole(b"ghi")).unwrap();
    let before = (set.mark(), set.bytes());
    let mut failed = 0;
    while let Err(error) = set.put(b"0008", Value::whole(b"abc")) {
        assert_eq!(error.kind(), &ErrorKind::NoSpace);
        assert_eq!((set.mark(), set.bytes()), before);
        failed += 1;
    }
    assert_eq!(failed, 1);
    let newest = |set: &WriteSet, key: &[u8]| set.get(key, found).unwrap().map(|f| f.2);
    assert_eq!(newest(&set, b"0005").unwrap(), b"ghi");
    assert_eq!(newest(&set, b"0000").unwrap(), b"abc");
    set.rollback_to(statement);
    assert_eq!(newest(&set, b"0005").unwrap(), b"def");
    assert_eq!(newest(&set, b"0006"), None);
    let entries: u64 = set.seal().unwrap().files().iter().map(|f| f.entries).sum();
    assert_eq!(entries, 6);
}

/// A rollback to a mark in frozen memory waits until that memory is written.
#[test]
fn a_rollback_into_a_spill_under_way() {
    let ingest = ingest_with(Arc::new(MemEnv::new()), 1 << 20, true);
    let mut set = WriteSet::new(4 * version_bytes(4, 3), Some(Arc::clone(&ingest)));
    (0..5).for_each(|n| put(&mut set, n));
    let mark = set.mark();
    put(&mut set, 5);
    put(&mut set, 6);
    assert!(set.frozen.is_some() && set.bytes() <= 4 * version_bytes(4, 3));
    set.rollback_to(mark);
    let there: Vec<bool> = (0..7)
        .map(|n| {
            set.get(format!("{n:04}").as_bytes(), found)
                .unwrap()
                .is_some()
        })
        .collect();
    assert_eq!(there, [true, true, true, true, true, false, false]);
    drop(set);
    assert_eq!(on_disk(&ingest), []);
}

fn put(set: &mut WriteSet, n: u32) {
    let key = format!("{n:04}");
    set.put(key.as_bytes(), Value::whole(b"abc")).unwrap();
}

/// The commit syncs spilled files, and the spill does not. Most spilled files are merged or removed
/// before the commit, and none is needed after a power cut before it.
#[test]
fn what_is_spilled_is_synced_by_the_commit_alone() {
    let env = CountingEnv::new(Arc::new(MemEnv::new()));
    let counters = Arc::clone(env.counters());
    let syncs = || counters.syncs.load(Ordering::Relaxed);
    let ingest = ingest_in(Arc::new(env), 1 << 20);
    let mut set = WriteSet::new(version_bytes(4, 3), Some(Arc::clone(&ingest)));
    let before = syncs();
    // Write enough keys for a merge of runs, with ten keys twice.
    for n in (0..40).chain(20..30) {
        put(&mut set, n);
    }
    assert!(set.has_spilled());
    assert_eq!(syncs(), before);
    // The seal makes one sync for each file that a log record may name, and one for the directory.
    let sealed = set.seal().unwrap();
    assert!(!sealed.files().is_empty());
    assert_eq!(syncs() - before, sealed.files().len() as u64 + 1);
}

#[test]
fn a_commit_whose_sync_fails_may_be_tried_again() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let ingest = ingest_in(Arc::new(env.clone()), 1 << 20);
    let mut set = WriteSet::new(version_bytes(4, 3), Some(Arc::clone(&ingest)));
    // The seal syncs two files that it reuses, and the directory.
    put(&mut set, 1);
    put(&mut set, 2);
    for nth in 1..=3 {
        env.inject(Fault {
            nth,
            ..next(CallClass::Sync)
        });
        let error = set.seal().map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), &ErrorKind::NoSpace, "sync {nth}");
        assert_eq!(on_disk(&ingest).len(), 2, "sync {nth}");
    }
    assert_eq!(set.seal().unwrap().files().len(), 2);
}

#[test]
fn a_merge_that_finds_no_room_is_left_for_later() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let ingest = ingest_in(Arc::new(env.clone()), 1 << 20);
    let mut set = WriteSet::new(version_bytes(4, 3), Some(Arc::clone(&ingest)));
    // All writes have one key, so that a merge reuses no file.
    let write = |set: &mut WriteSet| set.put(b"0001", Value::whole(b"abc"));
    for _ in 0..spill_merge::FAN_IN {
        write(&mut set).unwrap();
    }
    assert_eq!(set.runs.list.len(), spill_merge::FAN_IN - 1);
    // Let the second creation of a file fail: the spill creates the first file, the merge the
    // second one.
    env.inject(Fault {
        nth: 2,
        ..next(CallClass::Create)
    });
    write(&mut set).unwrap();
    assert_eq!(set.runs.list.len(), spill_merge::FAN_IN);
    assert_eq!(on_disk(&ingest).len(), spill_merge::FAN_IN);
    let source_generation = set.source_generation.load(Ordering::Relaxed);
    write(&mut set).unwrap();
    assert_eq!(set.runs.list.len(), 1);
    // The generation changes for the freeze, for the new run, and for the merge.
    assert_eq!(
        set.source_generation.load(Ordering::Relaxed),
        source_generation + 3
    );
    let entries: u64 = set.runs.list[0]
        .files
        .files()
        .iter()
        .map(|file| file.entries)
        .sum();
    assert_eq!(entries, spill_merge::FAN_IN as u64 + 1);
}

/// Removing files in a client's thread must not delay the client: they are deleted at the pace of
/// deletions.
#[test]
fn many_bytes_are_given_up_at_the_pace_of_deletions() {
    let ingest = ingest_in(Arc::new(MemEnv::new()), 1 << 20);
    let versions = ingest.versions();
    let file = |size| {
        let mut writer = ingest.writer(crate::sst::Density::Light, 0);
        writer.add(b"0001", Kind::Put, Value::EMPTY).unwrap();
        let id = writer.finish().unwrap().keep()[0].file_id;
        (id, size)
    };
    versions.give_up(&[file(4 << 10), file(4 << 10)]);
    assert_eq!((on_disk(&ingest).len(), versions.obsolete()), (0, (0, 0)));
    versions.give_up(&[file(4 << 20), file(1)]);
    assert_eq!(on_disk(&ingest).len(), 2);
    assert_eq!(versions.obsolete(), (2, (4 << 20) + 1));
    versions.delete_obsolete().unwrap();
    assert_eq!(on_disk(&ingest).len(), 0);
}

#[test]
fn what_a_rolled_back_position_named_is_never_named_again() {
    let mut set = WriteSet::new(UNLIMITED, None);
    let start = set.mark();
    set.delete(b"0001").unwrap();
    let used = set.get(b"0001", |key, _| key.seqno).unwrap().unwrap();
    set.rollback_to(start);
    set.delete(b"0001").unwrap();
    assert!(set.get(b"0001", |key, _| key.seqno).unwrap().unwrap() > used);
    assert_eq!(start.own_bound(), UNCOMMITTED_BIT);
}

#[test]
fn touches_tells_indexes_apart() {
    let mut set = WriteSet::new(UNLIMITED, None);
    set.delete(&[0, 0, 0, 2, 9]).unwrap();
    set.delete(&[0, 0, 1, 0]).unwrap();
    let touched: Vec<_> = [1, 2, 3, 255, 256, 257]
        .into_iter()
        .filter(|&index| set.touches(index))
        .collect();
    assert_eq!(touched, [2, 256]);
    set.clear();
    assert!(!set.touches(2));
    assert_eq!(set.bytes(), 0);
}
