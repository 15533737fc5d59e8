use super::*;
use crate::base::checksum::xxh3;
use crate::env::fault::{CallClass, Errno, Fault};
use crate::env::{CountingEnv, Env, FaultEnv, MemEnv, ReadClass};
use crate::store::testing::{MapPool, PoolCall};
use crate::store::{BlockName, FileKind, PooledBlocks, file_name};
use rand::{Rng, SeedableRng, rngs::StdRng};
use std::path::Path;

const DIR: &str = "/db";

fn store_in(env: Arc<dyn Env>, file_size: u64) -> BlobStore {
    env.create_dir_all(Path::new(DIR)).unwrap();
    let files = FileStore::new(env, DIR);
    let next = files.list_blobs().unwrap().last().map_or(1, |id| id + 1);
    let next = AtomicU64::new(next);
    BlobStore::new(files, file_size, move || {
        next.fetch_add(1, Ordering::Relaxed)
    })
}

fn value(rng: &mut StdRng, len: usize) -> Vec<u8> {
    match rng.random_bool(0.5) {
        true => (0..len).map(|_| rng.random()).collect(),
        false => (0..len).map(|i| (i / 50) as u8).collect(),
    }
}

fn span(blob: &BlobRef) -> BlobSpan {
    BlobSpan {
        offset: blob.offset,
        len: blob.span(),
    }
}

fn path(file: u64) -> std::path::PathBuf {
    Path::new(DIR).join(file_name(FileKind::Blob, file))
}

#[test]
fn values_come_back_also_after_a_power_cut() {
    let env = MemEnv::new();
    let store = store_in(Arc::new(env.clone()), 200_000);
    let mut rng = StdRng::seed_from_u64(5);
    let mut session = TransactionBlobs::new();
    let mut all = Vec::new();
    for len in [1, 100, 4096, 5000, 33_000, 40_000, 70_000, 300_000, 9] {
        let value = value(&mut rng, len);
        let blob = store.write(&mut session, 3, &value).unwrap();
        assert_eq!((blob.column, blob.len), (3, len as u64));
        assert!(blob.stored <= blob.len + 36);
        assert!(blob.stored < 32 << 10 || blob.offset.is_multiple_of(4096));
        all.push((blob, value));
    }
    let mut buf = BlobBuf::new();
    for (blob, value) in &all {
        assert_eq!(store.read(blob, ReadClass::Blob, &mut buf).unwrap(), value);
    }
    session.sync().unwrap();
    let env = env.crash(0);
    let store = store_in(Arc::new(env.clone()), 0);
    for (blob, value) in &all {
        assert_eq!(store.read(blob, ReadClass::Blob, &mut buf).unwrap(), value);
    }
    assert!(store.all().len() > 1, "no file was full");
}

#[test]
fn damage_names_file_and_place() {
    let env = MemEnv::new();
    let store = store_in(Arc::new(env.clone()), 1 << 20);
    let mut rng = StdRng::seed_from_u64(6);
    let mut session = TransactionBlobs::new();
    let values = [
        value(&mut rng, 3000),
        value(&mut rng, 50_000),
        vec![7; 9000],
    ];
    let blobs: Vec<BlobRef> = values
        .iter()
        .map(|value| store.write(&mut session, 0, value).unwrap())
        .collect();
    session.sync().unwrap();
    let stored = env.read(&path(blobs[0].file)).unwrap();
    for _ in 0..200 {
        let bit = rng.random_range(0..stored.len() * 8);
        env.place(&path(blobs[0].file), {
            let mut bad = stored.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            bad
        });
        let fresh = store_in(Arc::new(env.clone()), 0);
        let touched = |blob: &BlobRef| {
            let from = blob.offset as usize + 32;
            (from..from + blob.stored as usize).contains(&(bit / 8))
        };
        for (blob, value) in blobs.iter().zip(&values) {
            match fresh.read(blob, ReadClass::Blob, &mut BlobBuf::new()) {
                Ok(read) => assert!(read == value && !touched(blob), "bit {bit}"),
                Err(error) => {
                    assert!(touched(blob) || bit < 320, "bit {bit}: {error}");
                    assert!(matches!(error.kind(), ErrorKind::Corruption { file, .. }
                        if *file == file_name(FileKind::Blob, blob.file)));
                }
            }
        }
        env.place(&path(blobs[0].file), stored[..bit / 8].to_vec());
        let fresh = store_in(Arc::new(env.clone()), 0);
        for blob in &blobs {
            if let Err(error) = fresh.read(blob, ReadClass::Blob, &mut BlobBuf::new()) {
                assert!(error.is_corruption(), "{error}");
            }
        }
    }
    // References that do not fit the file: a read of each must report corruption.
    env.place(&path(blobs[0].file), stored);
    let fresh = store_in(Arc::new(env.clone()), 0);
    for bad in [
        BlobRef {
            offset: 1 << 61,
            ..blobs[0]
        },
        BlobRef {
            len: u64::from(u32::MAX),
            stored: u64::from(u32::MAX),
            ..blobs[1]
        },
        BlobRef {
            len: u64::from(u32::MAX),
            ..blobs[2]
        },
        BlobRef {
            file: 77,
            ..blobs[0]
        },
        BlobRef {
            checksum: 1,
            ..blobs[0]
        },
    ] {
        let error = fresh
            .read(&bad, ReadClass::Blob, &mut BlobBuf::new())
            .unwrap_err();
        assert!(error.is_corruption(), "{error}");
    }
}

