use super::*;
use crate::base::blob_ref::{self, BlobCodec, BlobRef};
use crate::base::options::Options;
use crate::base::{InternalIterator, Kind, Value};
use crate::env::{MemEnv, ReadClass};
use crate::ingest::tests::ingest_with;
use crate::store::{FileKind, parse_file_name};
use crate::version::FileHandle;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{Rng, SeedableRng};
use std::path::Path;

fn setup() -> Arc<RunFactory> {
    let env = Arc::new(MemEnv::new());
    let options = Options {
        block_size: 512,
        target_file_size: 16 << 10,
        ..Options::default()
    };
    ingest_with(env, Path::new("/"), 24 << 10, options)
}

fn limits(memory: u64, threads: bool) -> LoadLimits {
    LoadLimits {
        memory,
        allowance: MemoryCharge::default(),
        threads,
        pacer: Arc::new(|_, _| Ok(())),
        interrupted: Arc::default(),
        gauge: Arc::default(),
    }
}

/// Number of files of loads in the directory.
fn left(ingest: &RunFactory) -> usize {
    let store = ingest.versions().source().store();
    let names = store.env().list_dir(store.dir()).unwrap();
    let parsed = names.iter().filter_map(|name| parse_file_name(name));
    parsed.count()
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Order {
    Ascending,
    Descending,
    Shuffled,
    /// In order, except for a few.
    Nearly,
}

const ORDERS: [Order; 4] = [
    Order::Ascending,
    Order::Descending,
    Order::Shuffled,
    Order::Nearly,
];

/// The numbers of the rows in the given order.
fn numbers(count: u32, order: Order, rng: &mut StdRng) -> Vec<u32> {
    let mut numbers: Vec<u32> = (0..count).collect();
    match order {
        Order::Ascending => {}
        Order::Descending => numbers.reverse(),
        Order::Shuffled => numbers.shuffle(rng),
        Order::Nearly => {
            for _ in 0..3 {
                let (a, b) = (rng.random_range(0..count), rng.random_range(0..count));
                numbers.swap(a as usize, b as usize);
            }
        }
    }
    numbers
}

/// Keys of row `n` in the clustered index, in a unique index, and in one with many equal values;
/// each with the length of its unique part.
fn keys(n: u32) -> [(Vec<u8>, usize); 3] {
    let id = n.to_be_bytes();
    let unique = [
        &[0, 0, 0, 2][..],
        &n.wrapping_mul(2_654_435_761).to_be_bytes(),
    ]
    .concat();
    let unique_len = unique.len();
    [
        ([&[0, 0, 0, 1][..], &id].concat(), 8),
        ([&unique[..], &id].concat(), unique_len),
        ([&[0, 0, 0, 3, (n % 7) as u8][..], &id].concat(), 0),
    ]
}

const SORTERS: [Uniqueness; 3] = [Uniqueness::Key, Uniqueness::Start, Uniqueness::None];

/// Every third row has a blob.
fn kind_of(sorter: usize, n: u32) -> Kind {
    match sorter == 0 && n.is_multiple_of(3) {
        true => Kind::PutBlobs,
        false => Kind::Put,
    }
}

fn blob_of(n: u32) -> BlobRef {
    BlobRef {
        column: 1,
        file: 900 + u64::from(n % 2),
        offset: u64::from(n) * 8192,
        len: 5000,
        codec: BlobCodec::None,
        stored: 5000,
        checksum: 7,
    }
}

fn add_row(load: &mut IndexLoad, n: u32) -> Result<(), LoadFailure> {
    for (sorter, (user_key, unique_len)) in keys(n).iter().enumerate() {
        let (kind, value) = (kind_of(sorter, n), [n as u8; 50]);
        let mut tail = user_key[4..].to_vec();
        if kind == Kind::PutBlobs {
            blob_ref::append(&mut tail, &[blob_of(n)]);
        }
        let value = match sorter {
            0 => Value::split(&value[..(n % 50) as usize], &tail),
            _ => Value::EMPTY,
        };
        let unique_len = *unique_len;
        load.add(
            sorter,
            LoadEntry {
                user_key,
                unique_len,
                kind,
                value,
            },
        )?;
    }
    Ok(())
}

fn load(
    ingest: &Arc<RunFactory>,
    numbers: &[u32],
    limits: LoadLimits,
) -> Result<NewFiles, LoadFailure> {
    let mut load = IndexLoad::new(ingest, &SORTERS, limits)?;
    numbers.iter().try_for_each(|n| add_row(&mut load, *n))?;
    load.finish(&mut |done, total| {
        assert!(done <= total);
        Ok(())
    })
}

/// All keys of the files in order, with the length of the value's head and the kind.
fn stored(ingest: &Arc<RunFactory>, files: &NewFiles) -> Vec<(Vec<u8>, usize, Kind)> {
    let mut all = Vec::new();
    for meta in files.files() {
        let meta = Arc::new(meta.clone().with_external_seqno(0));
        let file = FileHandle::new(meta, Arc::clone(ingest.versions().source()));
        file.reader().unwrap().verify().unwrap();
        let mut iter = file.reader().unwrap().iter(ReadClass::Range, true);
        let mut on = iter.seek_to_first().unwrap();
        while on {
            let key = iter.key();
            all.push((key.user_key.to_vec(), iter.value().head.len(), key.kind));
            on = iter.next().unwrap();
        }
    }
    all
}

fn expected(numbers: &[u32]) -> Vec<(Vec<u8>, usize, Kind)> {
    let entries = numbers.iter().flat_map(|n| {
        let head = move |sorter| if sorter == 0 { (n % 50) as usize } else { 0 };
        let keys = keys(*n).into_iter().enumerate();
        keys.map(move |(sorter, (key, _))| (key, head(sorter), kind_of(sorter, *n)))
    });
    let mut entries: Vec<_> = entries.collect();
    entries.sort();
    entries
}

#[test]
fn all_rows_come_out_in_order_whatever_the_order_they_came_in() {
    for seed in 0..24 {
        let mut rng = StdRng::seed_from_u64(seed);
        let ingest = setup();
        let order = ORDERS[seed as usize % 4];
        let numbers = numbers(rng.random_range(1..4000), order, &mut rng);
        let memory = 1 << rng.random_range(15..22);
        let limits = limits(memory, rng.random());
        let gauge = Arc::clone(&limits.gauge);
        let files = load(&ingest, &numbers, limits).unwrap();
        assert!(stored(&ingest, &files) == expected(&numbers), "seed {seed}");
        let referred = files.files().iter().flat_map(|meta| &meta.blobs);
        let out_of_line = numbers.iter().filter(|n| n.is_multiple_of(3));
        assert_eq!(
            referred.map(|of_file| of_file.bytes).sum::<u64>(),
            out_of_line.map(|n| blob_of(*n).span()).sum::<u64>(),
            "seed {seed}"
        );
        assert_eq!(gauge.sum(), 0);
        assert_eq!(
            left(&ingest),
            files.files().len(),
            "temporary files stay: seed {seed}"
        );
        drop(files);
        assert_eq!(left(&ingest), 0, "seed {seed}");
    }
}

/// The gauge's values at each call of the pacer at the end of a load with `sorters` indexes, and
/// its value before the end.
fn charged_at_the_end(sorters: usize, threads: bool) -> (Vec<u64>, u64) {
    let ingest = setup();
    let mut limits = limits(64 << 20, threads);
    let gauge = Arc::clone(&limits.gauge);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (read, show) = (Arc::clone(&seen), Arc::clone(&gauge));
    limits.pacer = Arc::new(move |_, _| {
        read.lock().push(show.sum());
        Ok(())
    });
    let sorters = vec![Uniqueness::Start; sorters];
    let mut load = IndexLoad::new(&ingest, &sorters, limits).unwrap();
    for n in 0..5000 {
        for sorter in 0..sorters.len() {
            let (user_key, unique_len) = &keys(n)[1];
            let entry = LoadEntry {
                user_key: &[&[0, 0, 0, sorter as u8 + 2][..], &user_key[4..]].concat(),
                unique_len: *unique_len,
                kind: Kind::Put,
                value: Value::EMPTY,
            };
            load.add(sorter, entry).unwrap();
        }
    }
    assert!(seen.lock().is_empty(), "it all fits into memory");
    let before = gauge.sum();
    drop(load.finish(&mut |_, _| Ok(())).unwrap());
    assert_eq!(gauge.sum(), 0);
    (std::mem::take(&mut *seen.lock()), before)
}

#[test]
fn a_list_that_waits_for_the_end_stays_charged_until_it_is_merged() {
    for threads in [false, true] {
        let (seen, before) = charged_at_the_end(1, threads);
        assert!(before > 5000 * 20, "{before}");
        assert!(seen.len() > 2, "{seen:?}");
        assert!(seen.iter().all(|sum| *sum == before), "{before}: {seen:?}");
    }
    // Without threads the sorters merge one after the other.
    let (seen, before) = charged_at_the_end(3, false);
    assert_eq!(seen.first(), Some(&before));
    let last = *seen.last().unwrap();
    assert!(
        (before / 4..before / 2).contains(&last),
        "{before}: {seen:?}"
    );
}

/// Number of temporary runs in the directory.
fn runs(ingest: &RunFactory) -> usize {
    let store = ingest.versions().source().store();
    let names = store.env().list_dir(store.dir()).unwrap();
    let kinds = names.iter().filter_map(|name| parse_file_name(name));
    kinds.filter(|(kind, _)| *kind == FileKind::Sort).count()
}

/// A load with little memory merges eight runs at a time, of one tier into one of the next, and so
/// few are left at any time and for the last merge.
#[test]
fn more_runs_than_are_merged_at_once() {
    let ingest = setup();
    let mut limits = limits(10 << 10, false);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (write, watched) = (Arc::clone(&seen), Arc::clone(&ingest));
    limits.pacer = Arc::new(move |_, _| {
        let now = runs(&watched);
        assert!(now <= 3 * 5 * 8 + 1, "{now} runs at a time");
        write.lock().push(now);
        Ok(())
    });
    let mut rng = StdRng::seed_from_u64(5);
    let numbers = numbers(20_000, Order::Shuffled, &mut rng);
    let files = load(&ingest, &numbers, limits).unwrap();
    let made = ingest.versions().new_file_id() as usize - files.files().len();
    assert!(made > 3 * 8usize.pow(4), "{made} runs: five tiers");
    let last = *seen.lock().last().unwrap();
    assert!(last <= 8, "the last merge reads {last} runs");
    assert!(stored(&ingest, &files) == expected(&numbers));
}

#[test]
fn what_comes_in_order_is_written_once() {
    let ingest = setup();
    let written = Arc::new(AtomicU64::new(0));
    let sum = Arc::clone(&written);
    let mut limits = limits(64 << 10, false);
    limits.pacer = Arc::new(move |bytes, _| {
        sum.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    });
    let mut load = IndexLoad::new(&ingest, &[Uniqueness::Key], limits).unwrap();
    for n in 0..50_000u32 {
        let (user_key, unique_len) = &keys(n)[0];
        let entry = LoadEntry {
            user_key,
            unique_len: *unique_len,
            kind: Kind::Put,
            value: Value::whole(&user_key[..]),
        };
        load.add(0, entry).unwrap();
        assert!(load.held <= 20 << 10);
    }
    let files = load
        .finish(&mut |_, total| panic!("{total} to merge"))
        .unwrap();
    let stored: u64 = files.files().iter().map(|f| f.size).sum();
    assert!(written.load(Ordering::Relaxed) <= stored);
    let entries: u64 = files.files().iter().map(|f| f.entries).sum();
    assert_eq!(entries, 50_000);
}

#[test]
fn who_waits_for_a_slow_disk_hears_of_a_kill() {
    let ingest = setup();
    let mut limits = limits(32 << 10, true);
    let (interrupted, reached) = (Arc::clone(&limits.interrupted), Arc::default());
    let at_the_disk: Arc<AtomicBool> = Arc::clone(&reached);
    // The pacer blocks the writes until the load is canceled.
    limits.pacer = Arc::new(move |_, cancel| {
        at_the_disk.store(true, Ordering::SeqCst);
        while !cancel.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        Err(canceled())
    });
    let mut load = IndexLoad::new(&ingest, &SORTERS, limits).unwrap();
    let killer = std::thread::spawn(move || {
        while !reached.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        interrupted.store(true, Ordering::SeqCst);
    });
    let rows = numbers(20_000, Order::Shuffled, &mut StdRng::seed_from_u64(1));
    let failure = rows.iter().find_map(|n| add_row(&mut load, *n).err());
    killer.join().unwrap();
    match failure {
        Some(LoadFailure::Error(error)) => assert_eq!(error.kind(), &ErrorKind::Interrupted),
        _ => panic!("the load went on"),
    }
    drop(load);
    assert_eq!(left(&ingest), 0);
}

#[test]
fn duplicates_are_found_wherever_they_hide() {
    for seed in 0..32 {
        let mut rng = StdRng::seed_from_u64(seed);
        let ingest = setup();
        let order = ORDERS[seed as usize % 4];
        let rows = numbers(rng.random_range(2..3000), order, &mut rng);
        let memory = 1 << rng.random_range(15..20);
        let mut load = IndexLoad::new(&ingest, &SORTERS, limits(memory, rng.random())).unwrap();
        let again = rows[rng.random_range(0..rows.len() - 1)];
        let at = rng.random_range(1..rows.len());
        // `whole`: add a row again. Otherwise add another row with the same value in the unique
        // index.
        let whole: bool = rng.random();
        let outcome = rows.iter().enumerate().try_for_each(|(i, n)| {
            add_row(&mut load, *n)?;
            if i != at {
                return Ok(());
            }
            if whole {
                return add_row(&mut load, again);
            }
            let (_, unique_len) = keys(again)[1];
            let mut user_key = keys(again)[1].0.clone();
            user_key[unique_len..].copy_from_slice(&u32::MAX.to_be_bytes());
            load.add(
                1,
                LoadEntry {
                    user_key: &user_key,
                    unique_len,
                    kind: Kind::Put,
                    value: Value::EMPTY,
                },
            )
        });
        // The first of the two rows may be among the rows from `at` on.
        let outcome = outcome.and_then(|()| load.finish(&mut |_, _| Ok(())).map(|_| ()));
        let Err(LoadFailure::Duplicate(duplicate)) = outcome else {
            panic!("seed {seed}: {outcome:?}");
        };
        let (sorter, key) = if whole { (0, 0) } else { (1, 1) };
        assert_eq!(duplicate.sorter, sorter, "seed {seed}");
        let (wanted, len) = &keys(again)[key];
        assert_eq!(duplicate.user_key[..*len], wanted[..*len], "seed {seed}");
        // The files live as long as the duplicate, which needs them for the message.
        drop(duplicate);
        assert_eq!(left(&ingest), 0, "seed {seed}");
    }
}

#[test]
fn of_several_duplicates_the_first_index_is_reported() {
    let ingest = setup();
    for threads in [false, true] {
        let mut rows: Vec<u32> = (0..2000).rev().collect();
        rows.push(7);
        let failure = load(&ingest, &rows, limits(16 << 10, threads))
            .map(|_| ())
            .unwrap_err();
        let LoadFailure::Duplicate(duplicate) = failure else {
            panic!("{failure}");
        };
        assert_eq!(duplicate.sorter, 0);
    }
}

#[test]
fn nulls_are_no_duplicates() {
    let ingest = setup();
    let mut load = IndexLoad::new(&ingest, &[Uniqueness::Start], limits(1 << 20, false)).unwrap();
    for id in [3u8, 1, 2] {
        let user_key = [0, 0, 0, 1, 0, id];
        let entry = LoadEntry {
            user_key: &user_key,
            unique_len: 0,
            kind: Kind::Put,
            value: Value::EMPTY,
        };
        load.add(0, entry).unwrap();
    }
    let files = load.finish(&mut |_, _| Ok(())).unwrap();
    assert_eq!(stored(&ingest, &files).len(), 3);
}

#[test]
fn a_load_that_is_given_up_leaves_nothing() {
    for seed in 0..24 {
        let mut rng = StdRng::seed_from_u64(seed);
        let ingest = setup();
        let rows = numbers(3000, ORDERS[seed as usize % 4], &mut rng);
        let threads = rng.random();
        let mut load = IndexLoad::new(&ingest, &SORTERS, limits(40 << 10, threads)).unwrap();
        let upto = rng.random_range(0..=rows.len());
        rows[..upto]
            .iter()
            .for_each(|n| add_row(&mut load, *n).unwrap());
        if seed % 2 == 0 {
            drop(load);
        } else {
            let stop = || Err(Error::new(ErrorKind::Interrupted, "stop"));
            let mut looks = rng.random_range(0..3);
            let outcome = load.finish(&mut |_, _| {
                looks -= 1;
                if looks < 0 { stop() } else { Ok(()) }
            });
            drop(outcome);
        }
        assert_eq!(left(&ingest), 0, "seed {seed}");
    }
}

#[test]
fn a_pacer_that_refuses_ends_the_load() {
    let ingest = setup();
    for threads in [false, true] {
        let calls = AtomicU64::new(0);
        let mut limits = limits(32 << 10, threads);
        limits.pacer = Arc::new(move |_, _| match calls.fetch_add(1, Ordering::Relaxed) {
            0..3 => Ok(()),
            _ => Err(Error::new(ErrorKind::NoSpace, "full")),
        });
        let mut rng = StdRng::seed_from_u64(1);
        let rows = numbers(20_000, Order::Shuffled, &mut rng);
        let failure = load(&ingest, &rows, limits).map(|_| ()).unwrap_err();
        let LoadFailure::Error(error) = failure else {
            panic!("{failure}");
        };
        assert_eq!(*error.kind(), ErrorKind::NoSpace);
        assert_eq!(left(&ingest), 0);
    }
}

#[test]
fn equal_entries_of_an_index_that_may_have_none_are_a_bug_of_the_caller() {
    let ingest = setup();
    let mut load = IndexLoad::new(&ingest, &[Uniqueness::None], limits(1 << 20, false)).unwrap();
    let entry = LoadEntry {
        user_key: &[0, 0, 0, 1, 5],
        unique_len: 0,
        kind: Kind::Put,
        value: Value::EMPTY,
    };
    load.add(0, entry).unwrap();
    load.add(0, entry).unwrap();
    assert!(load.finish(&mut |_, _| Ok(())).is_err());
    assert_eq!(left(&ingest), 0);
}
