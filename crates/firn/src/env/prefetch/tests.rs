#![allow(clippy::disallowed_methods)] // Descriptors of all kinds.

use super::super::direct::DirectRead;
use super::super::{Env, PosixEnv, ReadFile};
use super::*;
use crate::env::ReadClass;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use std::path::Path;

fn write(path: &Path, bytes: &[u8]) {
    let mut file = PosixEnv::new().create(path).unwrap();
    file.append(bytes).unwrap();
    file.sync().unwrap();
}

fn content(len: usize, seed: u64) -> Vec<u8> {
    let mut bytes = vec![0; len];
    SmallRng::seed_from_u64(seed).fill(&mut bytes[..]);
    bytes
}

/// Both implementations, if the kernel supports rings.
fn ways() -> Vec<Arc<Prefetcher>> {
    let ways = vec![Prefetcher::new(true), Prefetcher::new(false)];
    assert_eq!(
        ways[1].way(),
        PrefetchMethod::Threads,
        "no ring was asked for"
    );
    ways
}

fn open(path: &Path, prefetched: &Arc<Prefetcher>) -> DirectRead {
    let file = std::fs::File::open(path).unwrap();
    DirectRead::new(file, path, prefetched)
}

/// A reader of the existing file at `path` whose reads always fail.
fn unreadable(path: &Path, prefetched: &Arc<Prefetcher>) -> DirectRead {
    let file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    DirectRead::new(file, path, prefetched)
}

/// Random announcements and reads of several files, one of which cannot be read. The reads must
/// return the bytes of the files.
#[test]
fn announced_reads_give_what_plain_ones_do() {
    let dir = tempfile::tempdir().unwrap();
    let lens = [0, 1, 4096, 10_000, 300_000, 3 << 20];
    let contents: Vec<Vec<u8>> = lens.iter().map(|&len| content(len, len as u64)).collect();
    let path = |file: usize| dir.path().join(format!("file {file}"));
    for (file, bytes) in contents.iter().enumerate() {
        write(&path(file), bytes);
    }
    for (seed, prefetched) in (1..=8).flat_map(|seed| ways().into_iter().map(move |a| (seed, a))) {
        let mut rng = SmallRng::seed_from_u64(seed);
        let files: Vec<DirectRead> = (0..lens.len())
            .map(|file| open(&path(file), &prefetched))
            .collect();
        let broken = unreadable(&path(3), &prefetched);
        let way = prefetched.way();
        for round in 0..60 {
            let place = |rng: &mut SmallRng| {
                let file = rng.random_range(0..lens.len());
                let offset = match rng.random_range(0..4) {
                    0 => lens[file].saturating_sub(rng.random_range(0..5000)),
                    1 => rng.random_range(0..=lens[file] / 4096) * 4096,
                    _ => rng.random_range(0..=lens[file] + 5000),
                };
                let len = match rng.random_range(0..4) {
                    0 => 0,
                    1 => rng.random_range(1..200),
                    2 => 4096,
                    _ => rng.random_range(1..60_000),
                };
                (file, offset, len)
            };
            let mut reads = PrefetchBatch::new();
            let mut places: Vec<(usize, usize, usize)> = Vec::new();
            for _ in 0..rng.random_range(0..80) {
                let (file, offset, len) = place(&mut rng);
                match rng.random_range(0..10) {
                    0 => broken.prefetch(offset as u64, len as u64, &mut reads),
                    _ => files[file].prefetch(offset as u64, len as u64, &mut reads),
                }
                places.push((file, offset, len));
            }
            // Some announcements are dropped, some announced reads are never made, some reads are
            // not announced.
            if rng.random_ratio(9, 10) {
                reads.start();
            }
            places.retain(|_| rng.random_ratio(3, 4));
            places.extend((0..5).map(|_| place(&mut rng)));
            for (file, offset, len) in places {
                let mut buf = vec![0; len];
                let read = files[file].read_exact_at(ReadClass::Point, offset as u64, &mut buf);
                let context =
                    format!("{way}, seed {seed}, round {round}: {len} bytes at {offset} of {file}");
                match contents[file].get(offset..offset + len) {
                    Some(expected) => {
                        read.expect(&context);
                        assert!(buf == expected, "{context}");
                    }
                    None => assert!(read.is_err(), "{context}"),
                }
                if len > 0 {
                    let read = broken.read_exact_at(ReadClass::Point, offset as u64, &mut buf);
                    assert!(read.is_err(), "unreadable: {context}");
                }
            }
        }
        let stats = prefetched.stats();
        assert!(stats.submitted > 100, "{way}, seed {seed}: {stats:?}");
        // With threads it is a matter of timing whether a read has begun when it is taken.
        let all_begun = way == PrefetchMethod::Ring;
        assert!(
            stats.taken > 100 || !all_begun,
            "{way}, seed {seed}: {stats:?}"
        );
        drop((files, broken));
        assert_eq!(
            prefetched.table.lock().len(),
            0,
            "closed files leave nothing behind"
        );
        let unused = prefetched.stats().unused;
        assert!(unused > 0, "{way}, seed {seed}");
    }
}

