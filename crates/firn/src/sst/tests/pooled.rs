//! Blocks that come from a memory pool instead of the file.

use super::memory::{dictionary_options, wordy};
use super::*;
use crate::base::checksum;
use crate::base::key::SEQNO_MAX;
use crate::base::read_meter;
use crate::env::{CountingEnv, Env, IoStats, MemEnv};
use crate::store::testing::{MapPool, PoolCall};
use crate::store::{BlockName, FileStore, PooledBlocks, ReadBatch};
use std::path::Path;
use std::sync::atomic::Ordering;

struct Pooled {
    store: FileStore,
    pool: Arc<MapPool>,
    blocks: Arc<PooledBlocks>,
    stats: Arc<IoStats>,
}

impl Pooled {
    fn new(bytes: Vec<u8>) -> Self {
        let env = MemEnv::new();
        env.place(Path::new("/0000000077.sst"), bytes);
        let env = CountingEnv::new(Arc::new(env));
        let stats = Arc::clone(env.counters());
        let env: Arc<dyn Env> = Arc::new(env);
        let pool = Arc::new(MapPool::default());
        let blocks = PooledBlocks::new(pool.clone(), env.clone(), stats.clone());
        let blocks = Arc::new(blocks);
        blocks.set_on(true);
        let store = FileStore::new(env, "/").with_pool(blocks.clone());
        Self {
            store,
            pool,
            blocks,
            stats,
        }
    }

    /// Opens the file, which the manifest gives this checksum, with an empty block cache and
    /// without room for index partitions.
    fn open_as(&self, checksum: u64) -> Arc<SstReader> {
        let cache = Arc::new(SstBlockCache::new(16 << 20));
        cache.set_room(16 << 20, 0);
        let file = self.store.open_blocks(FILE_ID, checksum, None).unwrap();
        SstReader::open_at(file, FILE_ID, NAME.into(), cache, OpenHints::default()).unwrap()
    }

    fn open(&self) -> Arc<SstReader> {
        self.open_as(1)
    }

    /// The numbers of reads of files and of the pool that `f` makes.
    fn reads<T>(&self, f: impl FnOnce() -> T) -> (u64, u64) {
        let totals = || {
            (
                self.stats.file_reads().reads(),
                self.stats.pool_reads().reads(),
            )
        };
        let before = totals();
        f();
        let after = totals();
        (after.0 - before.0, after.1 - before.1)
    }

    fn gets(&self) -> Vec<(ReadClass, usize, usize)> {
        let calls = self.pool.take_calls().into_iter();
        calls
            .filter_map(|call| match call {
                PoolCall::Get(class, asked, came) => Some((class, asked, came)),
                _ => None,
            })
            .collect()
    }
}

fn key(n: u64) -> Vec<u8> {
    edges::key(1, n)
}

/// An entry: seqno, kind, and both parts of the value.
type FoundEntry = (u64, (Kind, Vec<u8>, Vec<u8>));

fn point(reader: &SstReader, n: u64) -> Option<FoundEntry> {
    get(reader, &key(n), SEQNO_MAX).unwrap()
}

fn content(reader: &Arc<SstReader>, class: ReadClass, fill: bool) -> Vec<Vec<u8>> {
    let mut iter = reader.iter(class, fill);
    let (mut on, mut all) = (iter.seek_to_first().unwrap(), Vec::new());
    while on {
        let value = iter.value();
        all.push([iter.key().user_key, value.head, value.tail].concat());
        on = iter.next().unwrap();
    }
    all
}