#[test]
fn holes_and_rewrites_keep_what_lives() {
    for seed in 0..30 {
        let mut rng = StdRng::seed_from_u64(seed);
        let env = MemEnv::new();
        let store = store_in(Arc::new(env.clone()), 1 << 20);
        let mut session = TransactionBlobs::new();
        let mut live = Vec::new();
        for _ in 0..25 {
            let len = [3000, 20_000, 60_000][rng.random_range(0..3)];
            let value = value(&mut rng, len);
            let blob = store.write(&mut session, 0, &value).unwrap();
            if rng.random_bool(0.4) {
                live.push((blob, value));
            }
        }
        session.sync().unwrap();
        store.seal_active();
        let check = |store: &BlobStore, live: &[(BlobRef, Vec<u8>)]| {
            for (blob, value) in live {
                let read = store
                    .read(blob, ReadClass::Blob, &mut BlobBuf::new())
                    .unwrap()
                    .to_vec();
                assert_eq!(xxh3(&read), xxh3(value), "seed {seed}");
            }
        };
        for file in store.all() {
            let spans: Vec<BlobSpan> = live
                .iter()
                .filter(|(blob, _)| blob.file == file.id())
                .map(|(blob, _)| span(blob))
                .collect();
            let before = file.usage().unwrap().allocated;
            let given = store.punch(&file, &spans).unwrap().unwrap();
            assert_eq!(file.usage().unwrap().allocated, before - given);
            check(&store, &live);
            let rewritten = store.rewrite(&file, &spans).unwrap();
            check(&store, &live);
            store.install(&rewritten).unwrap();
            check(&store, &live);
            assert_eq!(store.punch(&file, &spans).unwrap(), Some(0));
            // Rewrite a second time, now from the file that has replaced the first.
            let fewer = &spans[spans.len() / 2..];
            live.retain(|(blob, _)| blob.file != file.id() || fewer.contains(&span(blob)));
            let again = store.rewrite(&file, fewer).unwrap();
            store.install(&again).unwrap();
        }
        let moved: Vec<(u64, u64)> = store
            .all()
            .iter()
            .map(|file| (file.id(), file.physical_id()))
            .collect();
        let env = env.kill();
        let reopened = store_in(Arc::new(env), 0);
        reopened.set_moved(moved);
        for (blob, value) in &live {
            assert_eq!(
                reopened
                    .read(blob, ReadClass::Blob, &mut BlobBuf::new())
                    .unwrap(),
                value
            );
        }
    }
}

#[test]
fn a_file_with_a_second_name_or_without_holes_is_not_punched() {
    let env = MemEnv::new();
    env.set_punches(false);
    let store = store_in(Arc::new(env.clone()), 1 << 20);
    let mut session = TransactionBlobs::new();
    let mut rng = StdRng::seed_from_u64(8);
    let noise: Vec<u8> = (0..90_000).map(|_| rng.random()).collect();
    let blob = store.write(&mut session, 0, &noise).unwrap();
    session.sync().unwrap();
    store.seal_active();
    assert_eq!(store.punch(&store.file(blob.file), &[]).unwrap(), None);
    env.set_punches(true);
    let store = store_in(Arc::new(env.clone()), 1 << 20);
    let second = Path::new("/db/second");
    env.link(&path(blob.file), second).unwrap();
    assert_eq!(store.punch(&store.file(blob.file), &[]).unwrap(), None);
    assert_eq!(
        store
            .read(&blob, ReadClass::Blob, &mut BlobBuf::new())
            .unwrap(),
        noise
    );
    env.remove(second).unwrap();
    let file = store.file(blob.file);
    assert!(store.punch(&file, &[]).unwrap() > Some(60_000));
    store.punch(&file, &[span(&blob)]).unwrap();
    assert!(
        store
            .read(&blob, ReadClass::Blob, &mut BlobBuf::new())
            .is_err()
    );
    env.set_punches(false);
    let store = store_in(Arc::new(env.clone()), 1 << 20);
    let blob = store.write(&mut session, 0, &noise).unwrap();
    assert_eq!(
        store
            .read(&blob, ReadClass::Blob, &mut BlobBuf::new())
            .unwrap(),
        noise
    );
}