#[test]
fn a_taken_read_is_made_once_and_forgotten() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = content(200_000, 1);
    write(&path, &bytes);
    for prefetched in ways() {
        let file = open(&path, &prefetched);
        let blocks = [
            (10_000, 3000),
            (13_000, 5000),
            (30_000, 4000),
            (150_000, 7000),
        ];
        let mut reads = PrefetchBatch::new();
        // In reverse order, and each range twice.
        for (offset, len) in blocks.into_iter().rev().chain(blocks) {
            file.prefetch(offset, len, &mut reads);
        }
        reads.start();
        assert_eq!(prefetched.stats().submitted, 2, "neighbours in one piece");
        let mut again = PrefetchBatch::new();
        file.prefetch(30_000, 4000, &mut again);
        again.start();
        assert_eq!(prefetched.stats().submitted, 2, "under way already");
        if let PrefetchBackend::Threads(_) = prefetched.way {
            // A read that has not begun would be made by the caller itself.
            while !prefetched.table.lock().is_complete() {
                std::thread::yield_now();
            }
        }
        for (offset, len) in blocks {
            let mut buf = vec![0; len as usize];
            file.read_exact_at(ReadClass::Point, offset, &mut buf)
                .unwrap();
            assert!(buf == bytes[offset as usize..][..len as usize]);
        }
        let stats = prefetched.stats();
        assert_eq!((stats.taken, stats.unused), (4, 0), "{}", prefetched.way());
        assert_eq!(prefetched.table.lock().len(), 0, "gaps are not waited for");
    }
}

#[test]
fn what_nobody_asks_for_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = content(64 << 20, 2);
    write(&path, &bytes);
    for prefetched in ways() {
        let file = open(&path, &prefetched);
        let step = PIECE_MAX / 2;
        for offset in (0..bytes.len() as u64 - step).step_by(step as usize + 2 * GAP as usize) {
            let mut reads = PrefetchBatch::new();
            file.prefetch(offset + 1, step, &mut reads);
            reads.start();
            assert!(prefetched.table.lock().bytes() <= piece_table::BYTES_MAX);
        }
        assert!(prefetched.stats().unused > 10);
        let mut buf = vec![0; bytes.len()];
        file.read_exact_at(ReadClass::Point, 0, &mut buf).unwrap();
        assert!(buf == bytes);
    }
}

/// Threads announce and read the same ranges, while others close files with announced reads.
#[test]
fn threads_share_announced_reads() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = content(1 << 20, 3);
    write(&path, &bytes);
    for prefetched in ways() {
        let file = open(&path, &prefetched);
        std::thread::scope(|scope| {
            for seed in 0..4 {
                let (file, prefetched, path, bytes) = (&file, &prefetched, &path, &bytes);
                scope.spawn(move || {
                    let mut rng = SmallRng::seed_from_u64(seed);
                    for _ in 0..100 {
                        let mut reads = PrefetchBatch::new();
                        let places: Vec<u64> =
                            (0..20).map(|_| rng.random_range(0..250) * 4096).collect();
                        let other = rng.random_ratio(1, 4).then(|| open(path, prefetched));
                        let file: &DirectRead = other.as_ref().unwrap_or(file);
                        for &place in &places {
                            file.prefetch(place, 5000, &mut reads);
                        }
                        reads.start();
                        for place in places.into_iter().take(15) {
                            let mut buf = vec![0; 5000];
                            file.read_exact_at(ReadClass::Point, place, &mut buf)
                                .unwrap();
                            assert!(
                                buf == bytes[place as usize..][..5000],
                                "seed {seed}, at {place}"
                            );
                        }
                    }
                });
            }
        });
    }
}

/// After a panic between announcement and read, the reads in progress are awaited, not leaked.
#[test]
fn a_panic_leaves_no_read_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    write(&path, &content(1 << 20, 4));
    for prefetched in ways() {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let file = open(&path, &prefetched);
            let mut reads = PrefetchBatch::new();
            (0..16).for_each(|n| file.prefetch(n * 60_000, 9000, &mut reads));
            reads.start();
            panic!("amid the reads");
        }));
        assert!(result.is_err());
        assert_eq!(prefetched.table.lock().len(), 0);
        assert_eq!(prefetched.stats().unused, 16);
        if let PrefetchBackend::Ring(rings, _) = &prefetched.way {
            assert_eq!(
                rings.idle(),
                1,
                "the ring came back, so nothing is under way"
            );
        }
    }
}

/// A kernel that returns half of the requested bytes, interrupts a read, or fails it.
#[test]
fn short_and_returned_reads_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    let bytes = content(64 << 10, 5);
    write(&path, &bytes);
    let PrefetchBackend::Ring(rings, _) = &Prefetcher::new(true).way else {
        return;
    };
    for (seed, errors) in [(1, false), (2, true), (3, true), (4, false)] {
        let mut rng = SmallRng::seed_from_u64(seed);
        let place = PrefetchExtent {
            file: Arc::new(std::fs::File::open(&path).unwrap()),
            bytes: 100..60_000,
            wanted: 59_900,
        };
        let mut turn = 0;
        let outcome = rings.with_results(&place, &mut |result| {
            turn += 1;
            match turn % 3 {
                0 => -11,
                _ if errors && turn > 3 => -5,
                _ => result.min(rng.random_range(1..3) * BLOCK as i32),
            }
        });
        match outcome {
            Some(found) => {
                assert!(!errors, "seed {seed}");
                assert!(found[..] == bytes[..60 << 10][..found.len()]);
                assert!(found.len() >= 60_000);
            }
            None => assert!(errors, "seed {seed}"),
        }
    }
}