#[test]
fn a_second_server_reads_what_the_first_has_put() {
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    let reader = file.open();
    let wanted = point(&reader, 5);
    // Filter, partition, block and dictionary were asked for, and put.
    assert_eq!(file.pool.len(), 4);
    let asked = file.gets();
    assert_eq!(asked.len(), 4);
    assert!(
        asked
            .iter()
            .all(|(_, blocks, came)| (*blocks, *came) == (1, 0))
    );
    let cached = file.reads(|| assert_eq!(point(&reader, 5), wanted));
    assert_eq!(
        (cached, file.gets()),
        ((0, 0), vec![]),
        "a cache hit asks nobody"
    );
    let reader = file.open();
    assert_eq!(file.reads(|| assert_eq!(point(&reader, 5), wanted)), (0, 4));
    let classes: Vec<_> = file.gets().iter().map(|(class, ..)| *class).collect();
    assert_eq!(
        classes.iter().filter(|c| **c == ReadClass::Index).count(),
        3
    );
    assert_eq!(
        classes.iter().filter(|c| **c == ReadClass::Point).count(),
        1
    );
    // Off, nobody is asked, and nothing is put.
    file.blocks.set_on(false);
    let reader = file.open();
    assert_eq!(file.reads(|| assert_eq!(point(&reader, 5), wanted)), (4, 0));
    assert_eq!(file.pool.take_calls(), []);
}

#[test]
fn bytes_that_are_not_the_block_are_as_good_as_none() {
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    let wanted = content(&file.open(), ReadClass::Range, true);
    let one = point(&file.open(), 5);
    file.pool.lies.store(true, Ordering::Relaxed);
    let before = file.pool.len();
    file.pool.take_calls();
    let reader = file.open();
    let reads = file.reads(|| assert_eq!(point(&reader, 5), one));
    assert_eq!(reads, (4, 0));
    let calls = file.pool.take_calls();
    let deleted = calls
        .iter()
        .filter(|call| **call == PoolCall::Delete)
        .count();
    assert_eq!(deleted, 4, "{calls:?}");
    assert_eq!(file.pool.len(), before, "and put again from the file");
    assert_eq!(content(&file.open(), ReadClass::Range, true), wanted);
}

/// Without a key, somebody may put a block whose checksum is right and whose content is not.
#[test]
fn a_block_of_the_pool_that_cannot_be_decoded_is_read_from_the_file() {
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    let wanted = content(&file.open(), ReadClass::Range, true);
    file.pool.change(|name, stored| {
        let BlockName::Block { offset, .. } = *name else {
            return;
        };
        // The length before compression.
        stored[4] ^= 1;
        let covered = stored.len() - 8;
        let sum = checksum::placed(&stored[..covered], FILE_ID, offset);
        stored[covered..].copy_from_slice(&sum.to_le_bytes());
    });
    let reader = file.open();
    let reads = file.reads(|| assert_eq!(content(&reader, ReadClass::Range, true), wanted));
    assert!(reads.1 > 0, "the pool was believed at first: {reads:?}");
    assert!(point(&file.open(), 5).is_some());
}

#[test]
fn damage_of_the_file_is_damage_with_a_pool_too() {
    let mut bytes = wordy(dictionary_options(), 1 << 20);
    let reader = open(bytes.clone()).unwrap();
    let block = reader.bytes_to_read(&key(5), KeyHash::of(&key(5))).unwrap();
    bytes[block.start as usize + 20] ^= 1;
    let file = Pooled::new(bytes);
    let reader = file.open();
    let error = get(&reader, &key(5), SEQNO_MAX).unwrap_err();
    assert!(error.is_corruption(), "{error}");
    let name = |call: &PoolCall| *call == PoolCall::Offer(ReadClass::Point);
    assert!(
        !file.pool.take_calls().iter().any(name),
        "damage is never put"
    );
}

#[test]
fn a_file_with_another_checksum_has_other_blocks() {
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    point(&file.open_as(1), 5);
    let other = file.open_as(2);
    assert_eq!(file.reads(|| point(&other, 5)), (4, 0));
    assert_eq!(file.pool.len(), 8);
}