#[test]
fn a_failed_sync_loses_what_was_not_durable_and_no_more() {
    let mem = MemEnv::new();
    let env = FaultEnv::new(Arc::new(mem.clone()));
    let store = store_in(Arc::new(env.clone()), 1 << 20);
    let (mut first, mut second) = (TransactionBlobs::new(), TransactionBlobs::new());
    let kept = store.write(&mut first, 0, &[1; 5000]).unwrap();
    first.sync().unwrap();
    store.write(&mut second, 0, &[2; 5000]).unwrap();
    env.inject(Fault {
        class: CallClass::Sync,
        nth: 1,
        sticky: false,
        errno: Errno::Io,
    });
    assert!(second.sync().is_err());
    // A second sync must not report the lost write as durable.
    assert!(second.sync().is_err());
    first.sync().unwrap();
    // The next value is written to another file.
    let mut third = TransactionBlobs::new();
    let blob = store.write(&mut third, 0, &[3; 5000]).unwrap();
    third.sync().unwrap();
    assert_ne!(blob.file, kept.file);
    let store = store_in(Arc::new(mem.crash(0)), 0);
    for (blob, byte) in [(kept, 1), (blob, 3)] {
        let mut buf = BlobBuf::new();
        assert_eq!(
            store.read(&blob, ReadClass::Blob, &mut buf).unwrap(),
            [byte; 5000]
        );
    }
}

#[test]
fn a_full_disk_fails_the_write_and_goes_on_later() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let store = store_in(Arc::new(env.clone()), 1 << 20);
    let mut session = TransactionBlobs::new();
    store.write(&mut session, 0, &[1; 5000]).unwrap();
    env.inject(Fault {
        class: CallClass::Write,
        nth: 1,
        sticky: true,
        errno: Errno::NoSpace,
    });
    let error = store.write(&mut session, 0, &[2; 5000]).unwrap_err();
    assert_eq!(*error.kind(), ErrorKind::NoSpace);
    env.clear();
    let blob = store.write(&mut session, 0, &[3; 5000]).unwrap();
    session.sync().unwrap();
    let mut buf = BlobBuf::new();
    assert_eq!(
        store.read(&blob, ReadClass::Blob, &mut buf).unwrap(),
        [3; 5000]
    );
}

#[test]
fn what_nothing_needs_goes_at_recovery_unless_a_file_is_missing() {
    let env = MemEnv::new();
    let store = store_in(Arc::new(env.clone()), 1);
    let mut session = TransactionBlobs::new();
    let blobs: Vec<BlobRef> = (0..3)
        .map(|i| store.write(&mut session, 0, &[i; 100]).unwrap())
        .collect();
    session.sync().unwrap();
    let ids: Vec<u64> = blobs.iter().map(|blob| blob.file).collect();
    let store = store_in(Arc::new(env.clone()), 1);
    let needed = BTreeSet::from([ids[0], 99]);
    let recover = |store: &BlobStore, needed: &BTreeSet<u64>| {
        store.recovered(needed, ids.clone(), |error| panic!("{error}"))
    };
    assert_eq!(recover(&store, &needed), [99]);
    assert_eq!(store.files().list_blobs().unwrap(), ids);
    let store = store_in(Arc::new(env), 1);
    assert!(recover(&store, &BTreeSet::from([ids[1]])).is_empty());
    assert_eq!(store.files().list_blobs().unwrap(), [ids[1]]);
}

/// The blob's checksum does not cover the header's byte for encryption.
#[test]
fn a_header_that_claims_encryption_against_its_reference_is_damage() {
    let env = MemEnv::new();
    let store = store_in(Arc::new(env.clone()), 1 << 20);
    let mut session = TransactionBlobs::new();
    let blob = store.write(&mut session, 0, &[7; 9000]).unwrap();
    session.sync().unwrap();
    store.seal_active();
    let change = |bytes: &mut Vec<u8>| bytes[blob.offset as usize + 5] ^= 1;
    env.damage(&path(blob.file), change).unwrap();
    let file = store.all().pop().unwrap();
    let error = store.rewrite(&file, &[span(&blob)]).err().unwrap();
    let ErrorKind::Corruption { file, offset } = error.kind() else {
        panic!("{error}");
    };
    assert_eq!(*file, file_name(FileKind::Blob, blob.file));
    assert_eq!(*offset, blob.offset);
    // Reading the value needs no header: codec and checksum come from the reference.
    assert_eq!(
        store
            .read(&blob, ReadClass::Blob, &mut BlobBuf::new())
            .unwrap(),
        [7; 9000]
    );
}