#[test]
fn a_scan_asks_for_a_window_in_one_batch() {
    let file = Pooled::new(wordy(dictionary_options(), 4 << 20));
    let wanted = content(&file.open(), ReadClass::Range, true);
    file.pool.take_calls();
    let reader = file.open();
    let reads = file.reads(|| assert_eq!(content(&reader, ReadClass::Range, true), wanted));
    assert_eq!(reads.0, 0, "all is in the pool");
    let gets = file.gets();
    let scans = gets.iter().filter(|(class, ..)| *class == ReadClass::Scan);
    let (batches, blocks) = scans.fold((0, 0), |sum, (_, n, _)| (sum.0 + 1, sum.1 + n));
    assert!(
        blocks > 50 && batches * 4 < blocks,
        "{batches} batches of {blocks} blocks"
    );
    assert!(
        gets.iter()
            .all(|(_, asked, came)| asked == came && *asked <= 32)
    );
    // A window of which the pool has little is read from the file at once.
    file.pool.retain(|number| number % 4 == 0);
    let reader = file.open();
    let reads = file.reads(|| assert_eq!(content(&reader, ReadClass::Range, true), wanted));
    assert!(reads.0 > 0);
    // One of which it has most comes from the pool, and the rest from the file.
    file.pool.retain(|number| number % 8 != 0);
    file.pool.take_calls();
    let reader = file.open();
    let reads = file.reads(|| assert_eq!(content(&reader, ReadClass::Range, true), wanted));
    assert!(reads.0 > 0 && reads.1 > 3 * reads.0, "{reads:?}");
    // Nothing comes, although it seems to be there.
    file.pool.hangs.store(true, Ordering::Relaxed);
    let reader = file.open();
    let reads = file.reads(|| assert_eq!(content(&reader, ReadClass::Range, true), wanted));
    assert!(reads.0 > 0 && reads.1 == 0, "{reads:?}");
}

/// Each window that the pool has served, wholly or in part, is compared with a read of the file.
#[test]
fn the_time_of_each_window_that_comes_from_the_pool_is_noted() {
    let file = Pooled::new(wordy(dictionary_options(), 4 << 20));
    let wanted = content(&file.open(), ReadClass::Range, true);
    // Times that were noted, and windows that were asked for.
    let scan = || {
        file.pool.pool_reads.store(0, Ordering::Relaxed);
        file.pool.take_calls();
        assert_eq!(content(&file.open(), ReadClass::Range, true), wanted);
        let gets = file.gets().into_iter();
        let windows = gets.filter(|(class, ..)| *class == ReadClass::Scan);
        let noted = file.pool.pool_reads.load(Ordering::Relaxed);
        (noted, windows.collect::<Vec<_>>())
    };
    let (noted, windows) = scan();
    assert!(noted > 5 && noted == windows.len(), "{noted} {windows:?}");
    file.pool.lies.store(true, Ordering::Relaxed);
    let (noted, windows) = scan();
    assert!(!windows.is_empty() && noted == 0, "no block is right");
    file.pool.lies.store(false, Ordering::Relaxed);
    scan();
    // A block of each window is another one.
    file.pool.change(|name, stored| {
        if matches!(name, BlockName::Block { offset, .. } if offset % 7 == 0) {
            stored[9] ^= 1;
        }
    });
    let (noted, windows) = scan();
    let in_part = windows.iter().filter(|w| w.1 > w.2 && w.2 > 0).count();
    let served = windows.iter().filter(|w| w.2 > 0).count();
    assert!(in_part > 3 && noted == served, "{noted} {windows:?}");
    // The first block of a window is tried: that shows nothing of the window.
    scan();
    file.pool.tried.store(true, Ordering::Relaxed);
    let (noted, windows) = scan();
    assert!(windows.iter().any(|w| (w.1, w.2) == (1, 1)), "{windows:?}");
    assert_eq!(noted, 0);
}

#[test]
fn scans_that_jump_back_and_forth_see_the_same_with_a_pool() {
    use rand::{Rng, SeedableRng, rngs::StdRng};
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    let wanted = content(&file.open(), ReadClass::Range, true);
    for seed in 0..40 {
        let mut rng = StdRng::seed_from_u64(seed);
        file.pool.retain(|_| rng.random_bool(0.9));
        file.pool
            .hangs
            .store(rng.random_bool(0.2), Ordering::Relaxed);
        file.pool
            .lies
            .store(rng.random_bool(0.1), Ordering::Relaxed);
        let reader = file.open();
        let mut iter = reader.iter(ReadClass::Range, true);
        for _ in 0..20 {
            let mut at = rng.random_range(0..wanted.len());
            let user_key = &wanted[at][..key(0).len()];
            assert!(iter.seek(user_key, SEQNO_MAX).unwrap());
            for _ in 0..rng.random_range(1..2000) {
                let value = iter.value();
                let row = [iter.key().user_key, value.head, value.tail].concat();
                assert_eq!(row, wanted[at], "seed {seed}");
                at += 1;
                assert_eq!(iter.next().unwrap(), at < wanted.len());
                if at == wanted.len() {
                    break;
                }
            }
        }
    }
}

#[test]
fn announced_blocks_of_the_pool_come_in_one_batch_and_are_not_read_ahead() {
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    let reader = file.open();
    // Of one index partition.
    let keys: Vec<u64> = (0..8).map(|n| n * 30).collect();
    let wanted: Vec<_> = keys.iter().map(|n| point(&reader, *n)).collect();
    let reader = file.open();
    point(&reader, keys[0]);
    file.pool.take_calls();
    let announce = |reader: &SstReader| {
        let mut reads = ReadBatch::new();
        for n in &keys {
            let bytes = reader.bytes_to_read(&key(*n), KeyHash::of(&key(*n)));
            if let Some(bytes) = bytes {
                reader.prefetch(&bytes, &mut reads);
            }
        }
        reads.start();
    };
    announce(&reader);
    let gets = file.gets();
    assert_eq!(gets.len(), 1, "{gets:?}");
    assert!(gets[0].1 > 3 && gets[0].1 == gets[0].2, "{gets:?}");
    let reads = file.reads(|| {
        let found: Vec<_> = keys.iter().map(|n| point(&reader, *n)).collect();
        assert_eq!(found, wanted);
    });
    assert_eq!(reads.0, 0);
    assert_eq!(file.gets(), [], "they are there already");
}

/// The numbers of reads of files, of blocks of the pool, and of announced reads of files.
fn work<T>(file: &Pooled, f: impl FnOnce() -> T) -> (u64, u64, u64) {
    let before = read_meter::thread_reads().prefetched;
    let (files, pool) = file.reads(f);
    (files, pool, read_meter::thread_reads().prefetched - before)
}

/// The pool seems to have blocks, but would not be asked for them: their node is down, or the disk
/// is faster. Then scans read windows and announce the next ones, and batches of keys announce all
/// their blocks, as without a pool.
#[test]
fn reads_of_files_are_announced_for_blocks_that_the_pool_is_not_asked_for() {
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    let wanted = content(&file.open(), ReadClass::Range, true);
    let keys: Vec<u64> = (0..8).map(|n| n * 30).collect();
    let announce = |reader: &SstReader| {
        let mut reads = ReadBatch::new();
        for n in &keys {
            if let Some(bytes) = reader.bytes_to_read(&key(*n), KeyHash::of(&key(*n))) {
                reader.prefetch(&bytes, &mut reads);
            }
        }
        reads.start();
    };
    let scan = |file: &Pooled| {
        let reader = file.open();
        point(&reader, 0);
        work(file, || {
            assert_eq!(content(&reader, ReadClass::Range, true), wanted)
        })
    };
    let batch = |file: &Pooled| {
        let reader = file.open();
        point(&reader, 0);
        let announced = work(file, || announce(&reader));
        let read = work(file, || keys.iter().for_each(|n| drop(point(&reader, *n))));
        (announced.2, read.0, read.1)
    };
    file.blocks.set_on(false);
    let (scan_off, batch_off) = (scan(&file), batch(&file));
    assert!(scan_off.2 > 0 && batch_off.0 > 3);
    file.blocks.set_on(true);
    let (scan_on, batch_on) = (scan(&file), batch(&file));
    assert_eq!((scan_on.0, scan_on.2), (0, 0), "all comes from the pool");
    assert_eq!(batch_on.0, 0);
    // The disk is faster than the pool.
    file.pool.slow.store(true, Ordering::Relaxed);
    let (scan_slow, batch_slow) = (scan(&file), batch(&file));
    let index = 3;
    assert!(
        scan_slow.0 <= scan_off.0 + index,
        "{scan_slow:?} {scan_off:?}"
    );
    assert_eq!((scan_slow.1, scan_slow.2), (0, scan_off.2));
    assert_eq!(batch_slow, batch_off);
    file.pool.slow.store(false, Ordering::Relaxed);
    // One node is up, the others are down: holes are not read one by one.
    *file.pool.down.lock() = vec![0, 1, 2, 3, 4, 5, 6];
    let scan_down = scan(&file);
    assert!(
        scan_down.0 <= scan_off.0 + index,
        "{scan_down:?} {scan_off:?}"
    );
    assert_eq!(scan_down.2, scan_off.2);
    *file.pool.down.lock() = (0..10).collect();
    assert_eq!(batch(&file), batch_off);
}