#[test]
fn a_file_that_cannot_be_removed_at_recovery_does_not_keep_the_others() {
    let env = FaultEnv::new(Arc::new(MemEnv::new()));
    let store = store_in(Arc::new(env.clone()), 1);
    for id in 1..=3 {
        store.files().open_spans(id, true).unwrap();
    }
    env.inject(Fault {
        class: CallClass::Remove,
        nth: 2,
        sticky: false,
        errno: Errno::Io,
    });
    let mut failed = 0;
    let missing = store.recovered(&BTreeSet::new(), vec![1, 2, 3], |_| failed += 1);
    assert_eq!((missing, failed), (Vec::new(), 1));
    assert_eq!(store.files().list_blobs().unwrap(), [2]);
}

#[test]
fn a_stop_cancels_punches_and_rewrites() {
    let env = MemEnv::new();
    let store = store_in(Arc::new(env.clone()), 1 << 20);
    let mut rng = StdRng::seed_from_u64(7);
    let mut session = TransactionBlobs::new();
    let blobs = [0; 3].map(|_| {
        let noise: Vec<u8> = (0..40_000).map(|_| rng.random()).collect();
        store.write(&mut session, 0, &noise).unwrap()
    });
    session.sync().unwrap();
    drop(session);
    store.seal_active();
    let file = store.all().pop().unwrap();
    let live = [span(&blobs[0]), span(&blobs[2])];
    let before = file.usage().unwrap().allocated;
    store.stop_collecting();
    let punched = store.punch(&file, &live).unwrap_err();
    assert_eq!(*punched.kind(), ErrorKind::Interrupted);
    assert_eq!(file.usage().unwrap().allocated, before);
    let rewritten = store.rewrite(&file, &live).err().unwrap();
    assert_eq!(*rewritten.kind(), ErrorKind::Interrupted);
    assert_eq!(store.files().list_blobs().unwrap(), [file.id()]);

    let store = store_in(Arc::new(env), 1 << 20);
    let file = store.file(file.id());
    assert!(store.punch(&file, &live).unwrap().unwrap() > 30_000);
    assert!(store.rewrite(&file, &live).is_ok());
}

#[test]
fn a_value_is_read_in_the_class_of_its_reader() {
    let env = CountingEnv::new(Arc::new(MemEnv::new()));
    let stats = Arc::clone(env.counters());
    let reads = |class: ReadClass| {
        let mut all = stats.file_reads().by_class();
        all.find(|one| one.class == class).unwrap().reads
    };
    let store = store_in(Arc::new(env), 1 << 20);
    let mut session = TransactionBlobs::new();
    let blob = store.write(&mut session, 0, &[7; 9000]).unwrap();
    session.sync().unwrap();
    drop(session);
    let mut buf = BlobBuf::new();
    assert_eq!(
        store.read(&blob, ReadClass::Blob, &mut buf).unwrap(),
        [7; 9000]
    );
    // The header of the file, and the value.
    assert_eq!(
        (reads(ReadClass::Blob), reads(ReadClass::Compaction)),
        (2, 0)
    );
    let beginning = store.read_prefix(&blob, 10, ReadClass::Verify, &mut buf);
    assert_eq!(beginning.unwrap(), [7; 10]);
    assert_eq!((reads(ReadClass::Blob), reads(ReadClass::Verify)), (2, 1));
    store.seal_active();
    let file = store.file(blob.file);
    let rewritten = store.rewrite(&file, &[span(&blob)]).unwrap();
    assert_eq!(reads(ReadClass::Compaction), 1);
    store.discard(&rewritten);
    let all: u64 = stats.file_reads().reads();
    assert_eq!(
        all,
        reads(ReadClass::Blob) + reads(ReadClass::Verify) + reads(ReadClass::Compaction)
    );
}

#[test]
fn pieces_of_values_come_from_a_pool_and_are_checked() {
    let env = MemEnv::new();
    env.create_dir_all(Path::new(DIR)).unwrap();
    let env = CountingEnv::new(Arc::new(env));
    let stats = Arc::clone(env.counters());
    let env: Arc<dyn Env> = Arc::new(env);
    let pool = Arc::new(MapPool::default());
    let pooled = PooledBlocks::new(pool.clone(), env.clone(), stats.clone());
    let pooled = Arc::new(pooled);
    pooled.set_on(true);
    let files = FileStore::new(env, DIR).with_pool(pooled.clone());
    let next = AtomicU64::new(1);
    let store = BlobStore::new(files, 8 << 20, move || next.fetch_add(1, Ordering::Relaxed));
    let mut rng = StdRng::seed_from_u64(11);
    let mut session = TransactionBlobs::new();
    let mut all = Vec::new();
    for len in [1, 5000, 131_072, 131_073, 300_000, 500_000, 5_000_000] {
        for _ in 0..2 {
            let value = value(&mut rng, len);
            all.push((store.write(&mut session, 3, &value).unwrap(), value));
        }
    }
    session.sync().unwrap();
    let mut buf = BlobBuf::new();
    let read_all = |class, buf: &mut BlobBuf| {
        let before = stats.file_reads().reads();
        for (blob, value) in &all {
            assert_eq!(store.read(blob, class, buf).unwrap(), value);
            let part = (value.len() as u64 / 2).max(1);
            let read = store.read_prefix(blob, part, class, buf).unwrap();
            assert_eq!(read, &value[..part as usize]);
        }
        stats.file_reads().reads() - before
    };
    read_all(ReadClass::Blob, &mut buf);
    // Each value has its table, if it has chunks, and each chunk.
    assert_eq!(pool.len(), 2 * (3 + 3 + 4 + 5 + 40));
    pool.pool_reads.store(0, Ordering::Relaxed);
    assert_eq!(read_all(ReadClass::Blob, &mut buf), 0, "all is in the pool");
    assert_eq!(
        pool.pool_reads.swap(0, Ordering::Relaxed),
        28,
        "the time of each is compared with the file's"
    );
    // Of those in chunks the table is tried, which shows nothing of the chunks.
    pool.take_calls();
    pool.tried.store(true, Ordering::Relaxed);
    assert_eq!(read_all(ReadClass::Blob, &mut buf), 16);
    assert_eq!(pool.pool_reads.swap(0, Ordering::Relaxed), 12);
    let mut gets = pool.take_calls().into_iter();
    let of_one = |call| matches!(call, PoolCall::Get(_, 1, _) | PoolCall::Offer(_));
    assert!(gets.all(of_one), "no chunks are asked for");
    pool.tried.store(false, Ordering::Relaxed);
    pool.take_calls();
    assert_eq!(read_all(ReadClass::Verify, &mut buf), 28);
    assert_eq!(pool.take_calls(), [], "a check reads the file");
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        pool.retain(|_| rng.random_bool(0.8));
        pool.lies.store(seed % 3 == 0, Ordering::Relaxed);
        pool.hangs.store(seed % 5 == 0, Ordering::Relaxed);
        assert!(read_all(ReadClass::Blob, &mut buf) > 0);
    }
    pool.lies.store(false, Ordering::Relaxed);
    pool.hangs.store(false, Ordering::Relaxed);
    // Chunks that come without the others have taken their time.
    read_all(ReadClass::Blob, &mut buf);
    pool.change(|name, stored| {
        if matches!(name, BlockName::BlobPiece { piece: 2, .. }) {
            stored[0] ^= 1;
        }
    });
    pool.pool_reads.store(0, Ordering::Relaxed);
    assert_eq!(read_all(ReadClass::Blob, &mut buf), 8);
    assert_eq!(pool.pool_reads.load(Ordering::Relaxed), 28);
    // The time of a read that was announced is not that of the file, and nobody asks the pool. The
    // first one is not announced, so that both are known where all values are read like this.
    for (announced, noted) in [(false, 14), (true, 1)] {
        pool.retain(|_| false);
        if announced {
            store.prefetch(all.iter().map(|(blob, value)| (blob, value.len() as u64)));
        }
        pool.file_reads.store(0, Ordering::Relaxed);
        pool.take_calls();
        let mut gets = 0;
        for (blob, value) in &all {
            let read = store.read(blob, ReadClass::Blob, &mut buf).unwrap();
            assert_eq!(read, value);
            let calls = pool.take_calls().into_iter();
            gets += calls
                .filter(|call| matches!(call, PoolCall::Get(..)))
                .count();
        }
        assert_eq!(pool.file_reads.load(Ordering::Relaxed), noted);
        assert_eq!(gets, noted);
    }
    pooled.set_on(false);
    pool.take_calls();
    assert_eq!(read_all(ReadClass::Blob, &mut buf), 28);
    assert_eq!(pool.take_calls(), []);
}