#[test]
fn whoever_reads_a_file_once_neither_asks_nor_puts() {
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    let wanted = content(&file.open(), ReadClass::Range, true);
    file.pool.take_calls();
    for class in [
        ReadClass::Compaction,
        ReadClass::Load,
        ReadClass::Verify,
        ReadClass::Backup,
    ] {
        assert_eq!(content(&file.open(), class, false), wanted);
        assert_eq!(file.pool.take_calls(), [], "{class:?}");
    }
}

#[test]
fn blocks_of_an_output_that_stand_for_pooled_ones_are_put_and_those_of_an_input_deleted() {
    let file = Pooled::new(wordy(dictionary_options(), 1 << 20));
    let reader = file.open();
    let blocks: Vec<u64> = reader.blocks().unwrap().iter().map(|b| b.entries).collect();
    file.pool.take_calls();
    // The whole first block, less than half of the second one, all but one of the third one.
    let starts: Vec<u64> = blocks
        .iter()
        .scan(0, |sum, n| {
            *sum += n;
            Some(*sum - n)
        })
        .collect();
    let entries = [
        0..starts[1] + blocks[1] / 3,
        starts[2]..starts[2] + blocks[2] - 1,
    ];
    let mut read = 0;
    let has_read = |bytes: u64| {
        read += bytes;
        Ok(())
    };
    // The pool has no room for the first block twice, and then it has.
    file.pool.full.store(2, Ordering::Relaxed);
    let mut waits = 0;
    let has_no_room = || {
        waits += 1;
        true
    };
    reader.fill_pool(&entries, has_read, has_no_room).unwrap();
    assert_eq!(file.pool.take_calls(), [PoolCall::Put, PoolCall::Put]);
    assert_eq!(waits, 2);
    assert!(read > 0);
    // It has no room, and nobody wants to wait; background work is to end.
    file.pool.full.store(1, Ordering::Relaxed);
    reader.fill_pool(&entries, |_| Ok(()), || false).unwrap();
    let ends = |_| Err(crate::base::Error::invalid("it ends"));
    reader.fill_pool(&entries, ends, || true).unwrap_err();
    assert_eq!(file.pool.take_calls(), []);
    let mut iter = reader.iter(ReadClass::Compaction, false);
    let (mut on, mut pooled) = (iter.seek_to_first().unwrap(), 0);
    while on {
        pooled += u64::from(iter.residence().pooled);
        on = iter.next().unwrap();
    }
    assert_eq!(pooled, blocks[0] + blocks[2]);
    reader.forget_cached().unwrap();
    assert_eq!(file.pool.len(), 2);
    reader.forget_pooled().unwrap();
    assert_eq!(file.pool.len(), 0);
    assert_eq!(file.pool.take_calls(), [PoolCall::Delete, PoolCall::Delete]);
}
